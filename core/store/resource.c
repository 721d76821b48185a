#include "store/resource.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define SHOWN_TIME(column) "to_char(" column " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

static struct mg_resource_row resource_from_row(const struct mg_res *r, int i)
{
    return (struct mg_resource_row){
        .id = mg_res_sv(r, i, 0),
        .type = mg_res_sv(r, i, 1),
        .file_id = mg_res_sv(r, i, 2),
        .mount_path = mg_res_sv(r, i, 3),
        .created_us = mg_res_time(r, i, 4),
        .updated_us = mg_res_time(r, i, 5),
        .url = mg_res_sv(r, i, 6),
        .checkout = mg_res_sv(r, i, 7),
    };
}

static struct mg_resource_row kept(struct mg_arena *a, struct mg_resource_row x)
{
    struct mg_sv *const texts[] = {&x.id, &x.type, &x.mount_path, &x.file_id, &x.url, &x.checkout};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    return x;
}

static const struct mg_stmt SQL_FILE = {
    "resource_file",
    "SELECT size_bytes FROM files WHERE workspace_id = $1 AND id = $2 AND (expires_at IS NULL OR expires_at > now())"
    " FOR SHARE",
};

mg_rc mg_resource_file(struct mg_txn *t, struct mg_sv workspace, struct mg_sv file_id, int64_t *ret_size,
                       struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_FILE, (const struct mg_sv[]){workspace, file_id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_code(err, MG_ENOTFOUND, "file_not_found", "file_id: file '%.*s' does not exist",
                           MG_SV_ARG(mg_shown_id(file_id)));
    *ret_size = mg_res_int(r, 0, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_SUMS = {
    "resource_sums",
    "SELECT count(*), count(r.url), coalesce(sum(f.size_bytes), 0)::bigint FROM session_resources r"
    " LEFT JOIN files f ON f.id = r.file_id WHERE r.session_id = $1",
};

mg_rc mg_resource_sum(struct mg_txn *t, struct mg_sv session, struct mg_resource_sums *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_SUMS, &session, 1, &r, err);
    if (rc >= 0)
        *ret = (struct mg_resource_sums){mg_res_int(r, 0, 0), mg_res_int(r, 0, 1), mg_res_int(r, 0, 2)};
    return rc;
}

static const struct mg_stmt SQL_PATHS = {"resource_paths",
                                         "SELECT mount_path FROM session_resources WHERE session_id = $1"};

mg_rc mg_resource_paths(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv **ret, int *ret_n,
                        struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_PATHS, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = mg_arena_sv(a, mg_res_sv(r, i, 0));
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "resource_insert",
    "INSERT INTO session_resources AS r (id, session_id, type, file_id, mount_path) VALUES ($1, $2, 'file', $3, $4)"
    " RETURNING " MG_RESOURCE_COLUMNS,
};

mg_rc mg_resource_insert_row(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params,
                             int n_params, struct mg_resource_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, st, params, n_params, &r, err);
    if (rc == MG_ECONFLICT)
        return mg_err_set(err, MG_ECONFLICT, "mount_path: another resource of the session is there");
    if (rc >= 0)
        *ret = kept(a, resource_from_row(r, 0));
    return rc;
}

mg_rc mg_resource_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, const struct mg_resource_spec *s,
                         struct mg_resource_row *ret, struct mg_err *err)
{
    const struct mg_id id = mg_id_new("sesrsc");
    const struct mg_sv p[] = {mg_id_sv(&id), session, s->file_id, s->mount_path};
    return mg_resource_insert_row(a, t, &SQL_INSERT, p, sizeof(p) / sizeof(p[0]), ret, err);
}

mg_rc mg_resource_missing(struct mg_sv id, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "resource '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
}

static const struct mg_stmt SQL_DELETE = {
    "resource_delete", "DELETE FROM session_resources WHERE session_id = $1 AND id = $2 RETURNING id"};

mg_rc mg_resource_delete(struct mg_txn *t, struct mg_sv session, struct mg_sv id, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_DELETE, (const struct mg_sv[]){session, id}, 2, &r, err);
    return rc >= 0 && mg_res_rows(r) == 0 ? mg_resource_missing(id, err) : rc;
}

