/* Files that client events name as content: read and checked before the session is locked, pinned under its lock. */
#ifndef MG_SERVICE_CONTENT_FILE_H
#define MG_SERVICE_CONTENT_FILE_H

#include "domain/event.h"
#include "store/pg.h"

struct mg_objects;

/* Each is there, in this workspace, of a type and size that its place takes, and is what its type says. Fills in the drafts' files and the rubrics that
 * are in files. path: "events" or "initial_events". Reads the object store: at most MG_CONTENT_FILES_BYTES. */
mg_rc mg_content_files_read(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, struct mg_sv workspace,
                            const char *path, struct mg_draft *drafts, int n, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_content_files_pin(struct mg_txn *t, const struct mg_id *session, const struct mg_draft *d,
                           struct mg_err *err) MG_MUSTCHECK;

#endif
