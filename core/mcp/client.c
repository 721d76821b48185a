/* A link: its session with the server, and the order of requests that the protocol asks for.
 *
 * Concurrency: a link belongs to one thread at a time. While an exchange runs, the loop's thread reads url, version and
 * session to answer requests of the server; they change between exchanges only. A host is reference-counted: its own
 * reference, one for each link, and one for each request that nobody waits for. */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "json/write.h"
#include "mcp/exchange.h"
#include "mcp/rpc.h"

enum {
    TELL_MS = 5000,           /* a request that nobody waits for: a cancellation, an answer to a ping, the goodbye */
    GOODBYE_MS = 1000,        /* the host waits so long for them at its end */
    RETRY_PAUSE_MS = 250,     /* before a second try of what did not run */
    RESUME_PAUSE_MS = 500,    /* before a reconnect, where the server names no time */
    RESUME_PAUSE_MAX = 10000, /* of what a server may ask for */
    REDIRECTS_MAX = 3,        /* within the same host */
    ANSWERS_MAX = 16,         /* requests of the server that are answered in one exchange */
    HEADERS_MAX = 8,
    VERSION_MAX = 32,
    BEARER_MAX = 32 * 1024,         /* bytes of an authorization header: above what a credential may have */
    REQUEST_MAX = 64 * 1024 * 1024, /* bytes of a request: an input is what a model wrote in one answer */
};

/* Newest first: the first is proposed. */
static const char *const VERSIONS[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

struct mg_mcp_host {
    struct mg_net *net;
    uint32_t call_ms, total_ms, list_ms;
    atomic_uint refs, telling;
};

struct mg_mcp {
    struct mg_mcp_host *host;
    char named[MG_MCP_URL_MAX + 1]; /* as the agent has it */
    char url[MG_MCP_URL_MAX + 1];   /* where a redirect led to, within the same host */
    char version[VERSION_MAX];
    char session[MG_MCP_SESSION_MAX + 1]; /* "": the server keeps none */
    struct mg_buf bearer;                 /* "Bearer TOKEN"; empty: none */
    bool open, no_tools;
    struct mg_mcp_refusal refusal; /* of the newest request */
    int64_t last_id;
    atomic_int n_answers; /* of the present exchange */
};

/* ---- hosts ---- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t mg_mcp_total_ms(uint32_t call_ms)
{
    enum { TIMES = 10 /* what a call that tells of its progress gets more */ };
    uint32_t ms = call_ms ? call_ms : MG_MCP_CALL_MS;
    if (ms < MG_MCP_TOTAL_MS / TIMES)
        return ms * TIMES;
    return ms > MG_MCP_TOTAL_MS ? ms : MG_MCP_TOTAL_MS;
}

struct mg_mcp_host *mg_mcp_host_new(const struct mg_mcp_host_opts *o)
{
    struct mg_mcp_host *h = mg_xcalloc(1, sizeof(*h));
    h->net = o->net;
    h->call_ms = o->call_ms ? o->call_ms : MG_MCP_CALL_MS;
    h->total_ms = mg_mcp_total_ms(h->call_ms);
    h->list_ms = smaller(h->call_ms, MG_MCP_LIST_MS);
    atomic_store(&h->refs, 1);
    return h;
}

static void host_unref(struct mg_mcp_host *h)
{
    if (atomic_fetch_sub(&h->refs, 1) == 1)
        free(h);
}

