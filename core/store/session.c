#include "store/session.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/turn-columns.h"

#define COLUMNS                                                                                                  \
    "s.id, s.agent, s.environment_id, st.status, s.title, s.metadata, s.resources, s.vault_ids, st.budget_nano," \
    " s.deployment_id, mg_us(s.created_at), mg_us(st.updated_at), mg_us(s.archived_at),"                         \
    " st.active_us + CASE WHEN st.running_since IS NULL THEN 0 ELSE mg_us(now()) - mg_us(st.running_since) END," \
    " mg_us(coalesce(st.terminated_at, now())) - mg_us(s.created_at), st.input_tokens, st.output_tokens, "       \
    "st.cache_read,"                                                                                             \
    " st.cache_5m, st.cache_1h, st.web_searches, st.web_fetches, st.cost_nano, st.cost_unknown,"                 \
    " CASE WHEN st.outcomes > 0 THEN mg_outcomes(s.id) ELSE '[]' END"
#define FROM " FROM sessions s JOIN session_state st ON st.session_id = s.id"

static struct mg_session_row session_from_row(const struct mg_res *r, int i)
{
    struct mg_session_row x = {
        .id = mg_res_sv(r, i, 0),
        .agent = mg_res_sv(r, i, 1),
        .environment_id = mg_res_sv(r, i, 2),
        .status = mg_res_sv(r, i, 3),
        .title = mg_res_sv(r, i, 4),
        .metadata = mg_res_sv(r, i, 5),
        .resources = mg_res_sv(r, i, 6),
        .vault_ids = mg_res_sv(r, i, 7),
        .budget_nano = mg_res_sv(r, i, 8).ptr ? mg_res_int(r, i, 8) : MG_BUDGET_NONE,
        .deployment_id = mg_res_sv(r, i, 9),
        .created_us = mg_res_time(r, i, 10),
        .updated_us = mg_res_time(r, i, 11),
        .archived_us = mg_res_time(r, i, 12),
        .outcomes = mg_res_sv(r, i, 24),
    };
    x.usage = mg_usage_from_row(r, i, 13, &x.duration_us);
    return x;
}

/* ---- create ---- */

enum { BASE_TRIES = 5 /* an agent that gets a new version between each of two statements */ };

/* One statement locks and reads: a row that it had to wait for is looked at again, and a version that is no longer the
 * latest drops out. FOR SHARE: creates do not wait for each other. */
static const struct mg_stmt SQL_BASE_LOCK = {
    "session_base_lock",
    "SELECT true, a.archived_at IS NOT NULL, v.version, v.body, true, e.archived_at IS NOT NULL, e.config_type, "
    "e.config,"
    " mg_us(now()) FROM agents a"
    " JOIN agent_versions v ON v.agent_id = a.id AND v.version = CASE WHEN $3::int = 0 THEN a.latest_version ELSE "
    "$3::int END"
    " JOIN environments e ON e.workspace_id = $1 AND e.id = $4"
    " WHERE a.workspace_id = $1 AND a.id = $2 FOR SHARE OF a, e",
};
/* Without a row from there: what is missing, or, when nothing is, a change that came in between. */
static const struct mg_stmt SQL_BASE = {
    "session_base",
    "SELECT a.id IS NOT NULL, a.archived_at IS NOT NULL, v.version, v.body, e.id IS NOT NULL, e.archived_at IS NOT "
    "NULL, e.config_type,"
    " e.config, mg_us(now()) FROM (SELECT 1) one"
    " LEFT JOIN agents a ON a.workspace_id = $1 AND a.id = $2"
    " LEFT JOIN agent_versions v ON v.agent_id = a.id AND v.version = CASE WHEN $3::int = 0 THEN a.latest_version ELSE "
    "$3::int END"
    " LEFT JOIN environments e ON e.workspace_id = $1 AND e.id = $4",
};

static mg_rc check_base(const struct mg_res *r, struct mg_sv agent_id, int64_t version, struct mg_sv environment_id,
                        struct mg_err *err)
{
    if (!mg_res_bool(r, 0, 0))
        return mg_err_set(err, MG_ENOTFOUND, "agent: '%.*s' does not exist", MG_SV_ARG(mg_shown_id(agent_id)));
    if (!mg_res_sv(r, 0, 2).ptr)
        return mg_err_set(err, MG_ENOTFOUND, "agent.version: agent '%.*s' has no version %lld",
                          MG_SV_ARG(mg_shown_id(agent_id)), (long long)version);
    if (!mg_res_bool(r, 0, 4))
        return mg_err_code(err, MG_ENOTFOUND, "environment_not_found", "environment_id: '%.*s' does not exist",
                           MG_SV_ARG(mg_shown_id(environment_id)));
    if (mg_res_bool(r, 0, 1))
        return mg_err_code(err, MG_EINVAL, "agent_archived", "agent: '%.*s' is archived; use another agent",
                           MG_SV_ARG(mg_shown_id(agent_id)));
    if (mg_res_bool(r, 0, 5))
        return mg_err_code(err, MG_EINVAL, "environment_archived",
                           "environment_id: '%.*s' is archived; use another environment",
                           MG_SV_ARG(mg_shown_id(environment_id)));
    return MG_OK;
}

