/* What a model endpoint takes as an input schema. A server's schema that breaks these rules would have every later
 * request of the session refused, so it is found out before. */
#include "mcp/tool-list.h"

enum {
    DEPTH_MAX = 24, /* levels of schemas inside of schemas */
    KEY_MAX = 64,   /* characters of a property's name: what endpoints take */
};

static const char *const TYPES[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

/* Members whose value is a schema, an object of schemas, or an array of schemas. */
static const char *const ONE[] = {"items",    "additionalProperties", "not", "if", "then", "else",
                                  "contains", "propertyNames"};
static const char *const MAPS[] = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"};
static const char *const LISTS[] = {"anyOf", "oneOf", "allOf", "prefixItems"};

#define N_OF(table) (sizeof(table) / sizeof((table)[0]))

static const char *check(struct mg_arena *a, const struct mg_json *s, int depth);

static bool type_is_known(struct mg_arena *a, const struct mg_json *t)
{
    if (t->type != MG_JSON_STRING)
        return false;
    struct mg_sv name = mg_json_str(a, t);
    for (size_t i = 0; i < N_OF(TYPES); i++)
        if (mg_sv_eqz(name, TYPES[i]))
            return true;
    return false;
}

static const char *check_type(struct mg_arena *a, const struct mg_json *t)
{
    if (!t)
        return NULL;
    if (t->type != MG_JSON_ARRAY)
        return type_is_known(a, t) ? NULL : "it names an unknown type";
    for (const struct mg_json *c = t->child; c; c = c->next)
        if (!type_is_known(a, c))
            return "it names an unknown type";
    return t->n > 0 ? NULL : "it has an empty list of types";
}

static const char *check_required(const struct mg_json *r)
{
    if (!r)
        return NULL;
    if (r->type != MG_JSON_ARRAY)
        return "required is not an array";
    for (const struct mg_json *c = r->child; c; c = c->next)
        if (c->type != MG_JSON_STRING)
            return "required holds something that is no string";
    return NULL;
}

static bool key_is_plain(struct mg_sv k)
{
    for (size_t i = 0; i < k.len; i++) {
        char c = k.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                  c == '.';
        if (!ok)
            return false;
    }
    return k.len >= 1 && k.len <= KEY_MAX;
}

static const char *check_map(struct mg_arena *a, const struct mg_json *m, int depth)
{
    if (m->type != MG_JSON_OBJECT)
        return "a member that holds schemas by name is not an object";
    for (const struct mg_json *c = m->child; c; c = c->next) {
        const char *problem = check(a, c, depth);
        if (problem)
            return problem;
    }
    return NULL;
}

static const char *check_list(struct mg_arena *a, const struct mg_json *l, int depth)
{
    if (l->type != MG_JSON_ARRAY || l->n == 0)
        return "a list of schemas is not an array, or is empty";
    for (const struct mg_json *c = l->child; c; c = c->next) {
        const char *problem = check(a, c, depth);
        if (problem)
            return problem;
    }
    return NULL;
}

static const char *check_inside(struct mg_arena *a, const struct mg_json *s, int depth)
{
    const char *problem = NULL;
    for (size_t i = 0; i < N_OF(ONE) && !problem; i++) {
        const struct mg_json *v = mg_json_get(s, ONE[i]);
        bool tuple = v && i == 0 && v->type == MG_JSON_ARRAY; /* items of older drafts */
        if (v)
            problem = tuple ? check_list(a, v, depth) : check(a, v, depth);
    }
    for (size_t i = 0; i < N_OF(MAPS) && !problem; i++) {
        const struct mg_json *v = mg_json_get(s, MAPS[i]);
        problem = v ? check_map(a, v, depth) : NULL;
    }
    for (size_t i = 0; i < N_OF(LISTS) && !problem; i++) {
        const struct mg_json *v = mg_json_get(s, LISTS[i]);
        problem = v ? check_list(a, v, depth) : NULL;
    }
    return problem;
}

static const char *check(struct mg_arena *a, const struct mg_json *s, int depth)
{
    if (s->type == MG_JSON_BOOL)
        return NULL;
    if (s->type != MG_JSON_OBJECT)
        return "a schema inside of it is not an object";
    if (depth >= DEPTH_MAX)
        return "it is nested too deeply";
    const char *problem = check_type(a, mg_json_get(s, "type"));
    if (!problem)
        problem = check_required(mg_json_get(s, "required"));
    return problem ? problem : check_inside(a, s, depth + 1);
}

const char *mg_mcp_schema_problem(struct mg_arena *a, const struct mg_json *schema)
{
    static const char *const COMBINED[] = {"anyOf", "oneOf", "allOf"};
    if (!mg_json_is(schema, MG_JSON_OBJECT))
        return "it is not an object";
    if (schema->raw.len > MG_MCP_SCHEMA_MAX)
        return "it is over 64 KiB";
    if (!mg_sv_eqz(mg_json_get_str(a, schema, "type"), "object"))
        return "its type is not object";
    for (size_t i = 0; i < N_OF(COMBINED); i++)
        if (mg_json_get(schema, COMBINED[i]))
            return "it combines schemas at its top level";
    const struct mg_json *properties = mg_json_get(schema, "properties");
    for (const struct mg_json *p = properties ? properties->child : NULL; p; p = p->next)
        if (!key_is_plain(p->key))
            return "the name of a property is not 1 to 64 letters, digits, '_', '-' or '.'";
    return check(a, schema, 0);
}