void mg_mcp_host_free(struct mg_mcp_host *h)
{
    if (!h)
        return;
    uint64_t end = mg_now_ns() + GOODBYE_MS * 1000000ull;
    while (atomic_load(&h->telling) && mg_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    host_unref(h);
}

/* ---- requests that nobody waits for ---- */

static int fill_headers(const struct mg_mcp *m, struct mg_net_header *h, struct mg_sv event_id)
{
    int n = 0;
    h[n++] = (struct mg_net_header){MG_SV("content-type"), MG_SV("application/json")};
    h[n++] = (struct mg_net_header){MG_SV("accept"), MG_SV("application/json, text/event-stream")};
    if (m->version[0])
        h[n++] = (struct mg_net_header){MG_SV("mcp-protocol-version"), mg_sv_of(m->version)};
    if (m->session[0])
        h[n++] = (struct mg_net_header){MG_SV("mcp-session-id"), mg_sv_of(m->session)};
    if (m->bearer.len)
        h[n++] = (struct mg_net_header){MG_SV("authorization"), mg_buf_view(&m->bearer)};
    if (event_id.len)
        h[n++] = (struct mg_net_header){MG_SV("last-event-id"), event_id};
    return n;
}

static void told(void *ctx, const struct mg_net_result *r)
{
    struct mg_mcp_host *h = ctx;
    (void)r;
    atomic_fetch_sub(&h->telling, 1);
    host_unref(h);
}

static void tell(const struct mg_mcp *m, const char *method, struct mg_sv body)
{
    struct mg_net_header headers[HEADERS_MAX];
    int n = fill_headers(m, headers, MG_SV(""));
    atomic_fetch_add(&m->host->refs, 1);
    atomic_fetch_add(&m->host->telling, 1);
    mg_net_start(m->host->net, &(struct mg_net_req){
                                   .method = mg_sv_of(method),
                                   .url = mg_sv_of(m->url),
                                   .headers = headers,
                                   .n_headers = n,
                                   .body = body,
                                   .connect_ms = TELL_MS,
                                   .idle_ms = TELL_MS,
                                   .total_ms = TELL_MS,
                                   .max_bytes = MG_MCP_REFUSAL_MAX,
                                   .on_done = told,
                                   .ctx = m->host,
                               });
}

/* On the loop's thread. */
static void on_request(void *ctx, struct mg_sv id, struct mg_sv method)
{
    struct mg_mcp *m = ctx;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4096);
    if (id.len > MG_RPC_ID_MAX || atomic_fetch_add(&m->n_answers, 1) >= ANSWERS_MAX)
        return;
    if (mg_rpc_answer(&b, id, method) == MG_OK)
        tell(m, "POST", mg_buf_view(&b));
}

static void tell_cancelled(const struct mg_mcp *m, int64_t id, const char *reason)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4096);
    char params[128];
    (void)snprintf(params, sizeof(params), "{\"requestId\":%lld,\"reason\":\"%s\"}", (long long)id, reason);
    if (mg_rpc_note(&b, "notifications/cancelled", mg_sv_of(params)) == MG_OK)
        tell(m, "POST", mg_buf_view(&b));
}

/* ---- one request and its answer ---- */

struct ask {
    const char *method;
    struct mg_sv params;
    uint32_t idle_ms;
    uint64_t deadline_ns;
    int64_t token; /* by which the server tells of its progress; 0: none */
    bool once;     /* it has effects: must not be sent twice */
    struct mg_cancel *cancel;
    bool lost; /* out: it may have been acted on, and there is no answer */
};

static uint32_t left_ms(const struct ask *q)
{
    uint64_t now = mg_now_ns();
    return q->deadline_ns > now ? (uint32_t)((q->deadline_ns - now) / 1000000u) + 1 : 1;
}

/* A pause that the cancel ends. False: it did, or the deadline is too near. */
static bool pause_ms(const struct ask *q, int64_t ms)
{
    uint64_t end = mg_now_ns() + (uint64_t)ms * 1000000u;
    if (end >= q->deadline_ns)
        return false;
    while (mg_now_ns() < end && !mg_cancel_fired(q->cancel))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return !mg_cancel_fired(q->cancel);
}

