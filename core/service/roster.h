/* Rosters against the database: references become versions, and versions become whole agents. Every member is share-locked in the order of ids, so
 * that none is archived in between and two writers do not wait for each other in a circle. */
#ifndef MG_SERVICE_ROSTER_H
#define MG_SERVICE_ROSTER_H

#include "domain/agent.h"
#include "domain/multiagent.h"
#include "store/pg.h"

/* The agent that owns a roster. */
struct mg_roster_owner {
    struct mg_sv workspace, id; /* id: as new or as it is; a reference to it is self */
    int64_t version;
};
/* Pins every reference of x->roster (given by a body) to a version and writes x->multiagent with them; self gets owner->version. */
mg_rc mg_roster_pin(struct mg_arena *a, struct mg_txn *t, const struct mg_roster_owner *owner, struct mg_agent *x,
                    struct mg_err *err) MG_MUSTCHECK;
/* Stored text with self at another version. */
mg_rc mg_roster_repin(struct mg_arena *a, const struct mg_roster_owner *owner, struct mg_sv *multiagent,
                      struct mg_err *err) MG_MUSTCHECK;
/* For a session in this environment: the roster's entries as whole agents; self is x itself, as this session runs it. *ret_any: there is one to give tasks to. */
mg_rc mg_roster_expand(struct mg_arena *a, struct mg_txn *t, const struct mg_roster_owner *owner,
                       struct mg_sv env_config, struct mg_agent *x, bool *ret_any, struct mg_err *err) MG_MUSTCHECK;

#endif
