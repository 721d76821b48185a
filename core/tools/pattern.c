#include "tools/pattern.h"

#include "base/utf8.h"

/* ---- choices ---- */

/* The end of the choice list that opens at s[at] ('{'), or s.len. Backslash and nesting are honoured. */
static size_t brace_end(struct mg_sv s, size_t at)
{
    int depth = 0;

    for (size_t i = at; i < s.len; i++) {
        if (s.ptr[i] == '\\')
            i++;
        else if (s.ptr[i] == '{')
            depth++;
        else if (s.ptr[i] == '}' && --depth == 0)
            return i;
    }
    return s.len;
}

static size_t find_brace(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\\')
            i++;
        else if (s.ptr[i] == '{')
            return i;
    }
    return s.len;
}

/* Length of the first choice of inner, up to a comma that stands in no deeper brace. */
static size_t first_choice(struct mg_sv inner)
{
    int depth = 0;

    for (size_t i = 0; i < inner.len; i++) {
        char c = inner.ptr[i];
        if (c == '\\')
            i++;
        else if (c == '{')
            depth++;
        else if (c == '}')
            depth--;
        else if (c == ',' && depth == 0)
            return i;
    }
    return inner.len;
}

/* Writes the choices of the first braces out and goes on with each. Every call takes one pair of braces away. */
static mg_rc expand(struct mg_arena *a, struct mg_sv s, struct mg_pattern *ret, struct mg_err *err)
{
    size_t open = find_brace(s);

    if (open == s.len) {
        if (ret->n == MG_PATTERN_CHOICES)
            return mg_err_set(err, MG_EINVAL, "pattern: the choices in braces give more than %d patterns; use fewer",
                              MG_PATTERN_CHOICES);
        ret->choice[ret->n++] = s;
        return MG_OK;
    }
    size_t close = brace_end(s, open);
    if (close == s.len)
        return mg_err_set(err, MG_EINVAL, "pattern: a { has no }; write \\{ for the character itself");
    struct mg_sv inner = mg_sv_n(s.ptr + open + 1, close - open - 1), rest = mg_sv_from(s, close + 1);
    for (;;) {
        size_t n = first_choice(inner);
        struct mg_sv one = mg_arena_printf(a, "%.*s%.*s%.*s", (int)open, s.ptr, (int)n, inner.ptr, MG_SV_ARG(rest));
        mg_rc rc = expand(a, one, ret, err);
        if (rc < 0 || n == inner.len)
            return rc;
        inner = mg_sv_from(inner, n + 1);
    }
}

/* ---- parse ---- */

static mg_rc check_choice(struct mg_sv s, struct mg_err *err)
{
    int names = 0;

    if (s.len && s.ptr[0] == '/')
        return mg_err_set(err, MG_EINVAL,
                          "pattern must not start with /: give the folder as path and the pattern relative to it");
    while (s.len) {
        struct mg_sv name = mg_sv_split(&s, '/');
        if (mg_sv_eqz(name, ".."))
            return mg_err_set(err, MG_EINVAL, "pattern must not contain \"..\": give the folder as path");
        if (++names > MG_PATTERN_NAMES)
            return mg_err_set(err, MG_EINVAL, "pattern has more than %d parts between slashes", MG_PATTERN_NAMES);
    }
    return MG_OK;
}

mg_rc mg_pattern_parse(struct mg_arena *a, struct mg_sv text, struct mg_pattern *ret, struct mg_err *err)
{
    *ret = (struct mg_pattern){.n = 0};
    if (text.len == 0 || mg_sv_find(text, '\0') < text.len)
        return mg_err_set(err, MG_EINVAL, "pattern must not be %s",
                          text.len ? "a text with NUL characters" : "empty: **/* finds every file");
    if (text.len > MG_PATTERN_MAX)
        return mg_err_set(err, MG_EINVAL, "pattern has %zu bytes: at most %d are allowed", text.len, MG_PATTERN_MAX);
    while (mg_sv_starts(text, "./"))
        text = mg_sv_from(text, 2);
    if (text.len > 1 && text.ptr[text.len - 1] == '/') {
        ret->folders = true;
        text.len--;
    }
    mg_rc rc = expand(a, text, ret, err);
    for (int i = 0; rc == MG_OK && i < ret->n; i++)
        rc = check_choice(ret->choice[i], err);
    return rc;
}

/* ---- match ---- */

static size_t char_len(struct mg_sv s)
{
    size_t n = mg_utf8_char(s);

    return n ? n : 1;
}

static uint32_t char_code(struct mg_sv s, size_t n)
{
    uint32_t code = 0;

    for (size_t i = 0; i < n; i++)
        code = code << 8 | (unsigned char)s.ptr[i];
    return code; /* UTF-8 bytes in order sort like the characters */
}