static const struct mg_stmt SQL_SHOW = {
    "resources_show",
    "UPDATE sessions SET resources = '[' || concat_ws(',', (SELECT string_agg('{\"id\":' || to_json(r.id) || "
    "',\"type\":' || to_json(r.type) || CASE WHEN r.url IS NULL THEN ',\"file_id\":' || to_json(r.file_id) ELSE"
    " ',\"url\":' || to_json(r.url) || ',\"checkout\":' || coalesce(r.checkout, 'null') END || ',\"mount_path\":' ||"
    " to_json(r.mount_path) || ',\"created_at\":\"' || " SHOWN_TIME(
        "r.created_at") " || '\",\"updated_at\":\"' || " SHOWN_TIME("r.updated_at") " || '\"}', ',' ORDER BY r.id) "
                                                                                    "FROM session_resources r WHERE "
                                                                                    "r.session_id = $1),"
                                                                                    " (SELECT string_agg(m.shown, ',' "
                                                                                    "ORDER BY m.place) FROM "
                                                                                    "session_memory_stores m"
                                                                                    " WHERE m.session_id = $1)) || ']' "
                                                                                    "WHERE id = $1",
};

mg_rc mg_resources_show(struct mg_txn *t, struct mg_sv session, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_SHOW, &session, 1, 1, err);
}

static const struct mg_stmt SQL_SHOWN = {"resources_shown", "SELECT resources FROM sessions WHERE id = $1"};

mg_rc mg_resources_shown(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv *ret,
                         struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_resources_show(t, session, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_SHOWN, &session, 1, &r, err);
    if (rc >= 0)
        *ret = mg_arena_sv(a, mg_res_sv(r, 0, 0));
    return rc;
}

#define FROM                                                                                                         \
    " FROM session_resources r JOIN sessions s ON s.id = r.session_id JOIN session_state st ON st.session_id = s.id" \
    " WHERE s.workspace_id = $1 AND r.session_id = $2 AND st.deleting_at IS NULL"

static const struct mg_stmt SQL_GET = {"resource_get", "SELECT " MG_RESOURCE_COLUMNS FROM " AND r.id = $3"};

mg_rc mg_resource_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv session,
                      struct mg_sv id, struct mg_resource_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, session, id}, 3, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_resource_missing(id, err);
    *ret = kept(a, resource_from_row(r, 0));
    return MG_OK;
}

static const struct mg_stmt SQL_LIST_UP = {"resource_list_up", "SELECT " MG_RESOURCE_COLUMNS FROM
                                                               " AND r.id > $3 ORDER BY r.id LIMIT $4::int"};

mg_rc mg_resource_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv session,
                       struct mg_res **ret_res, struct mg_resource_row **ret, struct mg_list_page *ret_page,
                       struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {q->workspace, session, mg_list_pos_id(q), mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_pg_exec(pg, &SQL_LIST_UP, p, 4, &r, err);
    if (rc < 0)
        return rc;
    *ret_page = mg_list_page_of(q, mg_res_rows(r));
    struct mg_resource_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = resource_from_row(r, i);
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_MOUNTS = {
    "mounts_of",
    "SELECT r.id, r.mount_path, f.object_key, f.sha256, coalesce(f.size_bytes, 0) FROM session_resources r"
    " LEFT JOIN files f ON f.id = r.file_id WHERE r.session_id = $1 AND (f.id IS NOT NULL OR r.url IS NOT NULL)"
    " ORDER BY r.id",
};

mg_rc mg_mounts_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_mount_row **ret, int *ret_n,
                   struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_MOUNTS, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    struct mg_mount_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++) {
        struct mg_mount_row *x = &rows[i];
        *x = (struct mg_mount_row){mg_res_sv(r, i, 0), mg_res_sv(r, i, 1), mg_res_sv(r, i, 2), mg_res_sv(r, i, 3),
                                   mg_res_int(r, i, 4)};
        struct mg_sv *const texts[] = {&x->id, &x->mount_path, &x->object_key, &x->sha256};
        mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    }
    *ret = rows;
    return MG_OK;
}
