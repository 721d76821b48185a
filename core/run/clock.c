#include "base/clock.h"
#include "base/hook.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "run/engine-internal.h"
#include "run/mcp.h"
#include "sandbox/manager.h"
#include "store/node.h"

/* Two threads. The clock thread runs timers and watches the lease's end by the monotonic clock; it touches no database, so that a database that hangs
 * cannot delay the self-fence. The lease thread renews the node's lease and claims turns of dead nodes.
 *
 * Concurrency: clock.lock guards timers, until_ns, fencing, stop. Lock order: clock.lock before none. */

struct timer {
    struct timer *next;
    uint64_t due_ns;
    struct mg_run *run;
    mg_run_fn *fn;
};

struct mg_clock {
    struct mg_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t tick, lease_tick;
    struct timer *timers; /* sorted by due_ns */
    uint64_t until_ns;    /* of the lease; 0: none, all runs are fenced */
    bool fencing;         /* the clock thread is about to stop the runs of a lease that it gave up */
    bool stop;
    pthread_t clock_thread, lease_thread;
};

enum {
    MG_CLOCK_HOUSEKEEPING_MS = 5000,
    MG_CLOCK_SCAN_MAX_MS = 2000, /* between two looks for turns of dead nodes */
    MG_CLAIM_BATCH = 200,
};

/* A lease is given up this long before the database may let another node take over. */
static uint64_t fence_margin_ns(const struct mg_engine *e)
{
    return (uint64_t)e->opts.node_ttl_ms * 1000000 / 5;
}

