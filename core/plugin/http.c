/* http_call, and what conn_open shares with it. */
#include "base/clock.h"
#include "base/mem.h"
#include "net/exchange.h"
#include "plugin/net-internal.h"

enum {
    RETRY_AFTER_MAX_MS = 24 * 3600 * 1000, /* a service that asks for more is as good as down */
};

/* Up to here every plugin's structs reach: the members of the first header. */
#define REQ_SIZE_MIN (offsetof(struct mango_http_req, max_body) + sizeof(uint64_t))
#define RES_SIZE_MIN (offsetof(struct mango_http_res, header_ctx) + sizeof(void *))

static struct mg_sv sv(struct mango_sv s)
{
    return (struct mg_sv){s.ptr ? s.ptr : "", s.ptr ? (size_t)s.len : 0};
}

static mango_status fail(const struct mango_call *call, mango_status status, const char *text)
{
    (void)mg_err_set((struct mg_err *)call->err, MG_EINTERNAL, "%s", text);
    return status;
}

mango_status mg_plugin_net_status(mg_rc rc)
{
    switch (rc) {
    case MG_OK:
        return MANGO_OK;
    case MG_EINVAL:
        return MANGO_EINVALID;
    case MG_EDENIED:
        return MANGO_EDENIED;
    case MG_ETIMEOUT:
        return MANGO_ETIMEOUT;
    case MG_ECANCELED:
        return MANGO_ECANCELED;
    case MG_ETOOBIG:
        return MANGO_ETOOBIG;
    default:
        return MANGO_ERETRY;
    }
}

/* ---- callbacks, on the calling thread ---- */

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct mg_plugin_exchange *x = ctx;
    x->res->status = status;
    if (MANGO_REACHES(x->res, retry_after_ms))
        (void)mg_retry_after_header(&x->retry, name, value, RETRY_AFTER_MAX_MS, &x->res->retry_after_ms);
    if (x->res->on_header)
        x->res->on_header(x->res->header_ctx, (struct mango_sv){name.ptr, name.len},
                          (struct mango_sv){value.ptr, value.len});
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct mg_plugin_exchange *x = ctx;
    if (x->res->sink)
        return x->res->sink(x->res->sink_ctx, 0, p, n) == 0 ? MG_NET_GO : MG_NET_DRAIN;
    if (!x->res->body || mg_buf_append((struct mg_buf *)x->res->body, p, n) == MG_OK)
        return MG_NET_GO;
    x->stopped = MANGO_ETOOBIG;
    return MG_NET_STOP;
}

static int64_t on_read(void *ctx, char *p, size_t n)
{
    struct mg_plugin_exchange *x = ctx;
    int64_t got = x->req->source(x->req->source_ctx, p, n);
    if (got >= 0)
        return got;
    x->stopped = got >= INT32_MIN ? (mango_status)got : MANGO_EINTERNAL;
    return MG_NET_READ_ABORT;
}

/* ---- a request ---- */

static mango_status take_headers(struct mg_plugin_exchange *x, const struct mango_call *call)
{
    if (x->req->n_headers > MG_NET_HEADERS_MAX)
        return fail(call, MANGO_EINVALID, "more than 64 request headers");
    for (uint64_t i = 0; i < x->req->n_headers; i++)
        x->headers[i] = (struct mg_net_header){sv(x->req->headers[i].name), sv(x->req->headers[i].value)};
    x->net.headers = x->headers;
    x->net.n_headers = (int)x->req->n_headers;
    return MANGO_OK;
}

static mango_status check(struct mg_plugin_net *n, const struct mango_call *call, const struct mango_http_req *req,
                          const struct mango_http_res *res)
{
    if (!req || req->struct_size < REQ_SIZE_MIN || (res && res->struct_size < RES_SIZE_MIN))
        return fail(call, MANGO_EINVALID, "the request or its answer has no struct_size, or one that is too small");
    if (req->flags & ~(MANGO_HTTP_INSECURE | MANGO_HTTP_ONCE | MANGO_HTTP_RAW))
        return fail(call, MANGO_EINVALID, "the request has flags that this server does not know");
    if ((req->flags & MANGO_HTTP_INSECURE) && !n->allow_insecure)
        return fail(call, MANGO_EDENIED,
                    "certificates are checked: MANGO_HTTP_INSECURE needs MANGO_PLUGIN_INSECURE_TLS=1");
    return MANGO_OK;
}

