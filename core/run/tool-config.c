#include "run/tool-config.h"

#include "json/write.h"
#include "run/mcp-tools.h"
#include "run/delegate.h"
#include "tools/tools.h"

static const char *const builtin_names[] = {"bash", "read", "write", "edit", "glob", "grep"};
enum { N_BUILTINS = sizeof(builtin_names) / sizeof(builtin_names[0]) };

static bool type_is(struct mg_arena *a, const struct mg_json *v, const char *type)
{
    return mg_sv_eqz(mg_json_get_str(a, v, "type"), type);
}

const struct mg_json *mg_toolset_config(struct mg_arena *a, const struct mg_json *toolset, struct mg_sv name)
{
    const struct mg_json *configs = mg_json_get(toolset, "configs");
    for (const struct mg_json *c = configs ? configs->child : NULL; c; c = c->next)
        if (mg_sv_eq(mg_json_get_str(a, c, "name"), name))
            return c;
    return NULL;
}

/* A tool's own config wins over default_config; what neither says is enabled. */
enum mg_permission mg_toolset_permission(struct mg_arena *a, const struct mg_json *toolset, struct mg_sv name,
                                         enum mg_permission unsaid)
{
    const struct mg_json *levels[] = {mg_toolset_config(a, toolset, name), mg_json_get(toolset, "default_config")};
    const struct mg_json *enabled = NULL, *policy = NULL;
    for (int i = 0; i < 2; i++) {
        enabled = enabled ? enabled : mg_json_get(levels[i], "enabled");
        policy = mg_json_is(policy, MG_JSON_OBJECT) ? policy : mg_json_get(levels[i], "permission_policy");
    }
    if (mg_json_is(enabled, MG_JSON_BOOL) && !enabled->boolean)
        return MG_PERM_DENY;
    if (!mg_json_is(policy, MG_JSON_OBJECT))
        return unsaid;
    return type_is(a, policy, "always_allow") ? MG_PERM_ALLOW : MG_PERM_ASK;
}

static enum mg_permission builtin_permission(struct mg_arena *a, const struct mg_json *toolset, struct mg_sv name)
{
    return mg_toolset_permission(a, toolset, name, MG_PERM_ALLOW);
}

struct mg_tool_rule mg_tool_rule_of(struct mg_arena *a, const struct mg_json *agent, struct mg_sv name)
{
    const struct mg_json *tools = mg_json_get(agent, "tools");
    if (mg_delegate_known(a, agent, name))
        return (struct mg_tool_rule){.known = true, .kind = MG_CALL_AGENT, .permission = MG_PERM_ALLOW};
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next) {
        if (type_is(a, t, "agent_toolset_20260401") && mg_tool_known(name))
            return (struct mg_tool_rule){
                .known = true, .kind = MG_CALL_BUILTIN, .permission = builtin_permission(a, t, name)};
        if (type_is(a, t, "custom") && mg_sv_eq(mg_json_get_str(a, t, "name"), name))
            return (struct mg_tool_rule){.known = true, .kind = MG_CALL_CUSTOM, .permission = MG_PERM_ALLOW};
    }
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next) {
        struct mg_tool_rule rule =
            type_is(a, t, "mcp_toolset") ? mg_mcp_rule_of(a, agent, t, name) : (struct mg_tool_rule){0};
        if (rule.known)
            return rule;
    }
    return (struct mg_tool_rule){0};
}

static void toolset_definitions(struct mg_arena *a, const struct mg_json *toolset, struct mg_jw *w)
{
    for (int i = 0; i < N_BUILTINS; i++) {
        struct mg_sv name = mg_sv_of(builtin_names[i]);
        if (builtin_permission(a, toolset, name) != MG_PERM_DENY)
            mg_jw_raw(w, mg_tool_definition(name));
    }
}

static void custom_definition(const struct mg_json *t, struct mg_jw *w)
{
    static const char *const members[] = {"name", "description", "input_schema"};
    mg_jw_obj(w);
    for (int i = 0; i < 3; i++)
        if (mg_json_get(t, members[i]))
            mg_jw_kraw(w, members[i], mg_json_get_raw(t, members[i]));
    mg_jw_obj_end(w);
}

void mg_tool_definitions(struct mg_arena *a, const struct mg_json *agent, struct mg_buf *out)
{
    struct mg_jw w = mg_jw_to(out);
    const struct mg_json *tools = mg_json_get(agent, "tools");
    int n = N_BUILTINS + (int)(tools ? tools->n : 0);
    mg_jw_arr(&w);
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next) {
        if (type_is(a, t, "agent_toolset_20260401"))
            toolset_definitions(a, t, &w);
        else if (type_is(a, t, "custom"))
            custom_definition(t, &w);
        else if (type_is(a, t, "mcp_toolset"))
            mg_mcp_definitions(a, agent, t, &w, &n);
    }
    mg_delegate_definitions(a, agent, &w);
    mg_jw_arr_end(&w);
}
