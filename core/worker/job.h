/* One tool call on a thread of its own, so that the runner can watch over it: a call that does not obey its cancel is abandoned, not waited
 * for for ever. */
#ifndef MG_WORKER_JOB_H
#define MG_WORKER_JOB_H

#include "worker/tether.h"
#include "worker/toolbox.h"

struct mg_job;

/* Starts the call; c and b are borrowed until the job is collected. The tether is woken when it ends. NULL: no thread could be made. */
struct mg_job *mg_job_start(struct mg_toolbox *b, const struct mg_call *c, struct mg_tether *t);
bool mg_job_done(struct mg_job *j); /* with the tether's lock held or not */
void mg_job_cancel(struct mg_job *j);
/* Of a job that is done: takes its result over (the caller's to free) and frees it. */
mg_rc mg_job_collect(struct mg_job *j, struct mg_tool_result *ret, struct mg_err *err);
/* Leaves a job to itself. Its call, its toolbox and what they point to must never be freed. */
void mg_job_abandon(struct mg_job *j);

#endif