void mg_run_after(struct mg_run *r, uint64_t delay_ms, mg_run_fn *fn)
{
    struct mg_clock *c = r->engine->clock;
    struct timer *t = mg_xmalloc(sizeof(*t));
    *t = (struct timer){.due_ns = mg_now_ns() + delay_ms * 1000000, .run = mg_run_ref(r), .fn = fn};
    pthread_mutex_lock(&c->lock);
    struct timer **at = &c->timers;
    while (*at && (*at)->due_ns <= t->due_ns)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    pthread_cond_signal(&c->tick);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the clock thread ---- */

static struct timer *take_due(struct mg_clock *c, uint64_t now)
{
    struct timer *due = c->timers, **end = &due;
    while (*end && (*end)->due_ns <= now)
        end = &(*end)->next;
    c->timers = *end;
    *end = NULL;
    return due;
}

static void fire(struct timer *due)
{
    for (struct timer *next; due; due = next) {
        next = due->next;
        if (mg_cancel_fired(due->run->cancel))
            mg_run_drop(due->run);
        else
            mg_run_later(due->run, due->fn);
        mg_run_unref(due->run);
        free(due);
    }
}

/* Called with the lock held. True once when the lease is about to end. */
static bool lease_ends(struct mg_clock *c, uint64_t now)
{
    if (c->until_ns == 0 || now + fence_margin_ns(c->engine) < c->until_ns)
        return false;
    c->until_ns = 0;
    c->fencing = true;
    return true;
}

static void fence(struct mg_clock *c)
{
    mg_log(MG_ERROR, "the node's lease could not be renewed in time: all turns of this node are stopped");
    mg_run_cancel_all(c->engine);
    pthread_mutex_lock(&c->lock);
    c->fencing = false;
    pthread_mutex_unlock(&c->lock);
}

static uint64_t next_look(const struct mg_clock *c, uint64_t now)
{
    uint64_t at = now + 1000000000;
    if (c->timers && c->timers->due_ns < at)
        at = c->timers->due_ns;
    uint64_t paced = mg_pace_next_ns(c->engine->pace);
    at = paced < at ? paced : at;
    uint64_t fence = c->until_ns ? c->until_ns - fence_margin_ns(c->engine) : at;
    return fence < at ? fence : at;
}

static void *clock_main(void *arg)
{
    struct mg_clock *c = arg;
    uint64_t housekeeping = 0;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        uint64_t now = mg_now_ns();
        struct timer *due = take_due(c, now);
        bool fenced = lease_ends(c, now);
        pthread_mutex_unlock(&c->lock);
        fire(due);
        mg_pace_go(c->engine->pace);
        if (fenced)
            fence(c);
        if (now >= housekeeping) {
            mg_hub_tick(c->engine->hub);
            mg_runs_overdue(c->engine);
            mg_work_tick(c->engine);
            mg_boxes_keep(c->engine);
            mg_box_drop_idle(c->engine, (uint64_t)MG_SHELL_IDLE_S * 1000000000);
            mg_mcp_links_drop_idle(c->engine->mcp, (uint64_t)MG_MCP_IDLE_S * 1000000000);
            housekeeping = now + 1000000000;
        }
        pthread_mutex_lock(&c->lock);
        if (!c->stop)
            (void)mg_cond_wait_until(&c->tick, &c->lock, next_look(c, mg_now_ns()));
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the lease thread ---- */

/* fresh false: the lease that is held goes on. False: the clock thread gave it up while the database was asked. */
static bool lease_set(struct mg_clock *c, const struct mg_node_lease *l, bool fresh)
{
    pthread_mutex_lock(&c->lock);
    bool set = fresh || c->until_ns != 0;
    if (set)
        c->until_ns = l->until_ns;
    pthread_mutex_unlock(&c->lock);
    if (set && c->engine->notify)
        mg_notify_others(c->engine->notify, l->others);
    return set;
}

/* After a lapse the old id must not be used again: its turns may have been taken over, and its late writes must find a stranger. */
static void node_rename(struct mg_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->node = mg_id_new("node");
    pthread_mutex_unlock(&e->lock);
}

static mg_rc node_enter(struct mg_engine *e, struct mg_pg *pg, struct mg_node_lease *l, struct mg_err *err)
{
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    mg_rc rc = mg_node_register(pg, &e->node, host, MANGO_VERSION, (int)e->opts.node_ttl_ms, l, err);
    if (rc == MG_OK)
        mg_backends_publish(e, pg);
    return rc;
}

/* Under a new id; the turns that ran under the old one are claimed when its lease is over in the database too. */
static mg_rc join_again(struct mg_clock *c, struct mg_pg *pg, struct mg_err *err)
{
    struct mg_engine *e = c->engine;
    struct mg_node_lease l;
    mg_run_cancel_all(e);
    node_rename(e);
    mg_rc rc = node_enter(e, pg, &l, err);
    if (rc < 0)
        return rc;
    mg_log(MG_WARN, "this node joins again under a new id", MG_F_STR("node", e->node.s));
    (void)lease_set(c, &l, true);
    return MG_OK;
}

/* Whether the node has a lease. One that the clock thread gave up is never taken up again, also where the database has just extended it: its runs are
 * stopped, and nobody takes over the turns of a node that lives. */
static bool lease_renew(struct mg_clock *c, struct mg_pg *pg)
{
    struct mg_engine *e = c->engine;
    struct mg_node_lease l;
    struct mg_err err = {0};
    pthread_mutex_lock(&c->lock);
    bool have = c->until_ns != 0, fencing = c->fencing;
    pthread_mutex_unlock(&c->lock);
    if (fencing) /* it must not stop runs of the next lease */
        return false;
    mg_rc rc = have ? mg_node_renew(pg, &e->node, (int)e->opts.node_ttl_ms, &l, &err) : MG_EFENCED;
    if (rc == MG_OK)
        return lease_set(c, &l, false);
    if (rc == MG_EFENCED)
        rc = join_again(c, pg, &err);
    if (rc == MG_OK)
        return true;
    mg_log(MG_WARN, "the node's lease was not renewed", MG_F_STR("error", err.text));
    if (rc == MG_EUNAVAIL && e->opts.database_down)
        e->opts.database_down(e->opts.ctx);
    return false;
}

static void takeover(struct mg_clock *c, struct mg_pg *pg)
{
    struct mg_engine *e = c->engine;
    struct mg_err err = {0};
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_session_state *got;
    int n = 0;
    if (atomic_load(&e->draining))
        return;
    if (mg_turn_claim_dead(a, pg, &e->node, MG_CLAIM_BATCH, &got, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++) {
        atomic_fetch_add(&e->n_takeovers, 1);
        mg_log(MG_INFO, "turn taken over", MG_F_STR("session", got[i].session.s), MG_F_STR("thread", got[i].thread.s),
               MG_F_INT("epoch", got[i].turn_epoch), MG_F_STR("step", mg_turn_step_name(got[i].turn_step)));
        mg_engine_take(e, &got[i]);
    }
}

/* ---- housekeeping with a database: stream repair, deletions ---- */

struct heads {
    struct mg_engine *engine;
    struct mg_arena *arena;
    struct mg_sv *ids;
    int64_t *heads;
    int n, cap;
};

static void heads_add(void *ctx, const struct mg_id *session, int64_t head)
{
    struct heads *h = ctx;
    if (h->n == h->cap) {
        int cap = h->cap ? h->cap * 2 : 64;
        struct mg_sv *ids = mg_arena_alloc(h->arena, sizeof(*ids) * (size_t)cap);
        int64_t *heads = mg_arena_alloc(h->arena, sizeof(*heads) * (size_t)cap);
        for (int i = 0; i < h->n; i++) {
            ids[i] = h->ids[i];
            heads[i] = h->heads[i];
        }
        h->ids = ids;
        h->heads = heads;
        h->cap = cap;
    }
    h->ids[h->n] = mg_arena_sv(h->arena, mg_id_sv(session));
    h->heads[h->n++] = head;
}

static void head_is_newer(void *ctx, struct mg_sv session, int64_t last_seq)
{
    struct mg_engine *e = ctx;
    struct mg_id id;
    if (mg_id_from(session, &id))
        mg_hub_wake(e->hub, &id, last_seq == INT64_MAX ? 0 : last_seq);
}

static void heads_free(struct heads *h)
{
    atomic_fetch_sub(&h->engine->repairs, 1);
    mg_arena_free(h->arena);
    free(h);
}

/* Streams are compared with the database, whatever became of the wake-ups. */
static void repair_work(void *arg, void *thread)
{
    struct heads *h = arg;
    struct mg_err err = {0};
    if (h->n && mg_session_heads(h->arena, thread, h->ids, h->heads, h->n, head_is_newer, h->engine, &err) < 0)
        mg_log(MG_WARN, "streams could not be compared with the log", MG_F_STR("error", err.text));
    heads_free(h);
}

static void repair_collect(void *ctx, struct mg_hub *hub)
{
    struct heads *h = ctx;
    mg_hub_each_topic(hub, heads_add, h);
    if (h->n && mg_pool_submit(h->engine->steps, repair_work, h) == MG_OK)
        return;
    heads_free(h);
}

void mg_engine_repair(struct mg_engine *e)
{
    /* One at a time: a database that is slow must not collect them. */
    if (mg_hub_idle(e->hub) || atomic_load(&e->repairs))
        return;
    atomic_fetch_add(&e->repairs, 1);
    struct heads *h = mg_xcalloc(1, sizeof(*h));
    h->engine = e;
    h->arena = mg_arena_new();
    mg_hub_call(e->hub, repair_collect, h);
}

static const struct mg_stmt SQL_DELETE_SESSION = {"session_remove", "DELETE FROM sessions WHERE id = $1"};
static const struct mg_stmt SQL_DELETING = {
    "sessions_deleting",
    "SELECT session_id FROM session_state st WHERE deleting_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = st.session_id)"
    " AND NOT EXISTS (SELECT 1 FROM sandbox_intents i WHERE i.session_id = st.session_id) LIMIT 100",
};

struct gone {
    struct mg_engine *engine;
    struct mg_pg *pg;
};

static void session_gone(void *ctx, struct mg_sv session)
{
    struct gone *g = ctx;
    struct mg_err err = {0};
    mg_hook("session.before_remove");
    if (mg_pg_exec(g->pg, &SQL_DELETE_SESSION, &session, 1, NULL, &err) < 0)
        mg_log(MG_WARN, "a deleted session's rows stay for now", MG_F_SV("session", session),
               MG_F_STR("error", err.text));
}

static void reconcile_work(void *arg, void *thread)
{
    struct mg_engine *e = arg;
    struct gone g = {.engine = e, .pg = thread};
    struct mg_err err = {0};
    mg_auto(res) struct mg_res *r = NULL;
    if (e->opts.sandboxes)
        mg_sandboxes_reconcile(e->opts.sandboxes, thread, session_gone, &g);
    if (mg_pg_exec(thread, &SQL_DELETING, NULL, 0, &r, &err) < 0)
        return;
    for (int i = 0; i < mg_res_rows(r); i++)
        session_gone(&g, mg_res_sv(r, i, 0));
}

static void *lease_main(void *arg)
{
    struct mg_clock *c = arg;
    struct mg_engine *e = c->engine;
    struct mg_pg *pg = mg_pg_new(e->opts.conninfo);
    uint64_t third = (uint64_t)e->opts.node_ttl_ms * 1000000 / 3;
    uint64_t scan = third < (uint64_t)MG_CLOCK_SCAN_MAX_MS * 1000000 ? third : (uint64_t)MG_CLOCK_SCAN_MAX_MS * 1000000;
    uint64_t renew_at = mg_now_ns() + third, tidy_at = 0;
    struct mg_err err = {0};
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        pthread_mutex_unlock(&c->lock);
        uint64_t now = mg_now_ns();
        if (now >= renew_at && lease_renew(c, pg))
            renew_at = now + third;
        takeover(c, pg);
        mg_runs_verify(e, pg);
        mg_engine_adopt(e, pg, MG_SV(""));
        mg_engine_repair(e);
        if (now >= tidy_at) {
            (void)!mg_pool_submit(e->sandbox, reconcile_work, e);
            (void)!mg_pool_submit(e->sandbox, mg_backends_work, e);
            (void)!mg_node_expire(pg, 3600 * 1000, NULL, &err);
            tidy_at = now + (uint64_t)MG_CLOCK_HOUSEKEEPING_MS * 1000000;
        }
        pthread_mutex_lock(&c->lock);
        if (!c->stop)
            (void)mg_cond_wait_until(&c->lease_tick, &c->lock, now + scan);
    }
    pthread_mutex_unlock(&c->lock);
    mg_pg_free(pg);
    return NULL;
}

mg_rc mg_clock_start(struct mg_engine *e, struct mg_err *err)
{
    struct mg_clock *c = mg_xcalloc(1, sizeof(*c));
    struct mg_node_lease l;
    e->clock = c;
    c->engine = e;
    pthread_mutex_init(&c->lock, NULL);
    mg_cond_init(&c->tick);
    mg_cond_init(&c->lease_tick);
    struct mg_pg *pg = mg_pg_new(e->opts.conninfo);
    mg_rc rc = node_enter(e, pg, &l, err);
    mg_pg_free(pg);
    if (rc < 0)
        return rc;
    (void)lease_set(c, &l, true);
    int failed = mg_thread_start(&c->clock_thread, NULL, clock_main, c);
    if (failed == 0)
        failed = mg_thread_start(&c->lease_thread, NULL, lease_main, c);
    return failed ? mg_err_errno(err, failed, "start the engine's threads") : MG_OK;
}

void mg_clock_look(struct mg_engine *e)
{
    struct mg_clock *c = e->clock;
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->tick);
    pthread_mutex_unlock(&c->lock);
}

void mg_clock_stop(struct mg_engine *e)
{
    struct mg_clock *c = e->clock;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->tick);
    pthread_cond_broadcast(&c->lease_tick);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->clock_thread, NULL);
    pthread_join(c->lease_thread, NULL);
}

void mg_clock_free(struct mg_engine *e)
{
    struct mg_clock *c = e->clock;
    for (struct timer *t = c->timers, *next; t; t = next) {
        next = t->next;
        mg_run_drop(t->run);
        mg_run_unref(t->run);
        free(t);
    }
    pthread_cond_destroy(&c->tick);
    pthread_cond_destroy(&c->lease_tick);
    pthread_mutex_destroy(&c->lock);
    free(c);
    e->clock = NULL;
}
