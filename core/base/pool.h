/* Thread pool with a bounded queue. Elastic between min and max threads: idle ones above min end after a while. */
#ifndef MG_BASE_POOL_H
#define MG_BASE_POOL_H

#include "base/err.h"

struct mg_pool;

struct mg_pool_opts {
    const char *name;   /* thread name, at most 11 bytes */
    unsigned min, max;  /* threads */
    unsigned queue_max; /* waiting jobs; a submit past it fails with MG_EUNAVAIL */
    /* Per-thread state (a database connection): made on the thread before its first job, freed at its end. Or NULL. */
    void *(*thread_start)(void *ctx);
    void (*thread_stop)(void *ctx, void *thread);
    void *ctx;
};

/* thread: what thread_start returned. */
typedef void mg_pool_fn(void *arg, void *thread);

struct mg_pool *mg_pool_new(const struct mg_pool_opts *opts);
mg_rc mg_pool_submit(struct mg_pool *p, mg_pool_fn *fn, void *arg) MG_MUSTCHECK;
unsigned mg_pool_busy(struct mg_pool *p);
/* Runs what is queued to its end and joins all threads; a submit from then on is refused with MG_EUNAVAIL. */
void mg_pool_stop(struct mg_pool *p);
/* Stops it, then frees it: no other thread may be in a submit, or come to one. */
void mg_pool_free(struct mg_pool *p);

#endif
