#include "store/thread-state.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/turn-columns.h"

/* ---- under the session's lock ---- */

/* The primary thread's name comes with every row, and with a row of its own where there is no child. */
static const struct mg_stmt SQL_LOAD = {
    "threads_load",
    "SELECT coalesce(p.agent_name, ''), (SELECT count(*) FROM thread_state c WHERE c.session_id = $1), st.thread_id,"
    " st.ordinal, st.agent_name, coalesce(st.stop_reason, ''), " MG_TURN_READ
    " FROM session_state p LEFT JOIN thread_state st ON st.session_id = p.session_id AND st.terminated_at IS NULL"
    " WHERE p.session_id = $1 ORDER BY st.ordinal",
};

mg_rc mg_threads_load(struct mg_arena *a, struct mg_txn *t, const struct mg_session_state *session,
                      struct mg_thread_state **ret, int *ret_n, int64_t *ret_next, struct mg_err *err)
{
    enum { TURN_AT = 6 };
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOAD, (const struct mg_sv[]){mg_id_sv(&session->session)}, 1, &r, err);
    if (rc < 0)
        return rc;
    int rows = mg_res_rows(r);
    bool alone = rows == 1 && !mg_res_sv(r, 0, 2).ptr;
    struct mg_thread_state *all = mg_arena_alloc(a, sizeof(*all) * (size_t)(rows + 1));
    int n = 1;
    all[0] = (struct mg_thread_state){.st = *session, .agent_name = mg_arena_sv(a, mg_res_sv(r, 0, 0))};
    for (int i = 0; i < rows && !alone; i++) {
        struct mg_thread_state *x = &all[n++];
        x->st.session = session->session;
        (void)mg_id_from(mg_res_sv(r, i, 2), &x->st.thread);
        x->ordinal = mg_res_int(r, i, 3);
        x->agent_name = mg_arena_sv(a, mg_res_sv(r, i, 4));
        x->stop_reason = mg_arena_sv(a, mg_res_sv(r, i, 5));
        mg_turn_from_row(r, i, TURN_AT, &x->st);
    }
    *ret_next = mg_res_int(r, 0, 1) + 1;
    *ret = all;
    *ret_n = n;
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "thread_insert",
    "INSERT INTO thread_state (session_id, thread_id, ordinal, agent_name, agent) VALUES ($1, $2, $3::int, $4, $5)",
};

mg_rc mg_thread_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_thread_state *x, struct mg_sv agent,
                       struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(&x->st.session), mg_id_sv(&x->st.thread), mg_p_int(a, x->ordinal), x->agent_name,
                              agent};
    return mg_txn_queue(t, &SQL_INSERT, p, 5, 1, err);
}

static const struct mg_stmt SQL_SAVE = {
    "thread_save",
    "UPDATE thread_state SET " MG_TURN_WRITE ", stop_reason = nullif($23, ''),"
    " archived_at = CASE WHEN $24::bool THEN coalesce(archived_at, now()) END,"
    " cost_nano = cost_nano + $25, cost_unknown = cost_unknown OR $26::bool"
    " WHERE session_id = $21 AND thread_id = $22",
};

mg_rc mg_thread_save(struct mg_arena *a, struct mg_txn *t, const struct mg_thread_state *x, struct mg_err *err)
{
    struct mg_sv p[MG_TURN_PARAMS_MAX];
    int n = MG_TURN_PARAMS;
    mg_turn_params(a, &x->st, x->ended ? MG_ST_TERMINATED : mg_turn_status(&x->st), p);
    p[n++] = mg_id_sv(&x->st.session);
    p[n++] = mg_id_sv(&x->st.thread);
    p[n++] = x->stop_reason.len ? x->stop_reason : MG_SV("");
    p[n++] = mg_p_bool(x->archived);
    p[n++] = mg_p_int(a, x->st.own_cost);
    p[n++] = mg_p_bool(x->st.own_unknown);
    return mg_txn_queue(t, &SQL_SAVE, p, n, 1, err);
}

/* Ids of events do not grow; their places in the log do. */
static const struct mg_stmt SQL_WAITING = {
    "calls_waiting",
    "SELECT coalesce(c.public_id, c.event_id) FROM tool_calls c LEFT JOIN events e ON e.session_id = $1 AND e.id ="
    " c.event_id WHERE c.session_id = $1 AND c.waits_for <> 'none' AND ($2::text IS NULL OR"
    " c.thread_id = $2) ORDER BY e.seq, c.thread_id, c.ordinal",
};

mg_rc mg_calls_waiting(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                       struct mg_sv **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_id_sv(session), thread ? mg_id_sv(thread) : mg_p_null()};
    mg_rc rc = mg_txn_query(t, &SQL_WAITING, p, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = mg_arena_sv(a, mg_res_sv(r, i, 0));
    return MG_OK;
}

static const struct mg_stmt SQL_ARCHIVE = {
    "thread_archive",
    "UPDATE thread_state SET archived_at = now(), updated_at = now() WHERE session_id = $1 AND thread_id = $2"
    " AND archived_at IS NULL",
};

mg_rc mg_thread_set_archived(struct mg_txn *t, const struct mg_id *session, struct mg_sv thread, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_ARCHIVE, (const struct mg_sv[]){mg_id_sv(session), thread}, 2, -1, err);
}

