/* Server-sent events: a connection that became a subscriber of the hub.
 *
 * The stream subscribes before its headers go out, so that nothing falls between the two. Events go out as HTTP chunks
 * of about MG_HTTP_STREAM_WRITE bytes, several small frames together, one write at a time; a larger event is copied
 * out of its shared text piece by piece, so a slow reader holds references and its socket's buffer, never a copy of
 * what it has not read. */
#include <limits.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "events/hub.h"
#include "http/response.h"
#include "http/server.h"
#include "http/stream.h"

enum {
    CHUNK_HEAD = 8,       /* "%06zx\r\n": leading zeros are allowed in a chunk size */
    STUCK_LOOK_MS = 1000, /* between two looks whether a peer takes bytes */
    FRAME_EXTRA = 256,    /* `event:`, `id:` and `data:` lines around the text */
};

struct mg_sse {
    struct mg_http *http;
    struct mg_sub *sub;
    struct mg_event *big; /* an event that goes out in pieces */
    size_t big_at;        /* bytes of its text that went out */
    char *types;          /* comma-separated filter or NULL */
    struct mg_id thread;
    uint64_t wrote_ns; /* the last write */
    uint64_t stuck_ns; /* since when the peer takes nothing; 0: it does */
    int stuck_left;    /* of mg_io_taken */
    bool ended;        /* the last chunk is written */
    bool last;         /* an event that ends the stream has been taken */
};

void mg_sse_free(struct mg_sse *s)
{
    if (!s)
        return;
    mg_metric_sub(&s->http->metrics.sse, 1);
    mg_sub_free(s->sub);
    mg_event_unref(s->big);
    free(s->types);
    free(s);
}

bool mg_stream_wants(struct mg_sv types, const struct mg_id *thread, const struct mg_event *e)
{
    /* What ends the session ends the streams of all its threads. */
    if (!mg_sv_eq(e->thread_id, mg_id_sv(thread)) && !mg_sv_eqz(e->type, "session.deleted"))
        return false;
    if (e->seq == 0)
        return true; /* previews were asked for */
    if (types.len == 0)
        return true;
    while (types.len)
        if (mg_sv_eq(mg_sv_trim(mg_sv_split(&types, ',')), e->type))
            return true;
    return false;
}

/* ---- frames into the scratch buffer ---- */

/* Line ends inside of JSON text are white space, but would end an SSE line. */
void mg_stream_text(struct mg_buf *b, struct mg_sv text)
{
    size_t at = b->len;
    if (mg_buf_sv(b, text) < 0)
        return;
    for (size_t i = at; i < b->len; i++)
        b->ptr[i] = b->ptr[i] == '\n' || b->ptr[i] == '\r' ? ' ' : b->ptr[i];
}

static void append_begin(struct mg_buf *b, const struct mg_event *e)
{
    (void)mg_buf_str(b, "event: ");
    (void)mg_buf_sv(b, e->type);
    if (e->seq) {
        (void)mg_buf_str(b, "\nid: ");
        (void)mg_buf_sv(b, e->id);
    }
    (void)mg_buf_str(b, "\ndata: ");
}

static void append_piece(struct mg_buf *b, struct mg_sse *s)
{
    struct mg_sv rest = mg_sv_from(s->big->json, s->big_at);
    size_t n = rest.len < MG_HTTP_STREAM_WRITE ? rest.len : MG_HTTP_STREAM_WRITE;
    mg_stream_text(b, mg_sv_n(rest.ptr, n));
    s->big_at += n;
    if (n < rest.len)
        return;
    (void)mg_buf_str(b, "\n\n");
    mg_event_unref(s->big);
    s->big = NULL;
}

static bool ends_stream(const struct mg_event *e)
{
    return e->seq && (mg_sv_eqz(e->type, "session.deleted") || mg_sv_eqz(e->type, "session.status_terminated"));
}

static void append_event(struct mg_buf *b, struct mg_sse *s, struct mg_event *e)
{
    append_begin(b, e);
    if (e->json.len > MG_HTTP_STREAM_WRITE) {
        s->big = e;
        s->big_at = 0;
        append_piece(b, s);
        return;
    }
    mg_stream_text(b, e->json);
    (void)mg_buf_str(b, "\n\n");
    mg_event_unref(e);
}

/* Puts together one write. True when there may be more. */
static bool gather(struct mg_conn *c, struct mg_buf *b)
{
    struct mg_sse *s = c->sse;
    bool live;
    while (b->len < MG_HTTP_STREAM_WRITE && !s->ended) {
        if (s->big) {
            append_piece(b, s);
            continue;
        }
        enum mg_sub_end end = 0;
        struct mg_event *e = s->last ? NULL : mg_sub_next(s->sub, &live, &end);
        if (!e && !end && !s->last)
            return false;
        if (!e) {
            s->ended = true;
            continue;
        }
        s->last = ends_stream(e);
        if (mg_stream_wants(mg_sv_of(s->types), &s->thread, e)) {
            append_event(b, s, e);
            mg_metric_add(&c->http->metrics.sse_events, 1);
        } else {
            mg_event_unref(e);
        }
    }
    return !s->ended;
}

static void write_chunk(struct mg_conn *c, struct mg_buf *b)
{
    struct mg_sse *s = c->sse;
    char head[32];
    size_t n = b->len - CHUNK_HEAD;
    if (n) {
        (void)snprintf(head, sizeof(head), "%06x\r\n", (unsigned)(n & 0xffffff));
        memcpy(b->ptr, head, CHUNK_HEAD);
        (void)mg_buf_str(b, "\r\n");
    } else {
        mg_buf_reset(b);
    }
    if (s->ended)
        (void)mg_buf_str(b, "0\r\n\r\n");
    if (!mg_buf_ok(b) || (b->len && !mg_io_send(c, b->ptr, b->len))) {
        mg_conn_kill(c);
        return;
    }
    s->wrote_ns = mg_now_ns();
    if (s->ended)
        mg_conn_linger(c);
}