static void exchange(struct mg_mcp *m, const struct ask *q, const char *http, struct mg_sv body, int64_t id,
                     struct mg_sv event_id, struct mg_mcp_exchange *x)
{
    struct mg_net_header headers[HEADERS_MAX];
    uint32_t left = left_ms(q);
    atomic_store(&m->n_answers, 0);
    mg_mcp_exchange(m->host->net,
                    &(struct mg_mcp_exchange_req){
                        .method = http,
                        .url = mg_sv_of(m->url),
                        .body = body,
                        .headers = headers,
                        .n_headers = fill_headers(m, headers, event_id),
                        .id = id,
                        .token = q->token,
                        .idle_ms = smaller(q->idle_ms, left),
                        .total_ms = left,
                        .fresh = q->once && body.len,
                        .cancel = q->cancel,
                        .on_request = on_request,
                        .ctx = m,
                    },
                    x);
}

/* The part of a URL up to its path. */
static struct mg_sv origin_of(struct mg_sv url)
{
    const char *at = memmem(url.ptr, url.len, "://", 3);
    size_t from = at ? (size_t)(at - url.ptr) + 3 : 0;
    struct mg_sv rest = mg_sv_from(url, from);
    size_t n = 0;
    while (n < rest.len && rest.ptr[n] != '/' && rest.ptr[n] != '?' && rest.ptr[n] != '#')
        n++;
    return mg_sv_n(url.ptr, from + n);
}

/* Follows a redirect that keeps the method and stays on the host: nothing ran. */
static bool follow(struct mg_mcp *m, const struct mg_mcp_exchange *x)
{
    char url[MG_MCP_URL_MAX + 1];
    struct mg_sv to = mg_sv_of(x->location), origin = origin_of(mg_sv_of(m->url));
    if ((x->status != 307 && x->status != 308) || to.len == 0)
        return false;
    if (to.ptr[0] == '/' && !mg_sv_starts(to, "//")) {
        int n = snprintf(url, sizeof(url), "%.*s%s", MG_SV_ARG(origin), x->location);
        if (n < 0 || (size_t)n >= sizeof(url))
            return false;
    } else if (mg_sv_eq_nocase(origin_of(to), origin)) {
        (void)snprintf(url, sizeof(url), "%s", x->location);
    } else {
        return false;
    }
    (void)snprintf(m->url, sizeof(m->url), "%s", url);
    return true;
}

/* What a refusal says: the message of a JSON-RPC error or of an OAuth one, else its first words. */
static void refusal_text(const struct mg_mcp_exchange *x, char *out, size_t size)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v = NULL;
    struct mg_sv text = mg_buf_view(&x->refusal);
    if (mg_json_parse(a, text, &mg_json_raw_limits, &v, NULL) == MG_OK) {
        struct mg_sv message = mg_json_get_str(a, mg_json_get(v, "error"), "message");
        if (message.len == 0)
            message = mg_json_get_str(a, v, "error_description");
        if (message.len == 0)
            message = mg_json_get_str(a, v, "message");
        text = message.len ? message : text;
    }
    mg_rpc_show(out, size < 256 ? size : 256, text);
}

static bool says_session(const char *text)
{
    return strcasestr(text, "session") != NULL;
}

const struct mg_mcp_refusal *mg_mcp_refused(const struct mg_mcp *m)
{
    return &m->refusal;
}

static void keep_refusal(struct mg_mcp *m, const struct mg_mcp_exchange *x)
{
    mg_auto(buf) struct mg_buf clean = MG_BUF_INIT(4 * sizeof(m->refusal.text));
    struct mg_sv text = mg_buf_view(&x->refusal);
    text.len = mg_utf8_floor(text, sizeof(m->refusal.text) - 1);
    m->refusal.status = x->status;
    m->refusal.cut = text.len < x->refusal.len;
    (void)mg_utf8_clean(&clean, text);
    (void)snprintf(m->refusal.text, sizeof(m->refusal.text), "%.*s", (int)clean.len, clean.ptr ? clean.ptr : "");
    (void)snprintf(m->refusal.type, sizeof(m->refusal.type), "%s", x->type);
}

