/* Pages of a session's events, for the list endpoints. */
#ifndef MG_STORE_EVENT_LIST_H
#define MG_STORE_EVENT_LIST_H

#include "store/event-log.h"
#include "store/list.h"

enum {
    MG_EVENT_PAGE_BYTES = 16 * 1024 * 1024 /* text of a page, at least one event: bounds the memory of a request */
};

/* thread: a child's id, or empty for the primary thread's log, which is the session's. q: workspace, limit, order, cursor (pos is a sequence number), time bounds that are compared with processed_at. types: n = 0: all.
 * MG_ENOTFOUND for a session that this workspace does not have. Rows are views of *ret_res, in the list's order. */
mg_rc mg_events_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_sv thread,
                     const struct mg_list_query *q, const struct mg_sv *types, int n_types, struct mg_res **ret_res,
                     struct mg_event_seen **ret, int *ret_n, bool *ret_more, struct mg_err *err) MG_MUSTCHECK;

#endif
