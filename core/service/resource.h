/* Resources of sessions: ownership, limits, where they may go. */
#ifndef MG_SERVICE_RESOURCE_H
#define MG_SERVICE_RESOURCE_H

#include "domain/principal.h"
#include "store/resource.h"

struct mg_engine;
struct mg_sandboxes;

/* In the transaction that creates the session, after its rows. *ret_shown: sessions.resources as it will be; arena memory. */
mg_rc mg_resources_attach(struct mg_engine *e, struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace,
                          struct mg_sv session, bool self_hosted, const struct mg_resource_spec *specs, int n,
                          struct mg_sv *ret_shown, struct mg_err *err) MG_MUSTCHECK;
/* boxes: what runs a cloud session's tools; a server without a backend refuses. */
mg_rc mg_resources_add(struct mg_engine *e, const struct mg_sandboxes *boxes, struct mg_pg *pg, struct mg_arena *a,
                       const struct mg_principal *who, struct mg_sv session, const struct mg_json *body,
                       struct mg_resource_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* body: another authorization_token for a repository. */
mg_rc mg_resources_rotate(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv session, struct mg_sv id, const struct mg_json *body,
                          struct mg_resource_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_resources_remove(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv session, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;

#endif
