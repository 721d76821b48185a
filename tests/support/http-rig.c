#include "support/http-rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/principal.h"
#include "events/hub.h"
#include "http/stream.h"
#include "json/json.h"
#include "unit/unit.h"

enum {
    LOG_MAX = 20000,
    DRAIN_MS = 10000, /* more than any handler of a test takes */
};

struct rig *rig;

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

/* ---- the rig of a test ---- */

int http_up(void **state)
{
    (void)state;
    rig = rig_start(NULL);
    return 0;
}

int http_down(void **state)
{
    (void)state;
    rig_stop(rig);
    rig = NULL;
    return 0;
}

void http_restart(const struct mg_http_limits *limits)
{
    rig_stop(rig);
    rig = rig_start(limits);
}

void rig_wait_metric(struct rig *r, const char *line)
{
    struct mg_buf m = MG_BUF_INIT(65536);
    uint64_t until = mg_now_ns() + RIG_WAIT_S * UINT64_C(1000000000);
    do {
        mg_buf_reset(&m);
        mg_http_metrics(r->http, &m);
        if (mg_now_ns() > until)
            fail_msg("%s never came: %s", line, m.ptr);
        (void)sched_yield();
    } while (!strstr(m.ptr, line));
    mg_buf_done(&m);
}

void *rig_drain(void *r)
{
    mg_http_drain(rig_http(r), DRAIN_MS);
    return NULL;
}
