#include "store/memory-mount.h"

#include "base/mem.h"

static const struct mg_stmt SQL_STORES = {
    "mounted_stores",
    "SELECT store_id, mount_path, read_only, mounted_at IS NOT NULL FROM session_memory_stores WHERE session_id = $1"
    " ORDER BY store_id",
};

mg_rc mg_mounted_stores(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_mounted_store **ret,
                        int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_STORES, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = (struct mg_mounted_store){
            .store_id = mg_arena_sv(a, mg_res_sv(r, i, 0)),
            .slug = mg_arena_sv(a, mg_res_sv(r, i, 1)),
            .read_only = mg_res_bool(r, i, 2),
            .mounted = mg_res_bool(r, i, 3),
        };
    return MG_OK;
}

static const struct mg_stmt SQL_MOUNTED = {
    "mounted_store_set",
    "UPDATE session_memory_stores SET mounted_at = coalesce(mounted_at, now()) WHERE session_id = $1 AND store_id = $2",
};

mg_rc mg_mounted_store_set(struct mg_txn *t, struct mg_sv session, struct mg_sv store, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_MOUNTED, (const struct mg_sv[]){session, store}, 2, 1, err);
}

/* ---- what differs ---- */

static struct mg_memory_news *news_of(struct mg_arena *a, const struct mg_res *r, int *ret_n)
{
    *ret_n = mg_res_rows(r);
    struct mg_memory_news *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        rows[i] = (struct mg_memory_news){
            .store_id = mg_res_sv(r, i, 0),
            .path = mg_res_sv(r, i, 1),
            .base = mg_res_sv(r, i, 2),
            .head = mg_res_sv(r, i, 3),
            .json = mg_res_sv(r, i, 4),
        };
    return rows;
}

static const struct mg_stmt SQL_BASES = {
    "memory_bases",
    "SELECT store_id, path, content_sha256, NULL::text, NULL::text FROM session_memories WHERE session_id = $1",
};

mg_rc mg_memory_bases(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_res **ret_res,
                      struct mg_memory_news **ret, int *ret_n, struct mg_err *err)
{
    mg_rc rc = mg_pg_exec(pg, &SQL_BASES, &session, 1, ret_res, err);
    if (rc >= 0)
        *ret = news_of(a, *ret_res, ret_n);
    return rc;
}

/* The texts are fetched for what differs alone. */
static const struct mg_stmt SQL_NEWS = {
    "memory_news",
    "SELECT s.store_id, d.path, d.base, d.head, (SELECT content FROM memories c WHERE c.store_id = s.store_id"
    " AND c.path = d.path) FROM session_memory_stores s CROSS JOIN LATERAL (SELECT coalesce(m.path, b.path) AS path,"
    " b.content_sha256 AS base, m.content_sha256 AS head FROM (SELECT path, content_sha256 FROM memories"
    " WHERE store_id = s.store_id) m FULL JOIN (SELECT path, content_sha256 FROM session_memories"
    " WHERE session_id = $1 AND store_id = s.store_id) b ON b.path = m.path"
    " WHERE m.content_sha256 IS DISTINCT FROM b.content_sha256) d WHERE s.session_id = $1 ORDER BY 1, 2 LIMIT $2::int",
};

mg_rc mg_memory_news(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_res **ret_res,
                     struct mg_memory_news **ret, int *ret_n, struct mg_err *err)
{
    const struct mg_sv p[] = {session, mg_p_int(a, MG_MEMORY_NEWS_MAX)};
    mg_rc rc = mg_txn_query(t, &SQL_NEWS, p, 2, ret_res, err);
    if (rc >= 0)
        *ret = news_of(a, *ret_res, ret_n);
    return rc;
}

/* ---- what the sandbox asks about ---- */

static const struct mg_stmt SQL_PLACES = {
    "memory_places",
    "SELECT b.content_sha256, m.id, m.version_id, m.content, m.content_sha256, m.content_size FROM unnest($3::text[])"
    " WITH ORDINALITY w(path, n) LEFT JOIN session_memories b ON b.session_id = $1 AND b.store_id = $2"
    " AND b.path = w.path LEFT JOIN memories m ON m.store_id = $2 AND m.path = w.path ORDER BY w.n",
};

mg_rc mg_memory_places(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store,
                       const struct mg_sv *paths, int n, struct mg_res **ret_res, struct mg_memory_place **ret,
                       struct mg_err *err)
{
    const struct mg_sv p[] = {session, store, mg_p_array(a, paths, (size_t)n)};
    mg_rc rc = mg_txn_query(t, &SQL_PLACES, p, 3, ret_res, err);
    if (rc < 0)
        return rc;
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        (*ret)[i] = (struct mg_memory_place){
            .base = mg_res_sv(*ret_res, i, 0),
            .row = {.id = mg_res_sv(*ret_res, i, 1),
                    .store_id = store,
                    .path = paths[i],
                    .version_id = mg_res_sv(*ret_res, i, 2),
                    .content = {.json = mg_res_sv(*ret_res, i, 3),
                                .sha256 = mg_res_sv(*ret_res, i, 4),
                                .size = mg_res_int(*ret_res, i, 5)}},
        };
    return MG_OK;
}

static const struct mg_stmt SQL_BASES_SET = {
    "memory_bases_set",
    "INSERT INTO session_memories (session_id, store_id, path, content_sha256) SELECT $1, $2, w.path, w.sha"
    " FROM unnest($3::text[], $4::text[]) w(path, sha) WHERE w.sha IS NOT NULL ON CONFLICT (session_id, store_id, path)"
    " DO UPDATE SET content_sha256 = EXCLUDED.content_sha256",
};
static const struct mg_stmt SQL_BASES_DROP = {
    "memory_bases_drop",
    "DELETE FROM session_memories WHERE session_id = $1 AND store_id = $2 AND path IN (SELECT w.path"
    " FROM unnest($3::text[], $4::text[]) w(path, sha) WHERE w.sha IS NULL)",
};

mg_rc mg_memory_bases_set(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store,
                          const struct mg_sv *paths, const struct mg_sv *shas, int n, struct mg_err *err)
{
    const struct mg_sv p[] = {session, store, mg_p_array(a, paths, (size_t)n), mg_p_array(a, shas, (size_t)n)};
    mg_rc rc = mg_txn_queue(t, &SQL_BASES_SET, p, 4, -1, err);
    return rc < 0 ? rc : mg_txn_queue(t, &SQL_BASES_DROP, p, 4, -1, err);
}

static const struct mg_stmt SQL_BASES_RESET = {"memory_bases_reset",
                                               "DELETE FROM session_memories WHERE session_id = $1 AND store_id = $2"};

mg_rc mg_memory_bases_reset(struct mg_txn *t, struct mg_sv session, struct mg_sv store, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_BASES_RESET, (const struct mg_sv[]){session, store}, 2, -1, err);
}
