#include "store/session-state.h"

#include "domain/check.h"
#include "store/turn-columns.h"

static const char *const status_names[] = {"idle", "running", "rescheduling", "terminated"};
static const char *const step_names[] = {"none", "model", "tools", "action", "backoff", "paused"};
static const char *const phase_names[] = {"none", "queued", "work", "grade"};
enum { N_STEPS = sizeof(step_names) / sizeof(step_names[0]) };

const char *mg_session_status_name(enum mg_session_status s)
{
    return status_names[s];
}

const char *mg_turn_step_name(enum mg_turn_step s)
{
    return step_names[s];
}

void mg_turn_from_row(const struct mg_res *r, int row, int at, struct mg_session_state *ret)
{
    ret->transcript_len = mg_res_int(r, row, at);
    ret->queued_inputs = mg_res_int(r, row, at + 1);
    ret->open_actions = mg_res_int(r, row, at + 2);
    ret->turn_epoch = mg_res_int(r, row, at + 3);
    ret->turn_step = (enum mg_turn_step)mg_sv_index(mg_res_sv(r, row, at + 4), step_names, N_STEPS);
    ret->turn_trigger = mg_res_int(r, row, at + 5);
    ret->turn_upto = mg_res_int(r, row, at + 6);
    ret->turn_round = mg_res_int(r, row, at + 7);
    ret->turn_attempt = mg_res_int(r, row, at + 8);
    ret->turn_continues = mg_res_int(r, row, at + 9);
    (void)mg_id_from(mg_res_sv(r, row, at + 10), &ret->request_id);
    ret->due_in_us = mg_res_int(r, row, at + 11);
}

void mg_turn_params(struct mg_arena *a, const struct mg_session_state *s, enum mg_session_status status,
                    struct mg_sv p[MG_TURN_PARAMS_MAX])
{
    const struct mg_sv all[MG_TURN_PARAMS] = {
        mg_sv_of(mg_session_status_name(status)),
        mg_p_int(a, s->transcript_len),
        mg_p_int(a, s->queued_inputs),
        mg_p_int(a, s->open_actions),
        mg_p_int(a, s->turn_epoch),
        mg_sv_of(mg_turn_step_name(s->turn_step)),
        mg_p_int(a, s->turn_trigger),
        mg_p_int(a, s->turn_upto),
        mg_p_int(a, s->turn_round),
        mg_p_int(a, s->turn_attempt),
        mg_p_int(a, s->turn_continues),
        mg_id_sv(&s->request_id),
        mg_p_int(a, s->due_in_us),
        mg_p_int(a, s->add_input),
        mg_p_int(a, s->add_output),
        mg_p_int(a, s->add_cache_read),
        mg_p_int(a, s->add_cache_5m),
        mg_p_int(a, s->add_cache_1h),
        mg_p_int(a, s->add_web_search),
        mg_p_int(a, s->add_web_fetch),
    };
    memcpy(p, all, sizeof(all));
}

