#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/content.h"
#include "opensandbox/opensandbox.h"

/* The program in the sandbox: its address, one command, one file in, one file out. What it says of a command's output is not
 * byte-exact (lines without their ends, no bytes that are no UTF-8): mango-rbox's lines pass it unharmed. */

enum {
    EVENT_MAX = 64 * 1024, /* bytes of one event; a line of mango-rbox has 8 KiB */
};

/* ---- its address ---- */

void endpoint_free(struct endpoint *e)
{
    for (uint64_t i = 0; i < e->n_headers; i++) {
        free(e->names[i]);
        free(e->values[i]);
    }
    free(e->url);
    *e = (struct endpoint){0};
}

static bool endpoint_copy(const struct endpoint *from, struct endpoint *to)
{
    *to = (struct endpoint){.url = strdup(from->url)};
    bool ok = to->url;
    for (uint64_t i = 0; i < from->n_headers && ok; i++) {
        to->names[i] = strdup(from->names[i]);
        to->values[i] = strdup(from->values[i]);
        to->n_headers++;
        ok = to->names[i] && to->values[i];
    }
    if (!ok)
        endpoint_free(to);
    return ok;
}

uint64_t endpoint_headers(const struct endpoint *e, struct mango_http_header *list)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < e->n_headers; i++)
        remote_header(list, &n, e->names[i], e->values[i]);
    return n;
}

/* No scheme, or one: "host:40123/proxy/44772". */
static bool read_endpoint(const struct osb *o, struct mango_sv body, struct endpoint *ret)
{
    text_auto struct text at = {0}, url = {0};
    uint64_t pos = 0;
    struct mango_sv name, value;
    if (!json_text(json_get(body, "endpoint"), &at) || at.bad || at.len == 0)
        return false;
    if (!strstr(at.ptr, "://"))
        text_printf(&url, "%s://", o->scheme);
    text_sv(&url, text_view(&at));
    while (url.len > 0 && url.ptr[url.len - 1] == '/')
        url.ptr[--url.len] = '\0';
    ret->url = url.bad ? NULL : strdup(url.ptr);
    struct mango_sv headers = json_get(body, "headers");
    while (json_kind(headers) == '{' && ret->n_headers < ENDPOINT_HEADERS && json_next(headers, &pos, &name, &value)) {
        text_auto struct text n = {0}, v = {0};
        if (!json_text(name, &n) || !json_text(value, &v) || n.bad || v.bad || n.len == 0 || v.len == 0)
            continue;
        ret->names[ret->n_headers] = sv_dup(text_view(&n));
        ret->values[ret->n_headers] = sv_dup(text_view(&v));
        ret->n_headers++;
    }
    return ret->url != NULL;
}

mango_status endpoint_get(struct osb *o, const struct mango_call *call, const char *id, int port, struct endpoint *ret)
{
    char path[ID_MAX + 96];
    struct api_res r;
    *ret = (struct endpoint){0};
    snprintf(path, sizeof(path), "/sandboxes/%s/endpoints/%d%s", id, port,
             o->server_proxy ? "?use_server_proxy=true" : "");
    mango_status s =
        api_call(o, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "tell the address of the sandbox", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "tell the address of the sandbox", MANGO_ERETRY);
    else if (s == MANGO_OK && !read_endpoint(o, r.body, ret)) {
        endpoint_free(ret);
        s = fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox gave no address of port %d of the sandbox", port);
    }
    api_free(o, &r);
    return s;
}

/* ---- its life ---- */

struct own *own_new(void)
{
    struct own *own = calloc(1, sizeof(*own));
    if (own)
        pthread_mutex_init(&own->lock, NULL);
    return own;
}

