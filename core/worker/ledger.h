/* Which calls of a session are outstanding, held for a confirmation, answered; and when an idle session is left. Pure: events go in, calls to
 * run come out. What is outstanding follows from the ids in the history and on the stream, never from what a worker remembers of having run.
 *
 * Order of use: mg_ledger_history_begin, _history for each event, _history_end; then all of mg_ledger_take; then _stream for each event with
 * all of _take behind it. One thread. */
#ifndef MG_WORKER_LEDGER_H
#define MG_WORKER_LEDGER_H

#include "worker/event.h"

struct mg_ledger;

enum mg_call_end {
    MG_CALL_ANSWERED, /* a result is in the session, of ours or of somebody else */
    MG_CALL_UNPOSTED, /* it is still outstanding: the next history offers it again */
    MG_CALL_NOT_OURS, /* another client's tool: left to it */
};

/* max_idle_ms: how long a session whose turn has ended is kept; 0: for ever. */
struct mg_ledger *mg_ledger_new(uint32_t max_idle_ms);
void mg_ledger_free(struct mg_ledger *l);

void mg_ledger_history_begin(struct mg_ledger *l);
void mg_ledger_history(struct mg_ledger *l, const struct mg_event *e);
/* whole: false when the list failed on the way; what was read of results and verdicts stays. */
void mg_ledger_history_end(struct mg_ledger *l, bool whole, uint64_t now_ns);
/* True: the session is over. */
bool mg_ledger_stream(struct mg_ledger *l, const struct mg_event *e, uint64_t now_ns);

/* The next call to run, in order; NULL: none. It is the caller's until mg_ledger_end. */
struct mg_call *mg_ledger_take(struct mg_ledger *l, uint64_t now_ns);
void mg_ledger_end(struct mg_ledger *l, struct mg_call *c, enum mg_call_end how, uint64_t now_ns); /* frees c */

/* Monotonic time at which the session is left; 0: none is set. */
uint64_t mg_ledger_idle_at(const struct mg_ledger *l);
unsigned mg_ledger_held(const struct mg_ledger *l);

#endif
