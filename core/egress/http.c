#include <ctype.h>
#include <stdio.h>

#include "crypto/hash.h"
#include "egress/request.h"

enum { HTTP_PORT = 80 };

/* No control characters: nothing that another parser could take for the end of a line. */
static bool plain(struct mg_sv s, bool blanks)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c < 0x20 ? !(blanks && c == '\t') : c == 0x7f || (c == ' ' && !blanks))
            return false;
    }
    return true;
}

/* "host:port", "host", "[::1]:port". */
static bool authority(struct mg_sv s, int usual, struct mg_egress_target *ret)
{
    struct mg_sv host = s;
    int64_t port = usual;
    const char *colon = memrchr(s.ptr, ':', s.len);
    if (s.len == 0)
        return false;
    if (colon && !(s.ptr[0] == '[' && s.ptr[s.len - 1] == ']')) {
        struct mg_sv digits = mg_sv_from(s, (size_t)(colon - s.ptr) + 1);
        host.len = (size_t)(colon - s.ptr);
        if (!mg_sv_to_i64(digits, &port) || port < 1 || port > 65535 || !isdigit((unsigned char)digits.ptr[0]))
            return false;
    }
    if (memchr(host.ptr, ':', host.len) && host.ptr[0] != '[')
        return false;
    ret->port = (int)port;
    return port > 0 && mg_egress_host_norm(host, ret->host);
}

/* ---- headers ---- */

static bool next_header(struct mg_sv *lines, struct mg_sv *ret_name, struct mg_sv *ret_value)
{
    size_t end = mg_sv_find(*lines, '\n');
    struct mg_sv line = mg_sv_n(lines->ptr, end);
    *lines = mg_sv_from(*lines, end + 1);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    size_t colon = mg_sv_find(line, ':');
    if (colon == line.len)
        return false;
    *ret_name = mg_sv_n(line.ptr, colon);
    *ret_value = mg_sv_trim(mg_sv_from(line, colon + 1));
    return mg_sv_is_token(*ret_name) && plain(*ret_value, true);
}

static bool take_basic(struct mg_sv value, struct mg_egress_http *h)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(2 * MG_EGRESS_USER_MAX);
    struct mg_sv scheme = mg_sv_split(&value, ' ');
    if (!mg_sv_eq_nocase(scheme, MG_SV("basic")) || mg_base64_decode(&text, mg_sv_trim(value)) < 0)
        return false;
    struct mg_sv password = mg_buf_view(&text), user = mg_sv_split(&password, ':');
    if (user.len >= sizeof(h->user) || password.len >= sizeof(h->password))
        return false;
    memcpy(h->user, user.ptr, user.len);
    memcpy(h->password, password.ptr, password.len);
    h->user[user.len] = h->password[password.len] = '\0';
    return true;
}

/* What framing and access need. Two lengths, or a length beside chunks, would let a second request hide in the first. */
static mg_rc read_headers(struct mg_egress_http *h, struct mg_sv *ret_host)
{
    struct mg_sv lines = h->headers, name, value;
    bool has_length = false;
    for (int n = 0; lines.len > 0; n++) {
        int64_t length = 0;
        if (n == MG_EGRESS_HEADERS_MAX || !next_header(&lines, &name, &value))
            return MG_EINVAL;
        if (mg_sv_eq_nocase(name, MG_SV("content-length"))) {
            if (has_length || h->chunked || !mg_sv_to_i64(value, &length) || length < 0 ||
                !isdigit((unsigned char)value.ptr[0]))
                return MG_EINVAL;
            has_length = true;
            h->length = (uint64_t)length;
        } else if (mg_sv_eq_nocase(name, MG_SV("transfer-encoding"))) {
            if (has_length || h->chunked || !mg_sv_eq_nocase(value, MG_SV("chunked")))
                return MG_EINVAL;
            h->chunked = true;
        } else if (mg_sv_eq_nocase(name, MG_SV("host"))) {
            if (ret_host->ptr)
                return MG_EINVAL;
            *ret_host = value;
        } else if (mg_sv_eq_nocase(name, MG_SV("proxy-authorization"))) {
            (void)take_basic(value, h);
        }
    }
    return MG_OK;
}

/* ---- requests ---- */

/* The request line and the header lines. */
static mg_rc split_head(struct mg_sv in, struct mg_egress_http *h, struct mg_sv *ret_target)
{
    *h = (struct mg_egress_http){0};
    const char *end = memmem(in.ptr, in.len, "\r\n\r\n", 4);
    if (!end)
        return in.len >= MG_EGRESS_HEAD_MAX ? MG_EINVAL : MG_EUNAVAIL;
    h->used = (size_t)(end - in.ptr) + 4;
    if (h->used > MG_EGRESS_HEAD_MAX)
        return MG_EINVAL;
    struct mg_sv head = mg_sv_n(in.ptr, h->used - 2);
    size_t eol = mg_sv_find(head, '\n');
    struct mg_sv line = mg_sv_n(head.ptr, eol > 0 ? eol - 1 : 0);
    if (eol == 0 || head.ptr[eol - 1] != '\r')
        return MG_EINVAL;
    h->headers = mg_sv_from(head, eol + 1);
    h->method = mg_sv_split(&line, ' ');
    *ret_target = mg_sv_split(&line, ' ');
    if (!mg_sv_is_token(h->method) || !plain(*ret_target, false) || ret_target->len == 0)
        return MG_EINVAL;
    return mg_sv_eqz(line, "HTTP/1.1") || mg_sv_eqz(line, "HTTP/1.0") ? MG_OK : MG_EINVAL;
}

