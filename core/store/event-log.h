/* The event log of sessions: append under the session's lock, read in order. */
#ifndef MG_STORE_EVENT_LOG_H
#define MG_STORE_EVENT_LOG_H

#include "base/buf.h"
#include "domain/event.h"
#include "domain/id.h"
#include "store/pg.h"

/* A new event of a transaction. Its number is the session's last_seq + 1 + its place in the array. */
struct mg_event_row {
    struct mg_id id;
    struct mg_id thread; /* in whose log it stands; "": the primary thread's */
    enum mg_event_type type;
    struct mg_sv body; /* whole object without processed_at */
    bool processed;    /* processed_at is the transaction's instant; else null until a turn takes it */
};

/* Queues the insert. */
mg_rc mg_events_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t last_seq,
                       const struct mg_event_row *rows, int n, int64_t processed_us, struct mg_err *err) MG_MUSTCHECK;
/* Queues: inputs with seq in the list get their processed_at. */
mg_rc mg_events_mark(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const int64_t *seqs, int n,
                     int64_t processed_us, struct mg_err *err) MG_MUSTCHECK;
/* Queues: all unprocessed inputs of the thread up to seq. */
mg_rc mg_events_mark_all(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                         int64_t upto, int64_t processed_us, struct mg_err *err) MG_MUSTCHECK;

struct mg_event_seen {
    int64_t seq;
    struct mg_sv id, type, thread_id, body;
    int64_t processed_us;
};

/* The unprocessed inputs of the turn with this trigger, in order: it, the system.message directly behind it, and those directly behind results of
 * its calls. Inside the locked transaction. */
struct mg_input_row {
    int64_t seq;
    struct mg_sv type, body;
};
/* Where a thread's turn begins: its trigger, or several reports of other agents, the last of which is upto (else 0). */
struct mg_input_place {
    const struct mg_id *session, *thread;
    int64_t trigger, upto;
};
mg_rc mg_events_inputs(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, struct mg_res **ret_res,
                       struct mg_input_row **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Every unprocessed message of the thread from the trigger on, whatever turn it would belong to. Inside the locked transaction. */
mg_rc mg_events_waiting(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, struct mg_res **ret_res,
                        struct mg_input_row **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* The unprocessed messages of the thread behind the trigger that may begin a turn, oldest first, without their bodies; at most limit. */
mg_rc mg_events_queue(struct mg_arena *a, struct mg_txn *t, const struct mg_input_place *at, int limit,
                      struct mg_res **ret_res, struct mg_input_row **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* The body of the thread's newest agent.message behind seq, in arena memory; empty when there is none. */
mg_rc mg_events_last_answer(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session,
                            const struct mg_id *thread, int64_t behind, struct mg_sv *ret,
                            struct mg_err *err) MG_MUSTCHECK;
/* The oldest unprocessed user.message behind seq; *ret 0 when there is none. Inside the locked transaction. */
mg_rc mg_events_next_message(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t behind,
                             int64_t *ret, struct mg_err *err) MG_MUSTCHECK;
/* One stored event by id, inside a transaction. MG_ENOTFOUND. */
mg_rc mg_event_get(struct mg_txn *t, const struct mg_id *session, const struct mg_id *event, struct mg_res **ret_res,
                   struct mg_event_seen *ret, struct mg_err *err) MG_MUSTCHECK;
/* The first event of the primary thread from seq on. */
mg_rc mg_event_at(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t seq,
                  struct mg_res **ret_res, struct mg_event_seen *ret, struct mg_err *err) MG_MUSTCHECK;

/* The event as clients see it: body with processed_at before the last brace. INT64_MIN writes null. */
mg_rc mg_event_render(struct mg_buf *out, struct mg_sv body, int64_t processed_us);

/* Events with seq > after, in order, at most limit and about max_bytes of text (at least one). Rows are views of *ret_res, which the caller frees.
 * MG_ENOTFOUND when the session is gone (or being deleted) and nothing was found. */
mg_rc mg_events_after(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t after, int limit,
                      int64_t max_bytes, struct mg_res **ret_res, struct mg_event_seen **ret, int *ret_n,
                      struct mg_err *err) MG_MUSTCHECK;
/* The number of an event of this session: MG_ENOTFOUND when it has none of that id. */
mg_rc mg_event_seq_of(struct mg_pg *pg, struct mg_sv session, struct mg_sv event_id, int64_t *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* The newest number; MG_ENOTFOUND for an unknown session or another workspace's (workspace empty: any). */
mg_rc mg_session_last_seq(struct mg_pg *pg, struct mg_sv session, struct mg_sv workspace, int64_t *ret,
                          struct mg_err *err) MG_MUSTCHECK;

#endif
