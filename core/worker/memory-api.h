/* The memories of one store over the API, with the token of a work item.
 *
 * Concurrency: nothing here changes; any thread may call. */
#ifndef MG_WORKER_MEMORY_API_H
#define MG_WORKER_MEMORY_API_H

#include "base/arena.h"
#include "worker/remote.h"
#include "worker/tether.h"

struct mg_memory_api {
    const struct mg_remote *remote;
    struct mg_tether *tether;
    const char *store_id;
    struct mg_cancel *cancel; /* of the pass that asks */
    uint64_t deadline_ns;     /* of it; 0: none */
};

struct mg_memory_item {
    struct mg_sv id, path, sha256; /* path begins with a slash */
    struct mg_sv content;          /* empty where it was not asked for */
};

/* Every memory of the store, page by page; full: with the contents. fn may fail, which ends it. */
mg_rc mg_memory_api_list(const struct mg_memory_api *m, bool full,
                         mg_rc (*fn)(void *ctx, const struct mg_memory_item *item, struct mg_err *err), void *ctx,
                         struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. */
mg_rc mg_memory_api_get(const struct mg_memory_api *m, struct mg_arena *a, const char *id, struct mg_memory_item *ret,
                        struct mg_err *err) MG_MUSTCHECK;
/* Updates the memory id, if it still has the digest, or makes a new one of that relative path when id is NULL. *ret: as the store has it.
 * MG_ECONFLICT: another writer was there first. MG_EINVAL, MG_ETOOBIG: it is refused for what it is. */
mg_rc mg_memory_api_put(const struct mg_memory_api *m, struct mg_arena *a, const char *id, const char *has_sha256,
                        const char *path, struct mg_sv content, struct mg_memory_item *ret,
                        struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_api_delete(const struct mg_memory_api *m, const char *id, const char *has_sha256,
                           struct mg_err *err) MG_MUSTCHECK;

#endif