/* An answer whose status is no success. */
static mg_rc refused(struct mg_mcp *m, struct ask *q, const struct mg_mcp_exchange *x, struct mg_err *err)
{
    char text[256];
    refusal_text(x, text, sizeof(text));
    keep_refusal(m, x);
    if (x->status == 401 || x->status == 403)
        return mg_err_set(err, MG_EAUTH, "the server %s (status %d)%s%s",
                          m->bearer.len ? "refuses the credential that this session has for it"
                                        : "wants credentials, and this session has none for it",
                          x->status, text[0] ? ": " : "", text);
    if (m->session[0] && (x->status == 404 || (x->status == 400 && says_session(text))))
        return mg_err_set(err, MG_EGONE, "the server has ended the session");
    if (x->status >= 300 && x->status < 400)
        return mg_err_set(
            err, MG_EINVAL,
            "the server answered with a redirect (status %d), which is not followed to another host; give "
            "the server's final URL",
            x->status);
    q->lost = x->status >= 500 || x->status == 408; /* who answered may stand in front of who acted */
    return mg_err_set(err, x->status >= 500 || x->status == 429 ? MG_EUNAVAIL : MG_EINVAL,
                      "the server answered with status %d%s%s", x->status, text[0] ? ": " : "", text);
}

/* There is no answer. */
static mg_rc unanswered(struct mg_mcp *m, struct ask *q, const struct mg_mcp_exchange *x, int64_t id,
                        struct mg_err *err)
{
    if (x->rc == MG_OK && (x->status < 200 || x->status > 299))
        return refused(m, q, x, err);
    q->lost = x->sent;
    if (x->rc == MG_ECANCELED || x->rc == MG_ETIMEOUT) {
        if (x->sent && strcmp(q->method, "initialize") != 0)
            tell_cancelled(m, id, x->rc == MG_ECANCELED ? "interrupted by the user" : "no answer in time");
        return mg_err_set(err, x->rc, "%s", x->rc == MG_ECANCELED ? "the call was cancelled" : x->text);
    }
    if (x->rc == MG_EDENIED)
        return mg_err_set(err, MG_EDENIED, "%s; MANGO_MCP_ALLOW_PRIVATE=1 lets sessions reach private addresses",
                          x->text);
    if (x->rc == MG_OK && x->malformed)
        return mg_err_set(err, MG_EINVAL, "%s", x->text);
    if (x->rc == MG_OK)
        return mg_err_set(err, MG_EIO, "the server's answer ended without the response to the request");
    return mg_err_set(err, x->rc, "%s", x->text);
}

static bool resumable(const struct mg_mcp_exchange *x)
{
    return !x->answered && !x->malformed && x->stream && x->event_id[0] && (x->rc == MG_OK || x->rc == MG_EIO);
}

/* The stream ended before the answer: the server keeps the rest, and gives it behind the newest event that came. */
static void resume(struct mg_mcp *m, const struct ask *q, int64_t id, struct mg_mcp_exchange *x)
{
    for (int i = 0; i < MG_MCP_RESUMES_MAX && resumable(x); i++) {
        int64_t ms = x->retry_ms < 0                  ? RESUME_PAUSE_MS
                     : x->retry_ms > RESUME_PAUSE_MAX ? RESUME_PAUSE_MAX
                                                      : x->retry_ms;
        mg_auto(mcp_exchange) struct mg_mcp_exchange next;
        if (!pause_ms(q, ms)) {
            x->rc = mg_cancel_fired(q->cancel) ? MG_ECANCELED : MG_ETIMEOUT;
            (void)snprintf(x->text, sizeof(x->text), "the answer was not complete in time");
            return;
        }
        exchange(m, q, "GET", MG_SV(""), id, mg_sv_of(x->event_id), &next);
        bool again = next.rc == MG_EIO && !next.stream; /* not even connected: the same place once more */
        if (next.rc == MG_OK && next.status != 200 && !again) {
            x->malformed = true;
            x->rc = MG_OK;
            (void)snprintf(x->text, sizeof(x->text), "the server did not give the rest of its answer (status %d)",
                           next.status);
            return;
        }
        next.sent = true;
        if (!next.event_id[0])
            (void)snprintf(next.event_id, sizeof(next.event_id), "%s", x->event_id);
        if (next.retry_ms < 0)
            next.retry_ms = x->retry_ms;
        next.stream = true;
        struct mg_mcp_exchange old = *x;
        *x = next;
        next = old; /* freed here */
    }
}

