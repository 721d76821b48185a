/* The memory stores of a session, as folders on this machine: downloaded before the first tool, brought together with their stores between
 * calls and at the end, removed then. Only with the token of an item: the key has no right to memories.
 *
 * Concurrency: one caller at a time. */
#ifndef MG_WORKER_MEMORY_H
#define MG_WORKER_MEMORY_H

#include "worker/remote.h"
#include "worker/tether.h"

enum {
    MG_MEMORY_SYNC_MS = 15000,   /* at most so often between calls, as the official worker */
    MG_MEMORY_END_MS = 30000,    /* the last pass, and the push-only one behind it */
    MG_MEMORY_ABSENT_MS = 30000, /* a file must be missing so long before its memory is deleted */
    MG_MEMORY_STORES_MAX = 8,    /* of a session */
};

struct mg_memories;

struct mg_memory_opts {
    const struct mg_remote *remote;
    struct mg_tether *tether;
    const char *workdir;  /* absolute */
    uint32_t interval_ms; /* between passes */
};

bool mg_memory_any(struct mg_arena *a, const struct mg_json *resources); /* the session has a store */
/* resources: the session's. MG_EINVAL: a store can never be made here, and err says why. MG_ECANCELED: the tether ended. Else the server was away.
 * *ret is filled also after an error. */
mg_rc mg_memories_prepare(const struct mg_memory_opts *o, const struct mg_json *resources, struct mg_memories **ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* Folders for the file tools; read_only: only of those stores. Returns their number, at most MG_MEMORY_STORES_MAX. */
unsigned mg_memories_roots(const struct mg_memories *m, bool read_only, const char **ret);
void mg_memories_sync_due(struct mg_memories *m); /* after a tool call */
/* clean: the session was left by itself, so there is a last whole pass. Then what is changed is pushed, unless the lease is another's;
 * folders that are still the stores' own are removed, unless a tool still runs. Frees m; NULL is fine. */
void mg_memories_end(struct mg_memories *m, bool clean, bool tools_run);

#endif
