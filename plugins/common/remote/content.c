#include "common/remote/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/sv.h"

/* ---- forms ---- */

void form_begin(struct form *f, mango_source_fn *source, void *ctx)
{
    *f = (struct form){.boundary = "mango-", .source = source, .ctx = ctx};
    random_hex(f->boundary + 6, 24);
    snprintf(f->type, sizeof(f->type), "multipart/form-data; boundary=%s", f->boundary);
    f->n_tail = (uint64_t)snprintf(f->tail, sizeof(f->tail), "\r\n--%s--\r\n", f->boundary);
}

static void add(struct form *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct form *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(f->head + f->n_head, sizeof(f->head) - f->n_head, fmt, ap);
    va_end(ap);
    if (n < 0 || f->n_head + (uint64_t)n >= sizeof(f->head))
        f->bad = true;
    else
        f->n_head += (uint64_t)n;
}

void form_field(struct form *f, const char *disposition, const char *type, const char *value)
{
    add(f, "--%s\r\nContent-Disposition: form-data; %s\r\n", f->boundary, disposition);
    if (type)
        add(f, "Content-Type: %s\r\n", type);
    add(f, "\r\n%s\r\n", value);
}

void form_file(struct form *f, const char *disposition)
{
    add(f, "--%s\r\nContent-Disposition: form-data; %s\r\nContent-Type: application/octet-stream\r\n\r\n", f->boundary,
        disposition);
}

static uint64_t copy_some(const char *from, uint64_t have, uint64_t at, char *p, uint64_t n)
{
    uint64_t take = have - at < n ? have - at : n;
    memcpy(p, from + at, take);
    return take;
}

int64_t form_read(void *form, char *p, uint64_t n)
{
    struct form *f = form;
    uint64_t took = 0;
    if (f->at < f->n_head) {
        took = copy_some(f->head, f->n_head, f->at, p, n);
    } else if (!f->ended) {
        int64_t got = f->source(f->ctx, p, n);
        if (got != 0)
            return got;
        f->ended = true;
    }
    if (took == 0)
        took = copy_some(f->tail, f->n_tail, f->at - f->n_head, p, n);
    f->at += took;
    return (int64_t)took;
}

int64_t form_length(const struct form *f, int64_t len)
{
    return len < 0 ? -1 : len + (int64_t)(f->n_head + f->n_tail);
}

/* ---- ranges ---- */

void range_begin(struct range *g, uint64_t offset, uint64_t n, mango_sink_fn *sink, void *ctx)
{
    *g = (struct range){.sink = sink, .ctx = ctx, .skip = offset};
    snprintf(g->header, sizeof(g->header), "bytes=%llu-%llu", (unsigned long long)offset,
             (unsigned long long)(offset + n - 1));
}

void range_on_header(void *range, struct mango_sv name, struct mango_sv value)
{
    struct range *g = range;
    (void)value;
    if (name.len == 13 && strncasecmp(name.ptr, "Content-Range", 13) == 0)
        g->partial = true;
}

int32_t range_take(void *range, int32_t stream, const char *p, uint64_t n)
{
    struct range *g = range;
    if (!g->partial && g->skip > 0) {
        uint64_t drop = g->skip < n ? g->skip : n;
        g->skip -= drop;
        p += drop;
        n -= drop;
    }
    return n > 0 ? g->sink(g->ctx, stream, p, n) : 0;
}
