/* Memory stores, memories, versions. Every write locks the store's row first (mg_memory_store_lock). */
#ifndef MG_STORE_MEMORY_H
#define MG_STORE_MEMORY_H

#include "domain/id.h"
#include "domain/memory.h"
#include "store/list.h"
#include "store/pg.h"

/* ---- stores: memory-store.c ---- */

struct mg_memory_store_row {
    struct mg_sv id;
    struct mg_memory_store store;
    int64_t created_us, updated_us, archived_us; /* archived INT64_MIN: it is not */
};

mg_rc mg_memory_store_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                             const struct mg_memory_store *x, struct mg_memory_store_row *ret,
                             struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. MG_ENOTFOUND also for another workspace's. */
mg_rc mg_memory_store_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                          struct mg_memory_store_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_store_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                           struct mg_memory_store_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* It stays until the transaction ends. */
mg_rc mg_memory_store_share(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                            struct mg_memory_store_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock. */
mg_rc mg_memory_store_save(struct mg_arena *a, struct mg_txn *t, struct mg_memory_store_row *row,
                           const struct mg_memory_store *x, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_store_set_archived(struct mg_txn *t, struct mg_memory_store_row *row, struct mg_err *err) MG_MUSTCHECK;
/* MG_EINVAL while a session that is not over has it. */
mg_rc mg_memory_store_delete(struct mg_txn *t, const struct mg_memory_store_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_store_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                           struct mg_memory_store_row **ret, struct mg_list_page *ret_page,
                           struct mg_err *err) MG_MUSTCHECK;

/* ---- the stores of sessions: memory-session.c ---- */

/* Whether the session has the store, and may change it. */
mg_rc mg_session_has_store(struct mg_pg *pg, struct mg_sv session, struct mg_sv store, bool *ret_has,
                           bool *ret_read_only, struct mg_err *err) MG_MUSTCHECK;

/* slug: its folder. MG_EINVAL: another store of the session has that folder. shown: as clients see it. */
mg_rc mg_session_store_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv store, int place,
                              bool read_only, struct mg_sv slug, struct mg_sv shown, struct mg_err *err) MG_MUSTCHECK;

/* ---- memories: memory.c ---- */

struct mg_memory_row {
    struct mg_sv id, store_id, path, version_id;
    struct mg_memory_content content; /* json ptr NULL where it was not asked for */
    int64_t created_us, updated_us;
};
/* Who writes. */
struct mg_memory_actor {
    const char *kind; /* api, session */
    struct mg_sv id;
};

/* MG_ENOTFOUND; arena memory. */
mg_rc mg_memory_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv store, struct mg_sv id,
                    struct mg_memory_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same within a transaction that has the store's lock. */
mg_rc mg_memory_read(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv id,
                     struct mg_memory_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Whether a memory may stand at path: MG_ECONFLICT (memory_path_conflict_error) names what is in its way, MG_EINVAL: the path is not in
 * normal form, or (when fresh) the store is full. self: the memory that is moved there, or empty. */
mg_rc mg_memory_check_place(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv path,
                            struct mg_sv self, struct mg_err *err) MG_MUSTCHECK;
/* Each writes the memory and its version, and fills *row from the database. */
mg_rc mg_memory_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_memory_actor *by,
                       struct mg_memory_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_save(struct mg_arena *a, struct mg_txn *t, const struct mg_memory_actor *by, struct mg_memory_row *row,
                     struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_delete(struct mg_txn *t, const struct mg_memory_actor *by, const struct mg_memory_row *row,
                       struct mg_err *err) MG_MUSTCHECK;

/* A page of what stands below a prefix, by path. */
struct mg_memory_item {
    bool prefix; /* row.path is a folder; nothing else of row is set */
    struct mg_memory_row row;
};
struct mg_memory_list {
    struct mg_sv store, prefix; /* prefix ends with a slash */
    bool shallow, full;         /* folders instead of what is in them; with contents */
};
mg_rc mg_memory_items(struct mg_arena *a, struct mg_pg *pg, const struct mg_memory_list *f,
                      const struct mg_list_query *q, struct mg_res **ret_res, struct mg_memory_item **ret,
                      struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;

/* ---- versions: memory-version.c ---- */

struct mg_memory_version_row {
    int64_t seq;
    struct mg_sv id, store_id, memory_id, operation, path, actor_kind, actor_id, redactor_kind, redactor_id;
    struct mg_memory_content content; /* sha256.ptr NULL: there is none */
    int64_t created_us, redacted_us;
};
struct mg_memory_version_filter {
    struct mg_sv store, memory_id, session_id, api_key_id, service_account_id, operation; /* ptr NULL: any */
    bool full;
};
mg_rc mg_memory_version_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv store, struct mg_sv id,
                            struct mg_memory_version_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* MG_ECONFLICT: it is what a memory is now. */
mg_rc mg_memory_version_redact(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv id,
                               const struct mg_memory_actor *by, struct mg_memory_version_row *ret,
                               struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_memory_version_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_memory_version_filter *f,
                             const struct mg_list_query *q, struct mg_res **ret_res, struct mg_memory_version_row **ret,
                             struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;

#endif
