#include "domain/deploy.h"

#include "domain/metadata.h"
#include "domain/repository.h"
#include "json/write.h"

enum {
    BODY_MAX = 64 * 1024 * 1024, /* bytes: a request's limit, and its members once more */
    NAMES_MAX = 1024,            /* bytes of the names and ids in a body */
};

enum {
    F_NAME,
    F_DESCRIPTION,
    F_AGENT,
    F_ENVIRONMENT,
    F_EVENTS,
    F_RESOURCES,
    F_VAULTS,
    F_METADATA,
    F_BUDGET,
    F_SCHEDULE,
    N_FIELDS
};

#define RULES(must)                                                                                            \
    {                                                                                                          \
        [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = must, .min = 1, .max = MG_DEPLOY_NAME_MAX}, \
        [F_DESCRIPTION] = {.name = "description",                                                              \
                           .type = MG_FT_STRING,                                                               \
                           .flags = MG_FF_NULL | MG_FF_TEXT,                                                   \
                           .max = MG_DEPLOY_DESCRIPTION_MAX},                                                  \
        [F_AGENT] = {.name = "agent", .type = MG_FT_STRING_OR_OBJECT, .flags = must},                          \
        [F_ENVIRONMENT] = {.name = "environment_id", .type = MG_FT_ID, .flags = must},                         \
        [F_EVENTS] = {.name = "initial_events", .type = MG_FT_ARRAY, .flags = must, .min = 1, .max = 50},      \
        [F_RESOURCES] = {.name = "resources", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},                       \
        [F_VAULTS] = {.name = "vault_ids", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},                          \
        [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},                        \
        [F_BUDGET] = {.name = "budget", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},                            \
        [F_SCHEDULE] = {.name = "schedule", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},                        \
        {                                                                                                      \
            .name = NULL                                                                                       \
        }                                                                                                      \
    }

static const struct mg_field_rule CREATE_RULES[] = RULES(MG_FF_REQUIRED);
static const struct mg_field_rule UPDATE_RULES[] = RULES(0);

struct mg_sv mg_deploy_session(struct mg_arena *a, const struct mg_deploy *x)
{
    mg_auto(secret) struct mg_buf b = MG_BUF_INIT(BODY_MAX);
    struct mg_jw w = mg_jw_to(&b);
    (void)mg_buf_reserve(&b, x->metadata.len + x->resources.len + x->vault_ids.len + x->initial_events.len +
                                 x->budget.len + NAMES_MAX); /* in one piece: growing would leave copies of tokens */
    mg_jw_obj(&w);
    mg_jw_key(&w, "agent");
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "agent");
    mg_jw_kstr(&w, "id", x->agent_id);
    if (x->agent_version)
        mg_jw_kint(&w, "version", x->agent_version);
    mg_jw_obj_end(&w);
    mg_jw_kstr(&w, "environment_id", x->environment_id);
    mg_jw_kraw(&w, "metadata", x->metadata);
    mg_jw_kraw(&w, "resources", x->resources);
    mg_jw_kraw(&w, "vault_ids", x->vault_ids);
    mg_jw_kraw(&w, "initial_events", x->initial_events);
    if (x->budget.ptr)
        mg_jw_kraw(&w, "budget", x->budget);
    mg_jw_obj_end(&w);
    return mg_buf_ok(&b) ? mg_arena_sv(a, mg_buf_view(&b)) : MG_SV("{}");
}

static mg_rc take_agent(struct mg_arena *a, const struct mg_json *v, struct mg_deploy *x, struct mg_err *err)
{
    struct mg_agent_ref ref;
    mg_rc rc = mg_agent_ref_parse(a, v, "agent", &ref, err);
    if (rc < 0)
        return rc;
    if (ref.overrides)
        return mg_err_set(err, MG_EINVAL,
                          "agent.type: a deployment takes an agent's id or {\"type\":\"agent\"}; make an "
                          "agent of its own for other settings");
    x->agent_id = ref.id;
    x->agent_version = ref.version;
    return MG_OK;
}

