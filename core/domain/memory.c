#include "domain/memory.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "domain/check.h"
#include "domain/metadata.h"
#include "json/write.h"

/* ---- stores ---- */

enum { F_NAME, F_DESCRIPTION, F_METADATA, N_FIELDS };
static const struct mg_field_rule CREATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_STORE_NAME_MAX},
    [F_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_NULL | MG_FF_TEXT,
                       .max = MG_STORE_DESCRIPTION_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};
static const struct mg_field_rule UPDATE_RULES[] = {
    [F_NAME] = {.name = "name", .type = MG_FT_STRING, .flags = MG_FF_NULL, .min = 1, .max = MG_STORE_NAME_MAX},
    [F_DESCRIPTION] = {.name = "description",
                       .type = MG_FT_STRING,
                       .flags = MG_FF_NULL | MG_FF_TEXT,
                       .max = MG_STORE_DESCRIPTION_MAX},
    [F_METADATA] = {.name = "metadata", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
    {.name = NULL},
};

static mg_rc apply(struct mg_arena *a, const struct mg_json *const *m, bool create, struct mg_memory_store *x,
                   struct mg_err *err)
{
    const struct mg_meta_rules meta = {.create = create};
    if (mg_given(m[F_NAME]))
        x->name = mg_json_str(a, m[F_NAME]);
    if (m[F_DESCRIPTION])
        x->description = mg_given(m[F_DESCRIPTION]) ? mg_json_str(a, m[F_DESCRIPTION]) : MG_SV("");
    if (memchr(x->description.ptr, '\0', x->description.len))
        return mg_err_set(err, MG_EINVAL, "description: must not hold NUL (\\u0000)");
    return mg_metadata_patch(a, x->metadata, m[F_METADATA], &meta, &x->metadata, err);
}

mg_rc mg_memory_store_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_memory_store *ret,
                                   struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = (struct mg_memory_store){.description = MG_SV(""), .metadata = MG_SV("{}")};
    mg_rc rc = mg_check_object(a, body, "", CREATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, true, ret, err);
}

mg_rc mg_memory_store_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_memory_store *base,
                                   struct mg_memory_store *ret, struct mg_err *err)
{
    const struct mg_json *m[N_FIELDS];
    *ret = *base;
    mg_rc rc = mg_check_object(a, body, "", UPDATE_RULES, m, err);
    return rc < 0 ? rc : apply(a, m, false, ret, err);
}

/* ---- memories ---- */

mg_rc mg_memory_content_of(struct mg_arena *a, struct mg_sv text, const char *place, struct mg_memory_content *ret,
                           struct mg_err *err)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(8 * MG_MEMORY_CONTENT_MAX);
    char *hex = mg_arena_alloc(a, MG_SHA256_HEX);
    if (text.len > MG_MEMORY_CONTENT_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: must have at most %d bytes, has %zu", place, MG_MEMORY_CONTENT_MAX,
                          text.len);
    if (!mg_utf8_valid(text, NULL))
        return mg_err_set(err, MG_EINVAL, "%s: is not valid UTF-8", place);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_str(&w, text);
    mg_sha256_hex(text, hex);
    *ret = (struct mg_memory_content){
        .json = mg_arena_sv(a, mg_buf_view(&b)), .sha256 = mg_sv_of(hex), .size = (int64_t)text.len};
    return MG_OK;
}

static mg_rc take_path(struct mg_arena *a, const struct mg_json *v, struct mg_memory_wish *x, struct mg_err *err)
{
    if (!mg_given(v))
        return MG_OK;
    x->path = mg_json_str(a, v);
    return mg_memory_path_check(x->path, "path", err);
}

mg_rc mg_memory_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_memory_wish *ret,
                             struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "path", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
        {.name = "content", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_NULL | MG_FF_TEXT},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    *ret = (struct mg_memory_wish){.path = {NULL, 0}};
    mg_rc rc = mg_check_object(a, body, "", RULES, m, err);
    if (rc >= 0)
        rc = take_path(a, m[0], ret, err);
    if (rc < 0)
        return rc;
    return mg_memory_content_of(a, mg_given(m[1]) ? mg_json_str(a, m[1]) : MG_SV(""), "content", &ret->content, err);
}

static mg_rc take_precondition(struct mg_arena *a, const struct mg_json *v, struct mg_memory_wish *x,
                               struct mg_err *err)
{
    static const char *const TYPES[] = {"content_sha256", NULL};
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "content_sha256", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    int t = 0;
    if (!mg_given(v))
        return MG_OK;
    mg_rc rc = mg_check_tag(a, v, "precondition", TYPES, &t, err);
    if (rc >= 0)
        rc = mg_check_object(a, v, "precondition", RULES, m, err);
    if (rc < 0)
        return rc;
    x->precondition = mg_json_str(a, m[1]);
    if (mg_memory_sha_ok(x->precondition))
        return MG_OK;
    return mg_err_set(err, MG_EINVAL, "precondition.content_sha256: must have %d lowercase hexadecimal digits",
                      MG_MEMORY_SHA);
}

mg_rc mg_memory_parse_update(struct mg_arena *a, const struct mg_json *body, struct mg_memory_wish *ret,
                             struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "path", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        {.name = "content", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        {.name = "precondition", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    *ret = (struct mg_memory_wish){.path = {NULL, 0}};
    mg_rc rc = mg_check_object(a, body, "", RULES, m, err);
    if (rc >= 0)
        rc = take_path(a, m[0], ret, err);
    if (rc >= 0 && mg_given(m[1]))
        rc = mg_memory_content_of(a, mg_json_str(a, m[1]), "content", &ret->content, err);
    return rc < 0 ? rc : take_precondition(a, m[2], ret, err);
}
