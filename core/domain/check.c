#include "domain/check.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"
#include "domain/id.h"

const char *mg_place(char out[MG_PATH_MAX], const char *path, const char *name)
{
    snprintf(out, MG_PATH_MAX, "%s%s%s", path, *path ? "." : "", name);
    return out;
}

const char *mg_place_at(char out[MG_PATH_MAX], const char *path, unsigned i)
{
    snprintf(out, MG_PATH_MAX, "%s[%u]", path, i);
    return out;
}

const char *mg_words(struct mg_arena *a, const char *const *words)
{
    struct mg_sv all = MG_SV("");
    for (const char *const *w = words; *w; w++)
        all = mg_arena_printf(a, "%.*s%s%s", MG_SV_ARG(all), w == words ? "" : ", ", *w);
    return mg_arena_strdup(a, all);
}

int mg_word_index(const char *const *words, struct mg_sv s)
{
    for (int i = 0; words[i]; i++)
        if (mg_sv_eqz(s, words[i]))
            return i;
    return -1;
}

size_t mg_utf8_count(struct mg_sv s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

/* What a client sent, short enough for an error. */
static struct mg_sv shown(struct mg_arena *a, struct mg_sv raw)
{
    enum { SHOWN_MAX = 60 /* bytes; the rest says nothing */ };
    if (raw.len <= SHOWN_MAX)
        return raw;
    size_t n = SHOWN_MAX;
    while (n > 0 && ((unsigned char)raw.ptr[n] & 0xC0) == 0x80)
        n--;
    return mg_arena_printf(a, "%.*s...", (int)n, raw.ptr);
}

static bool has_control(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F)
            return true;
    }
    return false;
}

static mg_rc check_length(size_t n, const char *what, const char *place, const struct mg_field_rule *r,
                          struct mg_err *err)
{
    if ((int64_t)n < r->min) {
        if (n == 0 && r->min == 1)
            return mg_err_set(err, MG_EINVAL, "%s: must not be empty", place);
        return mg_err_set(err, MG_EINVAL, "%s: needs at least %" PRId64 " %s, got %zu", place, r->min, what, n);
    }
    if (r->max && (int64_t)n > r->max)
        return mg_err_set(err, MG_EINVAL, "%s: at most %" PRId64 " %s are allowed, got %zu; shorten it", place, r->max,
                          what, n);
    return MG_OK;
}

static mg_rc check_string(struct mg_arena *a, const struct mg_json *v, const char *place, const struct mg_field_rule *r,
                          struct mg_err *err)
{
    struct mg_sv s = mg_json_str(a, v);
    if (r->one_of && mg_word_index(r->one_of, s) < 0) {
        struct mg_sv got = shown(a, v->raw);
        return mg_err_set(err, MG_EINVAL, "%s: must be one of %s; got %.*s", place, mg_words(a, r->one_of),
                          MG_SV_ARG(got));
    }
    struct mg_id id;
    if (r->type == MG_FT_ID) {
        if (s.len == 0 || !mg_id_from(s, &id))
            return mg_err_set(err, MG_EINVAL, "%s: must be an id of 1 to %d letters, digits, '_' or '-'", place,
                              MG_ID_MAX - 1);
        return MG_OK;
    }
    if (!(r->flags & MG_FF_TEXT) && has_control(s))
        return mg_err_set(err, MG_EINVAL, "%s: must not hold NUL (\\u0000) or other control characters; remove them",
                          place);
    return check_length(mg_utf8_count(s), "characters", place, r, err);
}

static mg_rc check_int(struct mg_arena *a, const struct mg_json *v, const char *place, const struct mg_field_rule *r,
                       struct mg_err *err)
{
    int64_t n;
    struct mg_sv got = shown(a, v->raw);
    if (!mg_json_i64(v, &n))
        return mg_err_set(err, MG_EINVAL, "%s: must be an integer; got %.*s", place, MG_SV_ARG(got));
    if (n < r->min)
        return mg_err_set(err, MG_EINVAL, "%s: must be at least %" PRId64 "; got %.*s", place, r->min, MG_SV_ARG(got));
    if (r->max && n > r->max)
        return mg_err_set(err, MG_EINVAL, "%s: must be at most %" PRId64 "; got %.*s", place, r->max, MG_SV_ARG(got));
    return MG_OK;
}

static bool type_fits(const struct mg_json *v, uint8_t type)
{
    switch ((enum mg_field_type)type) {
    case MG_FT_STRING:
    case MG_FT_ID:
        return v->type == MG_JSON_STRING;
    case MG_FT_INT:
        return v->type == MG_JSON_NUMBER;
    case MG_FT_BOOL:
        return v->type == MG_JSON_BOOL;
    case MG_FT_OBJECT:
        return v->type == MG_JSON_OBJECT;
    case MG_FT_ARRAY:
        return v->type == MG_JSON_ARRAY;
    case MG_FT_STRING_OR_OBJECT:
        return v->type == MG_JSON_STRING || v->type == MG_JSON_OBJECT;
    case MG_FT_ANY:
        return true;
    }
    return false;
}

static const char *const TYPE_NAMES[] = {
    [MG_FT_STRING] = "a string",
    [MG_FT_ID] = "a string",
    [MG_FT_INT] = "an integer",
    [MG_FT_BOOL] = "a boolean",
    [MG_FT_OBJECT] = "an object",
    [MG_FT_ARRAY] = "an array",
    [MG_FT_STRING_OR_OBJECT] = "a string or an object",
    [MG_FT_ANY] = "a value",
};

