#include "net/sse-parse.h"

void mg_sse_init(struct mg_sse *s, size_t line_max, mg_sse_fn *fn, void *ctx)
{
    *s = (struct mg_sse){
        .line = MG_BUF_INIT(line_max),
        .data = MG_BUF_INIT(line_max),
        .line_max = line_max,
        .retry_ms = -1,
        .fn = fn,
        .ctx = ctx,
    };
}

void mg_sse_done(struct mg_sse *s)
{
    mg_buf_done(&s->line);
    mg_buf_done(&s->data);
}

bool mg_sse_pending(const struct mg_sse *s)
{
    return s->line.len > 0 || s->has_data;
}

static mg_rc too_long(const struct mg_sse *s, const char *what, struct mg_err *err)
{
    return mg_err_set(err, MG_ETOOBIG, "%s of the event stream is longer than %zu bytes", what, s->line_max);
}

static mg_rc dispatch(struct mg_sse *s, struct mg_err *err)
{
    bool go = true;
    if (s->has_data)
        go = s->fn(s->ctx, mg_sv_n(s->name, s->name_len), mg_buf_view(&s->data));
    mg_buf_reset(&s->data);
    s->has_data = false;
    s->name_len = 0;
    return go ? MG_OK : mg_err_set(err, MG_ECANCELED, "the event stream was stopped by its reader");
}

static mg_rc add_data(struct mg_sse *s, struct mg_sv value, struct mg_err *err)
{
    if (s->has_data)
        mg_buf_char(&s->data, '\n');
    mg_buf_sv(&s->data, value);
    s->has_data = true;
    return mg_buf_ok(&s->data) ? MG_OK : too_long(s, "an event", err);
}

static void set_name(struct mg_sse *s, struct mg_sv value)
{
    s->name_len = value.len < sizeof(s->name) ? value.len : sizeof(s->name);
    memcpy(s->name, value.ptr, s->name_len);
}

/* An id goes back to the server as a header: one that could not stand in a header counts as none. */
static void set_id(struct mg_sse *s, struct mg_sv value)
{
    bool plain = value.len <= sizeof(s->id);
    for (size_t i = 0; plain && i < value.len; i++)
        plain = (unsigned char)value.ptr[i] >= 0x20 && value.ptr[i] != 0x7f;
    s->id_len = plain ? value.len : 0;
    memcpy(s->id, value.ptr, s->id_len);
}

static void set_retry(struct mg_sse *s, struct mg_sv value)
{
    int64_t ms;
    if (mg_sv_to_i64(value, &ms) && ms >= 0)
        s->retry_ms = ms;
}

static mg_rc take_line(struct mg_sse *s, struct mg_sv line, struct mg_err *err)
{
    if (!s->begun && mg_sv_starts(line, "\xef\xbb\xbf"))
        line = mg_sv_from(line, 3);
    s->begun = true;
    if (line.len == 0)
        return dispatch(s, err);
    size_t colon = mg_sv_find(line, ':');
    struct mg_sv field = mg_sv_n(line.ptr, colon); /* empty: a comment */
    struct mg_sv value = mg_sv_from(line, colon + 1);
    if (value.len > 0 && value.ptr[0] == ' ')
        value = mg_sv_from(value, 1);
    if (mg_sv_eqz(field, "data"))
        return add_data(s, value, err);
    if (mg_sv_eqz(field, "event"))
        set_name(s, value);
    else if (mg_sv_eqz(field, "id"))
        set_id(s, value);
    else if (mg_sv_eqz(field, "retry"))
        set_retry(s, value);
    return MG_OK;
}

/* Offset of the first CR or LF, or n. */
static size_t line_end(const char *p, size_t n)
{
    const char *lf = memchr(p, '\n', n);
    size_t end = lf ? (size_t)(lf - p) : n;
    const char *cr = memchr(p, '\r', end);
    return cr ? (size_t)(cr - p) : end;
}

mg_rc mg_sse_feed(struct mg_sse *s, const char *p, size_t n, struct mg_err *err)
{
    while (n > 0) {
        if (s->skip_lf && *p == '\n') {
            p++;
            n--;
        }
        s->skip_lf = false;
        if (n == 0)
            break;
        size_t len = line_end(p, n);
        if (s->line.len + len > s->line_max)
            return too_long(s, "a line", err);
        struct mg_sv line = mg_sv_n(p, len);
        if (len == n)
            return mg_buf_sv(&s->line, line) == MG_OK ? MG_OK : too_long(s, "a line", err);
        if (s->line.len > 0) {
            mg_buf_sv(&s->line, line);
            line = mg_buf_view(&s->line);
        }
        s->skip_lf = p[len] == '\r';
        p += len + 1;
        n -= len + 1;
        mg_rc rc = take_line(s, line, err);
        mg_buf_reset(&s->line);
        if (rc < 0)
            return rc;
    }
    return MG_OK;
}
