/* A connection of a sandbox from its first byte to the moment when it is let through or refused. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/internal.h"

enum {
    ACCEPTS = 64,     /* of one event, so that one door does not hold up the rest */
    LINGER_MS = 1000, /* a refused sandbox has so long to read why */
};

void mg_egress_conn_after(struct mg_egress_conn *c, uint64_t ms)
{
    c->until_ns = mg_now_ns() + ms * 1000000u;
}

/* ---- coming and going ---- */

static void join_door(struct mg_egress_conn *c, struct mg_egress_door *d)
{
    mg_list_del(&c->link);
    c->e->n_waiting -= c->door == NULL;
    c->door = d;
    d->n_conns++;
    mg_list_add_tail(&d->conns, &c->link);
}

static struct mg_egress_conn *conn_new(struct mg_egress *e, int fd, struct mg_egress_door *d)
{
    struct mg_egress_conn *c = mg_xcalloc(1, sizeof(*c));
    c->e = e;
    c->client = (struct mg_egress_handle){.kind = MG_EGRESS_CLIENT, .fd = fd, .conn = c};
    c->upstream = (struct mg_egress_handle){.kind = MG_EGRESS_UPSTREAM, .fd = -1, .conn = c};
    c->in = MG_BUF_INIT(MG_EGRESS_HEAD_MAX);
    c->out.held = c->back.held = MG_BUF_INIT(2 * MG_EGRESS_HELD);
    mg_list_init(&c->link);
    mg_list_add_tail(&e->conns, &c->all);
    e->n_conns++;
    e->n_waiting++;
    mg_list_add_tail(&e->waiting, &c->link);
    if (d)
        join_door(c, d);
    mg_egress_conn_after(c, e->opts.head_ms);
    mg_egress_watch(e, &c->client, EPOLLIN);
    return c;
}

void mg_egress_conn_kill(struct mg_egress_conn *c)
{
    if (c->dead)
        return;
    c->dead = true;
    if (c->door)
        c->door->n_conns--;
    else
        c->e->n_waiting--;
    c->e->n_conns--;
    c->door = NULL;
    mg_list_del(&c->link);
    mg_list_del(&c->all);
    mg_list_add_tail(&c->e->graveyard, &c->all);
    close(c->client.fd);
    if (c->upstream.fd >= 0)
        close(c->upstream.fd);
    c->client.fd = c->upstream.fd = -1;
}

void mg_egress_conn_free(struct mg_egress_conn *c)
{
    if (c->head.ptr)
        mg_wipe(c->head.ptr, c->head.cap); /* held a credential */
    mg_buf_done(&c->head);
    mg_buf_done(&c->in);
    mg_buf_done(&c->out.held);
    mg_buf_done(&c->back.held);
    free(c);
}

void mg_egress_accept(struct mg_egress *e, struct mg_egress_listener *l)
{
    const int on = 1;
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer);
        int fd = accept4(l->handle.fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) { /* it would be ready again and again: at the next sweep */
            mg_egress_watch(e, &l->handle, 0);
            e->resting = true;
        }
        if (fd < 0)
            return;
        bool full = l->door ? l->door->n_conns >= MG_EGRESS_DOOR_CONNS : e->n_waiting >= MG_EGRESS_WAITING_MAX;
        if (!l->door)
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        struct mg_egress_conn *c = conn_new(e, fd, l->door);
        if (!full)
            continue;
        mg_egress_audit(c, MG_EGRESS_R_LIMIT);
        mg_egress_conn_kill(c);
    }
}

/* ---- refusing ---- */

#define ASK_AUTH "Proxy-Authenticate: Basic realm=\"mango\"\r\n"

