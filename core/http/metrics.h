/* Counters of the HTTP server. Updated by the loop thread, read by any: relaxed atomics. */
#ifndef MG_HTTP_METRICS_H
#define MG_HTTP_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

enum { MG_METRICS_BUCKETS = 12 };

struct mg_http_metrics {
    atomic_uint_fast64_t status[6]; /* by the first digit of the status */
    atomic_uint_fast64_t bucket[MG_METRICS_BUCKETS + 1];
    atomic_uint_fast64_t latency_us;
    atomic_uint_fast64_t connections, sse, websockets, subscriptions, parked; /* open now */
    atomic_uint_fast64_t body_bytes; /* of bodies that are being received or handled */
    atomic_uint_fast64_t accepted, refused, slow_closed, sse_events, ws_events;
};

static inline void mg_metric_add(atomic_uint_fast64_t *m, uint64_t n)
{
    atomic_fetch_add_explicit(m, n, memory_order_relaxed);
}
static inline void mg_metric_sub(atomic_uint_fast64_t *m, uint64_t n)
{
    atomic_fetch_sub_explicit(m, n, memory_order_relaxed);
}
void mg_metrics_request(struct mg_http_metrics *m, int status, uint64_t ns);
void mg_metrics_write(const struct mg_http_metrics *m, struct mg_buf *out);

#endif
