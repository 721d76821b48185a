/* The listening socket. */
#ifndef MG_HTTP_LISTEN_H
#define MG_HTTP_LISTEN_H

#include "base/err.h"

struct mg_peer {
    uint16_t family, port;
    uint8_t addr[16];
};

/* listen: "127.0.0.1:8080", "[::1]:8443", "host:port"; port 0 picks one. MG_ECONFIG with what to change. */
mg_rc mg_listen_open(const char *listen, int *ret_fd, int *ret_port, struct mg_err *err) MG_MUSTCHECK;
/* Accepts what waits (bounded) and gives each descriptor to fn. *spare_fd: a descriptor that is given up for a moment
 * when none is left, so that connections are refused instead of waiting for ever. */
void mg_listen_accept(int fd, int *spare_fd, void (*fn)(void *ctx, int fd, const struct mg_peer *peer), void *ctx);

#endif
