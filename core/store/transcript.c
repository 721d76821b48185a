#include "store/transcript.h"

static const struct mg_stmt SQL_APPEND = {
    "transcript_append",
    "INSERT INTO transcript (session_id, ordinal, role, content, tokens, fixed, thread_id)"
    " SELECT $1, $2::int + o, r, c, nullif(t, 0), nullif(f, 0), $7"
    " FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[]) WITH ORDINALITY AS u(r, c, t, f, o)",
};

mg_rc mg_transcript_append(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                           const struct mg_id *thread, int64_t len, const struct mg_transcript_row *rows, int n,
                           struct mg_err *err)
{
    if (n == 0)
        return MG_OK;
    struct mg_sv *roles = mg_arena_alloc(a, sizeof(*roles) * 4 * (size_t)n);
    struct mg_sv *contents = roles + n, *tokens = contents + n, *fixed = tokens + n;
    for (int i = 0; i < n; i++) {
        roles[i] = rows[i].assistant ? MG_SV("assistant") : MG_SV("user");
        contents[i] = rows[i].content;
        tokens[i] = mg_p_int(a, rows[i].tokens);
        fixed[i] = mg_p_int(a, rows[i].fixed);
    }
    const struct mg_sv p[] = {
        mg_id_sv(session),
        mg_p_int(a, len),
        mg_p_array(a, roles, (size_t)n),
        mg_p_array(a, contents, (size_t)n),
        mg_p_array(a, tokens, (size_t)n),
        mg_p_array(a, fixed, (size_t)n),
        mg_id_sv(thread),
    };
    return mg_txn_queue(t, &SQL_APPEND, p, 7, -1, err);
}

/* One round trip for the whole request: kind 0 the agent, 1 the transcript behind the newest summary, 2 the inputs that this turn answers,
 * 3 the marks, 4 the memory stores. An input is the trigger itself, a report up to turn_upto, the system.message directly behind the trigger, or one directly behind a result
 * of the turn's calls. The trigger and the summary's boundary come from scalar subqueries, so that they bound the index scans: joined, they do not,
 * and each turn reads the session's whole log. */
#define INPUT(state, agent, thread, in_log, system, grade)                                                      \
    "WITH st AS MATERIALIZED (SELECT turn_trigger, turn_upto, turn_request_id, transcript_len, " grade          \
    " AS grade FROM " state " WHERE session_id = $1 AND turn_epoch = $2::bigint AND turn_step = 'model')"       \
    " SELECT 0 AS kind, 0::bigint AS ord, st.turn_request_id AS name, " agent " AS body, st.turn_trigger AS a," \
    " st.transcript_len AS b, st.grade::int::bigint AS c, 0::bigint AS d FROM st"                               \
    " UNION ALL SELECT 1, ordinal, role, content, tokens, fixed, 0, 0 FROM transcript WHERE session_id = $1"    \
    " AND thread_id = " thread " AND ordinal > coalesce((SELECT m.a FROM context_marks m WHERE"                 \
    " m.session_id = $1 AND m.thread_id = " thread " AND m.kind = 'summary'"                                    \
    " ORDER BY m.ordinal DESC LIMIT 1), 0) AND EXISTS (SELECT FROM st)"                                         \
    " UNION ALL SELECT 2, e.seq, e.type, e.body, 0, 0, 0, 0 FROM events e"                                      \
    " WHERE e.session_id = $1 AND e.thread_id " in_log                                                          \
    " AND e.seq >= (SELECT turn_trigger FROM st) AND e.processed_at IS NULL"                                    \
    " AND (e.seq = (SELECT turn_trigger FROM st) OR (e.seq <= (SELECT turn_upto FROM st) AND e.type ="          \
    " 'agent.thread_message_received') OR (e.type = 'system.message'" system "))"                               \
    " UNION ALL SELECT 3, ordinal, kind, content, a, b, made_at, turn FROM context_marks WHERE session_id = $1" \
    " AND thread_id = " thread " AND EXISTS (SELECT FROM st) AND (kind <> 'summary' OR ordinal = (SELECT"       \
    " m.ordinal FROM context_marks m WHERE m.session_id = $1 AND m.thread_id = " thread                         \
    " AND m.kind = 'summary' ORDER BY m.ordinal DESC LIMIT 1))"                                                 \
    " UNION ALL SELECT 4, 0, '', '[' || string_agg(shown, ',' ORDER BY place) || ']', 0, 0, 0, 0"               \
    " FROM session_memory_stores WHERE session_id = $1 AND EXISTS (SELECT FROM st) HAVING count(*) > 0"         \
    " ORDER BY 1, 2"
