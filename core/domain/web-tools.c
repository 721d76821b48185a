#include "domain/web-tools.h"

static const char *const NAMES[] = {"web_fetch", "web_search", NULL};
const char *const mg_web_members[] = {"allowed_domains", "blocked_domains", "max_content_tokens",
                                      "url_sources",     "user_location",   NULL};

/* Which tool has the member. */
static const bool HAS[MG_WEB_TOOLS][MG_WEB_MEMBERS] = {
    [MG_WEB_FETCH] = {true, true, true, true, false},
    [MG_WEB_SEARCH] = {true, true, false, false, true},
};

const char *mg_web_tool_name(enum mg_web_tool t)
{
    return NAMES[t];
}

int mg_web_tool_of(struct mg_sv name)
{
    return mg_word_index(NAMES, name);
}

static mg_rc check_domains(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule LIST = {.type = MG_FT_ARRAY, .min = 1, .max = MG_WEB_DOMAINS_MAX};
    static const struct mg_field_rule DOMAIN = {.type = MG_FT_STRING, .min = 1, .max = 253};
    mg_rc rc = mg_check_value(a, v, place, &LIST, err);
    unsigned i = 0;
    for (const struct mg_json *d = v->child; rc >= 0 && d; d = d->next) {
        char p[MG_PATH_MAX];
        rc = mg_check_value(a, d, mg_place_at(p, place, i++), &DOMAIN, err);
    }
    return rc;
}

static mg_rc check_location(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_err *err)
{
    static const char *const APPROXIMATE[] = {"approximate", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = APPROXIMATE},
        {.name = "city", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = 255},
        {.name = "country", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 2, .max = 2},
        {.name = "region", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = 255},
        {.name = "timezone", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = 255},
        {.name = NULL},
    };
    const struct mg_json *m[5];
    return mg_check_object(a, v, place, RULES, m, err);
}

static mg_rc check_member(struct mg_arena *a, int i, const struct mg_json *v, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule TOKENS = {.type = MG_FT_INT, .min = 1, .max = 1000000};
    switch (i) {
    case MG_WEB_MAX_CONTENT_TOKENS:
        return mg_check_value(a, v, place, &TOKENS, err);
    case MG_WEB_USER_LOCATION:
        return check_location(a, v, place, err);
    default:
        return check_domains(a, v, place, err);
    }
}

/* ---- url_sources ---- */

static const char *const SOURCES[] = {"user_input", "client_tool_results", "server_tool_results", NULL};
enum { USER_INPUT, N_SOURCES = 3, SOURCE_TOOLS_MAX = 128 /* the contract's */ };
static const char *const KINDS[] = {"all", "none", "only", "except", NULL};
enum source_kind { SOURCE_ALL, SOURCE_NONE, SOURCE_ONLY, SOURCE_EXCEPT };

static mg_rc check_reference(struct mg_arena *a, const struct mg_json *list, const struct mg_json *v, const char *place,
                             struct mg_err *err)
{
    static const char *const REFERENCE[] = {"tool_reference", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .one_of = REFERENCE},
        {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 256},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    for (const struct mg_json *o = list->child; rc >= 0 && o != v; o = o->next)
        if (mg_sv_eq(mg_json_get_str(a, o, "name"), mg_json_str(a, m[1])))
            rc = mg_err_set(err, MG_EINVAL, "%s.name: is named twice", place);
    return rc;
}

static mg_rc check_references(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule LIST = {.type = MG_FT_ARRAY, .min = 1, .max = SOURCE_TOOLS_MAX};
    mg_rc rc = mg_check_value(a, v, place, &LIST, err);
    unsigned i = 0;
    char p[MG_PATH_MAX];
    for (const struct mg_json *r = v->child; rc >= 0 && r; r = r->next)
        rc = check_reference(a, v, r, mg_place_at(p, place, i++), err);
    return rc;
}

