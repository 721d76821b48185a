#include "http/metrics.h"

/* Upper bounds of the latency histogram, microseconds. */
static const uint64_t bounds_us[MG_METRICS_BUCKETS] = {
    250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 500000, 2000000, 10000000,
};

static uint64_t get(const atomic_uint_fast64_t *m)
{
    return atomic_load_explicit(m, memory_order_relaxed);
}

void mg_metrics_request(struct mg_http_metrics *m, int status, uint64_t ns)
{
    uint64_t us = ns / 1000;
    int class = status / 100;
    int i = 0;
    while (i < MG_METRICS_BUCKETS && us > bounds_us[i])
        i++;
    mg_metric_add(&m->status[class < 6 && class > 0 ? class : 0], 1);
    mg_metric_add(&m->bucket[i], 1);
    mg_metric_add(&m->latency_us, us);
}

static void line(struct mg_buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
    (void)mg_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
                        (unsigned long long)value);
}

static void histogram(const struct mg_http_metrics *m, struct mg_buf *out)
{
    const char *name = "mango_http_request_seconds";
    uint64_t sum = 0;
    (void)mg_buf_printf(out, "# HELP %s Time from a request's head to its answer.\n# TYPE %s histogram\n", name, name);
    for (int i = 0; i < MG_METRICS_BUCKETS; i++) {
        sum += get(&m->bucket[i]);
        (void)mg_buf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, (double)bounds_us[i] / 1e6,
                            (unsigned long long)sum);
    }
    sum += get(&m->bucket[MG_METRICS_BUCKETS]);
    (void)mg_buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name, (unsigned long long)sum,
                        name, (double)get(&m->latency_us) / 1e6, name, (unsigned long long)sum);
}

void mg_metrics_write(const struct mg_http_metrics *m, struct mg_buf *out)
{
    (void)mg_buf_str(out, "# HELP mango_http_requests_total Answered requests by class of status.\n"
                          "# TYPE mango_http_requests_total counter\n");
    for (int i = 1; i < 6; i++)
        (void)mg_buf_printf(out, "mango_http_requests_total{class=\"%dxx\"} %llu\n", i,
                            (unsigned long long)get(&m->status[i]));
    histogram(m, out);
    line(out, "mango_http_connections", "gauge", "Open client connections.", get(&m->connections));
    line(out, "mango_http_body_bytes", "gauge", "Bytes of request bodies that are held.", get(&m->body_bytes));
    line(out, "mango_http_accepted_total", "counter", "Accepted client connections.", get(&m->accepted));
    line(out, "mango_http_refused_total", "counter", "Requests refused before a handler saw them.", get(&m->refused));
    line(out, "mango_http_parked", "gauge", "Requests that wait for news without a thread.", get(&m->parked));
    line(out, "mango_sse_streams", "gauge", "Open SSE streams.", get(&m->sse));
    line(out, "mango_sse_events_total", "counter", "Events sent on SSE streams.", get(&m->sse_events));
    line(out, "mango_websockets", "gauge", "Open WebSockets.", get(&m->websockets));
    line(out, "mango_websocket_subscriptions", "gauge", "Subscriptions on WebSockets.", get(&m->subscriptions));
    line(out, "mango_websocket_events_total", "counter", "Events sent on WebSockets.", get(&m->ws_events));
    line(out, "mango_stream_slow_closed_total", "counter", "Streams closed since their reader took nothing.",
         get(&m->slow_closed));
}
