/* The filtering proxy of limited networks: what a sandbox reaches, it reaches through here, by name and port.
 *
 * Each sandbox has a door of its own: a unix socket in a folder of its own, or a TCP address that doors share and at
 * which a credential tells them apart. A door speaks HTTP (CONNECT, and http:// requests) and SOCKS5 on the same socket.
 * Names are resolved here and nowhere else, only when they are allowed; the address that was checked is the one that is
 * connected to. A tunnel to a host that is listed without a port carries TLS for that very name, or on port 80 HTTP for
 * it. Each refusal is a line of the log.
 *
 * Concurrency: one thread with epoll does the work; the functions may be called from any thread. */
#ifndef MG_EGRESS_PROXY_H
#define MG_EGRESS_PROXY_H

#include "base/buf.h"
#include "egress/policy.h"
#include "net/resolve.h"

enum {
    MG_EGRESS_DOORS_MAX = 4096,   /* sandboxes of one node */
    MG_EGRESS_DOOR_CONNS = 256,   /* connections of one sandbox at a time */
    MG_EGRESS_WAITING_MAX = 512,  /* connections at TCP addresses that have not shown a credential yet */
    MG_EGRESS_HEAD_MS = 10000,    /* for a whole request, and for the first bytes of a tunnel that is checked */
    MG_EGRESS_CONNECT_MS = 15000, /* name lookup and connection, all addresses together */
    MG_EGRESS_IDLE_MS = 600000,   /* without a byte either way */
    MG_EGRESS_HELD = 64 * 1024,   /* bytes that wait for a slow side, each way */
    MG_EGRESS_LABEL_MAX = 65,     /* bytes with the NUL; the core's have 32 */
};

struct mg_egress;

/* Changes a plain HTTP request before it goes to a host: the place where a vault's credential enters. Called on the
 * proxy's thread: must not block. Appends whole header lines ("Authorization: Bearer ...\r\n"), which replace the
 * sandbox's own of those names. The sandbox never sees them. */
typedef void mg_egress_rewrite_fn(void *ctx, struct mg_sv session, struct mg_sv host, int port, struct mg_buf *headers);

struct mg_egress_opts {
    const char
        *state_dir; /* folder of the unix sockets' folders and of the key of credentials; NULL: TCP is not offered,
                              sockets neither */
    struct mg_egress_networks networks; /* that may be reached although they are not public */
    mg_egress_rewrite_fn *rewrite;      /* or NULL */
    /* Instead of the resolver of core/net; as mg_resolver_get. wake_fd of the proxy is written when one is found. */
    enum mg_resolve_state (*resolve)(void *ctx, const char *host, char text[MG_RESOLVE_TEXT_MAX]);
    unsigned head_ms; /* instead of MG_EGRESS_HEAD_MS; 0: that */
    void *ctx;
};

mg_rc mg_egress_open(const struct mg_egress_opts *o, struct mg_egress **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_egress_close(struct mg_egress *e); /* cuts everything; sockets' folders stay for the next start. NULL is fine */

struct mg_egress_door_opts {
    struct mg_sv label;                  /* [0-9a-f]{1,64}: names the door */
    struct mg_sv session;                /* for the log; may be empty */
    const struct mango_network *network; /* who may be reached */
    struct mg_sv
        listen; /* empty: a unix socket; "192.0.2.1:3128": that address of this host (not a wildcard; port 0: any) */
};

/* Opens the door, or gives the one that is open the new policy: what runs against it is cut. *ret_dir: the folder that
 * holds the socket "proxy.sock" and nothing else, the same after a restart of the server. *ret_url: for a TCP address
 * "http://USER:PASSWORD@HOST:PORT", the same after a restart. Only one of them is filled; both are given empty.
 * MG_EINVAL: the policy or the address; MG_ERATE: too many doors. */
mg_rc mg_egress_door_open(struct mg_egress *e, const struct mg_egress_door_opts *o, struct mg_buf *ret_dir,
                          struct mg_buf *ret_url, struct mg_err *err) MG_MUSTCHECK;
/* Cuts what runs and removes the socket with its folder, also that of an earlier process. Idempotent. */
void mg_egress_door_close(struct mg_egress *e, struct mg_sv label);

void mg_egress_metrics(struct mg_egress *e, struct mg_buf *out);

#endif
