#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "common/remote/remote.h"

/* One call with its tries, and what an answer means. */

enum {
    WORDS_MAX = 320, /* bytes of a service's words that are passed on */
    SECRET_MIN = 8,  /* bytes of a header that are one: shorter ones are words of any text */
};

/* ---- time ---- */

struct mango_call remote_within(const struct mango_host *h, const struct mango_call *call, uint64_t ms)
{
    struct mango_call own = remote_anyway(h, call, ms);
    own.token = call->token;
    if (call->deadline_ns && call->deadline_ns < own.deadline_ns)
        own.deadline_ns = call->deadline_ns;
    return own;
}

struct mango_call remote_anyway(const struct mango_host *h, const struct mango_call *call, uint64_t ms)
{
    struct mango_call own = remote_undo(h, ms);
    own.err = call->err;
    return own;
}

struct mango_call remote_undo(const struct mango_host *h, uint64_t ms)
{
    return (struct mango_call){.struct_size = sizeof(struct mango_call),
                               .deadline_ns = now_ns(h) + ms * UINT64_C(1000000)};
}

bool remote_final(mango_status s)
{
    return s < 0 && s != MANGO_ERETRY && s != MANGO_EGONE && s != MANGO_ETIMEOUT && s != MANGO_ECANCELED;
}

mango_status remote_wait(const struct mango_host *h, const struct mango_call *call, uint64_t ms)
{
    uint64_t now = now_ns(h), until = now + ms * UINT64_C(1000000);
    bool short_of = call->deadline_ns && call->deadline_ns < until;
    if (short_of)
        until = call->deadline_ns;
    while (now < until && !h->cancelled(h, call)) {
        struct pollfd p = {.fd = h->cancel_fd(h, call), .events = POLLIN};
        (void)poll(&p, 1, (int)((until - now + 999999) / 1000000));
        now = now_ns(h);
    }
    if (h->cancelled(h, call))
        return fail(h, call, MANGO_ECANCELED, "cancelled");
    return short_of ? fail(h, call, MANGO_ETIMEOUT, "the call's time is over") : MANGO_OK;
}

static uint64_t below(uint64_t n)
{
    uint64_t v = 0;
    (void)!getrandom(&v, sizeof(v), 0);
    return n ? v % n : 0;
}

uint64_t remote_back_off_ms(unsigned n)
{
    uint64_t ms = n < 6 ? (uint64_t)REMOTE_WAIT_MIN_MS << (n ? n - 1 : 0) : REMOTE_WAIT_MAX_MS;
    if (ms > REMOTE_WAIT_MAX_MS)
        ms = REMOTE_WAIT_MAX_MS;
    return ms / 2 + below(ms / 2 + 1);
}

/* ---- one try ---- */

struct
try {
    const struct remote *r;
    const struct remote_req *req;
    struct remote_res *res;
    struct mango_http_res http;
};

static bool name_is(struct mango_sv name, const char *z)
{
    return name.len == strlen(z) && strncasecmp(name.ptr, z, name.len) == 0;
}

static void on_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    struct try *t = ctx;
    if (name_is(name, "x-request-id") || name_is(name, "request-id") || name_is(name, "x-trace-id"))
        remote_words(t->r, value, t->res->request_id, sizeof(t->res->request_id));
    if (t->req->on_header)
        t->req->on_header(t->req->header_ctx, name, value);
}

static int32_t on_body(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct try *t = ctx;
    const struct mango_host *h = t->r->host;
    if (t->req->sink && t->http.status >= 200 && t->http.status < 300) {
        t->res->given = true;
        return t->req->sink(t->req->sink_ctx, stream, p, n);
    }
    uint64_t have = h->buf_view(h, t->res->body).len, most = t->http.status >= 400 ? REMOTE_ERROR_MAX : REMOTE_BODY_MAX;
    if (t->http.status >= 400 && have + n > most)
        return 1; /* enough of a refusal */
    return h->buf_append(h, t->res->body, p, n) == MANGO_OK ? 0 : 1;
}

/* Headers that only the two of us know, by what stands in their names. */
static bool secret_name(struct mango_sv name)
{
    static const char *const parts[] = {"token", "auth", "key"};
    char z[64];
    snprintf(z, sizeof(z), "%.*s", (int)(name.len < sizeof(z) ? name.len : sizeof(z) - 1), name.ptr);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcasestr(z, parts[i]))
            return true;
    }
    return false;
}

/* A service, or a proxy before it, may give back what it was asked with: also what is no setting, as the token of one sandbox. */
static void blank(char *p, size_t n, const struct remote_req *req)
{
    for (uint64_t i = 0; i < req->n_headers; i++) {
        struct mango_sv v = req->headers[i].value;
        const char *space = v.len ? memrchr(v.ptr, ' ', v.len) : NULL; /* "Bearer ..." */
        const char *from = space ? space + 1 : v.ptr;
        size_t len = v.len - (size_t)(from - v.ptr);
        if (len < SECRET_MIN || !secret_name(req->headers[i].name))
            continue;
        for (char *at = p; (at = memmem(at, n - (size_t)(at - p), from, len)); at += len)
            memset(at, '*', len);
    }
}