mango_status mg_plugin_exchange_init(struct mg_plugin_exchange *x, struct mg_plugin_net *n,
                                     const struct mango_call *call, const struct mango_http_req *req,
                                     struct mango_http_res *res)
{
    mango_status status = check(n, call, req, res);
    if (status < 0)
        return status;
    *x = (struct mg_plugin_exchange){.req = req, .res = res};
    x->net = (struct mg_net_req){
        .method = sv(req->method),
        .url = sv(req->url),
        .body = sv(req->body),
        .unix_socket = sv(req->unix_socket),
        .ca_pem = sv(req->ca_pem),
        .cert_pem = sv(req->cert_pem),
        .key_pem = sv(req->key_pem),
        .insecure = req->flags & MANGO_HTTP_INSECURE,
        .fresh = req->flags & MANGO_HTTP_ONCE,
        .connect_ms = req->connect_ms,
        .idle_ms = req->idle_ms ? req->idle_ms : MG_NET_FOREVER,
        .total_ms = MG_NET_FOREVER, /* the call's deadline counts */
        .max_bytes = req->max_body ? req->max_body : MG_PLUGIN_NET_BODY_MAX,
        .on_header = on_header,
        .on_body = on_body,
        .on_read = req->source ? on_read : NULL,
        .body_len = req->source_len < 0 ? -1 : req->source_len,
        .ctx = x,
    };
    if (MANGO_REACHES(req, connect_to))
        x->net.connect_to = sv(req->connect_to);
    if (MANGO_REACHES(req, proxy))
        x->net.proxy = sv(req->proxy);
    if (res)
        res->status = 0;
    if (res && MANGO_REACHES(res, retry_after_ms))
        res->flags = res->retry_after_ms = 0;
    return take_headers(x, call);
}

mango_status mg_plugin_http_call(struct mg_plugin_net *n, const struct mango_call *call,
                                 const struct mango_http_req *req, struct mango_http_res *res)
{
    struct mg_plugin_exchange x;
    struct mg_net_result result;
    if (!res || (req && req->flags & MANGO_HTTP_RAW))
        return fail(call, MANGO_EINVALID, "http_call needs a res, and takes no MANGO_HTTP_RAW");
    mango_status status = mg_plugin_exchange_init(&x, n, call, req, res);
    if (status < 0)
        return status;
    mg_rc rc = mg_net_exchange(n->loop, &x.net, call->deadline_ns, (struct mg_cancel *)call->token, &result,
                               (struct mg_err *)call->err);
    res->status = result.status;
    if (MANGO_REACHES(res, flags))
        res->flags = (result.sent ? MANGO_HTTP_RES_SENT : 0) | (result.reused ? MANGO_HTTP_RES_REUSED : 0);
    if (x.stopped == MANGO_ETOOBIG && rc < 0)
        return fail(call, MANGO_ETOOBIG, "the answer is larger than the buffer that it was given");
    return x.stopped < 0 && rc < 0 ? x.stopped : mg_plugin_net_status(rc);
}

/* ---- the whole ---- */

mg_rc mg_plugin_net_open(const struct mg_plugin_net_opts *o, struct mg_plugin_net **ret, struct mg_err *err)
{
    const struct mg_net_opts net = {.name = "mg-plugins", .ca_file = o->ca_file, .proxy = o->proxy};
    if (o->proxy) { /* said at startup, not by the first request */
        mg_rc rc = mg_net_check_url(MG_SV("http://host.example/"), &net, err);
        if (rc < 0)
            return mg_err_set(err, MG_ECONFIG, "MANGO_PLUGIN_PROXY: not a URL like http://proxy.example:3128");
    }
    struct mg_plugin_net *n = mg_xcalloc(1, sizeof(*n));
    mg_rc rc = mg_net_open(&net, &n->loop, err);
    if (rc < 0) {
        free(n);
        return rc;
    }
    n->allow_insecure = o->allow_insecure;
    pthread_mutex_init(&n->lock, NULL);
    for (int i = 0; i < MG_PLUGIN_CONN_LISTS; i++)
        mg_list_init(&n->conns[i]);
    *ret = n;
    return MG_OK;
}

void mg_plugin_net_close(struct mg_plugin_net *n)
{
    if (!n)
        return;
    mg_plugin_net_forget(n, NULL);
    mg_net_close(n->loop);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