static const struct mg_stmt SQL_LOCK = {
    "session_lock",
    "SELECT s.workspace_id, s.archived_at IS NOT NULL, st.deleting_at IS NOT NULL, s.env_type = 'self_hosted', "
    "st.status, st.last_seq, coalesce(st.turn_node, ''), st.roster, st.busy_threads, st.relays, "
    "st.budget_nano, st.cost_nano, st.cost_unknown, st.outcome_phase, st.outcome_seq, s.environment_id, " MG_TURN_READ
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
    (void)mg_id_from(mg_res_sv(r, 0, 6), &ret->turn_node);
    ret->roster = mg_res_bool(r, 0, 7);
    ret->busy_threads = mg_res_int(r, 0, 8);
    ret->relays = mg_res_int(r, 0, 9);
    ret->has_budget = mg_res_sv(r, 0, 10).ptr != NULL;
    ret->budget_nano = ret->has_budget ? mg_res_int(r, 0, 10) : 0;
    ret->cost_nano = mg_res_int(r, 0, 11);
    ret->cost_unknown = mg_res_bool(r, 0, 12);
    ret->outcome_phase = (enum mg_outcome_phase)mg_sv_index(mg_res_sv(r, 0, 13), phase_names, 4);
    ret->outcome_seq = mg_res_int(r, 0, 14);
    (void)mg_id_from(mg_res_sv(r, 0, 15), &ret->environment);
    mg_turn_from_row(r, 0, 16, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_SAVE = {
    "session_save",
    "UPDATE session_state SET " MG_TURN_WRITE ", last_seq = $22, turn_node = nullif($23, ''), busy_threads = $24,"
    " relays = $25, cost_nano = cost_nano + $26, cost_unknown = cost_unknown OR $27::bool, outcome_phase = $28,"
    " outcome_seq = $29 WHERE session_id = $21",
};
/* With the primary thread's own running time: the session's goes on while a child runs. */
static const struct mg_stmt SQL_SAVE_ROSTER = {
    "session_save_roster",
    "UPDATE session_state SET " MG_TURN_WRITE ", last_seq = $22, turn_node = nullif($23, ''), busy_threads = $24,"
    " relays = $25, cost_nano = cost_nano + $26, cost_unknown = cost_unknown OR $27::bool, outcome_phase = $28,"
    " outcome_seq = $29, own_since = CASE WHEN $30 = "
    "'running' THEN coalesce(own_since, now()) END,"
    " own_active_us = own_active_us + CASE WHEN $30 <> 'running' AND own_since IS NOT NULL THEN mg_us(now()) -"
    " mg_us(own_since) ELSE 0 END WHERE session_id = $21",
};

mg_rc mg_session_state_save(struct mg_arena *a, struct mg_txn *t, const struct mg_session_state *s, struct mg_err *err)
{
    struct mg_sv p[MG_TURN_PARAMS_MAX];
    int n = MG_TURN_PARAMS;
    mg_turn_params(a, s, s->status, p);
    p[n++] = mg_id_sv(&s->session);
    p[n++] = mg_p_int(a, s->last_seq);
    p[n++] = mg_id_sv(&s->turn_node);
    p[n++] = mg_p_int(a, s->busy_threads);
    p[n++] = mg_p_int(a, s->relays);
    p[n++] = mg_p_int(a, s->add_cost);
    p[n++] = mg_p_bool(s->add_unknown);
    p[n++] = mg_sv_of(phase_names[s->outcome_phase]);
    p[n++] = mg_p_int(a, s->outcome_seq);
    if (s->roster)
        p[n++] = mg_sv_of(mg_session_status_name(mg_turn_status(s)));
    return mg_txn_queue(t, s->roster ? &SQL_SAVE_ROSTER : &SQL_SAVE, p, n, -1, err);
}

enum mg_session_status mg_turn_status(const struct mg_session_state *s)
{
    if (s->turn_step == MG_TURN_MODEL || s->turn_step == MG_TURN_TOOLS)
        return MG_ST_RUNNING;
    return s->turn_step == MG_TURN_BACKOFF ? MG_ST_RESCHEDULING : MG_ST_IDLE;
}

int64_t mg_res_span(const struct mg_res *r, int row, int column)
{
    int64_t n = mg_res_int(r, row, column);
    return n < 0 ? 0 : n;
}

struct mg_usage mg_usage_from_row(const struct mg_res *r, int row, int at, int64_t *ret_duration_us)
{
    *ret_duration_us = mg_res_span(r, row, at + 1);
    return (struct mg_usage){
        .active_us = mg_res_span(r, row, at),
        .input_tokens = mg_res_int(r, row, at + 2),
        .output_tokens = mg_res_int(r, row, at + 3),
        .cache_read = mg_res_int(r, row, at + 4),
        .cache_5m = mg_res_int(r, row, at + 5),
        .cache_1h = mg_res_int(r, row, at + 6),
        .web_searches = mg_res_int(r, row, at + 7),
        .web_fetches = mg_res_int(r, row, at + 8),
        .cost_nano = mg_res_int(r, row, at + 9),
        .cost_unknown = mg_res_bool(r, row, at + 10),
    };
}

/* SKIP LOCKED: several nodes scan at once; a row that its own session's admission holds is looked at again soon. A session's threads go together; a
 * child that was made since the statement's snapshot is found by mg_turns_own. */
static const struct mg_stmt SQL_CLAIM = {
    "turn_claim_dead",
    "WITH dead AS (SELECT session_id FROM session_state st WHERE (turn_step IN ('model', 'tools', 'backoff') OR "
    "busy_threads > 0) AND deleting_at IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = st.turn_node AND n.lease_until > clock_timestamp())"
    /* A sandbox that this node cannot reach is left to those that can. */
    " AND NOT EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = st.session_id AND b.lost_at IS NULL AND NOT EXISTS"
    " (SELECT 1 FROM nodes me, unnest(me.backends) AS have WHERE me.id = $1 AND split_part(have, '=', 1) = b.provider))"
    " LIMIT $2::int FOR UPDATE SKIP LOCKED),"
    " sessions AS (UPDATE session_state st SET turn_node = $1, turn_epoch = turn_epoch + 1 FROM dead WHERE "
    "st.session_id = dead.session_id"
    " RETURNING st.session_id, ''::text AS thread_id, st.turn_epoch, st.turn_step, st.turn_due_at, st.roster),"
    " threads AS (UPDATE thread_state st SET turn_epoch = turn_epoch + 1 FROM dead WHERE st.session_id = "
    "dead.session_id AND st.turn_step IN ('model', 'tools', 'backoff')"
    " RETURNING st.session_id, st.thread_id, st.turn_epoch, st.turn_step, st.turn_due_at, true AS roster)"
    " SELECT session_id, thread_id, turn_epoch, turn_step, coalesce(mg_us(turn_due_at) - mg_us(clock_timestamp()), 0),"
    " roster FROM (SELECT * FROM sessions UNION ALL SELECT * FROM threads) claimed"
    " WHERE turn_step IN ('model', 'tools', 'backoff')",
};

static void claimed_from_row(const struct mg_res *r, int i, struct mg_session_state *ret)
{
    (void)mg_id_from(mg_res_sv(r, i, 0), &ret->session);
    (void)mg_id_from(mg_res_sv(r, i, 1), &ret->thread);
    ret->turn_epoch = mg_res_int(r, i, 2);
    ret->turn_step = (enum mg_turn_step)mg_sv_index(mg_res_sv(r, i, 3), step_names, N_STEPS);
    ret->due_in_us = mg_res_int(r, i, 4);
    ret->roster = mg_res_bool(r, i, 5);
}

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
        claimed_from_row(r, i, &all[i]);
    }
    *ret = all;
    *ret_n = n;
    return MG_OK;
}