static void own_free(void *p)
{
    struct own *own = p;
    endpoint_free(&own->execd);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

static mango_status ping(struct osb *o, const struct mango_call *call, const struct endpoint *e)
{
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    text_auto struct text url = {0};
    struct remote_res r;
    text_printf(&url, "%s/ping", e->url);
    struct remote_req req = {.method = "GET",
                             .url = url.ptr,
                             .what = "reach the sandbox",
                             .flags = REMOTE_SINGLE | REMOTE_SAFE,
                             .ms = HEALTH_MS,
                             .headers = headers,
                             .n_headers = endpoint_headers(e, headers)};
    mango_status s = remote_call(&o->remote, call, &req, &r);
    if (s == MANGO_OK && !remote_good(&r))
        s = remote_fail(&o->remote, call, &req, &r, MANGO_ERETRY);
    remote_free(&o->remote, &r);
    return s;
}

/* The program may take long to come up after a creation: it is asked again until it answers. */
mango_status execd_wait(struct osb *o, const struct mango_call *call, const char *id, struct endpoint *e)
{
    struct mango_call own = remote_within(o->remote.host, call, READY_MS);
    for (;;) {
        mango_status s = endpoint_get(o, &own, id, EXECD_PORT, e);
        if (s == MANGO_OK)
            s = ping(o, &own, e);
        if (s == MANGO_OK)
            return s;
        endpoint_free(e);
        if (s != MANGO_ERETRY)
            return s;
        mango_status w = remote_wait(o->remote.host, &own, POLL_MS);
        if (w == MANGO_ETIMEOUT && (!call->deadline_ns || now_ns(o->remote.host) < call->deadline_ns))
            return fail(o->remote.host, call, MANGO_ERETRY, "execd in the sandbox does not answer after %d s",
                        READY_MS / 1000);
        struct seen seen; /* gone, or never to run: only the service says so */
        if (w < 0 || (w = sandbox_get(o, &own, id, &seen)) < 0)
            return w;
        if (state_over(&seen))
            return fail(o->remote.host, call, MANGO_EGONE, "the workspace is lost: the sandbox has ended (%s)",
                        seen.state);
    }
}

static mango_status execd_look(void *ctx, const struct mango_call *call, struct errands_box *b)
{
    struct osb *o = ctx;
    struct own *own = b->own;
    struct seen seen = {0};
    struct endpoint fresh = {0};
    mango_status s = sandbox_run(o, call, b->id, &seen);
    if (s == MANGO_OK)
        s = endpoint_get(o, call, b->id, EXECD_PORT, &fresh);
    if (s < 0)
        return s;
    pthread_mutex_lock(&own->lock);
    struct endpoint old = own->execd;
    own->execd = fresh;
    own->expires_us = seen.expires_us;
    pthread_mutex_unlock(&own->lock);
    endpoint_free(&old);
    return MANGO_OK;
}

/* In the middle of work: the timer is moved before half of it is gone. A failure is no reason to stop. */
static void keep_in_use(struct osb *o, const struct mango_call *call, struct errands_box *b)
{
    struct own *own = b->own;
    pthread_mutex_lock(&own->lock);
    int64_t expires = own->expires_us;
    pthread_mutex_unlock(&own->lock);
    if (!expires || !o->timeout_s || expires - service_now_us(o) > (int64_t)o->timeout_s * 500000)
        return;
    struct mango_call short_call = remote_within(o->remote.host, call, HEALTH_MS);
    if (sandbox_renew(o, &short_call, b->id, o->timeout_s, &expires) < 0)
        return;
    pthread_mutex_lock(&own->lock);
    own->expires_us = expires;
    pthread_mutex_unlock(&own->lock);
}

/* ---- one request to it ---- */

struct request {
    struct endpoint at;
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    struct text url;
    struct remote_req req;
};

static mango_status begin(struct osb *o, const struct mango_call *call, struct errands_box *b, const char *method,
                          const char *path, const char *what, struct request *q)
{
    struct own *own = b->own;
    *q = (struct request){0};
    keep_in_use(o, call, b);
    pthread_mutex_lock(&own->lock);
    bool ok = own->execd.url && endpoint_copy(&own->execd, &q->at);
    pthread_mutex_unlock(&own->lock);
    if (!ok)
        return fail(o->remote.host, call, MANGO_ERETRY, "the address of the sandbox is not known");
    text_printf(&q->url, "%s%s", q->at.url, path);
    q->req = (struct remote_req){.method = method,
                                 .url = q->url.ptr,
                                 .what = what,
                                 .headers = q->headers,
                                 .n_headers = endpoint_headers(&q->at, q->headers)};
    return q->url.bad ? fail(o->remote.host, call, MANGO_ERETRY, "out of memory") : MANGO_OK;
}

static void end(struct request *q)
{
    endpoint_free(&q->at);
    text_free(&q->url);
}

/* A 404 here is the program's, or a proxy's: it says nothing about the sandbox. */
static mango_status finish(struct osb *o, const struct mango_call *call, struct request *q, mango_status s,
                           struct remote_res *r)
{
    if (s == MANGO_OK && !remote_good(r))
        s = remote_fail(&o->remote, call, &q->req, r, MANGO_ERETRY);
    return s;
}

/* ---- a command ---- */

struct events {
    mango_sink_fn *sink;
    void *ctx;
    char *line;
    uint64_t len;
    bool skip, over;
    int code;
};

static void on_event(struct events *v, struct mango_sv text)
{
    text_auto struct text said = {0};
    if (text.len > 5 && memcmp(text.ptr, "data:", 5) == 0)
        text = (struct mango_sv){text.ptr + 5, text.len - 5};
    while (text.len > 0 && *text.ptr == ' ')
        text = (struct mango_sv){text.ptr + 1, text.len - 1};
    if (text.len == 0 || *text.ptr != '{' || !json_valid(text))
        return;
    if (json_is(text, "type", "stdout") && json_text(json_get(text, "text"), &said) && !said.bad) {
        text_add(&said, "\n");
        (void)v->sink(v->ctx, 1, said.ptr, said.len);
    } else if (json_is(text, "type", "execution_complete")) {
        v->over = true;
        v->code = 0;
    } else if (json_is(text, "type", "error")) {
        char value[32];
        v->over = true;
        v->code = 255; /* not a number: it could not be started, or was killed */
        if (json_copy(text, "error/evalue", value, sizeof(value)) && value[0] >= '0' && value[0] <= '9')
            v->code = (int)strtol(value, NULL, 10);
    }
}

/* Events are lines; blank ones between them, "data:" before them in some versions. The last one ends the exchange: the service
 * keeps the connection open for a while, and may not end it in order. */
static int32_t on_stream(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct events *v = ctx;
    (void)stream;
    for (uint64_t i = 0; i < n && !v->over; i++) {
        if (p[i] == '\n') {
            if (!v->skip)
                on_event(v, (struct mango_sv){v->line, v->len});
            v->len = 0;
            v->skip = false;
        } else if (v->len < EVENT_MAX) {
            v->line[v->len++] = p[i];
        } else {
            v->skip = true;
        }
    }
    return v->over;
}

static mango_status execd_command(void *ctx, const struct mango_call *call, struct errands_box *b, const char *line,
                                  uint32_t ms, mango_sink_fn *sink, void *sink_ctx, struct errands_end *ret)
{
    struct osb *o = ctx;
    struct request q;
    struct remote_res r = {0};
    text_auto struct text body = {0};
    struct events v = {.sink = sink, .ctx = sink_ctx, .line = malloc(EVENT_MAX)};
    mango_status s = begin(o, call, b, "POST", "/command", "run a command", &q);
    text_add(&body, "{\"command\":");
    text_jsonz(&body, line);
    text_printf(&body, ",\"background\":false,\"timeout\":%u}", ms);
    if (s == MANGO_OK && (!v.line || body.bad))
        s = fail(o->remote.host, call, MANGO_ERETRY, "out of memory");
    if (s == MANGO_OK) {
        q.req.flags = REMOTE_SAFE | REMOTE_STREAM; /* errands may come twice */
        q.req.ms = ms;
        q.req.idle_ms = STREAM_IDLE_MS;
        q.req.body = text_view(&body);
        q.req.sink = on_stream;
        q.req.sink_ctx = &v;
        s = finish(o, call, &q, remote_call(&o->remote, call, &q.req, &r), &r);
        ret->sent = r.sent;
        if (s == MANGO_OK && !v.over)
            s = fail(o->remote.host, call, MANGO_ERETRY, "the sandbox's answer to a command broke off");
        if (v.over) {
            ret->code = v.code;
            s = MANGO_OK;
        }
    }
    remote_free(&o->remote, &r);
    end(&q);
    free(v.line);
    return s;
}

/* ---- a file in ---- */

static mango_status execd_upload(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                                 mango_source_fn *source, void *source_ctx, int64_t len)
{
    struct osb *o = ctx;
    struct request q;
    struct remote_res r = {0};
    struct form f;
    text_auto struct text meta = {0};
    mango_status s = begin(o, call, b, "POST", "/files/upload", "take a file", &q);
    text_add(&meta, "{\"path\":");
    text_jsonz(&meta, path);
    text_add(&meta, ",\"mode\":600}");
    form_begin(&f, source, source_ctx);
    /* The part of the metadata must look like a file itself, or the service does not find it. */
    form_field(&f, "name=\"metadata\"; filename=\"metadata\"", "application/json", meta.bad ? "" : meta.ptr);
    form_file(&f, "name=\"file\"; filename=\"file\"");
    if (s == MANGO_OK && (f.bad || meta.bad))
        s = fail(o->remote.host, call, MANGO_EINVALID, "the workspace's path is too long");
    if (s == MANGO_OK) {
        q.req.flags = REMOTE_SINGLE | REMOTE_STREAM;
        q.req.type = f.type;
        q.req.source = form_read;
        q.req.source_ctx = &f;
        q.req.source_len = form_length(&f, len);
        s = finish(o, call, &q, remote_call(&o->remote, call, &q.req, &r), &r);
    }
    remote_free(&o->remote, &r);
    end(&q);
    return s;
}

/* ---- a file out ---- */

static mango_status execd_download(void *ctx, const struct mango_call *call, struct errands_box *b, const char *path,
                                   uint64_t offset, uint64_t n, mango_sink_fn *sink, void *sink_ctx)
{
    struct osb *o = ctx;
    struct request q;
    struct remote_res r = {0};
    struct range g;
    text_auto struct text query = {0};
    text_add(&query, "/files/download?path=");
    text_url(&query, sv_z(path));
    range_begin(&g, offset, n, sink, sink_ctx);
    mango_status s = begin(o, call, b, "GET", query.bad ? "" : query.ptr, "give a file", &q);
    if (s == MANGO_OK) {
        remote_header(q.headers, &q.req.n_headers, "Range", g.header);
        q.req.flags = REMOTE_SAFE | REMOTE_STREAM;
        q.req.sink = range_take;
        q.req.sink_ctx = &g;
        q.req.on_header = range_on_header;
        q.req.header_ctx = &g;
        s = remote_call(&o->remote, call, &q.req, &r);
        if (r.status != 416) /* nothing is there: the file ends before */
            s = finish(o, call, &q, s, &r);
    }
    remote_free(&o->remote, &r);
    end(&q);
    return s;
}

const struct errands_service execd_service = {
    .command = execd_command,
    .upload = execd_upload,
    .download = execd_download,
    .look = execd_look,
    .free_own = own_free,
    .slice_ms = 60000,
};