/* The text is "host HOST:PORT: why". */
static const struct {
    const char *status, *why;
    unsigned char socks;
} answers[MG_EGRESS_R_COUNT] = {
    [MG_EGRESS_R_HOST] = {"403 Forbidden", "blocked by policy: the host is not allowed", 2},
    [MG_EGRESS_R_PORT] = {"403 Forbidden", "blocked by policy: the host is allowed, this port is not", 2},
    [MG_EGRESS_R_ADDRESS] = {"403 Forbidden", "blocked by policy: it leads to an address that is not public", 2},
    [MG_EGRESS_R_RESOLVE] = {"502 Bad Gateway", "the name cannot be resolved", 4},
    [MG_EGRESS_R_CONNECT] = {"502 Bad Gateway", "nobody answers there", 5},
    [MG_EGRESS_R_NAME] = {"403 Forbidden", "blocked by policy: the request inside names another host", 2},
    [MG_EGRESS_R_PROTOCOL] = {"400 Bad Request",
                              "this proxy takes CONNECT, http:// requests and SOCKS5, with TLS on port 443", 1},
    [MG_EGRESS_R_AUTH] = {"407 Proxy Authentication Required", "the proxy's credential is missing or wrong", 2},
    [MG_EGRESS_R_LIMIT] = {"503 Service Unavailable", "too many connections at a time", 1},
};

static void answer_http(struct mg_egress_conn *c, enum mg_egress_reason why)
{
    char text[MG_EGRESS_HOST_MAX + 200];
    int n = snprintf(text, sizeof(text), "host %s:%d: %s\n", c->target.host, c->target.port, answers[why].why);
    (void)mg_buf_printf(&c->back.held,
                        "HTTP/1.1 %s\r\n%sX-Proxy-Error: blocked-by-mango\r\nContent-Type: text/plain; "
                        "charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
                        answers[why].status, why == MG_EGRESS_R_AUTH ? ASK_AUTH : "", n, text);
}

/* The answer goes out, and what the sandbox still sends is dropped until it hangs up: a close with unread bytes would
 * reset the connection and take the answer with it. */
static void end(struct mg_egress_conn *c, uint32_t events)
{
    char drop[4096];
    struct mg_buf *b = &c->back.held;
    if (b->len > 0) {
        ssize_t n = send(c->client.fd, b->ptr, b->len, MSG_NOSIGNAL);
        if (n > 0)
            mg_buf_consume(b, (size_t)n);
        else if (n < 0 && errno != EAGAIN)
            mg_egress_conn_kill(c);
        if (c->dead)
            return;
    }
    if (b->len == 0 && !c->back.passed_on) {
        c->back.passed_on = true;
        (void)shutdown(c->client.fd, SHUT_WR);
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(c->client.fd, drop, sizeof(drop), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            mg_egress_conn_kill(c);
    }
    mg_egress_conn_watch(c);
}

void mg_egress_conn_refuse(struct mg_egress_conn *c, enum mg_egress_reason why)
{
    const unsigned char socks[10] = {5, answers[why].socks, 0, 1};
    mg_egress_audit(c, why);
    if (c->upstream.fd >= 0) {
        close(c->upstream.fd);
        c->upstream.fd = -1;
        c->upstream.events = 0;
    }
    if (!c->socks && !c->replied)
        answer_http(c, why);
    else if (!c->replied && c->state != MG_EGRESS_ASKING && c->state != MG_EGRESS_SOCKS_AUTH)
        (void)mg_buf_append(&c->back.held, socks, sizeof(socks));
    else if (c->replied && c->gate == MG_EGRESS_WEB_80 && c->in.len > 0 && !mg_egress_tls_begins(mg_buf_view(&c->in)))
        answer_http(c, why);
    c->state = MG_EGRESS_ENDING;
    mg_egress_conn_after(c, LINGER_MS);
    end(c, 0);
}

/* ---- the request ---- */

/* What a match means for the bytes that follow; false: refused. */
static bool set_gate(struct mg_egress_conn *c, enum mg_egress_match m)
{
    enum { HTTP = 80, HTTPS = 443 };
    switch (m) {
    case MG_EGRESS_NO_HOST:
        mg_egress_conn_refuse(c, MG_EGRESS_R_HOST);
        return false;
    case MG_EGRESS_NO_PORT:
        mg_egress_conn_refuse(c, MG_EGRESS_R_PORT);
        return false;
    case MG_EGRESS_ALL:
        c->gate = MG_EGRESS_OPEN;
        return true;
    case MG_EGRESS_WEB:
    case MG_EGRESS_LISTED:
        break;
    }
    c->gate = c->http                   ? MG_EGRESS_OPEN
              : c->target.port == HTTP  ? MG_EGRESS_WEB_80
              : c->target.port == HTTPS ? MG_EGRESS_MUST_TLS
                                        : MG_EGRESS_MAY_BE_TLS;
    if (!c->http || c->target.port != HTTPS)
        return true;
    mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL); /* clear text to the port of TLS */
    return false;
}

