/* Resources of sessions, and what sessions.resources shows of them. Changes are made under the session's lock. */
#ifndef MG_STORE_RESOURCE_H
#define MG_STORE_RESOURCE_H

#include "domain/id.h"
#include "domain/resource.h"
#include "store/list.h"

struct mg_resource_row {
    struct mg_sv id, type, mount_path;
    struct mg_sv file_id;       /* of a file; ptr NULL */
    struct mg_sv url, checkout; /* of a repository; ptr NULL */
    int64_t created_us, updated_us;
};
/* Of a row r, in the order of struct mg_resource_row's reader. */
#define MG_RESOURCE_COLUMNS \
    "r.id, r.type, r.file_id, r.mount_path, mg_us(r.created_at), mg_us(r.updated_at), r.url, r.checkout"

/* What a file resource needs of its file, locked against its deletion. MG_ENOTFOUND with the place. */
mg_rc mg_resource_file(struct mg_txn *t, struct mg_sv workspace, struct mg_sv file_id, int64_t *ret_size,
                       struct mg_err *err) MG_MUSTCHECK;
/* Number of resources, of repositories among them, and bytes of files. */
struct mg_resource_sums {
    int64_t n, repositories, bytes;
};
mg_rc mg_resource_sum(struct mg_txn *t, struct mg_sv session, struct mg_resource_sums *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* All paths, for comparing. */
mg_rc mg_resource_paths(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv **ret, int *ret_n,
                        struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_resource_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, const struct mg_resource_spec *s,
                         struct mg_resource_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* A statement that writes one row and returns it. MG_ECONFLICT: its mount path is taken. */
mg_rc mg_resource_insert_row(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt *st, const struct mg_sv *params,
                             int n_params, struct mg_resource_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_resource_missing(struct mg_sv id, struct mg_err *err);
mg_rc mg_resource_delete(struct mg_txn *t, struct mg_sv session, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
/* Writes sessions.resources anew from the rows. */
mg_rc mg_resources_show(struct mg_txn *t, struct mg_sv session, struct mg_err *err) MG_MUSTCHECK;
/* The same, and reads it. Arena memory. */
mg_rc mg_resources_shown(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, struct mg_sv *ret,
                         struct mg_err *err) MG_MUSTCHECK;

/* MG_ENOTFOUND. Arena memory. */
mg_rc mg_resource_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv session,
                      struct mg_sv id, struct mg_resource_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* In the order of their ids. */
mg_rc mg_resource_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv session,
                       struct mg_res **ret_res, struct mg_resource_row **ret, struct mg_list_page *ret_page,
                       struct mg_err *err) MG_MUSTCHECK;

/* What is to be put into the sandbox. */
struct mg_mount_row {
    struct mg_sv id, mount_path;
    struct mg_sv object_key, sha256; /* object_key ptr NULL: a repository */
    int64_t size;
};
mg_rc mg_mounts_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_mount_row **ret, int *ret_n,
                   struct mg_err *err) MG_MUSTCHECK;

#endif
