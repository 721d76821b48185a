/* Where turns meet the work queue. What follows from a step is queued in the step's own transaction; what time alone decides is done by a sweep
 * that every node runs once a second: whichever comes first does it, under the session's lock. */
#include "run/work.h"

#include "base/log.h"
#include "run/engine-internal.h"
#include "run/turn.h"
#include "store/work.h"

enum {
    SWEEP_BATCH = 200, /* leases and calls of one sweep; what is left comes a second later */
    ENDED_WITHIN_S =
        10,           /* streams are compared with the claims that ended so recently, should a notification be lost */
    TIDY_EVERY = 600, /* sweeps between two removals of old rows */
};

struct mg_work_counters *mg_engine_work(struct mg_engine *e)
{
    return &e->work;
}

/* ---- steps ---- */

bool mg_work_is_call(const struct mg_step *s, const struct mg_tool_call *c)
{
    return s->st.self_hosted && c->kind == MG_CALL_BUILTIN && c->waits == MG_WAIT_RESULT;
}

/* A call that waits for a client's confirmation is nothing for a worker yet. */
static bool is_busy(const struct mg_step *s)
{
    enum mg_turn_step step = s->st.turn_step;
    bool runs = step == MG_TURN_MODEL || step == MG_TURN_TOOLS || step == MG_TURN_BACKOFF;
    return runs || s->waits_worker || s->st.queued_inputs > 0 || s->st.busy_threads > 0;
}

mg_rc mg_work_after_step(struct mg_step *s, struct mg_err *err)
{
    if (!s->st.self_hosted)
        return MG_OK;
    if (s->st.status == MG_ST_TERMINATED || s->st.deleting)
        return mg_work_end_session(s->t, &s->st.session, err);
    if (!is_busy(s))
        return MG_OK;
    s->work_asked = true;
    s->work_made = s->t != &s->txn; /* a session that is being made has none yet */
    return mg_work_enqueue(s->t, &s->st.session, err);
}

void mg_work_tell(struct mg_engine *e, const struct mg_id *environment)
{
    if (e->opts.work_queued)
        e->opts.work_queued(e->opts.ctx, mg_id_sv(environment));
    if (e->notify)
        mg_notify_send(e->notify, mg_id_sv(environment), 1);
}

void mg_work_revoke(struct mg_engine *e, struct mg_sv item)
{
    if (!mg_hub_idle(e->hub))
        mg_hub_revoke(e->hub, item);
    if (e->notify)
        mg_notify_send(e->notify, item, 1);
}

/* ---- leases that are over ---- */

static void expire_one(struct mg_engine *e, struct mg_pg *pg, const struct mg_work_lapsed *l)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err = {0};
    bool ended, queued;
    if (mg_work_expire(a, pg, l, &ended, &queued, &err) < 0) {
        mg_log(MG_WARN, "a work item whose lease is over stays for now", MG_F_STR("work", l->id.s),
               MG_F_STR("error", err.text));
        return;
    }
    if (!ended)
        return;
    atomic_fetch_add(&e->work.expired, 1);
    mg_log(MG_INFO, "the lease of a work item is over", MG_F_STR("work", l->id.s), MG_F_STR("session", l->session.s),
           MG_F_STR("queued again", queued ? "yes" : "no"));
    mg_work_revoke(e, mg_id_sv(&l->id));
    mg_work_tell(e, &l->environment); /* also without a new item: a successor may have waited for this one to end */
}

static void expire_leases(struct mg_engine *e, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_work_lapsed *found;
    struct mg_err err = {0};
    int n = 0;
    if (mg_work_find_lapsed(a, pg, SWEEP_BATCH, &found, &n, &err) < 0)
        return;
    for (int i = 0; i < n; i++)
        expire_one(e, pg, &found[i]);
}

/* ---- calls that no worker answers ---- */

static const struct mg_stmt SQL_OVERDUE = {
    "work_overdue",
    "SELECT DISTINCT c.session_id FROM tool_calls c JOIN sessions s ON s.id = c.session_id"
    " JOIN session_state st ON st.session_id = s.id WHERE c.waits_for = 'result' AND NOT st.roster"
    " AND c.kind = 'builtin' AND s.env_type = 'self_hosted'"
    " AND c.waiting_since < clock_timestamp() - $1::bigint * interval '1 millisecond' LIMIT $2::int",
};
static const struct mg_stmt SQL_OVERDUE_CALLS = {
    "work_overdue_calls",
    "SELECT event_id FROM tool_calls WHERE session_id = $1 AND waits_for = 'result' AND kind = 'builtin'"
    " AND waiting_since < clock_timestamp() - $2::bigint * interval '1 millisecond'",
};

