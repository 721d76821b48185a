/* One request: its head is copied out of the connection's input, its handler runs, its answer's bytes are made. */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/principal.h"
#include "http/query.h"
#include "http/response.h"
#include "http/server.h"

enum {
    ANSWER_MAX =
        512 * 1024 * 1024, /* bytes of an answer: what handlers build has limits of its own, this is the last one */
};

static const char *const method_names[] = {
    [MG_GET] = "GET",   [MG_POST] = "POST",       [MG_DELETE] = "DELETE",
    [MG_HEAD] = "HEAD", [MG_OPTIONS] = "OPTIONS", [MG_METHOD_OTHER] = "other",
};

/* Headers that handlers see. */
static const struct {
    struct mg_sv name;
    size_t offset; /* of a struct mg_sv in struct mg_http_req */
} known[] = {
    {MG_SV("content-type"), offsetof(struct mg_http_req, content_type)},
    {MG_SV("authorization"), offsetof(struct mg_http_req, authorization)},
    {MG_SV("x-api-key"), offsetof(struct mg_http_req, api_key)},
    {MG_SV("anthropic-version"), offsetof(struct mg_http_req, anthropic_version)},
    {MG_SV("anthropic-beta"), offsetof(struct mg_http_req, anthropic_beta)},
    {MG_SV("anthropic-worker-id"), offsetof(struct mg_http_req, worker_id)},
    {MG_SV("last-event-id"), offsetof(struct mg_http_req, last_event_id)},
    {MG_SV("origin"), offsetof(struct mg_http_req, origin)},
    {MG_SV("user-agent"), offsetof(struct mg_http_req, user_agent)},
};

static struct mg_sv *known_slot(struct mg_http_req *req, struct mg_sv name)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (name.len == known[i].name.len && mg_sv_eq_nocase(name, known[i].name))
            return (struct mg_sv *)((char *)req + known[i].offset);
    return NULL;
}

static void copy_headers(struct mg_http_req *req, const struct mg_head *h)
{
    for (int i = 0; i < h->n; i++) {
        struct mg_sv *to = known_slot(req, h->line[i].name);
        if (!to)
            continue;
        if (to->ptr && to == &req->anthropic_beta) /* a list: repeated lines are one value */
            *to = mg_arena_printf(req->arena, "%.*s,%.*s", MG_SV_ARG(*to), MG_SV_ARG(h->line[i].value));
        else if (!to->ptr)
            *to = mg_arena_sv(req->arena, h->line[i].value);
    }
}

static struct mg_sv remote_text(struct mg_arena *a, const struct mg_conn *c)
{
    char text[INET6_ADDRSTRLEN];
    if (c->family == AF_UNSPEC || !inet_ntop(c->family, c->addr, text, sizeof(text)))
        return MG_SV("local");
    return mg_arena_sv(a, mg_sv_of(text));
}

static void refuse(struct mg_call *call, int status)
{
    call->status = status;
    mg_metric_add(&call->http->metrics.refused, 1);
}

static bool check_stream(struct mg_call *call)
{
    if (call->req.http10) {
        (void)mg_err_set(&call->err, MG_EINVAL,
                         "an event stream needs HTTP/1.1 (behind nginx: proxy_http_version 1.1)");
        return false;
    }
    if (call->req.method == MG_HEAD) {
        (void)mg_err_set(&call->err, MG_EMETHOD, "an event stream has no HEAD; use GET");
        (void)snprintf(call->allow, sizeof(call->allow), "GET");
        return false;
    }
    return true;
}

static bool is_json_type(struct mg_sv type)
{
    struct mg_sv rest = type;
    struct mg_sv base = mg_sv_trim(mg_sv_split(&rest, ';'));
    return mg_sv_eq_nocase(base, MG_SV("application/json")) || (base.len > 5 && mg_sv_ends(base, "+json"));
}

/* Judged only where there is a body: bodiless POSTs carry no type. */
static bool check_type(struct mg_call *call)
{
    if (call->req.content_type.len == 0 || call->route->flags & MG_ROUTE_ANY_TYPE ||
        is_json_type(call->req.content_type))
        return true;
    (void)mg_err_set(&call->err, MG_EMEDIA, "content-type: '%.*s' is not taken here; send application/json",
                     (int)(call->req.content_type.len < 100 ? call->req.content_type.len : 100),
                     call->req.content_type.ptr);
    return false;
}

