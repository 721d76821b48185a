#include "domain/multiagent.h"

#include "base/buf.h"
#include "json/write.h"

enum { TEXT_MAX = 64 * 1024 * 1024 /* bytes: twenty whole agents */ };

static const char NO_WORKFLOWS[] = "workflow runs are not part of this build, and enabled is the default; send "
                                   "{\"type\":\"disabled\"}";

/* ---- rosters ---- */

/* v: {"type":..,"model":..}. Without required the stored model may stay. */
static mg_rc parse_advisor(struct mg_arena *a, const struct mg_json *v, const char *place, bool required,
                           struct mg_multiagent *ret, struct mg_err *err)
{
    const struct mg_field_rule rules[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "model",
         .type = MG_FT_STRING,
         .flags = required ? MG_FF_REQUIRED : 0,
         .min = 1,
         .max = MG_ADVISOR_MODEL_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[2] = {NULL};
    mg_rc rc = mg_check_object(a, v, place, rules, m, err);
    if (rc >= 0 && m[1])
        ret->advisor = m[1]->raw;
    return rc;
}

static bool is_advisor(struct mg_arena *a, const struct mg_json *v)
{
    return v->type == MG_JSON_OBJECT && mg_sv_eqz(mg_json_get_str(a, v, "type"), "advisor");
}

static mg_rc parse_advisor_entry(struct mg_arena *a, const struct mg_json *v, const char *place,
                                 struct mg_multiagent *ret, struct mg_err *err)
{
    if (ret->advisor.len)
        return mg_err_set(err, MG_EINVAL, "%s: a second advisor; a roster has one at most", place);
    ret->advisor_at = ret->n;
    return parse_advisor(a, v, place, true, ret, err);
}

static mg_rc parse_ref(struct mg_arena *a, const struct mg_json *v, const char *place, bool advisor,
                       struct mg_roster_ref *ret, struct mg_err *err)
{
    static const char *const TYPES[] = {"agent", "self", "advisor", NULL}; /* the last: parse_refs has taken it */
    static const char *const PREDEFINED[] = {"agent", "self", NULL};
    static const struct mg_field_rule ID = {.type = MG_FT_ID};
    static const struct mg_field_rule AGENT[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
        {.name = "version", .type = MG_FT_INT, .flags = MG_FF_NULL, .min = 1, .max = INT32_MAX},
        {.name = NULL},
    };
    static const struct mg_field_rule SELF[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[3] = {NULL};
    int t = 0;
    *ret = (struct mg_roster_ref){.place = mg_arena_strdup(a, mg_sv_of(place))};
    if (v->type == MG_JSON_STRING) {
        ret->id = mg_json_str(a, v);
        return mg_check_value(a, v, place, &ID, err);
    }
    mg_rc rc = mg_check_tag(a, v, place, advisor ? TYPES : PREDEFINED, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, place, t == 1 ? SELF : AGENT, m, err);
    if (rc < 0)
        return rc;
    ret->self = t == 1;
    if (!ret->self)
        ret->id = mg_json_str(a, m[1]);
    if (!ret->self && mg_given(m[2]))
        (void)mg_json_i64(m[2], &ret->version);
    return MG_OK;
}

static mg_rc parse_refs(struct mg_arena *a, const struct mg_json *list, const char *path, int min, bool advisor,
                        struct mg_multiagent *ret, struct mg_err *err)
{
    struct mg_field_rule rule = {.type = MG_FT_ARRAY, .min = min, .max = MG_ROSTER_MAX};
    char place[MG_PATH_MAX];
    for (const struct mg_json *v = advisor && list->type == MG_JSON_ARRAY ? list->child : NULL; v; v = v->next)
        rule.max += rule.max == MG_ROSTER_MAX && is_advisor(a, v); /* it is none of the agents */
    mg_rc rc = mg_check_value(a, list, path, &rule, err);
    unsigned i = 0;
    ret->n = 0;
    for (const struct mg_json *v = rc < 0 ? NULL : list->child; rc >= 0 && v; v = v->next, i++) {
        mg_place_at(place, path, i);
        if (advisor && is_advisor(a, v))
            rc = parse_advisor_entry(a, v, place, ret, err);
        else
            rc = parse_ref(a, v, place, advisor, &ret->refs[ret->n++], err);
    }
    return rc;
}

/* ---- the two forms ---- */

static mg_rc parse_coordinator(struct mg_arena *a, const struct mg_json *v, struct mg_multiagent *ret,
                               struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "agents", .type = MG_FT_ARRAY, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[2] = {NULL};
    *ret = (struct mg_multiagent){.coordinator = true};
    mg_rc rc = mg_check_object(a, v, "multiagent", RULES, m, err);
    return rc < 0 ? rc : parse_refs(a, m[1], "multiagent.agents", 1, true, ret, err);
}

/* A member that is enabled or disabled and no more; left out or null it is enabled. refusal: why it cannot be enabled, or NULL. */
static mg_rc parse_switch(struct mg_arena *a, const struct mg_json *v, const char *place, const char *refusal,
                          bool *ret, struct mg_err *err)
{
    static const char *const TYPES[] = {"disabled", "enabled", NULL};
    static const struct mg_field_rule RULES[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[1];
    int t = 1;
    mg_rc rc = mg_given(v) ? mg_check_tag(a, v, place, TYPES, &t, err) : MG_OK;
    *ret = t == 1;
    if (rc >= 0 && *ret && refusal)
        return mg_err_set(err, MG_EINVAL, "%s: %s", place, refusal);
    return rc >= 0 && mg_given(v) ? mg_check_object(a, v, place, RULES, m, err) : rc;
}

/* A member that is left out keeps what is stored, and so does the model of one that stays enabled. */
static mg_rc parse_advisor_member(struct mg_arena *a, const struct mg_json *v, bool merge, struct mg_multiagent *ret,
                                  struct mg_err *err)
{
    static const char PLACE[] = "multiagent.advisor";
    static const char *const TYPES[] = {"disabled", "enabled", NULL};
    static const struct mg_field_rule OFF[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    const struct mg_json *m[1];
    int t = 0;
    if (!v && merge)
        return MG_OK;
    mg_rc rc = mg_given(v) ? mg_check_tag(a, v, PLACE, TYPES, &t, err) : MG_OK;
    if (rc >= 0 && t == 1)
        return parse_advisor(a, v, PLACE, ret->advisor.len == 0, ret, err);
    ret->advisor = MG_SV("");
    return rc >= 0 && mg_given(v) ? mg_check_object(a, v, PLACE, OFF, m, err) : rc;
}

static mg_rc parse_subagents(struct mg_arena *a, const struct mg_json *v, bool merge, struct mg_multiagent *ret,
                             struct mg_err *err)
{
    static const char *const TYPES[] = {"disabled", "enabled", NULL};
    static const struct mg_field_rule OFF[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    static const struct mg_field_rule ON[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "inline_agents", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "predefined_agents", .type = MG_FT_ARRAY, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    static const char INLINE[] = "multiagent.subagents.inline_agents";
    const struct mg_json *m[3] = {NULL};
    int t = 1;
    mg_rc rc = mg_given(v) ? mg_check_tag(a, v, "multiagent.subagents", TYPES, &t, err) : MG_OK;
    bool keep = merge && mg_given(v) && ret->subagents == (t == 1);
    if (rc >= 0 && mg_given(v))
        rc = mg_check_object(a, v, "multiagent.subagents", t ? ON : OFF, m, err);
    ret->subagents = t == 1;
    if (!keep || m[2])
        ret->n = 0;
    if (!ret->subagents)
        ret->inline_agents = false;
    if (rc < 0 || t == 0)
        return rc;
    if (!keep || m[1])
        rc = parse_switch(a, m[1], INLINE, NULL, &ret->inline_agents, err);
    if (rc >= 0 && mg_given(m[2]))
        rc = parse_refs(a, m[2], "multiagent.subagents.predefined_agents", 0, false, ret, err);
    if (rc >= 0 && ret->n == 0 && !ret->inline_agents)
        rc = mg_err_set(err, MG_EINVAL,
                        "multiagent.subagents.predefined_agents: must name at least one agent while inline_agents are "
                        "disabled");
    return rc;
}

static mg_rc parse_20261001(struct mg_arena *a, const struct mg_json *v, bool merge, struct mg_multiagent *ret,
                            struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "advisor", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "subagents", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = "workflows", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[4] = {NULL};
    bool on;
    if (!merge)
        *ret = (struct mg_multiagent){0};
    mg_rc rc = mg_check_object(a, v, "multiagent", RULES, m, err);
    if (rc >= 0)
        rc = parse_advisor_member(a, m[1], merge, ret, err);
    /* What is stored is disabled: a member that the update leaves out keeps that. */
    if (rc >= 0 && (!merge || m[3]))
        rc = parse_switch(a, m[3], "multiagent.workflows", NO_WORKFLOWS, &on, err);
    return rc >= 0 && (!merge || m[2]) ? parse_subagents(a, m[2], merge, ret, err) : rc;
}

mg_rc mg_multiagent_parse(struct mg_arena *a, const struct mg_json *v, struct mg_sv stored, struct mg_multiagent *ret,
                          struct mg_err *err)
{
    static const char *const TYPES[] = {"coordinator", "multiagent_20261001", NULL};
    struct mg_multiagent old;
    int t = 0;
    mg_rc rc = mg_check_tag(a, v, "multiagent", TYPES, &t, err);
    if (rc >= 0)
        rc = mg_multiagent_load(a, stored, &old, err);
    if (rc < 0)
        return rc;
    if (t == 0)
        return parse_coordinator(a, v, ret, err);
    bool merge = !mg_sv_eqz(stored, "null") && !old.coordinator;
    *ret = old;
    return parse_20261001(a, v, merge, ret, err);
}

/* ---- stored text ---- */

static bool is_enabled(struct mg_arena *a, const struct mg_json *v)
{
    return mg_sv_eqz(mg_json_get_str(a, v, "type"), "enabled");
}

mg_rc mg_multiagent_load(struct mg_arena *a, struct mg_sv stored, struct mg_multiagent *ret, struct mg_err *err)
{
    struct mg_json *v;
    *ret = (struct mg_multiagent){0};
    mg_rc rc = mg_json_parse(a, stored, &mg_json_raw_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, MG_EINTERNAL, "stored multiagent");
    if (v->type != MG_JSON_OBJECT)
        return MG_OK;
    ret->coordinator = mg_sv_eqz(mg_json_get_str(a, v, "type"), "coordinator");
    const struct mg_json *sub = mg_json_get(v, "subagents");
    ret->subagents = !ret->coordinator && is_enabled(a, sub);
    ret->inline_agents = ret->subagents && is_enabled(a, mg_json_get(sub, "inline_agents"));
    const struct mg_json *list =
        mg_json_get(ret->coordinator ? v : sub, ret->coordinator ? "agents" : "predefined_agents");
    for (const struct mg_json *e = list ? list->child : NULL; e; e = e->next) {
        if (is_advisor(a, e)) {
            ret->advisor = mg_json_get_raw(e, "model");
            ret->advisor_at = ret->n;
            continue;
        }
        if (ret->n == MG_ROSTER_MAX)
            break;
        ret->refs[ret->n] = (struct mg_roster_ref){.id = mg_json_get_str(a, e, "id"), .place = "multiagent"};
        (void)mg_json_i64(mg_json_get(e, "version"), &ret->refs[ret->n++].version);
    }
    const struct mg_json *advisor = mg_json_get(v, "advisor");
    if (is_enabled(a, advisor))
        ret->advisor = mg_json_get_raw(advisor, "model");
    return MG_OK;
}

static void put_advisor(struct mg_jw *w, const char *type, struct mg_sv model)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", type);
    mg_jw_kraw(w, "model", model);
    mg_jw_obj_end(w);
}

static void put_entries(struct mg_jw *w, const struct mg_multiagent *m, const struct mg_sv *entries)
{
    bool advisor = m->coordinator && m->advisor.len;
    mg_jw_arr(w);
    for (int i = 0; i <= m->n; i++) {
        if (advisor && i == m->advisor_at)
            put_advisor(w, "advisor", m->advisor);
        if (i < m->n)
            mg_jw_raw(w, entries[i]);
    }
    mg_jw_arr_end(w);
}

static void put_type(struct mg_jw *w, const char *key, const char *type)
{
    mg_jw_key(w, key);
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", type);
    mg_jw_obj_end(w);
}

struct mg_sv mg_multiagent_format(struct mg_arena *a, const struct mg_multiagent *m, const struct mg_sv *entries)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", m->coordinator ? "coordinator" : "multiagent_20261001");
    if (m->coordinator) {
        mg_jw_key(&w, "agents");
        put_entries(&w, m, entries);
    } else {
        if (m->advisor.len) {
            mg_jw_key(&w, "advisor");
            put_advisor(&w, "enabled", m->advisor);
        } else {
            put_type(&w, "advisor", "disabled");
        }
        mg_jw_key(&w, "subagents");
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", m->subagents ? "enabled" : "disabled");
        if (m->subagents) {
            put_type(&w, "inline_agents", m->inline_agents ? "enabled" : "disabled");
            mg_jw_key(&w, "predefined_agents");
            put_entries(&w, m, entries);
        }
        mg_jw_obj_end(&w);
        put_type(&w, "workflows", "disabled");
    }
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

struct mg_sv mg_roster_entry(struct mg_arena *a, struct mg_sv id, int64_t version)
{
    return mg_arena_printf(a, "{\"type\":\"agent\",\"id\":\"%.*s\",\"version\":%lld}", MG_SV_ARG(id),
                           (long long)version);
}
