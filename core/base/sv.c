/* String views: what is too long for the header. */
#include "base/sv.h"

static unsigned char ascii_lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
}

static bool ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool mg_sv_eq_nocase(struct mg_sv a, struct mg_sv b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (ascii_lower((unsigned char)a.ptr[i]) != ascii_lower((unsigned char)b.ptr[i]))
            return false;

    return true;
}

size_t mg_sv_find(struct mg_sv s, char c)
{
    const char *hit = s.len ? memchr(s.ptr, c, s.len) : NULL;

    return hit ? (size_t)(hit - s.ptr) : s.len;
}

struct mg_sv mg_sv_trim(struct mg_sv s)
{
    while (s.len && ascii_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len && ascii_space(s.ptr[s.len - 1]))
        s.len--;

    return s;
}

struct mg_sv mg_sv_split(struct mg_sv *s, char sep)
{
    size_t at = mg_sv_find(*s, sep);
    struct mg_sv head = mg_sv_n(s->ptr, at);

    *s = at < s->len ? mg_sv_n(s->ptr + at + 1, s->len - at - 1) : mg_sv_n(s->ptr + s->len, 0);
    return head;
}

/* Without isalnum: the locale has no say in it. */
static bool token_char(unsigned char c)
{
    unsigned char lower = ascii_lower(c);

    return (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool mg_sv_is_token(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!token_char((unsigned char)s.ptr[i]))
            return false;

    return s.len > 0;
}

bool mg_sv_to_i64(struct mg_sv s, int64_t *ret)
{
    bool negative = s.len && s.ptr[0] == '-';
    int64_t v = 0; /* kept negative: INT64_MIN has no positive twin */

    if (negative)
        s = mg_sv_from(s, 1);
    if (!s.len)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, s.ptr[i] - '0', &v))
            return false;
    }
    if (!negative && v == INT64_MIN)
        return false;
    *ret = negative ? v : -v;
    return true;
}

int mg_sv_index(struct mg_sv s, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (mg_sv_eqz(s, names[i]))
            return i;
    return 0;
}
