/* Wake-ups between the nodes of one database, by LISTEN and NOTIFY on channel mango_events.
 *
 * Never inside of an event transaction: NOTIFY takes a lock of the whole server until the commit is done. One thread with one connection
 * per process listens, and sends what mg_notify_send collected: one NOTIFY transaction every MG_NOTIFY_BATCH_MS at most, and only while
 * other nodes live. A wake-up is a hint that the table has more; a lost one costs the hub's repair interval, never an event.
 *
 * Payload: the sender's node id, then items separated by spaces: "sesn_…:SEQ", "env_…:1" (work was queued), "work_…:1" (its claim ended), "key:ID",
 * "webhook:1" (the database itself: one was made, changed or ended), "*" (anything may have happened), "ping:N".
 *
 * Concurrency: everything but new and free may be called from any thread. Callbacks run on the notify thread, with no lock held. */
#ifndef MG_EVENTS_NOTIFY_H
#define MG_EVENTS_NOTIFY_H

#include "base/err.h"
#include "domain/id.h"

enum {
    MG_NOTIFY_BATCH_MS = 5,        /* between two batches */
    MG_NOTIFY_PAYLOAD_MAX = 7900,  /* bytes; PostgreSQL's limit is 7,999 */
    MG_NOTIFY_PENDING_MAX = 10000, /* sessions that wait; more become one "*" */
    MG_NOTIFY_PING_MS = 2000, /* own ping while other nodes live; unanswered for as long: the connection is made anew */
    MG_NOTIFY_PING_ALONE_MS = 20000, /* and while none does */
    MG_NOTIFY_STATEMENT_MS = 2000,   /* no statement of this connection takes longer */
};

struct mg_notify;

struct mg_notify_opts {
    const char *conninfo; /* copied */
    struct mg_id node;    /* this process; its own notifications are ignored */
    /* each may be NULL */
    void (*on_event)(void *ctx, struct mg_sv session, int64_t seq); /* another node committed events up to seq */
    void (*on_key)(void *ctx, struct mg_sv key_id);                 /* a key was revoked, here or anywhere */
    void (*on_work)(void *ctx, struct mg_sv environment);           /* another node queued work */
    void (*on_webhook)(void *ctx);                                  /* webhooks changed, here or anywhere */
    void (*on_gap)(void *ctx); /* notifications may have been lost: look at every topic */
    void *ctx;
    unsigned drop_every; /* tests: every n-th wake-up is not sent; 0: none */
};

/* Starts the thread. Connecting happens there: a database that is down is no error. */
struct mg_notify *mg_notify_new(const struct mg_notify_opts *o);
void mg_notify_free(struct mg_notify *n); /* sends what is pending, joins */
/* How many other nodes live, from the lease renewal. A notification of another node counts as one until the next call. */
void mg_notify_others(struct mg_notify *n, int others);
/* After a commit: tell other nodes that session has events up to seq; with the id of an environment or a work item and 1, the news that belong to it.
 * Cheap, never blocks, never fails. */
void mg_notify_send(struct mg_notify *n, struct mg_sv id, int64_t seq);

struct mg_notify_stats {
    uint64_t sent;       /* wake-ups handed to NOTIFY, after coalescing */
    uint64_t batches;    /* transactions that carried them */
    uint64_t received;   /* wake-ups from other nodes */
    uint64_t repairs;    /* gaps reported by on_gap */
    uint64_t reconnects; /* connections made after the first */
    double queue_usage;  /* pg_notification_queue_usage(), 0 to 1, of the last ping */
    bool connected;
};
void mg_notify_stats(struct mg_notify *n, struct mg_notify_stats *ret);

#endif
