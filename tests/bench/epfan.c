/* The limit of a fan-out: one epoll loop that parses next to nothing and sends the same frame, as long as a user.interrupt of mangod's, to each stream. The
 * reference of rows 7 and 8.
 *
 *   epfan        listens on a free port of 127.0.0.1 and prints "port N"; GET /sse is a stream, GET /pub one frame to all;
 *                ends with SIGTERM */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/client.h"

enum { FRAME = 220, STREAMS_MAX = 16384 };

static const char sse_head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
static const char answer[] =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\r\n{\"ok\":true,\"x\":1}";
static char frame[FRAME + 1];
static int streams[STREAMS_MAX], n_streams;

static void make_frame(void)
{
    int n = snprintf(frame, sizeof(frame), "event: agent.message\nid: 1\ndata: {\"text\":\"");
    memset(frame + n, 'x', (size_t)(FRAME - n));
    memcpy(frame + FRAME - 4, "\"}\n\n", 4);
}

static int listen_any(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        die("listen: %s", strerror(errno));
    (void)printf("port %d\n", ntohs(at.sin_port));
    (void)fflush(stdout);
    return fd;
}

static void put(int fd, const char *p, size_t n)
{
    (void)send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT); /* what a full socket refuses is lost: this is no server */
}

static void serve(int fd)
{
    char in[2048];
    ssize_t n = recv(fd, in, sizeof(in) - 1, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            (void)close(fd);
        return;
    }
    in[n] = '\0';
    if (strncmp(in, "GET /sse ", 9) == 0 && n_streams < STREAMS_MAX) {
        streams[n_streams++] = fd;
        put(fd, sse_head, sizeof(sse_head) - 1);
    } else if (strncmp(in, "GET /pub ", 9) == 0) {
        for (int i = 0; i < n_streams; i++)
            put(streams[i], frame, FRAME);
        put(fd, answer, sizeof(answer) - 1);
    } else {
        put(fd, answer, sizeof(answer) - 1);
    }
}

/* One at a time: the listener is level-triggered. */
static void accept_one(int epoll, int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

int main(void)
{
    struct epoll_event got[256];
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    make_frame();
    int listener = listen_any(), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) < 0)
        die("epoll: %s", strerror(errno));
    for (;;) {
        int n = epoll_wait(epoll, got, 256, -1);
        for (int i = 0; i < n; i++) {
            if (got[i].data.fd == listener)
                accept_one(epoll, listener);
            else
                serve(got[i].data.fd);
        }
    }
}