static bool is_overdue(const struct mg_res *overdue, const struct mg_tool_call *c)
{
    for (int i = 0; i < mg_res_rows(overdue); i++)
        if (mg_sv_eq(mg_res_sv(overdue, i, 0), mg_id_sv(&c->event_id)))
            return true;
    return false;
}

static mg_rc answer_overdue(struct mg_step *s, struct mg_tool_call *calls, int n, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *overdue = NULL;
    int64_t limit_ms = s->engine->opts.call_timeout_ms;
    const struct mg_sv p[] = {mg_id_sv(&s->st.session), mg_p_int(s->arena, limit_ms)};
    mg_rc rc = mg_txn_query(s->t, &SQL_OVERDUE_CALLS, p, 2, &overdue, err);
    *ret_n = 0;
    for (int i = 0; rc >= 0 && i < n; i++) {
        if (!mg_work_is_call(s, &calls[i]) || !is_overdue(overdue, &calls[i]))
            continue;
        struct mg_sv text = mg_arena_printf(s->arena,
                                            "No worker sent a result of this call within %lld s (MANGO_CALL_TIMEOUT). "
                                            "Whether it was run is not known; it is not waited for any more.",
                                            (long long)(limit_ms / 1000));
        rc = mg_turn_answer_call(s, &calls[i], MG_ANSWER_SERVER, mg_text_content(s->arena, text.ptr), true, err);
        (*ret_n)++;
    }
    return rc;
}

static mg_rc settle_overdue(struct mg_step *s, struct mg_pg *pg, struct mg_sv session, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call *calls;
    int n;
    *ret_n = 0;
    mg_rc rc = mg_step_begin(s, s->engine, pg, s->arena, session, MG_SV(""), -1, err);
    if (rc < 0 || s->st.turn_step != MG_TURN_ACTION)
        return rc;
    rc = mg_calls_of_round(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, &r, &calls, &n, err);
    if (rc >= 0)
        rc = answer_overdue(s, calls, n, ret_n, err);
    if (rc < 0 || *ret_n == 0)
        return rc;
    rc = mg_turn_after_calls(s, calls, n, err);
    if (rc >= 0 && s->st.turn_step != MG_TURN_ACTION && s->st.turn_step != MG_TURN_NONE)
        mg_turn_claim(s);
    return rc < 0 ? rc : mg_step_commit(s, "work.call_timeout", err);
}

static void overdue_one(struct mg_engine *e, struct mg_pg *pg, struct mg_sv session)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {.engine = e, .arena = a};
    struct mg_err err = {0};
    int n;
    if (settle_overdue(&s, pg, session, &n, &err) < 0) {
        mg_log(MG_WARN, "a call that waited too long stays for now", MG_F_SV("session", session),
               MG_F_STR("error", err.text));
        return;
    }
    if (n == 0)
        return;
    atomic_fetch_add(&e->work.call_timeouts, n);
    mg_log(MG_WARN, "calls were given up that no worker answered", MG_F_SV("session", session), MG_F_INT("calls", n));
    if (s.st.turn_step == MG_TURN_MODEL || s.st.turn_step == MG_TURN_TOOLS)
        mg_engine_go(e, &s.st);
}

static void overdue_calls(struct mg_engine *e, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_err err = {0};
    const struct mg_sv p[] = {mg_p_int(a, e->opts.call_timeout_ms), mg_p_int(a, SWEEP_BATCH)};
    if (e->opts.call_timeout_ms == 0 || mg_pg_exec(pg, &SQL_OVERDUE, p, 2, &r, &err) < 0)
        return;
    for (int i = 0; i < mg_res_rows(r); i++)
        overdue_one(e, pg, mg_res_sv(r, i, 0));
}

/* ---- the sweep ---- */

static void close_streams(void *ctx, struct mg_sv id)
{
    struct mg_engine *e = ctx;
    mg_hub_revoke(e->hub, id);
}

static void sweep(void *arg, void *thread)
{
    struct mg_engine *e = arg;
    struct mg_err err = {0};
    expire_leases(e, thread);
    overdue_calls(e, thread);
    if (atomic_load(&e->work_streams) && !mg_hub_idle(e->hub))
        (void)!mg_work_ended(thread, ENDED_WITHIN_S, close_streams, e, &err);
    if (atomic_fetch_add(&e->work_sweeps, 1) % TIDY_EVERY == 0)
        (void)!mg_work_tidy(thread, &err);
    if (e->opts.each_second && !atomic_load(&e->draining))
        e->opts.each_second(e->opts.ctx, e, thread);
    atomic_store(&e->work_sweeping, false);
}