static const struct mg_stmt SQL_KNOWN = {
    "thread_known",
    "SELECT 1 FROM thread_state WHERE session_id = $1 AND thread_id = $2",
};

mg_rc mg_thread_known(struct mg_txn *t, const struct mg_id *session, struct mg_sv thread, bool *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_KNOWN, (const struct mg_sv[]){mg_id_sv(session), thread}, 2, &r, err);
    *ret = rc == MG_OK && mg_res_rows(r) > 0;
    return rc;
}

/* ---- for clients ---- */

#define COLUMNS                                                                                                      \
    "thread_id, ordinal, agent, status, mg_us(created_at), mg_us(updated_at), mg_us(archived_at),"                   \
    " active_us + CASE WHEN running_since IS NULL THEN 0 ELSE mg_us(now()) - mg_us(running_since) END,"              \
    " mg_us(coalesce(terminated_at, now())) - mg_us(created_at), input_tokens, output_tokens, cache_read, cache_5m," \
    " cache_1h, web_searches, web_fetches, cost_nano, cost_unknown"

static struct mg_thread_row thread_from_row(const struct mg_res *r, int i)
{
    struct mg_thread_row x = {
        .id = mg_res_sv(r, i, 0),
        .ordinal = mg_res_int(r, i, 1),
        .agent = mg_res_sv(r, i, 2),
        .status = mg_res_sv(r, i, 3),
        .created_us = mg_res_time(r, i, 4),
        .updated_us = mg_res_time(r, i, 5),
        .archived_us = mg_res_time(r, i, 6),
    };
    x.usage = mg_usage_from_row(r, i, 7, &x.duration_us);
    return x;
}

static const struct mg_stmt SQL_LIST = {
    "thread_list",
    "SELECT " COLUMNS " FROM thread_state WHERE session_id = $1 AND ordinal > $2::int"
    " AND ($4::text[] IS NULL OR status = ANY ($4::text[])) ORDER BY ordinal LIMIT $3::int",
};

mg_rc mg_thread_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t after, int limit,
                     const struct mg_sv *statuses, int n_statuses, struct mg_res **ret_res, struct mg_thread_row **ret,
                     int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {session, mg_p_int(a, after), mg_p_int(a, limit),
                              n_statuses ? mg_p_array(a, statuses, (size_t)n_statuses) : mg_p_null()};
    mg_rc rc = mg_pg_exec(pg, &SQL_LIST, p, 4, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = thread_from_row(r, i);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {
    "thread_get",
    "SELECT " COLUMNS " FROM thread_state WHERE session_id = $1 AND thread_id = $2",
};

mg_rc mg_thread_get(struct mg_pg *pg, struct mg_sv session, struct mg_sv thread, struct mg_res **ret_res,
                    struct mg_thread_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){session, thread}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' has no thread '%.*s'", MG_SV_ARG(mg_shown_id(session)),
                          MG_SV_ARG(mg_shown_id(thread)));
    *ret = thread_from_row(r, 0);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_OWN = {
    "thread_primary_own",
    "SELECT p.own_active_us + CASE WHEN p.own_since IS NULL THEN 0 ELSE mg_us(now()) - mg_us(p.own_since) END,"
    " p.turn_step, c.* FROM session_state p, (SELECT coalesce(sum(input_tokens), 0)::bigint,"
    " coalesce(sum(output_tokens), 0)::bigint, coalesce(sum(cache_read), 0)::bigint, coalesce(sum(cache_5m), "
    "0)::bigint,"
    " coalesce(sum(cache_1h), 0)::bigint, coalesce(sum(web_searches), 0)::bigint, coalesce(sum(web_fetches), "
    "0)::bigint,"
    " coalesce(sum(cost_nano), 0)::bigint"
    " FROM thread_state WHERE session_id = $1) c WHERE p.session_id = $1 AND p.roster",
};

mg_rc mg_thread_primary_own(struct mg_pg *pg, struct mg_sv session, struct mg_thread_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_OWN, &session, 1, &r, err);
    if (rc < 0 || mg_res_rows(r) == 0)
        return rc; /* no coordinator's: the session has one thread */
    struct mg_sv step = mg_res_sv(r, 0, 1);
    bool runs = mg_sv_eqz(step, "model") || mg_sv_eqz(step, "tools");
    ret->usage.active_us = mg_res_span(r, 0, 0);
    if (!mg_sv_eqz(ret->status, "terminated"))
        ret->status = runs ? MG_SV("running") : mg_sv_eqz(step, "backoff") ? MG_SV("rescheduling") : MG_SV("idle");
    ret->usage.input_tokens -= mg_res_int(r, 0, 2);
    ret->usage.output_tokens -= mg_res_int(r, 0, 3);
    ret->usage.cache_read -= mg_res_int(r, 0, 4);
    ret->usage.cache_5m -= mg_res_int(r, 0, 5);
    ret->usage.cache_1h -= mg_res_int(r, 0, 6);
    ret->usage.web_searches -= mg_res_int(r, 0, 7);
    ret->usage.web_fetches -= mg_res_int(r, 0, 8);
    ret->usage.cost_nano -= mg_res_int(r, 0, 9);
    return MG_OK;
}
