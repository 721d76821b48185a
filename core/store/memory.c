#include "store/memory.h"

#include "base/mem.h"
#include "domain/check.h"
#include "json/write.h"
#include "store/row.h"

#define COLUMNS(content) \
    "id, store_id, path, version_id, " content ", content_sha256, content_size, mg_us(created_at), mg_us(updated_at)"

static struct mg_memory_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_memory_row){
        .id = mg_res_sv(r, i, 0),
        .store_id = mg_res_sv(r, i, 1),
        .path = mg_res_sv(r, i, 2),
        .version_id = mg_res_sv(r, i, 3),
        .content = {.json = mg_res_sv(r, i, 4), .sha256 = mg_res_sv(r, i, 5), .size = mg_res_int(r, i, 6)},
        .created_us = mg_res_time(r, i, 7),
        .updated_us = mg_res_time(r, i, 8),
    };
}

static void keep(struct mg_arena *a, const struct mg_res *r, struct mg_memory_row *x)
{
    *x = from_row(r, 0);
    struct mg_sv *const texts[] = {&x->id,         &x->store_id,     &x->path,
                                   &x->version_id, &x->content.json, &x->content.sha256};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_memory_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "memory '%.*s' does not exist in this store", MG_SV_ARG(mg_shown_id(id)));
    keep(a, r, ret);
    return MG_OK;
}

/* ---- reading ---- */

static const struct mg_stmt SQL_GET = {"memory_get", "SELECT " COLUMNS("content") " FROM memories WHERE store_id = $1"
                                                                                  " AND id = $2"};

