/* What server and worker must agree on: folders of stores, paths of memories, forms of hashes. */
#include "base/utf8.h"
#include "domain/memory.h"

struct mg_sv mg_memory_slug(struct mg_arena *a, struct mg_sv name, struct mg_sv id)
{
    char *out = mg_arena_alloc(a, name.len + 1);
    size_t n = 0;
    bool any = false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c + 32);
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        any = any || word;
        if (word || n == 0 || out[n - 1] != '-')
            out[n++] = word ? c : '-';
    }
    return any ? mg_sv_n(out, n) : id;
}

/* ---- paths ---- */

/* Format characters (general category Cf of Unicode 15) outside of ASCII. */
static const uint32_t FORMAT[][2] = {
    {0x00AD, 0x00AD},   {0x0600, 0x0605},   {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},
    {0x0890, 0x0891},   {0x08E2, 0x08E2},   {0x180E, 0x180E},   {0x200B, 0x200F},   {0x202A, 0x202E},
    {0x2060, 0x2064},   {0x2066, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE0001},
    {0xE0020, 0xE007F},
};

static uint32_t decode(struct mg_sv s, size_t n)
{
    static const unsigned char MASK[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = (unsigned char)s.ptr[0] & MASK[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)s.ptr[i] & 0x3f);
    return c;
}

static bool char_ok(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029)
        return false;
    for (size_t i = 0; i < sizeof(FORMAT) / sizeof(FORMAT[0]); i++)
        if (c >= FORMAT[i][0] && c <= FORMAT[i][1])
            return false;
    return true;
}

static mg_rc check_chars(struct mg_sv path, const char *place, struct mg_err *err)
{
    while (path.len) {
        size_t n = mg_utf8_char(path);
        if (n == 0)
            return mg_err_set(err, MG_EINVAL, "%s: is not valid UTF-8", place);
        uint32_t c = decode(path, n);
        if (!char_ok(c))
            return mg_err_set(err, MG_EINVAL,
                              "%s: must not hold control characters, format characters or line separators; it holds "
                              "U+%04X",
                              place, (unsigned)c);
        path = mg_sv_from(path, n);
    }
    return MG_OK;
}

static mg_rc check_segments(struct mg_sv rest, const char *place, struct mg_err *err)
{
    int n = 0;
    do {
        struct mg_sv segment = mg_sv_split(&rest, '/');
        if (segment.len == 0)
            return mg_err_set(err, MG_EINVAL, "%s: a segment must not be empty: no double slash, none at the end",
                              place);
        if (mg_sv_eqz(segment, ".") || mg_sv_eqz(segment, ".."))
            return mg_err_set(err, MG_EINVAL, "%s: a segment must not be . or ..", place);
        if (++n > MG_MEMORY_SEGMENTS_MAX)
            return mg_err_set(err, MG_EINVAL, "%s: must have at most %d segments", place, MG_MEMORY_SEGMENTS_MAX);
    } while (rest.len);
    return MG_OK;
}

mg_rc mg_memory_path_check(struct mg_sv path, const char *place, struct mg_err *err)
{
    if (path.len == 0 || path.ptr[0] != '/')
        return mg_err_set(err, MG_EINVAL, "%s: must begin with a slash", place);
    if (path.len > MG_MEMORY_PATH_MAX)
        return mg_err_set(err, MG_EINVAL, "%s: must have at most %d bytes, has %zu", place, MG_MEMORY_PATH_MAX,
                          path.len);
    mg_rc rc = check_chars(path, place, err);
    if (rc >= 0 && path.ptr[path.len - 1] == '/')
        return mg_err_set(err, MG_EINVAL, "%s: a segment must not be empty: no double slash, none at the end", place);
    return rc < 0 ? rc : check_segments(mg_sv_from(path, 1), place, err);
}

mg_rc mg_memory_prefix_check(struct mg_sv prefix, struct mg_err *err)
{
    if (prefix.len == 0 || prefix.ptr[0] != '/' || prefix.ptr[prefix.len - 1] != '/')
        return mg_err_set(err, MG_EINVAL, "path_prefix: must begin and end with a slash, such as /notes/");
    if (prefix.len == 1)
        return MG_OK;
    return mg_memory_path_check(mg_sv_n(prefix.ptr, prefix.len - 1), "path_prefix", err);
}

bool mg_memory_sha_ok(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.ptr[i] >= '0' && s.ptr[i] <= '9') && !(s.ptr[i] >= 'a' && s.ptr[i] <= 'f'))
            return false;
    return s.len == MG_MEMORY_SHA;
}
