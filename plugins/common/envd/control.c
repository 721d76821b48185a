#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/envd/envd.h"

/* The control plane: REST with JSON. */

enum {
    PAGES_MAX = 1000,  /* of a list, of 100 sandboxes each */
    CURSOR_MAX = 1024, /* bytes */
    FIND_TRIES = 8,    /* of a connect that meets a sandbox in between two states */
    KEY_GOOD_S = 60,   /* between two looks whether the key is good */
};

struct exchange {
    const char *method, *what;
    uint32_t flags; /* REMOTE_* */
    struct mango_sv body;
    struct text path;
    /* out */
    struct remote_req req;
    struct remote_res res;
    struct text url;
    char cursor[CURSOR_MAX], date[64];
};

static void on_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    struct exchange *x = ctx;
    static const char cursor[] = "x-next-token", date[] = "date";
    if (name.len == sizeof(cursor) - 1 && strncasecmp(name.ptr, cursor, name.len) == 0)
        snprintf(x->cursor, sizeof(x->cursor), "%.*s", value.len < CURSOR_MAX ? (int)value.len : 0, value.ptr);
    else if (name.len == sizeof(date) - 1 && strncasecmp(name.ptr, date, name.len) == 0)
        snprintf(x->date, sizeof(x->date), "%.*s", value.len < 64 ? (int)value.len : 0, value.ptr);
}

static mango_status go(const struct envd *e, const struct mango_call *call, struct exchange *x)
{
    struct mango_http_header headers[4];
    uint64_t n = 0;
    text_auto struct text bearer = {0};
    x->cursor[0] = x->date[0] = '\0';
    if (e->key && e->flavor->bearer) {
        text_printf(&bearer, "Bearer %s", e->key);
        remote_header(headers, &n, "Authorization", bearer.ptr);
    } else {
        remote_header(headers, &n, "X-API-Key", e->key);
    }
    remote_header(headers, &n, "User-Agent", "mango/" MANGO_VERSION);
    remote_header(headers, &n, "Accept", "application/json");
    text_free(&x->url);
    text_printf(&x->url, "%s%s", e->api, x->path.ptr);
    if (x->url.bad || x->path.bad || bearer.bad)
        return envd_no_memory(e, call);
    x->req = (struct remote_req){.method = x->method,
                                 .url = x->url.ptr,
                                 .what = x->what,
                                 .flags = x->flags,
                                 .headers = headers,
                                 .n_headers = n,
                                 .body = x->body,
                                 .on_header = on_header,
                                 .header_ctx = x};
    return remote_call(&e->r, call, &x->req, &x->res);
}

static void done(const struct envd *e, struct exchange *x)
{
    remote_free(&e->r, &x->res);
    text_free(&x->url);
    text_free(&x->path);
}

static mango_status refused(const struct envd *e, const struct mango_call *call, const struct exchange *x,
                            mango_status not_found)
{
    return remote_fail(&e->r, call, &x->req, &x->res, not_found);
}

static void path_of(struct exchange *x, const char *id, const char *behind)
{
    text_add(&x->path, "/sandboxes/");
    text_url(&x->path, sv_z(id));
    text_add(&x->path, behind);
}

/* ---- what a sandbox looks like ---- */

static int64_t time_us(const char *z) /* RFC 3339 in UTC; 0: none */
{
    struct tm t = {0};
    const char *rest = strptime(z, "%Y-%m-%dT%H:%M:%S", &t);
    if (!rest || (*rest != '.' && *rest != 'Z' && *rest != '+'))
        return 0;
    int64_t us = (int64_t)timegm(&t) * 1000000, unit = 100000;
    for (const char *c = rest + 1; *rest == '.' && *c >= '0' && *c <= '9' && unit > 0; c++, unit /= 10)
        us += (*c - '0') * unit;
    return us;
}

/* By the service's clock, which need not be ours. */
static uint64_t left_s(const char *end_at, const char *date)
{
    struct tm t = {0};
    int64_t end = time_us(end_at);
    if (!end || !date[0] || !strptime(date, "%a, %d %b %Y %H:%M:%S", &t))
        return 0;
    int64_t left = end / 1000000 - (int64_t)timegm(&t);
    return left > 0 ? (uint64_t)left : 0;
}

