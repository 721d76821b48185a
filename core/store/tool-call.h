/* The tool journal: prepared -> started -> completed. A started call without a result after a crash is ambiguous and never repeated. */
#ifndef MG_STORE_TOOL_CALL_H
#define MG_STORE_TOOL_CALL_H

#include "domain/id.h"
#include "store/pg.h"

enum mg_call_state { MG_CALL_PREPARED, MG_CALL_STARTED, MG_CALL_COMPLETED, MG_CALL_AMBIGUOUS };
enum mg_call_wait { MG_WAIT_NONE, MG_WAIT_CONFIRMATION, MG_WAIT_RESULT };
/* AGENT: a coordinator's own, which only change the session (core/run/delegate.h): completed in the commit that takes them, but for a question to its
 * advisor (core/run/advisor.h), which is started by it. */
enum mg_call_kind { MG_CALL_BUILTIN, MG_CALL_CUSTOM, MG_CALL_MCP, MG_CALL_AGENT };

struct mg_tool_call {
    struct mg_id event_id;
    int64_t ordinal, round;
    enum mg_call_kind kind;
    struct mg_sv name, model_id, input;
    enum mg_call_state state;
    enum mg_call_wait waits;
    bool allowed, denied;
    struct mg_sv deny_message;
    struct mg_sv result; /* raw JSON content array, or ptr NULL */
    bool is_error;
    struct mg_id result_event;
    struct mg_id thread;    /* whose call it is; "": the primary thread's */
    struct mg_id public_id; /* of its copy in the primary thread; of an advisor's call its thread; or "" */
};

/* Queues the inserts. */
mg_rc mg_calls_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t epoch,
                      const struct mg_tool_call *calls, int n, struct mg_err *err) MG_MUSTCHECK;
/* All calls of the thread's present round, in order; rows are views of *ret_res. Inside the transaction that holds the session's lock. */
mg_rc mg_calls_of_round(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                        int64_t round, struct mg_res **ret_res, struct mg_tool_call **ret, int *ret_n,
                        struct mg_err *err) MG_MUSTCHECK;
/* Every call of the thread that has no result, of whatever round. */
mg_rc mg_calls_open(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_id *thread,
                    struct mg_res **ret_res, struct mg_tool_call **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Queues the update of one call: state, waits, decision, result. */
mg_rc mg_call_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, int64_t epoch,
                   const struct mg_tool_call *c, struct mg_err *err) MG_MUSTCHECK;
/* A call of any thread and round by its event id, or by its copy's, for answers that come late. MG_ENOTFOUND. */
mg_rc mg_call_by_event(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, struct mg_sv event_id,
                       struct mg_res **ret_res, struct mg_tool_call *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
