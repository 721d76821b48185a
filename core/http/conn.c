/* A client connection: bytes in, requests out, answers back, in order; one request at a time, what is pipelined behind
 * it waits. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

enum {
    IN_MAX = 4 * MG_HTTP_READ, /* bytes that wait behind a request: reads stop long before */
    DROP_MAX = 1024 * 1024,    /* a larger body of a refused request is not waited for: the connection is closed */
    LINGER_BYTES_MAX = 64 * 1024 * 1024, /* of a body that nobody wants, after the refusal was sent */
};

static size_t process(struct mg_conn *c, struct mg_sv in);

struct mg_conn *mg_conn_new(struct mg_http *h)
{
    struct mg_conn *c = mg_xcalloc(1, sizeof(*c));
    c->http = h;
    c->in = MG_BUF_INIT(IN_MAX);
    mg_list_init(&c->ready);
    mg_list_init(&c->timer.link);
    mg_list_init(&c->link);
    mg_list_add_tail(&h->conns, &c->link);
    mg_metric_add(&h->metrics.connections, 1);
    mg_metric_add(&h->metrics.accepted, 1);
    pthread_mutex_lock(&h->lock);
    h->n_conns++;
    pthread_mutex_unlock(&h->lock);
    return c;
}

void mg_conn_free(struct mg_conn *c)
{
    struct mg_http *h = c->http;
    mg_list_del(&c->link);
    mg_list_del(&c->ready);
    mg_wheel_cancel(&c->timer);
    if (c->call && c->call->is_parked)
        mg_park_leave(c->call);
    else if (c->call && (c->state == MG_CONN_WAIT || c->call->running))
        mg_call_orphan(c->call); /* a request thread has it; its done() frees it */
    if (c->call && c->call->conn)
        mg_call_free(c->call);
    mg_sse_free(c->sse);
    mg_ws_free(c->ws);
    mg_buf_done(&c->in);
    mg_buf_done(&c->out);
    mg_metric_sub(&h->metrics.connections, 1);
    free(c);
    pthread_mutex_lock(&h->lock);
    h->n_conns--;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void mg_conn_arm(struct mg_conn *c, unsigned ms)
{
    mg_wheel_set(&c->http->wheel, &c->timer, mg_http_age_ms(c->http), ms);
}

void mg_conn_start(struct mg_conn *c)
{
    mg_conn_arm(c, c->http->limits.header_ms);
}

void mg_conn_ready(struct mg_conn *c)
{
    if (mg_list_empty(&c->ready))
        mg_list_add_tail(&c->http->ready, &c->ready);
}

/* Never frees at once: callers further up may still hold c. */
void mg_conn_kill(struct mg_conn *c)
{
    c->dead = true;
    if (!c->in_callback)
        mg_conn_ready(c);
}

/* ---- answers ---- */

static void shut(struct mg_conn *c)
{
    if (mg_io_choked(c)) {
        mg_io_want_write(c); /* the library still holds bytes: again when they are out */
        mg_conn_arm(c, c->ws ? MG_HTTP_CLOSE_MS : c->http->limits.send_ms);
        return;
    }
    mg_io_shutdown(c);
    mg_io_rx(c, true);
    mg_conn_arm(c, MG_HTTP_LINGER_MS);
}

void mg_conn_linger(struct mg_conn *c)
{
    c->state = MG_CONN_LINGER;
    mg_buf_done(&c->in);
    shut(c);
}

static void answered(struct mg_conn *c)
{
    mg_buf_done(&c->out);
    c->out_at = 0;
    c->used = true;
    if (c->close_after || atomic_load_explicit(&c->http->draining, memory_order_relaxed)) {
        mg_conn_linger(c);
        return;
    }
    c->state = MG_CONN_HEAD;
    mg_conn_arm(c, c->http->limits.idle_ms);
    if (!c->processing && c->in.len) {
        size_t n = process(c, mg_buf_view(&c->in));
        mg_buf_consume(&c->in, n);
    }
    if (c->state == MG_CONN_HEAD || c->state == MG_CONN_BODY)
        mg_io_rx(c, true);
    if (c->in.len == 0)
        mg_buf_done(&c->in);
}

/* All of the feed is sent: the call is over. */
static void feed_sent(struct mg_conn *c)
{
    struct mg_call *call = c->call;
    c->call = NULL;
    c->close_after = !call->keep_alive;
    mg_metrics_request(&c->http->metrics, call->status, mg_now_ns() - call->start_ns);
    mg_call_free(call);
    answered(c);
}

/* True when out has bytes of the feed to send. */
static bool refill(struct mg_conn *c)
{
    bool was_full;
    mg_buf_reset(&c->out);
    c->out_at = 0;
    switch (mg_feed_take(c->call->out_feed, &c->out, &was_full)) {
    case MG_FEED_SOME:
        return true;
    case MG_FEED_NONE:
        mg_wheel_cancel(&c->timer); /* the handler is the slow one */
        return false;
    case MG_FEED_END:
        if (!c->call->running)
            feed_sent(c);
        return false;
    }
    return false;
}

static void flush(struct mg_conn *c)
{
    if (mg_io_choked(c)) {
        mg_io_want_write(c);
        return;
    }
    bool feeds = c->call && c->call->out_feed;
    if (feeds && c->out_at == c->out.len && !refill(c))
        return;
    size_t left = c->out.len - c->out_at;
    size_t n = left < MG_HTTP_WRITE ? left : MG_HTTP_WRITE;
    if (n && !mg_io_send(c, c->out.ptr + c->out_at, n)) {
        mg_conn_kill(c);
        return;
    }
    c->out_at += n;
    if (n < left || feeds)
        mg_io_want_write(c);
    else
        answered(c);
}

void mg_conn_feed(struct mg_conn *c)
{
    if (c->state == MG_CONN_WAIT || c->state == MG_CONN_BODY) {
        c->state = MG_CONN_SEND;
        c->out_at = c->out.len = 0;
        c->out.max = MG_FEED_MAX;
    }
    mg_conn_arm(c, c->http->limits.send_ms);
    flush(c);
}

void mg_conn_answer(struct mg_conn *c)
{
    c->state = MG_CONN_SEND;
    c->out_at = 0;
    mg_conn_arm(c, c->http->limits.send_ms);
    flush(c);
}

/* ---- input ---- */

/* The refusal is known before the body: a short body is dropped so that the connection can go on, a long one is not
 * waited for. */
static bool must_close(const struct mg_call *call, const struct mg_head *h)
{
    return h->expect_continue || call->err.rc == MG_ETOOBIG || h->length > DROP_MAX;
}

static void go_on(struct mg_conn *c)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->expects && !mg_io_send(c, text, sizeof(text) - 1))
        mg_conn_kill(c);
    c->expects = false;
}

