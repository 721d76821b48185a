#include "common/json.h"

#include <stdlib.h>
#include <string.h>

struct scan {
    const char *at, *end;
};

static void blanks(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_digit(const struct scan *s)
{
    return s->at < s->end && *s->at >= '0' && *s->at <= '9';
}

static bool skip_escape(struct scan *s)
{
    if (s->at == s->end || !strchr("\"\\/bfnrtu", *s->at) || *s->at == '\0')
        return false;
    if (*s->at++ != 'u')
        return true;
    for (int i = 0; i < 4; i++) {
        if (s->at == s->end || !is_hex(*s->at++))
            return false;
    }
    return true;
}

static bool skip_string(struct scan *s)
{
    if (s->at == s->end || *s->at++ != '"')
        return false;
    while (s->at < s->end) {
        unsigned char c = (unsigned char)*s->at++;
        if (c == '"')
            return true;
        if (c < 0x20 || (c == '\\' && !skip_escape(s)))
            return false;
    }
    return false;
}

static bool digits(struct scan *s)
{
    if (!is_digit(s))
        return false;
    while (is_digit(s))
        s->at++;
    return true;
}

static bool skip_number(struct scan *s)
{
    if (s->at < s->end && *s->at == '-')
        s->at++;
    if (s->at < s->end && *s->at == '0')
        s->at++;
    else if (!digits(s))
        return false;
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!digits(s))
            return false;
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        return digits(s);
    }
    return true;
}

static bool skip_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool skip_value(struct scan *s, int depth);

/* Behind the opening bracket. */
static bool skip_members(struct scan *s, char close, int depth)
{
    blanks(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        return true;
    }
    while (s->at < s->end) {
        blanks(s);
        if (close == '}') {
            if (!skip_string(s))
                return false;
            blanks(s);
            if (s->at == s->end || *s->at++ != ':')
                return false;
        }
        if (!skip_value(s, depth))
            return false;
        blanks(s);
        if (s->at == s->end)
            return false;
        char c = *s->at++;
        if (c == close)
            return true;
        if (c != ',')
            return false;
    }
    return false;
}

static bool skip_value(struct scan *s, int depth)
{
    blanks(s);
    if (s->at == s->end || depth == JSON_DEPTH_MAX)
        return false;
    switch (*s->at) {
    case '{':
        s->at++;
        return skip_members(s, '}', depth + 1);
    case '[':
        s->at++;
        return skip_members(s, ']', depth + 1);
    case '"':
        return skip_string(s);
    case 't':
        return skip_word(s, "true");
    case 'f':
        return skip_word(s, "false");
    case 'n':
        return skip_word(s, "null");
    default:
        return skip_number(s);
    }
}

bool json_valid(struct mango_sv text)
{
    struct scan s = {text.ptr, text.ptr + text.len};
    if (!text.ptr || !skip_value(&s, 0))
        return false;
    blanks(&s);
    return s.at == s.end;
}

char json_kind(struct mango_sv value)
{
    struct scan s = {value.ptr, value.ptr + value.len};
    if (value.len == 0)
        return 0;
    blanks(&s);
    if (s.at == s.end)
        return 0;
    return strchr("{[\"tfn", *s.at) ? *s.at : '0';
}

bool json_next(struct mango_sv value, uint64_t *pos, struct mango_sv *name, struct mango_sv *ret)
{
    struct scan s = {value.ptr + *pos, value.ptr + value.len};
    char kind = json_kind(value);
    if (kind != '{' && kind != '[')
        return false;
    if (*pos == 0) {
        blanks(&s);
        s.at++;
    }
    blanks(&s);
    if (s.at < s.end && *s.at == ',')
        s.at++;
    blanks(&s);
    if (s.at == s.end || *s.at == ']' || *s.at == '}')
        return false;
    const char *from = s.at;
    if (kind == '{') {
        if (!skip_string(&s))
            return false;
        if (name)
            *name = (struct mango_sv){from, (uint64_t)(s.at - from)};
        blanks(&s);
        if (s.at == s.end || *s.at++ != ':')
            return false;
        blanks(&s);
        from = s.at;
    }
    if (!skip_value(&s, 0))
        return false;
    *ret = (struct mango_sv){from, (uint64_t)(s.at - from)};
    *pos = (uint64_t)(s.at - value.ptr);
    return true;
}

