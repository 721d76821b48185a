/* The lease of a claimed item: conditional heartbeats on a thread of their own, whatever the tools do.
 *
 * The first beat is sent before anything else of the item. 412, or no good beat for one lease: lost, a hard fence. */
#ifndef MG_WORKER_LEASE_H
#define MG_WORKER_LEASE_H

#include "base/err.h"
#include "worker/remote.h"
#include "worker/tether.h"

enum {
    MG_LEASE_STAMP_MAX = 128, /* bytes of a heartbeat's time as text, with the NUL; ours have 27 */
    MG_LEASE_BEAT_MIN_MS = 1000,
    MG_LEASE_BEAT_MAX_MS = 30000,  /* half of the lease, between the two; also before the first answer */
    MG_LEASE_TTL_MS = 90000,       /* assumed until the first answer says it */
    MG_LEASE_TTL_MAX_MS = 3600000, /* of what a server may say */
};

struct mg_lease;

/* Sends the first heartbeat and waits for its verdict; last: what an earlier one of another process was answered, whose lease goes on; NULL or "": there was
 * none. MG_OK, the thread runs. Else the tether says what ended it, and ret is NULL:
 * MG_EFENCED (another's, or the item is over before it began), MG_ECANCELED (a shutdown), or what refused it. */
mg_rc mg_lease_open(const struct mg_remote *r, const char *environment_id, const char *work_id, const char *last,
                    struct mg_tether *t, struct mg_lease **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_lease_close(struct mg_lease *l); /* no beat is sent from then on; NULL is fine */

#endif
