/* Deployments of clients and their runs. (deployment.h is this installation's own row.) */
#ifndef MG_STORE_DEPLOY_H
#define MG_STORE_DEPLOY_H

#include "domain/deploy.h"
#include "domain/id.h"
#include "store/list.h"
#include "store/pg.h"

struct mg_deploy_row {
    struct mg_sv id, workspace;
    struct mg_deploy deploy;
    struct mg_sv paused_reason; /* JSON; ptr NULL: it is active */
    struct mg_sv upcoming;      /* JSON array of times */
    int64_t next_us, last_us;   /* INT64_MIN: none */
    int64_t created_us, updated_us, archived_us;
    struct mg_sv key_id, sealed; /* the tokens of its repositories; ptr NULL: none */
};

mg_rc mg_deploy_insert(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row,
                       struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. MG_ENOTFOUND also for another workspace's. */
mg_rc mg_deploy_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                    struct mg_deploy_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploy_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                     struct mg_deploy_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock: all of it; a claim of the present slot is void. */
mg_rc mg_deploy_save(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploy_set_archived(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row,
                             struct mg_err *err) MG_MUSTCHECK;

struct mg_deploy_filter {
    struct mg_sv agent_id, status; /* ptr NULL: any */
};
mg_rc mg_deploy_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                     const struct mg_deploy_filter *f, struct mg_res **ret_res, struct mg_deploy_row **ret,
                     struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;

/* The database's clock, which decides what is due. */
mg_rc mg_deploy_now(struct mg_txn *t, int64_t *ret, struct mg_err *err) MG_MUSTCHECK;
/* What is due is claimed for a while, so that no other node runs it; arena memory. */
enum { MG_DEPLOY_CLAIM_S = 120, MG_DEPLOY_BATCH = 20 };
mg_rc mg_deploy_claim(struct mg_arena *a, struct mg_pg *pg, struct mg_sv claim, struct mg_deploy_row **ret, int *ret_n,
                      struct mg_err *err) MG_MUSTCHECK;
/* In the transaction of the run: the slot is over. MG_EFENCED: the claim was not held any more. */
mg_rc mg_deploy_slot_done(struct mg_arena *a, struct mg_txn *t, const struct mg_deploy_row *row, struct mg_sv claim,
                          struct mg_err *err) MG_MUSTCHECK;

/* ---- runs ---- */

struct mg_deploy_run_row {
    struct mg_sv id, deployment_id, agent_id, session_id, error_type, error_message; /* ptr NULL: none */
    int64_t agent_version;
    int64_t scheduled_us; /* INT64_MIN: by hand */
    int64_t created_us;
};
/* *ret_taken: the slot has a run already, and nothing was written. */
mg_rc mg_deploy_run_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_deploy_run_row *row,
                           bool *ret_taken, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_deploy_run_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                        struct mg_deploy_run_row *ret, struct mg_err *err) MG_MUSTCHECK;
struct mg_deploy_run_filter {
    struct mg_sv deployment_id, has_error,
        trigger; /* ptr NULL: any; has_error: true or false; trigger: manual or schedule */
};
mg_rc mg_deploy_run_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                         const struct mg_deploy_run_filter *f, struct mg_res **ret_res, struct mg_deploy_run_row **ret,
                         struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;

#endif