static struct mango_sv member(struct mango_sv value, const char *name, uint64_t len)
{
    struct mango_sv found = {0}, key, item;
    if (json_kind(value) != '{')
        return found;
    for (uint64_t pos = 0; json_next(value, &pos, &key, &item);) {
        text_auto struct text plain = {0};
        if (json_text(key, &plain) && plain.len == len && memcmp(text_view(&plain).ptr, name, len) == 0)
            found = item;
    }
    return found;
}

struct mango_sv json_get(struct mango_sv value, const char *path)
{
    while (*path && value.len > 0) {
        uint64_t n = strcspn(path, "/");
        value = member(value, path, n);
        path += n + (path[n] == '/');
    }
    return value;
}

static unsigned unit_at(const char *p)
{
    char hex[5] = {p[0], p[1], p[2], p[3], '\0'};
    return (unsigned)strtoul(hex, NULL, 16);
}

static void put_utf8(struct text *out, unsigned c)
{
    char b[4];
    unsigned n = 0;
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xC0 | c >> 6);
        b[n++] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        b[n++] = (char)(0xE0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 63));
        b[n++] = (char)(0x80 | (c & 63));
    } else {
        b[n++] = (char)(0xF0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 63));
        b[n++] = (char)(0x80 | (c >> 6 & 63));
        b[n++] = (char)(0x80 | (c & 63));
    }
    text_bytes(out, b, n);
}

/* Behind the 'u'; returns how many characters it took. */
static int put_unit(struct text *out, const char *p, const char *end)
{
    unsigned c = unit_at(p);
    if (c >= 0xD800 && c < 0xDC00 && end - p >= 10 && p[4] == '\\' && p[5] == 'u') {
        unsigned low = unit_at(p + 6);
        if (low >= 0xDC00 && low < 0xE000) {
            put_utf8(out, 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00));
            return 10;
        }
    }
    put_utf8(out, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
    return 4;
}

bool json_text(struct mango_sv value, struct text *out)
{
    if (json_kind(value) != '"')
        return false;
    struct scan s = {value.ptr, value.ptr + value.len};
    blanks(&s);
    const char *end = s.end - 1; /* the closing quote */
    while (end > s.at && *end != '"')
        end--;
    for (const char *p = s.at + 1; p < end; p++) {
        if (*p != '\\') {
            text_bytes(out, p, 1);
            continue;
        }
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *e = strchr(from, *++p);
        if (*p == 'u')
            p += put_unit(out, p + 1, end);
        else if (e && *e)
            text_bytes(out, &to[e - from], 1);
    }
    return !out->bad;
}

bool json_copy(struct mango_sv value, const char *path, char *out, uint64_t size)
{
    text_auto struct text t = {0};
    out[0] = '\0';
    if (!json_text(json_get(value, path), &t) || t.len >= size || (t.len && memchr(t.ptr, '\0', t.len)))
        return false;
    memcpy(out, text_view(&t).ptr, t.len);
    out[t.len] = '\0';
    return true;
}

bool json_is(struct mango_sv value, const char *path, const char *text)
{
    text_auto struct text t = {0};
    return json_text(json_get(value, path), &t) && t.len == strlen(text) && memcmp(text_view(&t).ptr, text, t.len) == 0;
}

bool json_true(struct mango_sv value, const char *path)
{
    return json_kind(json_get(value, path)) == 't';
}

bool json_int(struct mango_sv value, const char *path, int64_t *ret)
{
    struct mango_sv v = json_get(value, path);
    char text[32], *end;
    if (json_kind(v) != '0' || v.len >= sizeof(text))
        return false;
    memcpy(text, v.ptr, v.len);
    text[v.len] = '\0';
    long long n = strtoll(text, &end, 10);
    if (*end != '\0' || v.len > 19) /* every integer of 18 digits and a sign fits */
        return false;
    *ret = n;
    return true;
}
