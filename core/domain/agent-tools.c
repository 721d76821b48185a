#include "domain/agent-tools.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "domain/web-tools.h"
#include "json/write.h"

enum { RESOLVED_MAX = 32 * 1024 * 1024 /* bytes: a body's own limit; resolving adds little */ };

/* The built-ins of agent_toolset_20260401; the model endpoint runs the last two. */
static const char *const BUILTINS[] = {"bash", "read",      "write",      "edit", "glob",
                                       "grep", "web_fetch", "web_search", NULL};
enum { N_BUILTINS = 8 };

static const char *const POLICIES[] = {"always_allow", "always_ask", "auto", NULL};
enum policy { ALWAYS_ALLOW, ALWAYS_ASK, AUTO };

struct setting {
    bool enabled;
    int policy;
};

/* ---- permission policies and defaults ---- */

static mg_rc parse_policy(struct mg_arena *a, const struct mg_json *v, const char *place, int *ret, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[1];
    mg_rc rc = mg_check_tag(a, v, place, POLICIES, ret, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, place, RULES, m, err);
    if (rc >= 0 && *ret == AUTO)
        return mg_err_set(err, MG_EINVAL, "%s.type: auto is not part of this build; use always_ask or always_allow",
                          place);
    return rc;
}

/* enabled and permission_policy of a default_config or of a config; absent ones keep what *s holds. */
static mg_rc apply_setting(struct mg_arena *a, const struct mg_json *enabled, const struct mg_json *policy,
                           const char *place, struct setting *s, struct mg_err *err)
{
    char p[MG_PATH_MAX];
    if (mg_given(enabled))
        s->enabled = enabled->boolean;
    if (!mg_given(policy))
        return MG_OK;
    return parse_policy(a, policy, mg_place(p, place, "permission_policy"), &s->policy, err);
}

static mg_rc parse_default(struct mg_arena *a, const struct mg_json *v, const char *place, struct setting *s,
                           struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "enabled", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
        {.name = "permission_policy", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    if (!mg_given(v))
        return MG_OK;
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    return rc < 0 ? rc : apply_setting(a, m[0], m[1], place, s, err);
}

static void write_setting(struct mg_jw *w, const struct setting *s)
{
    mg_jw_kbool(w, "enabled", s->enabled);
    mg_jw_key(w, "permission_policy");
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", POLICIES[s->policy]);
    mg_jw_obj_end(w);
}

/* ---- toolsets ---- */

struct tools_state {
    struct mg_arena *a;
    struct mg_jw *w;
    struct mg_err *err;
    bool toolset;                                       /* the built-in one has been seen */
    struct mg_sv names[MG_AGENT_TOOLS_MAX + 1];         /* of custom tools */
    struct mg_sv servers[MG_AGENT_MCP_SERVERS_MAX + 1]; /* of MCP toolsets */
    int n_names, n_servers, n_tools;
};

static bool seen(const struct mg_sv *list, int n, struct mg_sv s)
{
    for (int i = 0; i < n; i++)
        if (mg_sv_eq(list[i], s))
            return true;
    return false;
}

static bool tool_name_ok(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!ok)
            return false;
    }
    return s.len >= 1 && s.len <= MG_TOOL_NAME_MAX;
}