/* MG_OK: ret holds the whole message that answers. */
static mg_rc ask_once(struct mg_mcp *m, struct ask *q, struct mg_buf *ret, struct mg_mcp_exchange *ret_x,
                      struct mg_err *err)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(REQUEST_MAX);
    mg_auto(mcp_exchange) struct mg_mcp_exchange x = {0};
    int64_t id = ++m->last_id;
    q->lost = false;
    if (mg_rpc_request(&body, id, q->method, q->params) < 0)
        return mg_err_set(err, MG_ETOOBIG, "the request is over %d bytes", REQUEST_MAX);
    for (int redirects = 0;; redirects++) {
        exchange(m, q, "POST", mg_buf_view(&body), id, MG_SV(""), &x);
        if (x.rc < 0 || redirects == REDIRECTS_MAX || !follow(m, &x))
            break;
        mg_mcp_exchange_cleanup(&x);
    }
    resume(m, q, id, &x);
    if (!x.answered)
        return unanswered(m, q, &x, id, err);
    mg_buf_done(ret);
    *ret = x.message;
    x.message = MG_BUF_INIT(0);
    if (ret_x)
        (void)snprintf(ret_x->session, sizeof(ret_x->session), "%s", x.session);
    return MG_OK;
}

/* Once more where nothing ran and another try may help. */
static mg_rc ask(struct mg_mcp *m, struct ask *q, struct mg_buf *ret, struct mg_mcp_exchange *ret_x, struct mg_err *err)
{
    m->refusal = (struct mg_mcp_refusal){.method = q->method};
    mg_rc rc = ask_once(m, q, ret, ret_x, err);
    bool may_pass = rc == MG_EIO || (rc == MG_EUNAVAIL && !q->once);
    if (!may_pass || (q->lost && q->once) || !pause_ms(q, RETRY_PAUSE_MS))
        return rc;
    return ask_once(m, q, ret, ret_x, err);
}

/* The result of a message that has one; an error of the server becomes ours. */
static mg_rc result_of(struct mg_arena *a, struct mg_sv message, const char *method, const struct mg_json **ret,
                       struct mg_err *err)
{
    struct mg_rpc m[MG_RPC_BATCH_MAX];
    char text[512];
    int n;
    mg_rc rc = mg_rpc_parse(a, message, m, &n, err);
    if (rc < 0)
        return rc;
    if (m[0].kind == MG_RPC_ERROR) {
        mg_rpc_error_text(a, m[0].body, text, sizeof(text));
        return mg_err_set(err, MG_EINVAL, "the server refused %s: %s", method, text);
    }
    *ret = m[0].body;
    return MG_OK;
}

/* ---- opening ---- */

static mg_rc take_version(struct mg_mcp *m, struct mg_sv version, struct mg_err *err)
{
    char shown[VERSION_MAX];
    for (size_t i = 0; i < sizeof(VERSIONS) / sizeof(VERSIONS[0]); i++)
        if (mg_sv_eqz(version, VERSIONS[i])) {
            (void)snprintf(m->version, sizeof(m->version), "%s", VERSIONS[i]);
            return MG_OK;
        }
    mg_rpc_show(shown, sizeof(shown), version);
    return mg_err_set(err, MG_EINVAL, "the server speaks version \"%s\" of the protocol; known are %s to %s", shown,
                      VERSIONS[sizeof(VERSIONS) / sizeof(VERSIONS[0]) - 1], VERSIONS[0]);
}

static void forget_session(struct mg_mcp *m)
{
    m->open = false;
    m->version[0] = m->session[0] = '\0';
}

