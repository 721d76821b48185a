/* Node leases: one row per mangod process, renewed every TTL/3. All times are the database's; the deadline for self-fencing is the
 * host's monotonic clock, taken before the statement went out, so that it is never later than the database's. */
#ifndef MG_STORE_NODE_H
#define MG_STORE_NODE_H

#include "domain/id.h"
#include "store/pg.h"

struct mg_node_lease {
    uint64_t until_ns; /* mg_now_ns() clock: at this time the lease may be over; stop own work a margin before */
    int others;        /* other nodes whose lease has not lapsed */
};

/* Makes or replaces the row. */
mg_rc mg_node_register(struct mg_pg *pg, const struct mg_id *node, const char *host, const char *version, int ttl_ms,
                       struct mg_node_lease *ret, struct mg_err *err) MG_MUSTCHECK;
/* MG_EFENCED: the lease lapsed before, or the row is gone. Work of this node may have been taken over; it is not renewed. */
mg_rc mg_node_renew(struct mg_pg *pg, const struct mg_id *node, int ttl_ms, struct mg_node_lease *ret,
                    struct mg_err *err) MG_MUSTCHECK;
/* Clean stop. Absent is fine. */
mg_rc mg_node_delete(struct mg_pg *pg, const struct mg_id *node, struct mg_err *err) MG_MUSTCHECK;
/* Deletes rows whose lease lapsed longer than keep_ms ago and that no turn names any more. ret_n may be NULL. */
mg_rc mg_node_expire(struct mg_pg *pg, int64_t keep_ms, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

/* What the node has loaded: "NAME=STATE" each. Writes only what changes. */
mg_rc mg_node_set_backends(struct mg_pg *pg, struct mg_arena *a, const struct mg_id *node, const struct mg_sv *rows,
                           int n, struct mg_err *err) MG_MUSTCHECK;

struct mg_node_row {
    struct mg_sv id, host, version;
    struct mg_sv backends; /* "local=up docker=down" */
    int64_t started_us, lease_us;
    bool live;
};
/* All rows, oldest first; for metrics and doctor. */
mg_rc mg_node_list(struct mg_pg *pg, struct mg_arena *a, struct mg_node_row **ret, int *ret_n,
                   struct mg_err *err) MG_MUSTCHECK;

#endif
