#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/connect.h"
#include "common/envd/envd.h"

/* The data plane: requests to envd in one sandbox, through the service's proxy. */

enum { CONTENT_IDLE_MS = 60000 };

/* Reached by their common host and two headers. Others are found by their name. */
static const char *const routed_domains[] = {"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"};

static void make_url(const struct box *b, const char *domain, const char *path, struct text *out)
{
    const struct envd *e = b->e;
    bool routed = false;
    for (size_t i = 0; i < sizeof(routed_domains) / sizeof(routed_domains[0]); i++)
        routed |= !e->flavor->by_host && strcmp(domain, routed_domains[i]) == 0;
    if (e->data_url)
        text_printf(out, "%s%s", e->data_url, path);
    else if (routed)
        text_printf(out, "%s://sandbox.%s%s", e->data_scheme, domain, path);
    else
        text_printf(out, "%s://%d-%s.%s%s%s", e->data_scheme, ENVD_PORT, b->live.id, domain,
                    e->data_port ? e->data_port : "", path);
}

/* user without a password, as envd picks its Unix user. */
static void basic(const char *user, struct text *out)
{
    text_auto struct text plain = {0};
    text_printf(&plain, "%s:", user);
    text_add(out, "Basic ");
    text_base64(out, text_view(&plain), false);
}

mango_status data_try(struct box *b, const struct mango_call *call, const struct data_req *req, struct remote_res *ret)
{
    struct envd *e = b->e;
    struct mango_http_header h[REMOTE_HEADERS_MAX];
    uint64_t n = 0;
    char token[ENVD_TOKEN_MAX], traffic[ENVD_TOKEN_MAX], domain[sizeof(b->domain)], ping[16];
    text_auto struct text url = {0}, user = {0};
    pthread_mutex_lock(&b->live.lock);
    memcpy(token, b->token, sizeof(token));
    memcpy(traffic, b->traffic, sizeof(traffic));
    memcpy(domain, b->domain, sizeof(domain));
    pthread_mutex_unlock(&b->live.lock);
    *ret = (struct remote_res){0};
    make_url(b, domain, req->path, &url);
    if (e->user)
        basic(e->user, &user);
    if (url.bad || user.bad)
        return envd_no_memory(e, call);
    snprintf(ping, sizeof(ping), "%d", ENVD_PING_S);
    remote_header(h, &n, "X-Access-Token", token);
    remote_header(h, &n, "E2b-Traffic-Access-Token", traffic);
    if (!e->flavor->by_host) {
        remote_header(h, &n, "E2b-Sandbox-Id", b->live.id);
        remote_header(h, &n, "E2b-Sandbox-Port", "49983");
    }
    remote_header(h, &n, "Authorization", user.ptr);
    remote_header(h, &n, "Range", req->range);
    remote_header(h, &n, "User-Agent", "mango/" MANGO_VERSION);
    if (req->stream || (req->type && strcmp(req->type, "application/json") == 0))
        remote_header(h, &n, "Connect-Protocol-Version", "1");
    if (req->stream)
        remote_header(h, &n, "Keepalive-Ping-Interval", ping);
    bool content = req->sink || req->source || req->stream;
    const struct remote_req out = {
        .method = req->method,
        .url = url.ptr,
        .what = req->what,
        .flags = REMOTE_SINGLE | (content ? REMOTE_STREAM : 0),
        .idle_ms = req->stream ? ENVD_SILENCE_MS : CONTENT_IDLE_MS,
        .headers = h,
        .n_headers = n,
        .body = req->body,
        .type = req->type,
        .source = req->source,
        .source_ctx = req->source_ctx,
        .source_len = req->source_len,
        .sink = req->sink,
        .sink_ctx = req->sink_ctx,
        .connect_to = e->data_at,
    };
    mango_status s = remote_call(&e->r, call, &out, ret);
    explicit_bzero(token, sizeof(token));
    explicit_bzero(traffic, sizeof(traffic));
    return s;
}

/* ---- after a failure ---- */

void box_take_tokens(struct box *b, const struct sandbox *s, uint64_t seconds)
{
    pthread_mutex_lock(&b->live.lock);
    if (s->token[0])
        memcpy(b->token, s->token, sizeof(b->token));
    if (s->traffic[0])
        memcpy(b->traffic, s->traffic, sizeof(b->traffic));
    if (s->domain[0])
        memcpy(b->domain, s->domain, sizeof(b->domain));
    b->until_ns = seconds ? now_ns(b->e->host) + seconds * UINT64_C(1000000000) : b->until_ns;
    pthread_mutex_unlock(&b->live.lock);
}

static void blank(struct text *words, const char *secret)
{
    size_t len = strlen(secret);
    for (char *at = words->ptr; len && at && (at = memmem(at, words->len - (size_t)(at - words->ptr), secret, len));
         at += len)
        memset(at, '*', len);
}