mg_rc mg_memory_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv store, struct mg_sv id,
                    struct mg_memory_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){store, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_memory_read(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv id,
                     struct mg_memory_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_GET, (const struct mg_sv[]){store, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

/* The part of a list that is below a prefix: '0' is the character behind the slash. */
#define BELOW "store_id = $1 AND path > $2 AND path < left($2, -1) || '0'"
#define DEEP(op, way, content)                                                                               \
    "SELECT " COLUMNS(content) ", false FROM memories WHERE " BELOW " AND path " op " $3 ORDER BY path " way \
                               " LIMIT $4::int"
/* Folders: the path up to the first slash behind the prefix, once each. */
#define SHALLOW(op, way, content)                                                                                     \
    "SELECT " COLUMNS(content) ", folder FROM (SELECT DISTINCT ON (item) item AS path, slash > 0 AS folder, id, "     \
                               "store_id, version_id, content, content_sha256, content_size, created_at, updated_at " \
                               "FROM (SELECT *, CASE WHEN "                                                           \
                               "slash > 0 THEN left(path, length($2) + slash) ELSE path END AS item FROM (SELECT *, " \
                               "strpos(substr(path, "                                                                 \
                               "length($2) + 1), '/') AS slash FROM memories WHERE " BELOW                            \
                               ") b) c ORDER BY item) d WHERE path " op " $3"                                         \
                               " ORDER BY path " way " LIMIT $4::int"
#define FULL "content"
#define BASIC "NULL::text"
static const struct mg_list_ways LISTS[2][2] = {
    {{{"memory_deep_down", DEEP("<", "DESC", BASIC)}, {"memory_deep_up", DEEP(">", "ASC", BASIC)}},
     {{"memory_deep_full_down", DEEP("<", "DESC", FULL)}, {"memory_deep_full_up", DEEP(">", "ASC", FULL)}}},
    {{{"memory_shallow_down", SHALLOW("<", "DESC", BASIC)}, {"memory_shallow_up", SHALLOW(">", "ASC", BASIC)}},
     {{"memory_shallow_full_down", SHALLOW("<", "DESC", FULL)}, {"memory_shallow_full_up", SHALLOW(">", "ASC", FULL)}}},
};

mg_rc mg_memory_items(struct mg_arena *a, struct mg_pg *pg, const struct mg_memory_list *f,
                      const struct mg_list_query *q, struct mg_res **ret_res, struct mg_memory_item **ret,
                      struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool up = mg_list_scan_up(q);
    struct mg_sv from = q->cursor.given ? q->cursor.id : up ? MG_SV("") : MG_SV("\xf4\x8f\xbf\xbf");
    const struct mg_sv p[] = {f->store, f->prefix, from, mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_list_exec(pg, q, &LISTS[f->shallow][f->full], p, 4, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_memory_item *items = mg_arena_alloc(a, sizeof(*items) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++) {
        int row = mg_list_row(ret_page, i);
        items[i] = (struct mg_memory_item){.prefix = mg_res_bool(r, row, 9), .row = from_row(r, row)};
    }
    *ret = items;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* ---- places ---- */

static const struct mg_stmt SQL_PLACE = {
    "memory_place",
    "SELECT $2 IS NFC NORMALIZED, (SELECT count(*) FROM memories WHERE store_id = $1), o.id, o.path FROM (SELECT 1) one"
    " LEFT JOIN LATERAL (SELECT id, path FROM memories WHERE store_id = $1 AND id <> $3 AND (path = $2"
    " OR path = ANY ($4::text[]) OR (path > $2 || '/' AND path < $2 || '0')) ORDER BY path LIMIT 1) o ON true",
};

/* All paths that stand above this one. */
static struct mg_sv above(struct mg_arena *a, struct mg_sv path)
{
    struct mg_sv all[MG_MEMORY_SEGMENTS_MAX];
    size_t n = 0;
    for (size_t i = 1; i < path.len && n < MG_MEMORY_SEGMENTS_MAX; i++)
        if (path.ptr[i] == '/')
            all[n++] = mg_sv_n(path.ptr, i);
    return mg_p_array(a, all, n);
}

static mg_rc taken(struct mg_arena *a, struct mg_sv id, struct mg_sv path, struct mg_sv wanted, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(8 * MG_MEMORY_PATH_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "conflicting_memory_id", id);
    mg_jw_kstr(&w, "conflicting_path", path);
    mg_jw_obj_end(&w);
    (void)mg_err_set(err, MG_ECONFLICT, "path: %s; update or rename that memory, or choose another path",
                     mg_sv_eq(path, wanted) ? "another memory has it"
                                            : "it is above or below the path of another memory");
    if (err) {
        err->type = "memory_path_conflict_error";
        err->members = mg_arena_strdup(a, mg_sv_n(b.ptr + 1, b.len - 2));
    }
    return MG_ECONFLICT;
}

mg_rc mg_memory_check_place(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv path,
                            struct mg_sv self, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {store, path, self.ptr ? self : MG_SV(""), above(a, path)};
    mg_rc rc = mg_txn_query(t, &SQL_PLACE, p, 4, &r, err);
    if (rc < 0)
        return rc;
    if (!mg_res_bool(r, 0, 0))
        return mg_err_set(err, MG_EINVAL, "path: must be in Unicode Normalization Form C");
    if (mg_res_sv(r, 0, 2).ptr)
        return taken(a, mg_res_sv(r, 0, 2), mg_res_sv(r, 0, 3), path, err);
    if (!self.ptr && mg_res_int(r, 0, 1) >= MG_STORE_MEMORIES_MAX)
        return mg_err_set(err, MG_EINVAL,
                          "the store has %d memories, which is the most that one may have; delete some first",
                          MG_STORE_MEMORIES_MAX);
    return MG_OK;
}

/* ---- writing ---- */

/* clock_timestamp(): under the store's lock it follows what other writers wrote, which now() need not. */
#define VERSION                                                                                              \
    "v AS (INSERT INTO memory_versions (id, store_id, memory_id, operation, path, content, content_sha256, " \
    "content_size, actor_kind, actor_id, created_at)"

static const struct mg_stmt SQL_INSERT = {
    "memory_insert",
    "WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at), " VERSION
    " SELECT $4, $2, $1, 'created', $3, $5, $6, $7::int, $8, $9, at FROM now)"
    " INSERT INTO memories (id, store_id, path, version_id, content, content_sha256, content_size, created_at, "
    "updated_at)"
    " SELECT $1, $2, $3, $4, $5, $6, $7::int, at, at FROM now RETURNING " COLUMNS("content"),
};
static const struct mg_stmt SQL_SAVE = {
    "memory_save",
    "WITH now AS MATERIALIZED (SELECT clock_timestamp() AS at), " VERSION
    " SELECT $4, $2, $1, 'modified', $3, $5, $6, $7::int, $8, $9, at FROM now)"
    " UPDATE memories SET path = $3, version_id = $4, content = $5, content_sha256 = $6, content_size = $7::int,"
    " updated_at = now.at FROM now WHERE id = $1 AND store_id = $2 RETURNING " COLUMNS("content"),
};

static mg_rc write_row(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt *st, const struct mg_memory_actor *by,
                       struct mg_memory_row *row, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_id version = mg_id_new("memver");
    const struct mg_sv p[] = {
        row->id,
        row->store_id,
        row->path,
        mg_id_sv(&version),
        row->content.json,
        row->content.sha256,
        mg_p_int(a, row->content.size),
        mg_sv_of(by->kind),
        by->id,
    };
    mg_rc rc = mg_txn_query(t, st, p, 9, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

mg_rc mg_memory_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_memory_actor *by,
                       struct mg_memory_row *row, struct mg_err *err)
{
    return write_row(a, t, &SQL_INSERT, by, row, err);
}

mg_rc mg_memory_save(struct mg_arena *a, struct mg_txn *t, const struct mg_memory_actor *by, struct mg_memory_row *row,
                     struct mg_err *err)
{
    return write_row(a, t, &SQL_SAVE, by, row, err);
}

static const struct mg_stmt SQL_DELETE_VERSION = {
    "memory_delete_version",
    "INSERT INTO memory_versions (id, store_id, memory_id, operation, path, actor_kind, actor_id, created_at)"
    " VALUES ($1, $2, $3, 'deleted', $4, $5, $6, clock_timestamp())",
};
static const struct mg_stmt SQL_DELETE = {"memory_delete", "DELETE FROM memories WHERE store_id = $1 AND id = $2"};

mg_rc mg_memory_delete(struct mg_txn *t, const struct mg_memory_actor *by, const struct mg_memory_row *row,
                       struct mg_err *err)
{
    const struct mg_id version = mg_id_new("memver");
    const struct mg_sv p[] = {mg_id_sv(&version), row->store_id, row->id, row->path, mg_sv_of(by->kind), by->id};
    mg_rc rc = mg_txn_queue(t, &SQL_DELETE_VERSION, p, 6, -1, err);
    return rc < 0 ? rc : mg_txn_queue(t, &SQL_DELETE, (const struct mg_sv[]){row->store_id, row->id}, 2, 1, err);
}
