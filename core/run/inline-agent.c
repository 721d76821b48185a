#include "run/inline-agent.h"

#include "domain/agent-tools.h"
#include "domain/agent.h"
#include "domain/web-tools.h"
#include "json/write.h"
#include "run/delegate.h"
#include "run/tool-config.h"

enum { TOOLS_TEXT_MAX = 64 * 1024 * 1024 /* bytes: no more than the coordinator's, which an agent's body bounds */ };

#define PLACE "inline_agent"

/* Read by the model at every request: a text that changes costs every session its cached prefix once. */
const char MG_INLINE_SEND_DEFINITION[] =
    "{\"name\":\"send_to_agent\",\"description\":\"Sends a message to an agent and returns at once. It starts a new "
    "thread with the agent that agent_name names, or with one that you define in inline_agent; with session_thread_id "
    "the message continues that thread, which remembers what was said in it. The agent works on its own, in the same "
    "file system, and its final message comes back to you as a new message when it is done.\",\"input_schema\":{"
    "\"type\":\"object\",\"properties\":{\"agent_name\":{\"type\":\"string\",\"description\":\"The name of one of the "
    "agents that list_agents gives.\"},\"inline_agent\":{\"type\":\"object\",\"description\":\"Instead of agent_name: "
    "an agent for this thread alone. It can use nothing that you cannot.\",\"properties\":{\"name\":{\"type\":"
    "\"string\",\"description\":\"What it is called; none of the names that list_agents gives.\"},\"description\":{"
    "\"type\":\"string\",\"description\":\"What it is for.\"},\"system\":{\"type\":\"string\",\"description\":\"Its "
    "system prompt: what it is, and how it works. The task itself goes into message.\"},\"model\":{\"type\":\"string\","
    "\"description\":\"The model of one of your agents; leave it out for your own.\"},\"tools\":{\"type\":\"array\","
    "\"items\":{\"type\":\"string\"},\"description\":\"The names of the tools of yours that it gets; leave it out for "
    "all of them but those that give tasks.\"}},\"required\":[\"system\"],\"additionalProperties\":false},\"message\":{"
    "\"type\":\"string\",\"description\":\"The whole task: the agent knows nothing of your conversation.\"},"
    "\"session_thread_id\":{\"type\":\"string\",\"description\":\"An existing thread; leave it out to start a new "
    "one.\"}},\"required\":[\"message\"],\"additionalProperties\":false}}";

static bool is_enabled(struct mg_arena *a, const struct mg_json *v)
{
    return mg_sv_eqz(mg_json_get_str(a, v, "type"), "enabled");
}

bool mg_inline_allowed(struct mg_arena *a, const struct mg_json *agent)
{
    const struct mg_json *m = mg_json_get(agent, "multiagent");
    const struct mg_json *subagents = mg_json_is(m, MG_JSON_OBJECT) ? mg_json_get(m, "subagents") : NULL;
    return is_enabled(a, subagents) && is_enabled(a, mg_json_get(subagents, "inline_agents"));
}

/* ---- name and model ---- */

/* Threads are told apart by their ids, but a name must not pass for an agent that somebody has saved, nor for the advisor. */
static mg_rc check_name(struct mg_arena *a, const struct mg_json *coordinator, struct mg_sv name, struct mg_err *err)
{
    bool taken = mg_sv_eqz(name, MG_ADVISOR_NAME);
    for (const struct mg_json *e = mg_roster_first(a, coordinator); e && !taken; e = mg_roster_next(a, e))
        taken = mg_sv_eq(mg_json_get_str(a, e, "name"), name);
    if (!taken)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL,
                      PLACE ".name: '%.*s' is the name of another agent; choose another one, or send the message to "
                            "that agent with agent_name",
                      MG_SV_ARG(name));
}

/* The ModelConfig of this id among those that the session has. */
static mg_rc choose_model(struct mg_arena *a, const struct mg_json *coordinator, struct mg_sv id, struct mg_sv *ret,
                          struct mg_err *err)
{
    struct mg_sv known = MG_SV("");
    const struct mg_json *roster = mg_roster_first(a, coordinator);
    for (const struct mg_json *e = coordinator; e; e = e == coordinator ? roster : mg_roster_next(a, e)) {
        const struct mg_json *model = mg_json_get(e, "model");
        struct mg_sv own = mg_json_get_str(a, model, "id");
        if (mg_sv_eq(own, id)) {
            *ret = model->raw;
            return MG_OK;
        }
        known = mg_arena_printf(a, "%.*s%s%.*s", MG_SV_ARG(known), known.len ? ", " : "", MG_SV_ARG(own));
    }
    return mg_err_set(err, MG_EINVAL,
                      PLACE ".model: '%.*s' is no model of this session, which are: %.*s; name one of them, or leave "
                            "model out for your own",
                      MG_SV_ARG(mg_shown_id(id)), MG_SV_ARG(known));
}

/* ---- tools ---- */

