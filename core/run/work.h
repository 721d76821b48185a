/* Turns and the work queue: when a session of a self_hosted environment needs a worker, and what becomes of calls that none answers. */
#ifndef MG_RUN_WORK_H
#define MG_RUN_WORK_H

#include <stdatomic.h>

#include "run/step.h"

struct mg_buf;

/* What this node has seen of its queue; for /metrics. */
struct mg_work_counters {
    atomic_llong claims, acks, reclaims, expired, heartbeats, stops, failures, call_timeouts;
    atomic_llong claim_wait_us; /* sum over acks of the time from the queue to the ack */
};
struct mg_work_counters *mg_engine_work(struct mg_engine *e);

/* In a step, behind all that it queues: an item for a session that is busy, none for one that is over. */
mg_rc mg_work_after_step(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* After a commit, any thread: pollers of the environment look, here and on other nodes. */
void mg_work_tell(struct mg_engine *e, const struct mg_id *environment);
/* After a commit, any thread: what the claim of this item opened is closed, here and on other nodes. */
void mg_work_revoke(struct mg_engine *e, struct mg_sv item);
/* The call is a worker's business: no client has to act. */
bool mg_work_is_call(const struct mg_step *s, const struct mg_tool_call *c);

/* Once a second, from the clock; does its work on an engine thread: leases that are over, calls that waited too long. */
void mg_work_tick(struct mg_engine *e);
/* A claim's token has opened a stream here: from now on the sweep compares streams with the claims that ended. */
void mg_work_stream_opened(struct mg_engine *e);
/* Prometheus text; pg for what the database knows. */
void mg_work_metrics(struct mg_engine *e, struct mg_pg *pg, struct mg_buf *out);

#endif