static const struct mg_field_rule CONFIG_RULES[] = {
    {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = BUILTINS},
    {.name = "enabled", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
    {.name = "permission_policy", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_NULL, .one_of = BUILTINS},
    /* of the web tools alone, as mg_web_members */
    {.name = "allowed_domains", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    {.name = "blocked_domains", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    {.name = "max_content_tokens", .type = MG_FT_INT, .flags = MG_FF_NULL},
    {.name = "url_sources", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = "user_location", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};
enum { CONFIG_WEB = 4 /* the first of them */ };
static const struct mg_field_rule MCP_CONFIG_RULES[] = {
    {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_TOOL_NAME_MAX},
    {.name = "enabled", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
    {.name = "permission_policy", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};

/* One entry of configs, checked and written with what it inherits. */
static mg_rc resolve_config(struct tools_state *s, const struct mg_json *v, const char *place, bool builtin,
                            struct setting inherit, struct mg_sv *ret_name)
{
    const struct mg_json *m[MG_FIELDS_MAX];
    mg_rc rc = mg_check_object(s->a, v, place, builtin ? CONFIG_RULES : MCP_CONFIG_RULES, m, s->err);
    if (rc >= 0)
        rc = apply_setting(s->a, m[1], m[2], place, &inherit, s->err);
    if (rc < 0)
        return rc;
    *ret_name = mg_json_str(s->a, m[0]);
    if (builtin && mg_given(m[3]) && !mg_sv_eq(mg_json_str(s->a, m[3]), *ret_name))
        return mg_err_set(s->err, MG_EINVAL, "%s.type: must be equal to name when it is given", place);
    if (builtin && mg_web_tool_of(*ret_name) >= 0 && inherit.enabled && inherit.policy != ALWAYS_ALLOW)
        return mg_err_set(
            s->err, MG_EINVAL,
            "%s: the model endpoint runs %.*s itself and asks nobody; set permission_policy to always_allow "
            "here, or enabled to false",
            place, MG_SV_ARG(*ret_name));
    mg_jw_obj(s->w);
    if (builtin)
        mg_jw_kstr(s->w, "type", *ret_name);
    mg_jw_kstr(s->w, "name", *ret_name);
    write_setting(s->w, &inherit);
    rc = builtin ? mg_web_config(s->a, *ret_name, m + CONFIG_WEB, place, s->w, s->err) : MG_OK;
    mg_jw_obj_end(s->w);
    return rc;
}

static mg_rc resolve_configs(struct tools_state *s, const struct mg_json *configs, const char *place, bool builtin,
                             struct setting inherit)
{
    struct mg_sv *names = mg_arena_alloc(s->a, sizeof(*names) * ((mg_given(configs) ? configs->n : 0) + 1));
    int n = 0;
    mg_jw_key(s->w, "configs");
    mg_jw_arr(s->w);
    for (const struct mg_json *c = mg_given(configs) ? configs->child : NULL; c; c = c->next, n++) {
        char p[MG_PATH_MAX];
        mg_place_at(p, place, (unsigned)n);
        mg_rc rc = resolve_config(s, c, p, builtin, inherit, &names[n]);
        if (rc < 0)
            return rc;
        if (seen(names, n, names[n]))
            return mg_err_set(s->err, MG_EINVAL, "%s.name: %.*s is configured twice", p, MG_SV_ARG(names[n]));
    }
    mg_jw_arr_end(s->w);
    if (!builtin)
        s->n_tools += n;
    return MG_OK;
}

static mg_rc resolve_toolset(struct tools_state *s, const struct mg_json *v, const char *place)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "default_config", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "configs", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = N_BUILTINS},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    char p[MG_PATH_MAX];
    if (s->toolset)
        return mg_err_set(s->err, MG_EINVAL, "%s: agent_toolset_20260401 may appear only once", place);
    struct setting d = {.enabled = true, .policy = ALWAYS_ALLOW};
    mg_rc rc = mg_check_object(s->a, v, place, RULES, m, s->err);
    if (rc >= 0)
        rc = parse_default(s->a, m[1], mg_place(p, place, "default_config"), &d, s->err);
    if (rc < 0)
        return rc;
    s->toolset = true;
    s->n_tools += N_BUILTINS;
    mg_jw_obj(s->w);
    mg_jw_kstrz(s->w, "type", "agent_toolset_20260401");
    mg_jw_key(s->w, "default_config");
    mg_jw_obj(s->w);
    write_setting(s->w, &d);
    mg_jw_obj_end(s->w);
    rc = resolve_configs(s, m[2], mg_place(p, place, "configs"), true, d);
    if (rc < 0)
        return rc;
    mg_jw_obj_end(s->w);
    return MG_OK;
}

static mg_rc resolve_mcp_toolset(struct tools_state *s, const struct mg_json *v, const char *place)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "mcp_server_name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 255},
        {.name = "default_config", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "configs", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_AGENT_TOOLS_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[4];
    char p[MG_PATH_MAX];
    struct setting d = {.enabled = true, .policy = ALWAYS_ASK};
    mg_rc rc = mg_check_object(s->a, v, place, RULES, m, s->err);
    if (rc >= 0)
        rc = parse_default(s->a, m[2], mg_place(p, place, "default_config"), &d, s->err);
    if (rc < 0)
        return rc;
    struct mg_sv name = mg_json_str(s->a, m[1]);
    if (seen(s->servers, s->n_servers, name))
        return mg_err_set(s->err, MG_EINVAL, "%s.mcp_server_name: this server has a toolset already", place);
    if (s->n_servers == MG_AGENT_MCP_SERVERS_MAX)
        return mg_err_set(s->err, MG_EINVAL, "%s: at most %d MCP toolsets are allowed", place,
                          MG_AGENT_MCP_SERVERS_MAX);
    s->servers[s->n_servers++] = name;
    mg_jw_obj(s->w);
    mg_jw_kstrz(s->w, "type", "mcp_toolset");
    mg_jw_kstr(s->w, "mcp_server_name", name);
    mg_jw_key(s->w, "default_config");
    mg_jw_obj(s->w);
    write_setting(s->w, &d);
    mg_jw_obj_end(s->w);
    rc = resolve_configs(s, m[3], mg_place(p, place, "configs"), false, d);
    if (rc < 0)
        return rc;
    mg_jw_obj_end(s->w);
    return MG_OK;
}

/* ---- custom tools ---- */

static mg_rc check_schema(struct mg_arena *a, const struct mg_json *schema, const char *place, struct mg_err *err)
{
    static const char *const OBJECT[] = {"object", NULL};
    static const struct mg_field_rule PROPERTIES = {.type = MG_FT_OBJECT, .flags = MG_FF_NULL};
    static const struct mg_field_rule REQUIRED = {.type = MG_FT_ARRAY, .flags = MG_FF_NULL};
    static const struct mg_field_rule NAME = {.type = MG_FT_STRING, .flags = MG_FF_TEXT};
    char p[MG_PATH_MAX], q[MG_PATH_MAX];
    int t = 0;
    mg_rc rc = mg_check_tag(a, schema, place, OBJECT, &t, err);
    const struct mg_json *properties = mg_json_get(schema, "properties"), *required = mg_json_get(schema, "required");
    if (rc >= 0 && properties)
        rc = mg_check_value(a, properties, mg_place(p, place, "properties"), &PROPERTIES, err);
    if (rc >= 0 && required)
        rc = mg_check_value(a, required, mg_place(p, place, "required"), &REQUIRED, err);
    unsigned i = 0;
    for (const struct mg_json *r = rc >= 0 && mg_given(required) ? required->child : NULL; r && rc >= 0; r = r->next)
        rc = mg_check_value(a, r, mg_place_at(q, p, i++), &NAME, err);
    return rc;
}

static mg_rc resolve_custom(struct tools_state *s, const struct mg_json *v, const char *place)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_TOOL_NAME_MAX},
        {.name = "description",
         .type = MG_FT_STRING,
         .flags = MG_FF_REQUIRED | MG_FF_TEXT,
         .min = 1,
         .max = MG_TOOL_DESCRIPTION_MAX},
        {.name = "input_schema", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[4];
    char p[MG_PATH_MAX];
    mg_rc rc = mg_check_object(s->a, v, place, RULES, m, s->err);
    if (rc >= 0)
        rc = check_schema(s->a, m[3], mg_place(p, place, "input_schema"), s->err);
    if (rc < 0)
        return rc;
    struct mg_sv name = mg_json_str(s->a, m[1]);
    if (!tool_name_ok(name))
        return mg_err_set(s->err, MG_EINVAL, "%s.name: may hold only letters, digits, '_' and '-'", place);
    if (seen(s->names, s->n_names, name))
        return mg_err_set(s->err, MG_EINVAL, "%s.name: %.*s is the name of two tools", place, MG_SV_ARG(name));
    s->names[s->n_names++] = name;
    s->n_tools++;
    mg_jw_obj(s->w);
    mg_jw_kstrz(s->w, "type", "custom");
    mg_jw_kstr(s->w, "name", name);
    mg_jw_kraw(s->w, "description", m[2]->raw);
    mg_jw_kraw(s->w, "input_schema", m[3]->raw);
    mg_jw_obj_end(s->w);
    return MG_OK;
}

/* ---- the whole list ---- */

static mg_rc resolve_tool(struct tools_state *s, const struct mg_json *v, const char *place)
{
    static const char *const TYPES[] = {"agent_toolset_20260401", "mcp_toolset", "custom", NULL};
    int t = 0;
    mg_rc rc = mg_check_tag(s->a, v, place, TYPES, &t, s->err);
    if (rc < 0)
        return rc;
    if (t == 0)
        return resolve_toolset(s, v, place);
    return t == 1 ? resolve_mcp_toolset(s, v, place) : resolve_custom(s, v, place);
}

static mg_rc check_names(const struct tools_state *s, const char *place)
{
    for (int i = 0; s->toolset && i < s->n_names; i++)
        if (mg_word_index(BUILTINS, s->names[i]) >= 0)
            return mg_err_set(s->err, MG_EINVAL,
                              "%s: a custom tool may not be named %.*s beside agent_toolset_20260401", place,
                              MG_SV_ARG(s->names[i]));
    if (s->n_tools > MG_AGENT_TOOLS_MAX)
        return mg_err_set(s->err, MG_EINVAL, "%s: at most %d tools over all toolsets are allowed, got %d", place,
                          MG_AGENT_TOOLS_MAX, s->n_tools);
    return MG_OK;
}

mg_rc mg_tools_resolve(struct mg_arena *a, const struct mg_json *tools, const char *place, struct mg_sv *ret,
                       struct mg_err *err)
{
    *ret = MG_SV("[]");
    if (!mg_given(tools))
        return MG_OK;
    if (tools->n > MG_AGENT_TOOLS_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: at most %d entries are allowed, got %u", place, MG_AGENT_TOOLS_MAX,
                          tools->n);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(RESOLVED_MAX);
    struct mg_jw w = mg_jw_to(&b);
    struct tools_state *s = mg_arena_new_of(a, struct tools_state);
    *s = (struct tools_state){.a = a, .w = &w, .err = err};
    mg_jw_arr(&w);
    unsigned i = 0;
    for (const struct mg_json *v = tools->child; v; v = v->next) {
        char p[MG_PATH_MAX];
        mg_rc rc = resolve_tool(s, v, mg_place_at(p, place, i++));
        if (rc < 0)
            return rc;
    }
    mg_jw_arr_end(&w);
    mg_rc rc = check_names(s, place);
    if (rc < 0)
        return rc;
    *ret = mg_arena_sv(a, mg_buf_view(&b));
    return MG_OK;
}

/* Whether the host of a URL has something before an '@'. */
static bool holds_user(struct mg_sv url)
{
    struct mg_sv host = mg_sv_from(url, mg_sv_find(url, ':') + 3);
    size_t n = 0;
    while (n < host.len && host.ptr[n] != '/' && host.ptr[n] != '?' && host.ptr[n] != '#')
        n++;
    return memchr(host.ptr, '@', n) != NULL;
}

mg_rc mg_mcp_servers_resolve(struct mg_arena *a, const struct mg_json *servers, const char *place, struct mg_sv *ret,
                             struct mg_err *err)
{
    static const char *const URL_TYPE[] = {"url", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = URL_TYPE},
        {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 255},
        {.name = "url", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 2048},
        {.name = NULL},
    };
    *ret = MG_SV("[]");
    if (!mg_given(servers))
        return MG_OK;
    if (servers->n > MG_AGENT_MCP_SERVERS_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: at most %d servers are allowed, got %u", place, MG_AGENT_MCP_SERVERS_MAX,
                          servers->n);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(RESOLVED_MAX);
    struct mg_jw w = mg_jw_to(&b);
    struct mg_sv names[MG_AGENT_MCP_SERVERS_MAX];
    int n = 0;
    mg_jw_arr(&w);
    for (const struct mg_json *v = servers->child; v; v = v->next, n++) {
        char p[MG_PATH_MAX];
        const struct mg_json *m[3];
        mg_rc rc = mg_check_object(a, v, mg_place_at(p, place, (unsigned)n), RULES, m, err);
        if (rc < 0)
            return rc;
        names[n] = mg_json_str(a, m[1]);
        struct mg_sv url = mg_json_str(a, m[2]);
        if (seen(names, n, names[n]))
            return mg_err_set(err, MG_EINVAL, "%s.name: two servers have the same name", p);
        if (!mg_sv_starts(url, "https://") && !mg_sv_starts(url, "http://"))
            return mg_err_set(err, MG_EINVAL, "%s.url: must begin with https:// or http://", p);
        if (holds_user(url))
            return mg_err_set(err, MG_EINVAL,
                              "%s.url: must not hold a user or a password; credentials of MCP servers come from "
                              "vaults",
                              p);
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "url");
        mg_jw_kstr(&w, "name", names[n]);
        mg_jw_kstr(&w, "url", url);
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    *ret = mg_arena_sv(a, mg_buf_view(&b));
    return MG_OK;
}

/* True when one of the objects of arr has name as its member key. */
static bool names_one(struct mg_arena *a, const struct mg_json *arr, const char *key, struct mg_sv name)
{
    for (const struct mg_json *v = arr->child; v; v = v->next)
        if (mg_json_get(v, key) && mg_sv_eq(mg_json_get_str(a, v, key), name))
            return true;
    return false;
}

mg_rc mg_tools_pair_check(struct mg_arena *a, struct mg_sv tools, struct mg_sv servers, const char *prefix,
                          struct mg_err *err)
{
    struct mg_json *t, *s;
    mg_rc rc = mg_json_parse(a, tools, &mg_json_raw_limits, &t, err);
    if (rc >= 0)
        rc = mg_json_parse(a, servers, &mg_json_raw_limits, &s, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored tools");
    unsigned i = 0;
    for (const struct mg_json *v = s->child; v; v = v->next, i++) {
        struct mg_sv name = mg_json_get_str(a, v, "name");
        if (!names_one(a, t, "mcp_server_name", name))
            return mg_err_set(err, MG_EINVAL,
                              "%smcp_servers[%u]: no mcp_toolset in tools names the server \"%.*s\"; add one", prefix,
                              i, MG_SV_ARG(name));
    }
    i = 0;
    for (const struct mg_json *v = t->child; v; v = v->next, i++) {
        struct mg_sv name = mg_json_get_str(a, v, "mcp_server_name");
        if (mg_json_get(v, "mcp_server_name") && !names_one(a, s, "name", name))
            return mg_err_set(err, MG_EINVAL, "%stools[%u].mcp_server_name: mcp_servers has no server \"%.*s\"; add it",
                              prefix, i, MG_SV_ARG(name));
    }
    return MG_OK;
}

/* ---- model ---- */

static const char *const EFFORTS[] = {"low", "medium", "high", "xhigh", "max", NULL};

/* A level, bare or as an object; *ret stays empty when there is none. */
static mg_rc parse_effort(struct mg_arena *a, const struct mg_json *v, const char *place, const char **ret,
                          struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    static const struct mg_field_rule LEVEL = {.type = MG_FT_STRING, .one_of = EFFORTS};
    const struct mg_json *m[1];
    int t = 0;
    if (!mg_given(v))
        return MG_OK;
    mg_rc rc;
    if (v->type == MG_JSON_STRING) {
        rc = mg_check_value(a, v, place, &LEVEL, err);
        t = rc < 0 ? 0 : mg_word_index(EFFORTS, mg_json_str(a, v));
    } else {
        rc = mg_check_tag(a, v, place, EFFORTS, &t, err);
        if (rc >= 0)
            rc = mg_check_object(a, v, place, RULES, m, err);
    }
    if (rc >= 0)
        *ret = EFFORTS[t];
    return rc;
}

struct model {
    struct mg_sv id, geo;
    const char *effort, *speed;
};

static struct mg_sv write_model(struct mg_arena *a, const struct model *x)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(RESOLVED_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "id", x->id);
    if (x->effort) {
        mg_jw_key(&w, "effort");
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", x->effort);
        mg_jw_obj_end(&w);
    }
    mg_jw_kstrz(&w, "speed", x->speed);
    if (x->geo.len)
        mg_jw_kstr(&w, "inference_geo", x->geo);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* The effort of a stored model, or NULL. */
static mg_rc stored_effort(struct mg_arena *a, struct mg_sv base, const char **ret, struct mg_err *err)
{
    struct mg_json *v;
    if (base.len == 0)
        return MG_OK;
    mg_rc rc = mg_json_parse(a, base, &mg_json_raw_limits, &v, err);
    if (rc >= 0)
        rc = parse_effort(a, mg_json_get(v, "effort"), "effort", ret, err);
    return rc < 0 ? mg_err_wrap(err, MG_EINTERNAL, "stored model") : MG_OK;
}

mg_rc mg_model_resolve(struct mg_arena *a, const struct mg_json *model, const char *place, struct mg_sv base,
                       struct mg_sv *ret, struct mg_err *err)
{
    static const char *const SPEEDS[] = {"standard", "fast", NULL};
    static const struct mg_field_rule ID = {.type = MG_FT_STRING, .min = 1, .max = 256};
    static const struct mg_field_rule RULES[] = {
        {.name = "id", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 256},
        {.name = "effort", .type = MG_FT_STRING_OR_OBJECT, .flags = MG_FF_NULL},
        {.name = "speed", .type = MG_FT_STRING, .flags = MG_FF_NULL, .one_of = SPEEDS},
        {.name = "inference_geo", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = 64},
        {.name = NULL},
    };
    const struct mg_json *m[4] = {NULL};
    char p[MG_PATH_MAX];
    struct model x = {.speed = SPEEDS[0]};
    mg_rc rc;
    if (model->type == MG_JSON_STRING) {
        rc = mg_check_value(a, model, place, &ID, err);
        m[0] = model;
    } else {
        rc = mg_check_object(a, model, place, RULES, m, err);
    }
    if (rc >= 0 && !m[1])
        rc = stored_effort(a, base, &x.effort, err);
    if (rc >= 0)
        rc = parse_effort(a, m[1], mg_place(p, place, "effort"), &x.effort, err);
    if (rc < 0)
        return rc;
    x.id = mg_json_str(a, m[0]);
    if (mg_given(m[2]))
        x.speed = SPEEDS[mg_word_index(SPEEDS, mg_json_str(a, m[2]))];
    if (mg_given(m[3]))
        x.geo = mg_json_str(a, m[3]);
    *ret = write_model(a, &x);
    return MG_OK;
}
