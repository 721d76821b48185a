#include "domain/metadata.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "json/write.h"

struct pairs {
    struct {
        struct mg_sv key, raw;
    } p[MG_META_PAIRS_MAX];
    int n;
};

static mg_rc check_pair(struct mg_arena *a, const struct mg_json *m, bool create, struct mg_err *err)
{
    size_t chars = mg_utf8_count(m->key);
    if (chars < 1 || chars > MG_META_KEY_MAX)
        return mg_err_set(err, MG_EINVAL, "metadata: a key has 1 to %d characters; one has %zu", MG_META_KEY_MAX,
                          chars);
    for (size_t i = 0; i < m->key.len; i++)
        if ((unsigned char)m->key.ptr[i] < 0x20)
            return mg_err_set(err, MG_EINVAL,
                              "metadata: a key must not hold NUL (\\u0000) or other control characters");
    const struct mg_field_rule value = {
        .type = MG_FT_STRING, .flags = create ? 0 : MG_FF_NULL, .max = MG_META_VALUE_MAX};
    char place[MG_PATH_MAX];
    return mg_check_value(a, m, mg_place(place, "metadata", mg_arena_strdup(a, m->key)), &value, err);
}

static int find(const struct pairs *all, struct mg_sv key)
{
    for (int i = 0; i < all->n; i++)
        if (mg_sv_eq(all->p[i].key, key))
            return i;
    return -1;
}

static void drop(struct pairs *all, int i)
{
    if (i < 0)
        return;
    for (; i + 1 < all->n; i++)
        all->p[i] = all->p[i + 1];
    all->n--;
}

static mg_rc put(struct pairs *all, const struct mg_json *m, struct mg_err *err)
{
    int i = find(all, m->key);
    if (i < 0) {
        if (all->n == MG_META_PAIRS_MAX)
            return mg_err_set(err, MG_EINVAL, "metadata: at most %d pairs are allowed; remove some", MG_META_PAIRS_MAX);
        i = all->n++;
        all->p[i].key = m->key;
    }
    all->p[i].raw = m->raw;
    return MG_OK;
}

static mg_rc load(struct mg_arena *a, struct mg_sv base, struct pairs *all, struct mg_err *err)
{
    struct mg_json *v;
    mg_rc rc = mg_json_parse(a, base, &mg_json_raw_limits, &v, err);
    for (const struct mg_json *m = rc < 0 ? NULL : v->child; m && rc >= 0; m = m->next)
        rc = put(all, m, err);
    return rc < 0 ? mg_err_wrap(err, MG_EINTERNAL, "stored metadata") : MG_OK;
}

static struct mg_sv write_pairs(struct mg_arena *a, const struct pairs *all)
{
    enum {
        PAIRS_TEXT_MAX = 1024 * 1024 /* bytes: 16 pairs of 576 characters, each spelled as a 6-byte escape at worst */
    };
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(PAIRS_TEXT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    for (int i = 0; i < all->n; i++) {
        mg_jw_key_sv(&w, all->p[i].key);
        mg_jw_raw(&w, all->p[i].raw);
    }
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static mg_rc patch_pairs(struct mg_arena *a, struct pairs *all, const struct mg_json *patch,
                         const struct mg_meta_rules *r, struct mg_err *err)
{
    /* Deletions first, so that a patch may swap a key for another in a full map. */
    for (const struct mg_json *m = patch->child; m; m = m->next) {
        mg_rc rc = check_pair(a, m, r->create, err);
        if (rc < 0)
            return rc;
        bool gone = m->type == MG_JSON_NULL || (r->empty_deletes && mg_json_str(a, m).len == 0);
        if (gone)
            drop(all, find(all, m->key));
    }
    for (const struct mg_json *m = patch->child; m; m = m->next) {
        bool gone = m->type == MG_JSON_NULL || (r->empty_deletes && mg_json_str(a, m).len == 0);
        mg_rc rc = gone ? MG_OK : put(all, m, err);
        if (rc < 0)
            return rc;
    }
    return MG_OK;
}

mg_rc mg_metadata_patch(struct mg_arena *a, struct mg_sv base, const struct mg_json *patch,
                        const struct mg_meta_rules *rules, struct mg_sv *ret, struct mg_err *err)
{
    *ret = base;
    if (!mg_given(patch))
        return MG_OK;
    struct pairs all = {.n = 0};
    mg_rc rc = load(a, base, &all, err);
    if (rc < 0)
        return rc;
    rc = patch_pairs(a, &all, patch, rules, err);
    if (rc < 0) {
        if (rules->code && err)
            snprintf(err->code, sizeof(err->code), "%s", rules->code);
        return rc;
    }
    *ret = write_pairs(a, &all);
    return MG_OK;
}
