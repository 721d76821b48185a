/* The network services of plugins: http_call and the conn functions of mango/host.h over core/net.
 *
 * Concurrency: any thread. One loop serves all plugins of the process; a connection belongs to the plugin that opened
 * it. */
#ifndef MG_PLUGIN_NET_H
#define MG_PLUGIN_NET_H

#include "base/err.h"
#include "mango/host.h"

enum {
    MG_PLUGIN_NET_BODY_MAX = 32 * 1024 * 1024, /* bytes of an answer, where the request names no limit */
    MG_PLUGIN_CONNS_MAX = 4096,                /* hijacked connections of all plugins: one per live sandbox */
};

struct mg_plugin_net;

struct mg_plugin_net_opts {
    const char *ca_file; /* NULL: the system's authorities */
    const char *proxy;   /* as in mg_net_opts; NULL: none */
    bool allow_insecure; /* MANGO_HTTP_INSECURE is obeyed */
};

mg_rc mg_plugin_net_open(const struct mg_plugin_net_opts *o, struct mg_plugin_net **ret,
                         struct mg_err *err) MG_MUSTCHECK;
void mg_plugin_net_close(struct mg_plugin_net *n); /* no plugin calls any more. NULL is fine */
/* Closes what this host left open. */
void mg_plugin_net_forget(struct mg_plugin_net *n, const struct mango_host *host);

mango_status mg_plugin_http_call(struct mg_plugin_net *n, const struct mango_call *call,
                                 const struct mango_http_req *req, struct mango_http_res *res);
mango_status mg_plugin_conn_open(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                 const struct mango_http_req *req, struct mango_http_res *res, mango_conn *ret);
mango_status mg_plugin_conn_read(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                 mango_conn id, char *p, uint64_t len, uint64_t *ret_n);
mango_status mg_plugin_conn_write(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                  mango_conn id, const char *p, uint64_t len);
mango_status mg_plugin_conn_shutdown(struct mg_plugin_net *n, const struct mango_host *host,
                                     const struct mango_call *call, mango_conn id);
void mg_plugin_conn_close(struct mg_plugin_net *n, const struct mango_host *host, mango_conn id);

#endif
