/* Files that a session published of its outputs: files with a path, one for each. */
#ifndef MG_STORE_OUTPUT_H
#define MG_STORE_OUTPUT_H

#include "domain/id.h"
#include "store/pg.h"

struct mg_output_row {
    struct mg_sv path, sha256;
    int64_t size;
};

/* The tool calls of a session that has a sandbox. *ret_workspace (arena) is empty when none came since it last published. */
mg_rc mg_outputs_due(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, int64_t *ret_calls,
                     struct mg_sv *ret_workspace, struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. */
mg_rc mg_outputs_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_output_row **ret, int *ret_n,
                    struct mg_err *err) MG_MUSTCHECK;
/* Queues: the file at path goes; where another session uses it, it is only hidden. Under the session's lock. */
mg_rc mg_output_hide(struct mg_txn *t, struct mg_sv session, struct mg_sv path, struct mg_err *err) MG_MUSTCHECK;
/* Queues: what these calls made is published. */
mg_rc mg_outputs_done(struct mg_arena *a, struct mg_txn *t, struct mg_sv session, int64_t calls,
                      struct mg_err *err) MG_MUSTCHECK;

#endif
