#include "domain/content.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "crypto/hash.h"

enum { URL_MAX = 2048 /* characters of a source's URL */ };

/* ---- sources ---- */

static mg_rc check_http_url(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_err *err)
{
    struct mg_sv s = mg_json_str(a, v);
    if (!mg_sv_starts(s, "https://") && !mg_sv_starts(s, "http://"))
        return mg_err_set(err, MG_EINVAL, "%s: must begin with https:// or http://", place);
    return MG_OK;
}

static mg_rc check_base64(struct mg_arena *a, const struct mg_json *v, const char *place, struct mg_err *err)
{
    struct mg_sv s = mg_json_str(a, v);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(s.len + 4);
    if (s.len == 0 || mg_base64_decode(&b, s) < 0)
        return mg_err_set(err, MG_EINVAL, "%s: must be base64 and not empty", place);
    return MG_OK;
}

static const char *const SOURCE_TYPES[] = {"base64", "url", "file", "text", NULL};
enum source_type { SRC_BASE64, SRC_URL, SRC_FILE, SRC_TEXT };

static const char *const PDF_TYPES[] = {"application/pdf", NULL};
static const char *const TEXT_TYPES[] = {"text/plain", NULL};

static mg_rc check_image_base64(struct mg_arena *a, const struct mg_json *src, const char *place, bool spoken,
                                struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "media_type", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = 100},
        {.name = "data", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    mg_rc rc = mg_check_object(a, src, place, RULES, m, err);
    if (rc < 0)
        return rc;
    char p[MG_PATH_MAX];
    if (!spoken)
        return check_base64(a, m[2], mg_place(p, place, "data"), err);
    rc = mg_image_check(mg_json_str(a, m[1]), mg_json_str(a, m[2]), err);
    return rc < 0 ? mg_err_wrap(err, rc, "%s", place) : MG_OK;
}

static mg_rc check_document_data(struct mg_arena *a, const struct mg_json *src, const char *place, bool base64,
                                 struct mg_err *err)
{
    const struct mg_field_rule rules[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "media_type",
         .type = MG_FT_STRING,
         .flags = MG_FF_REQUIRED,
         .one_of = base64 ? PDF_TYPES : TEXT_TYPES},
        {.name = "data", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT, .min = 1},
        {.name = NULL},
    };
    const struct mg_json *m[3];
    mg_rc rc = mg_check_object(a, src, place, rules, m, err);
    if (rc < 0 || !base64)
        return rc;
    char p[MG_PATH_MAX];
    return check_base64(a, m[2], mg_place(p, place, "data"), err);
}

static mg_rc check_url_source(struct mg_arena *a, const struct mg_json *src, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "url", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1, .max = URL_MAX},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    mg_rc rc = mg_check_object(a, src, place, RULES, m, err);
    if (rc < 0)
        return rc;
    char p[MG_PATH_MAX];
    return check_http_url(a, m[1], mg_place(p, place, "url"), err);
}

/* Only what a client says may name a file: results come from workers, whose token does not read all files. */
static mg_rc check_file_source(struct mg_arena *a, const struct mg_json *src, const char *place, bool spoken,
                               struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "file_id", .type = MG_FT_ID, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    if (!spoken)
        return mg_err_set(err, MG_EINVAL,
                          "%s.type: a file source is taken in a user.message only; send the content as base64", place);
    return mg_check_object(a, src, place, RULES, m, err);
}

static mg_rc check_source(struct mg_arena *a, const struct mg_json *src, const char *place, bool image, bool spoken,
                          struct mg_err *err)
{
    static const char *const IMAGE_SOURCES[] = {"base64", "url", "file", NULL};
    int t = 0;
    mg_rc rc = mg_check_tag(a, src, place, image ? IMAGE_SOURCES : SOURCE_TYPES, &t, err);
    if (rc < 0)
        return rc;
    switch ((enum source_type)t) {
    case SRC_BASE64:
        return image ? check_image_base64(a, src, place, spoken, err) : check_document_data(a, src, place, true, err);
    case SRC_TEXT:
        return check_document_data(a, src, place, false, err);
    case SRC_URL:
        return check_url_source(a, src, place, err);
    case SRC_FILE:
        return check_file_source(a, src, place, spoken, err);
    }
    return MG_OK;
}

/* ---- blocks ---- */

static bool blank(struct mg_sv s)
{
    return mg_sv_trim(s).len == 0;
}

static mg_rc check_text(struct mg_arena *a, const struct mg_json *b, const char *place, bool spoken, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "text", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED | MG_FF_TEXT},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    mg_rc rc = mg_check_object(a, b, place, RULES, m, err);
    if (rc < 0)
        return rc;
    if (spoken && blank(mg_json_str(a, m[1])))
        return mg_err_set(err, MG_EINVAL, "%s.text: must hold more than white space; models refuse empty text", place);
    return MG_OK;
}