static mango_status blank_refusal(const struct remote *r, const struct remote_req *req, struct remote_res *ret)
{
    struct mango_sv body = r->host->buf_view(r->host, ret->body);
    char *copy = body.len ? malloc(body.len) : NULL;
    if (!copy)
        return body.len ? MANGO_ERETRY : MANGO_OK;
    memcpy(copy, body.ptr, body.len);
    blank(copy, body.len, req);
    uint64_t n = body.len;
    r->host->buf_free(r->host, ret->body);
    ret->body = r->host->buf_new(r->host, REMOTE_BODY_MAX);
    mango_status s = ret->body ? r->host->buf_append(r->host, ret->body, copy, n) : MANGO_ERETRY;
    free(copy);
    return s;
}

static mango_status try_once(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                             struct remote_res *ret)
{
    struct mango_http_header headers[REMOTE_HEADERS_MAX + 1];
    struct try t = {.r = r, .req = req, .res = ret};
    bool stream = req->flags & REMOTE_STREAM;
    struct mango_call own =
        stream && !req->ms ? *call : remote_within(r->host, call, req->ms ? req->ms : REMOTE_CALL_MS);
    r->host->buf_free(r->host, ret->body);
    *ret = (struct remote_res){.body = r->host->buf_new(r->host, REMOTE_BODY_MAX)};
    if (!ret->body)
        return fail(r->host, call, MANGO_ERETRY, "out of memory");
    struct mango_http_req h = {
        .struct_size = sizeof(h),
        .flags = req->flags & REMOTE_ONCE ? MANGO_HTTP_ONCE : 0,
        .method = sv_z(req->method),
        .url = sv_z(req->url),
        .headers = headers,
        .body = req->body,
        .source = req->source,
        .source_ctx = req->source_ctx,
        .source_len = req->source ? req->source_len : -1,
        .ca_pem = sv_z(r->ca),
        .connect_ms = REMOTE_CONNECT_MS,
        .idle_ms = req->idle_ms ? req->idle_ms : REMOTE_IDLE_MS,
        .max_body = UINT64_MAX,
        .connect_to = sv_z(req->connect_to),
        .proxy = sv_z(r->proxy),
    };
    for (; h.n_headers < req->n_headers && h.n_headers < REMOTE_HEADERS_MAX; h.n_headers++)
        headers[h.n_headers] = req->headers[h.n_headers];
    if (req->body.len > 0 || req->source || req->type)
        headers[h.n_headers++] =
            (struct mango_http_header){sv_z("Content-Type"), sv_z(req->type ? req->type : "application/json")};
    t.http = (struct mango_http_res){
        .struct_size = sizeof(t.http), .sink = on_body, .sink_ctx = &t, .on_header = on_header, .header_ctx = &t};
    mango_status s = r->host->http_call(r->host, &own, &h, &t.http);
    ret->status = t.http.status;
    ret->retry_after_ms = t.http.retry_after_ms;
    ret->sent = t.http.flags & MANGO_HTTP_RES_SENT;
    blank(ret->request_id, strlen(ret->request_id), req);
    if (s == MANGO_OK && ret->status >= 400 && blank_refusal(r, req, ret) < 0)
        s = fail(r->host, call, MANGO_ERETRY, "out of memory");
    ret->not_json = !json_valid(r->host->buf_view(r->host, ret->body));
    if (s == MANGO_OK && (req->flags & REMOTE_JSON) && ret->status >= 200 && ret->status < 300 && ret->not_json)
        return fail(r->host, call, MANGO_ERETRY,
                    "%s did not answer with JSON (HTTP %d): is the URL right, and is there a "
                    "proxy in between?",
                    r->service, ret->status);
    /* The limit of one try is not the caller's. */
    bool ours = s == MANGO_ETIMEOUT && (call->deadline_ns == 0 || now_ns(r->host) < call->deadline_ns);
    if (ours)
        return fail(r->host, call, MANGO_ERETRY, "%s did not answer in time", r->service);
    if (s == MANGO_ERETRY)
        return fail(r->host, call, s, ret->sent ? "the connection to %s broke off" : "%s cannot be reached",
                    r->service);
    return s;
}

/* ---- the tries ---- */

static bool refused_for_now(const struct remote_res *res)
{
    return res->status == 429 || (res->status == 503 && res->retry_after_ms > 0);
}

static bool may_try_again(const struct remote_req *req, const struct remote_res *res, mango_status s)
{
    bool safe = req->flags & REMOTE_SAFE;
    if ((req->flags & REMOTE_SINGLE) || res->given || (s < 0 && s != MANGO_ERETRY))
        return false;
    if (req->source && res->sent)
        return false;
    if (s == MANGO_ERETRY)
        return safe || !res->sent;
    return refused_for_now(res) || (safe && (res->status == 408 || res->status == 425 || res->status == 500 ||
                                             (res->status >= 502 && res->status <= 504)));
}

