/* Environments. */
#ifndef MG_STORE_ENVIRONMENT_H
#define MG_STORE_ENVIRONMENT_H

#include "domain/environment.h"
#include "domain/id.h"
#include "store/list.h"
#include "store/pg.h"

struct mg_environment_row {
    struct mg_sv id;
    struct mg_environment env;
    int64_t created_us, updated_us, archived_us; /* archived INT64_MIN: it is not */
};

mg_rc mg_environment_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                            const struct mg_environment *env, struct mg_environment_row *ret,
                            struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. MG_ENOTFOUND (error_code environment_not_found) also for another workspace's. */
mg_rc mg_environment_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                         struct mg_environment_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_environment_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                          struct mg_environment_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock. */
mg_rc mg_environment_save(struct mg_arena *a, struct mg_txn *t, struct mg_environment_row *row,
                          const struct mg_environment *env, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_environment_set_archived(struct mg_txn *t, struct mg_environment_row *row, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock; its keys go with it. MG_ECONFLICT while a session names it, MG_EUNAVAIL while a deleted one's sandbox
 * is still there. */
mg_rc mg_environment_delete(struct mg_txn *t, const struct mg_environment_row *row, struct mg_err *err) MG_MUSTCHECK;
/* Rows are views of *ret_res. */
mg_rc mg_environment_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                          struct mg_environment_row **ret, struct mg_list_page *ret_page,
                          struct mg_err *err) MG_MUSTCHECK;

#endif
