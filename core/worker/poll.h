/* WorkPoller: claims items of one environment and acknowledges them. What is acknowledged is its taker's: the poller never stops an item.
 *
 * Concurrency: mg_poller_next on one thread at a time; mg_poller_cancel from any. */
#ifndef MG_WORKER_POLL_H
#define MG_WORKER_POLL_H

#include "base/cancel.h"
#include "worker/item.h"
#include "worker/remote.h"

enum {
    MG_POLL_BLOCK_MS = 999,    /* what the hosted API takes at most */
    MG_POLL_GAP_MIN_MS = 1000, /* pause behind an empty poll, random between the two, as the official pollers */
    MG_POLL_GAP_MAX_MS = 3000,
    MG_POLL_BACKOFF_MS = 1000, /* behind a poll that failed, doubling */
    MG_POLL_BACKOFF_MAX_MS = 60000,
    MG_POLL_CALL_MS = 30000, /* one poll: thirty times what it may block */
    MG_POLL_WORKER_ID_MAX = 256,
};

struct mg_poller_opts {
    const char *environment_id;      /* all strings are copied */
    const char *worker_id;           /* NULL or "": the host's name and a random part */
    bool drain;                      /* ends at the first empty poll */
    bool no_block;                   /* the server answers at once */
    int64_t reclaim_older_than_ms;   /* negative: the server's own */
    uint32_t gap_min_ms, gap_max_ms; /* both 0: the defaults above */
};

struct mg_poller;

/* r carries the environment key and must outlive the poller. MG_EINVAL names what is wrong. */
mg_rc mg_poller_open(const struct mg_remote *r, const struct mg_poller_opts *o, struct mg_poller **ret,
                     struct mg_err *err) MG_MUSTCHECK;
void mg_poller_close(struct mg_poller *p); /* NULL is fine */
/* Blocks until an item is claimed and acknowledged: MG_OK, ret is the caller's. MG_EGONE: the queue is empty and drain was asked for;
 * MG_ECANCELED; anything else: polling can never succeed (the key, the environment). */
mg_rc mg_poller_next(struct mg_poller *p, struct mg_work_item *ret, struct mg_err *err) MG_MUSTCHECK;
void mg_poller_cancel(struct mg_poller *p); /* this and every further next return MG_ECANCELED */
const char *mg_poller_worker_id(const struct mg_poller *p);

#endif