mango_status remote_call(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                         struct remote_res *ret)
{
    mango_status s = MANGO_OK;
    *ret = (struct remote_res){0};
    if (strlen(req->url) >= REMOTE_URL_MAX)
        return fail(r->host, call, MANGO_ETOOBIG, "a URL of more than %d bytes", REMOTE_URL_MAX - 1);
    for (unsigned n = 1;; n++) {
        s = try_once(r, call, req, ret);
        if (n == REMOTE_TRIES || !may_try_again(req, ret, s) || ret->retry_after_ms > REMOTE_RETRY_AFTER_MAX_MS)
            return s;
        uint64_t ms = remote_back_off_ms(n);
        if (ms < ret->retry_after_ms)
            ms = ret->retry_after_ms + below(REMOTE_WAIT_MIN_MS);
        r->host->metric_add(r->host, "http_retries", 1);
        mango_status w = remote_wait(r->host, call, ms);
        if (w < 0)
            return w;
    }
}

void remote_free(const struct remote *r, struct remote_res *res)
{
    r->host->buf_free(r->host, res->body);
    res->body = NULL;
}

bool remote_good(const struct remote_res *res)
{
    return res->status >= 200 && res->status < 300;
}

struct mango_sv remote_body(const struct remote *r, const struct remote_res *res)
{
    return res->body && !res->not_json ? r->host->buf_view(r->host, res->body) : no_text();
}

/* ---- what a refusal means ---- */

mango_status remote_class(int status, mango_status not_found)
{
    switch (status) {
    case 401:
    case 403:
        return MANGO_EDENIED;
    case 404:
        return not_found;
    case 402:
    case 507:
        return MANGO_EQUOTA;
    case 413:
        return MANGO_ETOOBIG;
    case 405:
    case 501:
        return MANGO_EUNSUPPORTED;
    case 408:
    case 409:
    case 423:
    case 425:
    case 429:
        return MANGO_ERETRY;
    default:
        return status >= 500 ? MANGO_ERETRY : status >= 400 ? MANGO_EINVALID : MANGO_EINTERNAL;
    }
}

void remote_words(const struct remote *r, struct mango_sv text, char *out, size_t size)
{
    size_t n = 0;
    for (uint64_t i = 0; i < text.len && n + 4 < size;) {
        size_t hit = 0;
        for (int k = 0; k < REMOTE_SECRETS_MAX && !hit; k++) {
            size_t len = r->secrets[k] ? strlen(r->secrets[k]) : 0;
            if (len && len <= text.len - i && memcmp(text.ptr + i, r->secrets[k], len) == 0)
                hit = len;
        }
        unsigned char c = (unsigned char)text.ptr[i];
        if (hit) {
            memcpy(out + n, "***", 3);
            n += 3;
        } else {
            out[n++] = c < 0x20 || c == 0x7F ? ' ' : (char)c;
        }
        i += hit ? hit : 1;
    }
    out[n] = '\0';
}

/* Where services put their words. */
static bool words_of(struct mango_sv body, struct text *out)
{
    static const char *const places[] = {"message", "error/message", "error", "detail", "errors"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct mango_sv v = json_get(body, places[i]);
        if (json_kind(v) == '"' && json_text(v, out) && out->len > 0)
            return true;
        text_free(out);
    }
    return false;
}

mango_status remote_fail(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                         const struct remote_res *res, mango_status not_found)
{
    text_auto struct text said = {0};
    char words[WORDS_MAX], text[WORDS_MAX + 200];
    mango_status s = remote_class(res->status, not_found);
    bool found = res->body && words_of(remote_body(r, res), &said);
    if (!found && res->body && res->not_json && r->host->buf_view(r->host, res->body).len > 0)
        text_add(&said, "the answer is no JSON: a proxy in between, or another service than expected");
    remote_words(r, text_view(&said), words, sizeof(words));
    snprintf(text, sizeof(text), "%s could not %s (HTTP %d)%s%s", r->service, req->what, res->status,
             words[0] ? ": " : "", words);
    return r->host->err_set(r->host, call, s, text, res->request_id[0] ? res->request_id : NULL, res->retry_after_ms);
}

bool remote_id_ok(struct mango_sv id)
{
    enum { ID_MAX = 128 };
    for (uint64_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                  (i > 0 && (c == '.' || c == '-'));
        if (!ok)
            return false;
    }
    return id.len > 0 && id.len <= ID_MAX;
}

bool remote_name_ok(struct mango_sv host)
{
    bool dot = false, number = true;
    for (uint64_t i = 0; i < host.len; i++) {
        dot |= host.ptr[i] == '.';
        number &= host.ptr[i] == '.' || (host.ptr[i] >= '0' && host.ptr[i] <= '9');
    }
    return dot && !number;
}
