/* The result of a call on its way into the session. A send whose answer is lost may have arrived: the same bytes are sent again, which the
 * API takes as the same result. */
#ifndef MG_WORKER_RESULT_H
#define MG_WORKER_RESULT_H

#include "tools/tools.h"
#include "worker/event.h"
#include "worker/remote.h"
#include "worker/tether.h"

enum mg_send_end {
    MG_SEND_TAKEN,
    MG_SEND_REFUSED, /* for good: no repetition helps */
    MG_SEND_LATER,   /* no answer within the time: it may be sent again when the history still lacks it */
    MG_SEND_FENCED,  /* the session is another's, or over */
};

/* The body of the request: {"events":[...]}. MG_ETOOBIG. */
mg_rc mg_result_body(struct mg_buf *out, const struct mg_call *c, const struct mg_tool_result *r) MG_MUSTCHECK;
/* Sends it until it is taken or refused, for as long as the lease lasts. In a shutdown for MG_RUNNER_LAST_SEND_MS at most. */
enum mg_send_end mg_result_send(const struct mg_remote *r, const char *session_id, const struct mg_call *c,
                                struct mg_sv body, struct mg_tether *t, int *ret_status, struct mg_err *err);

/* Results that could not be sent, by the id of their call: sent again instead of running the call again. */
struct mg_kept;
struct mg_kept *mg_kept_new(void);
void mg_kept_free(struct mg_kept *k);
void mg_kept_put(struct mg_kept *k, const char *id,
                 struct mg_buf *body); /* takes the bytes; the oldest go where it gets too much */
/* Moves it to ret; false: there is none. */
bool mg_kept_take(struct mg_kept *k, const char *id, struct mg_buf *ret);

#endif
