#include "store/waiting.h"

#include "domain/check.h"

static const char *const reason_names[MG_WAITING_COUNT] = {
    [MG_WAITING_MODEL] = "model",          [MG_WAITING_TOOL] = "tool",
    [MG_WAITING_BACKOFF] = "backoff",      [MG_WAITING_CONFIRMATION] = "confirmation",
    [MG_WAITING_RESULT] = "client_result",
};

const char *mg_waiting_name(enum mg_waiting w)
{
    return reason_names[w];
}

static const struct mg_stmt SQL_OLDEST = {
    "oldest_transaction",
    "SELECT pid, greatest(mg_us(clock_timestamp()) - mg_us(xact_start), 0) / 1000 FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
    " ORDER BY xact_start LIMIT 1",
};

mg_rc mg_oldest_transaction(struct mg_pg *pg, int64_t *ret_pid, int64_t *ret_ms, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_OLDEST, NULL, 0, &r, err);
    *ret_pid = rc >= 0 && mg_res_rows(r) > 0 ? mg_res_int(r, 0, 0) : 0;
    *ret_ms = *ret_pid ? mg_res_int(r, 0, 1) : 0;
    return rc;
}

/* Each part walks a partial index that holds only what waits. */
static const struct mg_stmt SQL_SUMS = {
    "waiting_sums",
    "SELECT reason, count(*), coalesce(greatest(mg_us(clock_timestamp()) - mg_us(min(since)), 0) / 1000, 0) FROM ("
    " SELECT CASE turn_step WHEN 'tools' THEN 'tool' ELSE turn_step END AS reason, coalesce(step_since, updated_at) AS "
    "since"
    " FROM session_state WHERE turn_step IN ('model', 'tools', 'backoff')"
    " UNION ALL SELECT CASE turn_step WHEN 'tools' THEN 'tool' ELSE turn_step END, coalesce(step_since, updated_at)"
    " FROM thread_state WHERE turn_step IN ('model', 'tools', 'backoff')"
    " UNION ALL SELECT CASE waits_for WHEN 'result' THEN 'client_result' ELSE waits_for END, waiting_since"
    " FROM tool_calls WHERE waits_for <> 'none') w GROUP BY 1",
};

mg_rc mg_waiting_sums(struct mg_pg *pg, struct mg_waiting_sum ret[MG_WAITING_COUNT], struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_SUMS, NULL, 0, &r, err);
    for (int i = 0; i < MG_WAITING_COUNT; i++)
        ret[i] = (struct mg_waiting_sum){0};
    if (rc < 0)
        return rc;
    for (int i = 0; i < mg_res_rows(r); i++) {
        int k = mg_sv_index(mg_res_sv(r, i, 0), reason_names, MG_WAITING_COUNT);
        if (k >= 0 && k < MG_WAITING_COUNT)
            ret[k] = (struct mg_waiting_sum){.n = mg_res_int(r, i, 1), .oldest_ms = mg_res_int(r, i, 2)};
    }
    return MG_OK;
}

static const struct mg_stmt SQL_STEP_AGE = {
    "step_age",
    "SELECT coalesce(greatest(mg_us(clock_timestamp()) - mg_us(step_since), 0), 0) / 1000 FROM ("
    " SELECT step_since FROM session_state WHERE session_id = $1 AND $2 = ''"
    " UNION ALL SELECT step_since FROM thread_state WHERE session_id = $1 AND thread_id = $2) t",
};

mg_rc mg_step_age_ms(struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread, int64_t *ret,
                     struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_sv_of(session->s), mg_sv_of(thread->s)};
    mg_rc rc = mg_pg_exec(pg, &SQL_STEP_AGE, p, 2, &r, err);
    if (rc == MG_OK)
        *ret = mg_res_rows(r) > 0 ? mg_res_int(r, 0, 0) : 0;
    return rc;
}

/* The first row is the session, the others its open calls. */
static const struct mg_stmt SQL_SESSION = {
    "session_waiting",
    "WITH st AS MATERIALIZED (SELECT st.* FROM session_state st JOIN sessions s ON s.id = st.session_id"
    " WHERE st.session_id = $1 AND s.workspace_id = $2 AND st.deleting_at IS NULL)"
    " SELECT 0 AS kind, 0 AS ord, status AS a, turn_step AS b, mg_us(coalesce(step_since, updated_at)) AS since,"
    " mg_us(turn_due_at) AS due, queued_inputs AS queued, (SELECT count(*) FROM events e WHERE e.session_id = $1 AND"
    " e.type = 'user.message' AND e.processed_at IS NULL) AS unread, '' AS c, '' AS d, '' AS e, '' AS f FROM st"
    " UNION ALL SELECT 1, t.round * 10000 + t.ordinal, t.state, t.waits_for, mg_us(coalesce(t.waiting_since, "
    "t.started_at)), NULL,"
    " 0, 0, coalesce(t.public_id, t.event_id), t.thread_id, t.name, t.input"
    " FROM tool_calls t, st WHERE t.session_id = $1 AND t.state IN ('prepared', 'started') ORDER BY 1, 2",
};

mg_rc mg_session_waiting(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv session,
                         struct mg_res **ret_res, struct mg_session_waiting *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_SESSION, (const struct mg_sv[]){session, workspace}, 2, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    if (n == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(mg_shown_id(session)));
    *ret = (struct mg_session_waiting){
        .status = mg_res_sv(r, 0, 2),
        .step = mg_res_sv(r, 0, 3),
        .since_us = mg_res_time(r, 0, 4),
        .due_us = mg_res_time(r, 0, 5),
        .queued = mg_res_int(r, 0, 6),
        .unread = mg_res_int(r, 0, 7),
        .calls = mg_arena_alloc(a, sizeof(*ret->calls) * (size_t)n),
    };
    for (int i = 1; i < n; i++)
        ret->calls[ret->n_calls++] = (struct mg_waiting_call){.state = mg_res_sv(r, i, 2),
                                                              .waits_for = mg_res_sv(r, i, 3),
                                                              .since_us = mg_res_time(r, i, 4),
                                                              .event_id = mg_res_sv(r, i, 8),
                                                              .thread_id = mg_res_sv(r, i, 9),
                                                              .name = mg_res_sv(r, i, 10),
                                                              .input = mg_res_sv(r, i, 11)};
    *ret_res = mg_steal(&r);
    return MG_OK;
}
