#include "http-rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "domain/principal.h"
#include "events/hub.h"
#include "http/stream.h"
#include "json/json.h"

enum { LOG_MAX = 20000 };

struct entry {
    struct mg_id session;
    int64_t seq;
    char *type, *json;
};

struct rig {
    struct mg_http *http;
    struct mg_hub *hub;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry log[LOG_MAX];
    int n;
    int held;
    bool released;
};

/* ---- the log ---- */

static struct mg_event *entry_event(const struct entry *e)
{
    char id[96];
    (void)snprintf(id, sizeof(id), "sevt_%s_%lld", e->session.s, (long long)e->seq);
    return mg_event_new(e->seq, mg_sv_of(id), mg_sv_of(e->type), MG_SV(""), mg_sv_of(e->json));
}

static int64_t head_of(const struct rig *r, const char *session)
{
    int64_t head = 0;
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->log[i].session.s, session) == 0)
            head = r->log[i].seq;
    return head;
}

static struct mg_event *append(struct rig *r, const char *session, const char *type, const char *json)
{
    pthread_mutex_lock(&r->lock);
    assert_true(r->n < LOG_MAX);
    struct entry *e = &r->log[r->n];
    assert_true(mg_id_from(mg_sv_of(session), &e->session));
    e->seq = head_of(r, session) + 1;
    e->type = mg_xstrdup(type);
    e->json = mg_xstrdup(json);
    r->n++;
    struct mg_event *ev = entry_event(e);
    pthread_mutex_unlock(&r->lock);
    return ev;
}

int64_t rig_event(struct rig *r, const char *session, const char *type, const char *json)
{
    struct mg_event *e = append(r, session, type, json);
    struct mg_id id;
    int64_t seq = e->seq;
    (void)mg_id_from(mg_sv_of(session), &id);
    mg_hub_publish(r->hub, &id, &e, 1);
    return seq;
}

int64_t rig_event_quietly(struct rig *r, const char *session, const char *type, const char *json)
{
    struct mg_event *e = append(r, session, type, json);
    int64_t seq = e->seq;
    mg_event_unref(e);
    return seq;
}

struct load {
    struct rig *r;
    struct mg_id session;
    int64_t after;
    int limit;
    uint64_t token;
};

static void load_job(void *arg, struct mg_pg *pg)
{
    struct load *l = arg;
    struct mg_event *out[MG_HUB_PAGE_EVENTS];
    int n = 0;
    (void)pg;
    pthread_mutex_lock(&l->r->lock);
    for (int i = 0; i < l->r->n && n < l->limit && n < MG_HUB_PAGE_EVENTS; i++)
        if (strcmp(l->r->log[i].session.s, l->session.s) == 0 && l->r->log[i].seq > l->after)
            out[n++] = entry_event(&l->r->log[i]);
    pthread_mutex_unlock(&l->r->lock);
    mg_hub_loaded(l->r->hub, l->token, out, n, MG_OK);
    free(l);
}

static void load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token)
{
    struct rig *r = ctx;
    struct load *l = mg_xmalloc(sizeof(*l));
    (void)max_bytes;
    *l = (struct load){.r = r, .session = *session, .after = after, .limit = limit, .token = token};
    if (mg_http_run(r->http, load_job, l) < 0) {
        free(l);
        mg_hub_loaded(r->hub, token, NULL, 0, MG_EUNAVAIL);
    }
}

static void wakeup(void *ctx)
{
    struct rig *r = ctx;
    if (r->http)
        mg_http_wake(r->http);
}

/* ---- routes ---- */

static mg_rc h_ping(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    (void)q;
    (void)err;
    return mg_buf_str(&s->body, "{\"ok\":true}");
}

static mg_rc h_echo(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    (void)err;
    return mg_buf_sv(&s->body, q->body);
}

