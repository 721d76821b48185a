#include "store/agent.h"

#include <limits.h>

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

/* The columns of agent_from_row. A version that is not the latest shows when it was made. */
#define COLUMNS                                                       \
    "a.id, v.version, a.latest_version, v.body, mg_us(a.created_at)," \
    " mg_us(CASE WHEN v.version = a.latest_version THEN a.updated_at ELSE v.created_at END), mg_us(a.archived_at)"

static struct mg_agent_row agent_from_row(const struct mg_res *r, int i)
{
    return (struct mg_agent_row){
        .id = mg_res_sv(r, i, 0),
        .version = mg_res_int(r, i, 1),
        .latest_version = mg_res_int(r, i, 2),
        .body = mg_res_sv(r, i, 3),
        .created_us = mg_res_time(r, i, 4),
        .updated_us = mg_res_time(r, i, 5),
        .archived_us = mg_res_time(r, i, 6),
    };
}

static void keep(struct mg_arena *a, struct mg_agent_row *row)
{
    row->id = mg_arena_sv(a, row->id);
    row->body = mg_arena_sv(a, row->body);
}

static mg_rc missing(struct mg_err *err, struct mg_sv id, int64_t version)
{
    if (version)
        return mg_err_set(err, MG_ENOTFOUND, "agent '%.*s' has no version %lld", MG_SV_ARG(mg_shown_id(id)),
                          (long long)version);
    return mg_err_set(err, MG_ENOTFOUND, "agent '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
}

static const struct mg_stmt SQL_INSERT = {
    "agent_insert",
    "INSERT INTO agents (id, workspace_id, latest_version) VALUES ($1, $2, 1) RETURNING mg_us(created_at)",
};
static const struct mg_stmt SQL_VERSION = {
    "agent_version_insert",
    "INSERT INTO agent_versions (agent_id, version, body) VALUES ($1, $2::int, $3)",
};

mg_rc mg_agent_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, const struct mg_id *id,
                      struct mg_sv body, struct mg_agent_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_INSERT, (const struct mg_sv[]){mg_id_sv(id), workspace}, 2, &r, err);
    if (rc < 0)
        return rc;
    int64_t now = mg_res_time(r, 0, 0);
    *ret = (struct mg_agent_row){
        .id = mg_arena_sv(a, mg_id_sv(id)),
        .version = 1,
        .latest_version = 1,
        .body = body,
        .created_us = now,
        .updated_us = now,
        .archived_us = INT64_MIN,
    };
    return mg_txn_queue(t, &SQL_VERSION, (const struct mg_sv[]){mg_id_sv(id), MG_SV("1"), body}, 3, 1, err);
}

static const struct mg_stmt SQL_GET = {
    "agent_get",
    "SELECT " COLUMNS " FROM agents a JOIN agent_versions v ON v.agent_id = a.id"
    " AND v.version = CASE WHEN $3::int = 0 THEN a.latest_version ELSE $3::int END"
    " WHERE a.workspace_id = $1 AND a.id = $2",
};

mg_rc mg_agent_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, int64_t version,
                   struct mg_agent_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id, mg_p_int(a, version)}, 3, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0 && version)
        return mg_agent_get(a, pg, workspace, id, 0, ret, err) < 0 ? missing(err, id, 0) : missing(err, id, version);
    if (mg_res_rows(r) == 0)
        return missing(err, id, 0);
    *ret = agent_from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

/* The lock is a statement of its own: the one behind it then sees the version that the wait was for. */
static const struct mg_stmt SQL_LOCK = {
    "agent_lock",
    "SELECT 1 FROM agents WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE",
};

