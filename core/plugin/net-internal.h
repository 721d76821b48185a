/* Shared by http.c and conn.c only. */
#ifndef MG_PLUGIN_NET_INTERNAL_H
#define MG_PLUGIN_NET_INTERNAL_H

#include <pthread.h>

#include "base/list.h"
#include "net/loop.h"
#include "net/retry-after.h"
#include "plugin/net.h"

enum { MG_PLUGIN_CONN_LISTS = 256 /* short lists: every read and write looks its connection up */ };

struct mg_plugin_net {
    struct mg_net *loop;
    bool allow_insecure;
    pthread_mutex_t lock;                       /* guards what follows */
    struct mg_list conns[MG_PLUGIN_CONN_LISTS]; /* struct held of conn.c, by the number */
    unsigned n_conns;
    uint64_t last_conn;
};

/* A request of the ABI in the terms of core/net, with the callbacks of an answer. Borrows from both. */
struct mg_plugin_exchange {
    const struct mango_http_req *req;
    struct mango_http_res *res;
    struct mg_net_req net;
    struct mg_net_header headers[MG_NET_HEADERS_MAX];
    struct mg_retry_after retry; /* of the answer */
    mango_status stopped;        /* why a callback of the plugin ended it, or MANGO_OK */
};

/* Fills x; MANGO_EINVALID with call's text set when the request cannot be made. res may be NULL. */
mango_status mg_plugin_exchange_init(struct mg_plugin_exchange *x, struct mg_plugin_net *n,
                                     const struct mango_call *call, const struct mango_http_req *req,
                                     struct mango_http_res *res);
/* What a code of core/net is for a plugin. err's text stays. */
mango_status mg_plugin_net_status(mg_rc rc);

#endif
