/* The MCP toolsets of an agent: which tools the model is shown under which names, and what a name stands for. The agent is the SessionAgent text with
 * one more member, mcp_tools, that mg_mcp_attach puts in: [{"server","tools":[{"name","description","input_schema"}]}]. Pure. */
#ifndef MG_RUN_MCP_TOOLS_H
#define MG_RUN_MCP_TOOLS_H

#include "json/json.h"
#include "json/write.h"
#include "run/tool-config.h"

/* Writes the definitions of a toolset's enabled tools. *n_tools counts all tools of the request: there are no more than the contract allows. */
void mg_mcp_definitions(struct mg_arena *a, const struct mg_json *agent, const struct mg_json *toolset, struct mg_jw *w,
                        int *n_tools);
/* What the model's name stands for in this toolset; known is false when it is none of its tools. */
struct mg_tool_rule mg_mcp_rule_of(struct mg_arena *a, const struct mg_json *agent, const struct mg_json *toolset,
                                   struct mg_sv name);
/* The URL of a server of the agent, or an empty view. */
struct mg_sv mg_mcp_url_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv server);

#endif