static mg_rc take_schedule(struct mg_arena *a, const struct mg_json *v, struct mg_deploy *x, struct mg_err *err)
{
    static const char *const TYPES[] = {"cron", NULL};
    static const struct mg_field_rule SCHEDULE[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "expression", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_CRON_TEXT_MAX},
        {.name = "timezone", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_ZONE_NAME_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    struct mg_cron c;
    int t = 0;
    x->expression = x->timezone = mg_sv_n(NULL, 0);
    if (!mg_given(v))
        return MG_OK;
    mg_rc rc = mg_check_tag(a, v, "schedule", TYPES, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, "schedule", SCHEDULE, m, err);
    if (rc < 0)
        return rc;
    x->expression = mg_json_str(a, m[1]);
    x->timezone = mg_json_str(a, m[2]);
    return mg_cron_parse(x->expression, "schedule.expression", &c, err);
}

static struct mg_sv raw_or(const struct mg_json *v, const char *empty)
{
    return mg_given(v) ? v->raw : mg_sv_of(empty);
}

/* What a session's body would be refused for is refused now, under the same names. */
static mg_rc check_session(struct mg_arena *a, const struct mg_deploy *x, struct mg_err *err)
{
    struct mg_json *body;
    struct mg_session_create c;
    mg_rc rc = mg_json_parse(a, mg_deploy_session(a, x), &mg_json_api_limits, &body, err);
    if (rc >= 0)
        rc = mg_session_parse_deployed(a, body, &c, err);
    return rc;
}

static mg_rc apply(struct mg_arena *a, const struct mg_json *const *m, bool create, struct mg_deploy *x,
                   struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = create};
    if (mg_given(m[F_NAME]))
        x->name = mg_json_str(a, m[F_NAME]);
    if (m[F_DESCRIPTION])
        x->description = mg_given(m[F_DESCRIPTION]) ? mg_json_str(a, m[F_DESCRIPTION]) : mg_sv_n(NULL, 0);
    if (x->description.ptr && memchr(x->description.ptr, '\0', x->description.len))
        return mg_err_set(err, MG_EINVAL, "description: must not hold NUL (\\u0000)");
    if (mg_given(m[F_ENVIRONMENT]))
        x->environment_id = mg_json_str(a, m[F_ENVIRONMENT]);
    if (mg_given(m[F_EVENTS]))
        x->initial_events = m[F_EVENTS]->raw;
    if (m[F_RESOURCES])
        x->resources = raw_or(m[F_RESOURCES], "[]");
    x->new_resources = m[F_RESOURCES] != NULL;
    x->tokens = mg_sv_n(NULL, 0);
    if (m[F_VAULTS])
        x->vault_ids = raw_or(m[F_VAULTS], "[]");
    if (m[F_BUDGET])
        x->budget = mg_given(m[F_BUDGET]) ? m[F_BUDGET]->raw : mg_sv_n(NULL, 0);
    mg_rc rc = mg_given(m[F_AGENT]) ? take_agent(a, m[F_AGENT], x, err) : MG_OK;
    if (rc >= 0)
        rc = mg_metadata_patch(a, x->metadata, m[F_METADATA], &meta, &x->metadata, err);
    if (rc >= 0 && m[F_SCHEDULE])
        rc = take_schedule(a, m[F_SCHEDULE], x, err);
    if (rc >= 0)
        rc = check_session(a, x, err);
    if (rc >= 0 && mg_given(m[F_RESOURCES]))
        mg_repositories_split(a, m[F_RESOURCES], &x->resources, &x->tokens);
    return rc;
}

mg_rc mg_deploy_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_deploy *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = (struct mg_deploy){.resources = MG_SV("[]"), .vault_ids = MG_SV("[]"), .metadata = MG_SV("{}")};
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, true, ret, err);
}

mg_rc mg_deploy_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_deploy *base,
                             struct mg_deploy *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = *base;
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, false, ret, err);
}

/* By the code of the refusal, never by its words: semantics DE7. */
const char *mg_deploy_error_type(const struct mg_err *err, bool *ret_lasting)
{
    static const struct {
        const char *code, *type;
    } LASTING[] = {
        {"agent_archived", "agent_archived_error"},
        {"environment_archived", "environment_archived_error"},
        {"environment_not_found", "environment_not_found_error"},
        {"vault_not_found", "vault_not_found_error"},
        {"vault_archived", "vault_archived_error"},
        {"file_not_found", "file_not_found_error"},
        {"memory_store_archived", "memory_store_archived_error"},
        {"skill_not_found", "skill_not_found_error"},
        {"self_hosted_resources_unsupported", "self_hosted_resources_unsupported_error"},
        {"mcp_egress_blocked_error", "mcp_egress_blocked_error"},
    };
    *ret_lasting = true;
    for (size_t i = 0; i < sizeof(LASTING) / sizeof(LASTING[0]); i++)
        if (strcmp(err->code, LASTING[i].code) == 0)
            return LASTING[i].type;
    *ret_lasting = false;
    if (err->rc == MG_ERATE)
        return "session_rate_limited_error";
    if (err->rc == MG_EINVAL || err->rc == MG_ENOTFOUND || err->rc == MG_ECONFLICT)
        return "session_creation_rejected_error";
    return "unknown_error";
}
