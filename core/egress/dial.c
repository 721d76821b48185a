/* From a name to a connection: the addresses are looked up here, checked, and connected to as they were checked. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/internal.h"

enum { DIAL_MS = 5000 /* for one address */ };

static bool address_of(const char *text, int port, struct sockaddr_storage *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        memcpy(ret, &v4, sizeof(v4));
        return true;
    }
    if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
        return false;
    memcpy(ret, &v6, sizeof(v6));
    return true;
}

static int connect_to(const struct sockaddr_storage *sa)
{
    const int on = 1;
    socklen_t len = sa->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (connect(fd, (const struct sockaddr *)sa, len) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

/* The next address that takes a connection attempt; its outcome comes as an event. */
static void dial_next(struct mg_egress_conn *c)
{
    if (c->upstream.fd >= 0)
        close(c->upstream.fd);
    c->upstream.fd = -1;
    c->upstream.events = 0;
    while (c->upstream.fd < 0 && c->at_addr < c->n_addrs)
        c->upstream.fd = connect_to(&c->addrs[c->at_addr++]);
    if (c->upstream.fd < 0) {
        mg_egress_conn_refuse(c, MG_EGRESS_R_CONNECT);
        return;
    }
    c->state = MG_EGRESS_DIALING;
    mg_egress_conn_after(c, DIAL_MS);
    mg_egress_conn_watch(c);
}

/* Keeps what may be reached of "1.2.3.4,[::1]". */
static void take_addresses(struct mg_egress_conn *c, struct mg_sv list)
{
    while (list.len > 0 && c->n_addrs < MG_EGRESS_ADDRS) {
        char text[INET6_ADDRSTRLEN];
        struct sockaddr_storage sa;
        struct mg_sv one = mg_sv_split(&list, ',');
        if (one.len > 2 && one.ptr[0] == '[')
            one = mg_sv_n(one.ptr + 1, one.len - 2);
        if (one.len >= sizeof(text))
            continue;
        (void)snprintf(text, sizeof(text), "%.*s", MG_SV_ARG(one));
        if (address_of(text, c->target.port, &sa) &&
            mg_egress_address_ok(&c->e->opts.networks, (const struct sockaddr *)&sa))
            c->addrs[c->n_addrs++] = sa;
    }
    if (c->n_addrs == 0)
        mg_egress_conn_refuse(c, MG_EGRESS_R_ADDRESS);
    else
        dial_next(c);
}

void mg_egress_look(struct mg_egress_conn *c)
{
    char text[MG_RESOLVE_TEXT_MAX];
    const struct mg_egress_opts *o = &c->e->opts;
    switch (o->resolve ? o->resolve(o->ctx, c->target.host, text)
                       : mg_resolver_get(c->e->resolver, c->target.host, text)) {
    case MG_RESOLVE_WAIT:
        break;
    case MG_RESOLVE_FOUND:
        take_addresses(c, mg_sv_of(text));
        break;
    case MG_RESOLVE_FAILED:
        mg_egress_conn_refuse(c, MG_EGRESS_R_RESOLVE);
        break;
    }
}

void mg_egress_dial(struct mg_egress_conn *c)
{
    struct sockaddr_storage sa;
    c->state = MG_EGRESS_LOOKING;
    mg_egress_conn_after(c, MG_EGRESS_CONNECT_MS);
    if (address_of(c->target.host, c->target.port, &sa))
        take_addresses(c, mg_sv_of(c->target.host));
    else
        mg_egress_look(c);
}

void mg_egress_dialed(struct mg_egress_conn *c)
{
    int error = ETIMEDOUT;
    socklen_t len = sizeof(error);
    struct sockaddr_storage peer;
    socklen_t peer_len = sizeof(peer);
    bool up = getpeername(c->upstream.fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
              getsockopt(c->upstream.fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
    if (up)
        mg_egress_relay_begin(c);
    else
        dial_next(c);
}
