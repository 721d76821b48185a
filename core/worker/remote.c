#include "worker/remote.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/retry-after.h"
#include "worker/retry.h"

enum {
    RETRY_BASE_MS = 500, /* as the official clients: 0.5 s, doubling up to 8 s */
    RETRY_CAP_MS = 8000,
    RETRY_AFTER_MAX_MS = 60000, /* of what a server may ask for */
    BEARER_MAX = 8192,          /* bytes of a credential with "Bearer " */
    URL_MAX = 128 * 1024,       /* a cursor of the server's may stand in it */
    SHOWN_MAX = 300,            /* bytes of a refusal's text that reach a log */
};

static const char AGENT[] = "mango-worker/" MANGO_VERSION;

struct mg_remote *mg_remote_new(struct mg_net *net, const char *base, const char *token, const char *helper)
{
    struct mg_remote *r = mg_xcalloc(1, sizeof(*r));
    struct mg_sv url = mg_sv_of(base && *base ? base : MG_REMOTE_HOSTED);
    while (url.len && url.ptr[url.len - 1] == '/')
        url.len--;
    r->net = net;
    r->base = mg_xstrndup(url.ptr, url.len);
    r->token = mg_xstrdup(token ? token : "");
    r->helper = helper;
    return r;
}

void mg_remote_free(struct mg_remote *r)
{
    if (!r)
        return;
    mg_wipe(r->token, strlen(r->token));
    free(r->token);
    free(r->base);
    free(r);
}

static struct mg_net_header header(const char *name, const char *value)
{
    return (struct mg_net_header){mg_sv_of(name), mg_sv_of(value)};
}

int mg_remote_headers(const struct mg_remote *r, const struct mg_remote_req *q, struct mg_buf *bearer,
                      struct mg_net_header h[MG_REMOTE_HEADERS_MAX])
{
    int n = 0;
    (void)mg_buf_printf(bearer, "Bearer %s", r->token);
    h[n++] = (struct mg_net_header){MG_SV("authorization"), mg_buf_view(bearer)};
    h[n++] = header("accept", q->accept ? q->accept : "application/json");
    h[n++] = header("anthropic-version", MG_REMOTE_VERSION);
    if (!q->beta || *q->beta)
        h[n++] = header("anthropic-beta", q->beta ? q->beta : MG_REMOTE_BETA);
    h[n++] = header("x-stainless-helper", q->helper ? q->helper : r->helper);
    h[n++] = header("user-agent", AGENT);
    if (q->body.len)
        h[n++] = header("content-type", "application/json");
    if (q->worker_id)
        h[n++] = header("Anthropic-Worker-ID", q->worker_id);
    return n;
}

/* Control characters of a server's text must not reach a terminal. */
static void show(char *out, size_t size, struct mg_sv text)
{
    size_t n = text.len < size - 1 ? text.len : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text.ptr[i] < 0x20 ? ' ' : text.ptr[i];
    out[n] = '\0';
}

mg_rc mg_remote_refused(int status, struct mg_sv body, char code[MG_REMOTE_CODE_MAX], struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    char text[SHOWN_MAX];
    mg_rc rc = status == 401   ? MG_EAUTH
               : status == 403 ? MG_EDENIED
               : status == 404 ? MG_ENOTFOUND
               : status == 409 ? MG_ECONFLICT
               : status == 412 ? MG_EPRECOND
               : status == 413 ? MG_ETOOBIG
               : status == 429 ? MG_ERATE
               : status >= 500 ? MG_EUNAVAIL
                               : MG_EINVAL;
    code[0] = '\0';
    if (mg_json_parse(a, body, &mg_json_raw_limits, &v, NULL) < 0 ||
        !mg_json_is(mg_json_get(v, "error"), MG_JSON_OBJECT)) {
        show(text, sizeof(text), body);
        return mg_err_set(err, rc, "the server answered %d, and not as the API does: %s", status, text);
    }
    const struct mg_json *e = mg_json_get(v, "error");
    show(code, MG_REMOTE_CODE_MAX, mg_json_get_str(a, mg_json_get(e, "details"), "error_code"));
    show(text, sizeof(text), mg_json_get_str(a, e, "message"));
    return mg_err_set(err, rc, "%d %.*s: %s (request %.*s)", status, MG_SV_ARG(mg_json_get_str(a, e, "type")), text,
                      MG_SV_ARG(mg_json_get_str(a, v, "request_id")));
}

