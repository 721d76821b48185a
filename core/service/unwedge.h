/* Settling a session that waits for something that will not come. */
#ifndef MG_SERVICE_UNWEDGE_H
#define MG_SERVICE_UNWEDGE_H

#include "domain/principal.h"
#include "store/pg.h"

struct mg_engine;

/* Every open call gets a result of the server, the session is idle. *ret_calls: how many calls; *ret_changed false: it was at rest. */
mg_rc mg_sessions_unwedge(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv id, int *ret_calls, bool *ret_changed, struct mg_err *err) MG_MUSTCHECK;

#endif
