/* Skills of a session: what the model is told of them, and their files in the sandbox. */
#ifndef MG_RUN_SKILLS_H
#define MG_RUN_SKILLS_H

#include "base/arena.h"
#include "base/err.h"
#include "domain/id.h"
#include "json/json.h"

struct mg_engine;
struct mg_pg;
struct mg_sandbox;

/* Adds the names, descriptions and places of the agent's skills to its system prompt (raw JSON string). An agent without skills costs nothing. */
mg_rc mg_skills_system(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, const struct mg_json *agent,
                       struct mg_sv *system, struct mg_err *err) MG_MUSTCHECK;
/* Puts the session's skills into the workspace, below skills/NAME, once. */
mg_rc mg_skills_prepare(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, struct mg_sandbox *box,
                        struct mg_err *err) MG_MUSTCHECK;

#endif
