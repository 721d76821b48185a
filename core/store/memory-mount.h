/* Memory stores as they are mounted in sandboxes: what was put there, and what has changed since (session_memories). */
#ifndef MG_STORE_MEMORY_MOUNT_H
#define MG_STORE_MEMORY_MOUNT_H

#include "store/memory.h"

enum { MG_MEMORY_NEWS_MAX = 256 /* rows of one look: with their texts at most 26 MB */ };

/* A store of a session. */
struct mg_mounted_store {
    struct mg_sv store_id, slug;
    bool read_only;
    bool mounted; /* all of it was in the sandbox once */
};
/* In the order of their ids, in which they are locked. Arena memory. */
mg_rc mg_mounted_stores(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_mounted_store **ret,
                        int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Queues that all of it is there now. */
mg_rc mg_mounted_store_set(struct mg_txn *t, struct mg_sv session, struct mg_sv store, struct mg_err *err) MG_MUSTCHECK;

/* One path at both sides; ptr NULL: it is not there. */
struct mg_memory_news {
    struct mg_sv store_id, path;
    struct mg_sv base, head; /* SHA-256, hex */
    struct mg_sv json;       /* the head's text as a JSON string literal */
};
/* What the sandbox has, of all its stores. Rows are views of *ret_res. */
mg_rc mg_memory_bases(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_res **ret_res,
                      struct mg_memory_news **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* What has changed in the session's stores since; at most MG_MEMORY_NEWS_MAX. Rows are views of *ret_res. */
mg_rc mg_memory_news(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_res **ret_res,
                     struct mg_memory_news **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

/* A path that the sandbox asks about, under the store's lock. */
struct mg_memory_place {
    struct mg_sv base;        /* ptr NULL: none */
    struct mg_memory_row row; /* id.ptr NULL: there is no memory */
};
/* One for each of the n paths, in their order; views of *ret_res. */
mg_rc mg_memory_places(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store,
                       const struct mg_sv *paths, int n, struct mg_res **ret_res, struct mg_memory_place **ret,
                       struct mg_err *err) MG_MUSTCHECK;
/* Queues what both sides have now; shas[i].ptr NULL: neither has that path. */
mg_rc mg_memory_bases_set(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store,
                          const struct mg_sv *paths, const struct mg_sv *shas, int n, struct mg_err *err) MG_MUSTCHECK;
/* Queues that the sandbox has none of the store's files any more. */
mg_rc mg_memory_bases_reset(struct mg_txn *t, struct mg_sv session, struct mg_sv store,
                            struct mg_err *err) MG_MUSTCHECK;

#endif
