/* Rows of memory_stores. */
#include "base/mem.h"
#include "domain/check.h"
#include "store/memory.h"
#include "store/row.h"

#define COLUMNS "id, name, description, metadata, mg_us(created_at), mg_us(updated_at), mg_us(archived_at)"

static struct mg_memory_store_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_memory_store_row){
        .id = mg_res_sv(r, i, 0),
        .store = {.name = mg_res_sv(r, i, 1), .description = mg_res_sv(r, i, 2), .metadata = mg_res_sv(r, i, 3)},
        .created_us = mg_res_time(r, i, 4),
        .updated_us = mg_res_time(r, i, 5),
        .archived_us = mg_res_time(r, i, 6),
    };
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_memory_store_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "memory store '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    *ret = from_row(r, 0);
    struct mg_sv *const texts[] = {&ret->id, &ret->store.name, &ret->store.description, &ret->store.metadata};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "memory_store_insert",
    "INSERT INTO memory_stores (id, workspace_id, name, description, metadata) VALUES ($1, $2, $3, $4, $5)"
    " RETURNING " COLUMNS,
};

mg_rc mg_memory_store_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                             const struct mg_memory_store *x, struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_id_sv(id), workspace, x->name, x->description, x->metadata};
    mg_rc rc = mg_pg_exec(pg, &SQL_INSERT, p, 5, &r, err);
    return rc < 0 ? rc : take(a, r, mg_id_sv(id), ret, err);
}

#define ONE "SELECT " COLUMNS " FROM memory_stores WHERE workspace_id = $1 AND id = $2"
static const struct mg_stmt SQL_GET = {"memory_store_get", ONE};
static const struct mg_stmt SQL_LOCK = {"memory_store_lock", ONE " FOR UPDATE"};
static const struct mg_stmt SQL_SHARE = {"memory_store_share", ONE " FOR SHARE"};

mg_rc mg_memory_store_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                          struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_memory_store_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                           struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_memory_store_share(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                            struct mg_memory_store_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_SHARE, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

static const struct mg_stmt SQL_SAVE = {
    "memory_store_save",
    "UPDATE memory_stores SET name = $2, description = $3, metadata = $4, updated_at = now() WHERE id = $1"
    " RETURNING " COLUMNS,
};

mg_rc mg_memory_store_save(struct mg_arena *a, struct mg_txn *t, struct mg_memory_store_row *row,
                           const struct mg_memory_store *x, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {row->id, x->name, x->description, x->metadata};
    mg_rc rc = mg_txn_query(t, &SQL_SAVE, p, 4, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

static const struct mg_stmt SQL_ARCHIVE = {
    "memory_store_archive",
    "UPDATE memory_stores SET archived_at = now(), updated_at = now() WHERE id = $1 RETURNING mg_us(archived_at)",
};

mg_rc mg_memory_store_set_archived(struct mg_txn *t, struct mg_memory_store_row *row, struct mg_err *err)
{
    return mg_row_archive(t, &SQL_ARCHIVE, row->id, &row->archived_us, &row->updated_us, err);
}

/* The store's lock keeps creations of sessions out: they take it to read. */
static const struct mg_stmt SQL_LIVE = {
    "memory_store_live",
    "SELECT m.session_id FROM session_memory_stores m JOIN session_state st USING (session_id)"
    " WHERE m.store_id = $1 AND st.status <> 'terminated' AND st.deleting_at IS NULL LIMIT 1",
};
static const struct mg_stmt SQL_DELETE = {"memory_store_delete", "DELETE FROM memory_stores WHERE id = $1"};

mg_rc mg_memory_store_delete(struct mg_txn *t, const struct mg_memory_store_row *row, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LIVE, &row->id, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r))
        return mg_err_set(
            err, MG_EINVAL,
            "memory store '%.*s' is mounted in session '%.*s', which is not over; archive the session, or "
            "archive the store",
            MG_SV_ARG(row->id), MG_SV_ARG(mg_res_sv(r, 0, 0)));
    return mg_txn_queue(t, &SQL_DELETE, &row->id, 1, 1, err);
}

#define LIST(op, way)                                                                            \
    "SELECT " COLUMNS " FROM memory_stores WHERE workspace_id = $1 AND (created_at, id) " op     \
    " ($2::timestamptz, $3) AND created_at >= $4::timestamptz AND created_at <= $5::timestamptz" \
    " AND ($6::bool OR archived_at IS NULL) ORDER BY created_at " way ", id " way " LIMIT $7::int"
static const struct mg_list_ways LISTS = {{"memory_store_list_down", LIST("<", "DESC")},
                                          {"memory_store_list_up", LIST(">", "ASC")}};

mg_rc mg_memory_store_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                           struct mg_memory_store_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
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
    struct mg_memory_store_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}