/* The segments, parameters and query as the handler sees them. */
static mg_rc h_show(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    (void)err;
    (void)mg_buf_printf(&s->body, "param=%.*s", MG_SV_ARG(q->param[0]));
    for (int i = 0; i < q->n_query; i++)
        (void)mg_buf_printf(&s->body, " %.*s=%.*s", MG_SV_ARG(q->query[i].name), MG_SV_ARG(q->query[i].value));
    return mg_buf_printf(&s->body, " beta=%.*s", MG_SV_ARG(q->anthropic_beta));
}

static mg_rc h_fail(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    int64_t rc = 0;
    (void)s;
    (void)mg_sv_to_i64(q->param[0], &rc);
    return mg_err_code(err, (mg_rc)-rc, "some_code", "it \"failed\"");
}

static mg_rc h_hold(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    struct rig *r = q->app;
    (void)err;
    pthread_mutex_lock(&r->lock);
    r->held++;
    pthread_cond_broadcast(&r->changed);
    while (!r->released)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return mg_buf_str(&s->body, "{\"held\":true}");
}

static mg_rc h_large(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    (void)q;
    (void)err;
    for (int i = 0; i < 4 * 1024 * 1024 / 16; i++)
        (void)mg_buf_str(&s->body, "0123456789abcdef");
    return MG_OK;
}

static mg_rc resolve(struct mg_http_req *q, struct mg_sv session, struct mg_sv after, struct mg_stream_spec *spec,
                     struct mg_err *err)
{
    struct rig *r = q->app;
    const struct mg_principal *who = q->principal;
    char prefix[80];
    if (!mg_id_from(session, &spec->session) || mg_sv_starts(session, "missing"))
        return mg_err_set(err, MG_ENOTFOUND, "session '%.*s' does not exist", MG_SV_ARG(session));
    if (who)
        spec->key_id = who->key;
    pthread_mutex_lock(&r->lock);
    int64_t head = head_of(r, spec->session.s);
    pthread_mutex_unlock(&r->lock);
    int n = snprintf(prefix, sizeof(prefix), "sevt_%s_", spec->session.s);
    if (after.len == 0)
        spec->after_seq = head;
    else if (mg_sv_eqz(after, "start"))
        spec->after_seq = 0;
    else if (!mg_sv_starts(after, prefix) || !mg_sv_to_i64(mg_sv_from(after, (size_t)n), &spec->after_seq))
        return mg_err_set(err, MG_EINVAL, "after: '%.*s' is not an event of this session", MG_SV_ARG(after));
    return MG_OK;
}

static mg_rc h_stream(struct mg_http_req *q, struct mg_http_res *s, struct mg_err *err)
{
    struct mg_sv after = q->last_event_id.len ? q->last_event_id : mg_http_query(q, "after");
    struct mg_stream_spec *spec = mg_arena_new_of(q->arena, struct mg_stream_spec);
    spec->types = mg_http_query(q, "types");
    spec->deltas_message = mg_http_query_all(q, "event_deltas[]", NULL, 0) > 0;
    s->stream = spec;
    return resolve(q, q->param[0], after, spec, err);
}

static mg_rc ws_post(struct mg_http_req *q, struct mg_sv session, struct mg_sv body, struct mg_sv key,
                     struct mg_sv *ret_ids, struct mg_err *err)
{
    struct rig *r = q->app;
    struct mg_json *root = NULL;
    (void)key;
    mg_rc rc = mg_json_parse(q->arena, body, &mg_json_api_limits, &root, err);
    if (rc < 0)
        return rc;
    const struct mg_json *events = mg_json_get(root, "events");
    if (!mg_json_is(events, MG_JSON_ARRAY))
        return mg_err_set(err, MG_EINVAL, "events: must be an array");
    struct mg_sv ids = MG_SV("[");
    for (const struct mg_json *e = events->child; e; e = e->next) {
        char *name = mg_arena_strdup(q->arena, session);
        int64_t seq = rig_event(r, name, "user.message", mg_arena_strdup(q->arena, e->raw));
        ids = mg_arena_printf(q->arena, "%.*s%s\"sevt_%s_%lld\"", MG_SV_ARG(ids), ids.len > 1 ? "," : "", name,
                              (long long)seq);
    }
    *ret_ids = mg_arena_printf(q->arena, "%.*s]", MG_SV_ARG(ids));
    return MG_OK;
}

