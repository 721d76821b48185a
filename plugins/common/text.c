#include "common/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool room(struct text *t, uint64_t n)
{
    if (t->bad || n > TEXT_MAX || t->len + n + 1 > TEXT_MAX) {
        t->bad = true;
        return false;
    }
    if (t->len + n + 1 <= t->cap)
        return true;
    uint64_t cap = t->cap ? t->cap : 128;
    while (cap < t->len + n + 1)
        cap *= 2;
    char *bigger = realloc(t->ptr, cap);
    if (!bigger) {
        t->bad = true;
        return false;
    }
    t->ptr = bigger;
    t->cap = cap;
    return true;
}

void text_bytes(struct text *t, const char *p, uint64_t n)
{
    if (!room(t, n))
        return;
    if (n)
        memcpy(t->ptr + t->len, p, n);
    t->len += n;
    t->ptr[t->len] = '\0';
}

void text_add(struct text *t, const char *z)
{
    text_bytes(t, z, strlen(z));
}

void text_sv(struct text *t, struct mango_sv s)
{
    text_bytes(t, s.ptr, s.len);
}

void text_printf(struct text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        t->bad = true;
    else if (room(t, (uint64_t)n)) {
        vsnprintf(t->ptr + t->len, (size_t)n + 1, fmt, again);
        t->len += (uint64_t)n;
    }
    va_end(again);
}

/* Length of the valid UTF-8 character at p, or 0. */
static unsigned char_at(const char *p, uint64_t n)
{
    const unsigned char *c = (const unsigned char *)p;
    unsigned len = c[0] < 0x80                    ? 1
                   : c[0] >= 0xC2 && c[0] <= 0xDF ? 2
                   : (c[0] & 0xF0) == 0xE0        ? 3
                   : c[0] >= 0xF0 && c[0] <= 0xF4 ? 4
                                                  : 0;
    if (len == 0 || len > n)
        return 0;
    for (unsigned i = 1; i < len; i++) {
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] >= 0xA0) || (c[0] == 0xF0 && c[1] < 0x90) ||
        (c[0] == 0xF4 && c[1] >= 0x90))
        return 0;
    return len;
}

void text_json(struct text *t, struct mango_sv s)
{
    text_add(t, "\"");
    for (uint64_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.ptr[i];
        unsigned len = char_at(s.ptr + i, s.len - i);
        if (c == '"' || c == '\\')
            text_printf(t, "\\%c", c);
        else if (c < 0x20)
            text_printf(t, "\\u%04x", c);
        else if (len == 0)
            text_add(t, "\xEF\xBF\xBD");
        else
            text_bytes(t, s.ptr + i, len);
        i += len ? len : 1;
    }
    text_add(t, "\"");
}

void text_jsonz(struct text *t, const char *z)
{
    text_json(t, sv_z(z));
}

void text_url(struct text *t, struct mango_sv s)
{
    for (uint64_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~';
        if (plain)
            text_bytes(t, s.ptr + i, 1);
        else
            text_printf(t, "%%%02X", c);
    }
}

void text_base64(struct text *t, struct mango_sv s, bool url_safe)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *digits = url_safe ? safe : plain;
    for (uint64_t i = 0; i < s.len; i += 3) {
        uint64_t left = s.len - i;
        const unsigned char *p = (const unsigned char *)s.ptr + i;
        uint32_t v = (uint32_t)p[0] << 16 | (left > 1 ? (uint32_t)p[1] << 8 : 0) | (left > 2 ? p[2] : 0);
        char out[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                       left > 2 ? digits[v & 63] : '='};
        text_bytes(t, out, 4);
    }
}

struct mango_sv text_view(const struct text *t)
{
    return (struct mango_sv){t->ptr ? t->ptr : "", t->len};
}

void text_free(struct text *t)
{
    free(t->ptr);
    *t = (struct text){0};
}
