/* What ties a session that is served to everything that may end it: its lease, a shutdown, the server's word. One for each session.
 *
 * Concurrency: any thread. `lock` guards what stands behind it; waiters sleep on `changed` (monotonic clock). */
#ifndef MG_WORKER_TETHER_H
#define MG_WORKER_TETHER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/list.h"

/* Why a session is left, from the mildest on: a later one replaces an earlier one, never the other way round. */
enum mg_tether_end {
    MG_TETHER_RUNS,
    MG_TETHER_STOP,     /* a shutdown: the running tool is cancelled, its error result sent */
    MG_TETHER_STOPPING, /* the server asked for the same */
    MG_TETHER_OVER,     /* the item is stopped: no result is taken any more */
    MG_TETHER_REFUSED,  /* a heartbeat was refused for good: as OVER */
    MG_TETHER_LOST,     /* the lease is another's, or may be: nothing more is sent at all */
};

struct mg_tether {
    struct mg_list link;     /* of the worker's list; the worker's lock */
    struct mg_cancel *leave; /* fires at any end: streams, lists, pauses */
    struct mg_cancel *fence; /* fires from OVER on: everything that is on its way */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum mg_tether_end end;
    bool leased;             /* there is a lease, valid until: */
    uint64_t valid_until_ns; /* monotonic, counted from the sending of the last good heartbeat */
    uint32_t ttl_ms;         /* what the last heartbeat said; 0: none yet */
};

void mg_tether_init(struct mg_tether *t);
void mg_tether_done(struct mg_tether *t);
void mg_tether_end(struct mg_tether *t, enum mg_tether_end end);
enum mg_tether_end mg_tether_ended(struct mg_tether *t);
/* A heartbeat that was sent then was answered. */
void mg_tether_renew(struct mg_tether *t, uint64_t sent_ns, uint32_t ttl_ms);
/* False when nothing may be sent. With a lease that ran out by the clock (the process was frozen, the machine slept) it waits for the
 * heartbeat's verdict. */
bool mg_tether_may_send(struct mg_tether *t);
/* Sleeps until the time is over or the end changes. */
void mg_tether_sleep(struct mg_tether *t, uint32_t ms);
/* With the lock held: waits for a change or the time (0: none). False: it was the time. */
bool mg_tether_wait(struct mg_tether *t, uint64_t deadline_ns);
void mg_tether_wake(struct mg_tether *t); /* takes the lock */

#endif