static mg_rc note_initialized(struct mg_mcp *m, const struct ask *q, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(4096);
    mg_auto(mcp_exchange) struct mg_mcp_exchange x = {0};
    if (mg_rpc_note(&body, "notifications/initialized", MG_SV("")) < 0)
        return mg_err_set(err, MG_EINTERNAL, "a note of ours is too long");
    exchange(m, q, "POST", mg_buf_view(&body), 0, MG_SV(""), &x);
    if (x.rc < 0)
        return mg_err_set(err, x.rc, "%s", x.text);
    struct ask copy = *q;
    return x.status >= 200 && x.status < 300 ? MG_OK : refused(m, &copy, &x, err);
}

static mg_rc open_link(struct mg_mcp *m, uint64_t deadline_ns, struct mg_cancel *cancel, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf message = MG_BUF_INIT(MG_MCP_ANSWER_MAX);
    struct mg_mcp_exchange head = {0};
    const struct mg_json *result = NULL;
    if (m->open)
        return MG_OK;
    forget_session(m);
    struct ask q = {
        .method = "initialize",
        .params = mg_arena_printf(a,
                                  "{\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"mango\","
                                  "\"version\":\"%s\"}}",
                                  VERSIONS[0], PACKAGE_VERSION),
        .idle_ms = m->host->list_ms,
        .deadline_ns = deadline_ns,
        .cancel = cancel,
    };
    mg_rc rc = ask(m, &q, &message, &head, err);
    if (rc == MG_OK)
        rc = result_of(a, mg_buf_view(&message), q.method, &result, err);
    if (rc == MG_OK)
        rc = take_version(m, mg_json_get_str(a, result, "protocolVersion"), err);
    if (rc < 0)
        return rc;
    m->no_tools = !mg_json_is(mg_json_get(mg_json_get(result, "capabilities"), "tools"), MG_JSON_OBJECT);
    (void)snprintf(m->session, sizeof(m->session), "%s", head.session);
    rc = note_initialized(m, &q, err);
    m->open = rc == MG_OK;
    if (rc < 0)
        forget_session(m);
    return rc;
}

/* ---- links ---- */

struct mg_mcp *mg_mcp_new(struct mg_mcp_host *h, struct mg_sv url)
{
    struct mg_mcp *m = mg_xcalloc(1, sizeof(*m));
    atomic_fetch_add(&h->refs, 1);
    m->host = h;
    m->bearer = MG_BUF_INIT(BEARER_MAX);
    (void)snprintf(m->named, sizeof(m->named), "%.*s", MG_SV_ARG(url));
    (void)snprintf(m->url, sizeof(m->url), "%s", m->named);
    return m;
}

void mg_mcp_free(struct mg_mcp *m)
{
    if (!m)
        return;
    if (m->session[0])
        tell(m, "DELETE", MG_SV(""));
    host_unref(m->host);
    mg_buf_wipe(&m->bearer);
    free(m);
}

void mg_mcp_authorize(struct mg_mcp *m, struct mg_sv token)
{
    mg_buf_wipe(&m->bearer);
    if (token.len && mg_buf_reserve(&m->bearer, token.len + sizeof("Bearer ")) == MG_OK) {
        (void)mg_buf_str(&m->bearer, "Bearer ");
        (void)mg_buf_sv(&m->bearer, token);
    }
}

/* ---- tools/list ---- */

static mg_rc list_page(struct mg_mcp *m, struct ask *q, struct mg_mcp_tool_list *l, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf message = MG_BUF_INIT(MG_MCP_ANSWER_MAX);
    const struct mg_json *result = NULL;
    q->params = l->cursor[0] ? mg_arena_printf(a, "{\"cursor\":%s}", l->cursor) : MG_SV("");
    mg_rc rc = ask(m, q, &message, NULL, err);
    if (rc == MG_OK)
        rc = result_of(a, mg_buf_view(&message), q->method, &result, err);
    return rc < 0 ? rc : mg_mcp_tool_list_add(a, l, result, err);
}

