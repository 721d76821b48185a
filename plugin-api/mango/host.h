/* Mango plugin ABI 1: the services that the server gives to a plugin.
 *
 * The table is handed to init and lives until fini has returned. Every function may be called from any thread of the
 * plugin. Plugins link against no symbol of the server: this table is all there is. */
#ifndef MANGO_HOST_H
#define MANGO_HOST_H

#include "mango/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Features of the host, for mango_plugin.required_host. A bit that the server does not know or lacks refuses the plugin
 * at load. */
#define MANGO_HOST_HTTP (UINT64_C(1) << 0)    /* http_call works */
#define MANGO_HOST_UPGRADE (UINT64_C(1) << 1) /* conn_open works: hijacked and upgraded connections */
#define MANGO_HOST_EGRESS (UINT64_C(1) << 2)  /* egress_open works: the server's filtering proxy for limited networks */
#define MANGO_HOST_KNOWN (MANGO_HOST_HTTP | MANGO_HOST_UPGRADE | MANGO_HOST_EGRESS)

#define MANGO_LOG_ERROR 0
#define MANGO_LOG_WARN 1
#define MANGO_LOG_INFO 2
#define MANGO_LOG_DEBUG 3

struct mango_http_header {
    struct mango_sv name, value;
};
MANGO_ASSERT(sizeof(struct mango_http_header) == 32);

typedef void mango_http_header_fn(void *ctx, struct mango_sv name, struct mango_sv value);

/* One exchange. Borrowed for the call. Redirects are not followed; the daemon's proxy, CA bundle and egress rules
 * apply. */
struct mango_http_req {
    uint32_t struct_size;
    uint32_t flags;              /* MANGO_HTTP_* */
    struct mango_sv method, url; /* "http://docker/v1.43/info" with unix_socket set */
    struct mango_sv unix_socket; /* path of a socket to connect to instead, or empty */
    const struct mango_http_header *headers;
    uint64_t n_headers;
    struct mango_sv body;    /* whole body, or empty */
    mango_source_fn *source; /* streamed body instead; NULL: none */
    void *source_ctx;
    int64_t source_len; /* bytes that source gives; -1: unknown (chunked) */
    struct mango_sv ca_pem, cert_pem,
        key_pem;         /* TLS of this service; empty: the daemon's CA bundle, no client certificate */
    uint32_t connect_ms; /* 0: the daemon's default */
    uint32_t idle_ms;    /* no byte for so long is MANGO_ETIMEOUT; 0: only the call's deadline */
    uint64_t
        max_body; /* bytes of answer; past it MANGO_ETOOBIG. 0: the daemon's default (32 MiB), UINT64_MAX: no bound */
    struct mango_sv connect_to; /* "host:port" to connect to instead of the URL's, which stays in TLS and Host */
    struct mango_sv proxy;      /* empty: the daemon's; "none"; or http://, https://, socks4://, socks5:// of its own */
};
#define MANGO_HTTP_INSECURE (UINT32_C(1) << 0) /* do not verify the peer; refused unless the daemon allows it */
/* Never send it twice. Without it a request on a pooled connection that dies before any byte of the answer is repeated
 * once; set it for what must not happen twice (the start of a command). Costs a new connection. */
#define MANGO_HTTP_ONCE (UINT32_C(1) << 1)
/* conn_open only: no HTTP at all, a bare connection to the URL's host, with TLS for https. res is not touched. */
#define MANGO_HTTP_RAW (UINT32_C(1) << 2)
MANGO_AT(struct mango_http_req, method, 8);
MANGO_AT(struct mango_http_req, unix_socket, 40);
MANGO_AT(struct mango_http_req, headers, 56);
MANGO_AT(struct mango_http_req, body, 72);
MANGO_AT(struct mango_http_req, source, 88);
MANGO_AT(struct mango_http_req, ca_pem, 112);
MANGO_AT(struct mango_http_req, connect_ms, 160);
MANGO_AT(struct mango_http_req, max_body, 168);
MANGO_AT(struct mango_http_req, connect_to, 176);
MANGO_ASSERT(sizeof(struct mango_http_req) == 208);

