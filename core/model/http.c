/* A Messages endpoint over HTTP behind model.h.
 *
 * Concurrency: a call belongs to the loop's thread from its start to on_done; the rest never changes after open. */
#include <stdio.h>

#include "base/clock.h"
#include "json/json.h"
#include "model/backend.h"
#include "model/failure.h"
#include "net/loop.h"
#include "net/retry-after.h"

enum {
    ERROR_BODY_MAX = 64 * 1024, /* bytes of a failed answer that are read for its message */
    SHOWN_MAX = 384,            /* bytes of the endpoint's own words in a message */
    TYPE_MAX = 64,              /* bytes of a content type or an error type that are shown */
};

#define API_VERSION "2023-06-01"

struct http {
    struct mg_model base;
    struct mg_net *net;
    char *url;
    char *key;
    bool bearer;
    uint32_t connect_ms, idle_ms, total_ms;
};

enum body_kind { BODY_UNKNOWN, BODY_STREAM, BODY_JSON, BODY_FAILURE, BODY_FOREIGN };

struct call {
    struct http *m;
    struct mg_model_call_opts opts; /* body and beta are not used */
    struct mg_message *message;
    struct mg_sse sse;
    struct mg_buf body; /* of a failure or a non-streaming answer */
    enum body_kind kind;
    int status;
    char type[TYPE_MAX]; /* content type */
    struct mg_retry_after retry;
    uint32_t retry_after_ms; /* what it says */
};

static void on_delta(void *ctx, int block_index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct call *c = ctx;
    if (c->opts.on_delta)
        c->opts.on_delta(c->opts.ctx, block_index, kind, start, text);
}

/* ctx: what the events of one chunk said. */
struct chunk {
    struct call *c;
    bool alive; /* an event that was no ping */
};

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    struct chunk *chunk = *(struct chunk **)ctx;
    enum mg_message_step step = mg_message_event(chunk->c->message, data);
    chunk->alive |= step != MG_MESSAGE_PING;
    return step != MG_MESSAGE_END;
}

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct call *c = ctx;
    c->status = status;
    if (mg_sv_eq_nocase(name, MG_SV("content-type")))
        mg_model_clean(c->type, sizeof(c->type), value, MG_SV(""));
    else
        (void)mg_retry_after_header(&c->retry, name, value, MG_MODEL_RETRY_AFTER_MAX_S * 1000u, &c->retry_after_ms);
}

/* By status and content type; without a type, by the first character. */
static enum body_kind kind_of(const struct call *c, const char *p, size_t n)
{
    struct mg_sv type = mg_sv_of(c->type), text = mg_sv_trim(mg_sv_n(p, n));
    size_t end = mg_sv_find(type, ';');
    type = mg_sv_trim(mg_sv_n(type.ptr, end));
    if (c->status != 200)
        return BODY_FAILURE;
    if (mg_sv_eq_nocase(type, MG_SV("text/event-stream")))
        return BODY_STREAM;
    if (mg_sv_eq_nocase(type, MG_SV("application/json")))
        return BODY_JSON;
    if (type.len > 0)
        return BODY_FOREIGN;
    if (text.len == 0)
        return BODY_UNKNOWN;
    return text.ptr[0] == '{' ? BODY_JSON : text.ptr[0] == '<' ? BODY_FOREIGN : BODY_STREAM;
}

static enum mg_net_go take_stream(struct call *c, const char *p, size_t n)
{
    struct chunk chunk = {.c = c};
    struct chunk *at = &chunk;
    struct mg_err err = {0};
    c->sse.ctx = &at;
    mg_rc rc = mg_sse_feed(&c->sse, p, n, &err);
    c->sse.ctx = NULL;
    if (rc == MG_ETOOBIG)
        mg_message_fail(c->message, MG_MODEL_PERMANENT, "the model endpoint's answer is too large: %.300s", err.text);
    if (rc < 0 && !mg_message_ended(c->message))
        mg_message_fail(c->message, MG_MODEL_RETRY_SERVER, "%.400s", err.text);
    return rc < 0 && rc != MG_ECANCELED ? MG_NET_STOP : chunk.alive ? MG_NET_GO : MG_NET_GO_IDLE;
}

static enum mg_net_go take_body(struct call *c, const char *p, size_t n)
{
    if (c->kind == BODY_UNKNOWN)
        c->kind = kind_of(c, p, n);
    if (c->kind == BODY_STREAM)
        return take_stream(c, p, n);
    if (c->kind == BODY_JSON)
        return mg_buf_append(&c->body, p, n) == MG_OK ? MG_NET_GO : MG_NET_STOP;
    size_t room = ERROR_BODY_MAX - c->body.len;
    if (mg_buf_append(&c->body, p, n < room ? n : room) < 0)
        return MG_NET_STOP;
    return c->body.len < ERROR_BODY_MAX ? MG_NET_GO : MG_NET_STOP;
}

