/* The tools that a server lists: bounded, and in a form that a model endpoint takes whatever the server says. */
#ifndef MG_MCP_TOOL_LIST_H
#define MG_MCP_TOOL_LIST_H

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

enum {
    MG_MCP_TOOLS_MAX = 256,            /* of one server: the contract's for all of an agent */
    MG_MCP_PAGES_MAX = 64,             /* of one list */
    MG_MCP_CURSOR_MAX = 4096,          /* bytes of a cursor */
    MG_MCP_TOOL_NAME_MAX = 128,        /* bytes: the protocol's */
    MG_MCP_DESCRIPTION_MAX = 8 * 1024, /* bytes; longer ones are cut and say so: each request pays for them */
    MG_MCP_SCHEMA_MAX = 64 * 1024,     /* bytes of an input schema; a larger one is replaced */
    MG_MCP_LIST_MAX = 2 * 1024 * 1024, /* bytes of all tools of a server */
    MG_MCP_ALIAS_MAX = 64,             /* characters of a tool's name for the model: semantics MC4 */
};

struct mg_mcp_tool_list {
    struct mg_buf tools; /* [{"name","description","input_schema"}, ...] */
    int n_tools, n_left_out;
    char cursor[MG_MCP_CURSOR_MAX + 1]; /* raw JSON string of the next page; "": this was the last */
};

void mg_mcp_tool_list_init(struct mg_mcp_tool_list *l);
void mg_mcp_tool_list_done(struct mg_mcp_tool_list *l);
static inline void mg_mcp_tool_list_cleanup(struct mg_mcp_tool_list *l)
{
    mg_mcp_tool_list_done(l);
}
/* Adds the tools of a page: the result of tools/list. Tools that have no usable name, or one that came before, are left
 * out; a schema that a model endpoint would refuse is replaced by one that takes any object, and the description says
 * so. MG_EINVAL: it is no list of tools; MG_ETOOBIG: too many bytes in all. */
mg_rc mg_mcp_tool_list_add(struct mg_arena *a, struct mg_mcp_tool_list *l, const struct mg_json *result,
                           struct mg_err *err) MG_MUSTCHECK;
void mg_mcp_tool_list_end(struct mg_mcp_tool_list *l); /* closes the array */

/* NULL, or why a model endpoint may refuse the schema. */
const char *mg_mcp_schema_problem(struct mg_arena *a, const struct mg_json *schema);
/* mcp__SERVER__TOOL, with a hash where characters had to go or it was too long: the same for the same two, another for
 * any others. */
void mg_mcp_alias(struct mg_sv server, struct mg_sv tool, char out[MG_MCP_ALIAS_MAX + 1]);

#endif
