#include "net/upgrade.h"

#include <ctype.h>
#include <curl/curl.h>

#include "base/clock.h"

enum {
    PIECE = 16 * 1024,     /* bytes of one read */
    CHUNK_LINE_MAX = 4096, /* bytes of a chunk's extensions and of a trailer line */
};

/* ---- the answer's head ---- */

/* Cuts one line off; false when its end is not there yet. */
static bool take_line(struct mg_sv *in, struct mg_sv *ret)
{
    size_t end = mg_sv_find(*in, '\n');
    if (end == in->len)
        return false;
    *ret = mg_sv_n(in->ptr, end > 0 && in->ptr[end - 1] == '\r' ? end - 1 : end);
    *in = mg_sv_from(*in, end + 1);
    return true;
}

/* "HTTP/1.1 200 OK" */
static bool parse_status(struct mg_sv line, int *ret)
{
    int64_t status = 0;
    if (!mg_sv_starts(line, "HTTP/1.") || line.len < 12 || line.ptr[8] != ' ' || (line.len > 12 && line.ptr[12] != ' '))
        return false;
    if (!mg_sv_to_i64(mg_sv_n(line.ptr + 9, 3), &status) || status < 100)
        return false;
    *ret = (int)status;
    return true;
}

static bool parse_header(struct mg_sv line, struct mg_http_head *h, struct mg_sv *ret_name, struct mg_sv *ret_value)
{
    size_t colon = mg_sv_find(line, ':');
    if (colon == 0 || colon == line.len || line.ptr[0] == ' ' || line.ptr[0] == '\t')
        return false;
    *ret_name = mg_sv_n(line.ptr, colon);
    *ret_value = mg_sv_trim(mg_sv_from(line, colon + 1));
    int64_t length = 0;
    if (mg_sv_eq_nocase(*ret_name, MG_SV("content-length"))) {
        if (!mg_sv_to_i64(*ret_value, &length) || length < 0 || (h->length >= 0 && h->length != length))
            return false;
        h->length = length;
    }
    if (mg_sv_eq_nocase(*ret_name, MG_SV("transfer-encoding"))) {
        if (!mg_sv_eq_nocase(*ret_value, MG_SV("chunked")))
            return false;
        h->chunked = true;
    }
    return true;
}

mg_rc mg_http_head_parse(struct mg_sv in, struct mg_http_head *ret,
                         void (*header)(void *ctx, int status, struct mg_sv name, struct mg_sv value), void *ctx)
{
    struct mg_sv rest = in, line, name, value;
    *ret = (struct mg_http_head){.length = -1};
    if (memmem(in.ptr, in.len, "\r\n\r\n", 4) == NULL && memmem(in.ptr, in.len, "\n\n", 2) == NULL)
        return MG_EUNAVAIL;
    if (!take_line(&rest, &line) || !parse_status(line, &ret->status))
        return MG_EINVAL;
    while (take_line(&rest, &line)) {
        if (line.len == 0) {
            ret->bytes = in.len - rest.len;
            return MG_OK;
        }
        if (!parse_header(line, ret, &name, &value))
            return MG_EINVAL;
        if (header)
            header(ctx, ret->status, name, value);
    }
    return MG_EUNAVAIL;
}

/* ---- chunks ---- */

enum { SIZE, EXTENSION, CONTENT, CONTENT_END, TRAILER_START, TRAILER, ENDED };

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool chunk_size(struct mg_chunks *c, char b)
{
    enum { DIGITS_MAX = 15 };
    int digit = hex_digit(b);
    if (digit >= 0) {
        c->left = c->left * 16 + (uint64_t)digit;
        return ++c->digits <= DIGITS_MAX;
    }
    if (c->digits == 0 || (b != ';' && b != ' ' && b != '\r' && b != '\n'))
        return false;
    c->state = b != '\n' ? EXTENSION : c->left > 0 ? CONTENT : TRAILER_START;
    return true;
}

/* One byte that is not content. */
static bool chunk_byte(struct mg_chunks *c, char b)
{
    if (c->state == SIZE)
        return chunk_size(c, b);
    if (++c->line > CHUNK_LINE_MAX)
        return false;
    if (c->state == CONTENT_END && b != '\r' && b != '\n')
        return false;
    if (b != '\n') {
        c->state = c->state == TRAILER_START && b != '\r' ? TRAILER : c->state;
        return true;
    }
    int next = c->state == EXTENSION       ? (c->left > 0 ? CONTENT : TRAILER_START)
               : c->state == CONTENT_END   ? SIZE
               : c->state == TRAILER_START ? ENDED
                                           : TRAILER_START;
    c->digits = next == SIZE ? 0 : c->digits;
    c->line = next == SIZE ? 0 : c->line; /* all trailers together stay under the limit */
    c->state = next;
    return true;
}

