/* The tools, MCP servers and model of an agent: from what a client may write to the resolved form that is stored and shown. */
#ifndef MG_DOMAIN_AGENT_TOOLS_H
#define MG_DOMAIN_AGENT_TOOLS_H

#include "domain/check.h"

enum {
    MG_AGENT_TOOLS_MAX = 256,       /* tools over all toolsets: the contract's */
    MG_AGENT_MCP_SERVERS_MAX = 20,  /* the contract's */
    MG_TOOL_NAME_MAX = 128,         /* characters of [A-Za-z0-9_-] */
    MG_TOOL_DESCRIPTION_MAX = 4096, /* characters */
};

/* Each writes the resolved JSON text (arena memory). place: "tools", "agent.tools". NULL or null gives []. */
mg_rc mg_tools_resolve(struct mg_arena *a, const struct mg_json *tools, const char *place, struct mg_sv *ret,
                       struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_mcp_servers_resolve(struct mg_arena *a, const struct mg_json *servers, const char *place, struct mg_sv *ret,
                             struct mg_err *err) MG_MUSTCHECK;
/* Every server needs a toolset and every toolset a server; both are resolved texts. prefix: "" or "agent.". */
mg_rc mg_tools_pair_check(struct mg_arena *a, struct mg_sv tools, struct mg_sv servers, const char *prefix,
                          struct mg_err *err) MG_MUSTCHECK;
/* model: a string or an object. base: the stored model on an update (its effort stays when the new one has none), or empty. */
mg_rc mg_model_resolve(struct mg_arena *a, const struct mg_json *model, const char *place, struct mg_sv base,
                       struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;
/* Skills are not part of this build: only [] and null pass. */

#endif
