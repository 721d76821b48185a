/* Agents and their immutable versions. */
#ifndef MG_STORE_AGENT_H
#define MG_STORE_AGENT_H

#include "domain/id.h"
#include "store/list.h"
#include "store/pg.h"

struct mg_agent_row {
    struct mg_sv id;
    int64_t version, latest_version;
    struct mg_sv body;
    int64_t created_us, updated_us, archived_us; /* archived INT64_MIN: it is not */
};

/* Version 1. Fills the times of *ret; the rest is what was given. */
mg_rc mg_agent_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, const struct mg_id *id,
                      struct mg_sv body, struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* version 0: the latest. Arena memory. MG_ENOTFOUND also for another workspace's. */
mg_rc mg_agent_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, int64_t version,
                   struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* The latest version, with its row locked for a change. */
mg_rc mg_agent_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                    struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* A version (0: the latest) whose agent cannot be archived or changed until the transaction ends. As mg_agent_get. */
mg_rc mg_agent_share(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, int64_t version,
                     struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock: stores row->latest_version + 1 and makes *row it. */
mg_rc mg_agent_add_version(struct mg_arena *a, struct mg_txn *t, struct mg_agent_row *row, struct mg_sv body,
                           struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_agent_set_archived(struct mg_txn *t, struct mg_agent_row *row, struct mg_err *err) MG_MUSTCHECK;

/* Rows are views of *ret_res, in the list's order. */
mg_rc mg_agent_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                    struct mg_agent_row **ret, struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;
/* Versions of one agent, newest first; the cursor's pos is a version. */
mg_rc mg_agent_versions(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, const struct mg_list_query *q,
                        struct mg_res **ret_res, struct mg_agent_row **ret, struct mg_list_page *ret_page,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
