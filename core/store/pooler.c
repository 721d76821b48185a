/* Is there a pooler on the way, and does it keep what belongs to a session? Prepared statements, LISTEN and the timeouts do. */
#include <stdio.h>

#include "base/rng.h"
#include "store/pg-internal.h"

enum { ROUNDS = 4 /* statements after which a pooler that hands out connections in turn has shown two of them */ };

/* Without names: a prepared statement would be found by another session, or missed by its own. */
static const struct mg_stmt sql_mark = {"", "SELECT pg_backend_pid(), set_config('mango.pooler_probe', $1, false)"};
static const struct mg_stmt sql_look = {
    "", "SELECT pg_backend_pid(), coalesce(current_setting('mango.pooler_probe', true), '')"};

static mg_rc look(struct mg_pg *pg, int64_t *ret_pid, bool *ret_marked, struct mg_sv mark, struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql_look, NULL, 0, &r, err);
    if (rc < 0)
        return rc;
    *ret_pid = mg_res_int(r, 0, 0);
    *ret_marked = mg_sv_eq(mg_res_sv(r, 0, 1), mark);
    return MG_OK;
}

/* a marks its session. If the mark is lost or moves to another process, or b sees it, sessions are shared: a pooler that hands out the
 * connection used last gives a's to b, one that goes round gives a another one. */
static mg_rc find_sharing(struct mg_pg *a, struct mg_pg *b, bool *ret_shared, struct mg_err *err)
{
    char mark[24];
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    snprintf(mark, sizeof(mark), "%016llx", (unsigned long long)mg_rng_u64());
    const struct mg_sv m = mg_sv_of(mark);
    mg_rc rc = mg_pg_exec(a, &sql_mark, &m, 1, &r, err);
    if (rc < 0)
        return rc;
    int64_t first = mg_res_int(r, 0, 0), pid = 0;
    bool marked = false;
    *ret_shared = false;
    if (first == mg_pg_backend_pid(a)) /* the process that the connection was opened to: nothing is in between */
        return MG_OK;
    for (int i = 0; i < ROUNDS && rc == 0 && !*ret_shared; i++) {
        rc = look(b, &pid, &marked, m, err);
        *ret_shared = rc == 0 && (marked || pid == first);
        if (rc == 0)
            rc = look(a, &pid, &marked, m, err);
        *ret_shared = *ret_shared || (rc == 0 && (!marked || pid != first));
    }
    return rc;
}

/* A pooler in statement mode refuses transactions of several statements. */
static const char *mode_of(struct mg_pg *pg)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_txn_query(&t, &sql_look, NULL, 0, &r, NULL);
    if (rc == 0)
        rc = mg_txn_commit(&t, NULL);
    return rc == 0 ? "transaction" : "statement";
}

mg_rc mg_pg_check_pooler(const char *conninfo, struct mg_err *err)
{
    struct mg_pg *a = mg_pg_new(conninfo), *b = mg_pg_new(conninfo);
    bool is_shared = false;
    mg_rc rc = find_sharing(a, b, &is_shared, err);
    if (rc < 0 && *mg_pg_diag(a)) /* the start of the server: its operator may read libpq's words */
        rc = mg_err_set(err, rc, "the database cannot be reached: %s", mg_pg_diag(a));
    if (rc == 0 && is_shared)
        rc = mg_err_set(
            err, MG_ECONFIG,
            "MANGO_DATABASE_URL leads to a connection pooler in %s mode, which hands one session's connection to "
            "others; "
            "mangod needs sessions of its own: set pool_mode = session there (PgBouncer), or name PostgreSQL itself",
            mode_of(a));
    mg_pg_free(a);
    mg_pg_free(b);
    return rc;
}