static struct mg_buf *scratch(struct mg_conn *c)
{
    struct mg_buf *b = &c->http->scratch;
    mg_buf_reset(b);
    (void)mg_buf_append(b, "        ", CHUNK_HEAD);
    return b;
}

/* ms until silence would be too long; the wheel may be two ticks late. */
static unsigned until_ping(const struct mg_conn *c)
{
    uint64_t quiet_ms = (mg_now_ns() - c->sse->wrote_ns) / 1000000 + 2 * MG_WHEEL_TICK_MS;
    return quiet_ms < c->http->limits.keepalive_ms ? c->http->limits.keepalive_ms - (unsigned)quiet_ms : 0;
}

static void arm_ping(struct mg_conn *c)
{
    mg_conn_arm(c, until_ping(c));
}

static void stuck(struct mg_conn *c)
{
    if (c->sse->stuck_ns == 0) {
        c->sse->stuck_ns = mg_now_ns();
        c->sse->stuck_left = INT_MAX;
        (void)mg_io_taken(c, &c->sse->stuck_left);
        mg_conn_arm(c, STUCK_LOOK_MS);
    }
    mg_io_want_write(c);
}

void mg_sse_pump(struct mg_conn *c)
{
    if (mg_io_choked(c)) {
        stuck(c);
        return;
    }
    if (c->sse->stuck_ns) {
        c->sse->stuck_ns = 0;
        arm_ping(c);
    }
    struct mg_buf *b = scratch(c);
    bool more = gather(c, b);
    if (b->len > CHUNK_HEAD || c->sse->ended)
        write_chunk(c, b);
    if (more && !c->dead)
        mg_io_want_write(c); /* one write for each time that the socket has room */
}

/* ---- life ---- */

static void ready(void *ctx)
{
    mg_conn_ready(ctx);
}

static void open_sub(struct mg_conn *c, const struct mg_stream_spec *spec)
{
    struct mg_sse *s = mg_xcalloc(1, sizeof(*s));
    const struct mg_sub_opts o = {
        .session = spec->session,
        .key_id = spec->key_id,
        .after_seq = spec->after_seq,
        .deltas_message = spec->deltas_message,
        .deltas_thinking = spec->deltas_thinking,
        .ready = ready,
        .ctx = c,
    };
    s->types = spec->types.len ? mg_xstrndup(spec->types.ptr, spec->types.len) : NULL;
    s->thread = spec->thread;
    s->http = c->http;
    c->sse = s;
    s->sub = mg_sub_new(c->http->opts.hub, &o);
    mg_metric_add(&c->http->metrics.sse, 1);
}

void mg_sse_start(struct mg_conn *c, struct mg_call *call)
{
    struct mg_buf *b = &c->http->scratch;
    const struct mg_response_head head = {.status = 200, .request_id = &call->req.request_id, .keep_alive = false};
    open_sub(c, call->res.stream);
    c->state = MG_CONN_SSE;
    mg_buf_done(&c->in);
    mg_io_small_buffer(c);
    /* A peer that vanished answers nothing, and the pings fit its buffer for hours. Later than our own look at a stuck one, which is counted. */
    mg_io_unacked_limit(c, c->http->limits.send_ms + 2 * STUCK_LOOK_MS);
    mg_buf_reset(b);
    mg_response_begin(b, &head);
    (void)mg_buf_str(
        b, "content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
           /* nginx heeds no no-transform, but compresses nothing that has an encoding */
           "content-encoding: identity\r\n"
           "transfer-encoding: chunked\r\n\r\n");
    if (!mg_io_send(c, b->ptr, b->len)) {
        mg_conn_kill(c);
        return;
    }
    c->sse->wrote_ns = mg_now_ns();
    mg_io_rx(c, true); /* its end is how a client that went away is seen */
    arm_ping(c);
    mg_conn_ready(c);
    mg_http_wake(c->http);
}

static void send_text(struct mg_conn *c, const char *text)
{
    struct mg_buf *b = scratch(c);
    (void)mg_buf_str(b, text);
    write_chunk(c, b);
}

/* Keeps paths awake that cut at silence, and finds readers that take nothing. */
void mg_sse_timer(struct mg_conn *c)
{
    struct mg_sse *s = c->sse;
    const struct mg_http_limits *l = &c->http->limits;
    if (mg_io_choked(c) && s->stuck_ns == 0)
        stuck(c);
    uint64_t now = mg_now_ns(); /* not before what stuck() noted */
    if (s->stuck_ns && mg_io_taken(c, &s->stuck_left))
        s->stuck_ns = now;
    if (s->stuck_ns && now - s->stuck_ns >= (uint64_t)l->send_ms * 1000000) {
        mg_metric_add(&c->http->metrics.slow_closed, 1);
        mg_conn_kill(c);
        return;
    }
    /* A ping between the pieces of an event would be inside of its line. */
    if (until_ping(c) == 0 && !s->stuck_ns && !s->big)
        send_text(c, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    if (!c->dead && !s->stuck_ns)
        arm_ping(c);
    else if (!c->dead)
        mg_conn_arm(c, STUCK_LOOK_MS);
}

void mg_sse_drain(struct mg_conn *c)
{
    if (mg_io_choked(c) || c->sse->big) {
        mg_conn_kill(c); /* the end of the chunks is missing, so the client knows that it was cut off */
        return;
    }
    c->sse->ended = true;
    send_text(c, ": the server is restarting, connect again\n\n");
}