static struct mg_sv secret(const struct call *c)
{
    return mg_sv_of(c->m->key ? c->m->key : "");
}

static void fail_status(struct call *c)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *root = NULL;
    struct mg_sv type = MG_SV(""), text = MG_SV("");
    if (mg_json_parse(a, mg_buf_view(&c->body), &mg_json_raw_limits, &root, NULL) == MG_OK) {
        type = mg_json_get_str(a, mg_json_get(root, "error"), "type");
        text = mg_json_get_str(a, mg_json_get(root, "error"), "message");
    }
    char shown[SHOWN_MAX], shown_type[TYPE_MAX];
    mg_model_clean(shown, sizeof(shown), text.len > 0 ? text : mg_buf_view(&c->body), secret(c));
    mg_model_clean(shown_type, sizeof(shown_type), type, secret(c));
    const char *hint =
        c->status >= 300 && c->status < 400 ? " (redirects are not followed: set the endpoint's final URL)" : "";
    mg_message_fail(c->message, mg_model_fail_of(c->status, type, text), "the model endpoint answered %d%s%s%s%s%s%s",
                    c->status, shown_type[0] ? " " : "", shown_type, shown[0] ? ": " : "", shown, hint,
                    c->status == 401 ? " (check the API key)" : "");
}

/* A body of status 200 that is neither a stream nor JSON. */
static void fail_foreign(struct call *c)
{
    char shown[128];
    mg_model_clean(shown, sizeof(shown), mg_buf_view(&c->body), secret(c));
    mg_message_fail(c->message, MG_MODEL_RETRY_SERVER,
                    "the model endpoint answered 200 with %s instead of an event stream: %s (is there a proxy or a "
                    "login page in between?)",
                    c->type[0] ? c->type : "something else", shown);
}

/* The request did not get its whole answer. */
static void fail_transport(struct call *c, const struct mg_net_result *r)
{
    char shown[SHOWN_MAX];
    mg_model_clean(shown, sizeof(shown), mg_sv_of(r->text), secret(c));
    if (r->rc == MG_ECANCELED)
        mg_message_fail(c->message, MG_MODEL_CANCELED, "the model call was cancelled");
    else if (r->rc == MG_ETOOBIG)
        mg_message_fail(c->message, MG_MODEL_PERMANENT, "the model endpoint's answer is too large: %s", shown);
    else if (r->rc == MG_EINVAL)
        mg_message_fail(c->message, MG_MODEL_PERMANENT, "the model request cannot be sent: %s", shown);
    else if (r->rc == MG_ETIMEOUT && mg_message_events(c->message) > 0)
        mg_message_fail(c->message, MG_MODEL_RETRY_SERVER, "the model endpoint fell silent in mid-answer: %s", shown);
    else
        mg_message_fail(c->message, MG_MODEL_RETRY_SERVER, "the model endpoint cannot be reached or broke off: %s",
                        shown);
}

static void conclude(struct call *c, const struct mg_net_result *r)
{
    bool stopped_by_us =
        r->rc == MG_ECANCELED && (c->kind == BODY_FAILURE || c->kind == BODY_FOREIGN) && c->body.len >= ERROR_BODY_MAX;
    if (mg_message_ended(c->message))
        return;
    if (r->rc != MG_OK && !stopped_by_us)
        fail_transport(c, r);
    else if (r->status != 200)
        fail_status(c);
    else if (c->kind == BODY_FOREIGN)
        fail_foreign(c);
    else if (c->kind == BODY_JSON)
        (void)mg_message_whole(c->message, mg_buf_view(&c->body));
    else if (r->bytes == 0)
        mg_message_fail(c->message, MG_MODEL_RETRY_SERVER, "the model endpoint answered 200 with an empty body");
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct call *c = ctx;
    enum mg_net_go go = take_body(c, p, n);
    return go != MG_NET_STOP && mg_message_ended(c->message) ? MG_NET_DRAIN : go;
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct call *c = ctx;
    c->status = r->status;
    conclude(c, r);
    struct mg_model_result *out = mg_message_finish(c->message);
    mg_model_clean(out->message, sizeof(out->message), mg_sv_of(out->message), secret(c));
    if (out->fail == MG_MODEL_RETRY_RATE || out->fail == MG_MODEL_RETRY_OVERLOADED ||
        out->fail == MG_MODEL_RETRY_SERVER)
        out->retry_after_ms = c->retry_after_ms;
    mg_sse_done(&c->sse);
    mg_buf_done(&c->body);
    struct mg_model_call_opts opts = c->opts;
    free(c);
    opts.on_done(opts.ctx, out);
}