static void decide(struct mg_egress_conn *c)
{
    if (set_gate(c, mg_egress_policy_match(c->door->policy, mg_sv_of(c->target.host), c->target.port)))
        mg_egress_dial(c);
}

/* False: refused. */
static bool enter(struct mg_egress_conn *c, const char *user, const char *password)
{
    struct mg_egress_door *d = c->door ? c->door : mg_egress_door_find(c->e, user, password);
    if (!d) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_AUTH);
        return false;
    }
    if (c->door)
        return true;
    if (d->n_conns >= MG_EGRESS_DOOR_CONNS) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_LIMIT);
        return false;
    }
    join_door(c, d);
    return true;
}

static void ask_http(struct mg_egress_conn *c)
{
    struct mg_egress_http h;
    mg_rc rc = mg_egress_http_parse(mg_buf_view(&c->in), &h);
    if (rc == MG_EUNAVAIL)
        return;
    c->target = h.target;
    if (rc < 0) {
        c->target.host[0] = '\0';
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        return;
    }
    bool in = enter(c, h.user, h.password);
    mg_wipe(h.user, sizeof(h.user));
    mg_wipe(h.password, sizeof(h.password));
    if (!in)
        return;
    c->http = !h.tunnel;
    if (h.tunnel)
        mg_buf_consume(&c->in, h.used);
    decide(c);
}

static void say(struct mg_egress_conn *c, unsigned char a, unsigned char b)
{
    const unsigned char two[2] = {a, b};
    (void)mg_buf_append(&c->back.held, two, sizeof(two));
}

static void socks_hello(struct mg_egress_conn *c)
{
    enum { NONE_FITS = 0xff };
    struct mg_egress_hello h;
    mg_rc rc = mg_egress_socks_hello(mg_buf_view(&c->in), &h);
    if (rc == MG_EUNAVAIL)
        return;
    if (rc < 0) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        return;
    }
    c->socks = true;
    mg_buf_consume(&c->in, h.used);
    if (c->door && h.plain) {
        say(c, 5, 0);
        c->state = MG_EGRESS_SOCKS_ASK;
    } else if (h.password) {
        say(c, 5, 2);
        c->state = MG_EGRESS_SOCKS_AUTH;
    } else {
        say(c, 5, NONE_FITS);
        mg_egress_conn_refuse(c, MG_EGRESS_R_AUTH);
    }
}

static void socks_auth(struct mg_egress_conn *c)
{
    char user[MG_EGRESS_USER_MAX], password[MG_EGRESS_USER_MAX];
    size_t used = 0;
    mg_rc rc = mg_egress_socks_password(mg_buf_view(&c->in), user, password, &used);
    if (rc == MG_EUNAVAIL)
        return;
    if (rc < 0) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        return;
    }
    bool known = c->door || mg_egress_door_find(c->e, user, password);
    say(c, 1, !known);
    mg_buf_consume(&c->in, used);
    if (enter(c, user, password))
        c->state = MG_EGRESS_SOCKS_ASK;
    mg_wipe(password, sizeof(password));
}

static void socks_ask(struct mg_egress_conn *c)
{
    enum { CONNECT = 1 };
    int command = 0;
    size_t used = 0;
    mg_rc rc = mg_egress_socks_request(mg_buf_view(&c->in), &c->target, &command, &used);
    if (rc == MG_EUNAVAIL)
        return;
    if (rc < 0 || command != CONNECT) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        return;
    }
    mg_buf_consume(&c->in, used);
    decide(c);
}

/* As long as the bytes that are there take it further. */
static void advance(struct mg_egress_conn *c)
{
    enum mg_egress_state before;
    do {
        before = c->state;
        bool socks = c->in.len > 0 && c->in.ptr[0] == 5;
        if (c->state == MG_EGRESS_ASKING && socks)
            socks_hello(c);
        else if (c->state == MG_EGRESS_ASKING)
            ask_http(c);
        else if (c->state == MG_EGRESS_SOCKS_AUTH)
            socks_auth(c);
        else if (c->state == MG_EGRESS_SOCKS_ASK)
            socks_ask(c);
    } while (!c->dead && c->state != before && c->in.len > 0);
}