void mg_conn_body_wanted(struct mg_conn *c)
{
    go_on(c);
    mg_conn_arm(c, c->http->limits.body_idle_ms);
    mg_io_rx(c, true);
}

static void begin_body(struct mg_conn *c, const struct mg_head *h, bool more_input)
{
    struct mg_call *call = c->call;
    if (h->chunked)
        mg_body_chunked(&c->body);
    else
        mg_body_length(&c->body, h->length);
    if (call->err.rc < 0) {
        if (must_close(call, h)) {
            call->keep_alive = false;
            mg_call_start(call);
            return;
        }
        call->drop_body = true;
        call->body_max = DROP_MAX;
    }
    c->state = MG_CONN_BODY;
    mg_conn_arm(c, c->http->limits.body_idle_ms);
    c->expects = h->expect_continue && !more_input;
    if (call->err.rc >= 0 && call->route->flags & MG_ROUTE_TRANSFER) {
        if (c->expects)
            mg_wheel_cancel(&c->timer); /* until it is asked for */
        mg_call_feed(call);
    } else {
        go_on(c);
    }
}

static size_t on_head(struct mg_conn *c, struct mg_sv in)
{
    struct mg_http *h = c->http;
    struct mg_err err = {0};
    size_t used = 0;
    int status = 400;
    switch (mg_head_parse(in, &c->scanned, &h->head, &used, &status, &err)) {
    case MG_HEAD_MORE:
        if (in.len && !c->begun)
            mg_conn_arm(c, h->limits.header_ms);
        c->begun = c->begun || in.len;
        return 0;
    case MG_HEAD_BAD:
        c->scanned = 0;
        mg_call_refuse(c, status, &err);
        return in.len;
    case MG_HEAD_DONE:
        break;
    }
    c->scanned = 0;
    c->begun = false;
    c->call = mg_call_new(c);
    if (h->head.chunked || h->head.length)
        begin_body(c, &h->head, used < in.len);
    else
        mg_call_start(c->call);
    return used;
}

