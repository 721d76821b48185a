#include "http/head.h"

#include <limits.h>

enum { METHOD_MAX = 16 /* bytes: longer than any registered one that a client may send by mistake */ };

static const struct {
    const char *name;
    enum mg_http_method method;
} methods[] = {
    {"GET", MG_GET}, {"POST", MG_POST}, {"DELETE", MG_DELETE}, {"HEAD", MG_HEAD}, {"OPTIONS", MG_OPTIONS},
};

static bool bad(struct mg_err *err, int *ret_status, int status, mg_rc rc, const char *text)
{
    *ret_status = status;
    (void)mg_err_set(err, rc, "%s", text);
    return false;
}

/* Cuts one CRLF line off *rest. The head is known to end with an empty line. */
static bool next_line(struct mg_sv *rest, struct mg_sv *line)
{
    const char *lf = memchr(rest->ptr, '\n', rest->len);
    if (!lf)
        return false;
    size_t n = (size_t)(lf - rest->ptr);
    if (n == 0 || rest->ptr[n - 1] != '\r')
        return false;
    *line = mg_sv_n(rest->ptr, n - 1);
    *rest = mg_sv_from(*rest, n + 1);
    return memchr(line->ptr, '\r', line->len) == NULL;
}

static bool parse_target(struct mg_sv t, struct mg_head *h)
{
    /* The absolute form names the server again: only the path counts. */
    if (t.len && t.ptr[0] != '/') {
        size_t skip = mg_sv_starts(t, "http://") ? 7 : mg_sv_starts(t, "https://") ? 8 : 0;
        if (skip == 0 && !mg_sv_eqz(t, "*"))
            return false;
        if (skip) {
            t = mg_sv_from(t, skip);
            t = mg_sv_from(t, mg_sv_find(t, '/'));
            if (t.len == 0)
                t = MG_SV("/");
        }
    }
    for (size_t i = 0; i < t.len; i++)
        if ((unsigned char)t.ptr[i] <= ' ' || t.ptr[i] == 0x7f || t.ptr[i] == '#')
            return false;
    size_t q = mg_sv_find(t, '?');
    h->path = mg_sv_n(t.ptr, q);
    h->query = mg_sv_from(t, q + 1);
    return t.len > 0;
}

static bool parse_request_line(struct mg_sv line, struct mg_head *h, int *ret_status, struct mg_err *err)
{
    struct mg_sv method = mg_sv_split(&line, ' ');
    if (!mg_sv_is_token(method) || method.len > METHOD_MAX)
        return bad(err, ret_status, 400, MG_EINVAL, "the request line does not start with a method");
    h->method = MG_METHOD_OTHER;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (mg_sv_eqz(method, methods[i].name))
            h->method = methods[i].method;
    struct mg_sv target = mg_sv_split(&line, ' ');
    if (!mg_sv_starts(line, "HTTP/"))
        return bad(err, ret_status, 400, MG_EINVAL,
                   "the request line must be METHOD PATH HTTP/1.1, with one space between");
    if (!mg_sv_eqz(line, "HTTP/1.1") && !mg_sv_eqz(line, "HTTP/1.0"))
        return bad(err, ret_status, 505, MG_EINVAL, "this server speaks HTTP/1.1 and HTTP/1.0 only");
    h->http10 = mg_sv_eqz(line, "HTTP/1.0");
    if (target.len > MG_HTTP_URI_MAX)
        return bad(err, ret_status, 414, MG_EURITOOLONG,
                   "the URL is longer than 8192 bytes; send long values in a body");
    if (!parse_target(target, h))
        return bad(err, ret_status, 400, MG_EINVAL, "the request target must be a path that starts with a slash");
    return true;
}

