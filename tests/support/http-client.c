#include "support/http-client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "support/http-rig.h"
#include "unit/unit.h"

struct client *client_open(const struct rig *r)
{
    struct client *c = mg_xcalloc(1, sizeof(*c));
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)rig_port(r)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval tv = {.tv_sec = RIG_WAIT_S};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return c;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    (void)close(c->fd);
    free(c->buf);
    free(c);
}

void client_send(struct client *c, const char *bytes, size_t n)
{
    while (n) {
        ssize_t w = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (w < 0)
            return; /* the server closed: what it said is what the test looks at */
        bytes += w;
        n -= (size_t)w;
    }
}

void client_say(struct client *c, const char *text)
{
    client_send(c, text, strlen(text));
}

void client_drip(struct client *c, const char *text)
{
    for (; *text; text++)
        client_send(c, text, 1);
}

/* false: the end of the connection (or a reset). */
static bool more(struct client *c)
{
    if (c->eof)
        return false;
    if (c->cap - c->len < 65536) {
        c->cap = c->cap ? c->cap * 2 : 131072;
        c->buf = mg_xrealloc(c->buf, c->cap + 1);
    }
    ssize_t n = recv(c->fd, c->buf + c->len, c->cap - c->len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        c->buf[c->len] = '\0';
        fail_msg("nothing came for %d s; so far: %.2000s", RIG_WAIT_S, c->buf);
    }
    if (n <= 0) {
        c->eof = true;
        return false;
    }
    c->len += (size_t)n;
    c->buf[c->len] = '\0';
    return true;
}

static void take(struct client *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->len - n + 1);
    c->len -= n;
}

const char *client_until(struct client *c, const char *text)
{
    static char *got;
    char *at;
    while (c->len == 0 || !(at = memmem(c->buf, c->len, text, strlen(text))))
        if (!more(c))
            fail_msg("the connection ended before \"%s\"; so far: %.2000s", text, c->len ? c->buf : "");
    size_t n = (size_t)(at - c->buf) + strlen(text);
    free(got);
    got = mg_xstrndup(c->buf, n);
    take(c, n);
    return got;
}

bool client_ended(struct client *c)
{
    while (c->len == 0 && more(c))
        ;
    return c->len == 0 && c->eof;
}

static void need(struct client *c, size_t n)
{
    while (c->len < n)
        if (!more(c))
            fail_msg("the connection ended after %zu of %zu bytes", c->len, n);
}

const char *answer_header(const struct answer *a, const char *name)
{
    static char value[1024];
    char line[128];
    (void)snprintf(line, sizeof(line), "\r\n%s: ", name);
    const char *at = strcasestr(a->head, line);
    if (!at)
        return NULL;
    at += strlen(line);
    (void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(at, "\r"), at);
    return value;
}

static void chunked_body(struct client *c, struct answer *a)
{
    for (;;) {
        size_t n = strtoul(client_until(c, "\r\n"), NULL, 16);
        need(c, n + 2);
        a->body = mg_xrealloc(a->body, a->len + n + 1);
        memcpy(a->body + a->len, c->buf, n);
        a->len += n;
        a->body[a->len] = '\0';
        take(c, n + 2);
        if (n == 0)
            return;
    }
}

struct answer *client_answer(struct client *c)
{
    struct answer *a = mg_xcalloc(1, sizeof(*a));
    (void)snprintf(a->head, sizeof(a->head), "%s", client_until(c, "\r\n\r\n"));
    if (sscanf(a->head, "HTTP/1.1 %d", &a->status) != 1)
        fail_msg("no status line: %s", a->head);
    a->body = mg_xcalloc(1, 1);
    const char *te = answer_header(a, "transfer-encoding");
    if (te) {
        chunked_body(c, a);
        return a;
    }
    const char *cl = answer_header(a, "content-length");
    a->len = cl ? strtoul(cl, NULL, 10) : 0;
    if (a->len == 0)
        return a;
    need(c, a->len);
    a->body = mg_xrealloc(a->body, a->len + 1);
    memcpy(a->body, c->buf, a->len);
    a->body[a->len] = '\0';
    take(c, a->len);
    return a;
}

void answer_free(struct answer *a)
{
    free(a->body);
    free(a);
}

/* ---- what is asserted of the answers ---- */

void client_expect(struct client *c, int status, const char *body_part)
{
    struct answer *a = client_answer(c);
    if (a->status != status || !strstr(a->body, body_part))
        fail_msg("expected %d with \"%s\", got %s%.500s", status, body_part, a->head, a->body);
    assert_non_null(answer_header(a, "request-id"));
    answer_free(a);
}

