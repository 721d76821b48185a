/* What the files of the work queue share: the columns of an item and how a row is read. */
#ifndef MG_STORE_WORK_ROW_H
#define MG_STORE_WORK_ROW_H

#include "store/work.h"

#define MG_WORK_COLUMNS                                                                                         \
    "id, workspace_id, environment_id, session_id, metadata, state, polled_at IS NOT NULL,"                     \
    " state IN ('starting', 'active', 'stopping') AND lease_until <= clock_timestamp(),"                        \
    " coalesce(stop_cause IN ('reclaimed', 'expired'), false), ttl_s, mg_us(waiting_since), mg_us(created_at)," \
    " mg_us(acknowledged_at), mg_us(started_at), mg_us(heartbeat_at), mg_us(heartbeat_before),"                 \
    " mg_us(stop_requested_at), mg_us(stopped_at),"                                                             \
    " coalesce(heartbeat_at > clock_timestamp() - interval '10 seconds', false)"

struct mg_work_row mg_work_from_row(const struct mg_res *r, int i);
/* The same in arena memory. */
struct mg_work_row mg_work_kept(struct mg_arena *a, const struct mg_res *r, int i);
mg_rc mg_work_missing(struct mg_sv id, struct mg_err *err);

#endif
