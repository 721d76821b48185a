#include "store/file.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define COLUMNS                                                                                                  \
    "id, object_key, filename, mime_type, sha256, session_id, size_bytes, mg_us(created_at), mg_us(expires_at)," \
    " coalesce(expires_at <= now(), false)"

static struct mg_file_row file_from_row(const struct mg_res *r, int i)
{
    return (struct mg_file_row){
        .id = mg_res_sv(r, i, 0),
        .object_key = mg_res_sv(r, i, 1),
        .filename = mg_res_sv(r, i, 2),
        .mime_type = mg_res_sv(r, i, 3),
        .sha256 = mg_res_sv(r, i, 4),
        .session_id = mg_res_sv(r, i, 5),
        .size = mg_res_int(r, i, 6),
        .created_us = mg_res_time(r, i, 7),
        .expires_us = mg_res_time(r, i, 8),
        .expired = mg_res_bool(r, i, 9),
    };
}

static void keep(struct mg_arena *a, struct mg_file_row *x)
{
    struct mg_sv *const views[] = {&x->id, &x->object_key, &x->filename, &x->mime_type, &x->sha256, &x->session_id};
    mg_row_keep(a, views, sizeof(views) / sizeof(views[0]));
}

static mg_rc missing(struct mg_sv id, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "file '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
}

static const struct mg_stmt SQL_INSERT = {
    "file_insert",
    "INSERT INTO files (id, workspace_id, object_key, filename, mime_type, size_bytes, sha256, session_id, output_path,"
    " expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,"
    " now() + nullif($10::bigint, 0) * interval '1 second') RETURNING " COLUMNS,
};

mg_rc mg_file_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_file_new *f, const struct mg_object_key *key,
                     struct mg_file_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        mg_id_sv(&f->id),     f->workspace,        mg_object_key_sv(key), f->filename,    f->mime_type,
        mg_p_int(a, f->size), mg_sv_of(f->sha256), f->session_id,         f->output_path, mg_p_int(a, f->expires_in_s),
    };
    mg_rc rc = mg_txn_query(t, &SQL_INSERT, p, 10, &r, err);
    if (rc < 0)
        return rc;
    *ret = file_from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {
    "file_get",
    "SELECT " COLUMNS " FROM files WHERE workspace_id = $1 AND id = $2",
};

mg_rc mg_file_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                  struct mg_file_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return missing(id, err);
    *ret = file_from_row(r, 0);
    if (ret->expired)
        return mg_err_code(err, MG_ENOTFOUND, "file_expired", "file '%.*s' has expired", MG_SV_ARG(mg_shown_id(id)));
    keep(a, ret);
    return MG_OK;
}

static const struct mg_stmt SQL_DELETE = {
    "file_delete",
    "DELETE FROM files WHERE workspace_id = $1 AND id = $2 RETURNING object_key",
};

/* The lock comes first: a resource that is being made holds it shared. */
static const struct mg_stmt SQL_LOCK = {"file_lock",
                                        "SELECT 1 FROM files WHERE workspace_id = $1 AND id = $2 FOR UPDATE"};
static const struct mg_stmt SQL_USED = {
    "file_used",
    "SELECT r.session_id, r.told FROM (SELECT session_id, false AS told FROM session_resources WHERE file_id = $1"
    " UNION ALL SELECT session_id, true FROM session_files WHERE file_id = $1) r"
    " JOIN session_state st ON st.session_id = r.session_id JOIN sessions s ON s.id = r.session_id"
    " WHERE st.deleting_at IS NULL AND NOT (r.told AND s.archived_at IS NOT NULL) ORDER BY r.told LIMIT 1",
};

static mg_rc check_unused(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, struct mg_err *err)
{
    mg_auto(res) struct mg_res *locked = NULL, *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &locked, err);
    if (rc >= 0 && mg_res_rows(locked) == 0)
        return missing(id, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_USED, &id, 1, &r, err);
    if (rc < 0 || mg_res_rows(r) == 0)
        return rc;
    bool told = mg_res_bool(r, 0, 1);
    return mg_err_set(err, MG_ECONFLICT, "file '%.*s' is %s session '%.*s'; %s first", MG_SV_ARG(mg_shown_id(id)),
                      told ? "content of a message of" : "a resource of", MG_SV_ARG(mg_res_sv(r, 0, 0)),
                      told ? "archive or delete the session" : "remove it there");
}

mg_rc mg_file_delete(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                     struct mg_sv *ret_key, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = check_unused(t, workspace, id, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_DELETE, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return missing(id, err);
    *ret_key = mg_arena_sv(a, mg_res_sv(r, 0, 0));
    return mg_object_release(t, *ret_key, err);
}

/* ---- list: by id, which ascends with time, so that a page goes on behind a file that was deleted meanwhile ---- */

#define LIST(op, way)                                                                                     \
    "SELECT " COLUMNS " FROM files WHERE workspace_id = $1 AND id " op " $2"                              \
    " AND ($3::text IS NULL OR session_id = $3) AND ($4::text[] IS NULL OR id = ANY($4))"                 \
    " AND (expires_at IS NULL OR expires_at > now()) AND (session_id IS NULL OR output_path IS NOT NULL)" \
    " ORDER BY id " way " LIMIT $5::int"

static const struct mg_list_ways LISTS = {{"file_list_down", LIST("<", "DESC")}, {"file_list_up", LIST(">", "ASC")}};

mg_rc mg_file_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, const struct mg_file_filter *f,
                   struct mg_res **ret_res, struct mg_file_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool up = mg_list_scan_up(q);
    const struct mg_sv p[] = {
        q->workspace, q->cursor.given ? q->cursor.id : up ? MG_SV("") : MG_SV("~"), /* behind every id */
        f->scope_id,  f->n_ids ? mg_p_array(a, f->ids, (size_t)f->n_ids) : mg_p_null(), mg_p_int(a, q->limit + 1),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 5, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_file_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = file_from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* ---- expiry ---- */

static const struct mg_stmt SQL_EXPIRE = {
    "files_expire",
    "WITH gone AS (DELETE FROM files WHERE id IN (SELECT id FROM files f WHERE expires_at <= now()"
    " AND NOT EXISTS (SELECT 1 FROM session_files p JOIN sessions s ON s.id = p.session_id"
    " WHERE p.file_id = f.id AND s.archived_at IS NULL) ORDER BY expires_at"
    " LIMIT $1::int FOR UPDATE SKIP LOCKED) RETURNING object_key)"
    " UPDATE objects o SET state = 'deleting', revision = nextval('object_revisions'), last_checked_at = NULL FROM gone"
    " WHERE o.key = gone.object_key AND o.state = 'ready' RETURNING o.key",
};

mg_rc mg_files_expire(struct mg_pg *pg, struct mg_arena *a, int limit, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_int(a, limit)};
    mg_rc rc = mg_pg_exec(pg, &SQL_EXPIRE, p, 1, &r, err);
    *ret_n = rc >= 0 ? mg_res_rows(r) : 0;
    return rc;
}
