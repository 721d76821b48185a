/* Names to addresses, off the loop threads: a lookup that hangs must never hold up a running stream (field case 44).
 *
 * A few threads call getaddrinfo; one lookup per name runs at a time, and answers are kept for some seconds. Closing
 * never waits for a lookup: what hangs ends on its own and frees the last reference. */
#ifndef MG_NET_RESOLVE_H
#define MG_NET_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"

enum {
    MG_RESOLVE_THREADS_MAX = 32, /* lookups at once; a hanging name holds one */
    MG_RESOLVE_KEEP_MS = 5000,   /* a found address is used again for so long */
    MG_RESOLVE_KEEP_BAD_MS = 1000,
    MG_RESOLVE_NAMES_MAX = 1024, /* names kept */
    MG_RESOLVE_ADDRS_MAX = 8,    /* addresses of one name; more are left out */
    MG_RESOLVE_TEXT_MAX = 512,   /* bytes of an address list or an error, with the NUL */
};

enum mg_resolve_state { MG_RESOLVE_WAIT, MG_RESOLVE_FOUND, MG_RESOLVE_FAILED };

struct mg_resolver;

/* wake_fd: an eventfd that is written whenever a lookup ends; duplicated. public_only: addresses that are not public
 * are left out, and a name that has no other fails. */
struct mg_resolver *mg_resolver_new(int wake_fd, bool public_only);
void mg_resolver_close(struct mg_resolver *r); /* NULL is fine */
/* Never blocks; starts a lookup when there is none. Any thread. text: FOUND: "1.2.3.4,[::1]"; FAILED: the reason. */
enum mg_resolve_state mg_resolver_get(struct mg_resolver *r, const char *host, char text[MG_RESOLVE_TEXT_MAX]);
/* The same for a thread that may wait: until the answer, the deadline (monotonic; 0: none) or the cancel (may be
 * NULL); then MG_RESOLVE_WAIT. Not on a loop's thread. */
enum mg_resolve_state mg_resolver_wait(struct mg_resolver *r, const char *host, uint64_t deadline_ns,
                                       const struct mg_cancel *cancel, char text[MG_RESOLVE_TEXT_MAX]);

#endif
