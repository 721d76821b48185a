/* libwebsockets as a client. One service loop on the calling thread; a timer brings the ticks. */
#include "cmd/cli-ws.h"

#include <libwebsockets.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cmd/cli-loop.h"
#include "json/write.h"

enum {
    CREDIT = 256,             /* events that may be on their way */
    CREDIT_STEP = CREDIT / 2, /* granted anew each time so many have come */
    TICK_MS = 100,
    PING_MS = 10000,    /* of silence, before we ask */
    SILENCE_MS = 25000, /* of silence, after which the connection is taken for dead */
    CONNECT_MS = 15000,
    BACKOFF_FIRST_MS = 200,
    BACKOFF_MAX_MS = 5000,
    OUT_MAX = 4096, /* bytes of one message of ours */
    REASON_MAX = 256,
};

struct link {
    struct mg_cli_stream *stream;
    struct mg_cli_url url;
    struct lws *wsi;
    lws_sorted_usec_list_t timer;
    struct lws_context *context;
    struct mg_buf in; /* the message that comes in pieces */
    bool up, subscribed, over;
    bool ended; /* the stream is over, with status */
    int status;
    unsigned got; /* events since the last grant */
    uint64_t heard_ns, pinged_ns, begun_ns;
    unsigned wait_ms; /* the server's wish for the next try; 0: none */
    char reason[REASON_MAX];
};

static void end_stream(struct link *l, int status)
{
    l->ended = l->over = true;
    l->status = status;
}

static void lose(struct link *l, const char *reason)
{
    if (!l->over)
        (void)snprintf(l->reason, sizeof(l->reason), "%s", reason);
    l->over = true;
}

/* ---- what the server says ---- */

static void take_event(struct link *l, const struct mg_json *event)
{
    struct mg_cli_stream *s = l->stream;
    struct mg_sv id = mg_json_get_str(s->cli->arena, event, "id");

    l->got++;
    if (mg_sv_eqz(id, s->after))
        return;
    if (id.len && id.len < sizeof(s->after))
        (void)snprintf(s->after, sizeof(s->after), "%.*s", MG_SV_ARG(id));
    if (!s->on_event(s->ctx, event->raw, event))
        end_stream(l, MG_CLI_OK);
}

static void take_end(struct link *l, struct mg_sv reason)
{
    if (mg_sv_eqz(reason, "deleted"))
        end_stream(l, MG_CLI_OK);
    else if (mg_sv_eqz(reason, "revoked"))
        end_stream(l, mg_cli_fail("the API key was revoked"));
    else
        lose(l, "the server ended the subscription");
}

static void take_error(struct link *l, const struct mg_json *v)
{
    struct mg_arena *a = l->stream->cli->arena;
    const struct mg_json *e = mg_json_get(v, "error");
    struct mg_sv type = mg_json_get_str(a, e, "type"), message = mg_json_get_str(a, e, "message");

    if (mg_sv_eqz(type, "api_error") || mg_sv_eqz(type, "overloaded_error") || mg_sv_eqz(type, "rate_limit_error") ||
        mg_sv_eqz(type, "timeout_error"))
        lose(l, mg_arena_strdup(a, message));
    else
        end_stream(l, mg_cli_fail("%.*s: %.*s", MG_SV_ARG(type), MG_SV_ARG(message)));
}

/* A message has an arena of its own: a stream may run for days. */
static void take_message(struct link *l, struct mg_sv text)
{
    struct mg_cli *c = l->stream->cli;
    struct mg_arena *whole_run = c->arena;
    struct mg_json *v = NULL;
    int64_t wait = 0;

    c->arena = mg_arena_new();
    if (mg_json_parse(c->arena, text, &mg_json_raw_limits, &v, NULL) < 0) {
        lose(l, "the server sent something that is not JSON");
    } else {
        struct mg_sv op = mg_json_get_str(c->arena, v, "op");
        if (mg_sv_eqz(op, "event") && mg_json_get(v, "event"))
            take_event(l, mg_json_get(v, "event"));
        else if (mg_sv_eqz(op, "end"))
            take_end(l, mg_json_get_str(c->arena, v, "reason"));
        else if (mg_sv_eqz(op, "error"))
            take_error(l, v);
        else if (mg_sv_eqz(op, "bye") && mg_json_i64(mg_json_get(v, "reconnect_in_ms"), &wait) && wait >= 0 &&
                 wait < 60000)
            l->wait_ms = (unsigned)wait + 1;
    }
    mg_arena_free(c->arena);
    c->arena = whole_run;
}

static void take_piece(struct link *l, const char *p, size_t n, bool last)
{
    l->heard_ns = mg_now_ns();
    l->pinged_ns = 0;
    if (mg_buf_append(&l->in, p, n) < 0) {
        lose(l, "a message of the server is too large");
        return;
    }
    if (!last)
        return;
    take_message(l, mg_buf_view(&l->in));
    mg_buf_reset(&l->in);
}

