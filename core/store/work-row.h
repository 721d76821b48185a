/* What the files of the work queue share: the columns of an item and how a row is read. */
#ifndef MG_STORE_WORK_ROW_H
#define MG_STORE_WORK_ROW_H

#include "store/work.h"

/* States by their times, as the partial indexes have them (migrations/0025): a column is w and a name. */
#define MG_WORK_IS_QUEUED(w) w "acknowledged_at IS NULL AND " w "stopped_at IS NULL"
#define MG_WORK_IS_LEASED(w) \
    w "acknowledged_at IS NOT NULL AND " w "stopped_at IS NULL"            /* starting, active, stopping */
#define MG_WORK_IS_LIVE "stopped_at IS NULL AND stop_requested_at IS NULL" /* queued, starting, active */

#define MG_WORK_COLUMNS                                                                                 \
    "id, workspace_id, environment_id, session_id, metadata, state, polled_at IS NOT NULL,"             \
    " " MG_WORK_IS_LEASED(                                                                              \
        "") " AND lease_until <= clock_timestamp(),"                                                    \
            " coalesce(stop_cause IN ('reclaimed', 'expired'), false), ttl_s, mg_us(waiting_since), "   \
            "mg_us(created_at),"                                                                        \
            " mg_us(acknowledged_at), mg_us(started_at), mg_us(heartbeat_at), mg_us(heartbeat_before)," \
            " mg_us(stop_requested_at), mg_us(stopped_at),"                                             \
            " coalesce(heartbeat_at > clock_timestamp() - interval '10 seconds', false)"

struct mg_work_row mg_work_from_row(const struct mg_res *r, int i);
/* The same in arena memory. */
struct mg_work_row mg_work_kept(struct mg_arena *a, const struct mg_res *r, int i);
mg_rc mg_work_missing(struct mg_sv id, struct mg_err *err);

#endif
