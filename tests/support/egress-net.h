/* A network namespace of the test's own whose loopback bears a public address, a metadata address and a private one,
 * each with servers behind it, and the names that lead there. One per test program. */
#ifndef MG_TESTS_EGRESS_NET_H
#define MG_TESTS_EGRESS_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "net/resolve.h"

enum {
    NET_ECHO = 9000,  /* gives back what it gets, and "bye" at its end */
    NET_FLOOD = 9001, /* sends without end */
    NET_SSH = 22,     /* speaks first, then echoes */
};

#define PUBLIC "8.8.8.8"
#define PRIVATE "10.1.2.3"
#define METADATA "169.254.169.254"

/* Enters the namespace and starts the servers; before any thread: a namespace is one's own. */
void net_begin(void);
/* False where the kernel gives no network namespace. */
bool net_exists(void);
/* Skips the test that calls it and says why, where there is none. */
void net_needed(void);

extern atomic_int net_forbidden; /* connections to servers that no sandbox may reach */
extern atomic_int net_lookups;   /* of names */
extern atomic_long net_flooded;  /* bytes that NET_FLOOD has sent */

/* The last request of port 80; valid until the next call. */
const char *net_seen(void);
/* For struct mg_egress_opts. */
enum mg_resolve_state net_resolve(void *ctx, const char *host, char text[MG_RESOLVE_TEXT_MAX]);

/* As recv, with a deadline. */
ssize_t net_read(int fd, char *p, size_t n);
/* As much as the other side takes. */
void net_send(int fd, const char *p, size_t n);
void net_say(int fd, const char *text);

#endif