static mg_rc auth(struct mg_http_req *q, const struct mg_route *route, struct mg_err *err)
{
    struct mg_sv key = q->api_key;
    (void)route;
    if (mg_sv_eqz(mg_http_query(q, "ticket"), "t"))
        key = MG_SV("k1");
    if (!mg_sv_eqz(key, "k1") && !mg_sv_eqz(key, "k2"))
        return mg_err_set(err, MG_EAUTH, "x-api-key: is missing or not valid");
    struct mg_principal *p = mg_arena_new_of(q->arena, struct mg_principal);
    (void)mg_id_from(key, &p->key);
    q->principal = p;
    return MG_OK;
}

static const char *const show_query[] = {"limit", "statuses", "created_at[gte]", NULL};
static const char *const stream_query[] = {"after", "types", "event_deltas[]", "thread_id", "ticket", NULL};
static const char *const ticket_query[] = {"ticket", NULL};

static const struct mg_route routes[] = {
    {MG_GET, "/ping", h_ping, MG_ROUTE_PUBLIC | MG_ROUTE_INLINE, 0, NULL},
    {MG_GET, "/pong", h_ping, MG_ROUTE_PUBLIC, 0, NULL},
    {MG_POST, "/echo", h_echo, MG_ROUTE_PUBLIC, 8 * 1024 * 1024, NULL},
    {MG_POST, "/small", h_echo, MG_ROUTE_PUBLIC, 1000, NULL},
    {MG_POST, "/any", h_echo, MG_ROUTE_PUBLIC | MG_ROUTE_ANY_TYPE, 0, NULL},
    {MG_GET, "/show/{}", h_show, MG_ROUTE_PUBLIC, 0, show_query},
    {MG_GET, "/fail/{}", h_fail, MG_ROUTE_PUBLIC, 0, NULL},
    {MG_GET, "/hold", h_hold, MG_ROUTE_PUBLIC, 0, NULL},
    {MG_GET, "/large", h_large, MG_ROUTE_PUBLIC, 0, NULL},
    {MG_GET, "/private", h_ping, 0, 0, NULL},
    {MG_GET, "/v1/sessions/{}/events/stream", h_stream, MG_ROUTE_PUBLIC | MG_ROUTE_STREAM, 0, stream_query},
    {MG_GET, "/v1/sessions/{}/events/ws", NULL, MG_ROUTE_WS, 0, stream_query},
    {MG_GET, "/v1/stream", NULL, MG_ROUTE_WS, 0, ticket_query},
    {.pattern = NULL},
};

static const char *const origins[] = {"https://console.example", NULL};