/* The answer. MANGO_OK from http_call means that an answer came to its orderly end, whatever its status. */
struct mango_http_res {
    uint32_t struct_size;
    int32_t status;         /* out: 200, 404, ... ; 0 when none came */
    struct mango_buf *body; /* in: filled with the body, or NULL */
    /* in: gets the body as it comes instead (stream 0), or NULL. Non-zero says that it has all it needs: the exchange
     * ends with MANGO_OK at once, and what still comes is dropped. */
    mango_sink_fn *sink;
    void *sink_ctx;
    mango_http_header_fn *on_header; /* in: called for each header before the body, or NULL; names as they came */
    void *header_ctx;
    uint32_t flags;          /* out: MANGO_HTTP_RES_SENT, MANGO_HTTP_RES_REUSED */
    uint32_t retry_after_ms; /* out: what the answer's Retry-After asks for, at most a day; 0: it has none */
};
/* Some of the request went out: a failure without it is safe to try again, whatever the request does. */
#define MANGO_HTTP_RES_SENT (UINT32_C(1) << 0)
#define MANGO_HTTP_RES_REUSED (UINT32_C(1) << 1) /* a connection of an earlier request served it */
MANGO_AT(struct mango_http_res, status, 4);
MANGO_AT(struct mango_http_res, body, 8);
MANGO_AT(struct mango_http_res, sink, 16);
MANGO_AT(struct mango_http_res, on_header, 32);
MANGO_AT(struct mango_http_res, retry_after_ms, 52);
MANGO_ASSERT(sizeof(struct mango_http_res) == 56);

/* A connection that an HTTP request has turned into a byte stream (Upgrade, hijack). Opaque number; 0 is none. */
typedef uint64_t mango_conn;

/* A door of the server's filtering proxy for one sandbox, which then reaches by it what network allows and nothing
 * else: HTTP (CONNECT, and http:// requests) and SOCKS5 with names, on one socket. Borrowed for the call. */
struct mango_network; /* mango/sandbox.h */
struct mango_egress_req {
    uint32_t struct_size;
    uint32_t flags;                      /* reserved, 0 */
    struct mango_sv label;               /* of the sandbox's spec: names the door */
    const struct mango_network *network; /* as it came with the spec or set_network */
    /* Empty: a unix socket, for sandboxes without any network: mount its folder. Else an address of this host and a port
     * ("172.30.0.1:3128", no wildcard) that only sandboxes reach; doors may share it, a credential tells them apart. */
    struct mango_sv listen;
};
MANGO_AT(struct mango_egress_req, label, 8);
MANGO_AT(struct mango_egress_req, network, 24);
MANGO_AT(struct mango_egress_req, listen, 32);
MANGO_ASSERT(sizeof(struct mango_egress_req) == 48);

/* Where it is; both are the same for a label after a restart of the server. The buffers are the plugin's (buf_new),
 * given empty; the one that does not apply may be NULL and stays empty. */
struct mango_egress {
    uint32_t struct_size;
    uint32_t reserved;
    struct mango_buf
        *dir; /* folder on this host that holds the socket "proxy.sock", open to any user, and nothing else.
                            * Mount the folder, not the socket: each process of the server makes the socket anew */
    struct mango_buf *url; /* "http://USER:PASSWORD@172.30.0.1:3128"; a secret of this sandbox */
};
MANGO_ASSERT(sizeof(struct mango_egress) == 24);

struct mango_host {
    uint32_t struct_size;
    uint16_t abi_major, abi_minor; /* of the server */
    uint64_t features;             /* MANGO_HOST_* bits that work in this server */
    void *impl;                    /* the server's; one table per plugin */

