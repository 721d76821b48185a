#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/runner/relay.h"

/* A process of its own: 127.0.0.1:3128 in the sandbox, which has no network, to the socket of the server's
 * filtering proxy. Copies bytes; what may be reached is decided there. */

enum {
    LINKS_MAX = 200,
    PIECE = 16 * 1024,
};

struct flow {
    char buf[PIECE];
    size_t at, len;
    bool ended; /* its source has no more; told to the other side once all is out */
    bool told;
};

struct link {
    int fd[2];           /* the program's, the proxy's */
    struct flow flow[2]; /* from fd[i] to fd[1 - i] */
};

static int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = EGRESS_DIR "/proxy.sock"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Moves what can be moved in one direction. False when the link is of no use any more. */
static bool move(struct link *l, int i)
{
    struct flow *f = &l->flow[i];
    if (f->at == f->len && !f->ended) {
        ssize_t n = read(l->fd[i], f->buf, sizeof(f->buf));
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        f->ended = n == 0;
        f->at = 0;
        f->len = n > 0 ? (size_t)n : 0;
    }
    if (f->at < f->len) {
        ssize_t n = send(l->fd[1 - i], f->buf + f->at, f->len - f->at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        f->at += n > 0 ? (size_t)n : 0;
    }
    if (f->ended && f->at == f->len && !f->told) {
        (void)shutdown(l->fd[1 - i], SHUT_WR);
        f->told = true;
    }
    return !(l->flow[0].told && l->flow[1].told);
}

static void end_link(struct link **links, int *n, int i)
{
    close(links[i]->fd[0]);
    close(links[i]->fd[1]);
    free(links[i]);
    links[i] = links[--*n];
}

static void accept_one(int listener, struct link **links, int *n)
{
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    int fd = accept4(listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int proxy = fd < 0 ? -1 : dial();
    struct link *l = proxy < 0 ? NULL : calloc(1, sizeof(*l));
    if (!l) {
        if (fd >= 0)
            close(fd);
        if (proxy >= 0)
            close(proxy);
        return;
    }
    l->fd[0] = fd;
    l->fd[1] = proxy;
    links[(*n)++] = l;
}

static _Noreturn void loop(int listener)
{
    static struct link *links[LINKS_MAX];
    static struct pollfd p[1 + 2 * LINKS_MAX];
    int n = 0;
    for (;;) {
        p[0] = (struct pollfd){.fd = n < LINKS_MAX ? listener : -1, .events = POLLIN};
        for (int i = 0; i < n; i++) {
            for (int side = 0; side < 2; side++) {
                const struct flow *out = &links[i]->flow[side], *in = &links[i]->flow[1 - side];
                short events =
                    (short)((out->at == out->len && !out->ended ? POLLIN : 0) | (in->at < in->len ? POLLOUT : 0));
                p[1 + 2 * i + side] = (struct pollfd){.fd = events ? links[i]->fd[side] : -1, .events = events};
            }
        }
        if (poll(p, 1 + 2 * (nfds_t)n, -1) < 0)
            continue;
        for (int i = n - 1; i >= 0; i--) {
            bool any = p[1 + 2 * i].revents || p[2 + 2 * i].revents;
            if (any && !(move(links[i], 0) && move(links[i], 1)))
                end_link(links, &n, i);
        }
        if (p[0].revents)
            accept_one(listener, links, &n);
    }
}

/* In the child: nothing of its parent's but the listener. */
static _Noreturn void serve(int listener)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; null >= 0 && i < 3; i++)
        (void)dup2(null, i);
    int fd = dup2(listener, 3);
    (void)close_range(4, ~0U, 0);
    loop(fd < 0 ? listener : fd);
}

pid_t relay_start(void)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(EGRESS_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (access(EGRESS_DIR, F_OK) < 0)
        return 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    pid_t pid = -1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
        bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, SOMAXCONN) == 0)
        pid = fork();
    if (pid == 0)
        serve(fd);
    if (fd >= 0)
        close(fd);
    return pid;
}
