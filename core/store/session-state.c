#include "store/session-state.h"

#include "domain/check.h"

static const char *const status_names[] = {"idle", "running", "rescheduling", "terminated"};
static const char *const step_names[] = {"none", "model", "tools", "action", "backoff", "paused"};
enum { N_STEPS = sizeof(step_names) / sizeof(step_names[0]) };

const char *mg_session_status_name(enum mg_session_status s)
{
    return status_names[s];
}

const char *mg_turn_step_name(enum mg_turn_step s)
{
    return step_names[s];
}

static const struct mg_stmt SQL_LOCK = {
    "session_lock",
    "SELECT s.workspace_id, s.archived_at IS NOT NULL, st.deleting_at IS NOT NULL, s.env_type = 'self_hosted', "
    "st.status, st.last_seq,"
    " st.transcript_len, st.queued_inputs, st.open_actions, st.turn_epoch, coalesce(st.turn_node, ''), st.turn_step, "
    "st.turn_trigger,"
    " st.turn_round, st.turn_attempt, coalesce(mg_us(st.turn_due_at) - mg_us(clock_timestamp()), 0), "
    "coalesce(st.turn_request_id, ''), st.turn_continues, st.turn_upto, st.roster, st.busy_threads, st.relays, "
    "st.budget_nano, "
    "st.cost_nano, st.cost_unknown"
    " FROM session_state st JOIN sessions s ON s.id = st.session_id"
    " WHERE st.session_id = $1 AND ($2 = '' OR s.workspace_id = $2) FOR UPDATE OF st",
};

mg_rc mg_session_lock(struct mg_txn *t, struct mg_sv session, struct mg_sv workspace, struct mg_session_state *ret,
                      struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    *ret = (struct mg_session_state){0};
    if (!mg_id_from(session, &ret->session))
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(mg_shown_id(session)));
    mg_rc rc =
        mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){session, workspace.len ? workspace : MG_SV("")}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(mg_shown_id(session)));
    (void)mg_id_from(mg_res_sv(r, 0, 0), &ret->workspace);
    ret->archived = mg_res_bool(r, 0, 1);
    ret->deleting = mg_res_bool(r, 0, 2);
    ret->self_hosted = mg_res_bool(r, 0, 3);
    ret->status = (enum mg_session_status)mg_sv_index(mg_res_sv(r, 0, 4), status_names, 4);
    ret->last_seq = mg_res_int(r, 0, 5);
    ret->transcript_len = mg_res_int(r, 0, 6);
    ret->queued_inputs = mg_res_int(r, 0, 7);
    ret->open_actions = mg_res_int(r, 0, 8);
    ret->turn_epoch = mg_res_int(r, 0, 9);
    (void)mg_id_from(mg_res_sv(r, 0, 10), &ret->turn_node);
    ret->turn_step = (enum mg_turn_step)mg_sv_index(mg_res_sv(r, 0, 11), step_names, N_STEPS);
    ret->turn_trigger = mg_res_int(r, 0, 12);
    ret->turn_round = mg_res_int(r, 0, 13);
    ret->turn_attempt = mg_res_int(r, 0, 14);
    ret->due_in_us = mg_res_int(r, 0, 15);
    (void)mg_id_from(mg_res_sv(r, 0, 16), &ret->request_id);
    ret->turn_continues = mg_res_int(r, 0, 17);
    ret->turn_upto = mg_res_int(r, 0, 18);
    ret->roster = mg_res_bool(r, 0, 19);
    ret->busy_threads = mg_res_int(r, 0, 20);
    ret->relays = mg_res_int(r, 0, 21);
    ret->has_budget = mg_res_sv(r, 0, 22).ptr != NULL;
    ret->budget_nano = ret->has_budget ? mg_res_int(r, 0, 22) : 0;
    ret->cost_nano = mg_res_int(r, 0, 23);
    ret->cost_unknown = mg_res_bool(r, 0, 24);
    return MG_OK;
}

static const struct mg_stmt SQL_SAVE = {
    "session_save",
    "UPDATE session_state SET status = $2, last_seq = $3, transcript_len = $4, queued_inputs = $5, open_actions = $6, "
    "turn_epoch = $7,"
    " turn_node = nullif($8, ''), turn_step = $9, turn_trigger = $10, turn_round = $11, turn_attempt = $12,"
    " turn_due_at = CASE WHEN $9 = 'backoff' THEN clock_timestamp() + $13::bigint * interval '1 microsecond' END,"
    " turn_request_id = nullif($14, ''), input_tokens = input_tokens + $15, output_tokens = output_tokens + $16,"
    " cache_read = cache_read + $17, cache_5m = cache_5m + $18, cache_1h = cache_1h + $19, web_searches = web_searches "
    "+ $20,"
    " web_fetches = web_fetches + $21, turn_continues = $22, turn_upto = $23, busy_threads = $24, relays = $25, "
    "cost_nano = cost_nano + $26, cost_unknown = cost_unknown OR $27::bool, updated_at = now(),"
    " running_since = CASE WHEN $2 = 'running' THEN coalesce(running_since, now()) END,"
    " active_us = active_us + CASE WHEN $2 <> 'running' AND running_since IS NOT NULL THEN mg_us(now()) - "
    "mg_us(running_since) ELSE 0 END,"
    " terminated_at = CASE WHEN $2 = 'terminated' THEN coalesce(terminated_at, now()) END,"
    " step_since = CASE WHEN turn_step = $9 AND turn_request_id IS NOT DISTINCT FROM nullif($14, '') THEN step_since "
    "ELSE now() END"
    " WHERE session_id = $1",
};

