#include "domain/agent.h"

#include "base/buf.h"
#include "base/mem.h"
#include "domain/agent-tools.h"
#include "domain/metadata.h"
#include "domain/skill.h"
#include "json/write.h"

enum { AGENT_TEXT_MAX = 64 * 1024 * 1024 /* bytes: two bodies' worth */ };

#define NULL_TEXT MG_SV("null")
#define SERVICE_ACCOUNT MG_SV("{\"type\":\"service_account\"}")

/* Positions in RULES: the member table of a create, and of an update behind its version. */
enum {
    F_NAME,
    F_MODEL,
    F_DESCRIPTION,
    F_SYSTEM,
    F_TOOLS,
    F_SERVERS,
    F_SKILLS,
    F_METADATA,
    F_MULTIAGENT,
    F_IDENTITY,
    F_VERSION,
    N_FIELDS
};

static const struct mg_field_rule CREATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_AGENT_NAME_MAX},
    [F_MODEL] = {.name = "model", .type = MG_FT_STRING_OR_OBJECT, .flags = MG_FF_REQUIRED},
    [F_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_NULL,
                       .max = MG_AGENT_DESCRIPTION_MAX},
    [F_SYSTEM] = {.name = "system", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT, .max = MG_AGENT_SYSTEM_MAX},
    [F_TOOLS] = {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [F_SERVERS] = {.name = "mcp_servers", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [F_SKILLS] = {.name = "skills", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_SKILLS_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_MULTIAGENT] = {.name = "multiagent", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_IDENTITY] = {.name = "execution_identity", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};
static const struct mg_field_rule UPDATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .min = 1, .max = MG_AGENT_NAME_MAX},
    [F_MODEL] = {.name = "model", .type = MG_FT_STRING_OR_OBJECT},
    [F_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_NULL,
                       .max = MG_AGENT_DESCRIPTION_MAX},
    [F_SYSTEM] = {.name = "system", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT, .max = MG_AGENT_SYSTEM_MAX},
    [F_TOOLS] = {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [F_SERVERS] = {.name = "mcp_servers", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [F_SKILLS] = {.name = "skills", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_SKILLS_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_MULTIAGENT] = {.name = "multiagent", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_IDENTITY] = {.name = "execution_identity", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [F_VERSION] = {.name = "version", .type = MG_FT_INT, .min = 1, .max = INT32_MAX},
    {.name = NULL},
};

/* A text member: "" and null clear. */
static struct mg_sv text_or_null(struct mg_arena *a, const struct mg_json *v)
{
    return mg_given(v) && mg_json_str(a, v).len ? v->raw : NULL_TEXT;
}

static mg_rc check_identity(struct mg_arena *a, const struct mg_json *v, struct mg_err *err)
{
    static const char *const TYPES[] = {"service_account", "aws_role", NULL};
    static const struct mg_field_rule RULES[] = {{.name = "type", .type = MG_FT_STRING},
                                                 {.name = "role_arn", .type = MG_FT_STRING, .flags = MG_FF_NULL},
                                                 {.name = NULL}};
    const struct mg_json *m[2];
    int t = 0;
    if (!mg_given(v))
        return MG_OK;
    mg_rc rc = mg_check_tag(a, v, "execution_identity", TYPES, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, "execution_identity", RULES, m, err);
    if (rc >= 0 && (t != 0 || mg_given(m[1])))
        return mg_err_set(err, MG_EINVAL,
                          "execution_identity: only {\"type\":\"service_account\"} is possible on this server");
    return rc;
}

/* The references become versions where the database is: x->roster says that they have to. */
static mg_rc apply_multiagent(struct mg_arena *a, const struct mg_json *v, struct mg_agent *x, struct mg_err *err)
{
    if (!v)
        return MG_OK;
    struct mg_sv stored = x->multiagent;
    x->multiagent = NULL_TEXT;
    if (!mg_given(v))
        return MG_OK;
    x->roster = mg_arena_new_of(a, struct mg_multiagent);
    return mg_multiagent_parse(a, v, stored, x->roster, err);
}

/* A coordinator's own tools have these names. */
static mg_rc check_reserved(struct mg_arena *a, const struct mg_agent *x, struct mg_err *err)
{
    static const char *const RESERVED[] = {"list_agents", "send_to_agent", "advisor", NULL};
    struct mg_json *tools;
    if (!x->roster && mg_sv_eqz(x->multiagent, "null"))
        return MG_OK;
    mg_rc rc = mg_json_parse(a, x->tools, &mg_json_raw_limits, &tools, err);
    for (const struct mg_json *t = rc < 0 ? NULL : tools->child; t; t = t->next) {
        struct mg_sv name = mg_json_get_str(a, t, "name");
        if (mg_word_index(RESERVED, name) >= 0)
            return mg_err_set(
                err, MG_EINVAL,
                "tools: a custom tool may not be called '%.*s' while multiagent is set: a coordinator has "
                "a tool of this name",
                MG_SV_ARG(name));
    }
    return rc;
}

/* The members that a create, an update and an override have in common: what m gives replaces what *x holds. */
static mg_rc apply_config(struct mg_arena *a, const struct mg_json *const *m, const char *prefix, struct mg_agent *x,
                          struct mg_err *err)
{
    char p[MG_PATH_MAX];
    mg_rc rc = MG_OK;
    if (m[F_SYSTEM])
        x->system = text_or_null(a, m[F_SYSTEM]);
    if (m[F_SKILLS])
        rc = mg_agent_skills_parse(a, m[F_SKILLS], mg_place(p, prefix, "skills"), &x->skills, err);
    if (rc >= 0 && m[F_MODEL])
        rc = mg_model_resolve(a, m[F_MODEL], mg_place(p, prefix, "model"), x->model, &x->model, err);
    if (rc >= 0 && m[F_TOOLS])
        rc = mg_tools_resolve(a, m[F_TOOLS], mg_place(p, prefix, "tools"), &x->tools, err);
    if (rc >= 0 && m[F_SERVERS])
        rc = mg_mcp_servers_resolve(a, m[F_SERVERS], mg_place(p, prefix, "mcp_servers"), &x->mcp_servers, err);
    if (rc >= 0 && (m[F_TOOLS] || m[F_SERVERS]))
        rc = mg_tools_pair_check(a, x->tools, x->mcp_servers, *prefix ? "agent." : "", err);
    return rc;
}

static mg_rc apply(struct mg_arena *a, const struct mg_json *const *m, bool create, struct mg_agent *x,
                   struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = create};
    if (m[F_NAME])
        x->name = m[F_NAME]->raw;
    if (m[F_DESCRIPTION])
        x->description = text_or_null(a, m[F_DESCRIPTION]);
    if (m[F_IDENTITY])
        x->execution_identity = SERVICE_ACCOUNT;
    mg_rc rc = apply_multiagent(a, m[F_MULTIAGENT], x, err);
    if (rc >= 0)
        rc = check_identity(a, m[F_IDENTITY], err);
    if (rc >= 0)
        rc = mg_metadata_patch(a, x->metadata, m[F_METADATA], &meta, &x->metadata, err);
    if (rc >= 0)
        rc = apply_config(a, m, "", x, err);
    return rc < 0 ? rc : check_reserved(a, x, err);
}

mg_rc mg_agent_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_agent *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS] = {NULL};
    struct mg_agent x = {
        .description = NULL_TEXT,
        .system = NULL_TEXT,
        .tools = MG_SV("[]"),
        .mcp_servers = MG_SV("[]"),
        .skills = MG_SV("[]"),
        .multiagent = NULL_TEXT,
        .execution_identity = SERVICE_ACCOUNT,
        .metadata = MG_SV("{}"),
    };
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    if (rc >= 0)
        rc = apply(a, m, true, &x, err);
    if (rc >= 0)
        *ret = x;
    return rc;
}