void box_blank(struct box *b, struct text *words)
{
    pthread_mutex_lock(&b->live.lock);
    blank(words, b->token);
    blank(words, b->traffic);
    pthread_mutex_unlock(&b->live.lock);
}

static mango_status reconnect(struct box *b, const struct mango_call *call)
{
    struct sandbox s;
    mango_status rc = control_connect(b->e, call, b->live.id, b->e->idle_s, &s);
    if (rc == MANGO_OK)
        box_take_tokens(b, &s, b->e->idle_s);
    return rc;
}

/* What the control plane says when the data plane does not answer as it should. */
static mango_status ask(struct box *b, const struct mango_call *call)
{
    struct sandbox s;
    mango_status rc = control_get(b->e, call, b->live.id, &s);
    if (rc == MANGO_EGONE)
        return fail(b->e->host, call, MANGO_EGONE, "the workspace is lost: %s has no sandbox %s any more",
                    b->e->flavor->service, b->live.id);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&b->live.lock);
    bool paused = b->paused;
    pthread_mutex_unlock(&b->live.lock);
    if (paused)
        return fail(b->e->host, call, MANGO_EINVALID, "the sandbox is paused; resume it first");
    return strcmp(s.state, "paused") == 0 ? reconnect(b, call) : MANGO_OK;
}

/* A refusal that another try will not change. */
static bool is_final(const struct remote_res *res)
{
    return (res->status >= 400 && res->status < 500 && res->status != 401 && res->status != 403 && res->status != 404 &&
            res->status != 408 && res->status != 409 && res->status != 410 && res->status != 425 &&
            res->status != 429) ||
           res->status == 501 || res->status == 507 || (res->status >= 300 && res->status < 400);
}

mango_status envd_after(struct box *b, const struct mango_call *call, const struct data_req *req, mango_status s,
                        const struct remote_res *res, unsigned n)
{
    struct envd *e = b->e;
    const struct remote_req what = {.what = req->what};
    if (live_is_dying(&b->live))
        return fail(e->host, call, MANGO_EGONE, "the sandbox is being removed");
    if (s < 0 && s != MANGO_ERETRY)
        return s;
    if (s == MANGO_OK && is_final(res))
        return remote_fail(&e->r, call, &what, res, MANGO_EINTERNAL);
    bool token = res->status == 401 || res->status == 403; /* a new one comes with a connect */
    if (token && n > 1)
        return remote_fail(&e->r, call, &what, res, MANGO_EINTERNAL);
    mango_status asked = token ? reconnect(b, call) : ask(b, call);
    if (asked < 0)
        return asked;
    if (n >= ENVD_TRIES)
        return s < 0 || remote_good(res) ? fail(e->host, call, MANGO_ERETRY,
                                                "the sandbox %s is there, and nothing in it "
                                                "answers: %s could not %s",
                                                b->live.id, e->flavor->service, req->what)
                                         : remote_fail(&e->r, call, &what, res, MANGO_ERETRY);
    uint64_t ms = n > 1 || res->status ? remote_back_off_ms(n) : 0;
    if (ms < res->retry_after_ms)
        ms = res->retry_after_ms < REMOTE_RETRY_AFTER_MAX_MS ? res->retry_after_ms : REMOTE_RETRY_AFTER_MAX_MS;
    e->host->metric_add(e->host, "data_retries", 1);
    return ms ? remote_wait(e->host, call, ms) : MANGO_OK;
}

/* ---- the timer ---- */

mango_status box_touch(struct box *b, const struct mango_call *call)
{
    struct envd *e = b->e;
    uint64_t now = now_ns(e->host), half = e->idle_s * UINT64_C(500000000);
    pthread_mutex_lock(&b->live.lock);
    bool due = b->until_ns && b->until_ns < now + half;
    if (due) /* others need not do the same meanwhile */
        b->until_ns = now + 2 * half;
    pthread_mutex_unlock(&b->live.lock);
    if (!due || atomic_load(&e->no_timer))
        return MANGO_OK;
    mango_status s = control_timer(e, call, b->live.id, e->idle_s);
    if (s == MANGO_EUNSUPPORTED && !e->flavor->v2) { /* there any use of the data plane moves it */
        atomic_store(&e->no_timer, true);
        return MANGO_OK;
    }
    if (s == MANGO_EUNSUPPORTED || s == MANGO_ERETRY) { /* paused, or gone, or a bad moment: the operation will see */
        pthread_mutex_lock(&b->live.lock);
        b->until_ns = now;
        pthread_mutex_unlock(&b->live.lock);
        return MANGO_OK;
    }
    return s;
}

