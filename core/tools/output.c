/* The filter knows the escape forms of ECMA-48: ESC [ ... final byte; ESC ] ... BEL or ESC \ and the other control strings; ESC with
 * intermediates; ESC and one byte. A form that breaks off gives way to the text: it never swallows more than STRING_MAX bytes, nor a newline. */
#include "tools/output.h"

#include "base/utf8.h"
#include "tools/result.h"

enum { STRING_MAX = 4096 /* bytes; real titles and links are far shorter */ };

enum { TEXT, ESC, INTERMEDIATE, CSI, STRING, STRING_ESC };

void mg_output_init(struct mg_output *o, size_t cap)
{
    *o = (struct mg_output){.ring = mg_xmalloc(cap), .cap = cap};
}

void mg_output_done(struct mg_output *o)
{
    free(o->ring);
    o->ring = NULL;
}

static void keep(struct mg_output *o, const char *p, size_t n)
{
    o->total += n;
    if (o->cap == 0)
        return;
    if (n > o->cap) {
        p += n - o->cap;
        n = o->cap;
    }
    size_t over = o->len + n > o->cap ? o->len + n - o->cap : 0;
    o->start = (o->start + over) % o->cap;
    o->len -= over;
    size_t at = (o->start + o->len) % o->cap;
    size_t first = n < o->cap - at ? n : o->cap - at;
    memcpy(o->ring + at, p, first);
    memcpy(o->ring, p + first, n - first);
    o->len += n;
}

/* One byte outside of plain text; the next state. */
static uint8_t step(struct mg_output *o, unsigned char c)
{
    switch (o->state) {
    case ESC:
        if (c == '[')
            return CSI;
        if (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_') {
            o->string_len = 0;
            return STRING;
        }
        if (c >= 0x20 && c <= 0x2F)
            return INTERMEDIATE;
        break;
    case INTERMEDIATE:
        if (c >= 0x20 && c <= 0x2F)
            return INTERMEDIATE;
        break;
    case CSI:
        if (c >= 0x20 && c <= 0x3F)
            return CSI;
        if (c >= 0x40 && c <= 0x7E)
            return TEXT;
        break;
    case STRING:
        if (c == 0x1B)
            return STRING_ESC;
        if (c == '\a')
            return TEXT;
        if (c != '\n' && ++o->string_len < STRING_MAX)
            return STRING;
        break;
    case STRING_ESC:
        if (c == '\\')
            return TEXT;
        break;
    }
    if (c == 0x1B)
        return ESC;
    if (c == '\n' || c == '\r' || c == '\t' || c >= 0x80 || o->state == CSI)
        keep(o, (const char *)&c, 1);
    return TEXT;
}

void mg_output_feed(struct mg_output *o, const char *p, size_t n)
{
    while (n && !o->closed) {
        if (o->state != TEXT) {
            o->state = step(o, (unsigned char)*p++);
            n--;
            continue;
        }
        const char *esc = memchr(p, 0x1B, n);
        size_t plain = esc ? (size_t)(esc - p) : n;
        keep(o, p, plain);
        if (esc) {
            o->state = ESC;
            plain++;
        }
        p += plain;
        n -= plain;
    }
}

/* Bytes at the start of s that belong to a character whose first byte was dropped. */
static size_t lost_tail(struct mg_sv s)
{
    size_t n = 0;

    while (n < 3 && n < s.len && ((unsigned char)s.ptr[n] & 0xC0) == 0x80)
        n++;
    return n;
}

/* The shown text of what the ring holds, from its first whole character. */
static mg_rc shown(const struct mg_output *o, struct mg_buf *out)
{
    mg_auto(buf) struct mg_buf flat = MG_BUF_INIT(o->cap);
    size_t first = o->len < o->cap - o->start ? o->len : o->cap - o->start;

    mg_buf_append(&flat, o->ring + o->start, first);
    mg_buf_append(&flat, o->ring, o->len - first);
    if (!mg_buf_ok(&flat))
        return MG_EINTERNAL;
    struct mg_sv text = mg_buf_view(&flat);
    if (o->total > o->len)
        text = mg_sv_from(text, lost_tail(text));
    while (text.len && text.ptr[text.len - 1] == '\n')
        text.len--;
    return mg_tool_show(out, text);
}

mg_rc mg_output_render(const struct mg_output *o, struct mg_buf *out, size_t max)
{
    enum { MARKER_MAX = 96, SHOWN_PER_BYTE = 3 /* U+FFFD and U+2400 have three */ };
    mg_auto(buf) struct mg_buf all = MG_BUF_INIT(o->cap * SHOWN_PER_BYTE);
    mg_rc rc = shown(o, &all);

    if (rc < 0)
        return rc;
    struct mg_sv text = mg_buf_view(&all);
    if (o->total > o->len || text.len > max) {
        size_t room = max - MARKER_MAX;
        if (text.len > room)
            text = mg_sv_from(text, mg_utf8_ceil(text, text.len - room));
        mg_buf_printf(out, "[output truncated: the last %zu of %llu bytes follow]\n", text.len,
                      (unsigned long long)o->total);
    }
    return mg_buf_sv(out, text);
}
