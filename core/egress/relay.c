/* Bytes both ways, behind a gate that looks at the first ones: a tunnel to an allowed name must be for that name. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "egress/internal.h"

enum { ROUNDS = 8 /* reads of one event, so that one connection does not hold up the rest */ };

static void count(struct mg_egress_conn *c, const struct mg_egress_pipe *p, size_t n)
{
    if (p == &c->out) {
        c->e->bytes_out += n;
        c->door->bytes_out += n;
    } else {
        c->e->bytes_in += n;
        c->door->bytes_in += n;
    }
    if (c->gate == MG_EGRESS_OPEN || c->gate == MG_EGRESS_MAY_BE_TLS)
        mg_egress_conn_after(c, MG_EGRESS_IDLE_MS);
}

/* Sends what is held. False: the connection is gone. */
static bool flush(struct mg_egress_conn *c, struct mg_egress_pipe *p, int fd)
{
    while (p->held.len > 0) {
        ssize_t n = send(fd, p->held.ptr, p->held.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0) {
            mg_egress_conn_kill(c);
            return false;
        }
        count(c, p, (size_t)n);
        mg_buf_consume(&p->held, (size_t)n);
    }
    if (p->ended && !p->passed_on && !(p == &c->out && c->http)) {
        p->passed_on = true;
        (void)shutdown(fd, SHUT_WR);
    }
    return true;
}

/* ---- the body of a plain request ---- */

/* How much of the bytes belongs to the body; the rest would be another request, and is dropped. -1: no body. */
static ssize_t body_part(struct mg_egress_conn *c, struct mg_sv in)
{
    struct mg_sv rest = in, piece;
    if (!c->chunked) {
        size_t n = in.len < c->body_left ? in.len : (size_t)c->body_left;
        c->body_left -= n;
        c->out.ended = c->body_left == 0;
        return (ssize_t)n;
    }
    while (rest.len > 0 && !c->out.ended) {
        int end = mg_chunks_next(&c->chunks, &rest, &piece);
        if (end < 0)
            return -1;
        c->out.ended = end == 1;
    }
    return (ssize_t)(in.len - rest.len);
}

static void give_out(struct mg_egress_conn *c, struct mg_sv in)
{
    ssize_t n = c->http ? body_part(c, in) : (ssize_t)in.len;
    if (n < 0 || mg_buf_append(&c->out.held, in.ptr, (size_t)n) < 0)
        mg_egress_conn_kill(c);
    else
        (void)flush(c, &c->out, c->upstream.fd);
}

/* The head goes on in its new form, with what the vault adds; the input holds it and perhaps the start of the body. */
static void begin_http(struct mg_egress_conn *c, const struct mg_egress_http *h)
{
    const struct mg_egress_opts *o = &c->e->opts;
    c->http = true;
    c->gate = MG_EGRESS_OPEN;
    c->chunked = h->chunked;
    c->body_left = h->length;
    c->out.ended = !h->chunked && h->length == 0;
    c->head = MG_BUF_INIT(MG_EGRESS_HELD);
    if (o->rewrite)
        o->rewrite(o->ctx, mg_sv_of(c->door->session), mg_sv_of(c->target.host), c->target.port, &c->head);
    mg_egress_http_write(h, mg_buf_view(&c->head), &c->out.held);
    mg_buf_consume(&c->in, h->used);
    mg_egress_conn_after(c, MG_EGRESS_IDLE_MS);
    if (!mg_buf_ok(&c->out.held) || !mg_buf_ok(&c->head))
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
    else
        give_out(c, mg_buf_view(&c->in));
    mg_buf_reset(&c->in);
}

/* ---- the gate ---- */

static void open_gate(struct mg_egress_conn *c)
{
    c->gate = MG_EGRESS_OPEN;
    mg_egress_conn_after(c, MG_EGRESS_IDLE_MS);
    give_out(c, mg_buf_view(&c->in));
    mg_buf_done(&c->in);
}

static void check_tls(struct mg_egress_conn *c)
{
    char name[MG_EGRESS_HOST_MAX];
    mg_rc rc = mg_egress_tls_name(mg_buf_view(&c->in), name);
    bool literal = strchr(c->target.host, ':') || strspn(c->target.host, "0123456789.") == strlen(c->target.host);
    bool may_lack = literal || c->gate == MG_EGRESS_MAY_BE_TLS;
    if (rc == MG_EUNAVAIL)
        return;
    if (rc < 0)
        mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
    else if (strcmp(name, c->target.host) == 0 || (name[0] == '\0' && may_lack))
        open_gate(c);
    else
        mg_egress_conn_refuse(c, MG_EGRESS_R_NAME);
}