mango_status data_ping(struct box *b, const struct mango_call *call)
{
    struct envd *e = b->e;
    const struct data_req req = {.method = "GET", .path = "/health", .what = "keep the sandbox alive"};
    const struct remote_req what = {.what = req.what};
    struct remote_res res;
    mango_status s = data_try(b, call, &req, &res);
    if (s == MANGO_OK && !remote_good(&res)) /* paused, or gone: the next operation will see */
        s = remote_fail(&e->r, call, &what, &res, MANGO_ERETRY);
    remote_free(&e->r, &res);
    return s;
}

/* ---- files, by their absolute path ---- */

static void files_path(const struct envd *e, const char *path, struct text *out)
{
    text_add(out, "/files?path=");
    text_url(out, sv_z(path));
    if (e->user) {
        text_add(out, "&username=");
        text_url(out, sv_z(e->user));
    }
}

mango_status data_upload(struct box *b, const struct mango_call *call, const char *path, struct mango_sv content,
                         mango_source_fn *source, void *source_ctx, int64_t len)
{
    text_auto struct text url = {0};
    files_path(b->e, path, &url);
    const struct data_req req = {.method = "POST",
                                 .path = url.ptr,
                                 .what = "take a file",
                                 .type = "application/octet-stream",
                                 .body = content,
                                 .source = source,
                                 .source_ctx = source_ctx,
                                 .source_len = len};
    if (url.bad)
        return envd_no_memory(b->e, call);
    for (unsigned n = 1;; n++) {
        struct remote_res res;
        mango_status s = data_try(b, call, &req, &res);
        bool good = s == MANGO_OK && res.status == 200 && !res.not_json, once = source && res.sent;
        if (!good)
            s = envd_after(b, call, &req, s, &res, n);
        if (!good && s == MANGO_OK && once)
            s = fail(b->e->host, call, MANGO_ERETRY, "the transfer of the file to the sandbox broke off");
        remote_free(&b->e->r, &res);
        if (good || s < 0)
            return s;
    }
}

struct download {
    mango_sink_fn *sink;
    void *ctx;
    uint64_t got, skip, want;
    bool stopped;
};

static int32_t on_content(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct download *d = ctx;
    uint64_t drop = n < d->skip ? n : d->skip, take = n - drop < d->want - d->got ? n - drop : d->want - d->got;
    d->skip -= drop;
    if (take > 0 && !d->stopped)
        d->stopped = d->sink(d->ctx, stream, p + drop, take) != 0;
    d->got += take;
    return d->stopped || d->got == d->want;
}

mango_status data_download(struct box *b, const struct mango_call *call, const char *path, uint64_t offset, uint64_t n,
                           mango_sink_fn *sink, void *sink_ctx, uint64_t *ret_n)
{
    text_auto struct text url = {0};
    struct download d = {.sink = sink, .ctx = sink_ctx, .want = n};
    files_path(b->e, path, &url);
    if (url.bad)
        return envd_no_memory(b->e, call);
    for (unsigned tries = 1; d.got < n && !d.stopped; tries++) {
        char range[64];
        struct remote_res res;
        uint64_t before = d.got, first = offset + d.got, last = offset + n - 1;
        snprintf(range, sizeof(range), "bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)last);
        const struct data_req req = {.method = "GET",
                                     .path = url.ptr,
                                     .what = "give a file",
                                     .sink = on_content,
                                     .sink_ctx = &d,
                                     .range = range};
        d.skip = 0;
        mango_status s = data_try(b, call, &req, &res);
        if (s == MANGO_OK && res.status == 200 && offset + before > 0) /* it knows no ranges, and began at 0 */
            s = fail(b->e->host, call, MANGO_EINTERNAL, "the sandbox sent a whole file where a part was asked for");
        bool end = s == MANGO_OK && (res.status == 206 || res.status == 200 || res.status == 416);
        if (!end && !d.stopped && d.got < n)
            s = envd_after(b, call, &req, s, &res, d.got > before ? 1 : tries);
        remote_free(&b->e->r, &res);
        if (s < 0 && !d.stopped && d.got < n)
            return s;
        if (end)
            break;
    }
    *ret_n = d.got;
    return MANGO_OK;
}

/* Best effort: what stays is swept. */
void data_remove(struct box *b, const struct mango_call *call, const char *path)
{
    text_auto struct text body = {0};
    struct mango_call own = remote_anyway(b->e->host, call, REMOTE_CALL_MS);
    struct remote_res res;
    text_add(&body, "{\"path\":");
    text_jsonz(&body, path);
    text_add(&body, "}");
    const struct data_req req = {.method = "POST",
                                 .path = "/filesystem.Filesystem/Remove",
                                 .what = "remove a file",
                                 .type = "application/json",
                                 .body = text_view(&body)};
    if (!body.bad)
        (void)data_try(b, &own, &req, &res);
    remote_free(&b->e->r, &res);
}
