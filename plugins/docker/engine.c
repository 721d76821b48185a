#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "docker/docker.h"

/* The Engine API: paths, versions, and what its refusals mean. */

enum {
    BODY_MAX = 8 * 1024 * 1024, /* bytes of an answer: a list of a few thousand containers */
    URL_MAX = 2048,
    HEADERS_MAX = 4,
    MESSAGE_MAX = 400, /* bytes of the Engine's words that are passed on */
};

static struct mango_sv optional(const char *z)
{
    return z ? sv_z(z) : no_text();
}

static void fill(const struct docker *d, struct mango_http_req *h, const char *method, const char *url)
{
    h->struct_size = sizeof(*h);
    h->method = sv_z(method);
    h->url = sv_z(url);
    h->unix_socket = optional(d->at.socket);
    h->ca_pem = optional(d->at.ca);
    h->cert_pem = optional(d->at.cert);
    h->key_pem = optional(d->at.key);
    h->source_len = -1;
    h->max_body = BODY_MAX;
}

static bool make_url(const struct docker *d, const char *path, char url[URL_MAX])
{
    int n = d->api[0] ? snprintf(url, URL_MAX, "%s/v%s%s", d->at.base, d->api, path)
                      : snprintf(url, URL_MAX, "%s%s", d->at.base, path);
    return n > 0 && n < URL_MAX;
}

/* The host's words name no place. */
static mango_status unreachable(const struct docker *d, const struct mango_call *call, mango_status s, uint32_t flags)
{
    if (s != MANGO_ERETRY)
        return s;
    const char *scheme = d->at.socket ? "unix://" : "", *place = d->at.socket ? d->at.socket : d->at.base;
    if (flags & MANGO_HTTP_RES_SENT)
        return fail(d->host, call, s, "the Docker Engine at %s%s broke the connection off", scheme, place);
    return fail(
        d->host, call, s, "the Docker Engine at %s%s cannot be reached; is it running, and is DOCKER_HOST right?%s",
        scheme, place,
        strncmp(place, "https:", 6) == 0 ? " Or one side refuses the other's certificate: see ca.pem, cert.pem and "
                                           "key.pem of DOCKER_CERT_PATH"
                                         : "");
}

mango_status engine_call(const struct docker *d, const struct mango_call *call, const struct engine_req *req,
                         struct engine_res *ret)
{
    char url[URL_MAX];
    struct mango_http_header headers[HEADERS_MAX];
    struct mango_http_req h = {0};
    struct mango_call own = req->control ? call_within(d, call, CONTROL_MS) : *call;
    *ret = (struct engine_res){.body = d->host->buf_new(d->host, BODY_MAX)};
    if (!ret->body || !make_url(d, req->path, url))
        return fail(d->host, call, MANGO_EINTERNAL, "cannot put together a request to the Docker Engine");
    fill(d, &h, req->method, url);
    h.headers = headers;
    if (req->body.len > 0 || req->source)
        headers[h.n_headers++] =
            (struct mango_http_header){sv_z("Content-Type"), sv_z(req->type ? req->type : "application/json")};
    if (req->registry)
        headers[h.n_headers++] = (struct mango_http_header){sv_z("X-Registry-Auth"), sv_z(req->registry)};
    h.body = req->body;
    h.source = req->source;
    h.source_ctx = req->source_ctx;
    h.flags = req->once ? MANGO_HTTP_ONCE : 0;
    if (req->sink)
        h.max_body = UINT64_MAX;
    struct mango_http_res res = {
        .struct_size = sizeof(res), .body = req->sink ? NULL : ret->body, .sink = req->sink, .sink_ctx = req->sink_ctx};
    mango_status s = d->host->http_call(d->host, &own, &h, &res);
    ret->status = res.status;
    return unreachable(d, call, s, res.flags);
}

struct mango_call call_of_ours(const struct docker *d)
{
    return (struct mango_call){.struct_size = sizeof(struct mango_call),
                               .deadline_ns = now_ns(d->host) + CONTROL_MS * UINT64_C(1000000)};
}

void engine_free(const struct docker *d, struct engine_res *r)
{
    d->host->buf_free(d->host, r->body);
    r->body = NULL;
}

struct mango_sv engine_body(const struct docker *d, const struct engine_res *r)
{
    struct mango_sv body = d->host->buf_view(d->host, r->body);
    return json_valid(body) ? body : no_text();
}

