/* Files: what clients uploaded and what sessions published. The bytes are an object (store/object.h). */
#ifndef MG_STORE_FILE_H
#define MG_STORE_FILE_H

#include "domain/id.h"
#include "store/list.h"
#include "store/object.h"

struct mg_file_row {
    struct mg_sv id, object_key, filename, mime_type, sha256;
    struct mg_sv session_id;              /* ptr NULL: none made it */
    int64_t size, created_us, expires_us; /* expires INT64_MIN: never */
    bool expired;
};

struct mg_file_new {
    struct mg_id id;
    struct mg_sv workspace, filename, mime_type;
    struct mg_sv session_id, output_path; /* ptr NULL: uploaded by a client */
    int64_t size, expires_in_s;           /* 0: never */
    const char *sha256;
};
/* In the transaction that completes its object. */
mg_rc mg_file_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_file_new *f, const struct mg_object_key *key,
                     struct mg_file_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. MG_ENOTFOUND also for another workspace's; with code file_expired when its time is over. */
mg_rc mg_file_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                  struct mg_file_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Removes the row; the object becomes a guard. */
mg_rc mg_file_delete(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                     struct mg_sv *ret_key, struct mg_err *err) MG_MUSTCHECK;

struct mg_file_filter {
    struct mg_sv scope_id; /* ptr NULL: any */
    struct mg_sv after_id, before_id;
    const struct mg_sv *ids; /* exactly these, as far as they are there */
    int n_ids;               /* 0: all */
};
mg_rc mg_file_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, const struct mg_file_filter *f,
                   struct mg_res **ret_res, struct mg_file_row **ret, struct mg_list_page *ret_page,
                   struct mg_err *err) MG_MUSTCHECK;
/* Rows whose time is over go; their objects become guards. */
mg_rc mg_files_expire(struct mg_pg *pg, struct mg_arena *a, int limit, int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
