/* What sessions wait for, and since when. Reads only. */
#ifndef MG_STORE_WAITING_H
#define MG_STORE_WAITING_H

#include "domain/id.h"
#include "store/pg.h"

/* The reasons, which never grow with the number of sessions: they are labels of metrics. */
enum mg_waiting {
    MG_WAITING_MODEL,
    MG_WAITING_TOOL,
    MG_WAITING_BACKOFF,
    MG_WAITING_CONFIRMATION,
    MG_WAITING_RESULT,
    MG_WAITING_COUNT
};
const char *mg_waiting_name(enum mg_waiting w);

struct mg_waiting_sum {
    int64_t n;         /* turns, or calls for the last two */
    int64_t oldest_ms; /* how long the oldest has waited; 0: none */
};
/* Of the whole deployment, whichever node asks. */
mg_rc mg_waiting_sums(struct mg_pg *pg, struct mg_waiting_sum ret[MG_WAITING_COUNT], struct mg_err *err) MG_MUSTCHECK;

/* The oldest transaction that is open in this database, which keeps dead rows of the queues from being cleaned up: field case 30. 0: none but this one. */
mg_rc mg_oldest_transaction(struct mg_pg *pg, int64_t *ret_pid, int64_t *ret_ms, struct mg_err *err) MG_MUSTCHECK;

/* How long the turn of the session (thread empty), or of a thread of it, has been at its present step. */
mg_rc mg_step_age_ms(struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread, int64_t *ret,
                     struct mg_err *err) MG_MUSTCHECK;

/* One call that has no result. */
struct mg_waiting_call {
    struct mg_sv event_id, thread_id, name, input, state, waits_for; /* the last two as the journal has them */
    int64_t since_us; /* it waits for a client, or runs; INT64_MIN: for its turn among the others */
};
struct mg_session_waiting {
    struct mg_sv status, step;
    int64_t since_us, due_us; /* of the step; due: of a back-off, else INT64_MIN */
    int64_t queued, unread;   /* messages as counted, and as they are */
    struct mg_waiting_call *calls;
    int n_calls;
};
/* One session; texts are views of *ret_res. MG_ENOTFOUND also for another workspace's, and for one that is being deleted. */
mg_rc mg_session_waiting(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv session,
                         struct mg_res **ret_res, struct mg_session_waiting *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