/* The value of a header of the answer, or an empty view. */
static struct mg_sv find_header(const struct mg_buf *headers, const char *name)
{
    struct mg_sv rest = mg_buf_view(headers);
    size_t n = strlen(name);
    while (rest.len) {
        struct mg_sv line = mg_sv_split(&rest, '\n');
        if (line.len > n && line.ptr[n] == ':' && memcmp(line.ptr, name, n) == 0)
            return mg_sv_trim(mg_sv_from(line, n + 1));
    }
    return MG_SV("");
}

static uint32_t asked_in_words(const struct mg_buf *headers)
{
    static const char *const names[] = {"date", "retry-after"};
    struct mg_retry_after r = {.date_us = 0};
    uint32_t ms = 0;
    for (int i = 0; i < 2; i++)
        (void)mg_retry_after_header(&r, mg_sv_of(names[i]), find_header(headers, names[i]), RETRY_AFTER_MAX_MS, &ms);
    return ms;
}

static void note_retry(struct mg_remote_answer *ret, const struct mg_buf *headers)
{
    struct mg_sv should = find_header(headers, "x-should-retry"), ms = find_header(headers, "retry-after-ms");
    int64_t asked = 0;
    ret->again = mg_sv_eqz(should, "true") || (mg_retry_again(ret->status) && !mg_sv_eqz(should, "false"));
    if (mg_sv_to_i64(ms, &asked) && asked > 0)
        ret->wait_ms = asked < RETRY_AFTER_MAX_MS ? (uint32_t)asked : RETRY_AFTER_MAX_MS;
    else
        ret->wait_ms = asked_in_words(headers);
}

static mg_rc try_once(const struct mg_remote *r, const struct mg_remote_req *q, struct mg_remote_answer *ret,
                      struct mg_err *err)
{
    struct mg_net_header h[MG_REMOTE_HEADERS_MAX];
    mg_auto(buf) struct mg_buf bearer = MG_BUF_INIT(BEARER_MAX);
    mg_auto(buf) struct mg_buf url = MG_BUF_INIT(URL_MAX);
    mg_auto(net_answer) struct mg_net_answer a = {.status = 0};
    struct mg_net_req req = {
        .method = mg_sv_of(q->method),
        .headers = h,
        .n_headers = mg_remote_headers(r, q, &bearer, h),
        .body = q->body,
        .idle_ms = q->call_ms ? q->call_ms : MG_REMOTE_CALL_MS,
        .total_ms = q->call_ms ? q->call_ms : MG_REMOTE_CALL_MS,
        .max_bytes = q->max_bytes ? q->max_bytes : MG_REMOTE_ANSWER_MAX,
    };
    if (mg_buf_printf(&url, "%s%s", r->base, q->path) < 0 || !mg_buf_ok(&bearer))
        return mg_err_set(err, MG_EINVAL, "the URL or the credential is too long");
    req.url = mg_buf_view(&url);
    mg_rc rc = mg_net_call(r->net, &req, q->deadline_ns, q->cancel, &a, err);
    mg_wipe(bearer.ptr, bearer.len);
    mg_buf_done(&ret->body);
    *ret = (struct mg_remote_answer){.status = rc == MG_OK ? a.status : 0, .body = a.body};
    a.body = MG_BUF_INIT(0);
    if (rc < 0) { /* an answer that did not come whole is none */
        ret->again = rc == MG_EIO || rc == MG_ETIMEOUT;
        return rc;
    }
    if (a.status >= 200 && a.status < 300)
        return MG_OK;
    note_retry(ret, &a.headers);
    return mg_remote_refused(a.status, mg_buf_view(&ret->body), ret->code, err);
}

mg_rc mg_remote_call(const struct mg_remote *r, const struct mg_remote_req *q, struct mg_remote_answer *ret,
                     struct mg_err *err)
{
    int tries = 1 + (q->retries == 0 ? MG_REMOTE_RETRIES : q->retries < 0 ? 0 : q->retries);
    *ret = (struct mg_remote_answer){.body = MG_BUF_INIT(0)};
    for (unsigned i = 0;; i++) {
        mg_rc rc = try_once(r, q, ret, err);
        if (rc == MG_OK || !ret->again || --tries == 0)
            return rc;
        uint32_t wait = ret->wait_ms ? ret->wait_ms : mg_retry_delay_ms(i, RETRY_BASE_MS, RETRY_CAP_MS);
        if (q->deadline_ns && mg_now_ns() + (uint64_t)wait * 1000000u >= q->deadline_ns)
            return rc;
        if (!mg_retry_sleep(wait, q->cancel))
            return mg_err_set(err, MG_ECANCELED, "cancelled");
    }
}
