/* What an agent snapshot says of a tool name. */
#ifndef MG_RUN_TOOL_CONFIG_H
#define MG_RUN_TOOL_CONFIG_H

#include "base/buf.h"
#include "json/json.h"
#include "store/tool-call.h"

enum mg_permission { MG_PERM_ALLOW, MG_PERM_ASK, MG_PERM_DENY };

struct mg_tool_rule {
    bool known;
    enum mg_call_kind kind;
    enum mg_permission permission; /* DENY: the tool exists and is disabled */
    struct mg_sv server, tool;     /* MCP: whose it is, and its name there */
};
/* The toolset's config of the tool, or NULL. */
const struct mg_json *mg_toolset_config(struct mg_arena *a, const struct mg_json *toolset, struct mg_sv name);
/* What a toolset says of one of its tools; unsaid: what neither its config nor default_config decides. */
enum mg_permission mg_toolset_permission(struct mg_arena *a, const struct mg_json *toolset, struct mg_sv name,
                                         enum mg_permission unsaid);
/* agent: the parsed SessionAgent. */
struct mg_tool_rule mg_tool_rule_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv name);
/* Definitions for the model request: a JSON array of all enabled tools, in the agent's order. */
void mg_tool_definitions(struct mg_arena *a, const struct mg_json *agent, struct mg_buf *out);

#endif
