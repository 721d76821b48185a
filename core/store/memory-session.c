/* Rows of session_memory_stores. */
#include "base/mem.h"
#include "store/memory.h"

static const struct mg_stmt SQL_HAS = {
    "session_has_store", "SELECT read_only FROM session_memory_stores WHERE session_id = $1 AND store_id = $2"};

mg_rc mg_session_has_store(struct mg_pg *pg, struct mg_sv session, struct mg_sv store, bool *ret_has,
                           bool *ret_read_only, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_HAS, (const struct mg_sv[]){session, store}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_has = mg_res_rows(r) > 0;
    *ret_read_only = *ret_has && mg_res_bool(r, 0, 0);
    return MG_OK;
}
