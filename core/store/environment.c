#include "store/environment.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define COLUMNS                                                                                                    \
    "id, name, description, config_type = 'cloud', config, metadata, scope, mg_us(created_at), mg_us(updated_at)," \
    " mg_us(archived_at)"

static struct mg_environment_row environment_from_row(const struct mg_res *r, int i)
{
    return (struct mg_environment_row){
        .id = mg_res_sv(r, i, 0),
        .env =
            {
                .name = mg_res_sv(r, i, 1),
                .description = mg_res_sv(r, i, 2),
                .cloud = mg_res_bool(r, i, 3),
                .config = mg_res_sv(r, i, 4),
                .metadata = mg_res_sv(r, i, 5),
                .scope = mg_res_sv(r, i, 6),
            },
        .created_us = mg_res_time(r, i, 7),
        .updated_us = mg_res_time(r, i, 8),
        .archived_us = mg_res_time(r, i, 9),
    };
}

static void keep(struct mg_arena *a, struct mg_environment_row *row)
{
    struct mg_sv *const texts[] = {&row->id,         &row->env.name,     &row->env.description,
                                   &row->env.config, &row->env.metadata, &row->env.scope};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_environment_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_code(err, MG_ENOTFOUND, "environment_not_found", "environment '%.*s' does not exist",
                           MG_SV_ARG(mg_shown_id(id)));
    *ret = environment_from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "environment_insert",
    "INSERT INTO environments (id, workspace_id, name, description, config_type, config, metadata, scope)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING " COLUMNS,
};

mg_rc mg_environment_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                            const struct mg_environment *env, struct mg_environment_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        mg_id_sv(id), workspace,     env->name, env->description, mg_sv_of(env->cloud ? "cloud" : "self_hosted"),
        env->config,  env->metadata, env->scope};
    mg_rc rc = mg_pg_exec(pg, &SQL_INSERT, p, 8, &r, err);
    return rc < 0 ? rc : take(a, r, mg_id_sv(id), ret, err);
}

static const struct mg_stmt SQL_GET = {
    "environment_get",
    "SELECT " COLUMNS " FROM environments WHERE workspace_id = $1 AND id = $2",
};
static const struct mg_stmt SQL_LOCK = {
    "environment_lock",
    "SELECT " COLUMNS " FROM environments WHERE workspace_id = $1 AND id = $2 FOR UPDATE",
};

mg_rc mg_environment_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                         struct mg_environment_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_environment_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                          struct mg_environment_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

static const struct mg_stmt SQL_SAVE = {
    "environment_save",
    "UPDATE environments SET name = $2, description = $3, config = $4, metadata = $5, scope = $6, updated_at = now()"
    " WHERE id = $1 RETURNING " COLUMNS,
};

mg_rc mg_environment_save(struct mg_arena *a, struct mg_txn *t, struct mg_environment_row *row,
                          const struct mg_environment *env, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {row->id, env->name, env->description, env->config, env->metadata, env->scope};
    mg_rc rc = mg_txn_query(t, &SQL_SAVE, p, 6, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

static const struct mg_stmt SQL_ARCHIVE = {
    "environment_archive",
    "UPDATE environments SET archived_at = now(), updated_at = now() WHERE id = $1 RETURNING mg_us(archived_at)",
};

mg_rc mg_environment_set_archived(struct mg_txn *t, struct mg_environment_row *row, struct mg_err *err)
{
    return mg_row_archive(t, &SQL_ARCHIVE, row->id, &row->archived_us, &row->updated_us, err);
}

/* What the reconciler would do in a moment: rows of deleted sessions of which nothing is left outside. */
static const struct mg_stmt SQL_FORGET = {
    "environment_forget",
    "DELETE FROM sessions s USING session_state st WHERE s.environment_id = $1 AND st.session_id = s.id"
    " AND st.deleting_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sandboxes b WHERE b.session_id = s.id)"
    " AND NOT EXISTS (SELECT 1 FROM sandbox_intents i WHERE i.session_id = s.id)",
};
static const struct mg_stmt SQL_IN_USE = {
    "environment_in_use",
    "SELECT count(*), count(*) FILTER (WHERE st.deleting_at IS NULL) FROM (SELECT id FROM sessions"
    " WHERE environment_id = $1 LIMIT 1000) s JOIN session_state st ON st.session_id = s.id",
};
static const struct mg_stmt SQL_DELETE_KEYS = {"environment_delete_keys",
                                               "DELETE FROM api_keys WHERE environment_id = $1"};
static const struct mg_stmt SQL_DELETE = {"environment_delete", "DELETE FROM environments WHERE id = $1"};

static mg_rc check_unused(struct mg_txn *t, struct mg_sv id, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_IN_USE, &id, 1, &r, err);
    if (rc < 0 || mg_res_int(r, 0, 0) == 0)
        return rc;
    long long n = (long long)mg_res_int(r, 0, 1);
    if (n > 0)
        return mg_err_set(err, MG_ECONFLICT,
                          "environment '%.*s' is used by %lld session%s; delete them first, or archive the environment",
                          MG_SV_ARG(mg_shown_id(id)), n, n == 1 ? "" : "s");
    rc =
        mg_err_set(err, MG_EUNAVAIL, "environment '%.*s': sandboxes of its deleted sessions are still going; try again",
                   MG_SV_ARG(mg_shown_id(id)));
    if (err)
        err->retry_after_s = 1;
    return rc;
}

mg_rc mg_environment_delete(struct mg_txn *t, const struct mg_environment_row *row, struct mg_err *err)
{
    mg_rc rc = mg_txn_queue(t, &SQL_FORGET, &row->id, 1, -1, err);
    if (rc >= 0)
        rc = check_unused(t, row->id, err);
    if (rc >= 0)
        rc = mg_txn_queue(t, &SQL_DELETE_KEYS, &row->id, 1, -1, err);
    return rc < 0 ? rc : mg_txn_queue(t, &SQL_DELETE, &row->id, 1, 1, err);
}

#define LIST(op, way)                                                                                                \
    "SELECT " COLUMNS " FROM environments WHERE workspace_id = $1 AND (created_at, id) " op " ($2::timestamptz, $3)" \
    " AND ($4::bool OR archived_at IS NULL) ORDER BY created_at " way ", id " way " LIMIT $5::int"

static const struct mg_list_ways LISTS = {{"environment_list_down", LIST("<", "DESC")},
                                          {"environment_list_up", LIST(">", "ASC")}};

mg_rc mg_environment_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                          struct mg_environment_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {q->workspace, mg_list_pos(a, q), mg_list_pos_id(q), mg_p_bool(q->include_archived),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 5, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_environment_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = environment_from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}