mg_rc mg_agent_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_agent *base,
                            struct mg_agent *ret, int64_t *ret_version, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS] = {NULL};
    struct mg_agent x = *base;
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    if (rc >= 0)
        rc = apply(a, m, false, &x, err);
    if (rc < 0)
        return rc;
    *ret_version = 0;
    if (m[F_VERSION])
        (void)mg_json_i64(m[F_VERSION], ret_version);
    *ret = x;
    return MG_OK;
}

/* ---- text ---- */

/* Offsets keep one list for writing, reading and comparing. */
static const struct {
    const char *name;
    size_t at;
    bool session; /* part of a SessionAgent too */
} MEMBERS[] = {
    {"name", offsetof(struct mg_agent, name), true},
    {"description", offsetof(struct mg_agent, description), true},
    {"system", offsetof(struct mg_agent, system), true},
    {"model", offsetof(struct mg_agent, model), true},
    {"tools", offsetof(struct mg_agent, tools), true},
    {"mcp_servers", offsetof(struct mg_agent, mcp_servers), true},
    {"skills", offsetof(struct mg_agent, skills), true},
    {"multiagent", offsetof(struct mg_agent, multiagent), true},
    {"execution_identity", offsetof(struct mg_agent, execution_identity), true},
    {"metadata", offsetof(struct mg_agent, metadata), false},
};
enum { N_MEMBERS = sizeof(MEMBERS) / sizeof(MEMBERS[0]) };

