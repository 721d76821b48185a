/* Strings: scanning and decoding. */
#include "json/scan.h"

#include "base/utf8.h"

enum { ESCAPE_LEN = 6 /* \uXXXX */ };

/* Eight bytes at a time, exact for the question whether there is one at all; the byte is then looked for singly. */
static bool word_is_plain(uint64_t w)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
    uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
    uint64_t control = (w - ones * 0x20) & ~w;

    return !((w | control | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & high);
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

size_t mg_json_plain_end(struct mg_sv s, size_t i)
{
    uint64_t w;

    while (s.len - i >= sizeof(w)) {
        memcpy(&w, s.ptr + i, sizeof(w));
        if (!word_is_plain(w))
            break;
        i += sizeof(w);
    }
    while (i < s.len && is_plain((unsigned char)s.ptr[i]))
        i++;

    return i;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;

    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The value of \uXXXX at off, or -1 when there is no such thing. */
static int unicode_escape(struct mg_sv s, size_t off)
{
    int v = 0;

    if (s.len - off < ESCAPE_LEN || s.ptr[off] != '\\' || s.ptr[off + 1] != 'u')
        return -1;
    for (size_t i = off + 2; i < off + ESCAPE_LEN; i++) {
        int digit = hex_value(s.ptr[i]);
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }

    return v;
}

static bool is_high_surrogate(int u)
{
    return u >= 0xd800 && u <= 0xdbff;
}

static bool is_low_surrogate(int u)
{
    return u >= 0xdc00 && u <= 0xdfff;
}

/* Length of the escape at off, both halves of a pair together; 0 with *ret_what set when it is wrong. */
static size_t escape_len(struct mg_sv s, size_t off, bool strict, const char **ret_what)
{
    int u, low;

    if (s.len - off < 2) {
        *ret_what = "the text ends inside a string";
        return 0;
    }
    if (s.ptr[off + 1] != 'u') {
        /* memchr and not strchr: a NUL byte must not match the terminator. */
        if (memchr("\"\\/bfnrt", s.ptr[off + 1], 8))
            return 2;
        *ret_what = "a backslash starts no known escape";
        return 0;
    }
    u = unicode_escape(s, off);
    if (u < 0) {
        *ret_what = "\\u needs four hexadecimal digits";
        return 0;
    }
    low = is_high_surrogate(u) ? unicode_escape(s, off + ESCAPE_LEN) : -1;
    if (is_low_surrogate(low))
        return ESCAPE_LEN + ESCAPE_LEN;
    if (strict && (is_high_surrogate(u) || is_low_surrogate(u))) {
        *ret_what = "an unpaired surrogate escape";
        return 0;
    }
    return ESCAPE_LEN;
}

struct mg_json_token mg_json_scan_string(struct mg_sv s, size_t off, bool strict)
{
    struct mg_json_token t = {.end = off + 1};

    for (;;) {
        size_t n;

        t.end = mg_json_plain_end(s, t.end);
        if (t.end >= s.len) {
            t.what = "the text ends inside a string";
            return t;
        }
        unsigned char c = (unsigned char)s.ptr[t.end];
        if (c == '"') {
            t.end++;
            return t;
        }
        if (c == '\\') {
            t.escaped = true;
            n = escape_len(s, t.end, strict, &t.what);
        } else if (c & 0x80) {
            n = mg_utf8_char(mg_sv_from(s, t.end));
            t.what = n ? NULL : "a byte that is not UTF-8";
        } else {
            n = 0;
            t.what = c == '\n' ? "a line feed inside a string has to be written as \\n"
                               : "a control character inside a string has to be escaped";
        }
        if (!n)
            return t;
        t.end += n;
    }
}

static size_t put_utf8(char *o, uint32_t u)
{
    if (u < 0x80) {
        o[0] = (char)u;
        return 1;
    }
    if (u < 0x800) {
        o[0] = (char)(0xc0 | u >> 6);
        o[1] = (char)(0x80 | (u & 63));
        return 2;
    }
    if (u < 0x10000) {
        o[0] = (char)(0xe0 | u >> 12);
        o[1] = (char)(0x80 | (u >> 6 & 63));
        o[2] = (char)(0x80 | (u & 63));
        return 3;
    }
    o[0] = (char)(0xf0 | u >> 18);
    o[1] = (char)(0x80 | (u >> 12 & 63));
    o[2] = (char)(0x80 | (u >> 6 & 63));
    o[3] = (char)(0x80 | (u & 63));
    return 4;
}

static char short_escape(char c)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *hit = memchr(from, c, sizeof(from) - 1);

    return hit ? to[hit - from] : c;
}

struct mg_sv mg_json_decode(struct mg_arena *a, struct mg_sv inside, bool escaped)
{
    if (!escaped)
        return inside;
    /* No escape is shorter than what it stands for. */
    char *out = mg_arena_alloc(a, inside.len + 1), *o = out;

    for (size_t i = 0; i < inside.len;) {
        const char *slash = memchr(inside.ptr + i, '\\', inside.len - i);
        size_t run = slash ? (size_t)(slash - inside.ptr) - i : inside.len - i;
        memcpy(o, inside.ptr + i, run);
        o += run;
        i += run;
        if (!slash)
            break;
        int u = unicode_escape(inside, i);
        if (u < 0) {
            *o++ = short_escape(inside.ptr[i + 1]);
            i += 2;
            continue;
        }
        i += ESCAPE_LEN;
        int low = is_high_surrogate(u) ? unicode_escape(inside, i) : -1;
        if (is_low_surrogate(low)) {
            i += ESCAPE_LEN;
            u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
        } else if (is_high_surrogate(u) || is_low_surrogate(u)) {
            u = 0xfffd;
        }
        o += put_utf8(o, (uint32_t)u);
    }
    return mg_sv_n(out, (size_t)(o - out));
}
