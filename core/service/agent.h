/* Agents: create, new versions, archive. Reads go to store/agent.h. */
#ifndef MG_SERVICE_AGENT_H
#define MG_SERVICE_AGENT_H

#include "domain/principal.h"
#include "json/json.h"
#include "store/agent.h"

mg_rc mg_agents_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                       struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* A new version when something changed, else the present one. MG_ECONFLICT: the version that the client expected is not the newest. */
mg_rc mg_agents_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       const struct mg_json *body, struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Twice is fine. */
mg_rc mg_agents_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                        struct mg_agent_row *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
