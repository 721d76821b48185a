/* Files of a session's resources in its sandbox. /mnt/session is the folder .session of the workspace: the server's file operations map it there, and in
 * backends that can, a link of that name leads commands there too. */
#ifndef MG_RUN_MOUNTS_H
#define MG_RUN_MOUNTS_H

#include "base/arena.h"
#include "base/err.h"
#include "domain/id.h"

struct mg_engine;
struct mg_pg;
struct mg_sandbox;

/* Puts in files that are missing and takes out what is no longer attached. On a sandbox thread; asks the object store and the backend.
 * *ret_missing: a repository is not there yet (repositories.h). */
mg_rc mg_mounts_sync(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_sandbox *box,
                     bool *ret_missing, struct mg_err *err) MG_MUSTCHECK;
/* A repository is in its place. */
mg_rc mg_mounts_note_repository(struct mg_sandbox *box, struct mg_sv id, struct mg_sv mount_path,
                                struct mg_err *err) MG_MUSTCHECK;
/* A mount path relative to the workspace; arena memory with a NUL behind it. */
struct mg_sv mg_mount_place(struct mg_arena *a, struct mg_sv mount_path);
/* After the commit that changed them: the next call of the session looks, here and on other nodes. */
void mg_mounts_changed(struct mg_engine *e, const struct mg_id *session);

#endif
