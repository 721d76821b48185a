#include "base/clock.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/outputs.h"
#include "run/engine-internal.h"
#include "run/mcp.h"
#include "run/memory.h"
#include "run/validate.h"
#include "sandbox/manager.h"
#include "store/node.h"

enum {
    MG_STEP_THREADS_MIN = 4,    /* kept when idle */
    MG_STEP_QUEUE_MAX = 200000, /* waiting steps: a session has one at most */
    MG_SANDBOX_THREADS = 4,     /* creates and attaches at once; each holds a connection */
    MG_KEEPER_THREADS = 4, /* timers of sandboxes that are moved at once: a slow service holds up no other for long */
    MG_STOP_GRACE_MS = 10000, /* a stop waits this long for running tool calls before they are cancelled */
};

static void *pg_start(void *ctx)
{
    const struct mg_engine *e = ctx;
    return mg_pg_new(e->opts.conninfo);
}

static void pg_stop(void *ctx, void *thread)
{
    (void)ctx;
    mg_pg_free(thread);
}

mg_rc mg_engine_start(const struct mg_engine_opts *o, struct mg_engine **ret, struct mg_err *err)
{
    struct mg_engine *e = mg_xcalloc(1, sizeof(*e));
    e->opts = *o;
    e->opts.conninfo = mg_xstrdup(o->conninfo);
    e->opts.model_id = o->model_id && o->model_id[0] ? mg_xstrdup(o->model_id) : NULL;
    e->hub = o->hub;
    e->notify = o->notify;
    e->node = o->node;
    pthread_mutex_init(&e->lock, NULL);
    e->runs = mg_map_new();
    e->pace = mg_pace_new();
    e->boxes = mg_map_new();
    e->memories = mg_map_new();
    e->validations = mg_validations_new();
    e->mcp = mg_mcp_links_new(o->users, o->mcp_call_ms);
    e->steps =
        mg_pool_new(&(struct mg_pool_opts){.name = "step",
                                           .min = o->threads < MG_STEP_THREADS_MIN ? o->threads : MG_STEP_THREADS_MIN,
                                           .max = o->threads,
                                           .queue_max = MG_STEP_QUEUE_MAX,
                                           .thread_start = pg_start,
                                           .thread_stop = pg_stop,
                                           .ctx = e});
    e->tools = mg_pool_new(
        &(struct mg_pool_opts){.name = "tool", .min = 0, .max = o->tool_threads, .queue_max = MG_STEP_QUEUE_MAX});
    /* Of their own: servers that users name must not take the threads of sandboxes. */
    e->mcp_threads = mg_pool_new(
        &(struct mg_pool_opts){.name = "mcp", .min = 0, .max = o->tool_threads, .queue_max = MG_STEP_QUEUE_MAX});
    e->keepers = mg_pool_new(
        &(struct mg_pool_opts){.name = "keeper", .min = 0, .max = MG_KEEPER_THREADS, .queue_max = MG_STEP_QUEUE_MAX});
    e->sandbox = mg_pool_new(&(struct mg_pool_opts){.name = "sandbox",
                                                    .min = 0,
                                                    .max = MG_SANDBOX_THREADS,
                                                    .queue_max = MG_STEP_QUEUE_MAX,
                                                    .thread_start = pg_start,
                                                    .thread_stop = pg_stop,
                                                    .ctx = e});
    e->outputs = mg_pool_new(&(struct mg_pool_opts){.name = "output",
                                                    .min = 0,
                                                    .max = MG_OUTPUTS_THREADS,
                                                    .queue_max = MG_STEP_QUEUE_MAX,
                                                    .thread_start = pg_start,
                                                    .thread_stop = pg_stop,
                                                    .ctx = e});
    mg_rc rc = mg_clock_start(e, err);
    if (rc < 0)
        return rc; /* startup fails as a whole */
    *ret = e;
    return MG_OK;
}

static void cancel_model(struct mg_run *r)
{
    uint64_t call = atomic_load(&r->model_call);
    if (call)
        mg_model_cancel(r->engine->opts.model, call);
}