static mango_status class_of(int status)
{
    if (status == 401 || status == 403)
        return MANGO_EDENIED;
    if (status == 404)
        return MANGO_EGONE;
    if (status == 408 || status == 409 || status == 429 || status >= 500)
        return MANGO_ERETRY;
    return MANGO_EINVALID;
}

mango_status engine_fail(const struct docker *d, const struct mango_call *call, const struct engine_res *r,
                         const char *what)
{
    char message[MESSAGE_MAX];
    if (!json_copy(engine_body(d, r), "message", message, sizeof(message))) {
        struct mango_sv raw = d->host->buf_view(d->host, r->body);
        snprintf(message, sizeof(message), "%.*s", (int)(raw.len < 100 ? raw.len : 100), raw.len ? raw.ptr : "");
    }
    for (char *c = message; *c; c++) {
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    }
    return fail(d->host, call, class_of(r->status), "the Docker Engine could not %s (HTTP %d): %s", what, r->status,
                message);
}

mango_status engine_hijack(const struct docker *d, const struct mango_call *call, const char *path,
                           struct mango_sv body, struct engine_res *r, mango_conn *ret)
{
    char url[URL_MAX];
    const struct mango_http_header headers[] = {{sv_z("Content-Type"), sv_z("application/json")},
                                                {sv_z("Connection"), sv_z("Upgrade")},
                                                {sv_z("Upgrade"), sv_z("tcp")}};
    struct mango_http_req h = {0};
    struct mango_call own = call_within(d, call, CONTROL_MS);
    *ret = 0;
    *r = (struct engine_res){.body = d->host->buf_new(d->host, BODY_MAX)};
    if (!r->body || !make_url(d, path, url))
        return fail(d->host, call, MANGO_EINTERNAL, "cannot put together a request to the Docker Engine");
    fill(d, &h, "POST", url);
    h.headers = headers;
    h.n_headers = sizeof(headers) / sizeof(headers[0]);
    h.body = body;
    h.flags = MANGO_HTTP_ONCE;
    struct mango_http_res res = {.struct_size = sizeof(res), .body = r->body};
    mango_status s = d->host->conn_open(d->host, &own, &h, &res, ret);
    r->status = res.status;
    return unreachable(d, call, s, res.flags);
}

/* ---- who is there ---- */

struct hello {
    char version[32];
};

static void on_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    struct hello *h = ctx;
    if (name.len == strlen("Api-Version") && strncasecmp(name.ptr, "Api-Version", name.len) == 0)
        snprintf(h->version, sizeof(h->version), "%.*s", (int)(value.len < 31 ? value.len : 31), value.ptr);
}

/* Of the Engine's host, as images name theirs. */
static mango_status ask_arch(struct docker *d, const struct mango_call *call)
{
    struct engine_res r = {0};
    const struct engine_req req = {.method = "GET", .path = "/version", .control = true};
    mango_status s = engine_call(d, call, &req, &r);
    if (s == MANGO_OK && r.status != 200)
        s = engine_fail(d, call, &r, "tell its version");
    if (s == MANGO_OK && !json_copy(engine_body(d, &r), "Arch", d->arch, sizeof(d->arch)))
        snprintf(d->arch, sizeof(d->arch), "%s", d->box_arch);
    engine_free(d, &r);
    return s;
}

mango_status engine_hello(struct docker *d, const struct mango_call *call)
{
    enum { PING_MS = 10000 };
    struct hello hello = {0};
    char url[URL_MAX];
    struct mango_http_req h = {0};
    struct engine_res r = {.body = d->host->buf_new(d->host, BODY_MAX)};
    struct mango_http_res res = {
        .struct_size = sizeof(res), .body = r.body, .on_header = on_header, .header_ctx = &hello};
    struct mango_call own = call_within(d, call, PING_MS);
    d->api[0] = '\0';
    mango_status s = make_url(d, "/_ping", url) ? MANGO_OK : MANGO_EINVALID;
    if (s == MANGO_OK) {
        fill(d, &h, "GET", url);
        s = unreachable(d, call, d->host->http_call(d->host, &own, &h, &res), res.flags);
    }
    r.status = res.status;
    if (s == MANGO_OK && res.status != 200)
        s = engine_fail(d, call, &r, "answer");
    else if (s == MANGO_OK && !endpoint_version(hello.version, d->api))
        s = fail(d->host, call, MANGO_EINVALID,
                 "the Docker Engine speaks API version '%s'; 1.40 (Docker 19.03) or newer is needed", hello.version);
    engine_free(d, &r);
    return s == MANGO_OK ? ask_arch(d, call) : s;
}
