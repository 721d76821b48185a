/* Equality of JSON values. Recursion is as deep as the parser's limit of nesting, no deeper. */
#include "base/map.h"
#include "base/mem.h"
#include "json/json.h"
#include "json/scan.h"

enum { LINEAR_MAX = 16 /* members; above it, they are looked up in a hash map */ };

static bool numbers_equal(struct mg_sv x, struct mg_sv y)
{
    struct mg_json_decimal a = mg_json_decimal_of(x), b = mg_json_decimal_of(y);

    if (!a.n_digits || !b.n_digits)
        return a.n_digits == b.n_digits; /* -0 and 0 are one value */
    if (a.negative != b.negative || a.exponent != b.exponent || a.n_digits != b.n_digits)
        return false;
    for (size_t i = 0, j = 0; i < a.digits.len && j < b.digits.len; i++, j++) {
        i += a.digits.ptr[i] == '.';
        j += b.digits.ptr[j] == '.';
        if (a.digits.ptr[i] != b.digits.ptr[j])
            return false;
    }

    return true;
}

static bool arrays_equal(struct mg_arena *a, const struct mg_json *x, const struct mg_json *y)
{
    const struct mg_json *v = x->child, *w = y->child;

    if (x->n != y->n)
        return false;
    for (; v && w; v = v->next, w = w->next)
        if (!mg_json_equal(a, v, w))
            return false;

    return true;
}

/* The members of an object by name; of duplicates the last counts, as in mg_json_get. */
struct members {
    const struct mg_json *obj;
    struct mg_map *map; /* NULL for small objects */
};

static struct members members_of(const struct mg_json *obj)
{
    struct members m = {.obj = obj};

    if (obj->n <= LINEAR_MAX)
        return m;
    m.map = mg_map_new();
    for (struct mg_json *v = obj->child; v; v = v->next)
        (void)mg_map_put(m.map, v->key, v);
    return m;
}

static void mg_members_cleanup(struct members *m)
{
    mg_map_free(m->map);
}

static const struct mg_json *member_find(const struct members *m, struct mg_sv key)
{
    const struct mg_json *last = NULL;

    if (m->map)
        return mg_map_get(m->map, key);
    for (const struct mg_json *v = m->obj->child; v; v = v->next)
        if (mg_sv_eq(v->key, key))
            last = v;

    return last;
}

static bool objects_equal(struct mg_arena *a, const struct mg_json *x, const struct mg_json *y)
{
    mg_auto(members) struct members in_x = members_of(x);
    mg_auto(members) struct members in_y = members_of(y);
    size_t distinct_x = 0, distinct_y = 0;

    for (const struct mg_json *v = x->child; v; v = v->next) {
        if (member_find(&in_x, v->key) != v)
            continue; /* hidden by a later one */
        distinct_x++;
        const struct mg_json *w = member_find(&in_y, v->key);
        if (!w || !mg_json_equal(a, v, w))
            return false;
    }
    for (const struct mg_json *w = y->child; w; w = w->next)
        distinct_y += member_find(&in_y, w->key) == w;

    return distinct_x == distinct_y;
}

bool mg_json_equal(struct mg_arena *a, const struct mg_json *x, const struct mg_json *y)
{
    if (!x || !y)
        return x == y;
    if (x->type != y->type)
        return false;
    if (mg_sv_eq(x->raw, y->raw))
        return true;
    switch ((enum mg_json_type)x->type) {
    case MG_JSON_NULL:
        return true;
    case MG_JSON_BOOL:
        return x->boolean == y->boolean;
    case MG_JSON_NUMBER:
        return numbers_equal(x->raw, y->raw);
    case MG_JSON_STRING:
        return (x->escaped || y->escaped) && mg_sv_eq(mg_json_str(a, x), mg_json_str(a, y));
    case MG_JSON_ARRAY:
        return arrays_equal(a, x, y);
    case MG_JSON_OBJECT:
        return objects_equal(a, x, y);
    }

    return false;
}