static void wait_for_tools(struct mg_engine *e)
{
    uint64_t end = mg_now_ns() + (uint64_t)MG_STOP_GRACE_MS * 1000000;
    while ((mg_pool_busy(e->tools) || mg_pool_busy(e->outputs) || mg_pool_busy(e->mcp_threads)) && mg_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* The hub's owner runs until the engine has stopped (it is the HTTP loop), so this ends soon. */
static void wait_for_repairs(struct mg_engine *e)
{
    while (atomic_load(&e->repairs))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Each was cancelled, or cancelled itself when it saw the draining, so this ends within a second. */
static void wait_for_calls(struct mg_engine *e)
{
    while (atomic_load(&e->calls))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void hand_on(struct mg_engine *e)
{
    struct mg_err err = {0};
    struct mg_pg *pg = mg_pg_new(e->opts.conninfo);
    mg_rc rc = mg_turn_release(pg, &e->node, &err);
    if (rc == MG_OK)
        rc = mg_node_delete(pg, &e->node, &err);
    if (rc < 0)
        mg_log(MG_WARN, "turns were not handed on; other nodes take them when the lease ends",
               MG_F_STR("error", err.text));
    mg_pg_free(pg);
}

struct mg_objects *mg_engine_objects(const struct mg_engine *e)
{
    return e->opts.objects;
}

struct mg_git *mg_engine_git(const struct mg_engine *e)
{
    return e->opts.git;
}

const struct mg_keyring *mg_engine_keyring(const struct mg_engine *e)
{
    return e->opts.keyring;
}

const struct mg_prices *mg_engine_prices(const struct mg_engine *e)
{
    return e->opts.prices;
}

void mg_engine_stop(struct mg_engine *e)
{
    atomic_store(&e->draining, true);
    mg_run_each(e, cancel_model);
    wait_for_tools(e);
    mg_run_cancel_all(e);
    mg_validations_cancel(e->validations);
    mg_clock_stop(e);
    wait_for_repairs(e);
    /* The pools give work to each other, and the model's threads to them: all are quiet before the first is freed. */
    mg_pool_stop(e->outputs);
    mg_pool_stop(e->keepers);
    mg_pool_stop(e->mcp_threads);
    mg_pool_stop(e->tools);
    mg_pool_stop(e->sandbox);
    mg_pool_stop(e->steps);
    wait_for_calls(e);
    mg_pool_free(e->outputs);
    mg_pool_free(e->keepers);
    mg_pool_free(e->mcp_threads);
    mg_pool_free(e->tools);
    mg_pool_free(e->sandbox);
    mg_pool_free(e->steps);
    mg_clock_free(e);
    hand_on(e);
    mg_box_drop_idle(e, 0);
    mg_mcp_links_drop_idle(e->mcp, 0);
}

void mg_engine_free(struct mg_engine *e)
{
    if (!e)
        return;
    mg_run_each(e, mg_run_unref);
    mg_pace_free(e->pace);
    mg_map_free(e->runs);
    mg_map_free(e->boxes);
    mg_map_free(e->memories);
    mg_validations_free(e->validations);
    mg_mcp_links_free(e->mcp);
    pthread_mutex_destroy(&e->lock);
    free((char *)e->opts.conninfo);
    free((char *)e->opts.model_id);
    free(e);
}

static void run_start(struct mg_engine *e, const struct mg_session_state *st, mg_run_fn *fn)
{
    struct mg_run *r = mg_run_new(e, &st->session, &st->thread, st->turn_epoch);
    if (!r)
        return; /* it runs already */
    r->roster = st->roster;
    mg_run_later(r, fn);
    mg_run_unref(r);
}

void mg_engine_go(struct mg_engine *e, const struct mg_session_state *st)
{
    if (atomic_load(&e->draining))
        return; /* the row names this node, whose lease ends with it: another one takes the turn */
    pthread_mutex_lock(&e->lock);
    bool ours = strcmp(st->turn_node.s, e->node.s) == 0;
    pthread_mutex_unlock(&e->lock);
    if (st->roster && !ours)
        return; /* the node that runs the session's other threads has been told by the commit's wake-up */
    run_start(e, st,
              st->turn_step == MG_TURN_MODEL   ? mg_run_request
              : st->turn_step == MG_TURN_TOOLS ? mg_run_calls
                                               : mg_run_resume);
}

void mg_engine_take(struct mg_engine *e, const struct mg_session_state *st)
{
    run_start(e, st, mg_run_resume);
}

void mg_engine_cancel_thread(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread,
                             int64_t below_epoch)
{
    struct mg_run *r = mg_run_find(e, mg_id_sv(session), mg_id_sv(thread));
    if (!r)
        return;
    if (r->epoch < below_epoch) {
        mg_run_cancel(r);
        mg_run_drop(r);
    }
    mg_run_unref(r);
}

void mg_engine_cancel(struct mg_engine *e, const struct mg_id *session, int64_t below_epoch)
{
    mg_engine_cancel_thread(e, session, &(const struct mg_id){0}, below_epoch);
}

void mg_engine_settled(struct mg_engine *e, const struct mg_id *session, int64_t epoch)
{
    mg_engine_cancel(e, session, epoch);
    mg_box_drop(e, session);
}

static const struct mg_stmt SQL_EPOCH[2] = {
    {"turn_epoch", "SELECT turn_epoch FROM session_state WHERE session_id = $1"},
    {"turn_epoch_child", "SELECT turn_epoch FROM thread_state WHERE session_id = $1 AND thread_id = $2"},
};

static void run_verify(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    mg_auto(res) struct mg_res *res = NULL;
    bool child = r->thread.s[0] != '\0';
    const struct mg_sv p[] = {mg_id_sv(&r->session), mg_id_sv(&r->thread)};
    if (mg_pg_exec(pg, &SQL_EPOCH[child], p, child ? 2 : 1, &res, &err) < 0)
        return; /* its own next write finds out */
    if (mg_res_rows(res) == 0 || mg_res_int(res, 0, 0) > r->epoch) {
        mg_run_cancel(r);
        mg_run_drop(r);
    }
}

/* Another node may have claimed a turn of this session for us, which runs other threads of it. */
static void run_adopt(struct mg_run *r, struct mg_pg *pg)
{
    mg_engine_adopt(r->engine, pg, mg_id_sv(&r->session));
}

void mg_engine_adopt(struct mg_engine *e, struct mg_pg *pg, struct mg_sv session)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_session_state *own;
    struct mg_err err = {0};
    int n = 0;
    pthread_mutex_lock(&e->lock);
    const struct mg_id node = e->node;
    pthread_mutex_unlock(&e->lock);
    if (mg_turns_own(a, pg, &node, session, &own, &n, &err) < 0)
        return; /* the lease thread looks again */
    for (int i = 0; i < n; i++)
        mg_engine_go(e, &own[i]);
}

void mg_engine_check(struct mg_engine *e, struct mg_sv session)
{
    struct mg_run *all[MG_RUN_SIBLINGS_MAX];
    if (atomic_load(&e->draining))
        return;
    mg_box_stale(e, session);
    int n = mg_run_siblings(e, session, all);
    for (int i = 0; i < n; i++) {
        if (i == 0 && all[i]->roster)
            mg_run_later(all[i], run_adopt);
        mg_run_later(all[i], run_verify);
        mg_run_unref(all[i]);
    }
}

struct destroy_job {
    struct mg_engine *engine;
    struct mg_id session;
};

static void destroy_work(void *arg, void *thread)
{
    mg_autofree struct destroy_job *j = arg;
    struct mg_err err = {0};
    mg_memory_write_back(j->engine, thread, &j->session);
    if (mg_sandbox_destroy(j->engine->opts.sandboxes, thread, mg_id_sv(&j->session), &err) < 0)
        mg_log(MG_WARN, "a sandbox is not destroyed yet; it is tried again", MG_F_STR("session", j->session.s),
               MG_F_STR("error", err.text));
}

static void destroy_later(struct mg_engine *e, const struct mg_id *session)
{
    if (!e->opts.sandboxes || atomic_load(&e->draining))
        return;
    struct destroy_job *j = mg_xmalloc(sizeof(*j));
    *j = (struct destroy_job){.engine = e, .session = *session};
    if (mg_pool_submit(e->sandbox, destroy_work, j) < 0)
        free(j); /* the reconciler does it */
}

void mg_engine_deleted(struct mg_engine *e, const struct mg_id *session, int64_t last_seq)
{
    struct mg_run *all[MG_RUN_SIBLINGS_MAX];
    int n = mg_run_siblings(e, mg_id_sv(session), all);
    for (int i = 0; i < n; i++) {
        mg_run_cancel(all[i]);
        mg_run_drop(all[i]);
        mg_run_unref(all[i]);
    }
    mg_box_drop(e, session);
    mg_mcp_links_drop(e->mcp, session);
    struct mg_id id = mg_id_new("sevt");
    char now[MG_TIME_LEN];
    mg_time_format(mg_wall_us(), now);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024);
    (void)mg_buf_printf(&b, "{\"id\":\"%s\",\"type\":\"session.deleted\",\"processed_at\":\"%s\"}", id.s, now);
    struct mg_event *ev =
        mg_event_new(last_seq + 1, mg_id_sv(&id), MG_SV("session.deleted"), MG_SV(""), mg_buf_view(&b));
    mg_hub_publish(e->hub, session, &ev, 1);
    if (e->notify)
        mg_notify_send(e->notify, mg_id_sv(session), last_seq + 1);
    destroy_later(e, session);
}

const struct mg_id *mg_engine_node(const struct mg_engine *e)
{
    return &e->node;
}

void mg_engine_metrics(struct mg_engine *e, struct mg_buf *out)
{
    const struct {
        const char *name, *help;
        long long value;
    } counters[] = {
        {"mango_turns_total", "Turns that ended on this node", atomic_load(&e->n_turns)},
        {"mango_model_requests_total", "Model requests sent", atomic_load(&e->n_requests)},
        {"mango_context_compactions_total", "Contexts that were made smaller", atomic_load(&e->n_compactions)},
        {"mango_model_retries_total", "Model requests that failed and are tried again", atomic_load(&e->n_retries)},
        {"mango_tool_calls_total", "Tool calls started in sandboxes", atomic_load(&e->n_tool_calls)},
        {"mango_tool_calls_overdue_total", "Tool calls given up because their sandbox did not answer by the deadline",
         atomic_load(&e->n_overdue)},
        {"mango_sandbox_waits_given_up_total", "Turns that ended because their sandbox backend stayed away too long",
         atomic_load(&e->n_given_up)},
        {"mango_tool_calls_ambiguous_total", "Tool calls whose result a crash lost", atomic_load(&e->n_ambiguous)},
        {"mango_turn_takeovers_total", "Turns taken over from dead nodes", atomic_load(&e->n_takeovers)},
        {"mango_turn_fenced_total", "Writes refused because another node owns the turn", atomic_load(&e->n_fenced)},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s %lld\n", counters[i].name, counters[i].help,
                            counters[i].name, counters[i].name, counters[i].value);
    mg_pace_metrics(e->pace, out);
    pthread_mutex_lock(&e->lock);
    size_t runs = e->n_runs, boxes = mg_map_len(e->boxes);
    pthread_mutex_unlock(&e->lock);
    (void)mg_buf_printf(out,
                        "# HELP mango_turns_running Turns that this node owns\n# TYPE mango_turns_running "
                        "gauge\nmango_turns_running %zu\n",
                        runs);
    (void)mg_buf_printf(out,
                        "# HELP mango_sandboxes_attached Sandboxes with a live handle here\n# TYPE "
                        "mango_sandboxes_attached gauge\nmango_sandboxes_attached %zu\n",
                        boxes);
    mg_mcp_metrics(e->mcp, out);
}
