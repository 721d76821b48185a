/* Access to parsed JSON. */
#include "json/json.h"

#include "json/scan.h"

const struct mg_json *mg_json_get(const struct mg_json *obj, const char *key)
{
    const struct mg_json *last = NULL;
    struct mg_sv wanted = mg_sv_of(key);

    if (!mg_json_is(obj, MG_JSON_OBJECT))
        return NULL;
    for (const struct mg_json *v = obj->child; v; v = v->next)
        if (mg_sv_eq(v->key, wanted))
            last = v;

    return last;
}

const struct mg_json *mg_json_at(const struct mg_json *arr, uint32_t i)
{
    if (!mg_json_is(arr, MG_JSON_ARRAY) || i >= arr->n)
        return NULL;
    const struct mg_json *v = arr->child;
    while (i--)
        v = v->next;

    return v;
}

bool mg_json_is(const struct mg_json *v, enum mg_json_type t)
{
    return v && v->type == t;
}

const char *mg_json_type_name(const struct mg_json *v)
{
    static const char *const names[] = {
        [MG_JSON_NULL] = "null",       [MG_JSON_BOOL] = "a boolean", [MG_JSON_NUMBER] = "a number",
        [MG_JSON_STRING] = "a string", [MG_JSON_ARRAY] = "an array", [MG_JSON_OBJECT] = "an object",
    };

    return v ? names[v->type] : "nothing";
}

struct mg_sv mg_json_str(struct mg_arena *a, const struct mg_json *v)
{
    return mg_json_decode(a, mg_sv_n(v->raw.ptr + 1, v->raw.len - 2), v->escaped);
}

struct mg_sv mg_json_get_str(struct mg_arena *a, const struct mg_json *obj, const char *key)
{
    const struct mg_json *v = mg_json_get(obj, key);

    return mg_json_is(v, MG_JSON_STRING) ? mg_json_str(a, v) : mg_sv_n("", 0);
}

struct mg_sv mg_json_get_raw(const struct mg_json *obj, const char *key)
{
    const struct mg_json *v = mg_json_get(obj, key);

    return v ? v->raw : mg_sv_n("", 0);
}

struct mg_sv mg_json_inside(struct mg_sv raw_array)
{
    struct mg_sv s = mg_sv_trim(raw_array);
    return s.len < 2 ? MG_SV("") : mg_sv_trim(mg_sv_n(s.ptr + 1, s.len - 2));
}
