#include <stdarg.h>
#include <string.h>

#include "base/utf8.h"
#include "cmd/cli.h"

int mg_cli_fail(const char *fmt, ...)
{
    va_list ap;

    fputs("mango: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return MG_CLI_ERROR;
}

int mg_cli_usage(const struct mg_cli *c, const char *fmt, ...)
{
    va_list ap;

    fputs("mango: ", stderr);
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nSee: mango %s --help\n", c->command->path);
    return MG_CLI_USAGE;
}

/* Length of the string token at s.ptr[0] == '"'. */
static size_t string_len(struct mg_sv s)
{
    size_t i = 1;

    while (i < s.len && s.ptr[i] != '"')
        i += s.ptr[i] == '\\' ? 2 : 1;
    return i < s.len ? i + 1 : s.len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void mg_cli_compact(struct mg_buf *out, struct mg_sv json)
{
    while (json.len) {
        size_t n = json.ptr[0] == '"' ? string_len(json) : 1;
        if (!is_blank(json.ptr[0]))
            mg_buf_append(out, json.ptr, n);
        json = mg_sv_from(json, n);
    }
}

static void new_line(struct mg_buf *out, int depth)
{
    mg_buf_char(out, '\n');
    for (int i = 0; i < depth; i++)
        mg_buf_str(out, "  ");
}

static char next_token(struct mg_sv s)
{
    while (s.len && is_blank(s.ptr[0]))
        s = mg_sv_from(s, 1);
    return s.len ? s.ptr[0] : '\0';
}

void mg_cli_pretty(struct mg_buf *out, struct mg_sv json)
{
    int depth = 0;

    while (json.len) {
        char c = json.ptr[0];
        size_t n = c == '"' ? string_len(json) : 1;
        struct mg_sv rest = mg_sv_from(json, n);
        bool close = c == '}' || c == ']', open = c == '{' || c == '[';
        if (close && depth > 0)
            new_line(out, --depth);
        if (!is_blank(c))
            mg_buf_append(out, json.ptr, n);
        char next = open ? next_token(rest) : '\0';
        if (open && (next == '}' || next == ']')) { /* stays on the line */
            while (is_blank(rest.ptr[0]))
                rest = mg_sv_from(rest, 1);
            mg_buf_char(out, next);
            rest = mg_sv_from(rest, 1);
        } else if (open) {
            new_line(out, ++depth);
        } else if (c == ',') {
            new_line(out, depth);
        } else if (c == ':') {
            mg_buf_char(out, ' ');
        }
        json = rest;
    }
}

void mg_cli_print(const struct mg_cli *c, struct mg_sv json)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT((size_t)MG_CLI_BODY_MAX * 4);

    if (c->text)
        mg_cli_pretty(&out, json);
    else
        mg_cli_compact(&out, json);
    mg_buf_char(&out, '\n');
    if (mg_buf_ok(&out))
        (void)fwrite(out.ptr, 1, out.len, stdout);
    (void)fflush(stdout);
}

/* C0, DEL, C1 (C2 80 to C2 9F) and the characters that turn the direction of a line. */
static bool is_unsafe(struct mg_sv ch, bool lines)
{
    unsigned char a = (unsigned char)ch.ptr[0], b = ch.len > 1 ? (unsigned char)ch.ptr[1] : 0,
                  d = ch.len > 2 ? (unsigned char)ch.ptr[2] : 0;

    if (ch.len == 1)
        return (a < 0x20 && !(lines && (a == '\n' || a == '\t'))) || a == 0x7F;
    if (ch.len == 2)
        return a == 0xC2 && b < 0xA0;
    return ch.len == 3 && a == 0xE2 && ((b == 0x80 && d >= 0xAA && d <= 0xAE) || (b == 0x81 && d >= 0xA6 && d <= 0xA9));
}

void mg_cli_clean(struct mg_buf *out, struct mg_sv text, bool lines)
{
    while (text.len) {
        size_t n = mg_utf8_char(text);
        struct mg_sv ch = mg_sv_n(text.ptr, n ? n : 1);
        if (n && !is_unsafe(ch, lines))
            mg_buf_sv(out, ch);
        else
            mg_buf_str(out, "\xEF\xBF\xBD");
        text = mg_sv_from(text, ch.len);
    }
}

void mg_cli_made(const struct mg_cli *c, const char *kind, const char *id, const char *member, const char *secret,
                 const char *about)
{
    if (!c->text) {
        printf("{\"id\":\"%s\",\"%s\":\"%s\"}\n", id, member, secret);
        return;
    }
    printf("%s\n", secret);
    fprintf(stderr, "mango: made %s %s. %s\n", kind, id, about);
}

void mg_cli_rows(const struct mg_cli *c, const char *titles, const void *rows, size_t size, int n,
                 void (*print)(const struct mg_cli *c, const void *row))
{
    if (c->text)
        puts(n ? titles : "(none)");
    for (int i = 0; i < n; i++)
        print(c, (const char *)rows + (size_t)i * size);
}