/* One source: a word, or an object whose type is that word; written as the object. */
static mg_rc put_source(struct mg_arena *a, int source, const struct mg_json *v, const char *place, struct mg_jw *w,
                        enum source_kind *ret, struct mg_err *err)
{
    static const struct mg_field_rule PLAIN[] = {{.name = "type", .type = MG_FT_STRING}, {.name = NULL}};
    static const struct mg_field_rule NAMING[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "tools", .type = MG_FT_ARRAY, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    static const char *const OF_USERS[] = {"all", "none", NULL};
    const char *const *kinds = source == USER_INPUT ? OF_USERS : KINDS;
    const struct mg_json *m[2] = {NULL};
    char p[MG_PATH_MAX];
    int kind = 0;
    if (mg_json_is(v, MG_JSON_STRING)) {
        kind = mg_word_index(OF_USERS, mg_json_str(a, v));
        if (kind < 0)
            return mg_err_set(err, MG_EINVAL, "%s: must be \"all\", \"none\" or an object", place);
    } else {
        mg_rc rc = mg_check_tag(a, v, place, kinds, &kind, err);
        if (rc >= 0)
            rc = mg_check_object(a, v, place, kind >= SOURCE_ONLY ? NAMING : PLAIN, m, err);
        if (rc >= 0 && kind >= SOURCE_ONLY)
            rc = check_references(a, m[1], mg_place(p, place, "tools"), err);
        if (rc < 0)
            return rc;
    }
    *ret = (enum source_kind)kind;
    mg_jw_key(w, SOURCES[source]);
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", KINDS[kind]);
    if (m[1])
        mg_jw_kraw(w, "tools", m[1]->raw);
    mg_jw_obj_end(w);
    return MG_OK;
}

static mg_rc put_url_sources(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_jw *w,
                             struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "user_input", .type = MG_FT_ANY, .flags = MG_FF_NULL},
        {.name = "client_tool_results", .type = MG_FT_ANY, .flags = MG_FF_NULL},
        {.name = "server_tool_results", .type = MG_FT_ANY, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[N_SOURCES];
    enum source_kind kinds[N_SOURCES] = {SOURCE_ALL, SOURCE_ALL, SOURCE_ALL};
    char p[MG_PATH_MAX];
    mg_rc rc = mg_check_object(a, v, place, RULES, m, err);
    mg_jw_key(w, "url_sources");
    mg_jw_obj(w);
    for (int i = 0; rc >= 0 && i < N_SOURCES; i++)
        if (mg_given(m[i]))
            rc = put_source(a, i, m[i], mg_place(p, place, SOURCES[i]), w, &kinds[i], err);
    mg_jw_obj_end(w);
    if (rc >= 0 && kinds[0] == SOURCE_NONE && kinds[1] == SOURCE_NONE && kinds[2] == SOURCE_NONE)
        return mg_err_set(err, MG_EINVAL,
                          "%s: no source is left, so nothing could be fetched; disable the tool instead", place);
    return rc;
}

mg_rc mg_web_config(struct mg_arena *a, struct mg_sv name, const struct mg_json *const m[MG_WEB_MEMBERS],
                    const char *place, struct mg_jw *w, struct mg_err *err)
{
    int tool = mg_web_tool_of(name);
    if (mg_given(m[MG_WEB_ALLOWED_DOMAINS]) && mg_given(m[MG_WEB_BLOCKED_DOMAINS]))
        return mg_err_set(err, MG_EINVAL, "%s: allowed_domains and blocked_domains exclude each other", place);
    for (int i = 0; i < MG_WEB_MEMBERS; i++) {
        char p[MG_PATH_MAX];
        if (!mg_given(m[i]))
            continue;
        mg_place(p, place, mg_web_members[i]);
        if (tool < 0 || !HAS[tool][i])
            return mg_err_set(err, MG_EINVAL, "%s: belongs to %s, not to %.*s", p,
                              HAS[MG_WEB_FETCH][i] && HAS[MG_WEB_SEARCH][i] ? "web_fetch and web_search"
                              : HAS[MG_WEB_FETCH][i]                        ? "web_fetch"
                                                                            : "web_search",
                              MG_SV_ARG(name));
        mg_rc rc = i == MG_WEB_URL_SOURCES ? put_url_sources(a, m[i], p, w, err) : check_member(a, i, m[i], p, err);
        if (rc < 0)
            return rc;
        if (i != MG_WEB_URL_SOURCES)
            mg_jw_kraw(w, mg_web_members[i], m[i]->raw);
    }
    return MG_OK;
}
