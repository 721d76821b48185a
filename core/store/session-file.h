/* Files that the messages of a session name as content. Pinned: such a file is not deleted, and its bytes outlive its expiry, until the session is
 * archived or deleted. */
#ifndef MG_STORE_SESSION_FILE_H
#define MG_STORE_SESSION_FILE_H

#include "domain/id.h"
#include "store/pg.h"

/* A file of the session's workspace; under the session's lock. MG_ENOTFOUND: it went meanwhile. */
mg_rc mg_session_file_pin(struct mg_txn *t, struct mg_sv session, struct mg_sv file_id,
                          struct mg_err *err) MG_MUSTCHECK;

struct mg_session_file {
    struct mg_sv id, object_key, mime_type; /* object_key ptr NULL: its row is gone */
    int64_t size;
};
/* Arena memory. */
mg_rc mg_session_files_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_session_file **ret,
                          int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