static const struct mg_stmt SQL_RELEASE = {
    "turn_release",
    "WITH ours AS (UPDATE session_state SET turn_node = NULL, turn_epoch = turn_epoch + 1 WHERE turn_node = $1"
    " AND (turn_step IN ('model', 'tools', 'backoff') OR busy_threads > 0) RETURNING session_id)"
    " UPDATE thread_state st SET turn_epoch = turn_epoch + 1 FROM ours WHERE st.session_id = ours.session_id"
    " AND st.turn_step IN ('model', 'tools', 'backoff')",
};

mg_rc mg_turn_release(struct mg_pg *pg, const struct mg_id *node, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_RELEASE, (const struct mg_sv[]){mg_id_sv(node)}, 1, NULL, err);
}

/* What a node has to run in coordinators' sessions: a claim that another node made on its behalf is among it. */
static const struct mg_stmt SQL_OWN = {
    "turns_own",
    "WITH own AS (SELECT session_id, turn_epoch, turn_step, turn_due_at FROM session_state WHERE turn_node = $1"
    " AND roster AND (turn_step IN ('model', 'tools', 'backoff') OR busy_threads > 0) AND deleting_at IS NULL AND ($2 "
    "= '' OR session_id = $2))"
    " SELECT session_id, thread_id, turn_epoch, turn_step, coalesce(mg_us(turn_due_at) - mg_us(clock_timestamp()), 0),"
    " true FROM (SELECT session_id, ''::text AS thread_id, turn_epoch, turn_step, turn_due_at FROM own UNION ALL"
    " SELECT st.session_id, st.thread_id, st.turn_epoch, st.turn_step, st.turn_due_at FROM own JOIN thread_state st"
    " USING (session_id)) t WHERE turn_step IN ('model', 'tools', 'backoff')",
};

mg_rc mg_turns_own(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *node, struct mg_sv session,
                   struct mg_session_state **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_OWN, (const struct mg_sv[]){mg_id_sv(node), session}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++) {
        claimed_from_row(r, i, &(*ret)[i]);
        (*ret)[i].turn_node = *node;
    }
    return MG_OK;
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