void client_refused_bytes(const struct rig *r, const char *request, size_t n, int status, const char *type,
                          const char *reason, bool closed)
{
    struct client *c = client_open(r);
    client_send(c, request, n);
    struct answer *a = client_answer(c);
    if (a->status != status)
        fail_msg("expected %d for %.200s..., got %s%s", status, request, a->head, a->body);
    assert_contains(a->body, type);
    assert_contains(a->body, reason);
    assert_contains(a->body, answer_header(a, "request-id"));
    assert_string_equal(answer_header(a, "content-type"), "application/json");
    if (closed) {
        assert_string_equal(answer_header(a, "connection"), "close");
        assert_true(client_ended(c));
    } else { /* the connection is right for the next request */
        client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
        client_expect(c, 200, "ok");
    }
    answer_free(a);
    client_close(c);
}

void client_refused(const struct rig *r, const char *request, int status, const char *type, const char *reason,
                    bool closed)
{
    client_refused_bytes(r, request, strlen(request), status, type, reason, closed);
}

char *filled(const char *before, char c, size_t n, const char *after)
{
    size_t b = strlen(before), a = strlen(after);
    char *s = malloc(b + n + a + 1);
    assert_non_null(s);
    memcpy(s, before, b);
    memset(s + b, c, n);
    memcpy(s + b + n, after, a + 1);
    return s;
}

struct client *stream_open(const struct rig *r, const char *query, const char *headers)
{
    char req[512];
    struct client *c = client_open(r);
    (void)snprintf(req, sizeof(req), "GET /v1/sessions/s1/events/stream%s HTTP/1.1\r\nhost: x\r\n%s\r\n", query,
                   headers);
    client_say(c, req);
    return c;
}

/* ---- WebSocket ---- */

struct client *ws_open(struct rig *r, const char *path, const char *headers)
{
    char req[2048];
    struct client *c = client_open(r);
    (void)snprintf(req, sizeof(req),
                   "GET %s HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: keep-alive, Upgrade\r\n"
                   "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n",
                   path, headers);
    client_say(c, req);
    return c;
}

void ws_send_frame(struct client *c, int first_byte, const char *content, size_t n)
{
    static const unsigned char mask[4] = {0x12, 0x34, 0x56, 0x78};
    char *f = mg_xmalloc(n + 14);
    size_t h = 0;
    f[h++] = (char)first_byte;
    if (n < 126) {
        f[h++] = (char)(0x80 | n);
    } else if (n < 65536) {
        f[h++] = (char)(0x80 | 126);
        f[h++] = (char)(n >> 8);
        f[h++] = (char)n;
    } else {
        f[h++] = (char)(0x80 | 127);
        for (int i = 7; i >= 0; i--)
            f[h++] = (char)(n >> (8 * i));
    }
    memcpy(f + h, mask, 4);
    h += 4;
    for (size_t i = 0; i < n; i++)
        f[h + i] = (char)(content[i] ^ mask[i & 3]);
    client_send(c, f, h + n);
    free(f);
}

void ws_text(struct client *c, const char *text)
{
    ws_send_frame(c, 0x81, text, strlen(text));
}

const char *ws_frame(struct client *c, int *ret_opcode, size_t *ret_len, bool want_pings)
{
    static char *got;
    for (;;) {
        need(c, 2);
        size_t n = (unsigned char)c->buf[1], h = 2;
        assert_true(n < 128); /* a server's frames are not masked */
        int bytes = n == 126 ? 2 : n == 127 ? 8 : 0;
        need(c, h + (size_t)bytes);
        n = bytes ? 0 : n;
        for (int i = 0; i < bytes; i++)
            n = n << 8 | (unsigned char)c->buf[h++];
        need(c, h + n);
        *ret_opcode = c->buf[0] & 0x0f;
        *ret_len = n;
        free(got);
        got = mg_xcalloc(1, n + 1);
        memcpy(got, c->buf + h, n);
        take(c, h + n);
        if (*ret_opcode != 9 || want_pings)
            return got;
        ws_send_frame(c, 0x8a, got, n);
    }
}

const char *ws_expect_text(struct client *c)
{
    int opcode;
    size_t n;
    const char *text = ws_frame(c, &opcode, &n, false);
    if (opcode != 1)
        fail_msg("a frame of opcode %d came: %s", opcode, n > 2 ? text + 2 : "");
    return text;
}

int ws_expect_close(struct client *c)
{
    int opcode;
    size_t n;
    const char *text = ws_frame(c, &opcode, &n, false);
    if (opcode != 8)
        fail_msg("a frame of opcode %d came instead of a close: %.300s", opcode, text);
    return n < 2 ? 1005 : (unsigned char)text[0] << 8 | (unsigned char)text[1];
}