static void count_body(struct mg_conn *c, struct mg_call *call)
{
    struct mg_http *h = c->http;
    h->bodies += call->body.len - call->counted;
    mg_metric_add(&h->metrics.body_bytes, call->body.len - call->counted);
    call->counted = call->body.len;
    if (h->bodies <= h->limits.bodies_max)
        return;
    struct mg_err err = {.retry_after_s = 1};
    (void)mg_err_set(&err, MG_EUNAVAIL, "the server is receiving as many bytes of bodies as it may hold; try again");
    err.retry_after_s = 1;
    mg_call_refuse(c, 503, &err);
}

static size_t on_body(struct mg_conn *c, struct mg_sv in)
{
    struct mg_call *call = c->call;
    struct mg_err err = {0};
    size_t used = 0;
    bool full = false;
    enum mg_body_result r =
        call->in ? mg_feed_body(call->in, &c->body, in, call->body_max, &used, &full)
                 : mg_body_feed(&c->body, in, call->body_max, call->drop_body ? NULL : &call->body, &used);
    if (r == MG_BODY_BAD) {
        (void)mg_err_set(&err, MG_EINVAL, "the body's chunked encoding is malformed");
        mg_call_refuse(c, 400, &err);
        return in.len;
    }
    if (r == MG_BODY_TOO_BIG) {
        (void)mg_err_set(&err, MG_ETOOBIG, "the body is larger than %llu bytes, which this endpoint takes at most",
                         (unsigned long long)call->body_max);
        mg_call_refuse(c, 413, call->drop_body ? &call->err : &err);
        return in.len;
    }
    if (!call->drop_body && !call->in)
        count_body(c, call);
    if (c->state != MG_CONN_BODY)
        return in.len;
    if (r == MG_BODY_DONE) {
        mg_call_start(call);
    } else if (full) {
        mg_io_rx(c, false); /* the handler is the slow one */
        mg_wheel_cancel(&c->timer);
    } else {
        mg_conn_arm(c, c->http->limits.body_idle_ms);
    }
    return used;
}

static size_t process(struct mg_conn *c, struct mg_sv in)
{
    size_t used = 0;
    c->processing = true;
    while (!c->dead && (c->state == MG_CONN_HEAD || c->state == MG_CONN_BODY)) {
        struct mg_sv rest = mg_sv_from(in, used);
        enum mg_conn_state before = c->state;
        size_t n = before == MG_CONN_HEAD ? on_head(c, rest) : on_body(c, rest);
        used += n;
        if (n == 0 && c->state == before)
            break;
    }
    c->processing = false;
    return used;
}

static void feed(struct mg_conn *c, struct mg_sv data)
{
    if (c->in.len == 0) {
        size_t n = process(c, data); /* the usual case: nothing is copied */
        data = mg_sv_from(data, n);
        if (data.len && c->state != MG_CONN_LINGER && mg_buf_sv(&c->in, data) < 0)
            mg_conn_kill(c);
        return;
    }
    if (mg_buf_sv(&c->in, data) < 0) {
        mg_conn_kill(c);
        return;
    }
    size_t n = process(c, mg_buf_view(&c->in));
    mg_buf_consume(&c->in, n);
    if (c->in.len == 0 && c->secret)
        mg_buf_wipe(&c->in);
    else if (c->in.len == 0)
        mg_buf_done(&c->in);
}