mg_rc mg_session_base_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv agent_id,
                           int64_t agent_version, struct mg_sv environment_id, struct mg_session_base *ret,
                           struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {workspace, agent_id, mg_p_int(a, agent_version), environment_id};
    mg_rc rc = mg_txn_query(t, &SQL_BASE_LOCK, p, 4, &r, err);
    for (int tries = 0; rc >= 0 && mg_res_rows(r) == 0; tries++) {
        mg_res_free(mg_steal(&r));
        rc = mg_txn_query(t, &SQL_BASE, p, 4, &r, err);
        if (rc >= 0)
            rc = check_base(r, agent_id, agent_version, environment_id, err);
        if (rc >= 0 && tries == BASE_TRIES)
            rc = mg_err_set(err, MG_EUNAVAIL, "agent: '%.*s' is being changed; try again",
                            MG_SV_ARG(mg_shown_id(agent_id)));
        if (rc < 0)
            return rc;
        mg_res_free(mg_steal(&r));
        rc = mg_txn_query(t, &SQL_BASE_LOCK, p, 4, &r, err);
    }
    if (rc >= 0)
        rc = check_base(r, agent_id, agent_version, environment_id, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_session_base){
        .agent_version = mg_res_int(r, 0, 2),
        .agent_body = mg_arena_sv(a, mg_res_sv(r, 0, 3)),
        .env_type = mg_arena_sv(a, mg_res_sv(r, 0, 6)),
        .env_config = mg_arena_sv(a, mg_res_sv(r, 0, 7)),
        .now_us = mg_res_time(r, 0, 8),
    };
    return MG_OK;
}

/* Both rows in one statement: what is sent and planned counts as much as what is written. */
static const struct mg_stmt SQL_INSERT = {
    "session_insert",
    "WITH s AS (INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type,"
    " env_config, title, metadata, vault_ids, deployment_id) VALUES ($1, $2, $3, $4::int, $5, $6, $7, $8, $9, $10, "
    "$13, $14) RETURNING "
    "id)"
    " INSERT INTO session_state (session_id, budget_nano, roster, agent_name)"
    " SELECT id, $11::bigint, $12::text IS NOT NULL, $12 FROM s",
};

static struct mg_sv budget_param(struct mg_arena *a, int64_t nano)
{
    return nano == MG_BUDGET_NONE ? mg_p_null() : mg_p_int(a, nano);
}

mg_rc mg_session_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_session_new *s, struct mg_err *err)
{
    const struct mg_sv p[] = {
        mg_id_sv(&s->id),
        s->workspace,
        s->agent_id,
        mg_p_int(a, s->base->agent_version),
        s->agent,
        s->environment_id,
        s->base->env_type,
        s->base->env_config,
        s->title,
        s->metadata,
        budget_param(a, s->budget_nano),
        s->coordinator,
        s->vault_ids,
        s->deployment_id,
    };
    return mg_txn_queue(t, &SQL_INSERT, p, 14, -1, err);
}

struct mg_session_row mg_session_new_row(const struct mg_session_new *s, const char *status)
{
    return (struct mg_session_row){
        .id = mg_id_sv(&s->id),
        .agent = s->agent,
        .environment_id = s->environment_id,
        .status = mg_sv_of(status),
        .title = s->title,
        .metadata = s->metadata,
        .resources = MG_SV("[]"),
        .vault_ids = s->vault_ids,
        .deployment_id = s->deployment_id,
        .outcomes = MG_SV("[]"),
        .budget_nano = s->budget_nano,
        .created_us = s->base->now_us,
        .updated_us = s->base->now_us,
        .archived_us = INT64_MIN,
    };
}

/* ---- read ---- */

static const struct mg_stmt SQL_GET = {
    "session_get",
    "SELECT " COLUMNS FROM " WHERE s.workspace_id = $1 AND s.id = $2 AND st.deleting_at IS NULL",
};

