#include "bench/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 * 1024,
    EVENTS = 256,
    KEEP_BYTES = 64 * 1024, /* an input buffer above this is given back */
};

uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void die(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    (void)vfprintf(stderr, format, ap);
    va_end(ap);
    (void)fputc('\n', stderr);
    exit(1);
}

static void *grow(void *p, size_t n)
{
    p = realloc(p, n);
    if (!p)
        die("no memory for %zu bytes", n);
    return p;
}

void client_init(struct client *c, int port, const char *key)
{
    *c = (struct client){.epoll = epoll_create1(EPOLL_CLOEXEC), .port = port, .key = key};
    if (c->epoll < 0)
        die("epoll: %s", strerror(errno));
}

static void watch(struct conn *c, int op)
{
    uint32_t want = (c->paused ? 0 : EPOLLIN) | (c->out_at < c->out_len ? EPOLLOUT : 0);
    struct epoll_event e = {.events = want, .data.ptr = c};
    if (epoll_ctl(c->client->epoll, op, c->fd, &e) < 0)
        die("epoll_ctl: %s", strerror(errno));
}

struct conn *conn_open(struct client *client, void *user)
{
    return conn_open_at(client, client->port, user);
}

struct conn *conn_open_at(struct client *client, int port, void *user)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    struct conn *c = calloc(1, sizeof(*c));
    if (!c)
        die("no memory");
    c->client = client;
    c->user = user;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect to port %d: %s", port, strerror(errno));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    watch(c, EPOLL_CTL_ADD);
    return c;
}

void conn_close(struct conn *c)
{
    (void)close(c->fd);
    free(c->out);
    free(c->in);
    free(c);
}

void conn_pause(struct conn *c, bool on)
{
    c->paused = on;
    watch(c, EPOLL_CTL_MOD);
}

static void flush(struct conn *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            watch(c, EPOLL_CTL_MOD);
            return;
        }
        if (n < 0)
            die("send: %s", strerror(errno));
        c->out_at += (size_t)n;
    }
}

void conn_request(struct conn *c, const char *method, const char *path, const char *body)
{
    size_t len = body ? strlen(body) : 0;
    size_t need = len + strlen(path) + 512;
    if (need > c->out_cap) {
        c->out = grow(c->out, need);
        c->out_cap = need;
    }
    const char *key = c->bearer ? c->bearer : c->client->key ? c->client->key : "none";
    int n = snprintf(c->out, need, "%s %s HTTP/1.1\r\nhost: 127.0.0.1\r\n%s%s\r\nanthropic-version: 2023-06-01\r\n%s",
                     method, path, c->bearer ? "authorization: Bearer " : "x-api-key: ", key, body ? "" : "\r\n");
    if (body)
        n += snprintf(c->out + n, need - (size_t)n, "content-type: application/json\r\ncontent-length: %zu\r\n\r\n%s",
                      len, body);
    c->out_len = (size_t)n;
    c->out_at = 0;
    c->body_at = c->body_len = 0;
    c->streaming = false;
    flush(c);
}

/* ---- answers ---- */

static void take_head(struct conn *c)
{
    const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (!end)
        return;
    size_t head = (size_t)(end - c->in) + 4;
    c->in[head - 1] = '\0'; /* for strcasestr; the body begins behind it */
    const char *length = strcasestr(c->in, "\r\ncontent-length:");
    c->status = c->in_len > 12 ? (int)strtol(c->in + 9, NULL, 10) : 0;
    c->streaming = c->status == 200 && strcasestr(c->in, "text/event-stream") != NULL;
    c->body_at = head;
    c->body_len = length ? strtoul(length + 17, NULL, 10) : 0;
}

static void consume(struct conn *c, size_t n)
{
    c->in_len -= n;
    memmove(c->in, c->in + n, c->in_len);
}

/* Lines of chunk sizes are lines like others; no reader of ours takes them for anything. */
static void stream_lines(struct conn *c)
{
    size_t at = 0;
    for (;;) {
        char *nl = memchr(c->in + at, '\n', c->in_len - at);
        if (!nl)
            break;
        size_t len = (size_t)(nl - c->in) - at;
        if (len && c->in[at + len - 1] == '\r')
            len--;
        c->on_line(c, c->in + at, len);
        at = (size_t)(nl - c->in) + 1;
    }
    consume(c, at);
}