#define DIRECTLY_BEHIND                                                                                       \
    " AND (e.seq = 1 + (SELECT turn_trigger FROM st) OR EXISTS (SELECT FROM events b WHERE b.session_id = $1" \
    " AND b.seq = e.seq - 1 AND b.type IN ('user.tool_result', 'user.custom_tool_result')))"
/* By thread: the primary one, a child. */
static const struct mg_stmt SQL_INPUT[2] = {
    {"turn_input", INPUT("session_state", "(SELECT s.agent FROM sessions s WHERE s.id = $1)", "''", "IS NULL",
                         DIRECTLY_BEHIND, "outcome_phase = 'grade'")},
    {"turn_input_child", INPUT("(SELECT * FROM thread_state WHERE thread_id = $3) t",
                               "(SELECT t.agent FROM thread_state t WHERE t.session_id = $1 AND t.thread_id = $3)",
                               "$3", "= $3", "", "false")},
};

static struct mg_context_mark mark_of(const struct mg_res *r, int i)
{
    return (struct mg_context_mark){
        .kind = mg_mark_kind_of(mg_res_sv(r, i, 2)),
        .content = mg_res_sv(r, i, 3),
        .a = mg_res_int(r, i, 4),
        .b = mg_res_int(r, i, 5),
        .made_at = mg_res_int(r, i, 6),
        .turn = mg_res_int(r, i, 7),
    };
}

mg_rc mg_turn_input_load(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                         int64_t epoch, struct mg_res **ret_res, struct mg_turn_input *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool child = thread->s[0] != '\0';
    const struct mg_sv p[] = {mg_id_sv(session), mg_p_int(a, epoch), mg_id_sv(thread)};
    mg_rc rc = mg_pg_exec(pg, &SQL_INPUT[child], p, child ? 3 : 2, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    if (n == 0)
        return mg_err_set(err, MG_EFENCED, "the turn's claim is no longer the session's");
    *ret = (struct mg_turn_input){.rows = mg_arena_alloc(a, sizeof(*ret->rows) * (size_t)n)};
    ret->triggers = mg_arena_alloc(a, sizeof(struct mg_sv) * (size_t)n);
    ret->trigger_types = mg_arena_alloc(a, sizeof(struct mg_sv) * (size_t)n);
    ret->trigger_seqs = mg_arena_alloc(a, sizeof(int64_t) * (size_t)n);
    ret->marks = mg_arena_alloc(a, sizeof(*ret->marks) * (size_t)n);
    for (int i = 0; i < n; i++) {
        struct mg_sv name = mg_res_sv(r, i, 2), body = mg_res_sv(r, i, 3);
        switch (mg_res_int(r, i, 0)) {
        case 0:
            ret->request_id = name;
            ret->agent = body;
            ret->turn = mg_res_int(r, i, 4);
            ret->len = mg_res_int(r, i, 5);
            ret->grade = mg_res_int(r, i, 6) != 0;
            break;
        case 1:
            ret->rows[ret->n_rows++] = (struct mg_transcript_row){
                .assistant = mg_sv_eqz(name, "assistant"),
                .content = body,
                .tokens = mg_res_int(r, i, 4),
                .fixed = mg_res_int(r, i, 5),
            };
            break;
        case 3:
            ret->marks[ret->n_marks++] = mark_of(r, i);
            break;
        case 4:
            ret->stores = body;
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

#define SUMMARY(what)                                                                                            \
    "(SELECT " what " FROM context_marks WHERE session_id = $1 AND thread_id = '' AND kind = 'summary' ORDER BY" \
    " ordinal DESC LIMIT 1)"
static const struct mg_stmt SQL_SHOWN = {
    "transcript_shown",
    "SELECT 0::bigint AS ord, 'user' AS role, s.content FROM " SUMMARY(
        "content") " s WHERE s.content <> ''"
                   " UNION ALL SELECT ordinal, role, content FROM transcript WHERE session_id = $1 AND thread_id = '' "
                   "AND"
                   " ordinal > coalesce(" SUMMARY("a") ", 0) ORDER BY 1",
};

mg_rc mg_transcript_shown(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, struct mg_res **ret_res,
                          struct mg_transcript_row **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p = mg_id_sv(session);
    mg_rc rc = mg_pg_exec(pg, &SQL_SHOWN, &p, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = (struct mg_transcript_row){.assistant = mg_sv_eqz(mg_res_sv(r, i, 1), "assistant"),
                                               .content = mg_res_sv(r, i, 2)};
    *ret_res = mg_steal(&r);
    return MG_OK;
}