static bool check_body(struct mg_call *call, const struct mg_head *h)
{
    struct mg_sv encoding = mg_head_get(h, "content-encoding");
    if (h->length > call->body_max) {
        (void)mg_err_set(&call->err, MG_ETOOBIG, "the body has %llu bytes; this endpoint takes at most %llu",
                         (unsigned long long)h->length, (unsigned long long)call->body_max);
        return false;
    }
    if (encoding.len && !mg_sv_eq_nocase(encoding, MG_SV("identity")) && (h->length || h->chunked)) {
        (void)mg_err_code(&call->err, MG_EINVAL, "request_body_encoding_unsupported",
                          "content-encoding: compressed bodies are not taken; send the body as it is");
        return false;
    }
    return h->length == 0 || check_type(call);
}

/* Everything that can be judged before the body. */
static bool check_head(struct mg_call *call, const struct mg_head *h)
{
    struct mg_http_req *req = &call->req;
    if (mg_path_parse(req->arena, req->path, req, &call->err) < 0)
        return false;
    if (mg_router_find(call->http->router, req, &call->route, call->allow, &call->err) < 0)
        return false;
    if (call->route->body_max)
        call->body_max = call->route->body_max;
    if (mg_query_parse(req->arena, mg_arena_sv(req->arena, h->query), req, &call->err) < 0 ||
        mg_query_check(req, call->route->query, &call->err) < 0)
        return false;
    if (!check_body(call, h))
        return false;
    if (call->route->flags & MG_ROUTE_STREAM && !check_stream(call))
        return false;
    return !(call->route->flags & MG_ROUTE_WS) || mg_ws_check(call, h);
}

static void call_run(struct mg_task *t, struct mg_pg *pg);
static void call_done(struct mg_task *t);

static struct mg_call *call_alloc(struct mg_conn *c)
{
    struct mg_call *call = mg_xcalloc(1, sizeof(*call));
    call->http = c->http;
    call->conn = c;
    call->task = (struct mg_task){.http = c->http, .run = call_run, .done = call_done};
    call->start_ns = mg_now_ns();
    call->req.start_ns = call->start_ns;
    mg_list_init(&call->parked);
    mg_list_init(&call->rung);
    call->taken = MG_BUF_INIT(MG_FEED_MAX);
    call->body_max = MG_HTTP_BODY_MAX;
    call->out = MG_BUF_INIT(ANSWER_MAX);
    call->req.arena = mg_arena_new();
    call->req.request_id = mg_id_new("req");
    call->req.app = c->http->opts.app;
    return call;
}

struct mg_call *mg_call_new(struct mg_conn *c)
{
    const struct mg_head *h = &c->http->head;
    struct mg_call *call = call_alloc(c);
    struct mg_http_req *req = &call->req;
    req->method = h->method;
    req->path = mg_arena_sv(req->arena, h->path);
    req->http10 = h->http10;
    req->remote = remote_text(req->arena, c);
    copy_headers(req, h);
    call->keep_alive = h->keep_alive && !atomic_load_explicit(&c->http->draining, memory_order_relaxed);
    if (!check_head(call, h))
        refuse(call, call->status ? call->status : mg_http_status(call->err.rc));
    call->body = MG_BUF_INIT(call->body_max);
    c->secret = call->route && call->route->flags & MG_ROUTE_SECRET;
    if (c->secret) { /* in one piece: growing would leave copies */
        (void)mg_buf_reserve(&call->body, h->chunked ? call->body_max : h->length < call->body_max ? h->length : 0);
        mg_arena_set_secret(req->arena);
    }
    return call;
}

void mg_call_free(struct mg_call *call)
{
    if (!call)
        return;
    pthread_mutex_lock(&call->http->lock);
    mg_list_del(&call->rung);
    pthread_mutex_unlock(&call->http->lock);
    mg_feed_free(call->in);
    mg_feed_free(call->out_feed);
    mg_buf_done(&call->taken);
    call->http->bodies -= call->counted;
    mg_metric_sub(&call->http->metrics.body_bytes, call->counted);
    if (call->route && call->route->flags & MG_ROUTE_SECRET)
        mg_buf_wipe(&call->body);
    mg_buf_done(&call->body);
    mg_buf_done(&call->out);
    mg_buf_done(&call->res.body);
    mg_arena_free(call->req.arena);
    free(call);
}

static void log_failure(const struct mg_call *call)
{
    if (call->status < 500 || call->status == 505)
        return;
    mg_log(call->status == 503 ? MG_WARN : MG_ERROR, "request failed", MG_F_STR("request", call->req.request_id.s),
           MG_F_STR("method", method_names[call->req.method]), MG_F_SV("path", call->req.path),
           MG_F_INT("status", call->status), MG_F_STR("error", call->err.text));
}