static void stream_input(struct conn *c)
{
    if (c->on_bytes) {
        c->on_bytes(c, c->in, c->in_len);
        c->in_len = 0;
    } else {
        stream_lines(c);
    }
}

static void input(struct conn *c)
{
    if (c->streaming) {
        stream_input(c);
        return;
    }
    if (c->body_at == 0)
        take_head(c);
    if (c->body_at == 0)
        return;
    if (c->streaming) {
        if (c->on_answer)
            c->on_answer(c, c->status, NULL, 0);
        consume(c, c->body_at);
        stream_input(c);
    } else if (c->in_len - c->body_at >= c->body_len) {
        size_t at = c->body_at, len = c->body_len;
        c->in[at + len] = '\0';
        c->in_len = 0; /* nothing is pipelined */
        c->body_at = 0;
        c->on_answer(c, c->status, c->in + at, len);
    }
}

static void readable(struct conn *c)
{
    if (c->in_cap - c->in_len < READ_BYTES + 1) {
        c->in_cap = c->in_len + READ_BYTES + 1;
        c->in = grow(c->in, c->in_cap);
    }
    ssize_t n = recv(c->fd, c->in + c->in_len, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        die("the server closed a connection%s%s", n < 0 ? ": " : "", n < 0 ? strerror(errno) : "");
    c->in_len += (size_t)n;
    input(c);
    if (c->in_len == 0 && c->streaming) { /* thousands of idle streams hold no buffers */
        free(c->in);
        c->in = NULL;
        c->in_cap = 0;
    }
}

bool client_run(struct client *c, uint64_t until_ns)
{
    struct epoll_event got[EVENTS];
    c->stop = false;
    while (!c->stop) {
        uint64_t now = now_ns();
        if (now >= until_ns)
            return false;
        int n = epoll_wait(c->epoll, got, EVENTS, (int)((until_ns - now) / 1000000 + 1));
        if (n < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            struct conn *conn = got[i].data.ptr;
            if (got[i].events & EPOLLOUT) {
                flush(conn);
                if (conn->out_at == conn->out_len)
                    watch(conn, EPOLL_CTL_MOD);
            }
            if (got[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                readable(conn);
        }
    }
    return true;
}

static void on_call(struct conn *c, int status, const char *body, size_t len)
{
    char **out = c->user;
    if (status != 200)
        die("status %d: %.*s", status, (int)len, body);
    *out = grow(NULL, len + 1);
    memcpy(*out, body, len + 1);
    c->client->stop = true;
}

char *client_call(struct client *c, const char *method, const char *path, const char *body)
{
    char *out = NULL;
    struct conn *conn = conn_open(c, &out);
    conn->on_answer = on_call;
    conn_request(conn, method, path, body);
    if (!client_run(c, now_ns() + 30 * UINT64_C(1000000000)))
        die("%s %s: no answer", method, path);
    conn_close(conn);
    return out;
}

char *json_id(const char *body)
{
    const char *at = strstr(body, "\"id\":\"");
    const char *end = at ? strchr(at + 6, '"') : NULL;
    if (!end)
        die("no id in: %.200s", body);
    return strndup(at + 6, (size_t)(end - at - 6));
}

/* ---- figures ---- */

void sample_add(struct sample *s, uint64_t ns)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 4096;
        s->ns = grow(s->ns, s->cap * sizeof(*s->ns));
    }
    s->ns[s->n++] = ns;
    s->sorted = false;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double sample_ms(struct sample *s, double quantile)
{
    if (s->n == 0)
        return 0;
    if (!s->sorted)
        qsort(s->ns, s->n, sizeof(*s->ns), by_size);
    s->sorted = true;
    size_t i = (size_t)(quantile * (double)s->n);
    return (double)s->ns[i < s->n ? i : s->n - 1] / 1e6;
}

const char *option(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, name) == 0)
            return argv[i + 1];
    if (!fallback)
        die("--%s VALUE is missing", name);
    return fallback;
}

long option_int(int argc, char **argv, const char *name, const char *fallback)
{
    return strtol(option(argc, argv, name, fallback), NULL, 10);
}
