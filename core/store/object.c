#include "store/object.h"

#include "base/mem.h"

#define FROM_NOW(ms) "clock_timestamp() + " ms "::bigint * interval '1 millisecond'"

static const struct mg_stmt SQL_INSERT = {
    "object_insert",
    "INSERT INTO objects (key, workspace_id, kind, lease_until) VALUES ($1, $2, $3, " FROM_NOW("$4") ")",
};

mg_rc mg_object_insert(struct mg_pg *pg, const struct mg_object_key *key, struct mg_sv workspace, const char *kind,
                       int64_t lease_ms, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_sv p[] = {mg_object_key_sv(key), workspace, mg_sv_of(kind), mg_p_int(a, lease_ms)};
    return mg_pg_exec(pg, &SQL_INSERT, p, 4, NULL, err);
}

static const struct mg_stmt SQL_RENEW = {
    "objects_renew",
    "UPDATE objects SET lease_until = " FROM_NOW("$2") " WHERE key = ANY($1::text[]) AND state = 'uploading'"
                                                       " AND lease_until > clock_timestamp() RETURNING key",
};

mg_rc mg_objects_renew(struct mg_pg *pg, struct mg_arena *a, const struct mg_sv *keys, size_t n, int64_t lease_ms,
                       bool *ret_held, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_array(a, keys, n), mg_p_int(a, lease_ms)};
    mg_rc rc = mg_pg_exec(pg, &SQL_RENEW, p, 2, &r, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        ret_held[i] = false;
        for (int row = 0; row < mg_res_rows(r) && !ret_held[i]; row++)
            ret_held[i] = mg_sv_eq(mg_res_sv(r, row, 0), keys[i]);
    }
    return MG_OK;
}

/* Two statements: a qualification is not looked at again after a wait for a lock alone. */
static const struct mg_stmt SQL_LOCK = {"object_lock", "SELECT 1 FROM objects WHERE key = $1 FOR UPDATE"};
static const struct mg_stmt SQL_COMPLETE = {
    "object_complete",
    "UPDATE objects SET state = 'ready', size_bytes = $2, sha256 = $3, writer_finished = true"
    " WHERE key = $1 AND state = 'uploading' AND lease_until > clock_timestamp()",
};

mg_rc mg_object_complete(struct mg_arena *a, struct mg_txn *t, const struct mg_object_key *key, int64_t size,
                         const char *sha256, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_object_key_sv(key), mg_p_int(a, size), mg_sv_of(sha256)};
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, p, 1, &r, err);
    return rc < 0 ? rc : mg_txn_queue(t, &SQL_COMPLETE, p, 3, 1, err);
}

static const struct mg_stmt SQL_GIVE_UP = {
    "object_give_up",
    "UPDATE objects SET state = 'deleting', writer_finished = true, revision = nextval('object_revisions')"
    " WHERE key = $1 AND state <> 'ready' RETURNING revision",
};

mg_rc mg_object_give_up(struct mg_pg *pg, const struct mg_object_key *key, int64_t *ret_revision, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_object_key_sv(key)};
    mg_rc rc = mg_pg_exec(pg, &SQL_GIVE_UP, p, 1, &r, err);
    *ret_revision = rc >= 0 && mg_res_rows(r) ? mg_res_int(r, 0, 0) : 0;
    return rc;
}

static const struct mg_stmt SQL_ABANDON = {
    "object_abandon",
    "UPDATE objects SET lease_until = clock_timestamp() WHERE key = $1 AND state = 'uploading'",
};

mg_rc mg_object_abandon(struct mg_pg *pg, const struct mg_object_key *key, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_object_key_sv(key)};
    return mg_pg_exec(pg, &SQL_ABANDON, p, 1, NULL, err);
}

static const struct mg_stmt SQL_RELEASE = {
    "object_release",
    "UPDATE objects SET state = 'deleting', revision = nextval('object_revisions'), last_checked_at = NULL"
    " WHERE key = $1 AND state = 'ready'",
};

