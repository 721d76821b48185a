/* UTF-8 by the table of RFC 3629, section 4: the second byte decides over-long forms, surrogates and the upper end. */
#include "base/utf8.h"

enum { UTF8_MAX_BYTES = 4 };

static bool is_tail(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/* Length that the first byte announces; 0 when no character starts with it. */
static size_t announced(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xc2)
        return 0;
    if (c < 0xe0)
        return 2;
    if (c < 0xf0)
        return 3;

    return c < 0xf5 ? 4 : 0;
}

static bool second_fits(unsigned char first, unsigned char second)
{
    unsigned char low = 0x80, high = 0xbf;

    if (first == 0xe0)
        low = 0xa0; /* over-long */
    else if (first == 0xed)
        high = 0x9f; /* surrogates */
    else if (first == 0xf0)
        low = 0x90; /* over-long */
    else if (first == 0xf4)
        high = 0x8f; /* past U+10FFFF */

    return second >= low && second <= high;
}

/* Length of the prefix of one character that is right so far, *ret_whole when it is all of it. */
static size_t good_bytes(const unsigned char *p, size_t left, bool *ret_whole)
{
    size_t want = announced(p[0]), n = 1;

    *ret_whole = want == 1;
    if (want == 0)
        return 0;
    if (want == 1)
        return 1;
    if (left < 2 || !second_fits(p[0], p[1]))
        return 1; /* a first byte alone */
    for (n = 2; n < want; n++)
        if (n >= left || !is_tail(p[n]))
            return n;
    *ret_whole = true;
    return want;
}

size_t mg_utf8_char(struct mg_sv s)
{
    bool whole = false;
    size_t n = s.len ? good_bytes((const unsigned char *)s.ptr, s.len, &whole) : 0;

    return whole ? n : 0;
}

/* Offset of the first byte at or after i that is not ASCII; eight at a time. */
static size_t skip_ascii(struct mg_sv s, size_t i)
{
    uint64_t word;

    while (s.len - i >= sizeof(word)) {
        memcpy(&word, s.ptr + i, sizeof(word));
        if (word & UINT64_C(0x8080808080808080))
            break;
        i += sizeof(word);
    }
    while (i < s.len && !((unsigned char)s.ptr[i] & 0x80))
        i++;

    return i;
}

bool mg_utf8_valid(struct mg_sv s, size_t *ret_off)
{
    size_t i = skip_ascii(s, 0);

    while (i < s.len) {
        size_t n = mg_utf8_char(mg_sv_from(s, i));
        if (!n) {
            if (ret_off)
                *ret_off = i;
            return false;
        }
        i += n;
        if (i < s.len && !((unsigned char)s.ptr[i] & 0x80))
            i = skip_ascii(s, i);
    }

    return true;
}

/* The first byte of the character that off lies inside of, *ret_end its end; off itself when it lies in none. */
static size_t char_around(struct mg_sv s, size_t off, size_t *ret_end)
{
    *ret_end = off;
    if (!is_tail((unsigned char)s.ptr[off]))
        return off;
    for (size_t back = 1; back < UTF8_MAX_BYTES && back <= off; back++) {
        size_t start = off - back;
        if (is_tail((unsigned char)s.ptr[start]))
            continue;
        size_t n = mg_utf8_char(mg_sv_from(s, start));
        if (n <= back)
            break; /* a stray byte behind something else */
        *ret_end = start + n;
        return start;
    }

    return off;
}

size_t mg_utf8_floor(struct mg_sv s, size_t max)
{
    size_t end;

    return s.len <= max ? s.len : char_around(s, max, &end);
}

size_t mg_utf8_ceil(struct mg_sv s, size_t off)
{
    size_t end;

    if (off >= s.len)
        return s.len;
    (void)char_around(s, off, &end);
    return end;
}

size_t mg_utf8_whole(struct mg_sv s)
{
    for (size_t back = 1; back < UTF8_MAX_BYTES && back <= s.len; back++) {
        const unsigned char *p = (const unsigned char *)s.ptr + s.len - back;
        bool whole;
        if (is_tail(*p))
            continue;
        /* Cut off only if all that is there is right so far. */
        return good_bytes(p, back, &whole) == back && !whole ? s.len - back : s.len;
    }

    return s.len;
}

mg_rc mg_utf8_clean(struct mg_buf *out, struct mg_sv s)
{
    static const struct mg_sv replacement = {"\xef\xbf\xbd", 3};
    size_t kept = 0, i = 0;

    while (i < s.len) {
        size_t n = mg_utf8_char(mg_sv_from(s, i));
        if (n) {
            i += n;
            continue;
        }
        (void)mg_buf_append(out, s.ptr + kept, i - kept);
        (void)mg_buf_sv(out, replacement);
        kept = ++i;
    }
    if (i > kept)
        (void)mg_buf_append(out, s.ptr + kept, i - kept);

    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
