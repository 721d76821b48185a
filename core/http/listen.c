#include "http/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sv.h"

enum {
    BACKLOG = 4096,   /* connections that the kernel holds for us; bounded by net.core.somaxconn too */
    ACCEPT_MAX = 128, /* of one callback, so that a storm of new clients does not starve the old ones */
    HOST_MAX = 256,
};

static mg_rc split(const char *text, char host[HOST_MAX], char port[8], struct mg_err *err)
{
    struct mg_sv s = mg_sv_of(text);
    const char *colon = strrchr(text, ':');
    int64_t n = 0;
    if (!colon || !mg_sv_to_i64(mg_sv_of(colon + 1), &n) || n < 0 || n > 65535)
        return mg_err_set(err, MG_ECONFIG, "listen: '%s' is not HOST:PORT (for example 127.0.0.1:8080 or [::]:8080)",
                          text);
    s.len = (size_t)(colon - text);
    if (s.len >= 2 && s.ptr[0] == '[' && s.ptr[s.len - 1] == ']')
        s = mg_sv_n(s.ptr + 1, s.len - 2);
    if (s.len >= HOST_MAX)
        return mg_err_set(err, MG_ECONFIG, "listen: the host name is longer than %d bytes", HOST_MAX - 1);
    (void)snprintf(host, HOST_MAX, "%.*s", MG_SV_ARG(s));
    (void)snprintf(port, 8, "%d", (int)n);
    return MG_OK;
}

static int bind_one(const struct addrinfo *ai)
{
    int one = 1, zero = 0;
    mg_autofd int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6) /* [::] serves IPv4 too */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return -1;
    return mg_steal_fd(&fd);
}

static int bound_port(int fd)
{
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } u = {0};
    socklen_t len = sizeof(u);
    if (getsockname(fd, &u.sa, &len) < 0)
        return 0;
    return ntohs(u.sa.sa_family == AF_INET6 ? u.in6.sin6_port : u.in.sin_port);
}

mg_rc mg_listen_open(const char *text, int *ret_fd, int *ret_port, struct mg_err *err)
{
    char host[HOST_MAX] = "", port[8] = "";
    struct addrinfo *all = NULL;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    mg_rc rc = split(text, host, port, err);
    if (rc < 0)
        return rc;
    int e = getaddrinfo(host[0] ? host : NULL, port, &hints, &all);
    if (e)
        return mg_err_set(err, MG_ECONFIG, "listen: '%s': %s", text, gai_strerror(e));
    int fd = -1;
    for (const struct addrinfo *ai = all; ai && fd < 0; ai = ai->ai_next)
        fd = bind_one(ai);
    int saved = errno;
    freeaddrinfo(all);
    if (fd < 0)
        return mg_err_set(err, MG_ECONFIG, "listen: cannot listen on '%s': %s%s", text, strerror(saved),
                          saved == EADDRINUSE ? "; another program has the port, choose another or stop it" : "");
    *ret_fd = fd;
    *ret_port = bound_port(fd);
    return MG_OK;
}

static void peer_of(const struct sockaddr_storage *ss, struct mg_peer *p)
{
    *p = (struct mg_peer){.family = ss->ss_family};
    if (ss->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        memcpy(p->addr, &in->sin_addr, sizeof(in->sin_addr));
        p->port = ntohs(in->sin_port);
    } else if (ss->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
        memcpy(p->addr, &in6->sin6_addr, sizeof(in6->sin6_addr));
        p->port = ntohs(in6->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            p->family = AF_INET;
            memmove(p->addr, p->addr + 12, 4);
        }
    }
}

static void refuse_one(int fd, int *spare_fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    mg_log(MG_WARN, "no descriptor is left for a new connection: raise the limit of open files (LimitNOFILE=)");
    if (*spare_fd >= 0)
        (void)close(*spare_fd);
    int got = accept4(fd, (struct sockaddr *)&ss, &len, SOCK_CLOEXEC);
    if (got >= 0)
        (void)close(got);
    *spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void mg_listen_accept(int fd, int *spare_fd, void (*fn)(void *ctx, int fd, const struct mg_peer *peer), void *ctx)
{
    for (int i = 0; i < ACCEPT_MAX; i++) {
        struct sockaddr_storage ss = {0};
        socklen_t len = sizeof(ss);
        int got = accept4(fd, (struct sockaddr *)&ss, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (got < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (got < 0) {
            if (errno == EMFILE || errno == ENFILE)
                refuse_one(fd, spare_fd);
            return;
        }
        struct mg_peer peer;
        peer_of(&ss, &peer);
        fn(ctx, got, &peer);
    }
}
