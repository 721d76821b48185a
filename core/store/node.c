/* Node leases. The database's clock decides (clock_timestamp: a statement may have waited), the monotonic clock of the host only warns
 * this process early. */
#include "store/node.h"

#include <stdio.h>

#include "base/clock.h"

/* TTL is a parameter in milliseconds; every statement answers with the number of other live nodes, counted in the same snapshot. */
#define OTHERS "(SELECT count(*) FROM nodes o WHERE o.id <> $1 AND o.lease_until > clock_timestamp())"
#define UNTIL(ttl) "clock_timestamp() + " ttl "::bigint * interval '1 millisecond'"

static const struct mg_stmt sql_register = {
    "node_register",
    "INSERT INTO nodes (id, host, version, lease_until) VALUES ($1, $2, $3, " UNTIL(
        "$4") ")"
              " ON CONFLICT (id) DO UPDATE SET host = excluded.host, version = excluded.version, started_at = now(),"
              " lease_until = excluded.lease_until RETURNING " OTHERS};
static const struct mg_stmt sql_renew = {
    "node_renew", "UPDATE nodes SET lease_until = " UNTIL(
                      "$2") " WHERE id = $1 AND lease_until > clock_timestamp() RETURNING " OTHERS};
static const struct mg_stmt sql_delete = {"node_delete", "DELETE FROM nodes WHERE id = $1"};
static const struct mg_stmt sql_expire = {
    "node_expire",
    "WITH gone AS (DELETE FROM nodes n WHERE n.lease_until < clock_timestamp() - $1::bigint * interval '1 millisecond'"
    " AND NOT EXISTS (SELECT 1 FROM session_state s WHERE s.turn_node = n.id) RETURNING 1) SELECT count(*) FROM gone"};
static const struct mg_stmt sql_list = {
    "node_list", "SELECT id, host, version, mg_us(started_at), mg_us(lease_until), lease_until > clock_timestamp(),"
                 " array_to_string(backends, ' ') FROM nodes ORDER BY started_at, id"};

static mg_rc lease(struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params, int n, int ttl_ms,
                   struct mg_node_lease *ret, struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    uint64_t before_ns = mg_now_ns();
    mg_rc rc = mg_pg_exec(pg, st, params, n, &r, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "node lease");
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_EFENCED, "the lease of this node has lapsed");
    *ret =
        (struct mg_node_lease){.until_ns = before_ns + (uint64_t)ttl_ms * 1000000, .others = (int)mg_res_int(r, 0, 0)};
    return MG_OK;
}

mg_rc mg_node_register(struct mg_pg *pg, const struct mg_id *node, const char *host, const char *version, int ttl_ms,
                       struct mg_node_lease *ret, struct mg_err *err)
{
    char ttl[16];
    snprintf(ttl, sizeof(ttl), "%d", ttl_ms);
    const struct mg_sv p[] = {mg_id_sv(node), mg_sv_of(host), mg_sv_of(version), mg_sv_of(ttl)};
    return lease(pg, &sql_register, p, 4, ttl_ms, ret, err);
}

mg_rc mg_node_renew(struct mg_pg *pg, const struct mg_id *node, int ttl_ms, struct mg_node_lease *ret,
                    struct mg_err *err)
{
    char ttl[16];
    snprintf(ttl, sizeof(ttl), "%d", ttl_ms);
    return lease(pg, &sql_renew, (const struct mg_sv[]){mg_id_sv(node), mg_sv_of(ttl)}, 2, ttl_ms, ret, err);
}

mg_rc mg_node_delete(struct mg_pg *pg, const struct mg_id *node, struct mg_err *err)
{
    return mg_pg_exec(pg, &sql_delete, (const struct mg_sv[]){mg_id_sv(node)}, 1, NULL, err);
}

mg_rc mg_node_expire(struct mg_pg *pg, int64_t keep_ms, int *ret_n, struct mg_err *err)
{
    char keep[24];
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    snprintf(keep, sizeof(keep), "%lld", (long long)keep_ms);
    mg_rc rc = mg_pg_exec(pg, &sql_expire, (const struct mg_sv[]){mg_sv_of(keep)}, 1, &r, err);
    if (rc == 0 && ret_n)
        *ret_n = (int)mg_res_int(r, 0, 0);
    return rc;
}

static const struct mg_stmt sql_backends = {
    "node_backends", "UPDATE nodes SET backends = $2 WHERE id = $1 AND backends IS DISTINCT FROM $2::text[]"};

mg_rc mg_node_set_backends(struct mg_pg *pg, struct mg_arena *a, const struct mg_id *node, const struct mg_sv *rows,
                           int n, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(node), mg_p_array(a, rows, (size_t)n)};
    return mg_pg_exec(pg, &sql_backends, p, 2, NULL, err);
}

mg_rc mg_node_list(struct mg_pg *pg, struct mg_arena *a, struct mg_node_row **ret, int *ret_n, struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql_list, NULL, 0, &r, err);
    if (rc < 0)
        return rc;
    int n = mg_res_rows(r);
    struct mg_node_row *rows = mg_arena_alloc(a, (size_t)(n + 1) * sizeof(*rows));
    for (int i = 0; i < n; i++) {
        rows[i] = (struct mg_node_row){.id = mg_arena_sv(a, mg_res_sv(r, i, 0)),
                                       .host = mg_arena_sv(a, mg_res_sv(r, i, 1)),
                                       .version = mg_arena_sv(a, mg_res_sv(r, i, 2)),
                                       .started_us = mg_res_time(r, i, 3),
                                       .lease_us = mg_res_time(r, i, 4),
                                       .live = mg_res_bool(r, i, 5),
                                       .backends = mg_arena_sv(a, mg_res_sv(r, i, 6))};
    }
    *ret = rows;
    *ret_n = n;
    return MG_OK;
}
