#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/engine-internal.h"
#include "run/memory.h"
#include "run/mounts.h"
#include "run/outputs.h"
#include "run/skills.h"
#include "sandbox/manager.h"

/* Concurrency: engine.lock guards the map and each box's refs; box.lock is held through a call, so that a cancelled call ends before the next one
 * starts. Lock order: engine.lock is never held while box.lock is waited for. */

enum { NO_EPOCH = -1 };

struct mg_box {
    struct mg_id session, thread;
    struct mg_engine *engine;
    pthread_mutex_t lock;
    struct mg_sandbox *sandbox;
    struct mg_tools *tools;
    struct mg_memory *memory; /* a reference; set before others see the box; NULL: no stores */
    unsigned refs;            /* guarded by engine.lock; the map holds one */
    uint64_t used_ns;         /* guarded by engine.lock */
    bool stale;               /* guarded by engine.lock: what is mounted may have changed */
    bool missing;             /* guarded by engine.lock: a repository is not in the sandbox */
    int64_t tried;            /* guarded by engine.lock: the epoch of the turn that has tried to put it there */
};

static void box_free(struct mg_box *b)
{
    mg_tools_free(b->tools);
    mg_memory_close(b->engine, b->memory);
    mg_sandbox_release(b->sandbox);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void mg_box_unref(struct mg_box *b)
{
    pthread_mutex_lock(&b->engine->lock);
    bool last = --b->refs == 0;
    pthread_mutex_unlock(&b->engine->lock);
    if (last)
        box_free(b);
}

static struct mg_sv key_of(const struct mg_id *session, const struct mg_id *thread)
{
    return mg_id_sv(thread->s[0] ? thread : session);
}

struct mg_box *mg_box_lock(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread)
{
    pthread_mutex_lock(&e->lock);
    struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    if (b) {
        b->refs++;
        b->used_ns = mg_now_ns();
    }
    pthread_mutex_unlock(&e->lock);
    if (b)
        pthread_mutex_lock(&b->lock);
    return b;
}

void mg_box_unlock(struct mg_box *b)
{
    pthread_mutex_unlock(&b->lock);
    pthread_mutex_lock(&b->engine->lock);
    b->used_ns = mg_now_ns();
    pthread_mutex_unlock(&b->engine->lock);
    mg_box_unref(b);
}

struct mg_tools *mg_box_tools(struct mg_box *b)
{
    return b->tools;
}

struct mg_sandbox *mg_box_sandbox(struct mg_box *b)
{
    return b->sandbox;
}

struct mg_memory *mg_box_memory(struct mg_box *b)
{
    return b->memory;
}

struct mg_sv mg_box_session(const struct mg_box *b)
{
    return mg_id_sv(&b->session);
}

struct mg_box *mg_box_ref_locked(struct mg_box *b)
{
    b->refs++;
    return b;
}

bool mg_box_have(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread)
{
    pthread_mutex_lock(&e->lock);
    const struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    bool have = b && !b->stale;
    pthread_mutex_unlock(&e->lock);
    return have;
}

bool mg_box_has_memory(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread)
{
    pthread_mutex_lock(&e->lock);
    const struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    bool has = b && b->memory;
    pthread_mutex_unlock(&e->lock);
    return has;
}

bool mg_box_ready(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread)
{
    pthread_mutex_lock(&e->lock);
    const struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    bool ready = b && !b->stale && mg_sandbox_fresh(b->sandbox);
    pthread_mutex_unlock(&e->lock);
    return ready;
}

bool mg_box_wants_repositories(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread,
                               int64_t epoch)
{
    pthread_mutex_lock(&e->lock);
    const struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    bool wants = b && b->missing && b->tried != epoch;
    pthread_mutex_unlock(&e->lock);
    return wants;
}

void mg_box_repositories(struct mg_box *b, bool missing, int64_t tried)
{
    pthread_mutex_lock(&b->engine->lock);
    b->missing = missing;
    b->tried = tried;
    pthread_mutex_unlock(&b->engine->lock);
}

static void set_stale(struct mg_box *b, bool stale)
{
    pthread_mutex_lock(&b->engine->lock);
    b->stale = stale;
    pthread_mutex_unlock(&b->engine->lock);
}

/* The flag goes down first: what changes meanwhile raises it again. */
static mg_rc freshen(struct mg_box *b, struct mg_pg *pg, struct mg_err *err)
{
    bool missing = false;
    set_stale(b, false);
    mg_rc rc = mg_mounts_sync(b->engine, pg, &b->session, b->sandbox, &missing, err);
    if (rc < 0)
        set_stale(b, true);
    else
        mg_box_repositories(b, missing, NO_EPOCH);
    return rc;
}

/* One that is here already keeps its shell; only its backend is asked whether it still answers. MG_ENOTFOUND: none here. */
static mg_rc gate(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                  struct mg_err *err)
{
    pthread_mutex_lock(&e->lock);
    struct mg_box *b = mg_map_get(e->boxes, key_of(session, thread));
    if (b)
        b->refs++;
    bool stale = b && b->stale;
    pthread_mutex_unlock(&e->lock);
    if (!b)
        return MG_ENOTFOUND;
    mg_rc rc = mg_sandbox_gate(b->sandbox, err);
    if (rc >= 0 && stale)
        rc = freshen(b, pg, err);
    mg_box_unref(b);
    return rc;
}

static const struct mg_stmt SQL_ENV = {"box_env", "SELECT env_config FROM sessions WHERE id = $1"};

mg_rc mg_box_acquire(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                     struct mg_cancel *cancel, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    if (!e->opts.sandboxes)
        return mg_err_set(err, MG_EINVAL, "this server runs no sandbox: set MANGO_SANDBOX");
    mg_rc rc = gate(e, pg, session, thread, err);
    if (rc != MG_ENOTFOUND)
        return rc;
    rc = mg_pg_exec(pg, &SQL_ENV, (const struct mg_sv[]){mg_id_sv(session)}, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session is gone");
    struct mg_box *b = mg_xcalloc(1, sizeof(*b));
    *b = (struct mg_box){
        .session = *session, .thread = *thread, .engine = e, .refs = 1, .used_ns = mg_now_ns(), .tried = NO_EPOCH};
    pthread_mutex_init(&b->lock, NULL);
    rc = mg_sandbox_acquire(e->opts.sandboxes, pg, mg_id_sv(session), mg_res_sv(r, 0, 0), cancel, &b->sandbox, err);
    if (rc >= 0)
        rc = mg_mounts_sync(e, pg, session, b->sandbox, &b->missing, err);
    if (rc >= 0)
        rc = mg_skills_prepare(e, pg, session, b->sandbox, err);
    if (rc >= 0)
        rc = mg_memory_open(e, pg, session, &b->memory, err);
    if (rc >= 0 && e->opts.objects)
        mg_outputs_prepare(b->sandbox);
    if (rc < 0) {
        box_free(b);
        return rc;
    }
    b->tools = mg_tools_new(mg_sandbox_ops(b->sandbox), b->sandbox);
    pthread_mutex_lock(&e->lock);
    struct mg_box *old = mg_map_put(e->boxes, key_of(session, thread), b);
    pthread_mutex_unlock(&e->lock);
    if (old)
        mg_box_unref(old);
    return MG_OK;
}

struct mark {
    struct mg_sv session;
};

static void mark_look(void *ctx, struct mg_sv key, void *value)
{
    const struct mark *m = ctx;
    struct mg_box *b = value;
    (void)key;
    if (mg_sv_eq(mg_id_sv(&b->session), m->session))
        b->stale = true;
}

void mg_box_stale(struct mg_engine *e, struct mg_sv session)
{
    pthread_mutex_lock(&e->lock);
    mg_map_each(e->boxes, mark_look, &(struct mark){session});
    pthread_mutex_unlock(&e->lock);
}

enum { SCAN_BATCH = 64 /* boxes that one look under the lock collects */ };

struct scan {
    const struct mg_id *session; /* its boxes, or NULL: those that nobody uses */
    uint64_t before_ns;
    struct mg_id found[SCAN_BATCH]; /* keys */
    int n;
};

static void scan_look(void *ctx, struct mg_sv key, void *value)
{
    struct scan *s = ctx;
    const struct mg_box *b = value;
    bool wanted = s->session ? strcmp(b->session.s, s->session->s) == 0 : b->refs == 1 && b->used_ns <= s->before_ns;
    if (wanted && s->n < SCAN_BATCH)
        (void)mg_id_from(key, &s->found[s->n++]);
}

static void scan_drop(struct mg_engine *e, struct scan *s)
{
    do {
        s->n = 0;
        pthread_mutex_lock(&e->lock);
        mg_map_each(e->boxes, scan_look, s);
        pthread_mutex_unlock(&e->lock);
        for (int i = 0; i < s->n; i++) {
            pthread_mutex_lock(&e->lock);
            struct mg_box *b = mg_map_del(e->boxes, mg_id_sv(&s->found[i]));
            pthread_mutex_unlock(&e->lock);
            if (b)
                mg_box_unref(b);
        }
    } while (s->n == SCAN_BATCH);
}

void mg_box_drop(struct mg_engine *e, const struct mg_id *session)
{
    scan_drop(e, &(struct scan){.session = session});
}

void mg_box_drop_idle(struct mg_engine *e, uint64_t idle_ns)
{
    uint64_t now = mg_now_ns();
    scan_drop(e, &(struct scan){.before_ns = now > idle_ns ? now - idle_ns : 0});
}
