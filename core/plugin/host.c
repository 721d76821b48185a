#include "plugin/host.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/counters.h"
#include "plugin/net.h"

/* Concurrency: the table and what it points to do not change once init is over, the counters excepted. */

enum { SETTING_NAME_MAX = 128 /* bytes of an environment variable's name that is put together here */ };

struct host_impl {
    struct mango_host table; /* first: the table's address is the impl's */
    struct mg_plugin_services services;
    struct mg_plugin_counters counters;
    char name[MG_PLUGIN_NAME_MAX];
    uint64_t without; /* capabilities that init took back */
};

static const struct host_impl *impl_of(const struct mango_host *h)
{
    return h->impl;
}

static void host_log(const struct mango_host *h, int32_t level, const char *text)
{
    enum mg_log_level l = level <= MANGO_LOG_ERROR  ? MG_ERROR
                          : level == MANGO_LOG_WARN ? MG_WARN
                          : level == MANGO_LOG_INFO ? MG_INFO
                                                    : MG_DEBUG;
    mg_log(l, text ? text : "", MG_F_STR("plugin", impl_of(h)->name));
}

static uint64_t host_now_ns(const struct mango_host *h)
{
    (void)h;
    return mg_now_ns();
}

static mango_status host_buf_append(const struct mango_host *h, struct mango_buf *b, const void *p, uint64_t n)
{
    (void)h;
    return mg_buf_append((struct mg_buf *)b, p, n) < 0 ? MANGO_ETOOBIG : MANGO_OK;
}

static int32_t host_cancelled(const struct mango_host *h, const struct mango_call *call)
{
    (void)h;
    return mg_cancel_fired((const struct mg_cancel *)call->token) ? 1 : 0;
}

static int32_t host_cancel_fd(const struct mango_host *h, const struct mango_call *call)
{
    (void)h;
    return call->token ? mg_cancel_fd((struct mg_cancel *)call->token) : -1;
}

static mango_status host_err_set(const struct mango_host *h, const struct mango_call *call, mango_status status,
                                 const char *text, const char *request_id, uint32_t retry_after_ms)
{
    (void)h;
    struct mg_err *err = (struct mg_err *)call->err;
    if (!err)
        return status;
    /* The class is put in when the call is back in the core, by mg_plugin_rc. */
    if (request_id && *request_id)
        mg_err_set(err, MG_EINTERNAL, "%s (request id %.100s)", text ? text : "", request_id);
    else
        mg_err_set(err, MG_EINTERNAL, "%s", text ? text : "");
    err->retry_after_s = retry_after_ms / 1000 + (retry_after_ms % 1000 != 0);
    return status;
}

bool mg_plugin_setting_env(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    char var[SETTING_NAME_MAX];
    int n = snprintf(var, sizeof(var), "MANGO_%s_%s", plugin, name);
    if (n < 0 || n >= (int)sizeof(var))
        return false;
    for (char *c = var; *c; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    const char *value = getenv(var);
    return value && *value && mg_buf_str(out, value) == MG_OK;
}

static mango_status host_config_get(const struct mango_host *h, const char *name, struct mango_buf *ret)
{
    const struct host_impl *im = impl_of(h);
    struct mg_buf *out = (struct mg_buf *)ret;
    bool (*get)(void *, const char *, const char *, struct mg_buf *) =
        im->services.setting ? im->services.setting : mg_plugin_setting_env;
    if (get(im->services.ctx, im->name, name, out))
        return MANGO_OK;
    if (strcmp(name, "state_dir") == 0 && im->services.state_dir)
        return mg_buf_str(out, im->services.state_dir) < 0 ? MANGO_ETOOBIG : MANGO_OK;
    return MANGO_ENOENT;
}

/* The default: a variable of the service that the plugin speaks to. The server's own are not a plugin's to read. */
static bool secret_env(const char *name, struct mg_buf *out)
{
    if (strncmp(name, "MANGO_", 6) == 0 || strncmp(name, "PG", 2) == 0)
        return false;
    for (const char *c = name; *c; c++) {
        if (!isupper((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            return false;
    }
    const char *value = getenv(name);
    return value && *value && mg_buf_str(out, value) == MG_OK;
}

static mango_status host_secret_get(const struct mango_host *h, const char *name, struct mango_buf *ret)
{
    const struct host_impl *im = impl_of(h);
    struct mg_buf *out = (struct mg_buf *)ret;
    bool found =
        im->services.secret ? im->services.secret(im->services.ctx, im->name, name, out) : secret_env(name, out);
    return found ? MANGO_OK : MANGO_ENOENT;
}

static void host_metric_add(const struct mango_host *h, const char *name, int64_t n)
{
    struct host_impl *im = h->impl;
    if (!mg_counters_add(&im->counters, name, n))
        mg_log(MG_WARN, "counters of a plugin are dropped: a bad name, or more than 64 of them",
               MG_F_STR("plugin", im->name), MG_F_STR("counter", name ? name : ""));
}

static struct mango_buf *host_buf_new(const struct mango_host *h, uint64_t max)
{
    (void)h;
    struct mg_buf *b = mg_xmalloc(sizeof(*b));
    *b = MG_BUF_INIT(max);
    return (struct mango_buf *)b;
}

static struct mango_sv host_buf_view(const struct mango_host *h, const struct mango_buf *b)
{
    (void)h;
    struct mg_sv v = mg_buf_view((const struct mg_buf *)b);
    return (struct mango_sv){v.ptr, v.len};
}

static void host_buf_free(const struct mango_host *h, struct mango_buf *buf)
{
    (void)h;
    struct mg_buf *b = (struct mg_buf *)buf;
    if (!b)
        return;
    if (b->ptr)
        mg_wipe(b->ptr, b->cap);
    mg_buf_done(b);
    free(b);
}

static mango_status no_http(const struct mango_host *h, const struct mango_call *call)
{
    return host_err_set(h, call, MANGO_EUNSUPPORTED, "this server has no HTTP service for plugins", NULL, 0);
}

static mango_status host_http_call(const struct mango_host *h, const struct mango_call *call,
                                   const struct mango_http_req *req, struct mango_http_res *res)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    return net ? mg_plugin_http_call(net, call, req, res) : no_http(h, call);
}

static mango_status host_conn_open(const struct mango_host *h, const struct mango_call *call,
                                   const struct mango_http_req *req, struct mango_http_res *res, mango_conn *ret)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    return net ? mg_plugin_conn_open(net, h, call, req, res, ret) : no_http(h, call);
}

static mango_status host_conn_read(const struct mango_host *h, const struct mango_call *call, mango_conn c, char *p,
                                   uint64_t n, uint64_t *ret_n)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    return net ? mg_plugin_conn_read(net, h, call, c, p, n, ret_n) : no_http(h, call);
}

static mango_status host_conn_write(const struct mango_host *h, const struct mango_call *call, mango_conn c,
                                    const char *p, uint64_t n)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    return net ? mg_plugin_conn_write(net, h, call, c, p, n) : no_http(h, call);
}