mg_rc mg_session_state_save(struct mg_arena *a, struct mg_txn *t, const struct mg_session_state *s, struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(&s->session),
        mg_sv_of(mg_session_status_name(s->status)),
        mg_p_int(a, s->last_seq),
        mg_p_int(a, s->transcript_len),
        mg_p_int(a, s->queued_inputs),
        mg_p_int(a, s->open_actions),
        mg_p_int(a, s->turn_epoch),
        mg_id_sv(&s->turn_node),
        mg_sv_of(mg_turn_step_name(s->turn_step)),
        mg_p_int(a, s->turn_trigger),
        mg_p_int(a, s->turn_round),
        mg_p_int(a, s->turn_attempt),
        mg_p_int(a, s->due_in_us),
        mg_id_sv(&s->request_id),
        mg_p_int(a, s->add_input),
        mg_p_int(a, s->add_output),
        mg_p_int(a, s->add_cache_read),
        mg_p_int(a, s->add_cache_5m),
        mg_p_int(a, s->add_cache_1h),
        mg_p_int(a, s->add_web_search),
        mg_p_int(a, s->add_web_fetch),
        mg_p_int(a, s->turn_continues),
        mg_p_int(a, s->turn_upto),
        mg_p_int(a, s->busy_threads),
        mg_p_int(a, s->relays),
        mg_p_int(a, s->add_cost),
        mg_p_bool(s->add_unknown),
    };
    return mg_txn_queue(t, &SQL_SAVE, p, 27, -1, err);
}

/* SKIP LOCKED: several nodes scan at once; a row that its own session's admission holds is looked at again soon. */
static const struct mg_stmt SQL_CLAIM = {
    "turn_claim_dead",
    "WITH dead AS (SELECT session_id FROM session_state st WHERE (turn_step IN ('model', 'tools', 'backoff') OR "
    "busy_threads > 0) AND deleting_at IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = st.turn_node AND n.lease_until > clock_timestamp())"
    " LIMIT $2::int FOR UPDATE SKIP LOCKED)"
    " UPDATE session_state st SET turn_node = $1, turn_epoch = turn_epoch + 1 FROM dead WHERE st.session_id = "
    "dead.session_id"
    " RETURNING st.session_id, st.turn_epoch, st.turn_step, coalesce(mg_us(st.turn_due_at) - mg_us(clock_timestamp()), "
    "0)",
};

mg_rc mg_turn_claim_dead(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *node, int limit,
                         struct mg_session_state **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIM, (const struct mg_sv[]){mg_id_sv(node), mg_p_int(a, limit)}, 2, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    struct mg_session_state *all = mg_arena_alloc(a, sizeof(*all) * (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++) {
        (void)mg_id_from(mg_res_sv(r, i, 0), &all[i].session);
        all[i].turn_epoch = mg_res_int(r, i, 1);
        all[i].turn_step = (enum mg_turn_step)mg_sv_index(mg_res_sv(r, i, 2), step_names, N_STEPS);
        all[i].due_in_us = mg_res_int(r, i, 3);
    }
    *ret = all;
    *ret_n = n;
    return MG_OK;
}

static const struct mg_stmt SQL_RELEASE = {
    "turn_release",
    "UPDATE session_state SET turn_node = NULL, turn_epoch = turn_epoch + 1 WHERE turn_node = $1"
    " AND turn_step IN ('model', 'tools', 'backoff')",
};

mg_rc mg_turn_release(struct mg_pg *pg, const struct mg_id *node, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_RELEASE, (const struct mg_sv[]){mg_id_sv(node)}, 1, NULL, err);
}

/* A session that is gone reports INT64_MAX, so that its streams look and find out. */
static const struct mg_stmt SQL_HEADS = {
    "session_heads",
    "SELECT u.id, coalesce(st.last_seq, 9223372036854775807) FROM unnest($1::text[], $2::bigint[]) AS u(id, head)"
    " LEFT JOIN session_state st ON st.session_id = u.id AND st.deleting_at IS NULL"
    " WHERE st.session_id IS NULL OR st.last_seq > u.head",
};

mg_rc mg_session_heads(struct mg_arena *a, struct mg_pg *pg, const struct mg_sv *sessions, const int64_t *heads, int n,
                       void (*fn)(void *ctx, struct mg_sv session, int64_t last_seq), void *ctx, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv *texts = mg_arena_alloc(a, sizeof(*texts) * (size_t)(n ? n : 1));
    for (int i = 0; i < n; i++)
        texts[i] = mg_p_int(a, heads[i]);
    const struct mg_sv p[] = {mg_p_array(a, sessions, (size_t)n), mg_p_array(a, texts, (size_t)n)};
    mg_rc rc = mg_pg_exec(pg, &SQL_HEADS, p, 2, &r, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < mg_res_rows(r); i++)
        fn(ctx, mg_res_sv(r, i, 0), mg_res_int(r, i, 1));
    return MG_OK;
}