mg_rc mg_egress_http_parse(struct mg_sv in, struct mg_egress_http *ret)
{
    struct mg_sv target, host = {0};
    mg_rc rc = split_head(in, ret, &target);
    if (rc == MG_OK)
        rc = read_headers(ret, &host);
    if (rc < 0)
        return rc;
    ret->tunnel = mg_sv_eqz(ret->method, "CONNECT");
    if (ret->tunnel)
        return authority(target, 0, &ret->target) ? MG_OK : MG_EINVAL;
    if (target.len < 8 || !mg_sv_eq_nocase(mg_sv_n(target.ptr, 7), MG_SV("http://")))
        return MG_EINVAL;
    struct mg_sv rest = mg_sv_from(target, 7);
    size_t slash = 0;
    while (slash < rest.len && !memchr("/?#", rest.ptr[slash], 3))
        slash++;
    ret->path = mg_sv_from(rest, slash);
    return authority(mg_sv_n(rest.ptr, slash), HTTP_PORT, &ret->target) ? MG_OK : MG_EINVAL;
}

mg_rc mg_egress_origin_parse(struct mg_sv in, const struct mg_egress_target *tunnel, struct mg_egress_http *ret)
{
    struct mg_sv target, host = {0};
    struct mg_egress_target named;
    mg_rc rc = split_head(in, ret, &target);
    if (rc == MG_OK)
        rc = read_headers(ret, &host);
    if (rc < 0)
        return rc;
    ret->target = *tunnel;
    ret->path = target;
    if (target.ptr[0] != '/' && !mg_sv_eqz(target, "*"))
        return MG_EINVAL;
    if (!host.ptr || !authority(host, HTTP_PORT, &named))
        return MG_EINVAL;
    return strcmp(named.host, tunnel->host) == 0 && named.port == tunnel->port ? MG_OK : MG_EDENIED;
}

/* ---- the head that goes on ---- */

static bool in_lines(struct mg_sv lines, struct mg_sv name)
{
    struct mg_sv n, v;
    while (lines.len > 0 && next_header(&lines, &n, &v)) {
        if (mg_sv_eq_nocase(n, name))
            return true;
    }
    return false;
}

/* Headers of this hop; Connection's own list may name more, which are dropped too. */
static bool dropped(struct mg_sv name, struct mg_sv connection, struct mg_sv extra)
{
    static const char *const hop[] = {
        "connection", "proxy-connection", "proxy-authorization", "proxy-authenticate", "keep-alive", "te", "upgrade",
        "host",       "trailer"};
    for (size_t i = 0; i < sizeof(hop) / sizeof(hop[0]); i++) {
        if (mg_sv_eq_nocase(name, mg_sv_of(hop[i])))
            return true;
    }
    if (mg_sv_eq_nocase(name, MG_SV("content-length")) || mg_sv_eq_nocase(name, MG_SV("transfer-encoding")))
        return false; /* the body is framed by them, whatever Connection says */
    while (connection.len > 0) {
        if (mg_sv_eq_nocase(mg_sv_trim(mg_sv_split(&connection, ',')), name))
            return true;
    }
    return in_lines(extra, name);
}

static struct mg_sv connection_of(struct mg_sv lines)
{
    struct mg_sv n, v;
    while (lines.len > 0 && next_header(&lines, &n, &v)) {
        if (mg_sv_eq_nocase(n, MG_SV("connection")))
            return v;
    }
    return mg_sv_n("", 0);
}

void mg_egress_http_write(const struct mg_egress_http *h, struct mg_sv extra, struct mg_buf *out)
{
    struct mg_sv lines = h->headers, name, value, connection = connection_of(h->headers);
    bool six = strchr(h->target.host, ':') != NULL;
    bool rooted = h->path.len > 0 && (h->path.ptr[0] == '/' || h->path.ptr[0] == '*');
    size_t path_len = mg_sv_find(h->path, '#');
    mg_buf_printf(out, "%.*s %s%.*s HTTP/1.1\r\nHost: %s%s%s", MG_SV_ARG(h->method), rooted ? "" : "/", (int)path_len,
                  h->path.ptr ? h->path.ptr : "", six ? "[" : "", h->target.host, six ? "]" : "");
    if (h->target.port != HTTP_PORT)
        mg_buf_printf(out, ":%d", h->target.port);
    mg_buf_str(out, "\r\nConnection: close\r\n");
    while (lines.len > 0 && next_header(&lines, &name, &value)) {
        if (!dropped(name, connection, extra))
            mg_buf_printf(out, "%.*s: %.*s\r\n", MG_SV_ARG(name), MG_SV_ARG(value));
    }
    mg_buf_sv(out, extra);
    mg_buf_str(out, "\r\n");
}
