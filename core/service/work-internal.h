/* What the files of the work queue's service share. */
#ifndef MG_SERVICE_WORK_INTERNAL_H
#define MG_SERVICE_WORK_INTERNAL_H

#include "run/step.h"
#include "service/work.h"

/* True when the poller's row is to be written now. */
bool mg_pollers_note(struct mg_pollers *p, struct mg_sv environment, struct mg_sv worker_id);
/* Of the news about an environment: taken before a look, given with what it found. */
uint64_t mg_pollers_generation(struct mg_pollers *p, struct mg_sv environment);
void mg_pollers_found_empty(struct mg_pollers *p, struct mg_sv environment, uint64_t generation);
/* Where the queue begins, as the last look found it; 0: not known. */
int64_t mg_pollers_from(struct mg_pollers *p, struct mg_sv environment);
bool mg_pollers_is_empty(struct mg_pollers *p, struct mg_sv environment);
struct mg_key_cache *mg_pollers_tokens(struct mg_pollers *p);
/* After the commit that ended the item: its streams close, and pollers look for what may follow it. */
void mg_work_ended_here(struct mg_engine *e, const struct mg_work_row *w);
/* One transaction: the item ends, and its session with the message. check judges the locked item. */
mg_rc mg_work_fail_session(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_id *session,
                           struct mg_sv environment, struct mg_sv id, struct mg_sv message,
                           mg_rc (*check)(const struct mg_work_row *w, struct mg_err *err), struct mg_work_row *ret,
                           struct mg_err *err) MG_MUSTCHECK;

#endif
