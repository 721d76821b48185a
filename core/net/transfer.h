/* One request inside of a loop, and how it becomes a curl handle; used by core/net alone. */
#ifndef MG_NET_TRANSFER_H
#define MG_NET_TRANSFER_H

#include <curl/curl.h>

#include "base/list.h"
#include "net/loop.h"

enum mg_transfer_state { MG_TRANSFER_QUEUED, MG_TRANSFER_RESOLVING, MG_TRANSFER_RUNNING };

struct mg_transfer {
    struct mg_list link;
    uint64_t id;
    enum mg_transfer_state state;
    struct mg_net_req req; /* views point into the strings below; headers are in list */
    char *method, *url;
    char *body;                                 /* a copy, wiped; NULL: it is borrowed */
    char *unix_socket, *connect_to, *own_proxy; /* copies; NULL: none */
    const char *proxy;                          /* what is used, or NULL */
    struct mg_buf ca_pem, cert_pem, key_pem;    /* copies, wiped */
    struct curl_slist *list, *resolve, *connect_list;
    CURL *easy;
    char *lookup; /* the name that must be resolved, or NULL; host or proxy */
    int lookup_port;
    bool guarded; /* every socket is checked for a public address */
    uint64_t submitted_ns, total_ns, connect_ns,
        active_ns; /* monotonic; total and connect are deadlines, active the last byte */
    uint64_t bytes, head_bytes;
    int status;
    bool any_byte, resent, draining;
    bool paused;   /* waits for mg_net_resume */
    bool read_any; /* on_read gave something: it cannot be had twice */
    bool told;     /* on_done was called */
    mg_rc stop;    /* why we ended it ourselves, or MG_OK */
    char text[MG_NET_TEXT_MAX];
    char curl_text[CURL_ERROR_SIZE];
};

/* Copies req. What is wrong with it is noted in stop and text. */
struct mg_transfer *mg_transfer_new(const struct mg_net_req *req);
void mg_transfer_free(struct mg_transfer *t);
/* Reads the URL: scheme, host, what must be resolved. MG_EINVAL or MG_EDENIED with text set. */
mg_rc mg_transfer_check(struct mg_transfer *t, const struct mg_net_opts *o);
/* Makes the curl handle. addresses: the answer of the resolver, or NULL for a literal. */
mg_rc mg_transfer_prepare(struct mg_transfer *t, const struct mg_net_opts *o, const char *addresses);
/* Sets what a bare connection needs as well: proxy, TLS, addresses, limits. Used by mg_transfer_prepare. */
mg_rc mg_transfer_connect_options(struct mg_transfer *t, const struct mg_net_opts *o, const char *addresses);
/* Ends it ourselves; the first reason stays. */
mg_rc mg_transfer_stop(struct mg_transfer *t, mg_rc rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* True when curl's failure means that the pooled connection was stale and nothing of an answer came; then the handle
 * is set to use a fresh one. */
bool mg_transfer_resend(struct mg_transfer *t, CURLcode code);
/* Calls on_done, the first time. code: curl's, when it ran. */
void mg_transfer_tell(struct mg_transfer *t, CURLcode code);

#endif