/* False without a usable id. */
static bool parse(const struct exchange *x, struct mango_sv v, struct sandbox *ret)
{
    char started[64] = "", end_at[64] = "";
    struct mango_sv meta = json_get(v, "metadata");
    *ret = (struct sandbox){0};
    if (!json_copy(v, "sandboxID", ret->id, sizeof(ret->id)) || !remote_id_ok(sv_z(ret->id)))
        return false;
    (void)json_copy(v, "state", ret->state, sizeof(ret->state));
    (void)json_copy(v, "envdVersion", ret->version, sizeof(ret->version));
    (void)json_copy(v, "envdAccessToken", ret->token, sizeof(ret->token));
    (void)json_copy(v, "trafficAccessToken", ret->traffic, sizeof(ret->traffic));
    (void)json_copy(v, "domain", ret->domain, sizeof(ret->domain));
    (void)json_copy(v, "startedAt", started, sizeof(started));
    (void)json_copy(v, "endAt", end_at, sizeof(end_at));
    struct mango_sv one;
    uint64_t pos = 0;
    ret->has_metadata = json_kind(meta) == '{' && json_next(meta, &pos, NULL, &one);
    (void)json_copy(meta, "io.mango.label", ret->label, sizeof(ret->label));
    (void)json_copy(meta, "io.mango.owner", ret->owner, sizeof(ret->owner));
    ret->started_us = time_us(started);
    ret->left_s = left_s(end_at, x->date);
    return true;
}

static mango_status strange(const struct envd *e, const struct mango_call *call, const struct exchange *x)
{
    return fail(e->host, call, MANGO_ERETRY, "%s could not %s: its answer has no usable sandboxID", e->flavor->service,
                x->what);
}

static mango_status parse_answer(const struct envd *e, const struct mango_call *call, const struct exchange *x,
                                 struct sandbox *ret)
{
    return parse(x, remote_body(&e->r, &x->res), ret) ? MANGO_OK : strange(e, call, x);
}

/* ---- reads ---- */

mango_status control_get(struct envd *e, const struct mango_call *call, const char *id, struct sandbox *ret)
{
    struct exchange x = {.method = "GET", .what = "look at the sandbox", .flags = REMOTE_SAFE | REMOTE_JSON};
    path_of(&x, id, "");
    mango_status s = go(e, call, &x);
    if (s == MANGO_OK && x.res.status == 404 && x.res.not_json) /* a page of something in between */
        s = fail(e->host, call, MANGO_ERETRY, "%s did not answer with JSON (HTTP 404): is %s_API_URL right?",
                 e->flavor->service, e->flavor->prefix);
    else if (s == MANGO_OK && !remote_good(&x.res))
        s = refused(e, call, &x, MANGO_EGONE);
    else if (s == MANGO_OK)
        s = parse_answer(e, call, &x, ret);
    done(e, &x);
    return s;
}

/* One page; false in *ret_more ends the list. */
static mango_status page(struct envd *e, const struct mango_call *call, struct exchange *x, control_each_fn *fn,
                         void *ctx, bool *ret_more)
{
    mango_status s = go(e, call, x);
    struct mango_sv item, body = s == MANGO_OK ? remote_body(&e->r, &x->res) : no_text();
    *ret_more = false;
    if (s == MANGO_OK && !remote_good(&x->res))
        return refused(e, call, x, MANGO_EINTERNAL);
    if (s == MANGO_OK && json_kind(body) != '[')
        return fail(e->host, call, MANGO_ERETRY, "%s did not answer with a list", e->flavor->service);
    *ret_more = s == MANGO_OK && x->cursor[0];
    for (uint64_t pos = 0; s == MANGO_OK && json_next(body, &pos, NULL, &item);) {
        struct sandbox one;
        if (parse(x, item, &one) && !fn(ctx, &one)) {
            *ret_more = false;
            break;
        }
    }
    return s;
}

mango_status control_list(struct envd *e, const struct mango_call *call, const char *name, struct mango_sv value,
                          control_each_fn *fn, void *ctx)
{
    struct exchange x = {.method = "GET", .what = "list the sandboxes", .flags = REMOTE_SAFE | REMOTE_JSON};
    char before[CURSOR_MAX] = "";
    mango_status s = MANGO_OK;
    bool more = true;
    for (int n = 0; s == MANGO_OK && more; n++) {
        text_free(&x.path);
        remote_free(&e->r, &x.res);
        /* Keys and values have nothing to encode: each of the encodings of that parameter gives the same. */
        text_printf(&x.path, "/v2/sandboxes?metadata=%s%%3D%.*s&state=running,paused&limit=100", name, (int)value.len,
                    value.ptr);
        if (n > 0) {
            text_add(&x.path, "&nextToken=");
            text_url(&x.path, sv_z(x.cursor));
        }
        memcpy(before, x.cursor, sizeof(before));
        s = page(e, call, &x, fn, ctx, &more);
        if (s == MANGO_OK && more && (n == PAGES_MAX || strcmp(before, x.cursor) == 0))
            s = fail(e->host, call, MANGO_EINTERNAL, "%s gives the same page of its list again and again",
                     e->flavor->service);
    }
    done(e, &x);
    return s;
}

