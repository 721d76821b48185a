/* Agents that a coordinator defines itself when it gives a task (multiagent_20261001, inline_agents). Such an agent is the snapshot of its one
 * thread and nothing else: it has no resource, no version and no place in a roster. It can use nothing that its coordinator cannot: its model is
 * one that the session names anyway (so that a budget has a price for it), its tools are some of the coordinator's with their permission
 * policies, its MCP servers are those of its tools, its skills and its execution identity are the coordinator's. Pure. */
#ifndef MG_RUN_INLINE_AGENT_H
#define MG_RUN_INLINE_AGENT_H

#include "base/err.h"
#include "json/json.h"
#include "run/server-tools.h"

/* send_to_agent, with inline_agent. */
extern const char MG_INLINE_SEND_DEFINITION[];

/* Whether the agent, a parsed SessionAgent, may define others. */
bool mg_inline_allowed(struct mg_arena *a, const struct mg_json *agent);
/* *name is what the agent is called when its definition gives no name; then it is its name. *ret is the InlineAgent. MG_EINVAL: err is for the model
 * that wrote the definition. */
mg_rc mg_inline_agent(struct mg_arena *a, const struct mg_json *coordinator, enum mg_web_mode mode,
                      const struct mg_json *definition, struct mg_sv *name, struct mg_sv *ret,
                      struct mg_err *err) MG_MUSTCHECK;

#endif
