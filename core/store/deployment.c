#include "store/deployment.h"

#include <stdio.h>

mg_rc mg_deployment_id(struct mg_pg *pg, struct mg_id *ret, struct mg_err *err)
{
    static const struct mg_stmt sql = {"deployment_id", "SELECT deployment_id FROM deployment"};
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql, NULL, 0, &r, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "deployment id");
    if (mg_res_rows(r) != 1 || !mg_id_from(mg_res_sv(r, 0, 0), ret))
        return mg_err_set(err, MG_EINTERNAL, "the deployment row is missing or damaged: restore it from a backup");
    return MG_OK;
}

mg_rc mg_deployment_probe(struct mg_pg *pg, struct mg_err *err)
{
    static const struct mg_stmt sql_limit = {"probe_limit", "SELECT set_config('statement_timeout', $1, true)"};
    static const struct mg_stmt sql_write = {"probe_write", "UPDATE deployment SET write_probe = write_probe + 1"};
    char ms[16];
    snprintf(ms, sizeof(ms), "%d", MG_PROBE_MS);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_txn_queue(&t, &sql_limit, (const struct mg_sv[]){mg_sv_of(ms)}, 1, -1, err);
    if (rc == 0)
        rc = mg_txn_queue(&t, &sql_write, NULL, 0, 1, err);
    if (rc == 0)
        rc = mg_txn_commit(&t, err);
    return rc;
}
