/* WebSocket connections: the upgrade, frames in and out, pings, closing. What a client's messages mean is in ws-job.c,
 * what the server says in ws-stream.c and ws-say.c. */
#include "http/ws.h"

#include <limits.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "http/response.h"
#include "http/stream.h"
#include "http/ws-command.h"

enum {
    CONTROL_MAX = 2 * 1024 * 1024, /* bytes of answers that wait; reads stop at CONTROL_STOP */
    CONTROL_STOP = 64 * 1024,
    JOBS_STOP = 64, /* commands that wait for the database; reads stop */
    JOB_BYTES_STOP = 1024 * 1024,
    ACCEPT_LEN = 28, /* base64 of a SHA-1 */
    KEY_LEN = 24,
    TIMER_MS = 1000, /* between two looks at the ages of a connection */
};

/* ---- the upgrade ---- */

static bool refuse(struct mg_call *call, int status, mg_rc rc, const char *text)
{
    call->status = status;
    (void)mg_err_set(&call->err, rc, "%s", text);
    return false;
}

static bool origin_allowed(const struct mg_http *h, struct mg_sv origin, struct mg_sv host)
{
    struct mg_sv authority;
    for (const char *const *o = h->opts.origins; o && *o; o++)
        if (mg_sv_eq_nocase(origin, mg_sv_of(*o)) || strcmp(*o, "*") == 0)
            return true;
    if (mg_sv_starts(origin, "http://"))
        authority = mg_sv_from(origin, 7);
    else if (mg_sv_starts(origin, "https://"))
        authority = mg_sv_from(origin, 8);
    else
        return false;
    return mg_sv_eq_nocase(authority, host);
}

static void make_accept(struct mg_call *call, struct mg_sv key)
{
    char text[KEY_LEN + 40];
    unsigned char digest[20];
    char *out = mg_arena_alloc(call->req.arena, ACCEPT_LEN + 8);
    int n = snprintf(text, sizeof(text), "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", MG_SV_ARG(key));
    (void)lws_SHA1((const unsigned char *)text, (size_t)n, digest);
    (void)lws_b64_encode_string((const char *)digest, sizeof(digest), out, ACCEPT_LEN + 8);
    call->ws_accept = out;
}

bool mg_ws_check(struct mg_call *call, const struct mg_head *head)
{
    const struct mg_http *h = call->http;
    struct mg_sv key = mg_head_get(head, "sec-websocket-key");
    if (!h->opts.resolve_stream || !h->opts.hub)
        return refuse(call, 404, MG_ENOTFOUND, "this server has no event streams");
    if (call->req.method != MG_GET || !head->upgrade_websocket)
        return refuse(call, 426, MG_EINVAL,
                      "this endpoint is a WebSocket: connect with ws:// or wss:// (GET with Upgrade: websocket)");
    if (!mg_sv_eqz(mg_head_get(head, "sec-websocket-version"), "13"))
        return refuse(call, 400, MG_EINVAL, "sec-websocket-version: must be 13");
    if (key.len != KEY_LEN)
        return refuse(call, 400, MG_EINVAL, "sec-websocket-key: must be 24 characters of base64");
    if (head->length || head->chunked)
        return refuse(call, 400, MG_EINVAL, "an upgrade request has no body");
    if (call->req.origin.len && !origin_allowed(h, call->req.origin, mg_head_get(head, "host")))
        return refuse(call, 403, MG_EDENIED,
                      "origin: pages of this origin may not connect; the operator can allow it (http.origins)");
    if (mg_route_params(call->route) == 0 &&
        !mg_head_has_token(mg_head_get(head, "sec-websocket-protocol"), "mango.v1"))
        return refuse(call, 400, MG_EINVAL, "sec-websocket-protocol: offer the subprotocol mango.v1");
    make_accept(call, key);
    call->upgrade = true;
    return true;
}

static struct mg_sv joined_types(struct mg_http_req *req)
{
    struct mg_sv part[MG_STREAM_TYPES_MAX], all = MG_SV("");
    int n = mg_http_query_all(req, "types", part, MG_STREAM_TYPES_MAX);
    for (int i = 0; i < n && i < MG_STREAM_TYPES_MAX; i++)
        all = i ? mg_arena_printf(req->arena, "%.*s,%.*s", MG_SV_ARG(all), MG_SV_ARG(part[i])) : part[i];
    return all;
}