static int fill_headers(const struct http *m, const struct mg_model_call_opts *o, struct mg_net_header *h, char *bearer,
                        size_t size)
{
    int n = 0;
    h[n++] = (struct mg_net_header){MG_SV("content-type"), MG_SV("application/json")};
    h[n++] = (struct mg_net_header){MG_SV("accept"), MG_SV("text/event-stream")};
    h[n++] = (struct mg_net_header){MG_SV("anthropic-version"), MG_SV(API_VERSION)};
    if (m->key && m->bearer) {
        (void)snprintf(bearer, size, "Bearer %s", m->key);
        h[n++] = (struct mg_net_header){MG_SV("authorization"), mg_sv_of(bearer)};
    } else if (m->key) {
        h[n++] = (struct mg_net_header){MG_SV("x-api-key"), mg_sv_of(m->key)};
    }
    if (o->beta.len > 0)
        h[n++] = (struct mg_net_header){MG_SV("anthropic-beta"), o->beta};
    return n;
}

static uint64_t http_start(struct mg_model *base, const struct mg_model_call_opts *o)
{
    enum { HEADERS = 6, BEARER_MAX = 8 * 1024 };
    struct http *m = mg_container_of(base, struct http, base);
    struct call *c = mg_xcalloc(1, sizeof(*c));
    struct mg_net_header headers[HEADERS];
    mg_autofree char *bearer = m->bearer ? mg_xmalloc(BEARER_MAX) : NULL;
    int n = fill_headers(m, o, headers, bearer, BEARER_MAX);
    c->m = m;
    c->opts = *o;
    c->message = mg_message_new(on_delta, c);
    c->body = MG_BUF_INIT(MG_MODEL_RESPONSE_MAX);
    mg_sse_init(&c->sse, MG_MODEL_LINE_MAX, on_event, NULL);
    uint64_t id = mg_net_start(m->net, &(struct mg_net_req){
                                           .method = MG_SV("POST"),
                                           .url = mg_sv_of(m->url),
                                           .headers = headers,
                                           .n_headers = n,
                                           .body = o->body,
                                           .connect_ms = m->connect_ms,
                                           .idle_ms = m->idle_ms,
                                           .total_ms = m->total_ms,
                                           .max_bytes = MG_MODEL_RESPONSE_MAX,
                                           .on_header = on_header,
                                           .on_body = on_body,
                                           .on_done = on_done,
                                           .ctx = c,
                                       });
    if (bearer)
        mg_wipe(bearer, BEARER_MAX);
    return id;
}

static void http_cancel(struct mg_model *base, uint64_t id)
{
    mg_net_cancel(mg_container_of(base, struct http, base)->net, id);
}

static void http_close(struct mg_model *base)
{
    struct http *m = mg_container_of(base, struct http, base);
    mg_net_close(m->net);
    if (m->key)
        mg_wipe(m->key, strlen(m->key));
    free(m->key);
    free(m->url);
    free(m);
}

static const struct mg_model_ops http_ops = {.close = http_close, .start = http_start, .cancel = http_cancel};

/* ".../v1/messages" for a base with or without "/v1" and trailing slashes. */
static char *messages_url(const char *base)
{
    struct mg_sv s = mg_sv_trim(mg_sv_of(base));
    while (s.len > 0 && s.ptr[s.len - 1] == '/')
        s.len--;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4096);
    bool with_version = mg_sv_ends(s, "/v1");
    mg_buf_printf(&b, "%.*s%s/messages", MG_SV_ARG(s), with_version ? "" : "/v1");
    return mg_buf_steal(&b, NULL);
}

struct mg_model *mg_model_http_open(const struct mg_model_opts *o, struct mg_err *err)
{
    const struct mg_net_opts net = {
        .name = "mg-model", .ca_file = o->ca_file, .proxy = o->proxy && o->proxy[0] ? o->proxy : NULL};
    mg_autofree char *url = messages_url(o->base_url);
    struct http *m = mg_xcalloc(1, sizeof(*m));
    mg_rc rc = mg_net_check_url(mg_sv_of(url), &net, err);
    if (rc < 0)
        rc = mg_err_wrap(err, rc, "the model endpoint's base URL");
    if (rc < 0 || mg_net_open(&net, &m->net, err) < 0) {
        free(m);
        return NULL;
    }
    m->base.ops = &http_ops;
    m->url = mg_steal(&url);
    m->key = o->api_key && o->api_key[0] ? mg_xstrdup(o->api_key) : NULL;
    m->bearer = o->bearer;
    m->connect_ms = o->connect_ms ? o->connect_ms : MG_MODEL_CONNECT_MS;
    m->idle_ms = o->idle_ms ? o->idle_ms : MG_MODEL_IDLE_MS;
    m->total_ms = o->total_ms ? o->total_ms : MG_MODEL_TOTAL_MS;
    return &m->base;
}
