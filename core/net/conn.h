/* A bare connection of its own: TCP, TLS or a unix socket, through a proxy where one is set. Not on the loop: the calling
 * thread waits on the socket itself, so that a byte costs no hop to another thread.
 *
 * Concurrency: any thread. One reader and one writer at a time; a second one is refused with MG_EINVAL. mg_conn_abort
 * ends what waits. */
#ifndef MG_NET_CONN_H
#define MG_NET_CONN_H

#include "net/loop.h"

struct mg_conn;

/* Connects to what req names: its url (http: plain, https: TLS), unix_socket, connect_to, proxy, PEMs, insecure and
 * connect_ms count, the rest does not. n: whose proxy, authorities and resolver are used; it must outlive the call, not
 * the connection. deadline_ns: monotonic, 0: connect_ms alone. cancel may be NULL. Errors as in mg_net_result. */
mg_rc mg_conn_open(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                   struct mg_conn **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_conn_close(struct mg_conn *c); /* nobody else uses it any more. NULL is fine */
void mg_conn_abort(struct mg_conn *c); /* every call that waits or comes later returns MG_ECANCELED */

/* At least one byte, or *ret_n = 0 at the peer's orderly end. */
mg_rc mg_conn_read(struct mg_conn *c, char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel, size_t *ret_n,
                   struct mg_err *err) MG_MUSTCHECK;
/* All of it. After a failure the stream is of no use: nobody knows how much went out. */
mg_rc mg_conn_write(struct mg_conn *c, const char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel,
                    struct mg_err *err) MG_MUSTCHECK;
/* No more writes. */
mg_rc mg_conn_shutdown(struct mg_conn *c, struct mg_err *err) MG_MUSTCHECK;
/* Bytes that were read too far: the next reads give them first. */
void mg_conn_unread(struct mg_conn *c, const char *p, size_t n);

#endif