mg_rc mg_agent_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                    struct mg_agent_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {workspace, id, MG_SV("0")};
    mg_rc rc = mg_txn_queue(t, &SQL_LOCK, p, 2, -1, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_GET, p, 3, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return missing(err, id, 0);
    *ret = agent_from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_SHARE = {
    "agent_share",
    "SELECT 1 FROM agents WHERE workspace_id = $1 AND id = $2 FOR SHARE",
};

mg_rc mg_agent_share(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, int64_t version,
                     struct mg_agent_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {workspace, id, mg_p_int(a, version)};
    mg_rc rc = mg_txn_queue(t, &SQL_SHARE, p, 2, -1, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_GET, p, 3, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return missing(err, id, version);
    *ret = agent_from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_ADVANCE = {
    "agent_advance",
    "UPDATE agents SET latest_version = $2::int, updated_at = now() WHERE id = $1 RETURNING mg_us(updated_at)",
};

mg_rc mg_agent_add_version(struct mg_arena *a, struct mg_txn *t, struct mg_agent_row *row, struct mg_sv body,
                           struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {row->id, mg_p_int(a, row->latest_version + 1), body};
    mg_rc rc = mg_txn_queue(t, &SQL_VERSION, p, 3, 1, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_ADVANCE, p, 2, &r, err);
    if (rc < 0)
        return rc;
    row->version = ++row->latest_version;
    row->body = body;
    row->updated_us = mg_res_time(r, 0, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_ARCHIVE = {
    "agent_archive",
    "UPDATE agents SET archived_at = now(), updated_at = now() WHERE id = $1 RETURNING mg_us(archived_at)",
};

mg_rc mg_agent_set_archived(struct mg_txn *t, struct mg_agent_row *row, struct mg_err *err)
{
    return mg_row_archive(t, &SQL_ARCHIVE, row->id, &row->archived_us, &row->updated_us, err);
}

/* ---- lists ---- */

#define LIST(op, way)                                                                                                  \
    "SELECT " COLUMNS " FROM agents a JOIN agent_versions v ON v.agent_id = a.id AND v.version = a.latest_version"     \
    " WHERE a.workspace_id = $1 AND (a.created_at, a.id) " op " ($2::timestamptz, $3)"                                 \
    " AND a.created_at >= $4::timestamptz AND a.created_at <= $5::timestamptz AND ($6::bool OR a.archived_at IS NULL)" \
    " ORDER BY a.created_at " way ", a.id " way " LIMIT $7::int"

static const struct mg_list_ways LISTS = {{"agent_list_down", LIST("<", "DESC")}, {"agent_list_up", LIST(">", "ASC")}};

static void rows_of(struct mg_arena *a, const struct mg_res *r, const struct mg_list_page *page,
                    struct mg_agent_row **ret)
{
    struct mg_agent_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(page->n + 1));
    for (int i = 0; i < page->n; i++)
        rows[i] = agent_from_row(r, mg_list_row(page, i));
    *ret = rows;
}

mg_rc mg_agent_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                    struct mg_agent_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        q->workspace,
        mg_list_pos(a, q),
        mg_list_pos_id(q),
        mg_list_low(a, q->gte_us),
        mg_list_high(a, q->lte_us),
        mg_p_bool(q->include_archived),
        mg_p_int(a, q->limit + 1),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 7, &r, ret_page, err);
    if (rc < 0)
        return rc;
    rows_of(a, r, ret_page, ret);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_VERSIONS = {
    "agent_versions",
    "SELECT " COLUMNS " FROM agents a JOIN agent_versions v ON v.agent_id = a.id"
    " WHERE a.workspace_id = $1 AND a.id = $2 AND v.version < $3::int ORDER BY v.version DESC LIMIT $4::int",
};

mg_rc mg_agent_versions(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, const struct mg_list_query *q,
                        struct mg_res **ret_res, struct mg_agent_row **ret, struct mg_list_page *ret_page,
                        struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {q->workspace, id, mg_p_int(a, q->cursor.given ? q->cursor.pos : INT_MAX),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_pg_exec(pg, &SQL_VERSIONS, p, 4, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0 && !q->cursor.given)
        return missing(err, id, 0);
    *ret_page = mg_list_page_of(q, mg_res_rows(r));
    rows_of(a, r, ret_page, ret);
    *ret_res = mg_steal(&r);
    return MG_OK;
}