/* Makes the answer's bytes; on the thread that ran the handler. */
static void write_answer(struct mg_call *call)
{
    struct mg_response_head head = {
        .status = call->status,
        .request_id = &call->req.request_id,
        .keep_alive = call->keep_alive,
        .http10 = call->req.http10,
        .no_body = call->req.method == MG_HEAD,
    };
    if (call->err.rc < 0)
        mg_response_error(&call->out, &head, &call->err, call->allow);
    else if (!call->res.stream && !call->upgrade)
        mg_response_write(&call->out, &head, &call->res, mg_buf_view(&call->res.body));
    mg_buf_done(&call->res.body);
    log_failure(call);
}

static mg_rc handle(struct mg_call *call)
{
    const struct mg_http_opts *o = &call->http->opts;
    if (!(call->route->flags & MG_ROUTE_PUBLIC) && o->auth) {
        mg_rc rc = o->auth(&call->req, call->route, &call->err);
        if (rc < 0)
            return rc;
    }
    if (call->upgrade)
        return mg_ws_run(call);
    return call->route->handler(&call->req, &call->res, &call->err);
}

/* A body that could not be had is the reason, whatever the handler made of it; one that was not read to its end leaves a connection that
 * cannot go on. */
static void judge_body(struct mg_call *call, mg_rc *rc)
{
    int status = 0;
    pthread_mutex_lock(&call->in->lock);
    if (!call->in->ended)
        call->keep_alive = false;
    pthread_mutex_unlock(&call->in->lock);
    if (mg_feed_fault(call->in, &status, &call->err)) {
        *rc = call->err.rc;
        call->keep_alive = false;
    }
}

static void run_handler(struct mg_call *call)
{
    call->res.body = MG_BUF_INIT(ANSWER_MAX);
    mg_rc rc = handle(call);
    if (call->in)
        judge_body(call, &rc);
    if (call->out_feed) { /* the answer is on its way */
        call->err.rc = rc < 0 || call->left ? MG_EIO : MG_OK;
        return;
    }
    if (rc < 0) {
        call->err.rc = rc;
        call->status = mg_http_status(rc);
        if (call->in)
            (void)mg_feed_fault(call->in, &call->status, &call->err);
        if (call->err.text[0] == '\0')
            (void)mg_err_set(&call->err, rc, "the request could not be served");
    } else {
        call->err.rc = 0;
        call->status = call->upgrade ? 101 : call->res.status ? call->res.status : 200;
    }
    if (rc >= 0 && !mg_buf_ok(&call->res.body)) {
        (void)mg_err_set(&call->err, MG_EINTERNAL, "the answer is larger than this server sends");
        call->status = 500;
    }
    write_answer(call);
}

static void call_run(struct mg_task *t, struct mg_pg *pg)
{
    struct mg_call *call = mg_container_of(t, struct mg_call, task);
    call->req.pg = pg;
    run_handler(call);
    call->req.pg = NULL;
}

/* Whether it waits now. News that came while its handler ran makes it run again. */
static bool parks(struct mg_call *call)
{
    if (call->err.rc < 0 || call->res.park.ms == 0 || atomic_load_explicit(&call->http->draining, memory_order_relaxed))
        return false;
    if (mg_park(call)) {
        mg_conn_arm(call->conn, call->res.park.ms);
        mg_io_rx(call->conn, true); /* its end is how a client that went away is seen */
    } else {
        mg_call_again(call);
    }
    return true;
}

/* The connection takes the answer over, becomes a stream, or waits. */
void mg_call_deliver(struct mg_call *call)
{
    struct mg_conn *c = call->conn;
    if (!c || c->dead) {
        if (c)
            c->call = NULL;
        mg_call_free(call);
        return;
    }
    if (call->out_feed) {
        if (call->err.rc < 0) {
            mg_conn_kill(c); /* shorter than it said: the client must not take it for whole */
            return;
        }
        mg_feed_end(call->out_feed);
        mg_conn_feed(c);
        return;
    }
    if (parks(call))
        return;
    c->call = NULL;
    if (call->upgrade && call->err.rc >= 0 && !mg_ws_admit(call)) {
        refuse(call, mg_http_status(call->err.rc));
        write_answer(call);
    }
    mg_metrics_request(&c->http->metrics, call->status, mg_now_ns() - call->start_ns);
    if (call->err.rc >= 0 && call->upgrade) {
        mg_ws_start(c, call);
    } else if (call->err.rc >= 0 && call->res.stream) {
        mg_sse_start(c, call);
    } else {
        c->out = call->out;
        call->out = MG_BUF_INIT(ANSWER_MAX);
        c->close_after = !call->keep_alive;
        mg_call_free(call);
        mg_conn_answer(c);
        return;
    }
    mg_call_free(call);
}

static void call_done(struct mg_task *t)
{
    struct mg_call *call = mg_container_of(t, struct mg_call, task);
    call->running = false;
    mg_call_deliver(call);
}

