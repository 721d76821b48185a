/* Files of a session's resources in its sandbox. /mnt/session is the folder .session of the workspace: the server's file operations map it there, and in
 * backends that can, a link of that name leads commands there too. */
#ifndef MG_RUN_MOUNTS_H
#define MG_RUN_MOUNTS_H

#include "base/err.h"
#include "domain/id.h"

struct mg_engine;
struct mg_pg;
struct mg_sandbox;

/* Puts in what is missing and takes out what is no longer attached. On a sandbox thread; asks the object store and the backend. */
mg_rc mg_mounts_sync(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_sandbox *box,
                     struct mg_err *err) MG_MUSTCHECK;
/* After the commit that changed them: the next call of the session looks, here and on other nodes. */
void mg_mounts_changed(struct mg_engine *e, const struct mg_id *session);

#endif