/* A class at the start of p ("[...]"): bytes that it takes, or 0 when it is no class; *ret_hit tells whether the character c is in it. */
static size_t class_match(struct mg_sv p, uint32_t c, bool *ret_hit)
{
    bool negated = p.len > 1 && (p.ptr[1] == '!' || p.ptr[1] == '^'), hit = false;
    size_t start = negated ? 2 : 1;

    for (size_t i = start; i < p.len;) {
        if (p.ptr[i] == ']' && i > start) {
            *ret_hit = hit != negated;
            return i + 1;
        }
        if (p.ptr[i] == '\\' && i + 1 < p.len)
            i++;
        size_t n = char_len(mg_sv_from(p, i));
        uint32_t low = char_code(mg_sv_from(p, i), n), high = low;
        i += n;
        if (i + 1 < p.len && p.ptr[i] == '-' && p.ptr[i + 1] != ']') {
            n = char_len(mg_sv_from(p, i + 1));
            high = char_code(mg_sv_from(p, i + 1), n);
            i += 1 + n;
        }
        hit = hit || (c >= low && c <= high);
    }
    return 0;
}

/* One element of p other than '*' against the character at s: bytes of p that it takes, or 0 when they differ. */
static size_t element(struct mg_sv p, struct mg_sv s, size_t n)
{
    bool hit = false;

    if (p.ptr[0] == '?')
        return 1;
    if (p.ptr[0] == '[') {
        size_t took = class_match(p, char_code(s, n), &hit);
        if (took)
            return hit ? took : 0;
    }
    size_t skip = p.ptr[0] == '\\' && p.len > 1;
    p = mg_sv_from(p, skip);
    return p.len >= n && memcmp(p.ptr, s.ptr, n) == 0 ? n + skip : 0;
}

/* One name against one part; only the last star is ever tried again, so the time is bounded by the product of the lengths. */
static bool name_match(struct mg_sv p, struct mg_sv s)
{
    struct mg_sv star_p = {0}, star_s = {0};
    bool star = false;

    for (;;) {
        if (p.len && p.ptr[0] == '*') {
            star = true;
            p = star_p = mg_sv_from(p, 1);
            star_s = s;
            continue;
        }
        if (!p.len && !s.len)
            return true;
        size_t n = s.len ? char_len(s) : 0, took = s.len && p.len ? element(p, s, n) : 0;
        if (took) {
            p = mg_sv_from(p, took);
            s = mg_sv_from(s, n);
            continue;
        }
        if (!star || !star_s.len)
            return false;
        p = star_p;
        s = star_s = mg_sv_from(star_s, char_len(star_s));
    }
}

/* Parts against names: the same walk, with ** in the place of the star. */
static bool path_match(struct mg_sv p, struct mg_sv s)
{
    struct mg_sv star_p = {0}, star_s = {0};
    bool star = false;

    for (;;) {
        struct mg_sv rest_p = p, rest_s = s;
        struct mg_sv part = mg_sv_split(&rest_p, '/'), name = mg_sv_split(&rest_s, '/');
        if (p.len && mg_sv_eqz(part, "**")) {
            if (!rest_p.len)
                return s.len > 0; /* at the end it stands for at least one name */
            star = true;
            p = star_p = rest_p;
            star_s = s;
            continue;
        }
        if (!p.len && !s.len)
            return true;
        if (p.len && s.len && name_match(part, name)) {
            p = rest_p;
            s = rest_s;
            continue;
        }
        if (!star || !star_s.len)
            return false;
        (void)mg_sv_split(&star_s, '/');
        p = star_p;
        s = star_s;
    }
}

bool mg_pattern_match(const struct mg_pattern *p, struct mg_sv path)
{
    for (int i = 0; i < p->n; i++)
        if (path_match(p->choice[i], path))
            return true;
    return false;
}

int mg_pattern_depth(const struct mg_pattern *p)
{
    int deepest = 0;

    for (int i = 0; i < p->n; i++) {
        struct mg_sv s = p->choice[i];
        int depth = 0;
        for (; s.len; depth++)
            if (mg_sv_eqz(mg_sv_split(&s, '/'), "**"))
                return 0;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

static bool is_plain(struct mg_sv name)
{
    for (size_t i = 0; i < name.len; i++)
        if (strchr("*?[\\", name.ptr[i]))
            return false;
    return name.len > 0 && !mg_sv_eqz(name, ".");
}

struct mg_sv mg_pattern_prefix(const struct mg_pattern *p)
{
    struct mg_sv s = p->choice[0];
    size_t n = 0;

    if (p->n != 1)
        return MG_SV("");
    for (;;) {
        struct mg_sv name = mg_sv_split(&s, '/');
        if (!s.len || !is_plain(name))
            break;
        n = (size_t)(name.ptr + name.len - p->choice[0].ptr);
    }
    return mg_sv_n(p->choice[0].ptr, n);
}
