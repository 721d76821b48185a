/* Files that the messages of a transcript name: their weight in the context, and their bytes in a request. The transcript keeps the names. */
#ifndef MG_RUN_ATTACHED_H
#define MG_RUN_ATTACHED_H

#include "run/assemble.h"

/* Counts the tokens of the files that the context shows, and finds their rows. */
mg_rc mg_attached_weigh(struct mg_pg *pg, struct mg_arena *a, const struct mg_id *session, struct mg_assembly *x,
                        struct mg_err *err) MG_MUSTCHECK;
/* Puts the bytes of the request's files in the place of their names, of the newest first, at most MG_CONTENT_FILES_BYTES; a note stands for older ones.
 * Reads the object store. x->n_lost: so many are gone, and the request is not sent before mg_run_attached_lost has put notes there for good. */
mg_rc mg_attached_fill(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                       struct mg_err *err) MG_MUSTCHECK;
/* Commits a note for each lost file, and a session.error that says so. */
mg_rc mg_run_attached_lost(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, const struct mg_assembly *x,
                           struct mg_session_state *ret_st, struct mg_err *err) MG_MUSTCHECK;

#endif
