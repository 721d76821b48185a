#include "domain/file.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "domain/check.h"

enum { TYPE_MAX = 255 /* bytes of a media type */ };

static const struct {
    const char *extension, *type;
} TYPES[] = {
    {".txt", "text/plain"},        {".md", "text/markdown"},    {".csv", "text/csv"},    {".html", "text/html"},
    {".json", "application/json"}, {".pdf", "application/pdf"}, {".png", "image/png"},   {".jpg", "image/jpeg"},
    {".jpeg", "image/jpeg"},       {".gif", "image/gif"},       {".webp", "image/webp"}, {".zip", "application/zip"},
};
enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };

/* ---- names ---- */

static struct mg_sv last_component(struct mg_sv s)
{
    for (size_t i = s.len; i > 0; i--)
        if (s.ptr[i - 1] == '/' || s.ptr[i - 1] == '\\')
            return mg_sv_from(s, i);
    return s;
}

static bool is_type(struct mg_sv mime, const char *type)
{
    return mg_sv_eq_nocase(mg_sv_trim(mg_sv_n(mime.ptr, mg_sv_find(mime, ';'))), mg_sv_of(type));
}

static struct mg_sv unnamed(struct mg_arena *a, struct mg_sv mime)
{
    for (int i = 0; i < N_TYPES; i++)
        if (is_type(mime, TYPES[i].type))
            return mg_arena_printf(a, "unnamed%s", TYPES[i].extension);
    return MG_SV("unnamed");
}

static mg_rc check_characters(struct mg_sv s, struct mg_err *err)
{
    bool bad = mg_text_hides(s);
    for (size_t i = 0; i < s.len && !bad; i++)
        bad = strchr("<>:\"|?*", s.ptr[i]) != NULL;
    if (!bad)
        return MG_OK;
    return mg_err_set(err, MG_EINVAL,
                      "file: the name must not hold control characters, line or direction marks, or any of "
                      "< > : \" | ? * \\ /");
}

mg_rc mg_file_name(struct mg_arena *a, struct mg_sv given, struct mg_sv mime, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv s = last_component(given);
    if (!mg_utf8_valid(s, NULL))
        return mg_err_set(err, MG_EINVAL, "file: the name must be UTF-8");
    if (s.len == 0)
        s = unnamed(a, mime);
    mg_rc rc = check_characters(s, err);
    if (rc < 0)
        return rc;
    if (mg_utf8_count(s) > MG_FILE_NAME_MAX)
        return mg_err_set(err, MG_EINVAL, "file: the name may have at most %d characters", MG_FILE_NAME_MAX);
    if (mg_sv_eqz(s, ".") || mg_sv_eqz(s, ".."))
        return mg_err_set(err, MG_EINVAL, "file: '.' and '..' are no names");
    *ret = mg_arena_sv(a, s);
    return MG_OK;
}

/* ---- types ---- */

static bool is_token(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !strchr("!#$&^_.+-", c))
            return false;
    }
    return s.len > 0;
}

static bool is_media_type(struct mg_sv s)
{
    struct mg_sv rest = mg_sv_trim(mg_sv_n(s.ptr, mg_sv_find(s, ';')));
    size_t slash = mg_sv_find(rest, '/');
    if (s.len > TYPE_MAX || !is_token(mg_sv_n(rest.ptr, slash)) || !is_token(mg_sv_from(rest, slash + 1)))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < ' ' || s.ptr[i] > '~')
            return false;
    return true;
}

struct mg_sv mg_file_type(struct mg_arena *a, struct mg_sv given, struct mg_sv name)
{
    given = mg_sv_trim(given);
    if (is_media_type(given))
        return mg_arena_sv(a, given);
    size_t dot = name.len;
    while (dot > 0 && name.ptr[dot - 1] != '.')
        dot--;
    struct mg_sv extension = dot ? mg_sv_from(name, dot - 1) : MG_SV("");
    for (int i = 0; i < N_TYPES; i++)
        if (mg_sv_eq_nocase(extension, mg_sv_of(TYPES[i].extension)))
            return mg_sv_of(TYPES[i].type);
    return MG_SV("application/octet-stream");
}

mg_rc mg_file_expiry(struct mg_sv text, int64_t *ret_s, struct mg_err *err)
{
    int64_t n = 0;
    if (!mg_sv_to_i64(mg_sv_trim(text), &n) || n < MG_FILE_EXPIRES_MIN_S || n > MG_FILE_EXPIRES_MAX_S)
        return mg_err_set(err, MG_EINVAL, "expires_in_seconds: must be an integer from %d to %d", MG_FILE_EXPIRES_MIN_S,
                          MG_FILE_EXPIRES_MAX_S);
    *ret_s = n;
    return MG_OK;
}

/* ---- on the way out ---- */

struct mg_sv mg_file_disposition(struct mg_arena *a, struct mg_sv name)
{
    mg_auto(buf) struct mg_buf b =
        MG_BUF_INIT(8192); /* 255 characters of up to 4 bytes, each as %XX, and the plain form */
    (void)mg_buf_str(&b, "attachment; filename=\"");
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        bool shown = c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%';
        (void)mg_buf_char(&b, shown ? (char)c : '_');
    }
    (void)mg_buf_str(&b, "\"; filename*=UTF-8''");
    (void)mg_buf_percent(&b, name);
    return mg_arena_sv(a, mg_buf_view(&b));
}