static void submit(struct mg_call *call)
{
    struct mg_conn *c = call->conn;
    mg_park_begin(call);
    if (!call->in)
        mg_io_rx(c, false);
    call->running = true;
    if (mg_task_submit(c->http, &call->task, call->route->flags & MG_ROUTE_TRANSFER) == 0)
        return;
    call->running = false;
    (void)mg_err_set(&call->err, MG_EUNAVAIL, "the server has more requests than it can queue; try again");
    call->err.retry_after_s = 1;
    call->keep_alive = call->keep_alive && !call->in;
    refuse(call, 503);
    write_answer(call);
    mg_call_deliver(call);
}

void mg_call_start(struct mg_call *call)
{
    struct mg_conn *c = call->conn;
    c->state = MG_CONN_WAIT;
    mg_wheel_cancel(&c->timer);
    if (call->in) { /* its handler has it already */
        mg_feed_end(call->in);
        mg_io_rx(c, false);
        return;
    }
    if (call->err.rc >= 0 && call->body.len && !check_type(call))
        refuse(call, mg_http_status(call->err.rc));
    if (call->err.rc < 0) {
        write_answer(call);
        mg_call_deliver(call);
        return;
    }
    call->req.body = mg_buf_view(&call->body);
    if (call->route->flags & MG_ROUTE_INLINE) {
        run_handler(call);
        mg_call_deliver(call);
        return;
    }
    submit(call);
}

void mg_call_again(struct mg_call *call)
{
    mg_buf_done(&call->out);
    call->out = MG_BUF_INIT(ANSWER_MAX);
    mg_buf_done(&call->res.body);
    call->res = (struct mg_http_res){0};
    call->err = (struct mg_err){0};
    call->status = 0;
    call->req.principal = NULL;
    mg_wheel_cancel(&call->conn->timer);
    submit(call);
}

void mg_call_refuse(struct mg_conn *c, int status, const struct mg_err *err)
{
    struct mg_call *call = c->call ? c->call : call_alloc(c);
    c->call = call;
    if (call->running) { /* the handler's thread writes the answer */
        c->state = MG_CONN_WAIT;
        mg_wheel_cancel(&c->timer);
        mg_io_rx(c, false);
        mg_feed_break(call->in, status, err);
        return;
    }
    call->err = *err;
    call->keep_alive = false;
    refuse(call, status);
    c->state = MG_CONN_WAIT;
    mg_wheel_cancel(&c->timer);
    write_answer(call);
    mg_call_deliver(call);
}

/* ---- calls with feeds ---- */

void mg_call_feed(struct mg_call *call)
{
    call->in = mg_feed_new();
    submit(call);
}

void mg_call_orphan(struct mg_call *call)
{
    call->conn = NULL;
    if (call->in)
        mg_feed_break(call->in, 0, NULL);
    pthread_mutex_lock(&call->http->lock);
    struct mg_feed *out = call->out_feed;
    call->gone = true;
    pthread_mutex_unlock(&call->http->lock);
    if (out)
        mg_feed_break(out, 0, NULL);
}

void mg_call_begin(struct mg_call *call, struct mg_feed *out)
{
    struct mg_http *h = call->http;
    pthread_mutex_lock(&h->lock);
    call->out_feed = out;
    bool gone = call->gone;
    pthread_mutex_unlock(&h->lock);
    if (gone)
        mg_feed_break(out, 0, NULL);
    else
        mg_call_ring(call);
}

void mg_call_ring(struct mg_call *call)
{
    struct mg_http *h = call->http;
    pthread_mutex_lock(&h->lock);
    if (mg_list_empty(&call->rung))
        mg_list_add_tail(&h->rung, &call->rung);
    pthread_mutex_unlock(&h->lock);
    mg_loop_signal(h);
}

static struct mg_call *next_rung(struct mg_http *h)
{
    struct mg_call *call = NULL;
    pthread_mutex_lock(&h->lock);
    if (!mg_list_empty(&h->rung)) {
        call = mg_container_of(h->rung.next, struct mg_call, rung);
        mg_list_del(&call->rung);
    }
    pthread_mutex_unlock(&h->lock);
    return call;
}

void mg_call_rung(struct mg_http *h)
{
    for (struct mg_call *call; (call = next_rung(h));) {
        struct mg_conn *c = call->conn;
        if (!c || c->dead)
            continue;
        pthread_mutex_lock(&h->lock);
        bool answers = call->out_feed;
        pthread_mutex_unlock(&h->lock);
        if (answers)
            mg_conn_feed(c);
        else if (c->state == MG_CONN_BODY)
            mg_conn_body_wanted(c);
    }
}