/* ---- create ---- */

static mango_status create_body(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                                bool v1, struct text *out)
{
    text_add(out, "{\"templateID\":");
    if (spec->image.len)
        text_json(out, spec->image);
    else
        text_jsonz(out, e->image);
    text_printf(out, ",\"timeout\":%llu,\"autoPause\":true,\"autoResume\":{\"enabled\":false}%s",
                (unsigned long long)e->idle_s, v1 ? ",\"secure\":true" : "");
    mango_status s = network_json(e, call, spec->network, true, out);
    text_printf(
        out, ",\"metadata\":{\"io.mango.managed\":\"true\",\"io.mango.label\":\"%.*s\",\"io.mango.owner\":\"%.*s\"}}",
        (int)spec->label.len, spec->label.ptr, (int)spec->owner.len, spec->owner.ptr);
    return s == MANGO_OK && out->bad ? envd_no_memory(e, call) : s;
}

static mango_status create_once(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                                bool v1, struct exchange *x)
{
    text_auto struct text body = {0};
    remote_free(&e->r, &x->res);
    text_free(&x->path);
    text_add(&x->path, v1 ? "/sandboxes" : "/v2/sandboxes");
    mango_status s = create_body(e, call, spec, v1, &body);
    x->body = text_view(&body);
    return s == MANGO_OK ? go(e, call, x) : s;
}

/* The account's own limit is no overload: waiting does not help. */
static bool is_quota(const struct envd *e, const struct remote_res *res)
{
    char words[256] = "";
    (void)json_copy(remote_body(&e->r, res), "message", words, sizeof(words));
    return res->status == 429 && res->retry_after_ms == 0 && strstr(words, "concurrent");
}

mango_status control_create(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct sandbox *ret, bool *ret_maybe)
{
    struct exchange x = {.method = "POST", .what = "create a sandbox", .flags = REMOTE_JSON};
    bool v1 = !e->flavor->v2 || atomic_load(&e->v1);
    mango_status s = create_once(e, call, spec, v1, &x);
    if (s == MANGO_OK && !v1 && (x.res.status == 404 || x.res.status == 405)) { /* an older server */
        s = create_once(e, call, spec, true, &x);
        if (s == MANGO_OK && remote_good(&x.res))
            atomic_store(&e->v1, true);
    }
    if (s == MANGO_OK && e->flavor->both_spellings && (x.res.status == 400 || x.res.status == 422) &&
        !atomic_exchange(&e->one_spelling, true)) /* it knows both names of one switch, and takes one */
        s = create_once(e, call, spec, v1, &x);
    *ret_maybe = (s < 0 && x.res.sent) || (s == MANGO_OK && x.res.status >= 500);
    if (s == MANGO_OK && is_quota(e, &x.res))
        s = fail(e->host, call, MANGO_EQUOTA,
                 "the account at %s has no sandbox left: its limit of concurrent ones is "
                 "reached",
                 e->flavor->service);
    else if (s == MANGO_OK && !remote_good(&x.res))
        s = refused(e, call, &x, MANGO_EINVALID);
    else if (s == MANGO_OK)
        s = parse_answer(e, call, &x, ret);
    done(e, &x);
    return s;
}

/* ---- changes ---- */

mango_status control_connect(struct envd *e, const struct mango_call *call, const char *id, uint64_t seconds,
                             struct sandbox *ret)
{
    mango_status s = MANGO_OK;
    char body[64];
    snprintf(body, sizeof(body), "{\"timeout\":%llu}", (unsigned long long)seconds);
    for (unsigned n = 1;; n++) {
        struct exchange x = {
            .method = "POST", .what = "connect to the sandbox", .flags = REMOTE_SAFE | REMOTE_JSON, .body = sv_z(body)};
        path_of(&x, id, "/connect");
        s = go(e, call, &x);
        bool between = s == MANGO_OK && x.res.status == 409; /* it is being paused */
        if (s == MANGO_OK && !remote_good(&x.res))
            s = refused(e, call, &x, MANGO_EGONE);
        else if (s == MANGO_OK)
            s = parse_answer(e, call, &x, ret);
        done(e, &x);
        if (!between || n == FIND_TRIES)
            return s;
        if ((s = remote_wait(e->host, call, remote_back_off_ms(n + 1))) < 0)
            return s;
    }
}

/* A change without an answer to read. settled: a status that says that it is so already, or 0. */
static mango_status change(struct envd *e, const struct mango_call *call, struct exchange *x, int settled,
                           mango_status not_found)
{
    mango_status s = go(e, call, x);
    if (s == MANGO_OK && !remote_good(&x->res) && x->res.status != settled)
        s = refused(e, call, x, not_found);
    done(e, x);
    return s;
}