mg_rc mg_ws_run(struct mg_call *call)
{
    struct mg_http_req *req = &call->req;
    struct mg_sv kinds[16];
    if (mg_route_params(call->route) == 0)
        return MG_OK;
    struct mg_stream_spec *spec = mg_arena_new_of(req->arena, struct mg_stream_spec);
    int n = mg_http_query_all(req, "event_deltas", kinds, 16);
    for (int i = 0; i < n && i < 16; i++)
        if (!mg_ws_delta_kind(kinds[i], &spec->deltas_message, &spec->deltas_thinking))
            return mg_err_set(&call->err, MG_EINVAL, "event_deltas[]: must be agent.message or agent.thinking");
    struct mg_sv thread = mg_http_query(req, "thread_id");
    if (thread.len && !mg_id_from(thread, &spec->thread))
        return mg_err_set(&call->err, MG_EINVAL, "thread_id: is not an id");
    spec->types = joined_types(req);
    call->ws_spec = spec;
    struct mg_sv after = mg_http_query(req, "after");
    if (!after.ptr)
        after = MG_SV("");
    return call->http->opts.resolve_stream(req, req->param[0], after, spec, &call->err);
}

/* ---- sockets of a credential ---- */

struct key_count {
    unsigned n;
};

static const struct mg_principal *principal(const struct mg_call *call)
{
    return call->req.principal;
}

bool mg_ws_admit(struct mg_call *call)
{
    const struct mg_http *h = call->http;
    if (!principal(call))
        return true;
    const struct key_count *k = mg_map_get(h->key_sockets, mg_id_sv(&principal(call)->key));
    if (!k || k->n < h->limits.key_sockets_max)
        return true;
    (void)mg_err_set(&call->err, MG_ERATE,
                     "this key has %u WebSockets open, which is its limit; close some or use one for many sessions",
                     k->n);
    call->err.retry_after_s = 10;
    return false;
}

static void count_key(struct mg_ws *ws, int by)
{
    struct mg_map *m = ws->conn->http->key_sockets;
    struct mg_sv id = mg_id_sv(&ws->who.key);
    struct key_count *k = id.len ? mg_map_get(m, id) : NULL;
    if (id.len == 0)
        return;
    if (!k) {
        k = mg_xcalloc(1, sizeof(*k));
        mg_map_put(m, id, k);
    }
    k->n = (unsigned)((int)k->n + by);
    if (k->n == 0) {
        mg_map_del(m, id);
        free(k);
    }
}

/* ---- life ---- */

void mg_ws_start(struct mg_conn *c, struct mg_call *call)
{
    struct mg_ws *ws = mg_xcalloc(1, sizeof(*ws));
    struct mg_buf *b = &c->http->scratch;
    const struct mg_response_head head = {.status = 101, .request_id = &call->req.request_id, .keep_alive = true};
    ws->conn = c;
    ws->mux = call->ws_spec == NULL;
    ws->control = MG_BUF_INIT(CONTROL_MAX);
    if (principal(call))
        ws->who = *principal(call);
    ws->remote = mg_sv_n(mg_xstrndup(call->req.remote.ptr, call->req.remote.len), call->req.remote.len);
    mg_frame_init(&ws->in, MG_WS_MESSAGE_MAX);
    mg_list_init(&ws->subs);
    mg_list_init(&ws->turns);
    mg_list_init(&ws->jobs);
    c->ws = ws;
    c->state = MG_CONN_WS;
    count_key(ws, 1);
    mg_metric_add(&c->http->metrics.websockets, 1);
    mg_io_small_buffer(c);
    mg_buf_reset(b);
    mg_response_begin(b, &head);
    (void)mg_buf_printf(b, "upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: %s\r\n%s\r\n",
                        call->ws_accept, ws->mux ? "sec-websocket-protocol: mango.v1\r\n" : "");
    if (!ws->mux) { /* the subscription exists before the client hears of its success */
        struct mg_ws_sub *s = mg_ws_sub_new(ws, -1, call->ws_spec->types);
        ws->session = call->ws_spec->session;
        mg_ws_sub_open(ws, s, call->ws_spec);
    }
    if (!mg_io_send(c, b->ptr, b->len)) {
        mg_conn_kill(c);
        return;
    }
    ws->wrote_ns = mg_now_ns();
    if (ws->mux)
        mg_ws_hello(ws);
    mg_conn_arm(c, MG_WHEEL_TICK_MS);
    mg_ws_flow(ws);
    mg_conn_ready(c);
    mg_http_wake(c->http);
    if (c->in.len) { /* frames that came right behind the request */
        struct mg_buf early = c->in;
        c->in = MG_BUF_INIT(early.max);
        mg_ws_rx(c, early.ptr, early.len);
        mg_buf_done(&early);
    }
}