/* ---- what we say ---- */

/* The next message that is due, or false. */
static bool compose(struct link *l, struct mg_buf *out)
{
    const struct mg_cli_stream *s = l->stream;
    struct mg_jw w = mg_jw_to(out);

    if (l->subscribed && l->got < CREDIT_STEP && !l->pinged_ns)
        return false;
    mg_jw_obj(&w);
    if (!l->subscribed) {
        mg_jw_kstrz(&w, "op", "subscribe");
        mg_jw_kint(&w, "sub", 1);
        mg_jw_kstrz(&w, "session_id", s->session_id);
        mg_jw_kstrz(&w, "after", s->after);
        mg_jw_kint(&w, "credit", CREDIT);
        l->subscribed = true;
    } else if (l->got >= CREDIT_STEP) {
        mg_jw_kstrz(&w, "op", "credit");
        mg_jw_kint(&w, "sub", 1);
        mg_jw_kint(&w, "n", l->got);
        l->got = 0;
    } else {
        mg_jw_kstrz(&w, "op", "ping");
        mg_jw_kint(&w, "ref", 1);
    }
    mg_jw_obj_end(&w);
    return true;
}

static int write_one(struct link *l, struct lws *wsi)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(OUT_MAX + LWS_PRE);
    static const char ROOM[LWS_PRE] = "";
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(OUT_MAX);
    bool was_subscribed = l->subscribed;

    if (!compose(l, &text))
        return 0;
    mg_buf_append(&b, ROOM, LWS_PRE);
    mg_buf_sv(&b, mg_buf_view(&text));
    if (!mg_buf_ok(&b) || lws_write(wsi, (unsigned char *)b.ptr + LWS_PRE, text.len, LWS_WRITE_TEXT) < (int)text.len)
        return -1;
    if (!was_subscribed && l->stream->on_link)
        l->stream->on_link(l->stream->ctx, NULL, 0);
    return 0;
}

/* ---- libwebsockets ---- */

static void refused(struct link *l, struct lws *wsi, const char *text)
{
    unsigned status = lws_http_client_http_response(wsi);

    if (status == 401)
        end_stream(l, mg_cli_fail("the server refuses the API key (401)"));
    else if (status >= 400 && status < 500 && status != 429)
        end_stream(l,
                   mg_cli_fail("the server refuses the WebSocket (%u): is it a Mango server, and this address its own?",
                               status));
    else
        lose(l, text && *text ? text : "the connection failed");
}

static int add_header(struct link *l, struct lws *wsi, void *in, size_t len)
{
    unsigned char **p = in, *end = *p + len;
    const char *key = l->stream->cli->api_key;

    return lws_add_http_header_by_name(wsi, (const unsigned char *)"x-api-key:", (const unsigned char *)key,
                                       (int)strlen(key), p, end);
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct link *l = lws_context_user(lws_get_context(wsi));

    (void)user;
    switch ((int)reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_header(l, wsi, in, len);
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        l->up = true;
        l->heard_ns = mg_now_ns();
        lws_callback_on_writable(wsi);
        break;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        take_piece(l, in, len, lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0);
        if (l->got >= CREDIT_STEP)
            lws_callback_on_writable(wsi);
        return l->over ? -1 : 0;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        if (write_one(l, wsi) < 0)
            return -1;
        if (!l->subscribed || l->got >= CREDIT_STEP)
            lws_callback_on_writable(wsi);
        break;
    case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
        l->heard_ns = mg_now_ns();
        break;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        refused(l, wsi, in);
        l->wsi = NULL;
        break;
    case LWS_CALLBACK_CLIENT_CLOSED:
        lose(l, "the server closed the connection");
        l->wsi = NULL;
        break;
    default:
        break;
    }
    return 0;
}

static void tick(lws_sorted_usec_list_t *timer)
{
    struct link *l = lws_container_of(timer, struct link, timer);
    uint64_t now = mg_now_ns(), silent_ms = (now - (l->up ? l->heard_ns : l->begun_ns)) / 1000000;

    lws_sul_schedule(l->context, 0, &l->timer, tick, TICK_MS * LWS_US_PER_MS);
    if (l->stream->on_tick && !l->stream->on_tick(l->stream->ctx))
        end_stream(l, MG_CLI_INTERRUPTED);
    if (!l->up && silent_ms > CONNECT_MS)
        lose(l, "the connection takes too long");
    else if (l->up && silent_ms > SILENCE_MS)
        lose(l, "the connection is silent");
    else if (l->up && silent_ms > PING_MS && !l->pinged_ns && l->wsi) {
        l->pinged_ns = now;
        lws_callback_on_writable(l->wsi);
    }
}