mango_status control_delete(struct envd *e, const struct mango_call *call, const char *id)
{
    mango_status s = MANGO_OK;
    for (unsigned n = 1;; n++) {
        struct exchange x = {.method = "DELETE", .what = "remove the sandbox", .flags = REMOTE_SAFE};
        path_of(&x, id, "");
        s = go(e, call, &x);
        bool between = s == MANGO_OK && x.res.status == 409;
        bool page_of_another = s == MANGO_OK && x.res.status == 404 && x.res.not_json;
        if (page_of_another)
            s = fail(e->host, call, MANGO_ERETRY, "%s did not answer with JSON (HTTP 404): is %s_API_URL right?",
                     e->flavor->service, e->flavor->prefix);
        else if (s == MANGO_OK && !remote_good(&x.res) && x.res.status != 404)
            s = refused(e, call, &x, MANGO_OK);
        done(e, &x);
        if (!between || n == FIND_TRIES)
            return s;
        if ((s = remote_wait(e->host, call, remote_back_off_ms(n + 1))) < 0)
            return s;
    }
}

mango_status control_timer(struct envd *e, const struct mango_call *call, const char *id, uint64_t seconds)
{
    char body[64];
    struct exchange x = {.method = "POST", .what = "move the sandbox's timer", .flags = REMOTE_SAFE};
    snprintf(body, sizeof(body), "{\"timeout\":%llu}", (unsigned long long)seconds);
    x.body = sv_z(body);
    path_of(&x, id, "/timeout");
    return change(e, call, &x, 0, MANGO_EUNSUPPORTED);
}

mango_status control_pause(struct envd *e, const struct mango_call *call, const char *id)
{
    struct exchange x = {.method = "POST", .what = "pause the sandbox", .flags = REMOTE_SAFE, .body = sv_z("{}")};
    path_of(&x, id, "/pause");
    return change(e, call, &x, 409, MANGO_EGONE);
}

mango_status control_network(struct envd *e, const struct mango_call *call, const char *id,
                             const struct mango_network *net)
{
    text_auto struct text body = {0};
    struct exchange x = {.method = "PUT", .what = "change the sandbox's network", .flags = REMOTE_SAFE};
    mango_status s = network_json(e, call, net, false, &body);
    x.body = text_view(&body);
    path_of(&x, id, "/network");
    if (s < 0) {
        done(e, &x);
        return s;
    }
    return change(e, call, &x, 0, e->flavor->v2 ? MANGO_EGONE : MANGO_EUNSUPPORTED);
}

mango_status control_snapshot(struct envd *e, const struct mango_call *call, const char *id, struct mango_buf *ret)
{
    char snapshot[256] = "";
    struct exchange x = {.method = "POST", .what = "take a snapshot", .flags = REMOTE_JSON, .body = sv_z("{}")};
    path_of(&x, id, "/snapshots");
    mango_status s = go(e, call, &x);
    if (s == MANGO_OK && !remote_good(&x.res))
        s = refused(e, call, &x, MANGO_EGONE);
    else if (s == MANGO_OK && !json_copy(remote_body(&e->r, &x.res), "snapshotID", snapshot, sizeof(snapshot)))
        s = fail(e->host, call, MANGO_EINTERNAL, "%s took a snapshot without a name", e->flavor->service);
    done(e, &x);
    return s == MANGO_OK ? e->host->buf_append(e->host, ret, snapshot, strlen(snapshot)) : s;
}

mango_status control_snapshot_delete(struct envd *e, const struct mango_call *call, struct mango_sv snapshot)
{
    struct exchange x = {.method = "DELETE", .what = "remove the snapshot", .flags = REMOTE_SAFE};
    text_add(&x.path, "/templates/");
    text_url(&x.path, snapshot);
    return change(e, call, &x, 0, MANGO_ENOENT);
}

/* ---- health ---- */

static bool nothing(void *ctx, const struct sandbox *s)
{
    (void)ctx, (void)s;
    return false;
}

/* The service's own answer says nothing about the key: that is looked at now and then. */
mango_status control_health(struct envd *e, const struct mango_call *call)
{
    struct exchange x = {.method = "GET", .what = "answer", .flags = REMOTE_SAFE | REMOTE_SINGLE};
    text_add(&x.path, "/health");
    mango_status s = change(e, call, &x, 0, MANGO_ERETRY);
    uint64_t now = now_ns(e->host);
    if (s < 0 || now < atomic_load(&e->key_good_ns))
        return s;
    s = control_list(e, call, "io.mango.label", sv_z("none"), nothing, NULL);
    if (s == MANGO_OK)
        atomic_store(&e->key_good_ns, now + KEY_GOOD_S * UINT64_C(1000000000));
    return s;
}