void mg_ws_free(struct mg_ws *ws)
{
    if (!ws)
        return;
    mg_ws_stream_free(ws);
    count_key(ws, -1);
    mg_metric_sub(&ws->conn->http->metrics.websockets, 1);
    mg_event_unref(ws->big);
    mg_frame_done(&ws->in);
    mg_buf_done(&ws->control);
    free((char *)ws->remote.ptr);
    free(ws);
}

void mg_ws_say(struct mg_ws *ws, struct mg_sv json)
{
    if (ws->closing)
        return;
    mg_frame_text(&ws->control, json);
    mg_conn_ready(ws->conn);
}

static void say_control(struct mg_ws *ws, enum mg_ws_opcode opcode, struct mg_sv content)
{
    mg_frame_begin(&ws->control, opcode, content.len);
    (void)mg_buf_sv(&ws->control, content);
    mg_conn_ready(ws->conn);
}

/* The close frame goes out behind what is queued, then the connection lingers. */
void mg_ws_close(struct mg_ws *ws, uint16_t code, const char *why)
{
    if (ws->closing)
        return;
    mg_frame_close(&ws->control, code, why);
    ws->closing = true;
    mg_io_rx(ws->conn, true);
    mg_conn_ready(ws->conn);
}

void mg_ws_flow(struct mg_ws *ws)
{
    bool stop = ws->control.len > CONTROL_STOP || ws->n_jobs > JOBS_STOP || ws->job_bytes > JOB_BYTES_STOP;
    mg_io_rx(ws->conn, ws->closing || !stop);
}

/* ---- input ---- */

static void on_control(struct mg_ws *ws)
{
    switch (ws->in.control_opcode) {
    case MG_WS_PING:
        /* A flood of them is answered only as far as the peer reads: reads stop when answers wait. */
        say_control(ws, MG_WS_PONG, mg_sv_n(ws->in.control, ws->in.control_len));
        break;
    case MG_WS_PONG:
        ws->ping_ns = 0;
        break;
    default:
        mg_ws_close(ws, mg_frame_close_code(&ws->in), "");
        break;
    }
}

void mg_ws_rx(struct mg_conn *c, const char *p, size_t n)
{
    struct mg_ws *ws = c->ws;
    struct mg_sv in = mg_sv_n(p, n);
    while (in.len && !ws->closing && !c->dead) {
        size_t used = 0;
        enum mg_frame_result r = mg_frame_feed(&ws->in, in, &used);
        in = mg_sv_from(in, used);
        if (r == MG_FRAME_CONTROL) {
            on_control(ws);
        } else if (r == MG_FRAME_MESSAGE) {
            mg_ws_message(ws, &ws->in.message);
            mg_buf_done(&ws->in.message);
        } else if (r == MG_FRAME_BAD) {
            mg_buf_done(&ws->in.message);
            mg_ws_close(ws, ws->in.close_code, ws->in.why);
        }
    }
    if (!ws->in.in_message)
        ws->begun_ns = 0;
    else if (ws->begun_ns == 0)
        ws->begun_ns = mg_now_ns();
    mg_ws_flow(ws);
    mg_ws_pump(c);
}

/* ---- output ---- */

static void stuck(struct mg_ws *ws)
{
    if (ws->stuck_ns == 0) {
        ws->stuck_ns = mg_now_ns();
        ws->stuck_left = INT_MAX;
        (void)mg_io_taken(ws->conn, &ws->stuck_left);
    }
    mg_io_want_write(ws->conn);
}

