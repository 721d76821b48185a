#include "run/mcp-tools.h"

#include "domain/agent-tools.h"
#include "mcp/tool-list.h"

static const struct mg_json *tools_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv server)
{
    const struct mg_json *all = mg_json_get(agent, "mcp_tools");
    for (const struct mg_json *s = all ? all->child : NULL; s; s = s->next)
        if (mg_sv_eq(mg_json_get_str(a, s, "server"), server))
            return mg_json_get(s, "tools");
    return NULL;
}

/* Two names may come out alike only when a server means it: the first keeps it. */
static bool taken_before(struct mg_arena *a, const struct mg_json *tools, const struct mg_json *upto,
                         struct mg_sv server, const char *alias)
{
    char other[MG_MCP_ALIAS_MAX + 1];
    for (const struct mg_json *t = tools->child; t != upto; t = t->next) {
        mg_mcp_alias(server, mg_json_get_str(a, t, "name"), other);
        if (strcmp(other, alias) == 0)
            return true;
    }
    return false;
}

/* A custom tool of the same name wins. */
static bool is_custom(struct mg_arena *a, const struct mg_json *agent, const char *alias)
{
    const struct mg_json *tools = mg_json_get(agent, "tools");
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next)
        if (mg_sv_eqz(mg_json_get_str(a, t, "type"), "custom") && mg_sv_eqz(mg_json_get_str(a, t, "name"), alias))
            return true;
    return false;
}

void mg_mcp_definitions(struct mg_arena *a, const struct mg_json *agent, const struct mg_json *toolset, struct mg_jw *w,
                        int *n_tools)
{
    struct mg_sv server = mg_json_get_str(a, toolset, "mcp_server_name");
    const struct mg_json *tools = tools_of(a, agent, server);
    char alias[MG_MCP_ALIAS_MAX + 1];
    for (const struct mg_json *t = tools ? tools->child : NULL; t && *n_tools < MG_AGENT_TOOLS_MAX; t = t->next) {
        struct mg_sv name = mg_json_get_str(a, t, "name");
        mg_mcp_alias(server, name, alias);
        if (mg_toolset_permission(a, toolset, name, MG_PERM_ASK) == MG_PERM_DENY || is_custom(a, agent, alias) ||
            taken_before(a, tools, t, server, alias))
            continue;
        ++*n_tools;
        mg_jw_obj(w);
        mg_jw_kstrz(w, "name", alias);
        mg_jw_kraw(w, "description", mg_json_get_raw(t, "description"));
        mg_jw_kraw(w, "input_schema", mg_json_get_raw(t, "input_schema"));
        mg_jw_obj_end(w);
    }
}

struct mg_tool_rule mg_mcp_rule_of(struct mg_arena *a, const struct mg_json *agent, const struct mg_json *toolset,
                                   struct mg_sv name)
{
    struct mg_sv server = mg_json_get_str(a, toolset, "mcp_server_name");
    const struct mg_json *tools = mg_sv_starts(name, "mcp__") ? tools_of(a, agent, server) : NULL;
    char alias[MG_MCP_ALIAS_MAX + 1];
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next) {
        struct mg_sv tool = mg_json_get_str(a, t, "name");
        mg_mcp_alias(server, tool, alias);
        if (mg_sv_eqz(name, alias))
            return (struct mg_tool_rule){
                .known = true,
                .kind = MG_CALL_MCP,
                .permission = mg_toolset_permission(a, toolset, tool, MG_PERM_ASK),
                .server = server,
                .tool = tool,
            };
    }
    return (struct mg_tool_rule){0};
}

struct mg_sv mg_mcp_url_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv server)
{
    const struct mg_json *servers = mg_json_get(agent, "mcp_servers");
    for (const struct mg_json *s = servers ? servers->child : NULL; s; s = s->next)
        if (mg_sv_eq(mg_json_get_str(a, s, "name"), server))
            return mg_json_get_str(a, s, "url");
    return MG_SV("");
}