static mg_rc check_image(struct mg_arena *a, const struct mg_json *b, const char *place, bool spoken,
                         struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "source", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        {.name = NULL},
    };
    const struct mg_json *m[2];
    mg_rc rc = mg_check_object(a, b, place, RULES, m, err);
    if (rc < 0)
        return rc;
    char p[MG_PATH_MAX];
    return check_source(a, m[1], mg_place(p, place, "source"), true, spoken, err);
}

static mg_rc check_document(struct mg_arena *a, const struct mg_json *b, const char *place, bool spoken,
                            struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "source", .type = MG_FT_OBJECT, .flags = MG_FF_REQUIRED},
        {.name = "title", .type = MG_FT_STRING, .flags = MG_FF_NULL, .max = 500},
        {.name = "context", .type = MG_FT_STRING, .flags = MG_FF_NULL | MG_FF_TEXT},
        {.name = NULL},
    };
    const struct mg_json *m[4];
    mg_rc rc = mg_check_object(a, b, place, RULES, m, err);
    if (rc < 0)
        return rc;
    char p[MG_PATH_MAX];
    return check_source(a, m[1], mg_place(p, place, "source"), false, spoken, err);
}

static mg_rc check_search_result(struct mg_arena *a, const struct mg_json *b, const char *place, struct mg_err *err)
{
    static const struct mg_field_rule RULES[] = {
        {.name = "type", .type = MG_FT_STRING},
        {.name = "source", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED, .min = 1},
        {.name = "title", .type = MG_FT_STRING, .flags = MG_FF_REQUIRED},
        {.name = "content", .type = MG_FT_ARRAY, .flags = MG_FF_REQUIRED, .min = 1, .max = MG_CONTENT_BLOCKS_MAX},
        {.name = "citations", .type = MG_FT_OBJECT, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    static const struct mg_field_rule CITATIONS[] = {
        {.name = "enabled", .type = MG_FT_BOOL, .flags = MG_FF_NULL},
        {.name = NULL},
    };
    const struct mg_json *m[5], *c[1];
    char p[MG_PATH_MAX];
    mg_rc rc = mg_check_object(a, b, place, RULES, m, err);
    if (rc >= 0 && mg_given(m[4]))
        rc = mg_check_object(a, m[4], mg_place(p, place, "citations"), CITATIONS, c, err);
    if (rc < 0)
        return rc;
    return mg_content_check(a, m[3], mg_place(p, place, "content"), MG_CONTENT_TEXT, err);
}

static const struct {
    const char *type;
    unsigned bit;
} BLOCKS[] = {
    {"text", MG_CONTENT_TEXT},
    {"image", MG_CONTENT_IMAGE},
    {"document", MG_CONTENT_DOCUMENT},
    {"search_result", MG_CONTENT_SEARCH_RESULT},
};
enum { N_BLOCKS = sizeof(BLOCKS) / sizeof(BLOCKS[0]) };

static mg_rc check_block(struct mg_arena *a, const struct mg_json *b, const char *place, unsigned allowed,
                         struct mg_err *err)
{
    const char *words[N_BLOCKS + 1] = {NULL};
    unsigned bits[N_BLOCKS];
    int n = 0, t = 0;
    for (int i = 0; i < N_BLOCKS; i++)
        if (allowed & BLOCKS[i].bit) {
            bits[n] = BLOCKS[i].bit;
            words[n++] = BLOCKS[i].type;
        }
    if (b->type == MG_JSON_OBJECT && mg_sv_eqz(mg_json_get_str(a, b, "type"), "redacted"))
        return mg_err_set(err, MG_EINVAL,
                          "%s.type: a redacted block only stands for content that the server withheld; leave it out",
                          place);
    mg_rc rc = mg_check_tag(a, b, place, words, &t, err);
    if (rc < 0)
        return rc;
    bool spoken = allowed & MG_CONTENT_SPOKEN;
    if (bits[t] == MG_CONTENT_TEXT)
        return check_text(a, b, place, spoken, err);
    if (bits[t] == MG_CONTENT_IMAGE)
        return check_image(a, b, place, spoken, err);
    if (bits[t] == MG_CONTENT_DOCUMENT)
        return check_document(a, b, place, spoken, err);
    return check_search_result(a, b, place, err);
}

mg_rc mg_content_check(struct mg_arena *a, const struct mg_json *arr, const char *place, unsigned allowed,
                       struct mg_err *err)
{
    if (arr->n > MG_CONTENT_BLOCKS_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: at most %d blocks are allowed, got %u", place, MG_CONTENT_BLOCKS_MAX,
                          arr->n);
    unsigned i = 0;
    char p[MG_PATH_MAX];
    for (const struct mg_json *b = arr->child; b; b = b->next) {
        mg_rc rc = check_block(a, b, mg_place_at(p, place, i++), allowed, err);
        if (rc < 0)
            return rc;
    }
    return MG_OK;
}
