/* The attached sandboxes of an adapter: found by id, held by the calls inside them, ended when no call is inside any more.
 *
 * An adapter puts a struct live first into its own struct for a sandbox. Concurrency: all functions from any thread; a
 * sandbox's own lock guards what the adapter adds behind it, and no lock is held while something blocks. */
#ifndef MANGO_COMMON_LIVE_H
#define MANGO_COMMON_LIVE_H

#include <pthread.h>
#include <stdbool.h>

#include "mango/types.h"

enum { LIVE_ID_MAX = 127 /* bytes of a sandbox's id */ };

struct live {
    struct live *next; /* guarded by the table's lock */
    void (*free)(struct live *l);
    char id[LIVE_ID_MAX + 1];
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t quiet; /* busy has become 0 */
    unsigned refs;        /* the table, calls in flight, open processes */
    unsigned busy;        /* calls in flight */
    bool dying;
};

struct live_table {
    pthread_mutex_t lock;
    struct live *first; /* guarded by lock */
};

void live_table_init(struct live_table *t);
void live_table_destroy(struct live_table *t); /* must be empty */

/* One reference, the caller's; id has at most LIVE_ID_MAX bytes. fn frees the whole once the last reference is gone, and
 * calls live_destroy. */
void live_init(struct live *l, const char *id, void (*fn)(struct live *l));
void live_destroy(struct live *l);
void live_ref(struct live *l);
void live_unref(struct live *l);

/* Both with the table's lock held. */
struct live *live_find(const struct live_table *t, struct mango_sv id);
void live_add(struct live_table *t, struct live *l); /* takes the caller's reference over */

/* For one call; NULL when it is dying or was never attached. */
struct live *live_enter(struct live_table *t, struct mango_sv id);
void live_leave(struct live *l);
bool live_is_dying(struct live *l);

/* Takes it out of the table; the caller gets the table's reference. NULL: there is none. */
struct live *live_take(struct live_table *t, struct mango_sv id);
struct live *live_take_any(struct live_table *t);
/* Lets no call in any more. */
void live_close(struct live *l);
/* Waits, after a live_close, until no call is inside any more. */
void live_wait_quiet(struct live *l);

#endif