static bool parse_field(struct mg_sv line, struct mg_head *h, int *ret_status, struct mg_err *err)
{
    size_t colon = mg_sv_find(line, ':');
    struct mg_http_pair *f = &h->line[h->n];
    if (h->n == MG_HTTP_HEADERS_COUNT_MAX)
        return bad(err, ret_status, 431, MG_EHEADERS, "the request has more than 128 header lines");
    f->name = mg_sv_n(line.ptr, colon);
    f->value = mg_sv_trim(mg_sv_from(line, colon + 1));
    if (colon == line.len || !mg_sv_is_token(f->name))
        return bad(err, ret_status, 400, MG_EINVAL,
                   "a header line is not NAME: VALUE (folded lines and spaces in names are refused)");
    for (size_t i = 0; i < f->value.len; i++) {
        unsigned char c = (unsigned char)f->value.ptr[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return bad(err, ret_status, 400, MG_EINVAL, "a header value holds a control character");
    }
    h->n++;
    return true;
}

static bool parse_length(struct mg_sv v, uint64_t *ret)
{
    uint64_t n = 0;
    if (v.len == 0 || v.len > 18)
        return false;
    for (size_t i = 0; i < v.len; i++) {
        if (v.ptr[i] < '0' || v.ptr[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(v.ptr[i] - '0');
    }
    *ret = n;
    return true;
}

bool mg_head_has_token(struct mg_sv list, const char *token)
{
    while (list.len) {
        struct mg_sv item = mg_sv_trim(mg_sv_split(&list, ','));
        if (mg_sv_eq_nocase(item, mg_sv_of(token)))
            return true;
    }
    return false;
}

struct mg_sv mg_head_get(const struct mg_head *h, const char *name)
{
    struct mg_sv want = mg_sv_of(name);
    for (int i = 0; i < h->n; i++)
        if (mg_sv_eq_nocase(h->line[i].name, want))
            return h->line[i].value;
    return (struct mg_sv){NULL, 0};
}

struct framing {
    int lengths, encodings, hosts;
    bool close, keep, upgrade;
};

static bool framing_field(const struct mg_http_pair *f, struct mg_head *h, struct framing *fr, int *ret_status,
                          struct mg_err *err)
{
    if (mg_sv_eq_nocase(f->name, MG_SV("content-length"))) {
        fr->lengths++;
        h->has_length = true;
        if (!parse_length(f->value, &h->length))
            return bad(err, ret_status, 400, MG_EINVAL, "content-length must be one decimal number");
    } else if (mg_sv_eq_nocase(f->name, MG_SV("transfer-encoding"))) {
        fr->encodings++;
        h->chunked = true;
        if (!mg_sv_eq_nocase(f->value, MG_SV("chunked")))
            return bad(err, ret_status, 400, MG_EINVAL, "transfer-encoding must be chunked");
    } else if (mg_sv_eq_nocase(f->name, MG_SV("host"))) {
        fr->hosts++;
    } else if (mg_sv_eq_nocase(f->name, MG_SV("connection"))) {
        fr->close |= mg_head_has_token(f->value, "close");
        fr->keep |= mg_head_has_token(f->value, "keep-alive");
        fr->upgrade |= mg_head_has_token(f->value, "upgrade");
    } else if (mg_sv_eq_nocase(f->name, MG_SV("upgrade"))) {
        h->upgrade_websocket |= mg_head_has_token(f->value, "websocket");
    } else if (mg_sv_eq_nocase(f->name, MG_SV("expect"))) {
        if (!mg_sv_eq_nocase(f->value, MG_SV("100-continue")))
            return bad(err, ret_status, 417, MG_EINVAL, "the only expectation that is met is 100-continue");
        h->expect_continue = true;
    }
    return true;
}

static bool check_framing(struct mg_head *h, int *ret_status, struct mg_err *err)
{
    struct framing fr = {0};
    for (int i = 0; i < h->n; i++)
        if (!framing_field(&h->line[i], h, &fr, ret_status, err))
            return false;
    if (fr.lengths > 1)
        return bad(err, ret_status, 400, MG_EINVAL, "the request has more than one content-length");
    if (fr.encodings > 1)
        return bad(err, ret_status, 400, MG_EINVAL, "the request has more than one transfer-encoding");
    if (fr.lengths && fr.encodings)
        return bad(err, ret_status, 400, MG_EINVAL,
                   "the request has both content-length and transfer-encoding; send one of them");
    if (fr.encodings && h->http10)
        return bad(err, ret_status, 400, MG_EINVAL, "transfer-encoding is not part of HTTP/1.0; send content-length");
    if (fr.hosts > 1 || (fr.hosts == 0 && !h->http10))
        return bad(err, ret_status, 400, MG_EINVAL, "an HTTP/1.1 request must have exactly one host header");
    h->keep_alive = !fr.close && (!h->http10 || fr.keep);
    h->upgrade_websocket = h->upgrade_websocket && fr.upgrade && !h->http10;
    h->expect_continue = h->expect_continue && !h->http10;
    return true;
}

/* Bytes up to and with the empty line, or 0. */
static size_t find_end(struct mg_sv in, size_t *scanned)
{
    size_t from = *scanned > 3 ? *scanned - 3 : 0;
    const char *p = memmem(in.ptr + from, in.len - from, "\r\n\r\n", 4);
    *scanned = in.len;
    return p ? (size_t)(p - in.ptr) + 4 : 0;
}

/* Refuses what cannot become a valid head any more before all of it is there. */
static enum mg_head_result check_partial(struct mg_sv in, int *ret_status, struct mg_err *err)
{
    const char *lf = memchr(in.ptr, '\n', in.len);
    if (!lf && in.len > MG_HTTP_URI_MAX + METHOD_MAX + 16) {
        (void)bad(err, ret_status, 414, MG_EURITOOLONG,
                  "the URL is longer than 8192 bytes; send long values in a body");
        return MG_HEAD_BAD;
    }
    if (in.len && !mg_sv_is_token(mg_sv_n(in.ptr, 1))) {
        (void)bad(err, ret_status, 400, MG_EINVAL, "this is not an HTTP request");
        return MG_HEAD_BAD;
    }
    if (lf && (lf == in.ptr || lf[-1] != '\r')) {
        (void)bad(err, ret_status, 400, MG_EINVAL, "lines of a request must end with CR LF");
        return MG_HEAD_BAD;
    }
    if (in.len > MG_HTTP_HEADERS_MAX) {
        (void)bad(err, ret_status, 431, MG_EHEADERS, "the request's headers are larger than 32768 bytes");
        return MG_HEAD_BAD;
    }
    return MG_HEAD_MORE;
}

static bool parse_lines(struct mg_sv head, struct mg_head *h, int *ret_status, struct mg_err *err)
{
    struct mg_sv line;
    if (!next_line(&head, &line))
        return bad(err, ret_status, 400, MG_EINVAL, "lines of a request must end with CR LF");
    if (!parse_request_line(line, h, ret_status, err))
        return false;
    if (head.len > MG_HTTP_HEADERS_MAX)
        return bad(err, ret_status, 431, MG_EHEADERS, "the request's headers are larger than 32768 bytes");
    while (head.len) {
        if (!next_line(&head, &line))
            return bad(err, ret_status, 400, MG_EINVAL, "lines of a request must end with CR LF");
        if (line.len && !parse_field(line, h, ret_status, err))
            return false;
    }
    return check_framing(h, ret_status, err);
}

enum mg_head_result mg_head_parse(struct mg_sv in, size_t *scanned, struct mg_head *h, size_t *ret_used,
                                  int *ret_status, struct mg_err *err)
{
    size_t skip = 0;
    /* RFC 9112 2.2: an empty line before the request line is ignored (old clients send one after a body). */
    while (skip < 4 && skip + 1 < in.len && in.ptr[skip] == '\r' && in.ptr[skip + 1] == '\n')
        skip += 2;
    if (in.len == skip || (in.len == skip + 1 && in.ptr[skip] == '\r'))
        return MG_HEAD_MORE;
    in = mg_sv_from(in, skip);
    size_t scan = *scanned > skip ? *scanned - skip : 0;
    size_t end = find_end(in, &scan);
    *scanned = scan + skip;
    if (end == 0)
        return check_partial(in, ret_status, err);

    h->method = MG_METHOD_OTHER;
    h->http10 = h->keep_alive = h->expect_continue = h->chunked = h->has_length = h->upgrade_websocket = false;
    h->length = 0;
    h->n = 0;
    if (!parse_lines(mg_sv_n(in.ptr, end), h, ret_status, err))
        return MG_HEAD_BAD;
    *ret_used = skip + end;
    return MG_HEAD_DONE;
}