void mg_work_tick(struct mg_engine *e)
{
    /* One at a time: a database that is slow must not collect them. */
    if (atomic_load(&e->draining) || atomic_exchange(&e->work_sweeping, true))
        return;
    if (mg_pool_submit(e->steps, sweep, e) < 0)
        atomic_store(&e->work_sweeping, false);
}

void mg_work_stream_opened(struct mg_engine *e)
{
    atomic_store(&e->work_streams, true);
}

/* ---- metrics ---- */

static const struct mg_stmt SQL_OPEN_CALLS = {
    "work_open_calls",
    "SELECT count(*) FILTER (WHERE w), coalesce(max(age) FILTER (WHERE w), 0), count(*) FILTER (WHERE NOT w),"
    " coalesce(max(age) FILTER (WHERE NOT w), 0) FROM (SELECT c.waits_for = 'result' AND c.kind = 'builtin' AS w,"
    " mg_us(clock_timestamp()) - mg_us(c.waiting_since) AS age FROM tool_calls c WHERE c.waits_for <> 'none') o",
};

static void gauge(struct mg_buf *out, const char *name, const char *help, const char *label, double value)
{
    if (help)
        (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    (void)mg_buf_printf(out, "%s%s %.17g\n", name, label, value);
}

static void database_metrics(struct mg_pg *pg, struct mg_buf *out)
{
    struct mg_work_stats s;
    struct mg_err err = {0};
    mg_auto(res) struct mg_res *r = NULL;
    if (mg_work_stats(pg, MG_SV(""), &s, &err) < 0 || mg_pg_exec(pg, &SQL_OPEN_CALLS, NULL, 0, &r, &err) < 0)
        return;
    gauge(out, "mango_work_items", "Work items of all environments by state", "{state=\"queued\"}", (double)s.depth);
    gauge(out, "mango_work_items", NULL, "{state=\"pending\"}", (double)s.pending);
    gauge(out, "mango_work_items", NULL, "{state=\"leased\"}", (double)s.leased);
    gauge(out, "mango_work_items", NULL, "{state=\"stopping\"}", (double)s.stopping);
    gauge(out, "mango_work_oldest_age_seconds", "Age of the oldest item that no worker has", "",
          (double)s.oldest_age_us / 1e6);
    gauge(out, "mango_work_pollers", "Workers that polled within 30 s", "", (double)s.workers);
    gauge(out, "mango_calls_waiting", "Tool calls that wait, by who must act", "{for=\"worker\"}",
          (double)mg_res_int(r, 0, 0));
    gauge(out, "mango_calls_waiting", NULL, "{for=\"client\"}", (double)mg_res_int(r, 0, 2));
    gauge(out, "mango_call_waiting_seconds", "How long the oldest of them waits", "{for=\"worker\"}",
          (double)mg_res_int(r, 0, 1) / 1e6);
    gauge(out, "mango_call_waiting_seconds", NULL, "{for=\"client\"}", (double)mg_res_int(r, 0, 3) / 1e6);
}

void mg_work_metrics(struct mg_engine *e, struct mg_pg *pg, struct mg_buf *out)
{
    struct mg_work_counters *w = &e->work;
    const struct {
        const char *name, *help;
        long long value;
    } counters[] = {
        {"mango_work_claims_total", "Items that polls handed out", atomic_load(&w->claims)},
        {"mango_work_acks_total", "Claims that were acknowledged", atomic_load(&w->acks)},
        {"mango_work_reclaims_total", "Claims that went to another poller without an ack", atomic_load(&w->reclaims)},
        {"mango_work_expired_total", "Leases that ended without a heartbeat", atomic_load(&w->expired)},
        {"mango_work_heartbeats_total", "Heartbeats that extended a lease", atomic_load(&w->heartbeats)},
        {"mango_work_stops_total", "Items that were stopped by request", atomic_load(&w->stops)},
        {"mango_work_failures_total", "Items that their worker could not serve", atomic_load(&w->failures)},
        {"mango_call_timeouts_total", "Calls given up that no worker answered", atomic_load(&w->call_timeouts)},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s %lld\n", counters[i].name, counters[i].help,
                            counters[i].name, counters[i].name, counters[i].value);
    (void)mg_buf_printf(out,
                        "# HELP mango_work_claim_wait_seconds From the queue to the ack\n"
                        "# TYPE mango_work_claim_wait_seconds summary\nmango_work_claim_wait_seconds_sum %.6f\n"
                        "mango_work_claim_wait_seconds_count %lld\n",
                        (double)atomic_load(&w->claim_wait_us) / 1e6, atomic_load(&w->acks));
    if (pg)
        database_metrics(pg, out);
}