    /* One line; the server adds time and plugin name. Never a secret. */
    void (*log)(const struct mango_host *h, int32_t level, const char *text);
    uint64_t (*now_ns)(const struct mango_host *h); /* monotonic */
    /* Copies. MANGO_ETOOBIG past the buffer's limit; later appends then fail too. */
    mango_status (*buf_append)(const struct mango_host *h, struct mango_buf *b, const void *p, uint64_t n);
    int32_t (*cancelled)(const struct mango_host *h, const struct mango_call *call); /* 1 or 0 */
    /* Readable once the token fired; -1 when the call cannot be cancelled. Poll it, never read or close it. */
    int32_t (*cancel_fd)(const struct mango_host *h, const struct mango_call *call);
    /* Text for people, without secrets; request_id (the service's, may be NULL) and retry_after_ms (0: none) help
     * operators. Returns status, so that `return host->err_set(...)` reads well. */
    mango_status (*err_set)(const struct mango_host *h, const struct mango_call *call, mango_status status,
                            const char *text, const char *request_id, uint32_t retry_after_ms);
    /* A setting of this plugin by its name ("base_dir"); MANGO_ENOENT when it is not set. Also "state_dir", the
     * server's own folder. */
    mango_status (*config_get)(const struct mango_host *h, const char *name, struct mango_buf *ret);
    /* A secret of this plugin by its variable's name ("E2B_API_KEY"). Keep it in memory only. */
    mango_status (*secret_get)(const struct mango_host *h, const char *name, struct mango_buf *ret);
    /* Adds n > 0 to the counter mango_plugin_<name>_total{plugin=...} of /metrics. name is [a-z][a-z_]*, at most 47
     * bytes, and a plugin has at most 64 of them: what is more is dropped, with one line in the log. */
    void (*metric_add)(const struct mango_host *h, const char *name, int64_t n);
    /* A buffer of the host for the plugin's own use (answers of http_call, settings); freed by buf_free. */
    struct mango_buf *(*buf_new)(const struct mango_host *h, uint64_t max);
    struct mango_sv (*buf_view)(const struct mango_host *h,
                                const struct mango_buf *b);            /* valid until the next append; NUL behind it */
    void (*buf_free)(const struct mango_host *h, struct mango_buf *b); /* NULL is fine; wipes */
    /* Blocking; ends at the call's deadline or token. source, sink and on_header run on the calling thread and may take
     * their time: the peer is held back meanwhile, and at most 256 KiB wait in between. MANGO_ERETRY: no orderly answer
     * came (res->flags tells whether the request went out); MANGO_EINVALID: the request cannot be made. */
    mango_status (*http_call)(const struct mango_host *h, const struct mango_call *call,
                              const struct mango_http_req *req, struct mango_http_res *res);
    /* Sends req with what its headers ask (Connection: Upgrade, Upgrade: tcp), and keeps the connection as a stream on
     * 101, or on 200 with neither a length nor chunks. On any other answer the body goes to res and *ret is 0. The body
     * of req must be whole (no source). One reader and one writer at a time on one connection; a second is
     * MANGO_EINVALID. */
    mango_status (*conn_open)(const struct mango_host *h, const struct mango_call *call,
                              const struct mango_http_req *req, struct mango_http_res *res, mango_conn *ret);
    /* At least one byte, or *ret_n = 0 at the peer's orderly end. */
    mango_status (*conn_read)(const struct mango_host *h, const struct mango_call *call, mango_conn c, char *p,
                              uint64_t n, uint64_t *ret_n);
    mango_status (*conn_write)(const struct mango_host *h, const struct mango_call *call, mango_conn c, const char *p,
                               uint64_t n);
    mango_status (*conn_shutdown)(const struct mango_host *h, const struct mango_call *call,
                                  mango_conn c); /* no more writes; with TLS a bare end of the TCP stream */
    /* Calls that wait on it return MANGO_ECANCELED. What a plugin left open is closed after its fini. */
    void (*conn_close)(const struct mango_host *h, mango_conn c);
    /* Opens the door of label, or gives the open one the new network: what runs against it is cut. Call it in create,
     * in attach (a restart has closed it) and in set_network. MANGO_EINVALID names what is wrong in network or listen. */
    mango_status (*egress_open)(const struct mango_host *h, const struct mango_call *call,
                                const struct mango_egress_req *req, struct mango_egress *ret);
    /* Closes it and removes the folder, also one that an earlier process left. Call it in destroy. Idempotent. */
    void (*egress_close)(const struct mango_host *h, struct mango_sv label);
    /* Called in init: these capabilities of the descriptor do not hold with these settings, or on this host. The server
     * then acts as if the bits were not set; none can be added. */
    void (*caps_without)(const struct mango_host *h, uint64_t caps);
};
MANGO_AT(struct mango_host, abi_major, 4);
MANGO_AT(struct mango_host, features, 8);
MANGO_AT(struct mango_host, impl, 16);
MANGO_AT(struct mango_host, log, 24);
MANGO_AT(struct mango_host, now_ns, 32);
MANGO_AT(struct mango_host, buf_append, 40);
MANGO_AT(struct mango_host, cancelled, 48);
MANGO_AT(struct mango_host, cancel_fd, 56);
MANGO_AT(struct mango_host, err_set, 64);
MANGO_AT(struct mango_host, config_get, 72);
MANGO_AT(struct mango_host, secret_get, 80);
MANGO_AT(struct mango_host, metric_add, 88);
MANGO_AT(struct mango_host, buf_new, 96);
MANGO_AT(struct mango_host, buf_view, 104);
MANGO_AT(struct mango_host, buf_free, 112);
MANGO_AT(struct mango_host, http_call, 120);
MANGO_AT(struct mango_host, conn_open, 128);
MANGO_AT(struct mango_host, conn_read, 136);
MANGO_AT(struct mango_host, conn_write, 144);
MANGO_AT(struct mango_host, conn_shutdown, 152);
MANGO_AT(struct mango_host, conn_close, 160);
MANGO_AT(struct mango_host, egress_open, 168);
MANGO_AT(struct mango_host, egress_close, 176);
MANGO_AT(struct mango_host, caps_without, 184);
MANGO_ASSERT(sizeof(struct mango_host) == 192);

#ifdef __cplusplus
}
#endif
#endif
