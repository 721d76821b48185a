#include "tools/names.h"

#include "base/utf8.h"
#include "tools/internal.h"

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7F;
}

static bool must_quote(struct mg_sv name, enum mg_name_place place)
{
    if (name.len == 0 || name.ptr[0] == '"' || name.ptr[name.len - 1] == ' ' || !mg_utf8_valid(name, NULL))
        return true;
    for (size_t i = 0; i < name.len; i++)
        if (is_control((unsigned char)name.ptr[i]) || (place == MG_NAME_COLON && name.ptr[i] == ':'))
            return true;
    return false;
}

mg_rc mg_name_quote(struct mg_buf *out, struct mg_sv name, enum mg_name_place place)
{
    if (!must_quote(name, place))
        return mg_buf_sv(out, name);
    mg_buf_char(out, '"');
    while (name.len) {
        unsigned char c = (unsigned char)name.ptr[0];
        size_t n = mg_utf8_char(name);
        if (c == '\n')
            mg_buf_str(out, "\\n");
        else if (c == '\r')
            mg_buf_str(out, "\\r");
        else if (c == '\t')
            mg_buf_str(out, "\\t");
        else if (c == '"' || c == '\\')
            mg_buf_printf(out, "\\%c", c);
        else if (n == 0 || is_control(c))
            mg_buf_printf(out, "\\x%02X", c);
        else
            mg_buf_append(out, name.ptr, n);
        name = mg_sv_from(name, n ? n : 1);
    }
    return mg_buf_char(out, '"');
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One escape behind the backslash: its byte in *ret and the characters it took, or 0. */
static size_t escape(struct mg_sv s, char *ret)
{
    static const char FROM[] = "\\\"nrt", TO[] = "\\\"\n\r\t";

    if (s.len == 0)
        return 0;
    const char *at = s.ptr[0] ? strchr(FROM, s.ptr[0]) : NULL;
    if (at) {
        *ret = TO[at - FROM];
        return 1;
    }
    if (s.ptr[0] != 'x' || s.len < 3 || hex_digit(s.ptr[1]) < 0 || hex_digit(s.ptr[2]) < 0)
        return 0;
    *ret = (char)(hex_digit(s.ptr[1]) * 16 + hex_digit(s.ptr[2]));
    return 3;
}

static mg_rc unquote(struct mg_arena *a, struct mg_sv in, const char *field, struct mg_sv *ret, struct mg_err *err)
{
    char *out = mg_arena_alloc(a, in.len + 1);
    size_t n = 0;

    while (in.len) {
        size_t took = 1;
        out[n] = in.ptr[0];
        if (in.ptr[0] == '"')
            return mg_err_set(err, MG_EINVAL, "%s is in double quotes, so a quote inside of it must be written \\\"",
                              field);
        if (in.ptr[0] == '\\') {
            took = escape(mg_sv_from(in, 1), &out[n]);
            if (!took)
                return mg_err_set(err, MG_EINVAL,
                                  "%s is in double quotes, where a backslash starts \\\\ \\\" \\n \\r \\t or \\xHH",
                                  field);
            took++;
        }
        n++;
        in = mg_sv_from(in, took);
    }
    *ret = mg_sv_n(out, n);
    return MG_OK;
}

mg_rc mg_name_take(struct mg_arena *a, struct mg_sv arg, const char *field, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv name = arg;

    if (arg.len >= 2 && arg.ptr[0] == '"' && arg.ptr[arg.len - 1] == '"') {
        mg_rc rc = unquote(a, mg_sv_n(arg.ptr + 1, arg.len - 2), field, &name, err);
        if (rc < 0)
            return rc;
    }
    if (name.len == 0)
        return mg_err_set(err, MG_EINVAL, "%s is empty: give a path, relative to the working folder or absolute",
                          field);
    if (name.len > MG_TOOL_PATH_MAX)
        return mg_err_set(err, MG_EINVAL, "%s has %zu bytes: at most %d are allowed", field, name.len,
                          MG_TOOL_PATH_MAX);
    if (mg_sv_find(name, '\0') < name.len)
        return mg_err_set(err, MG_EINVAL, "%s contains a NUL character: no file name can", field);
    *ret = mg_arena_sv(a, name);
    return MG_OK;
}