static mango_status host_conn_shutdown(const struct mango_host *h, const struct mango_call *call, mango_conn c)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    return net ? mg_plugin_conn_shutdown(net, h, call, c) : no_http(h, call);
}

static void host_conn_close(const struct mango_host *h, mango_conn c)
{
    struct mg_plugin_net *net = impl_of(h)->services.net;
    if (net)
        mg_plugin_conn_close(net, h, c);
}

static mango_status host_egress_open(const struct mango_host *h, const struct mango_call *call,
                                     const struct mango_egress_req *req, struct mango_egress *ret)
{
    const struct mg_plugin_services *s = &impl_of(h)->services;
    if (!s->egress_open)
        return host_err_set(h, call, MANGO_EUNSUPPORTED, "this server has no filtering proxy for plugins", NULL, 0);
    return s->egress_open(s->ctx, call, req, ret);
}

static void host_egress_close(const struct mango_host *h, struct mango_sv label)
{
    const struct mg_plugin_services *s = &impl_of(h)->services;
    if (s->egress_close)
        s->egress_close(s->ctx, label);
}

static void host_caps_without(const struct mango_host *h, uint64_t caps)
{
    struct host_impl *im = h->impl;
    im->without |= caps;
}

static const struct mango_host table = {
    .struct_size = sizeof(struct mango_host),
    .abi_major = MANGO_ABI_MAJOR,
    .abi_minor = MANGO_ABI_MINOR,
    .log = host_log,
    .now_ns = host_now_ns,
    .buf_append = host_buf_append,
    .cancelled = host_cancelled,
    .cancel_fd = host_cancel_fd,
    .err_set = host_err_set,
    .config_get = host_config_get,
    .secret_get = host_secret_get,
    .metric_add = host_metric_add,
    .buf_new = host_buf_new,
    .buf_view = host_buf_view,
    .buf_free = host_buf_free,
    .http_call = host_http_call,
    .conn_open = host_conn_open,
    .conn_read = host_conn_read,
    .conn_write = host_conn_write,
    .conn_shutdown = host_conn_shutdown,
    .conn_close = host_conn_close,
    .egress_open = host_egress_open,
    .egress_close = host_egress_close,
    .caps_without = host_caps_without,
};

struct mango_host *mg_host_new(const char *name, const struct mg_plugin_services *services)
{
    struct host_impl *im = mg_xcalloc(1, sizeof(*im));
    im->table = table;
    im->table.impl = im;
    if (services)
        im->services = *services;
    if (im->services.net)
        im->table.features |= MANGO_HOST_HTTP | MANGO_HOST_UPGRADE;
    if (im->services.egress_open)
        im->table.features |= MANGO_HOST_EGRESS;
    pthread_mutex_init(&im->counters.lock, NULL);
    snprintf(im->name, sizeof(im->name), "%s", name);
    return &im->table;
}

void mg_host_free(struct mango_host *h)
{
    if (!h)
        return;
    struct host_impl *im = h->impl;
    if (im->services.net)
        mg_plugin_net_forget(im->services.net, h);
    pthread_mutex_destroy(&im->counters.lock);
    free(im);
}

uint64_t mg_host_without(const struct mango_host *h)
{
    return impl_of(h)->without;
}

struct mg_plugin_counters *mg_host_counters(const struct mango_host *h)
{
    struct host_impl *im = h->impl;
    return &im->counters;
}