static mg_rc take(struct mg_res **r, struct mg_sv id, struct mg_res **ret_res, struct mg_session_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(*r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    *ret = session_from_row(*r, 0);
    *ret_res = mg_steal(r);
    return MG_OK;
}

mg_rc mg_session_get(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, struct mg_res **ret_res,
                     struct mg_session_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(&r, id, ret_res, ret, err);
}

mg_rc mg_session_read(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, struct mg_res **ret_res,
                      struct mg_session_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(&r, id, ret_res, ret, err);
}

/* The agent's sessions have an index of their own, so their list is a statement of its own. */
#define LIST(agent, op, way)                                                                                     \
    "SELECT " COLUMNS FROM " WHERE s.workspace_id = $1 AND (s.created_at, s.id) " op " ($2::timestamptz, $3)"    \
    " AND s.created_at > $4::timestamptz AND s.created_at >= $5::timestamptz AND s.created_at < $6::timestamptz" \
    " AND s.created_at <= $7::timestamptz AND ($8::bool OR s.archived_at IS NULL)"                               \
    " AND ($9::text[] IS NULL OR st.status = ANY ($9::text[])) AND ($10::text IS NULL OR s.deployment_id = $10)" \
    " AND ($11::text IS NULL OR strpos(s.resources, $11) > 0) AND st.deleting_at IS NULL" agent                  \
    " ORDER BY s.created_at " way ", s.id " way " LIMIT $12::int"
#define BY_AGENT " AND s.agent_id = $13 AND ($14::int = 0 OR s.agent_version = $14::int)"

static const struct mg_list_ways LISTS[2] = {
    {{"session_list_down", LIST("", "<", "DESC")}, {"session_list_up", LIST("", ">", "ASC")}},
    {{"session_list_agent_down", LIST(BY_AGENT, "<", "DESC")}, {"session_list_agent_up", LIST(BY_AGENT, ">", "ASC")}},
};

mg_rc mg_session_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                      const struct mg_session_filter *f, struct mg_res **ret_res, struct mg_session_row **ret,
                      struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool by_agent = f->agent_id.ptr != NULL;
    struct mg_sv store = f->memory_store_id.ptr
                             ? mg_arena_printf(a, "\"memory_store_id\":\"%.*s\"", MG_SV_ARG(f->memory_store_id))
                             : mg_p_null();
    const struct mg_sv p[] = {
        q->workspace,
        mg_list_pos(a, q),
        mg_list_pos_id(q),
        mg_list_low(a, q->gt_us),
        mg_list_low(a, q->gte_us),
        mg_list_high(a, q->lt_us),
        mg_list_high(a, q->lte_us),
        mg_p_bool(q->include_archived),
        f->n_statuses ? mg_p_array(a, f->statuses, (size_t)f->n_statuses) : mg_p_null(),
        f->deployment_id,
        store,
        mg_p_int(a, q->limit + 1),
        f->agent_id,
        mg_p_int(a, f->agent_version),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS[by_agent], p, by_agent ? 14 : 12, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_session_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = session_from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* The totals as they are before the running transaction's own additions. */
static const struct mg_stmt SQL_USAGE = {"session_usage", "SELECT " COLUMNS FROM " WHERE s.id = $1"};

mg_rc mg_session_usage(struct mg_txn *t, struct mg_sv id, struct mg_usage *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_USAGE, &id, 1, &r, err);
    if (rc == MG_OK && mg_res_rows(r) == 1)
        *ret = session_from_row(r, 0).usage;
    return rc;
}

/* ---- change ---- */

static const struct mg_stmt SQL_SAVE = {
    "session_update",
    "UPDATE sessions SET title = $2, metadata = $3, agent = $4 WHERE id = $1",
};

mg_rc mg_session_save(struct mg_txn *t, struct mg_sv id, struct mg_sv title, struct mg_sv metadata, struct mg_sv agent,
                      struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_SAVE, (const struct mg_sv[]){id, title, metadata, agent}, 4, 1, err);
}

static const struct mg_stmt SQL_BUDGET = {"session_budget",
                                          "UPDATE session_state SET budget_nano = $2::bigint WHERE session_id = $1"};

mg_rc mg_session_set_budget(struct mg_arena *a, struct mg_txn *t, struct mg_sv id, int64_t nano, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_BUDGET, (const struct mg_sv[]){id, budget_param(a, nano)}, 2, 1, err);
}

static const struct mg_stmt SQL_ARCHIVE = {
    "session_archive", "UPDATE sessions SET archived_at = now() WHERE id = $1 AND archived_at IS NULL"};

mg_rc mg_session_set_archived(struct mg_txn *t, struct mg_sv id, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_ARCHIVE, &id, 1, 1, err);
}

static const struct mg_stmt SQL_DELETING = {
    "session_deleting", "UPDATE session_state SET deleting_at = now() WHERE session_id = $1 AND deleting_at IS NULL"};

mg_rc mg_session_set_deleting(struct mg_txn *t, struct mg_sv id, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DELETING, &id, 1, 1, err);
}
