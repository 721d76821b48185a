#include "tools/marker.h"

enum { RS = 0x1E };

void mg_marker_init(struct mg_marker *m, const char secret[MG_MARKER_SECRET + 1])
{
    *m = (struct mg_marker){.lead = {RS}};
    memcpy(m->lead + 1, secret, MG_MARKER_SECRET);
}

/* One byte of the text; true at its end. A text that is too long was no marker: the rest of it is dropped up to the next RS. */
static bool take_text(struct mg_marker *m, char c)
{
    if (c != RS) {
        if (m->n < MG_MARKER_TEXT_MAX)
            m->text[m->n++] = c;
        return false;
    }
    m->text[m->n] = '\0';
    m->in_text = false;
    m->found = m->swallow = true;
    return true;
}

/* One byte while a lead is being matched. RS occurs only at its start, so a broken match can begin anew only with the byte itself. */
static void take_lead(struct mg_marker *m, char c, mg_marker_output *output, void *ctx)
{
    if (c == m->lead[m->matched]) {
        m->matched++;
        if (m->matched == sizeof(m->lead)) {
            m->matched = 0;
            m->n = 0;
            m->in_text = true;
        }
        return;
    }
    output(ctx, m->lead, m->matched);
    m->matched = c == RS;
    if (!m->matched)
        output(ctx, &c, 1);
}

size_t mg_marker_feed(struct mg_marker *m, const char *p, size_t n, mg_marker_output *output, void *ctx)
{
    size_t i = 0;

    m->found = false;
    if (m->swallow && n) {
        m->swallow = false;
        i = p[0] == '\n';
    }
    while (i < n) {
        if (m->in_text) {
            if (take_text(m, p[i++]))
                return i;
        } else if (m->matched) {
            take_lead(m, p[i++], output, ctx);
        } else {
            const char *rs = memchr(p + i, RS, n - i);
            size_t plain = rs ? (size_t)(rs - (p + i)) : n - i;
            if (plain)
                output(ctx, p + i, plain);
            i += plain;
            if (rs) {
                m->matched = 1;
                i++;
            }
        }
    }
    return i;
}