/* The small answers of SOCKS on the way to a request. */
static void flush_early(struct mg_egress_conn *c)
{
    struct mg_buf *b = &c->back.held;
    ssize_t n = b->len > 0 ? send(c->client.fd, b->ptr, b->len, MSG_NOSIGNAL) : 0;
    if (n > 0)
        mg_buf_consume(b, (size_t)n);
    else if (n < 0 && errno != EAGAIN)
        mg_egress_conn_kill(c);
}

bool mg_egress_conn_fill(struct mg_egress_conn *c)
{
    size_t room = MG_EGRESS_HEAD_MAX - c->in.len;
    if (room == 0 || mg_buf_reserve(&c->in, room) < 0) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        return false;
    }
    ssize_t n = recv(c->client.fd, c->in.ptr + c->in.len, room, 0);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) { /* it leaves without having said what it wanted */
        mg_egress_conn_kill(c);
        return false;
    }
    mg_buf_added(&c->in, (size_t)n);
    return true;
}

static void read_request(struct mg_egress_conn *c)
{
    if (!mg_egress_conn_fill(c))
        return;
    advance(c);
    if (!c->dead && (c->state == MG_EGRESS_SOCKS_AUTH || c->state == MG_EGRESS_SOCKS_ASK))
        flush_early(c);
}

/* ---- events ---- */

void mg_egress_conn_watch(struct mg_egress_conn *c)
{
    uint32_t client = 0, upstream = 0;
    if (c->dead)
        return;
    switch (c->state) {
    case MG_EGRESS_ASKING:
    case MG_EGRESS_SOCKS_AUTH:
    case MG_EGRESS_SOCKS_ASK:
        client = EPOLLIN;
        break;
    case MG_EGRESS_LOOKING:
        break;
    case MG_EGRESS_DIALING:
        upstream = EPOLLOUT;
        break;
    case MG_EGRESS_ENDING:
        client = EPOLLIN | (c->back.held.len > 0 ? (uint32_t)EPOLLOUT : 0);
        break;
    case MG_EGRESS_RELAYING:
        client = (c->out.ended || c->out.held.len > 0 ? 0 : (uint32_t)EPOLLIN) |
                 (c->back.held.len > 0 ? (uint32_t)EPOLLOUT : 0);
        upstream = (c->back.ended || c->back.held.len > 0 ? 0 : (uint32_t)EPOLLIN) |
                   (c->out.held.len > 0 ? (uint32_t)EPOLLOUT : 0);
        break;
    }
    mg_egress_watch(c->e, &c->client, client);
    mg_egress_watch(c->e, &c->upstream, upstream);
}

void mg_egress_conn_event(struct mg_egress_conn *c, struct mg_egress_handle *h, uint32_t events)
{
    switch (c->state) {
    case MG_EGRESS_ASKING:
    case MG_EGRESS_SOCKS_AUTH:
    case MG_EGRESS_SOCKS_ASK:
        if (h == &c->client)
            read_request(c);
        break;
    case MG_EGRESS_LOOKING:
        break;
    case MG_EGRESS_DIALING:
        if (h == &c->upstream)
            mg_egress_dialed(c);
        break;
    case MG_EGRESS_RELAYING:
        mg_egress_relay(c, h, events);
        break;
    case MG_EGRESS_ENDING:
        if (h == &c->client)
            end(c, events);
        break;
    }
    mg_egress_conn_watch(c);
}

void mg_egress_conn_expire(struct mg_egress_conn *c, uint64_t now_ns)
{
    if (c->dead || now_ns < c->until_ns)
        return;
    switch (c->state) {
    case MG_EGRESS_LOOKING:
        mg_egress_conn_refuse(c, MG_EGRESS_R_RESOLVE);
        break;
    case MG_EGRESS_DIALING:
        mg_egress_dialed(c); /* the next address */
        break;
    case MG_EGRESS_ASKING:
    case MG_EGRESS_SOCKS_AUTH:
    case MG_EGRESS_SOCKS_ASK:
    case MG_EGRESS_RELAYING:
    case MG_EGRESS_ENDING:
        mg_egress_conn_kill(c);
        break;
    }
}