struct picks {
    const struct mg_json *coordinator;
    enum mg_web_mode mode;
    struct mg_sv names[MG_AGENT_TOOLS_MAX]; /* as the coordinator's model knows them */
    struct mg_tool_rule rules[MG_AGENT_TOOLS_MAX];
    int n;
    bool files; /* one of them sees the workspace, where skills are */
};

static bool is_toolset(struct mg_arena *a, const struct mg_json *t)
{
    return mg_sv_eqz(mg_json_get_str(a, t, "type"), "agent_toolset_20260401");
}

/* The rule of a tool that the coordinator's model can call. Web tools, which the endpoint runs, are not among the server's own. */
static struct mg_tool_rule rule_of(struct mg_arena *a, const struct picks *p, struct mg_sv name)
{
    const struct mg_json *tools = mg_json_get(p->coordinator, "tools");
    struct mg_tool_rule rule = mg_tool_rule_of(a, p->coordinator, name);
    for (const struct mg_json *t = tools && !rule.known ? tools->child : NULL; t; t = t->next)
        if (is_toolset(a, t) && mg_web_tool_on(a, t, p->mode, name))
            return (struct mg_tool_rule){.known = true, .kind = MG_CALL_BUILTIN, .permission = MG_PERM_ALLOW};
    rule.known &= rule.permission != MG_PERM_DENY;
    return rule;
}

static mg_rc pick(struct mg_arena *a, struct picks *p, const struct mg_json *v, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule NAME = {.type = MG_FT_STRING, .min = 1, .max = MG_TOOL_NAME_MAX};
    mg_rc rc = mg_check_value(a, v, place, &NAME, err);
    if (rc < 0)
        return rc;
    struct mg_sv name = mg_json_str(a, v);
    struct mg_tool_rule rule = rule_of(a, p, name);
    if (!rule.known)
        return mg_err_set(err, MG_EINVAL,
                          "%s: '%.*s' is none of your tools; name tools that you have, or leave tools out for all of "
                          "them",
                          place, MG_SV_ARG(name));
    if (rule.kind == MG_CALL_AGENT)
        return mg_err_set(err, MG_EINVAL, "%s: '%.*s' is a coordinator's alone; leave it out", place, MG_SV_ARG(name));
    for (int i = 0; i < p->n; i++)
        if (mg_sv_eq(p->names[i], name))
            return mg_err_set(err, MG_EINVAL, "%s: '%.*s' is named twice; name it once", place, MG_SV_ARG(name));
    p->files |= rule.kind == MG_CALL_BUILTIN && mg_web_tool_of(name) < 0;
    p->names[p->n] = name;
    p->rules[p->n++] = rule;
    return MG_OK;
}

static mg_rc pick_all(struct mg_arena *a, const struct mg_json *list, struct picks *p, struct mg_err *err)
{
    char place[MG_PATH_MAX];
    mg_rc rc = MG_OK;
    unsigned i = 0;
    for (const struct mg_json *v = list->child; rc >= 0 && v; v = v->next)
        rc = pick(a, p, v, mg_place_at(place, PLACE ".tools", i++), err);
    return rc;
}

/* Whether the tool is one of this entry of the coordinator's tools; *ret is its name there. */
static bool belongs(struct mg_arena *a, const struct picks *p, int i, const struct mg_json *t, struct mg_sv *ret)
{
    const struct mg_tool_rule *rule = &p->rules[i];
    *ret = rule->kind == MG_CALL_MCP ? rule->tool : p->names[i];
    switch (rule->kind) {
    case MG_CALL_BUILTIN:
        return is_toolset(a, t);
    case MG_CALL_MCP:
        return mg_json_get(t, "mcp_server_name") && mg_sv_eq(mg_json_get_str(a, t, "mcp_server_name"), rule->server);
    default:
        return mg_sv_eqz(mg_json_get_str(a, t, "type"), "custom") && mg_sv_eq(mg_json_get_str(a, t, "name"), *ret);
    }
}

static bool has_picks(struct mg_arena *a, const struct picks *p, const struct mg_json *t)
{
    struct mg_sv name;
    for (int i = 0; i < p->n; i++)
        if (belongs(a, p, i, t, &name))
            return true;
    return false;
}

static void put_setting(struct mg_jw *w, bool enabled, struct mg_sv policy)
{
    mg_jw_kbool(w, "enabled", enabled);
    mg_jw_kraw(w, "permission_policy", policy);
}

/* A toolset with what was picked of it: everything else is off, and what is on has the policy that it has for the coordinator. */
static void put_toolset(struct mg_arena *a, const struct picks *p, const struct mg_json *t, struct mg_jw *w)
{
    struct mg_sv policy = mg_json_get_raw(mg_json_get(t, "default_config"), "permission_policy"), name;
    mg_jw_obj(w);
    mg_jw_kraw(w, "type", mg_json_get_raw(t, "type"));
    if (mg_json_get(t, "mcp_server_name"))
        mg_jw_kraw(w, "mcp_server_name", mg_json_get_raw(t, "mcp_server_name"));
    mg_jw_key(w, "default_config");
    mg_jw_obj(w);
    put_setting(w, false, policy);
    mg_jw_obj_end(w);
    mg_jw_key(w, "configs");
    mg_jw_arr(w);
    for (int i = 0; i < p->n; i++) {
        if (!belongs(a, p, i, t, &name))
            continue;
        const struct mg_json *config = mg_toolset_config(a, t, name);
        if (config) {
            mg_jw_raw(w, config->raw);
            continue;
        }
        mg_jw_obj(w);
        if (is_toolset(a, t))
            mg_jw_kstr(w, "type", name);
        mg_jw_kstr(w, "name", name);
        put_setting(w, true, policy);
        mg_jw_obj_end(w);
    }
    mg_jw_arr_end(w);
    mg_jw_obj_end(w);
}

