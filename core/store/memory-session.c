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

static const struct mg_stmt SQL_INSERT = {
    "session_store_insert",
    "INSERT INTO session_memory_stores (session_id, store_id, place, read_only, mount_path, shown)"
    " SELECT $1, $2, $3::int, $4::bool, $5, $6 WHERE NOT EXISTS (SELECT 1 FROM session_memory_stores"
    " WHERE session_id = $1 AND mount_path = $5) RETURNING 1",
};

mg_rc mg_session_store_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store, int place,
                              bool read_only, struct mg_sv slug, struct mg_sv shown, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {session, store, mg_p_int(a, place), mg_p_bool(read_only), slug, shown};
    mg_rc rc = mg_txn_query(t, &SQL_INSERT, p, 6, &r, err);
    if (rc < 0 || mg_res_rows(r))
        return rc;
    return mg_err_set(err, MG_EINVAL,
                      "memory_store_id: another store of the session has the folder '%.*s' too; give the stores names "
                      "that differ in letters or digits",
                      MG_SV_ARG(slug));
}
