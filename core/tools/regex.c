#include "tools/regex.h"

/* Escapes outside of brackets; GNU and busybox know \w \W \s \S \b \B \< \> themselves. */
static const char *outside(char c)
{
    switch (c) {
    case 'd':
        return "[0-9]";
    case 'D':
        return "[^0-9]";
    case 't':
        return "\t";
    default:
        return NULL;
    }
}

static const char *inside(char c)
{
    switch (c) {
    case 'd':
        return "0-9";
    case 'w':
        return "[:alnum:]_";
    case 's':
        return "[:space:]";
    case 't':
        return "\t";
    default:
        return NULL;
    }
}

/* A bracket expression from s.ptr[0] == '[': appends it and returns its length. POSIX takes a backslash in it as itself. A closing bracket that was
 * escaped and a minus that was escaped go to the places where POSIX takes them as they are: first and last. */
static size_t bracket(struct mg_buf *out, struct mg_sv s)
{
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(s.len * 12 + 1);
    bool close = false, minus = false;
    size_t i = 1;

    mg_buf_char(out, '[');
    if (i < s.len && s.ptr[i] == '^')
        mg_buf_char(out, s.ptr[i++]);
    for (size_t start = i; i < s.len && (s.ptr[i] != ']' || i == start); i++) {
        if (s.ptr[i] == ']') {
            close = true;
        } else if (s.ptr[i] == '[' && i + 1 < s.len && strchr(":.=", s.ptr[i + 1])) {
            char end[2] = {s.ptr[i + 1], ']'};
            const char *p = memmem(s.ptr + i + 2, s.len - i - 2, end, 2);
            size_t n = p ? (size_t)(p + 2 - (s.ptr + i)) : 1;
            mg_buf_append(&body, s.ptr + i, n);
            i += n - 1;
        } else if (s.ptr[i] == '\\' && i + 1 < s.len) {
            char c = s.ptr[++i];
            if (inside(c))
                mg_buf_str(&body, inside(c));
            else if (c == ']' || c == '-')
                *(c == ']' ? &close : &minus) = true;
            else
                mg_buf_char(&body, c);
        } else {
            mg_buf_char(&body, s.ptr[i]);
        }
    }
    if (close)
        mg_buf_char(out, ']');
    mg_buf_sv(out, mg_buf_view(&body));
    if (minus)
        mg_buf_char(out, '-');
    if (i < s.len)
        mg_buf_char(out, ']');
    return i < s.len ? i + 1 : i;
}

mg_rc mg_regex_to_posix(struct mg_buf *out, struct mg_sv p, bool *ret_ignore_case)
{
    *ret_ignore_case = mg_sv_starts(p, "(?i)");
    if (*ret_ignore_case)
        p = mg_sv_from(p, 4);
    while (p.len) {
        size_t n = 1;
        if (p.ptr[0] == '[') {
            n = bracket(out, p);
        } else if (p.ptr[0] == '\\' && p.len > 1) {
            n = 2;
            if (outside(p.ptr[1]))
                mg_buf_str(out, outside(p.ptr[1]));
            else
                mg_buf_append(out, p.ptr, 2);
        } else if (mg_sv_starts(p, "(?:")) {
            n = 3;
            mg_buf_char(out, '(');
        } else {
            mg_buf_char(out, p.ptr[0]);
        }
        p = mg_sv_from(p, n);
    }
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