static struct mg_sv tools_text(struct mg_arena *a, const struct picks *p)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TOOLS_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    const struct mg_json *tools = mg_json_get(p->coordinator, "tools");
    mg_jw_arr(&w);
    for (const struct mg_json *t = tools ? tools->child : NULL; t; t = t->next) {
        if (!has_picks(a, p, t))
            continue;
        if (mg_json_get(t, "default_config"))
            put_toolset(a, p, t, &w);
        else
            mg_jw_raw(&w, t->raw);
    }
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static struct mg_sv servers_text(struct mg_arena *a, const struct picks *p)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TOOLS_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    const struct mg_json *servers = mg_json_get(p->coordinator, "mcp_servers");
    mg_jw_arr(&w);
    for (const struct mg_json *s = servers ? servers->child : NULL; s; s = s->next)
        for (int i = 0; i < p->n; i++)
            if (p->rules[i].kind == MG_CALL_MCP && mg_sv_eq(mg_json_get_str(a, s, "name"), p->rules[i].server)) {
                mg_jw_raw(&w, s->raw);
                break;
            }
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static mg_rc restrict_tools(struct mg_arena *a, const struct mg_json *coordinator, enum mg_web_mode mode,
                            const struct mg_json *list, struct mg_agent *x, struct mg_err *err)
{
    struct picks *p = mg_arena_new_of(a, struct picks);
    *p = (struct picks){.coordinator = coordinator, .mode = mode};
    mg_rc rc = pick_all(a, list, p, err);
    if (rc < 0)
        return rc;
    x->tools = tools_text(a, p);
    x->mcp_servers = servers_text(a, p);
    if (!p->files)
        x->skills = MG_SV("[]");
    return MG_OK;
}

/* ---- the agent ---- */

enum { D_NAME, D_DESCRIPTION, D_SYSTEM, D_MODEL, D_TOOLS, N_FIELDS };
static const struct mg_field_rule RULES[] = {
    [D_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = MG_AGENT_NAME_MAX},
    [D_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_NULL,
                       .max = MG_AGENT_DESCRIPTION_MAX},
    [D_SYSTEM] = {.name = "system",
                  .type = MG_FT_STRING,
                  .flags = MG_FF_REQUIRED | MG_FF_TEXT,
                  .min = 1,
                  .max = MG_AGENT_SYSTEM_MAX},
    [D_MODEL] = {.name = "model", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1},
    [D_TOOLS] = {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_AGENT_TOOLS_MAX},
    {.name = NULL},
};

static struct mg_sv quoted(struct mg_arena *a, struct mg_sv s)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_AGENT_NAME_MAX * 8);
    (void)mg_buf_char(&b, '"');
    mg_json_escape(&b, s);
    (void)mg_buf_char(&b, '"');
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_inline_agent(struct mg_arena *a, const struct mg_json *coordinator, enum mg_web_mode mode,
                      const struct mg_json *definition, struct mg_sv *name, struct mg_sv *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    struct mg_json *given;
    struct mg_agent x;
    /* A body of a client is read strictly, and this goes where such a body does. */
    mg_rc rc = mg_json_parse(a, definition->raw, &mg_json_api_limits, &given, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, PLACE);
    rc = mg_check_object(a, given, PLACE, RULES, m, err);
    if (rc >= 0)
        rc = mg_agent_load(a, coordinator->raw, &x, err);
    if (rc < 0)
        return rc;
    if (mg_given(m[D_NAME]))
        *name = mg_json_str(a, m[D_NAME]);
    x.name = mg_given(m[D_NAME]) ? m[D_NAME]->raw : quoted(a, *name);
    x.description =
        mg_given(m[D_DESCRIPTION]) && mg_json_str(a, m[D_DESCRIPTION]).len ? m[D_DESCRIPTION]->raw : MG_SV("null");
    x.system = m[D_SYSTEM]->raw;
    rc = check_name(a, coordinator, *name, err);
    if (rc >= 0 && mg_given(m[D_MODEL]))
        rc = choose_model(a, coordinator, mg_json_str(a, m[D_MODEL]), &x.model, err);
    if (rc >= 0 && mg_given(m[D_TOOLS]))
        rc = restrict_tools(a, coordinator, mode, m[D_TOOLS], &x, err);
    if (rc >= 0)
        *ret = mg_agent_inline_format(a, &x);
    return rc;
}