static void check_origin(struct mg_egress_conn *c)
{
    struct mg_egress_http h;
    mg_rc rc = mg_egress_origin_parse(mg_buf_view(&c->in), &c->target, &h);
    if (rc == MG_EUNAVAIL)
        return;
    if (rc < 0)
        mg_egress_conn_refuse(c, rc == MG_EDENIED ? MG_EGRESS_R_NAME : MG_EGRESS_R_PROTOCOL);
    else
        begin_http(c, &h);
}

static void check_gate(struct mg_egress_conn *c)
{
    if (c->in.len == 0 && c->gate != MG_EGRESS_OPEN)
        return;
    bool tls = c->in.len > 0 && mg_egress_tls_begins(mg_buf_view(&c->in));
    switch (c->gate) {
    case MG_EGRESS_OPEN:
        open_gate(c);
        break;
    case MG_EGRESS_MAY_BE_TLS:
        if (tls)
            check_tls(c);
        else
            open_gate(c);
        break;
    case MG_EGRESS_MUST_TLS:
        if (tls)
            check_tls(c);
        else
            mg_egress_conn_refuse(c, MG_EGRESS_R_PROTOCOL);
        break;
    case MG_EGRESS_WEB_80:
        if (tls)
            check_tls(c);
        else
            check_origin(c);
        break;
    }
}

/* ---- the relay ---- */

void mg_egress_relay_begin(struct mg_egress_conn *c)
{
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    static const unsigned char socks[10] = {5, 0, 0, 1};
    struct mg_egress_http h;
    c->state = MG_EGRESS_RELAYING;
    c->replied = !c->http;
    c->e->total++;
    c->door->allowed++;
    if (c->http) {
        if (mg_egress_http_parse(mg_buf_view(&c->in), &h) == MG_OK)
            begin_http(c, &h);
        else
            mg_egress_conn_kill(c);
    } else {
        (void)mg_buf_append(&c->back.held, c->socks ? (const void *)socks : established,
                            c->socks ? sizeof(socks) : sizeof(established) - 1);
        bool strict = c->gate == MG_EGRESS_MUST_TLS || c->gate == MG_EGRESS_WEB_80;
        mg_egress_conn_after(c, strict ? c->e->opts.head_ms : MG_EGRESS_IDLE_MS);
        if (flush(c, &c->back, c->client.fd))
            check_gate(c);
    }
    mg_egress_conn_watch(c);
}

/* Reads from one side and gives it to the other. */
static void pump(struct mg_egress_conn *c, struct mg_egress_pipe *p, int from, int to)
{
    char piece[MG_EGRESS_HELD];
    for (int i = 0; i < ROUNDS && p->held.len == 0 && !p->ended && !c->dead; i++) {
        ssize_t n = recv(from, piece, sizeof(piece), 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 || (n == 0 && p == &c->out && c->http)) { /* a cut body is no body */
            mg_egress_conn_kill(c);
            return;
        }
        if (n == 0) {
            p->ended = true;
            (void)flush(c, p, to);
        } else if (p == &c->out) {
            give_out(c, mg_sv_n(piece, (size_t)n));
        } else if (mg_buf_append(&p->held, piece, (size_t)n) == MG_OK) {
            (void)flush(c, p, to);
        } else {
            mg_egress_conn_kill(c);
        }
    }
}

void mg_egress_relay(struct mg_egress_conn *c, struct mg_egress_handle *h, uint32_t events)
{
    bool readable = events & (EPOLLIN | EPOLLHUP | EPOLLERR);
    if (events & EPOLLOUT && !flush(c, h == &c->client ? &c->back : &c->out, h->fd))
        return;
    if (readable && h == &c->client && c->gate != MG_EGRESS_OPEN) {
        if (mg_egress_conn_fill(c))
            check_gate(c);
    } else if (readable && h == &c->client) {
        pump(c, &c->out, c->client.fd, c->upstream.fd);
    } else if (readable) {
        pump(c, &c->back, c->upstream.fd, c->client.fd);
    }
    if (!c->dead && c->back.passed_on && (c->out.passed_on || c->http))
        mg_egress_conn_kill(c);
}