mg_rc mg_check_value(struct mg_arena *a, const struct mg_json *v, const char *place, const struct mg_field_rule *r,
                     struct mg_err *err)
{
    if (v->type == MG_JSON_NULL) {
        if (r->flags & MG_FF_NULL)
            return MG_OK;
        return mg_err_set(err, MG_EINVAL, "%s: must be %s, not null%s", place, TYPE_NAMES[r->type],
                          r->flags & MG_FF_REQUIRED ? "" : "; leave it out instead");
    }
    if (!type_fits(v, r->type))
        return mg_err_set(err, MG_EINVAL, "%s: must be %s%s; got %s", place, TYPE_NAMES[r->type],
                          r->flags & MG_FF_NULL ? " or null" : "", mg_json_type_name(v));
    bool empty = (v->type == MG_JSON_ARRAY || v->type == MG_JSON_OBJECT) && v->n == 0;
    if (r->refusal && !empty)
        return mg_err_set(err, MG_EINVAL, "%s: %s", place, r->refusal);
    if (v->type == MG_JSON_STRING && r->type != MG_FT_ANY)
        return check_string(a, v, place, r, err);
    if (r->type == MG_FT_INT)
        return check_int(a, v, place, r, err);
    if (r->type == MG_FT_ARRAY)
        return check_length(v->n, "items", place, r, err);
    if (r->type == MG_FT_OBJECT)
        return check_length(v->n, "members", place, r, err);
    return MG_OK;
}

static int rule_index(const struct mg_field_rule *rules, struct mg_sv name)
{
    for (int i = 0; rules[i].name; i++)
        if (mg_sv_eqz(name, rules[i].name))
            return i;
    return -1;
}

static mg_rc unknown_field(struct mg_arena *a, struct mg_sv key, const char *path, const struct mg_field_rule *rules,
                           struct mg_err *err)
{
    const char *names[MG_FIELDS_MAX + 1] = {NULL};
    for (int i = 0; i < MG_FIELDS_MAX && rules[i].name; i++)
        names[i] = rules[i].name;
    char place[MG_PATH_MAX];
    struct mg_sv name = shown(a, key);
    mg_place(place, path, mg_arena_strdup(a, name));
    if (!names[0])
        return mg_err_set(err, MG_EINVAL, "%s: unknown field; this body takes no fields", place);
    return mg_err_set(err, MG_EINVAL, "%s: unknown field; the fields that are known here are %s", place,
                      mg_words(a, names));
}

mg_rc mg_check_object(struct mg_arena *a, const struct mg_json *obj, const char *path,
                      const struct mg_field_rule *rules, const struct mg_json **out, struct mg_err *err)
{
    char place[MG_PATH_MAX];
    if (!mg_json_is(obj, MG_JSON_OBJECT))
        return mg_err_set(err, MG_EINVAL, "%s: must be an object; got %s", *path ? path : "body",
                          mg_json_type_name(obj));
    for (int i = 0; rules[i].name; i++)
        out[i] = NULL;
    for (const struct mg_json *m = obj->child; m; m = m->next) {
        int i = rule_index(rules, m->key);
        if (i < 0)
            return unknown_field(a, m->key, path, rules, err);
        mg_rc rc = mg_check_value(a, m, mg_place(place, path, rules[i].name), &rules[i], err);
        if (rc < 0)
            return rc;
        out[i] = m;
    }
    for (int i = 0; rules[i].name; i++)
        if ((rules[i].flags & MG_FF_REQUIRED) && !out[i])
            return mg_err_set(err, MG_EINVAL, "%s: is required (%s)", mg_place(place, path, rules[i].name),
                              TYPE_NAMES[rules[i].type]);
    return MG_OK;
}

mg_rc mg_check_tag(struct mg_arena *a, const struct mg_json *obj, const char *path, const char *const *words, int *ret,
                   struct mg_err *err)
{
    char place[MG_PATH_MAX];
    if (!mg_json_is(obj, MG_JSON_OBJECT))
        return mg_err_set(err, MG_EINVAL, "%s: must be an object; got %s", *path ? path : "body",
                          mg_json_type_name(obj));
    const struct mg_json *tag = mg_json_get(obj, "type");
    if (!tag)
        return mg_err_set(err, MG_EINVAL, "%s: is required: one of %s", mg_place(place, path, "type"),
                          mg_words(a, words));
    const struct mg_field_rule rule = {.name = "type", .type = MG_FT_STRING, .one_of = words};
    mg_rc rc = mg_check_value(a, tag, mg_place(place, path, "type"), &rule, err);
    if (rc < 0)
        return rc;
    *ret = mg_word_index(words, mg_json_str(a, tag));
    return MG_OK;
}

bool mg_text_hides(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char *p = (const unsigned char *)s.ptr + i;
        size_t left = s.len - i;
        if (*p < ' ' || *p == 0x7f || (left > 1 && p[0] == 0xc2 && p[1] < 0xa0))
            return true;
        if (left < 3 || p[0] != 0xe2)
            continue;
        if (p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xa8 && p[2] <= 0xae)))
            return true;
        if (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)
            return true;
    }
    return false;
}

struct mg_sv mg_shown_id(struct mg_sv id)
{
    return mg_sv_n(id.ptr, mg_utf8_floor(id, MG_ID_MAX));
}

mg_rc mg_body_parse(struct mg_arena *a, struct mg_sv body, const struct mg_json **ret, struct mg_err *err)
{
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, mg_sv_trim(body).len ? body : MG_SV("{}"), &mg_json_api_limits, &v, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "body");
    if (v->type != MG_JSON_OBJECT)
        return mg_err_set(err, MG_EINVAL, "body: must be a JSON object; got %s", mg_json_type_name(v));
    *ret = v;
    return MG_OK;
}