static struct rig *start(const struct mg_http_limits *limits, const char *cert, const char *key)
{
    struct rig *r = mg_xcalloc(1, sizeof(*r));
    struct mg_err err = {0};
    const struct mg_hub_opts ho = {.wakeup = wakeup, .load = load, .ctx = r};
    struct mg_http_opts o = {
        .listen = "127.0.0.1:0",
        .routes = routes,
        .auth = auth,
        .threads = 3,
        .origins = origins,
        .node = "node_test",
        .resolve_stream = resolve,
        .ws_send = ws_post,
        .tls_cert = cert,
        .tls_key = key,
        .app = r,
    };
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    r->hub = mg_hub_new(&ho);
    o.hub = r->hub;
    if (limits)
        o.limits = *limits;
    if (mg_http_start(&o, &r->http, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

struct rig *rig_start(const struct mg_http_limits *limits)
{
    return start(limits, NULL, NULL);
}

struct rig *rig_start_tls(const char *cert, const char *key)
{
    return start(NULL, cert, key);
}

void rig_stop(struct rig *r)
{
    rig_release(r);
    mg_http_stop(r->http);
    mg_hub_free(r->hub);
    for (int i = 0; i < r->n; i++) {
        free(r->log[i].type);
        free(r->log[i].json);
    }
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->changed);
    free(r);
}

struct mg_http *rig_http(struct rig *r)
{
    return r->http;
}

struct mg_hub *rig_hub(struct rig *r)
{
    return r->hub;
}

int rig_port(const struct rig *r)
{
    return mg_http_port(r->http);
}

void rig_release(struct rig *r)
{
    pthread_mutex_lock(&r->lock);
    r->released = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void rig_held(struct rig *r, int n)
{
    pthread_mutex_lock(&r->lock);
    while (r->held < n)
        (void)pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

/* ---- the client ---- */

struct client *client_open(const struct rig *r)
{
    struct client *c = mg_xcalloc(1, sizeof(*c));
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)rig_port(r)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval tv = {.tv_sec = RIG_WAIT_S};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return c;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    (void)close(c->fd);
    free(c->buf);
    free(c);
}

void client_send(struct client *c, const char *bytes, size_t n)
{
    while (n) {
        ssize_t w = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (w < 0)
            return; /* the server closed: what it said is what the test looks at */
        bytes += w;
        n -= (size_t)w;
    }
}

void client_say(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

void client_drip(struct client *c, const char *text)
{
    for (; *text; text++)
        client_send(c, text, 1);
}

/* false: the end of the connection (or a reset). */
static bool more(struct client *c)
{
    if (c->eof)
        return false;
    if (c->cap - c->len < 65536) {
        c->cap = c->cap ? c->cap * 2 : 131072;
        c->buf = mg_xrealloc(c->buf, c->cap + 1);
    }
    ssize_t n = recv(c->fd, c->buf + c->len, c->cap - c->len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        c->buf[c->len] = '\0';
        fail_msg("nothing came for %d s; so far: %.2000s", RIG_WAIT_S, c->buf);
    }
    if (n <= 0) {
        c->eof = true;
        return false;
    }
    c->len += (size_t)n;
    c->buf[c->len] = '\0';
    return true;
}

static void take(struct client *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->len - n + 1);
    c->len -= n;
}

const char *client_until(struct client *c, const char *text)
{
    static char *got;
    char *at;
    while (c->len == 0 || !(at = memmem(c->buf, c->len, text, strlen(text))))
        if (!more(c))
            fail_msg("the connection ended before \"%s\"; so far: %.2000s", text, c->len ? c->buf : "");
    size_t n = (size_t)(at - c->buf) + strlen(text);
    free(got);
    got = mg_xstrndup(c->buf, n);
    take(c, n);
    return got;
}

bool client_ended(struct client *c)
{
    while (c->len == 0 && more(c))
        ;
    return c->len == 0 && c->eof;
}

static void need(struct client *c, size_t n)
{
    while (c->len < n)
        if (!more(c))
            fail_msg("the connection ended after %zu of %zu bytes", c->len, n);
}

const char *answer_header(const struct answer *a, const char *name)
{
    static char value[1024];
    char line[128];
    (void)snprintf(line, sizeof(line), "\r\n%s: ", name);
    const char *at = strcasestr(a->head, line);
    if (!at)
        return NULL;
    at += strlen(line);
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static void chunked_body(struct client *c, struct answer *a)
{
    for (;;) {
        size_t n = strtoul(client_until(c, "\r\n"), NULL, 16);
        need(c, n + 2);
        a->body = mg_xrealloc(a->body, a->len + n + 1);
        memcpy(a->body + a->len, c->buf, n);
        a->len += n;
        a->body[a->len] = '\0';
        take(c, n + 2);
        if (n == 0)
            return;
    }
}

struct answer *client_answer(struct client *c)
{
    struct answer *a = mg_xcalloc(1, sizeof(*a));
    (void)snprintf(a->head, sizeof(a->head), "%s", client_until(c, "\r\n\r\n"));
    if (sscanf(a->head, "HTTP/1.1 %d", &a->status) != 1)
        fail_msg("no status line: %s", a->head);
    a->body = mg_xcalloc(1, 1);
    const char *te = answer_header(a, "transfer-encoding");
    if (te) {
        chunked_body(c, a);
        return a;
    }
    const char *cl = answer_header(a, "content-length");
    a->len = cl ? strtoul(cl, NULL, 10) : 0;
    if (a->len == 0)
        return a;
    need(c, a->len);
    a->body = mg_xrealloc(a->body, a->len + 1);
    memcpy(a->body, c->buf, a->len);
    a->body[a->len] = '\0';
    take(c, a->len);
    return a;
}

void answer_free(struct answer *a)
{
    free(a->body);
    free(a);
}

/* ---- WebSocket ---- */

struct client *ws_open(struct rig *r, const char *path, const char *headers)
{
    char req[2048];
    struct client *c = client_open(r);
    (void)snprintf(req, sizeof(req),
                   "GET %s HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: keep-alive, Upgrade\r\n"
                   "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n",
                   path, headers);
    client_say(c, req);
    return c;
}

void ws_send_frame(struct client *c, int first_byte, const char *content, size_t n)
{
    static const unsigned char mask[4] = {0x12, 0x34, 0x56, 0x78};
    char *f = mg_xmalloc(n + 14);
    size_t h = 0;
    f[h++] = (char)first_byte;
    if (n < 126) {
        f[h++] = (char)(0x80 | n);
    } else if (n < 65536) {
        f[h++] = (char)(0x80 | 126);
        f[h++] = (char)(n >> 8);
        f[h++] = (char)n;
    } else {
        f[h++] = (char)(0x80 | 127);
        for (int i = 7; i >= 0; i--)
            f[h++] = (char)(n >> (8 * i));
    }
    memcpy(f + h, mask, 4);
    h += 4;
    for (size_t i = 0; i < n; i++)
        f[h + i] = (char)(content[i] ^ mask[i & 3]);
    client_send(c, f, h + n);
    free(f);
}

void ws_text(struct client *c, const char *text)
{
    ws_send_frame(c, 0x81, text, strlen(text));
}

const char *ws_frame(struct client *c, int *ret_opcode, size_t *ret_len, bool want_pings)
{
    static char *got;
    for (;;) {
        need(c, 2);
        size_t n = (unsigned char)c->buf[1], h = 2;
        assert_true(n < 128); /* a server's frames are not masked */
        int bytes = n == 126 ? 2 : n == 127 ? 8 : 0;
        need(c, h + (size_t)bytes);
        n = bytes ? 0 : n;
        for (int i = 0; i < bytes; i++)
            n = n << 8 | (unsigned char)c->buf[h++];
        need(c, h + n);
        *ret_opcode = c->buf[0] & 0x0f;
        *ret_len = n;
        free(got);
        got = mg_xcalloc(1, n + 1);
        memcpy(got, c->buf + h, n);
        take(c, h + n);
        if (*ret_opcode != 9 || want_pings)
            return got;
        ws_send_frame(c, 0x8a, got, n);
    }
}

const char *ws_expect_text(struct client *c)
{
    int opcode;
    size_t n;
    const char *text = ws_frame(c, &opcode, &n, false);
    if (opcode != 1)
        fail_msg("a frame of opcode %d came: %s", opcode, n > 2 ? text + 2 : "");
    return text;
}

int ws_expect_close(struct client *c)
{
    int opcode;
    size_t n;
    const char *text = ws_frame(c, &opcode, &n, false);
    if (opcode != 8)
        fail_msg("a frame of opcode %d came instead of a close: %.300s", opcode, text);
    return n < 2 ? 1005 : (unsigned char)text[0] << 8 | (unsigned char)text[1];
}
