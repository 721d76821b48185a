/* Child threads: their turns under the session's lock, and what clients see of them. The primary thread is the session's own row. */
#ifndef MG_STORE_THREAD_STATE_H
#define MG_STORE_THREAD_STATE_H

#include "domain/usage.h"
#include "store/list.h"
#include "store/session-state.h"

/* A thread of a session that a step has locked. */
struct mg_thread_state {
    struct mg_session_state st; /* the turn; of the session's part only what mg_threads_load was given */
    int64_t ordinal;            /* 0: the primary one */
    struct mg_sv agent_name;
    struct mg_sv stop_reason; /* type of the last stop reason, or empty */
    bool ended, archived;     /* terminated: it takes no input any more */
};

/* The session's threads that have not ended, the primary one (whose turn is session's) first, in arena memory. Under the session's lock.
 * *ret_next is the ordinal of the next child. */
mg_rc mg_threads_load(struct mg_arena *a, struct mg_txn *t, const struct mg_session_state *session,
                      struct mg_thread_state **ret, int *ret_n, int64_t *ret_next, struct mg_err *err) MG_MUSTCHECK;
/* Each queues one statement. */
mg_rc mg_thread_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_thread_state *x, struct mg_sv agent,
                       struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_thread_save(struct mg_arena *a, struct mg_txn *t, const struct mg_thread_state *x,
                     struct mg_err *err) MG_MUSTCHECK;

/* ids of the calls of a thread (NULL: of all threads) that wait for a client, as clients know them, in the order of their events. Under the
 * session's lock. */
mg_rc mg_calls_waiting(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                       struct mg_sv **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

/* What clients see. Times as in mg_session_row. */
struct mg_thread_row {
    struct mg_sv id, agent, status;
    int64_t ordinal; /* 0: the primary one */
    int64_t created_us, updated_us, archived_us;
    int64_t duration_us;
    struct mg_usage usage;
};
/* Children in the order of their creation, behind the ordinal after, at most limit. n_statuses 0: any. Rows are views of *ret_res. */
mg_rc mg_thread_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t after, int limit,
                     const struct mg_sv *statuses, int n_statuses, struct mg_res **ret_res, struct mg_thread_row **ret,
                     int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* MG_ENOTFOUND. */
mg_rc mg_thread_get(struct mg_pg *pg, struct mg_sv session, struct mg_sv thread, struct mg_res **ret_res,
                    struct mg_thread_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* What of the session's usage and running time is the primary thread's own. Adds to what *ret has of the session. */
mg_rc mg_thread_primary_own(struct mg_pg *pg, struct mg_sv session, struct mg_thread_row *ret,
                            struct mg_err *err) MG_MUSTCHECK;
/* Queues it, for a child that has ended. */
mg_rc mg_thread_set_archived(struct mg_txn *t, const struct mg_id *session, struct mg_sv thread,
                             struct mg_err *err) MG_MUSTCHECK;
/* Whether the session has had a thread of this id. Inside the transaction. */
mg_rc mg_thread_known(struct mg_txn *t, const struct mg_id *session, struct mg_sv thread, bool *ret,
                      struct mg_err *err) MG_MUSTCHECK;

#endif