int mg_chunks_next(struct mg_chunks *c, struct mg_sv *in, struct mg_sv *ret)
{
    *ret = mg_sv_n(in->ptr, 0);
    while (in->len > 0 && c->state != ENDED) {
        if (c->state == CONTENT) {
            size_t n = in->len < c->left ? in->len : (size_t)c->left;
            *ret = mg_sv_n(in->ptr, n);
            *in = mg_sv_from(*in, n);
            c->left -= n;
            c->state = c->left == 0 ? CONTENT_END : CONTENT;
            c->line = 0;
            return 0;
        }
        if (!chunk_byte(c, in->ptr[0]))
            return -1;
        *in = mg_sv_from(*in, 1);
    }
    return c->state == ENDED;
}

/* ---- the request ---- */

static void curlu_cleanup(CURLU **u)
{
    curl_url_cleanup(*u);
}

static void curl_str_cleanup(char **s)
{
    curl_free(*s);
}

static bool has_header(const struct mg_net_req *req, struct mg_sv name)
{
    for (int i = 0; i < req->n_headers; i++) {
        if (mg_sv_eq_nocase(req->headers[i].name, name))
            return true;
    }
    return false;
}

/* The URL was checked by mg_conn_open, and so were the headers. */
static mg_rc write_head(const struct mg_net_req *req, struct mg_buf *out, struct mg_err *err)
{
    __attribute__((cleanup(curlu_cleanup))) CURLU *u = curl_url();
    __attribute__((cleanup(curl_str_cleanup))) char *host = NULL;
    __attribute__((cleanup(curl_str_cleanup))) char *port = NULL;
    __attribute__((cleanup(curl_str_cleanup))) char *path = NULL;
    __attribute__((cleanup(curl_str_cleanup))) char *query = NULL;
    mg_autofree char *url = mg_xstrndup(req->url.ptr, req->url.len);
    struct mg_sv method = req->method.len > 0 ? req->method : req->body.len > 0 ? MG_SV("POST") : MG_SV("GET");
    if (curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK || curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        return mg_err_set(err, MG_EINVAL, "the URL is not one like https://host.example/path");
    bool has_query = curl_url_get(u, CURLUPART_QUERY, &query, 0) == CURLUE_OK;
    bool has_port = curl_url_get(u, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT) == CURLUE_OK;
    mg_buf_printf(out, "%.*s %s%s%s HTTP/1.1\r\n", MG_SV_ARG(method), path, has_query ? "?" : "",
                  has_query ? query : "");
    if (!has_header(req, MG_SV("host")))
        mg_buf_printf(out, "Host: %s%s%s\r\n", host, has_port ? ":" : "", has_port ? port : "");
    if (!has_header(req, MG_SV("user-agent")))
        mg_buf_str(out, "User-Agent: mango\r\n");
    if ((req->body.len > 0 || mg_sv_eqz(method, "POST")) && !has_header(req, MG_SV("content-length")))
        mg_buf_printf(out, "Content-Length: %zu\r\n", req->body.len);
    for (int i = 0; i < req->n_headers; i++)
        mg_buf_printf(out, "%.*s: %.*s\r\n", MG_SV_ARG(req->headers[i].name), MG_SV_ARG(req->headers[i].value));
    mg_buf_str(out, "\r\n");
    return mg_buf_ok(out) ? MG_OK
                          : mg_err_set(err, MG_ETOOBIG, "the request's headers are over %d bytes", MG_NET_HEAD_MAX);
}

/* ---- the exchange ---- */

struct work {
    struct mg_conn *c;
    const struct mg_net_req *req;
    uint64_t deadline_ns;
    struct mg_cancel *cancel;
    struct mg_buf in; /* what was read and not used */
};

/* Reads one piece behind what is there; *ret_end at the peer's end. */
static mg_rc more(struct work *w, bool *ret_end, struct mg_err *err)
{
    size_t got = 0;
    uint32_t idle_ms = w->req->idle_ms ? w->req->idle_ms : MG_NET_IDLE_MS;
    uint64_t idle_ns = mg_now_ns() + idle_ms * 1000000ull;
    bool idle_first = !w->deadline_ns || idle_ns < w->deadline_ns;
    if (mg_buf_reserve(&w->in, PIECE) < 0)
        return mg_err_set(err, MG_ETOOBIG, "the answer's headers are over %d bytes", MG_NET_HEAD_MAX);
    mg_rc rc =
        mg_conn_read(w->c, w->in.ptr + w->in.len, PIECE, idle_first ? idle_ns : w->deadline_ns, w->cancel, &got, err);
    if (rc == MG_ETIMEOUT && idle_first)
        return mg_err_set(err, rc, "nothing came for %u ms", idle_ms);
    if (rc < 0)
        return rc;
    mg_buf_added(&w->in, got);
    *ret_end = got == 0;
    return MG_OK;
}

static mg_rc read_head(struct work *w, struct mg_http_head *h, struct mg_err *err)
{
    for (;;) {
        bool end = false;
        mg_rc rc = mg_http_head_parse(mg_buf_view(&w->in), h, NULL, NULL);
        if (rc == MG_OK && (h->status >= 200 || h->status == 101)) {
            (void)mg_http_head_parse(mg_buf_view(&w->in), h, w->req->on_header, w->req->ctx);
            mg_buf_consume(&w->in, h->bytes);
            return MG_OK;
        }
        if (rc == MG_OK) { /* 100 and its like */
            mg_buf_consume(&w->in, h->bytes);
            continue;
        }
        if (rc == MG_EINVAL)
            return mg_err_set(err, MG_EIO, "the answer is not HTTP/1.1");
        rc = more(w, &end, err);
        if (rc < 0)
            return rc;
        if (end)
            return mg_err_set(err, MG_EIO, "the peer closed the connection without an answer");
    }
}

/* Gives the content of what is there. 1: the body is at its end; 0: not yet. */
static int take_body(struct work *w, struct mg_chunks *chunks, struct mg_http_head *h, uint64_t *total,
                     struct mg_err *err, mg_rc *rc)
{
    size_t max = w->req->max_bytes ? w->req->max_bytes : MG_NET_BODY_MAX;
    struct mg_sv in = mg_buf_view(&w->in), piece;
    int end = 0;
    while (in.len > 0 && !end) {
        if (h->chunked) {
            end = mg_chunks_next(chunks, &in, &piece);
        } else {
            uint64_t left = h->length < 0 ? in.len : (uint64_t)h->length - *total;
            piece = mg_sv_n(in.ptr, in.len < left ? in.len : (size_t)left);
            in = mg_sv_n(in.ptr, 0);
        }
        *total += piece.len;
        if (end < 0)
            *rc = mg_err_set(err, MG_EIO, "the answer's body is not chunked as it says");
        else if (*total > max)
            *rc = mg_err_set(err, MG_ETOOBIG, "the answer is over %zu bytes", max);
        else if (piece.len > 0 && w->req->on_body && w->req->on_body(w->req->ctx, piece.ptr, piece.len) != MG_NET_GO)
            end = 1;
        if (*rc < 0)
            return 1;
    }
    mg_buf_reset(&w->in);
    return end || (!h->chunked && h->length >= 0 && *total >= (uint64_t)h->length);
}

static mg_rc read_body(struct work *w, struct mg_http_head *h, struct mg_err *err)
{
    struct mg_chunks chunks = {0};
    uint64_t total = 0;
    mg_rc rc = MG_OK;
    if (h->status == 204 || h->status == 304 || mg_sv_eqz(w->req->method, "HEAD"))
        return MG_OK;
    while (!take_body(w, &chunks, h, &total, err, &rc)) {
        bool end = false;
        rc = more(w, &end, err);
        if (rc < 0)
            return rc;
        if (end && (h->chunked || h->length >= 0))
            return mg_err_set(err, MG_EIO, "the connection ended in the middle of the answer, after %llu bytes of it",
                              (unsigned long long)total);
        if (end)
            return MG_OK;
    }
    return rc;
}

static mg_rc exchange(struct work *w, int *ret_status, bool *ret_stream, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf head = MG_BUF_INIT(MG_NET_HEAD_MAX);
    struct mg_http_head h = {0};
    mg_rc rc = write_head(w->req, &head, err);
    if (rc == MG_OK)
        rc = mg_conn_write(w->c, head.ptr, head.len, w->deadline_ns, w->cancel, err);
    if (rc == MG_OK && w->req->body.len > 0)
        rc = mg_conn_write(w->c, w->req->body.ptr, w->req->body.len, w->deadline_ns, w->cancel, err);
    if (head.ptr)
        mg_wipe(head.ptr, head.len); /* may hold a credential */
    if (rc == MG_OK)
        rc = read_head(w, &h, err);
    if (rc < 0)
        return rc;
    *ret_status = h.status;
    *ret_stream = h.status == 101 || (h.status == 200 && h.length < 0 && !h.chunked);
    if (!*ret_stream)
        return read_body(w, &h, err);
    mg_conn_unread(w->c, w->in.ptr, w->in.len);
    return MG_OK;
}

mg_rc mg_upgrade(struct mg_conn *c, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                 int *ret_status, bool *ret_stream, struct mg_err *err)
{
    struct work w = {
        .c = c, .req = req, .deadline_ns = deadline_ns, .cancel = cancel, .in = MG_BUF_INIT(MG_NET_HEAD_MAX)};
    *ret_status = 0;
    *ret_stream = false;
    mg_rc rc = exchange(&w, ret_status, ret_stream, err);
    mg_buf_done(&w.in);
    return rc;
}
