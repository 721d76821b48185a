/* Shared by the files of this folder only. */
#ifndef MG_SANDBOX_INTERNAL_H
#define MG_SANDBOX_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/map.h"
#include "domain/id.h"
#include "sandbox/manager.h"
#include "sandbox/spec.h"
#include "store/sandbox.h"

enum {
    MG_SANDBOX_REF_MAX = 1024,      /* bytes of an id, a root, an identity */
    MG_SANDBOX_RETRY_MIN_MS = 1000, /* between two tries to destroy, doubled each time: semantics DL1 */
    MG_SANDBOX_RETRY_MAX_MS = 60000,
    MG_ORPHAN_LOOK_MIN_MS = 1000, /* between two listings: a quarter of the grace time within these bounds */
    MG_ORPHAN_LOOK_MAX_MS = 300000,
};

/* The present moment of one session: its lock, and the handle that is out. In the map while anybody holds a reference.
 */
struct mg_sandbox_entry {
    struct mg_id session;
    pthread_mutex_t lock;    /* held across acquire, the last release, and destroy */
    struct mg_sandbox *live; /* guarded by lock */
    unsigned refs;           /* guarded by the manager's lock */
};

struct mg_sandboxes {
    struct mg_sandboxes_opts opts;
    char *deployment_id, *image;
    char owner[MG_LABEL_LEN];
    pthread_mutex_t lock;    /* guards what follows */
    struct mg_map *entries;  /* session id -> struct mg_sandbox_entry */
    struct mg_map *retries;  /* session id -> struct mg_sandbox_retry */
    struct mg_map *orphans;  /* backend and id -> when it was first seen; the reconciler's */
    struct mg_map *backends; /* name -> struct mg_backend, to the end */
    atomic_bool reconciling, checking;
    unsigned orphan_round;                          /* the reconciler's */
    uint64_t orphan_next_ns;                        /* the reconciler's: of the next listing */
    atomic_uint n_orphans, n_deleting, n_destroyed; /* for /metrics: as the last scan found them; since the start */
};

struct mg_backend;
struct mg_sandbox {
    struct mg_backend *backend;                                         /* of its plugin */
    void (*note)(struct mg_backend *b, bool answered, const char *why); /* mg_backend_note; NULL: nobody counts */
    struct mg_sandboxes *manager;
    struct mg_sandbox_entry *entry; /* a reference */
    struct mg_plugin *plugin;
    unsigned refs; /* guarded by entry->lock */
    char *external_id, *root, *identity;
    uint64_t timer_s;          /* of its service: keep.c */
    _Atomic uint64_t keep_ns;  /* when the timer is to be moved; UINT64_MAX: never */
    bool serial;               /* the backend takes one call at a time */
    pthread_mutex_t call_lock; /* held across a call when serial */
    _Atomic bool gone;         /* destroyed, or told so by the backend */
    char *_Atomic protected;   /* set once: folders below the root, a line each, that tools must not write; or NULL */
};

/* manager.c: acquire with what the intent holds instead of the caller's config. */
mg_rc mg_sandbox_settle(struct mg_sandboxes *m, struct mg_pg *pg, const struct mg_intent *in, struct mg_sandbox **ret,
                        struct mg_err *err) MG_MUSTCHECK;

/* health.c */
void mg_backends_free(struct mg_map *all);
/* orphans.c: a listing when it is time, and what it finds to an end. */
void mg_orphans_sweep(struct mg_sandboxes *m, struct mg_pg *pg);
/* manager.c: the handles of a session answer MG_EGONE from now on. */
void mg_sandbox_cut_off(struct mg_sandboxes *m, struct mg_sv session);

/* health.c: takes the texts over from the buffers. */
struct mg_sandbox *mg_sandbox_new(struct mg_sandboxes *m, struct mg_sandbox_entry *e, struct mg_plugin *p,
                                  struct mg_buf *id, struct mg_buf *root, struct mg_buf *identity);
void mg_sandbox_free(struct mg_sandbox *s); /* handle.c */
static inline struct mango_sv mg_sandbox_id(const struct mg_sandbox *s)
{
    return (struct mango_sv){s->external_id, strlen(s->external_id)};
}

/* marker.c: the generation marker of a workspace, "RANDOM.N" in a file and "RANDOM.N/IDENTITY" in the database. */
/* Writes the first marker; *ret is the database's text. */
mg_rc mg_marker_first(struct mg_sandbox *s, struct mg_arena *a, struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;
/* Compares the workspace with the database's text and writes the next marker; *ret is its text. MG_EGONE: another
 * workspace, or an older state of it. */
mg_rc mg_marker_next(struct mg_sandbox *s, struct mg_arena *a, struct mg_sv stored, struct mg_sv *ret,
                     struct mg_err *err) MG_MUSTCHECK;

#endif
