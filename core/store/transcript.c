#include "store/transcript.h"

static const struct mg_stmt SQL_APPEND = {
    "transcript_append",
    "INSERT INTO transcript (session_id, ordinal, role, content, thread_id)"
    " SELECT $1, $2::int + o, r, c, $5 FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS u(r, c, o)",
};

mg_rc mg_transcript_append(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                           const struct mg_id *thread, int64_t len, const struct mg_transcript_row *rows, int n,
                           struct mg_err *err)
{
    if (n == 0)
        return MG_OK;
    struct mg_sv *roles = mg_arena_alloc(a, sizeof(*roles) * 2 * (size_t)n);
    struct mg_sv *contents = roles + n;
    for (int i = 0; i < n; i++) {
        roles[i] = rows[i].assistant ? MG_SV("assistant") : MG_SV("user");
        contents[i] = rows[i].content;
    }
    const struct mg_sv p[] = {mg_id_sv(session), mg_p_int(a, len), mg_p_array(a, roles, (size_t)n),
                              mg_p_array(a, contents, (size_t)n), mg_id_sv(thread)};
    return mg_txn_queue(t, &SQL_APPEND, p, 5, -1, err);
}

/* One round trip for the whole request: kind 0 the session, 1 the transcript, 2 the inputs that this turn answers. An input is the trigger itself,
 * the system.message directly behind it, or one directly behind a result of the turn's calls. The trigger comes from scalar subqueries, so that it bounds the
 * index scan: joined, it does not, and each turn reads the session's whole log. */
static const struct mg_stmt SQL_INPUT = {
    "turn_input",
    "WITH st AS MATERIALIZED (SELECT turn_trigger, turn_request_id FROM session_state"
    " WHERE session_id = $1 AND turn_epoch = $2::bigint AND turn_step = 'model')"
    " SELECT 0 AS kind, 0::bigint AS ord, st.turn_request_id AS name, s.agent AS body FROM sessions s, st WHERE s.id = "
    "$1"
    " UNION ALL SELECT 1, ordinal, role, content FROM transcript WHERE session_id = $1 AND thread_id = '' AND EXISTS "
    "(SELECT FROM st)"
    " UNION ALL SELECT 2, e.seq, e.type, e.body FROM events e"
    " WHERE e.session_id = $1 AND e.seq >= (SELECT turn_trigger FROM st) AND e.processed_at IS NULL"
    " AND (e.seq = (SELECT turn_trigger FROM st) OR (e.type = 'system.message' AND (e.seq = 1 + (SELECT turn_trigger "
    "FROM st) OR EXISTS (SELECT FROM events b WHERE b.session_id = $1 AND b.seq = e.seq - 1"
    " AND b.type IN ('user.tool_result', 'user.custom_tool_result')))))"
    " ORDER BY 1, 2",
};

mg_rc mg_turn_input_load(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, int64_t epoch,
                         struct mg_res **ret_res, struct mg_turn_input *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_INPUT, (const struct mg_sv[]){mg_id_sv(session), mg_p_int(a, epoch)}, 2, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    if (n == 0)
        return mg_err_set(err, MG_EFENCED, "the turn's claim is no longer the session's");
    *ret = (struct mg_turn_input){.rows = mg_arena_alloc(a, sizeof(*ret->rows) * (size_t)n)};
    ret->triggers = mg_arena_alloc(a, sizeof(struct mg_sv) * (size_t)n);
    ret->trigger_types = mg_arena_alloc(a, sizeof(struct mg_sv) * (size_t)n);
    ret->trigger_seqs = mg_arena_alloc(a, sizeof(int64_t) * (size_t)n);
    for (int i = 0; i < n; i++) {
        struct mg_sv name = mg_res_sv(r, i, 2), body = mg_res_sv(r, i, 3);
        switch (mg_res_int(r, i, 0)) {
        case 0:
            ret->request_id = name;
            ret->agent = body;
            break;
        case 1:
            ret->rows[ret->n_rows++] =
                (struct mg_transcript_row){.assistant = mg_sv_eqz(name, "assistant"), .content = body};
            break;
        default:
            ret->trigger_types[ret->n_triggers] = name;
            ret->trigger_seqs[ret->n_triggers] = mg_res_int(r, i, 1);
            ret->triggers[ret->n_triggers++] = body;
            break;
        }
    }
    *ret_res = mg_steal(&r);
    return MG_OK;
}
