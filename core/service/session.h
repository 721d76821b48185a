/* Sessions: create, update, archive, delete (semantics 2.2 and 2.4). Reads go to store/session.h. */
#ifndef MG_SERVICE_SESSION_H
#define MG_SERVICE_SESSION_H

#include "domain/principal.h"
#include "json/json.h"
#include "store/session.h"

struct mg_engine;
struct mg_sandboxes;

/* One transaction: agent and environment locked, rows, initial events. boxes: what will run a cloud session's tools, or
 * NULL; an environment that it can never serve is MG_EINVAL. *ret is arena memory. */
mg_rc mg_sessions_create(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                         const struct mg_principal *who, const struct mg_json *body, struct mg_session_row *ret,
                         struct mg_err *err) MG_MUSTCHECK;
/* The same for a deployment, in the caller's transaction: body as in its deployment; before the commit, also() writes what
 * belongs to the session's creation. A failure of it undoes all. */
struct mg_session_deployed {
    struct mg_sv deployment_id;
    mg_rc (*also)(void *ctx, struct mg_txn *t, struct mg_sv session_id, struct mg_err *err);
    void *ctx;
};
mg_rc mg_sessions_create_deployed(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg,
                                  struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                                  const struct mg_session_deployed *d, struct mg_session_row *ret,
                                  struct mg_err *err) MG_MUSTCHECK;
/* One session.updated with what changed; nothing when nothing did. agent needs a session that does not run. */
mg_rc mg_sessions_update(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv id, const struct mg_json *body, struct mg_res **ret_res,
                         struct mg_session_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* The session ends for good, and stays readable. Twice is fine; a running one is MG_ECONFLICT. */
mg_rc mg_sessions_archive(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv id, struct mg_res **ret_res, struct mg_session_row *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* The durable mark; sandbox and rows follow by the reconciler. A running one is MG_ECONFLICT. */
mg_rc mg_sessions_delete(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;

#endif