void mg_ws_pump(struct mg_conn *c)
{
    struct mg_ws *ws = c->ws;
    struct mg_buf *b = &c->http->scratch;
    if (c->dead || c->state != MG_CONN_WS)
        return;
    if (mg_io_choked(c)) {
        stuck(ws);
        return;
    }
    ws->stuck_ns = 0;
    mg_buf_reset(b);
    bool more = mg_ws_gather(ws, b);
    if (!mg_buf_ok(b) || !mg_buf_ok(&ws->control) || (b->len && !mg_io_send(c, b->ptr, b->len))) {
        mg_conn_kill(c);
        return;
    }
    if (ws->closing && ws->control.len == 0) {
        mg_conn_linger(c);
        return;
    }
    mg_ws_flow(ws);
    if (more)
        mg_io_want_write(c);
}

/* A reader that took nothing for so long is told why, if it ever reads again. */
static void slow(struct mg_ws *ws)
{
    struct mg_conn *c = ws->conn;
    struct mg_buf *b = &c->http->scratch;
    mg_metric_add(&c->http->metrics.slow_closed, 1);
    if (ws->big || ws->closing) { /* inside of a frame nothing else can be said */
        mg_conn_kill(c);
        return;
    }
    mg_buf_reset(b);
    mg_frame_close(b, MG_WS_CLOSE_SLOW, "the reader takes nothing; connect again with the last event seen");
    ws->closing = true;
    if (mg_io_send(c, b->ptr, b->len))
        mg_conn_linger(c);
    else
        mg_conn_kill(c);
}

static bool older(uint64_t since_ns, uint64_t now, unsigned ms)
{
    return since_ns && now - since_ns >= (uint64_t)ms * 1000000;
}

/* ms to the next look: a second, or less where a ping is due before. The wheel may be two ticks late. */
static unsigned until_look(const struct mg_ws *ws, uint64_t now)
{
    uint64_t quiet_ms = (now - ws->wrote_ns) / 1000000 + 2 * MG_WHEEL_TICK_MS;
    uint64_t left = quiet_ms < ws->conn->http->limits.keepalive_ms ? ws->conn->http->limits.keepalive_ms - quiet_ms : 0;
    return left < TIMER_MS ? (unsigned)left : TIMER_MS;
}

void mg_ws_timer(struct mg_conn *c)
{
    struct mg_ws *ws = c->ws;
    const struct mg_http_limits *l = &c->http->limits;
    if (mg_io_choked(c) && ws->stuck_ns == 0)
        stuck(ws);
    uint64_t now = mg_now_ns(); /* not before what stuck() noted */
    if (ws->stuck_ns && mg_io_taken(c, &ws->stuck_left))
        ws->stuck_ns = now;
    if (older(ws->stuck_ns, now, l->send_ms)) {
        slow(ws);
        return;
    }
    if (c->rx_off && ws->ping_ns)
        ws->ping_ns = now; /* its pong may be here, unread */
    if (older(ws->ping_ns, now, l->pong_ms))
        mg_ws_close(ws, MG_WS_CLOSE_SERVER, "no pong came");
    else if (older(ws->begun_ns, now, l->message_ms))
        mg_ws_close(ws, MG_WS_CLOSE_POLICY, "a message was begun and not finished in time");
    if (!ws->closing && older(ws->wrote_ns, now + 2 * MG_WHEEL_TICK_MS * UINT64_C(1000000), l->keepalive_ms) &&
        !ws->stuck_ns) {
        say_control(ws, MG_WS_PING, MG_SV(""));
        ws->wrote_ns = now;
        if (ws->ping_ns == 0)
            ws->ping_ns = now;
    }
    mg_conn_arm(c, until_look(ws, now));
}

void mg_ws_drain(struct mg_conn *c)
{
    struct mg_ws *ws = c->ws;
    if (ws->mux)
        mg_ws_bye(ws);
    mg_ws_close(ws, MG_WS_CLOSE_AWAY, "the server is restarting");
}

void mg_ws_revoke(struct mg_conn *c, const struct mg_id *key)
{
    struct mg_ws *ws = c->ws;
    if (strcmp(ws->who.key.s, key->s) != 0)
        return;
    ws->revoked = true;
    if (ws->n_subs == 0)
        mg_ws_close(ws, MG_WS_CLOSE_POLICY, "the credential is no longer valid");
}
