/* Outcomes of a session. Every write is under the session's lock. */
#ifndef MG_STORE_OUTCOME_H
#define MG_STORE_OUTCOME_H

#include "domain/id.h"
#include "store/pg.h"

struct mg_outcome {
    struct mg_id id;
    int64_t seq; /* of its event */
    struct mg_sv description, rubric;
    int64_t max_iterations, iteration;
    struct mg_id start_event; /* "" when no evaluation runs */
};

/* Queues the insert, as pending. */
mg_rc mg_outcome_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_outcome *o,
                        struct mg_err *err) MG_MUSTCHECK;
/* The open one. MG_ENOTFOUND. Arena memory. */
mg_rc mg_outcome_open(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, struct mg_outcome *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* Queues the update of iteration, start_event, result and explanation (ptr NULL: none); completed: the result is its end. */
mg_rc mg_outcome_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_outcome *o,
                      struct mg_sv result, struct mg_sv explanation, bool completed, struct mg_err *err) MG_MUSTCHECK;

#endif
