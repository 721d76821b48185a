#include "domain/session.h"

#include "domain/metadata.h"
#include "domain/vault.h"

enum { C_AGENT, C_ENVIRONMENT, C_TITLE, C_METADATA, C_RESOURCES, C_VAULTS, C_EVENTS, C_BUDGET, N_CREATE };
static const struct mg_field_rule CREATE_RULES[] = {
    [C_AGENT] = {.name = "agent", .type = MG_FT_STRING_OR_OBJECT, .flags = MG_FF_REQUIRED},
    [C_ENVIRONMENT] = {.name = "environment_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
    [C_TITLE] = {.name = "title", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_SESSION_TITLE_MAX},
    [C_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [C_RESOURCES] = {.name = "resources", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_RESOURCES_MAX},
    [C_VAULTS] = {.name = "vault_ids", .type = MG_FT_ARRAY, .flags = MG_FF_NULL, .max = MG_SESSION_VAULTS_MAX},
    [C_EVENTS] = {.name = "initial_events", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
    [C_BUDGET] = {.name = "budget", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};

/* MG_BUDGET_NONE for an absent one and for null. */
static mg_rc budget_of(struct mg_arena *a, const struct mg_json *v, int64_t *ret, struct mg_err *err)
{
    *ret = MG_BUDGET_NONE;
    return mg_given(v) ? mg_budget_parse(a, v, "budget", ret, err) : MG_OK;
}

static struct mg_sv title_of(struct mg_arena *a, const struct mg_json *v)
{
    struct mg_sv s = mg_given(v) ? mg_json_str(a, v) : MG_SV("");
    return s.len ? s : mg_sv_n(NULL, 0);
}

static mg_rc parse_create(struct mg_arena *a, const struct mg_json *body, int where, struct mg_session_create *ret,
                          struct mg_err *err)
{
    const struct mg_json *m[N_CREATE];
    const struct mg_meta_rules meta = {.create = true};
    struct mg_session_create x = {.metadata = MG_SV("{}")};
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    if (rc >= 0)
        rc = mg_agent_ref_parse(a, m[C_AGENT], "agent", &x.agent, err);
    if (rc >= 0)
        rc = mg_metadata_patch(a, x.metadata, m[C_METADATA], &meta, &x.metadata, err);
    if (rc >= 0)
        rc = mg_vault_ids_parse(a, m[C_VAULTS], &x.vault_ids, &x.vaults, &x.n_vaults, err);
    if (rc >= 0 && mg_given(m[C_RESOURCES]))
        rc = mg_resources_parse(a, m[C_RESOURCES], &x.resources, &x.n_resources, err);
    if (rc >= 0)
        rc = budget_of(a, m[C_BUDGET], &x.budget_nano, err);
    if (rc >= 0 && mg_given(m[C_EVENTS]))
        rc = mg_drafts_parse(a, m[C_EVENTS], "initial_events", where, &x.events, &x.n_events, err);
    if (rc < 0)
        return rc;
    x.environment_id = mg_json_str(a, m[C_ENVIRONMENT]);
    x.title = title_of(a, m[C_TITLE]);
    *ret = x;
    return MG_OK;
}

mg_rc mg_session_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_session_create *ret,
                              struct mg_err *err)
{
    return parse_create(a, body, MG_DRAFTS_INITIAL, ret, err);
}

mg_rc mg_session_parse_deployed(struct mg_arena *a, const struct mg_json *body, struct mg_session_create *ret,
                                struct mg_err *err)
{
    return parse_create(a, body, MG_DRAFTS_DEPLOYMENT, ret, err);
}

enum { U_TITLE, U_METADATA, U_AGENT, U_BUDGET, U_VAULTS, N_UPDATE };
static const struct mg_field_rule UPDATE_RULES[] = {
    [U_TITLE] = {.name = "title", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = MG_SESSION_TITLE_MAX},
    [U_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [U_AGENT] = {.name = "agent", .type = MG_FT_OBJECT},
    [U_BUDGET] = {.name = "budget", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    [U_VAULTS] = {.name = "vault_ids", .type = MG_FT_ANY},
    {.name = NULL},
};

mg_rc mg_session_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_session_update *ret,
                              struct mg_err *err)
{
    const struct mg_json *m[N_UPDATE];
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    if (rc < 0)
        return rc;
    if (m[U_VAULTS])
        return mg_err_set(err, MG_EINVAL, "vault_ids: cannot be changed after the session was created; leave it out");
    int64_t budget;
    rc = budget_of(a, m[U_BUDGET], &budget, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_session_update){
        .has_budget = m[U_BUDGET] != NULL,
        .budget_nano = budget,
        .has_title = m[U_TITLE] != NULL,
        .title = title_of(a, m[U_TITLE]),
        .metadata = m[U_METADATA],
        .agent = m[U_AGENT],
    };
    return MG_OK;
}
