/* Log lines.
 *
 * Concurrency: a line is built on the caller's stack and leaves by one write(2), so lines of threads do not mix (the
 * kernel keeps a write to a pipe whole up to 4,096 bytes, to a file or journal always). Level and form are atomics. */
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

enum {
    LOG_LINE_MAX = 8192,  /* bytes; what is longer is cut at a field or inside a value */
    LOG_VALUE_MAX = 2048, /* bytes of one value */
    LOG_TAIL_ROOM = 2,    /* the closing brace and the line feed */
};

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
static const char *const level_names_json[] = {"error", "warn", "info", "debug"};

static atomic_int max_level_now = MG_INFO;
static atomic_bool json_now;
static mg_log_sink *sink_fn;
static void *sink_ctx;

struct line {
    char text[LOG_LINE_MAX];
    size_t len;
};

void mg_log_setup(enum mg_log_level max_level, bool json)
{
    atomic_store(&max_level_now, (int)max_level);
    atomic_store(&json_now, json);
}

void mg_log_set_sink(mg_log_sink *fn, void *ctx)
{
    sink_fn = fn;
    sink_ctx = ctx;
}

bool mg_log_on(enum mg_log_level level)
{
    return (int)level <= atomic_load_explicit(&max_level_now, memory_order_relaxed);
}

static bool put(struct line *l, const char *p, size_t n)
{
    if (n > sizeof(l->text) - LOG_TAIL_ROOM - l->len)
        return false;
    memcpy(l->text + l->len, p, n);
    l->len += n;
    return true;
}

static bool putz(struct line *l, const char *z)
{
    return put(l, z, strlen(z));
}

/* One character of a quoted text; returns the bytes of s that it took, 0 when the line is full. */
static size_t put_escaped(struct line *l, struct mg_sv s)
{
    unsigned char c = (unsigned char)s.ptr[0];
    char hex[8];
    size_t n;

    if (c == '"' || c == '\\')
        return put(l, (const char[]){'\\', (char)c}, 2);
    if (c == '\n')
        return put(l, "\\n", 2);
    if (c < 0x20 || c == 0x7f) {
        (void)snprintf(hex, sizeof(hex), "\\u%04x", c);
        return put(l, hex, 6);
    }
    n = mg_utf8_char(s);
    if (!n)
        return put(l, "\xef\xbf\xbd", 3);

    return put(l, s.ptr, n) ? n : 0;
}

static void put_quoted(struct line *l, struct mg_sv s)
{
    bool cut = s.len > LOG_VALUE_MAX;

    if (!s.ptr)
        s = MG_SV("");
    s.len = mg_utf8_floor(s, LOG_VALUE_MAX);
    if (!putz(l, "\""))
        return;
    for (size_t i = 0, n; i < s.len; i += n) {
        /* Room for the longest escape, the mark of a cut and the quote. */
        if (l->len + 16 > sizeof(l->text)) {
            cut = true;
            break;
        }
        n = put_escaped(l, mg_sv_from(s, i));
        if (!n)
            break;
    }
    if (cut)
        (void)putz(l, "...");
    (void)putz(l, "\"");
}

static bool plain_word(struct mg_sv s)
{
    if (!s.len || s.len > LOG_VALUE_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '=')
            return false;
    }

    return true;
}

static void put_value(struct line *l, const struct mg_field *f, bool json)
{
    char number[24];

    if (f->is_num) {
        (void)snprintf(number, sizeof(number), "%lld", (long long)f->num);
        (void)putz(l, number);
    } else if (!json && plain_word(f->str)) {
        (void)put(l, f->str.ptr, f->str.len);
    } else {
        put_quoted(l, f->str);
    }
}

static void put_fields(struct line *l, const struct mg_field *f, bool json)
{
    enum { ROOM_FOR_NUMBER = 24 };

    for (; f && f->key; f++) {
        size_t start = l->len;
        bool fits = json ? putz(l, ",\"") && putz(l, f->key) && putz(l, "\":")
                         : putz(l, " ") && putz(l, f->key) && putz(l, "=");
        if (!fits || l->len + ROOM_FOR_NUMBER > sizeof(l->text)) {
            l->len = start; /* a field is there whole or not at all */
            return;
        }
        put_value(l, f, json);
    }
}

static void emit(enum mg_log_level level, struct line *l)
{
    if (sink_fn) {
        sink_fn(sink_ctx, level, mg_sv_n(l->text, l->len));
        return;
    }
    l->text[l->len++] = '\n';
    for (size_t off = 0; off < l->len;) {
        ssize_t n = write(STDERR_FILENO, l->text + off, l->len - off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* nowhere to complain */
        off += (size_t)n;
    }
}

void mg_log_write(enum mg_log_level level, const char *msg, const struct mg_field *fields)
{
    struct line l = {.len = 0};
    char now[MG_TIME_LEN];
    bool json = atomic_load_explicit(&json_now, memory_order_relaxed);
    int saved_errno = errno;

    if (!mg_log_on(level))
        return;
    if (!msg)
        msg = "";
    mg_time_format(mg_wall_us(), now);
    if (json) {
        (void)(putz(&l, "{\"time\":\"") && putz(&l, now) && putz(&l, "\",\"level\":\"") &&
               putz(&l, level_names_json[level]) && putz(&l, "\",\"msg\":"));
        put_quoted(&l, mg_sv_of(msg));
    } else {
        (void)(putz(&l, now) && putz(&l, " ") && putz(&l, level_names[level]) && putz(&l, " "));
        /* A message is a literal of ours, but a line feed in it must not forge a line. */
        for (struct mg_sv m = mg_sv_n(msg, mg_utf8_floor(mg_sv_of(msg), LOG_VALUE_MAX)); m.len; m = mg_sv_from(m, 1))
            (void)put(&l, (unsigned char)m.ptr[0] < ' ' ? " " : m.ptr, 1);
    }
    put_fields(&l, fields, json);
    if (json)
        l.text[l.len++] = '}';
    emit(level, &l);
    errno = saved_errno;
}
