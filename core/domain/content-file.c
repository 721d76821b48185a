#include "domain/content-file.h"

#include "base/utf8.h"

struct mg_sv mg_media_type(struct mg_sv mime)
{
    return mg_sv_trim(mg_sv_split(&mime, ';'));
}

enum mg_content_place mg_content_file_of(struct mg_arena *a, const struct mg_json *block, struct mg_sv *ret_id)
{
    const struct mg_json *source = block->type == MG_JSON_OBJECT ? mg_json_get(block, "source") : NULL;
    if (!mg_json_is(source, MG_JSON_OBJECT) || !mg_sv_eqz(mg_json_get_str(a, source, "type"), "file"))
        return MG_PLACE_NONE;
    struct mg_sv type = mg_json_get_str(a, block, "type");
    *ret_id = mg_json_get_str(a, source, "file_id");
    if (mg_sv_eqz(type, "image"))
        return MG_PLACE_IMAGE;
    return mg_sv_eqz(type, "document") ? MG_PLACE_DOCUMENT : MG_PLACE_NONE;
}

static const struct {
    enum mg_content_place place;
    const char *mime; /* NULL: any text */
    enum mg_content_kind kind;
    int64_t max;
} TAKEN[] = {
    {MG_PLACE_IMAGE, "image/png", MG_KIND_IMAGE, MG_IMAGE_BYTES_MAX},
    {MG_PLACE_IMAGE, "image/jpeg", MG_KIND_IMAGE, MG_IMAGE_BYTES_MAX},
    {MG_PLACE_IMAGE, "image/gif", MG_KIND_IMAGE, MG_IMAGE_BYTES_MAX},
    {MG_PLACE_IMAGE, "image/webp", MG_KIND_IMAGE, MG_IMAGE_BYTES_MAX},
    {MG_PLACE_DOCUMENT, "application/pdf", MG_KIND_PDF, MG_CONTENT_PDF_MAX},
    {MG_PLACE_DOCUMENT, "text/plain", MG_KIND_TEXT, MG_CONTENT_TEXT_MAX},
    {MG_PLACE_RUBRIC, NULL, MG_KIND_RUBRIC, MG_CONTENT_RUBRIC_MAX},
};
enum { N_TAKEN = sizeof(TAKEN) / sizeof(TAKEN[0]) };

static mg_rc wrong_type(enum mg_content_place place, struct mg_sv mime, struct mg_err *err)
{
    static const char *const WANTED[] = {
        [MG_PLACE_IMAGE] = "an image must be image/png, image/jpeg, image/gif or image/webp",
        [MG_PLACE_DOCUMENT] = "a document must be application/pdf or text/plain",
        [MG_PLACE_RUBRIC] = "a rubric must be text",
    };
    return mg_err_set(err, MG_EINVAL, "the file's media type is %.*s; %s", (int)(mime.len < 100 ? mime.len : 100),
                      mime.ptr, WANTED[place]);
}

mg_rc mg_content_file_kind(enum mg_content_place place, struct mg_sv mime, int64_t size, enum mg_content_kind *ret,
                           struct mg_err *err)
{
    mime = mg_media_type(mime);
    for (int i = 0; i < N_TAKEN; i++) {
        bool type = TAKEN[i].mime ? mg_sv_eq_nocase(mime, mg_sv_of(TAKEN[i].mime)) : mg_sv_starts(mime, "text/");
        if (TAKEN[i].place != place || !type)
            continue;
        if (size == 0)
            return mg_err_set(err, MG_EINVAL, "the file is empty");
        if (size > TAKEN[i].max)
            return mg_err_set(err, MG_EINVAL, "the file has %lld bytes; here it may have at most %lld", (long long)size,
                              (long long)TAKEN[i].max);
        *ret = TAKEN[i].kind;
        return MG_OK;
    }
    return wrong_type(place, mime, err);
}

mg_rc mg_content_file_check(enum mg_content_kind kind, struct mg_sv mime, struct mg_sv data, struct mg_err *err)
{
    switch (kind) {
    case MG_KIND_IMAGE:
        return mg_image_check_data(mg_media_type(mime), data, MG_IMAGE_SIDE_MAX, MG_IMAGE_BYTES_MAX, err);
    case MG_KIND_PDF:
        return mg_sv_starts(data, "%PDF-") ? MG_OK
                                           : mg_err_set(err, MG_EINVAL, "the file is no PDF: it does not begin as one");
    case MG_KIND_TEXT:
    case MG_KIND_RUBRIC:
        if (!mg_utf8_valid(data, NULL) || memchr(data.ptr, '\0', data.len))
            return mg_err_set(err, MG_EINVAL, "the file is not UTF-8 text");
        if (kind == MG_KIND_RUBRIC && mg_utf8_count(data) > MG_RUBRIC_CHARS_MAX)
            return mg_err_set(err, MG_EINVAL, "a rubric may have at most %d characters", MG_RUBRIC_CHARS_MAX);
        return mg_sv_trim(data).len ? MG_OK : mg_err_set(err, MG_EINVAL, "the file holds nothing but white space");
    }
    return MG_OK;
}