static struct mg_sv member(const struct mg_agent *x, int i)
{
    return *(const struct mg_sv *)((const char *)x + MEMBERS[i].at);
}

struct mg_sv mg_agent_format(struct mg_arena *a, const struct mg_agent *x)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(AGENT_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    for (int i = 0; i < N_MEMBERS; i++)
        mg_jw_kraw(&w, MEMBERS[i].name, member(x, i));
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* id empty: an inline agent. */
static struct mg_sv session_format(struct mg_arena *a, struct mg_sv id, int64_t version, const struct mg_agent *x,
                                   bool thread)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(AGENT_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    if (id.len)
        mg_jw_kstr(&w, "id", id);
    mg_jw_kstrz(&w, "type", id.len ? "agent" : "inline");
    if (id.len)
        mg_jw_kint(&w, "version", version);
    for (int i = 0; i < N_MEMBERS; i++)
        if (MEMBERS[i].session && !(thread && MEMBERS[i].at == offsetof(struct mg_agent, multiagent)))
            mg_jw_kraw(&w, MEMBERS[i].name, member(x, i));
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

struct mg_sv mg_agent_session_format(struct mg_arena *a, struct mg_sv id, int64_t version, const struct mg_agent *x)
{
    return session_format(a, id, version, x, false);
}

struct mg_sv mg_agent_thread_format(struct mg_arena *a, struct mg_sv id, int64_t version, const struct mg_agent *x)
{
    return session_format(a, id, version, x, true);
}

struct mg_sv mg_agent_inline_format(struct mg_arena *a, const struct mg_agent *x)
{
    return session_format(a, MG_SV(""), 0, x, true);
}

/* Reads both forms: a SessionAgent has no metadata. */
mg_rc mg_agent_load(struct mg_arena *a, struct mg_sv text, struct mg_agent *ret, struct mg_err *err)
{
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, text, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored agent");
    ret->roster = NULL;
    for (int i = 0; i < N_MEMBERS; i++) {
        const struct mg_json *m = mg_json_get(v, MEMBERS[i].name);
        *(struct mg_sv *)((char *)ret + MEMBERS[i].at) = m ? m->raw : MEMBERS[i].session ? NULL_TEXT : MG_SV("{}");
    }
    return MG_OK;
}

bool mg_agent_same(struct mg_arena *a, const struct mg_agent *x, const struct mg_agent *y)
{
    for (int i = 0; i < N_MEMBERS; i++) {
        struct mg_sv s = member(x, i), t = member(y, i);
        struct mg_json *u, *v;
        if (mg_sv_eq(s, t))
            continue;
        if (mg_json_parse(a, s, &mg_json_raw_limits, &u, NULL) < 0 ||
            mg_json_parse(a, t, &mg_json_raw_limits, &v, NULL) < 0 || !mg_json_equal(a, u, v))
            return false;
    }
    return true;
}

/* ---- agents of sessions ---- */

static const char *const REF_TYPES[] = {"agent", "agent_with_overrides", NULL};
static const struct mg_field_rule REF_RULES[] = {
    {.name = "type", .type = MG_FT_STRING},
    {.name = "id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    {.name = "version", .type = MG_FT_INT, .flags = MG_FF_NULL, .min = 1, .max = INT32_MAX},
    {.name = NULL},
};
enum { O_TYPE, O_ID, O_VERSION, O_MODEL, O_SYSTEM, O_TOOLS, O_SERVERS, O_SKILLS, N_OVERRIDES };
static const struct mg_field_rule OVERRIDE_RULES[] = {
    [O_TYPE] = {.name = "type", .type = MG_FT_STRING},
    [O_ID] = {.name = "id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    [O_VERSION] = {.name = "version", .type = MG_FT_INT, .flags = MG_FF_NULL, .min = 1, .max = INT32_MAX},
    [O_MODEL] = {.name = "model", .type = MG_FT_STRING_OR_OBJECT},
    [O_SYSTEM] = {.name = "system", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT, .max = MG_AGENT_SYSTEM_MAX},
    [O_TOOLS] = {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [O_SERVERS] = {.name = "mcp_servers", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [O_SKILLS] = {.name = "skills", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_SKILLS_MAX},
    {.name = NULL},
};

mg_rc mg_agent_ref_parse(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_agent_ref *ret,
                         struct mg_err *err)
{
    static const struct mg_field_rule ID = {.type = MG_FT_ID};
    const struct mg_json *m[N_OVERRIDES] = {NULL};
    int t = 0;
    *ret = (struct mg_agent_ref){.version = 0};
    if (v->type == MG_JSON_STRING) {
        ret->id = mg_json_str(a, v);
        return mg_check_value(a, v, place, &ID, err);
    }
    mg_rc rc = mg_check_tag(a, v, place, REF_TYPES, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, place, t == 0 ? REF_RULES : OVERRIDE_RULES, m, err);
    if (rc < 0)
        return rc;
    ret->id = mg_json_str(a, m[O_ID]);
    if (mg_given(m[O_VERSION]))
        (void)mg_json_i64(m[O_VERSION], &ret->version);
    ret->overrides = t == 0 ? NULL : v;
    return MG_OK;
}

mg_rc mg_agent_override(struct mg_arena *a, const struct mg_json *overrides, const struct mg_agent *base,
                        struct mg_agent *ret, struct mg_err *err)
{
    const struct mg_json *o[N_OVERRIDES] = {NULL}, *m[N_FIELDS] = {NULL};
    struct mg_agent x = *base;
    mg_rc rc = mg_check_object(a, overrides, "agent", OVERRIDE_RULES, o, err);
    if (rc < 0)
        return rc;
    m[F_MODEL] = o[O_MODEL];
    m[F_SYSTEM] = o[O_SYSTEM];
    m[F_TOOLS] = o[O_TOOLS];
    m[F_SERVERS] = o[O_SERVERS];
    m[F_SKILLS] = o[O_SKILLS];
    rc = apply_config(a, m, "agent", &x, err);
    if (rc >= 0)
        *ret = x;
    return rc;
}

mg_rc mg_agent_session_update(struct mg_arena *a, const struct mg_json *v, const struct mg_agent *base,
                              struct mg_agent *ret, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
        {.name = "mcp_servers", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *u[2] = {NULL}, *m[N_FIELDS] = {NULL};
    struct mg_agent x = *base;
    mg_rc rc = mg_check_object(a, v, "agent", RULES, u, err);
    if (rc < 0)
        return rc;
    m[F_TOOLS] = u[0];
    m[F_SERVERS] = u[1];
    rc = apply_config(a, m, "agent", &x, err);
    if (rc >= 0)
        *ret = x;
    return rc;
}