static const struct lws_protocols PROTOCOLS[] = {
    {.name = "mango.v1", .callback = callback, .rx_buffer_size = 65536},
    {.name = NULL},
};

static bool open_link(struct link *l)
{
    const char *ca = secure_getenv("MANGO_CA_FILE");
    const struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .protocols = PROTOCOLS,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .user = l,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
        /* Proxies of the environment are not read, as by core/net. */
        .http_proxy_address = "",
        .client_ssl_ca_filepath = ca && *ca ? ca : NULL,
    };
    char path[sizeof(l->url.prefix) + 16], host[sizeof(l->url.host) + 16];

    l->context = lws_create_context(&info);
    if (!l->context)
        return false;
    (void)snprintf(path, sizeof(path), "%s/v1/stream", l->url.prefix);
    (void)snprintf(host, sizeof(host), strchr(l->url.host, ':') ? "[%s]:%d" : "%s:%d", l->url.host, l->url.port);
    const struct lws_client_connect_info ci = {
        .context = l->context,
        .address = l->url.host,
        .port = l->url.port,
        .path = path,
        .host = host,
        .protocol = "mango.v1",
        .ssl_connection = l->url.tls ? LCCSCF_USE_SSL : 0,
        .pwsi = &l->wsi,
    };
    lws_sul_schedule(l->context, 0, &l->timer, tick, TICK_MS * LWS_US_PER_MS);
    l->begun_ns = mg_now_ns();
    if (!lws_client_connect_via_info(&ci) && !l->over)
        lose(l, "the connection failed");
    return true;
}

/* One connection, to its end. */
static void follow(struct link *l)
{
    if (!open_link(l)) {
        end_stream(l, mg_cli_fail("libwebsockets does not start"));
        return;
    }
    while (!l->over && lws_service(l->context, 0) >= 0)
        ;
    lws_sul_cancel(&l->timer);
    l->over = true; /* callbacks of the teardown change nothing */
    lws_context_destroy(l->context);
    l->context = NULL;
    mg_buf_done(&l->in);
}

unsigned mg_cli_backoff_ms(unsigned n)
{
    unsigned base = n < 5 ? BACKOFF_FIRST_MS << n : BACKOFF_MAX_MS;

    return base / 2 + (unsigned)mg_rng_below(base / 2 + 1);
}

static bool wait_for(struct mg_cli_stream *s, unsigned ms)
{
    uint64_t end = mg_now_ns() + (uint64_t)ms * 1000000;

    while (mg_now_ns() < end) {
        if (s->on_tick && !s->on_tick(s->ctx))
            return false;
        (void)usleep(50000);
    }
    return true;
}

int mg_cli_stream(struct mg_cli_stream *s)
{
    struct mg_err err;
    struct mg_cli_url url;
    bool ever = false;

    if (!mg_cli_key(s->cli))
        return MG_CLI_ERROR;
    if (mg_cli_url_parse(mg_cli_base(s->cli), &url, &err) < 0)
        return mg_cli_fail("%s", err.text);
    lws_set_log_level(0, NULL);
    for (unsigned failures = 0;; failures++) {
        struct link l = {.stream = s, .url = url, .in = MG_BUF_INIT(MG_CLI_BODY_MAX)};
        follow(&l);
        if (l.ended)
            return l.status;
        if (l.subscribed) {
            failures = 0;
            ever = true;
        }
        if (!ever)
            return mg_cli_fail("%s: %s. Is mangod running there?", mg_arena_strdup(s->cli->arena, mg_cli_base(s->cli)),
                               l.reason);
        unsigned wait = l.wait_ms ? l.wait_ms : mg_cli_backoff_ms(failures);
        if (s->on_link)
            s->on_link(s->ctx, l.reason, wait);
        if (!wait_for(s, wait))
            return MG_CLI_INTERRUPTED;
    }
}

int mg_cli_stream_from_now(struct mg_cli_stream *s)
{
    const struct mg_json *page = NULL;
    struct mg_sv path = mg_arena_printf(s->cli->arena, "/v1/sessions/%s/events?order=desc&limit=1", s->session_id);
    int status = mg_cli_call(s->cli, "GET", path.ptr, MG_SV(""), &page);

    if (status != MG_CLI_OK)
        return status;
    struct mg_sv id = mg_json_get_str(s->cli->arena, mg_json_at(mg_json_get(page, "data"), 0), "id");
    (void)snprintf(s->after, sizeof(s->after), "%.*s", id.len ? (int)id.len : 5, id.len ? id.ptr : "start");
    return MG_CLI_OK;
}

bool mg_cli_loop_ok(void)
{
    const struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .options = LWS_SERVER_OPTION_LIBEV,
    };

    lws_set_log_level(0, NULL);
    struct lws_context *context = lws_create_context(&info);
    if (!context)
        return false;
    lws_context_destroy(context);
    return true;
}