static void input(struct mg_conn *c, const char *p, size_t n)
{
    switch ((enum mg_conn_state)c->state) {
    case MG_CONN_HEAD:
    case MG_CONN_BODY:
        feed(c, mg_sv_n(p, n));
        break;
    case MG_CONN_WAIT:
    case MG_CONN_SEND:
        if (mg_buf_append(&c->in, p, n) < 0)
            mg_conn_kill(c);
        mg_io_rx(c, false);
        break;
    case MG_CONN_SSE: /* a client has nothing to say on an event stream */
    case MG_CONN_LINGER:
        c->linger_bytes += n;
        if (c->linger_bytes > LINGER_BYTES_MAX)
            mg_conn_kill(c);
        break;
    case MG_CONN_WS:
        mg_ws_rx(c, p, n);
        break;
    }
}

int mg_conn_rx(struct mg_conn *c, char *p, size_t n)
{
    if (c->http->tls && !c->tls_settled) {
        c->tls_settled = true;
        lws_set_timeout(c->wsi, NO_PENDING_TIMEOUT, 0); /* the library's own, of the handshake */
    }
    if (c->dead)
        return -1;
    c->in_callback = true;
    input(c, p, n);
    if (c->secret)
        mg_wipe(p, n); /* the library's buffer stays */
    c->in_callback = false;
    return c->dead ? -1 : 0;
}

/* ---- the loop's other events ---- */

int mg_conn_writable(struct mg_conn *c)
{
    if (c->dead)
        return -1;
    c->in_callback = true;
    switch ((enum mg_conn_state)c->state) {
    case MG_CONN_SEND:
        mg_conn_arm(c, c->http->limits.send_ms);
        flush(c);
        break;
    case MG_CONN_SSE:
        mg_sse_pump(c);
        break;
    case MG_CONN_WS:
        mg_ws_pump(c);
        break;
    case MG_CONN_LINGER:
        shut(c);
        break;
    case MG_CONN_HEAD:
    case MG_CONN_BODY:
    case MG_CONN_WAIT:
        break;
    }
    c->in_callback = false;
    return c->dead ? -1 : 0;
}

static void timed_out(struct mg_conn *c, const char *what, unsigned ms)
{
    struct mg_err err = {0};
    (void)mg_err_set(&err, MG_ETIMEOUT, "%s did not arrive within %u ms", what, ms);
    mg_call_refuse(c, 408, &err);
}

/* Nothing came: the answer that its handler left goes out. */
static void unpark(struct mg_call *call)
{
    mg_park_leave(call);
    call->res.park.ms = 0;
    mg_io_rx(call->conn, false);
    mg_call_deliver(call);
}

void mg_conn_timer(struct mg_conn *c)
{
    switch ((enum mg_conn_state)c->state) {
    case MG_CONN_HEAD:
        if (c->begun)
            timed_out(c, "the headers", c->http->limits.header_ms);
        else
            mg_conn_kill(c); /* idle: nobody waits for an answer */
        break;
    case MG_CONN_BODY:
        timed_out(c, "the next bytes of the body", c->http->limits.body_idle_ms);
        break;
    case MG_CONN_SSE:
        mg_sse_timer(c);
        break;
    case MG_CONN_WS:
        mg_ws_timer(c);
        break;
    case MG_CONN_WAIT:
        if (c->call && c->call->is_parked)
            unpark(c->call);
        else
            mg_conn_kill(c);
        break;
    case MG_CONN_SEND:
    case MG_CONN_LINGER:
        mg_conn_kill(c);
        break;
    }
}

void mg_conn_pump(struct mg_conn *c)
{
    if (c->dead) {
        mg_io_close(c);
        return;
    }
    if (c->state == MG_CONN_SSE)
        mg_sse_pump(c);
    else if (c->state == MG_CONN_WS)
        mg_ws_pump(c);
}

void mg_conn_drain(struct mg_conn *c)
{
    if (c->state == MG_CONN_SSE)
        mg_sse_drain(c);
    else if (c->state == MG_CONN_WS)
        mg_ws_drain(c);
    else if (c->state == MG_CONN_HEAD && !c->begun)
        mg_conn_kill(c);
    else if (c->call && c->call->is_parked)
        unpark(c->call);
    else if (c->call)
        c->call->keep_alive = false; /* seen only when its answer is not written yet; answered() closes in any case */
}
