/* Sessions: the cold row with what is shown of the hot one. The turn's columns belong to session-state.h. */
#ifndef MG_STORE_SESSION_H
#define MG_STORE_SESSION_H

#include "domain/id.h"
#include "domain/usage.h"
#include "store/list.h"
#include "store/pg.h"

struct mg_session_row {
    struct mg_sv id, agent, environment_id, status, title, metadata, resources, vault_ids, deployment_id;
    int64_t budget_nano;                         /* MG_BUDGET_NONE: none */
    int64_t created_us, updated_us, archived_us; /* archived INT64_MIN: it is not */
    struct mg_sv outcomes;                       /* outcome_evaluations, a JSON array */
    int64_t duration_us;                         /* of now */
    struct mg_usage usage;
};

/* What a session is made from, locked against archive and delete until the transaction ends. */
struct mg_session_base {
    int64_t agent_version;
    struct mg_sv agent_body, env_type, env_config;
    int64_t now_us; /* the transaction's now(), which is the session's created_at */
};
/* agent_version 0: the latest. MG_ENOTFOUND: agent, version or environment; MG_EINVAL: one of them is archived. Arena memory. */
mg_rc mg_session_base_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv agent_id,
                           int64_t agent_version, struct mg_sv environment_id, struct mg_session_base *ret,
                           struct mg_err *err) MG_MUSTCHECK;

struct mg_session_new {
    struct mg_id id;
    struct mg_sv workspace, agent_id, agent, environment_id, title, metadata, vault_ids, deployment_id;
    int64_t budget_nano;      /* MG_BUDGET_NONE: none */
    struct mg_sv coordinator; /* the agent's name when it has a roster; ptr NULL: it has none */
    const struct mg_session_base *base;
};
/* Queues both rows: idle, without events. */
mg_rc mg_session_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_session_new *s,
                        struct mg_err *err) MG_MUSTCHECK;
/* What a read would give of them, without one. The views are those of s, which must outlive them. */
struct mg_session_row mg_session_new_row(const struct mg_session_new *s, const char *status);

/* Rows are views of *ret_res. MG_ENOTFOUND also for another workspace's, and for one that is being deleted. */
mg_rc mg_session_get(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, struct mg_res **ret_res,
                     struct mg_session_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same inside a transaction, whatever is queued in it included. */
mg_rc mg_session_read(struct mg_txn *t, struct mg_sv workspace, struct mg_sv id, struct mg_res **ret_res,
                      struct mg_session_row *ret, struct mg_err *err) MG_MUSTCHECK;

/* What the session has used until now, under its lock; what the running transaction adds is not in it. */
mg_rc mg_session_usage(struct mg_txn *t, struct mg_sv id, struct mg_usage *ret, struct mg_err *err) MG_MUSTCHECK;

struct mg_session_filter {
    struct mg_sv agent_id, deployment_id, memory_store_id; /* ptr NULL: any */
    int64_t agent_version;                                 /* 0: any */
    const struct mg_sv *statuses;
    int n_statuses; /* 0: any */
};
mg_rc mg_session_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                      const struct mg_session_filter *f, struct mg_res **ret_res, struct mg_session_row **ret,
                      struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;

/* Each queues one statement, under the session's lock. */
mg_rc mg_session_save(struct mg_txn *t, struct mg_sv id, struct mg_sv title, struct mg_sv metadata, struct mg_sv agent,
                      struct mg_err *err) MG_MUSTCHECK;
/* MG_BUDGET_NONE removes it. */
mg_rc mg_session_set_budget(struct mg_arena *a, struct mg_txn *t, struct mg_sv id, int64_t nano,
                            struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_session_set_archived(struct mg_txn *t, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
/* The durable mark of a delete: from here on nobody sees it, and the reconciler takes the rest away. */
mg_rc mg_session_set_deleting(struct mg_txn *t, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;

#endif
