/* JSON writer. */
#include "json/write.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "json/scan.h"

static void put(struct mg_jw *w, const char *p, size_t n)
{
    (void)mg_buf_append(w->out, p, n);
}

/* The comma before a value or key, where one is due. */
static void lead(struct mg_jw *w)
{
    if (w->after_key) {
        w->after_key = false;
        return;
    }
    if (w->need_comma[w->depth])
        put(w, ",", 1);
    w->need_comma[w->depth] = true;
}

static void open_level(struct mg_jw *w, char c)
{
    lead(w);
    put(w, &c, 1);
    assert(w->depth + 1 < MG_JW_DEPTH);
    w->need_comma[++w->depth] = false;
}

static void close_level(struct mg_jw *w, char c)
{
    assert(w->depth > 0 && !w->after_key);
    w->depth--;
    put(w, &c, 1);
}

void mg_jw_obj(struct mg_jw *w)
{
    open_level(w, '{');
}

void mg_jw_obj_end(struct mg_jw *w)
{
    close_level(w, '}');
}

void mg_jw_arr(struct mg_jw *w)
{
    open_level(w, '[');
}

void mg_jw_arr_end(struct mg_jw *w)
{
    close_level(w, ']');
}

static size_t escape_char(char out[8], unsigned char c)
{
    static const char short_form[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

    out[0] = '\\';
    if (c == '"' || c == '\\' || (c < sizeof(short_form) && short_form[c])) {
        out[1] = c == '"' || c == '\\' ? (char)c : short_form[c];
        return 2;
    }
    (void)snprintf(out + 1, 7, "u%04x", c);
    return 6;
}

void mg_json_escape(struct mg_buf *out, struct mg_sv s)
{
    size_t kept = 0, i = 0;

    while (i < s.len) {
        char esc[8];
        const char *put_instead = esc;
        size_t n_instead;

        i = mg_json_plain_end(s, i);
        if (i >= s.len)
            break;
        unsigned char c = (unsigned char)s.ptr[i];
        if (c & 0x80) {
            size_t n = mg_utf8_char(mg_sv_from(s, i));
            if (n) {
                i += n;
                continue;
            }
            put_instead = "\xef\xbf\xbd";
            n_instead = 3;
        } else {
            n_instead = escape_char(esc, c);
        }
        (void)mg_buf_append(out, s.ptr + kept, i - kept);
        (void)mg_buf_append(out, put_instead, n_instead);
        kept = ++i;
    }
    if (s.len > kept)
        (void)mg_buf_append(out, s.ptr + kept, s.len - kept);
}

static void quoted(struct mg_jw *w, struct mg_sv s)
{
    put(w, "\"", 1);
    mg_json_escape(w->out, s);
    put(w, "\"", 1);
}

void mg_jw_key_sv(struct mg_jw *w, struct mg_sv key)
{
    assert(!w->after_key);
    lead(w);
    quoted(w, key);
    put(w, ":", 1);
    w->after_key = true;
}

void mg_jw_key(struct mg_jw *w, const char *key)
{
    mg_jw_key_sv(w, mg_sv_of(key));
}

void mg_jw_str(struct mg_jw *w, struct mg_sv s)
{
    lead(w);
    quoted(w, s);
}

void mg_jw_strz(struct mg_jw *w, const char *z)
{
    if (z)
        mg_jw_str(w, mg_sv_of(z));
    else
        mg_jw_null(w);
}

void mg_jw_int(struct mg_jw *w, int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)n);

    mg_jw_raw(w, mg_sv_n(digits, (size_t)len));
}

void mg_jw_bool(struct mg_jw *w, bool b)
{
    mg_jw_raw(w, b ? MG_SV("true") : MG_SV("false"));
}

void mg_jw_null(struct mg_jw *w)
{
    mg_jw_raw(w, MG_SV("null"));
}

void mg_jw_raw(struct mg_jw *w, struct mg_sv json)
{
    lead(w);
    put(w, json.ptr, json.len);
}

void mg_jw_time(struct mg_jw *w, int64_t wall_us)
{
    char text[MG_TIME_LEN];

    if (wall_us == INT64_MIN) {
        mg_jw_null(w);
        return;
    }
    mg_time_format(wall_us, text);
    mg_jw_str(w, mg_sv_of(text));
}

void mg_jw_kstr(struct mg_jw *w, const char *key, struct mg_sv s)
{
    mg_jw_key(w, key);
    mg_jw_str(w, s);
}

void mg_jw_kstrz(struct mg_jw *w, const char *key, const char *z)
{
    mg_jw_key(w, key);
    mg_jw_strz(w, z);
}

void mg_jw_kint(struct mg_jw *w, const char *key, int64_t n)
{
    mg_jw_key(w, key);
    mg_jw_int(w, n);
}

void mg_jw_kbool(struct mg_jw *w, const char *key, bool b)
{
    mg_jw_key(w, key);
    mg_jw_bool(w, b);
}

void mg_jw_knull(struct mg_jw *w, const char *key)
{
    mg_jw_key(w, key);
    mg_jw_null(w);
}

void mg_jw_kraw(struct mg_jw *w, const char *key, struct mg_sv json)
{
    mg_jw_key(w, key);
    mg_jw_raw(w, json);
}

void mg_jw_kstr_or_null(struct mg_jw *w, const char *key, struct mg_sv s)
{
    if (s.ptr)
        mg_jw_kstr(w, key, s);
    else
        mg_jw_knull(w, key);
}

void mg_jw_kraw_or_null(struct mg_jw *w, const char *key, struct mg_sv json)
{
    if (json.ptr)
        mg_jw_kraw(w, key, json);
    else
        mg_jw_knull(w, key);
}

void mg_jw_ktime(struct mg_jw *w, const char *key, int64_t wall_us)
{
    mg_jw_key(w, key);
    mg_jw_time(w, wall_us);
}