static mg_rc list_all(struct mg_mcp *m, uint64_t deadline_ns, struct mg_cancel *cancel, struct mg_mcp_tool_list *l,
                      struct mg_err *err)
{
    struct ask q = {.method = "tools/list", .idle_ms = m->host->list_ms, .deadline_ns = deadline_ns, .cancel = cancel};
    mg_rc rc = open_link(m, deadline_ns, cancel, err);
    if (rc < 0 || m->no_tools)
        return rc;
    for (int page = 0;; page++) {
        if (page == MG_MCP_PAGES_MAX)
            return mg_err_set(err, MG_ETOOBIG, "the server's list of tools has more than %d pages", MG_MCP_PAGES_MAX);
        rc = list_page(m, &q, l, err);
        if (rc < 0 || !l->cursor[0])
            return rc;
        if (l->n_tools == MG_MCP_TOOLS_MAX)
            return MG_OK; /* no more would be taken */
    }
}

mg_rc mg_mcp_list(struct mg_mcp *m, struct mg_cancel *cancel, struct mg_mcp_tool_list *ret, struct mg_err *err)
{
    uint64_t deadline_ns = mg_now_ns() + m->host->list_ms * 1000000ull;
    for (int i = 0;; i++) {
        mg_mcp_tool_list_done(ret);
        mg_mcp_tool_list_init(ret);
        mg_rc rc = list_all(m, deadline_ns, cancel, ret, err);
        if (rc == MG_EGONE)
            forget_session(m);
        if (rc != MG_EGONE || i == 1) {
            mg_mcp_tool_list_end(ret);
            return rc;
        }
    }
}

/* ---- tools/call ---- */

static mg_rc call_params(struct mg_buf *out, int64_t token, struct mg_sv tool, struct mg_sv input, struct mg_err *err)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "name", tool);
    mg_jw_kraw(&w, "arguments", input);
    mg_jw_key(&w, "_meta");
    mg_jw_obj(&w);
    mg_jw_kint(&w, "progressToken", token);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : mg_err_set(err, MG_ETOOBIG, "the input is over %d bytes", REQUEST_MAX);
}

static mg_rc call_once(struct mg_mcp *m, uint64_t deadline_ns, struct mg_sv tool, struct mg_sv input,
                       struct mg_cancel *cancel, struct mg_mcp_answer *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf params = MG_BUF_INIT(REQUEST_MAX);
    mg_rc rc = open_link(m, mg_now_ns() + m->host->list_ms * 1000000ull, cancel, err);
    if (rc == MG_OK)
        rc = call_params(&params, m->last_id + 1, tool, input, err);
    if (rc < 0)
        return rc;
    struct ask q = {
        .method = "tools/call",
        .params = mg_buf_view(&params),
        .idle_ms = m->host->call_ms,
        .deadline_ns = deadline_ns,
        .token = m->last_id + 1,
        .once = true,
        .cancel = cancel,
    };
    rc = ask(m, &q, &ret->message, NULL, err);
    ret->may_have_run = rc < 0 && q.lost;
    return rc;
}

mg_rc mg_mcp_call(struct mg_mcp *m, struct mg_sv tool, struct mg_sv input, struct mg_cancel *cancel,
                  struct mg_mcp_answer *ret, struct mg_err *err)
{
    uint64_t deadline_ns = mg_now_ns() + m->host->total_ms * 1000000ull;
    *ret = (struct mg_mcp_answer){.message = MG_BUF_INIT(MG_MCP_ANSWER_MAX)};
    mg_rc rc = call_once(m, deadline_ns, tool, input, cancel, ret, err);
    if (rc != MG_EGONE)
        return rc;
    forget_session(m); /* the server refused the request for its session: nothing ran */
    return call_once(m, deadline_ns, tool, input, cancel, ret, err);
}

struct mg_sv mg_mcp_url(const struct mg_mcp *m)
{
    return mg_sv_of(m->named);
}
