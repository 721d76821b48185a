#include "store/tool-call.h"

static const char *const state_names[] = {"prepared", "started", "completed", "ambiguous"};
static const char *const wait_names[] = {"none", "confirmation", "result"};
static const char *const kind_names[] = {"builtin", "custom", "mcp", "agent"};

/* The columns of call_from_row. */
#define COLUMNS                                                                                              \
    "event_id, ordinal, round, kind, name, model_id, input, state, waits_for, coalesce(decision, ''), "      \
    "coalesce(deny_message, ''), result, coalesce(is_error, false), coalesce(result_event, ''), thread_id, " \
    "coalesce(public_id, '')"

static const struct mg_stmt SQL_INSERT = {
    "calls_insert",
    "INSERT INTO tool_calls (session_id, event_id, ordinal, round, kind, name, model_id, input, state, waits_for, "
    "waiting_since, epoch, thread_id, public_id, result, is_error)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, CASE WHEN $10 <> 'none' THEN now() END, $11, $12, "
    "nullif($13, ''), $14, $15::bool)",
};

mg_rc mg_calls_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t epoch,
                      const struct mg_tool_call *calls, int n, struct mg_err *err)
{
    for (int i = 0; i < n; i++) {
        const struct mg_tool_call *c = &calls[i];
        const struct mg_sv p[] = {
            mg_id_sv(session),
            mg_id_sv(&c->event_id),
            mg_p_int(a, c->ordinal),
            mg_p_int(a, c->round),
            mg_sv_of(kind_names[c->kind]),
            c->name,
            c->model_id,
            c->input,
            mg_sv_of(state_names[c->state]),
            mg_sv_of(wait_names[c->waits]),
            mg_p_int(a, epoch),
            mg_id_sv(&c->thread),
            mg_id_sv(&c->public_id),
            c->result,
            mg_p_bool(c->is_error),
        };
        mg_rc rc = mg_txn_queue(t, &SQL_INSERT, p, 15, -1, err);
        if (rc < 0)
            return rc;
    }
    return MG_OK;
}

static struct mg_tool_call call_from_row(const struct mg_res *r, int i)
{
    struct mg_tool_call c = {
        .ordinal = mg_res_int(r, i, 1),
        .round = mg_res_int(r, i, 2),
        .kind = (enum mg_call_kind)mg_sv_index(mg_res_sv(r, i, 3), kind_names, 4),
        .name = mg_res_sv(r, i, 4),
        .model_id = mg_res_sv(r, i, 5),
        .input = mg_res_sv(r, i, 6),
        .state = (enum mg_call_state)mg_sv_index(mg_res_sv(r, i, 7), state_names, 4),
        .waits = (enum mg_call_wait)mg_sv_index(mg_res_sv(r, i, 8), wait_names, 3),
        .allowed = mg_sv_eqz(mg_res_sv(r, i, 9), "allow"),
        .denied = mg_sv_eqz(mg_res_sv(r, i, 9), "deny"),
        .deny_message = mg_res_sv(r, i, 10),
        .result = mg_res_sv(r, i, 11),
        .is_error = mg_res_bool(r, i, 12),
    };
    (void)mg_id_from(mg_res_sv(r, i, 0), &c.event_id);
    (void)mg_id_from(mg_res_sv(r, i, 13), &c.result_event);
    (void)mg_id_from(mg_res_sv(r, i, 14), &c.thread);
    (void)mg_id_from(mg_res_sv(r, i, 15), &c.public_id);
    return c;
}

static const struct mg_stmt SQL_ROUND = {
    "calls_of_round",
    "SELECT " COLUMNS " FROM tool_calls WHERE session_id = $1 AND round = $2 AND thread_id = $3 ORDER BY ordinal",
};

static const struct mg_stmt SQL_OPEN = {
    "calls_open",
    "SELECT " COLUMNS " FROM tool_calls WHERE session_id = $1 AND thread_id = $2 AND state IN ('prepared', 'started') "
    "ORDER BY round, ordinal",
};

static mg_rc calls(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt *sql, const struct mg_sv *p, size_t n,
                   struct mg_res **ret_res, struct mg_tool_call **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, sql, p, n, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n ? *ret_n : 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = call_from_row(r, i);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

mg_rc mg_calls_of_round(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                        int64_t round, struct mg_res **ret_res, struct mg_tool_call **ret, int *ret_n,
                        struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(session), mg_p_int(a, round), mg_id_sv(thread)};
    return calls(a, t, &SQL_ROUND, p, 3, ret_res, ret, ret_n, err);
}

mg_rc mg_calls_open(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                    struct mg_res **ret_res, struct mg_tool_call **ret, int *ret_n, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(session), mg_id_sv(thread)};
    return calls(a, t, &SQL_OPEN, p, 2, ret_res, ret, ret_n, err);
}

static const struct mg_stmt SQL_BY_EVENT = {
    "call_by_event",
    "SELECT " COLUMNS " FROM tool_calls WHERE session_id = $1 AND (event_id = $2 OR public_id = $2)",
};

mg_rc mg_call_by_event(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, struct mg_sv event_id,
                       struct mg_res **ret_res, struct mg_tool_call *ret, struct mg_err *err)
{
    (void)a;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_BY_EVENT, (const struct mg_sv[]){mg_id_sv(session), event_id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "this session has no tool call '%.*s'", MG_SV_ARG(event_id));
    *ret = call_from_row(r, 0);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_SAVE = {
    "call_save",
    "UPDATE tool_calls SET state = $3, waits_for = $4, waiting_since = CASE WHEN $4 = 'none' THEN NULL WHEN $4 = "
    "waits_for THEN waiting_since"
    " ELSE now() END, decision = nullif($5, ''), deny_message = nullif($6, ''), result = $7, is_error = $8::bool,"
    " result_event = nullif($9, ''), epoch = $10,"
    " started_at = CASE WHEN $3 = 'started' THEN coalesce(started_at, now()) ELSE started_at END WHERE session_id = $1 "
    "AND event_id = $2",
};

mg_rc mg_call_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t epoch,
                   const struct mg_tool_call *c, struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(session),
        mg_id_sv(&c->event_id),
        mg_sv_of(state_names[c->state]),
        mg_sv_of(wait_names[c->waits]),
        mg_sv_of(c->allowed  ? "allow"
                 : c->denied ? "deny"
                             : ""),
        c->deny_message,
        c->result,
        mg_p_bool(c->is_error),
        mg_id_sv(&c->result_event),
        mg_p_int(a, epoch),
    };
    return mg_txn_queue(t, &SQL_SAVE, p, 10, -1, err);
}