mg_rc mg_object_release(struct mg_txn *t, struct mg_sv key, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_RELEASE, &key, 1, 1, err);
}

static const struct mg_stmt SQL_FORGET = {
    "object_forget",
    "DELETE FROM objects WHERE key = $1 AND revision = $2::bigint AND state = 'deleting'",
};

mg_rc mg_object_forget(struct mg_arena *a, struct mg_pg *pg, struct mg_sv key, int64_t revision, struct mg_err *err)
{
    const struct mg_sv p[] = {key, mg_p_int(a, revision)};
    return mg_pg_exec(pg, &SQL_FORGET, p, 2, NULL, err);
}

static const struct mg_stmt SQL_EXPIRE = {
    "objects_expire",
    "UPDATE objects SET state = 'deleting', revision = nextval('object_revisions'), last_checked_at = NULL WHERE key IN"
    " (SELECT key FROM objects WHERE state = 'uploading' AND lease_until < clock_timestamp()"
    " ORDER BY lease_until LIMIT $1::int FOR UPDATE SKIP LOCKED) RETURNING key",
};

mg_rc mg_objects_expire(struct mg_pg *pg, struct mg_arena *a, int limit, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_int(a, limit)};
    mg_rc rc = mg_pg_exec(pg, &SQL_EXPIRE, p, 1, &r, err);
    *ret_n = rc >= 0 ? mg_res_rows(r) : 0;
    return rc;
}

static const struct mg_stmt SQL_GUARDS = {
    "object_guards",
    "UPDATE objects SET last_checked_at = clock_timestamp() WHERE key IN"
    " (SELECT key FROM objects WHERE state = 'deleting' AND (last_checked_at IS NULL"
    " OR last_checked_at < clock_timestamp() - $2::bigint * interval '1 millisecond')"
    " ORDER BY last_checked_at NULLS FIRST, key LIMIT $1::int FOR UPDATE SKIP LOCKED)"
    " RETURNING key, revision, writer_finished"
    " OR lease_until < clock_timestamp() - $3::bigint * interval '1 millisecond', sha256 IS NULL",
};

mg_rc mg_objects_guards(struct mg_pg *pg, struct mg_arena *a, int limit, int64_t pause_ms, int64_t late_ms,
                        struct mg_object_guard **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_int(a, limit), mg_p_int(a, pause_ms), mg_p_int(a, late_ms)};
    mg_rc rc = mg_pg_exec(pg, &SQL_GUARDS, p, 3, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    struct mg_object_guard *g = mg_arena_alloc(a, sizeof(*g) * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        g[i] = (struct mg_object_guard){
            .key = mg_arena_sv(a, mg_res_sv(r, i, 0)),
            .revision = mg_res_int(r, i, 1),
            .last = mg_res_bool(r, i, 2),
            .partial = mg_res_bool(r, i, 3),
        };
    *ret = g;
    *ret_n = n;
    return MG_OK;
}

static const struct mg_stmt SQL_CLAIM = {
    "object_store_claim",
    "UPDATE deployment SET object_store = coalesce(object_store, $1) RETURNING object_store = $1",
};

mg_rc mg_object_store_claim(struct mg_pg *pg, struct mg_sv identity, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIM, &identity, 1, &r, err);
    if (rc < 0 || mg_res_bool(r, 0, 0))
        return rc;
    return mg_err_set(err, MG_EUNAVAIL,
                      "this node's object store is not the deployment's: give all nodes the same MANGO_S3_* settings, "
                      "or one shared MANGO_OBJECTS_DIR");
}

static const struct mg_stmt SQL_IS = {"object_store_is", "SELECT coalesce(object_store = $1, false) FROM deployment"};

mg_rc mg_object_store_is(struct mg_pg *pg, struct mg_sv identity, bool *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_IS, &identity, 1, &r, err);
    *ret = rc >= 0 && mg_res_bool(r, 0, 0);
    return rc;
}
