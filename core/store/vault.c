#include "store/vault.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define COLUMNS "id, display_name, metadata, mg_us(created_at), mg_us(updated_at), mg_us(archived_at)"

static struct mg_vault_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_vault_row){
        .id = mg_res_sv(r, i, 0),
        .vault = {.name = mg_res_sv(r, i, 1), .metadata = mg_res_sv(r, i, 2)},
        .created_us = mg_res_time(r, i, 3),
        .updated_us = mg_res_time(r, i, 4),
        .archived_us = mg_res_time(r, i, 5),
    };
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_vault_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "vault '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    *ret = from_row(r, 0);
    struct mg_sv *const texts[] = {&ret->id, &ret->vault.name, &ret->vault.metadata};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "vault_insert",
    "INSERT INTO vaults (id, workspace_id, display_name, metadata) VALUES ($1, $2, $3, $4) RETURNING " COLUMNS,
};

mg_rc mg_vault_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                      const struct mg_vault *v, struct mg_vault_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_id_sv(id), workspace, v->name, v->metadata};
    mg_rc rc = mg_pg_exec(pg, &SQL_INSERT, p, 4, &r, err);
    return rc < 0 ? rc : take(a, r, mg_id_sv(id), ret, err);
}

static const struct mg_stmt SQL_GET = {
    "vault_get",
    "SELECT " COLUMNS " FROM vaults WHERE workspace_id = $1 AND id = $2",
};
static const struct mg_stmt SQL_LOCK = {
    "vault_lock",
    "SELECT " COLUMNS " FROM vaults WHERE workspace_id = $1 AND id = $2 FOR UPDATE",
};

mg_rc mg_vault_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                   struct mg_vault_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_vault_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                    struct mg_vault_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

static const struct mg_stmt SQL_SAVE = {
    "vault_save",
    "UPDATE vaults SET display_name = $2, metadata = $3, updated_at = now() WHERE id = $1 RETURNING " COLUMNS,
};

mg_rc mg_vault_save(struct mg_arena *a, struct mg_txn *t, struct mg_vault_row *row, const struct mg_vault *v,
                    struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {row->id, v->name, v->metadata};
    mg_rc rc = mg_txn_query(t, &SQL_SAVE, p, 3, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

static const struct mg_stmt SQL_ARCHIVE_CREDENTIALS = {
    "vault_archive_credentials",
    "UPDATE vault_credentials SET archived_at = now(), updated_at = now(), secret = NULL, key_id = NULL"
    " WHERE vault_id = $1 AND archived_at IS NULL",
};
static const struct mg_stmt SQL_ARCHIVE = {
    "vault_archive",
    "UPDATE vaults SET archived_at = now(), updated_at = now() WHERE id = $1 RETURNING mg_us(archived_at)",
};

mg_rc mg_vault_set_archived(struct mg_txn *t, struct mg_vault_row *row, struct mg_err *err)
{
    mg_rc rc = mg_txn_queue(t, &SQL_ARCHIVE_CREDENTIALS, &row->id, 1, -1, err);
    return rc < 0 ? rc : mg_row_archive(t, &SQL_ARCHIVE, row->id, &row->archived_us, &row->updated_us, err);
}

static const struct mg_stmt SQL_DELETE = {"vault_delete", "DELETE FROM vaults WHERE id = $1"};

mg_rc mg_vault_delete(struct mg_txn *t, const struct mg_vault_row *row, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DELETE, &row->id, 1, 1, err);
}

#define LIST(op, way)                                                                                          \
    "SELECT " COLUMNS " FROM vaults WHERE workspace_id = $1 AND (created_at, id) " op " ($2::timestamptz, $3)" \
    " AND ($4::bool OR archived_at IS NULL) ORDER BY created_at " way ", id " way " LIMIT $5::int"

static const struct mg_list_ways LISTS = {{"vault_list_down", LIST("<", "DESC")}, {"vault_list_up", LIST(">", "ASC")}};

mg_rc mg_vault_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                    struct mg_vault_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {q->workspace, mg_list_pos(a, q), mg_list_pos_id(q), mg_p_bool(q->include_archived),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 5, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_vault_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_CHECK = {
    "vaults_check",
    "SELECT v.id, v.archived_at IS NOT NULL FROM vaults v WHERE v.workspace_id = $1 AND v.id = ANY ($2::text[])"
    " FOR SHARE",
};

static mg_rc check_one(const struct mg_res *r, struct mg_sv id, int at, struct mg_err *err)
{
    for (int i = 0; i < mg_res_rows(r); i++) {
        if (!mg_sv_eq(mg_res_sv(r, i, 0), id))
            continue;
        if (!mg_res_bool(r, i, 1))
            return MG_OK;
        return mg_err_code(err, MG_EINVAL, "vault_archived",
                           "vault_ids[%d]: vault '%.*s' is archived; use another vault", at, MG_SV_ARG(id));
    }
    return mg_err_code(err, MG_ENOTFOUND, "vault_not_found", "vault_ids[%d]: vault '%.*s' does not exist", at,
                       MG_SV_ARG(mg_shown_id(id)));
}

mg_rc mg_vaults_check(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, const struct mg_sv *ids, int n,
                      struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    if (n == 0)
        return MG_OK;
    const struct mg_sv p[] = {workspace, mg_p_array(a, ids, (size_t)n)};
    mg_rc rc = mg_txn_query(t, &SQL_CHECK, p, 2, &r, err);
    for (int i = 0; i < n && rc >= 0; i++)
        rc = check_one(r, ids[i], i, err);
    return rc;
}
