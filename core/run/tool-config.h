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
};
/* agent: the parsed SessionAgent. */
struct mg_tool_rule mg_tool_rule_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv name);
/* Definitions for the model request: a JSON array of all enabled tools, in the agent's order. */
void mg_tool_definitions(struct mg_arena *a, const struct mg_json *agent, struct mg_buf *out);

#endif
