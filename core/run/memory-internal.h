/* Inside of core/run/memory*.c. */
#ifndef MG_RUN_MEMORY_INTERNAL_H
#define MG_RUN_MEMORY_INTERNAL_H

#include <pthread.h>

#include "base/map.h"
#include "crypto/hash.h"
#include "domain/memory-sync.h"
#include "domain/resource.h"
#include "run/engine-internal.h"
#include "run/memory.h"
#include "sandbox/manager.h"
#include "store/memory-mount.h"

enum {
    MG_MEMORY_LIST_MAX = 20 * 1024 * 1024, /* bytes of a listing: 16,000 memories with paths of the longest kind */
    MG_MEMORY_LIST_MS = 30000,
    MG_MEMORY_PASS_BYTES = 16 * 1024 * 1024, /* of texts that one pass takes over; the next pass goes on */
    MG_MEMORY_PASS_FILES = 512,
    MG_MEMORY_NOTES = 20,            /* lines that one result says about memories; the rest is counted */
    MG_MEMORY_NOTES_MAX = 16 * 1024, /* bytes of what a result says about memories */
};

#define MG_MEMORY_FOLDER ".session/memory" /* of the workspace */
#define MG_MEMORY_TOLD_GONE "-"            /* in mg_memory_file.told: of a file that is missing */

/* A path of a store. "" for a hash: it is not there. */
struct mg_memory_file {
    char base[MG_SHA256_HEX];    /* what file and memory both had when they last met */
    char seen[MG_SHA256_HEX];    /* the file, when it was last looked at or written by us */
    char told[MG_SHA256_HEX];    /* the state of the file about which the agent was told last */
    bool pulled;                 /* seen is a text of the store's that is not noted as the base yet */
    bool refused;                /* what is in told never goes to the store */
    bool listed;                 /* by the listing at hand */
    char dropped[MG_SHA256_HEX]; /* the text that was lost last, because another writer had changed the memory */
    uint64_t applied;            /* the newest look whose change of it was applied */
    uint64_t settled;            /* the look whose commit left base */
};

struct mg_memory_mount {
    struct mg_id store;
    char *slug;
    bool read_only, mounted;
    struct mg_map *files; /* path -> struct mg_memory_file */
};

/* What is to be written into the sandbox. */
struct mg_memory_pull {
    int mount;
    char *path, *text; /* text NULL: the file goes */
    size_t len;
    char sha[MG_SHA256_HEX];
};

/* Locks: `work` is held across a look into the sandbox, `lock` never across a call of any kind; work before lock. */
struct mg_memory {
    struct mg_id session;
    unsigned refs; /* guarded by engine.lock */
    pthread_mutex_t work;
    unsigned calls;                                       /* guarded by work: that run, of all threads of the session */
    uint64_t looks;                                       /* guarded by work: so far */
    pthread_mutex_t lock;                                 /* guards what follows */
    struct mg_memory_mount mounts[MG_SESSION_STORES_MAX]; /* in the order of their stores' ids; the set never changes */
    int n;
    struct mg_memory_pull *pulls;
    int n_pulls, cap_pulls;
    struct mg_buf notes; /* for the next result */
};

/* A file that may have to be taken over. */
struct mg_memory_change {
    int mount;
    char *path;
    char sha[MG_SHA256_HEX]; /* "": it is gone */
    bool pulled;             /* it is what we wrote */
    char *text;              /* NULL where none is needed */
    size_t len;
    bool told; /* the agent knows that this does not go to the store */
    /* what became of it */
    bool overtaken; /* a later look's change of the file, by another thread's call, was applied before */
    bool conflict;  /* it is lost to another writer's */
    char base[MG_SHA256_HEX];
    struct mg_memory_pull pull; /* path NULL: none */
    bool refused;
};

struct mg_memory_delta {
    uint64_t look; /* its number; they are committed in any order */
    bool others;   /* calls of other threads ran meanwhile: what was found may be theirs */
    struct mg_memory_change *changes;
    int n, cap;
    size_t bytes;
    bool reset[MG_SESSION_STORES_MAX]; /* the store's folder is gone */
    struct mg_buf notes;
    int n_notes;
};

struct mg_memory *mg_memory_new(const struct mg_id *session, const struct mg_mounted_store *stores, int n);
void mg_memory_free(struct mg_memory *m);
/* A reference to the session's, which all its boxes share; made of stores when there is none. NULL: there is none, and n is 0. */
struct mg_memory *mg_memory_shared(struct mg_engine *e, const struct mg_id *session,
                                   const struct mg_mounted_store *stores, int n);
void mg_memory_files_clear(struct mg_memory_mount *mount); /* with m->lock held */
/* What files and stores had when they last met. */
mg_rc mg_memory_load(struct mg_memory *m, struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;
struct mg_memory_delta *mg_memory_delta_new(void);
/* A line for the agent: "PATH of the mount: why". */
void mg_memory_note(struct mg_memory_delta *d, const struct mg_memory_mount *mount, struct mg_sv path, const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));
void mg_memory_sha_set(char to[MG_SHA256_HEX], struct mg_sv sha); /* len 0: "" */
/* The head's text (a JSON string literal) and hash. */
mg_rc mg_memory_pull_text(struct mg_memory_pull *p, struct mg_sv json, struct mg_sv sha,
                          struct mg_err *err) MG_MUSTCHECK;
/* With m->lock held. */
struct mg_memory_file *mg_memory_file_of(struct mg_memory_mount *mount, struct mg_sv path);
void mg_memory_pull_add(struct mg_memory *m,
                        const struct mg_memory_pull *p); /* takes over its memory; the newest of a path counts */
void mg_memory_pulls_clear(struct mg_memory *m);

/* memory-look.c, with m->work held: lists the files (look), and adds what differs from the base. A failure is a note. MG_EGONE, MG_ECANCELED. */
mg_rc mg_memory_collect(struct mg_memory *m, struct mg_sandbox *box, struct mg_cancel *cancel, bool look,
                        struct mg_memory_delta *d, struct mg_err *err) MG_MUSTCHECK;
/* memory-put.c, with m->work held: writes what is pending; *ret_done: how many files. */
mg_rc mg_memory_put(struct mg_memory *m, struct mg_sandbox *box, int *ret_done, struct mg_err *err) MG_MUSTCHECK;
/* memory-apply.c: in a transaction that holds the session's lock. */
mg_rc mg_memory_apply(struct mg_memory *m, struct mg_memory_delta *d, struct mg_step *s,
                      struct mg_err *err) MG_MUSTCHECK;

#endif
