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
    case MG_WEB_URL_SOURCES:
        return mg_err_set(
            err, MG_EINVAL,
            "%s: the model endpoint's web_fetch has no such setting: it fetches URLs that the conversation "
            "holds; leave it out, and bound it with allowed_domains",
            place);
    case MG_WEB_USER_LOCATION:
        return check_location(a, v, place, err);
    default:
        return check_domains(a, v, place, err);
    }
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
        mg_rc rc = check_member(a, i, m[i], p, err);
        if (rc < 0)
            return rc;
        mg_jw_kraw(w, mg_web_members[i], m[i]->raw);
    }
    return MG_OK;
}
