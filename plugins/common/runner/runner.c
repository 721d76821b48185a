/* Starts the commands of one sandbox: mango-local-runner of the backend `local` and of mango-worker, started with
 * posix_spawn, and a part of mango-box of the backend `docker`. Its socket is on descriptor 3, the workspace as working folder and the commands' environment as its own, so
 * that /proc shows nothing of the server.
 *
 * Small on purpose: it forks once per command, and a fork costs what its memory costs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/runner/runner.h"

enum {
    REAPERS_MAX = 1024, /* commands with living processes at a time */
    SHUTDOWN_MS = 8000, /* for all processes to be gone at the end */
    OPEN_FILES = 1024,  /* soft limit of the commands: programs with select(2) break above it */
    ORPHAN_MS = 2000,
};

struct runner {
    int sigfd;
    int life[2]; /* reapers hold the read end; the write end closes with this process */
    pid_t reapers[REAPERS_MAX];
    int n_reapers;
};

static pid_t helper;
static pid_t (*helper_start)(void);

void runner_helper(pid_t (*start)(void))
{
    helper_start = start;
}

static bool is_reaper(void *ctx, pid_t pid)
{
    const struct runner *r = ctx;
    for (int i = 0; i < r->n_reapers; i++) {
        if (r->reapers[i] == pid)
            return true;
    }
    return pid == helper && pid > 0;
}

/* A reaper that did not leave by itself was killed from inside of the sandbox; what it kept is ours now, and goes. */
static void on_children(struct runner *r)
{
    char signals[1024];
    while (read(r->sigfd, signals, sizeof(signals)) > 0) {
    }
    bool orphans = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (helper_start && pid == helper)
            helper = helper_start();
        for (int i = 0; i < r->n_reapers; i++) {
            if (r->reapers[i] != pid)
                continue;
            r->reapers[i] = r->reapers[--r->n_reapers];
            orphans |= WIFSIGNALED(status);
            break;
        }
    }
    if (orphans)
        (void)kill_descendants(ORPHAN_MS, is_reaper, r);
}

static void close_fds(struct request *req)
{
    for (int i = 0; i < WIRE_FDS_MAX; i++) {
        if (req->fds[i] >= 0)
            close(req->fds[i]);
    }
}

static void refuse(const struct request *req, int errnum)
{
    struct wire_event ev = {.kind = WIRE_FAILED, .status = errnum};
    if (req->fds[0] >= 0)
        (void)send(req->fds[0], &ev, sizeof(ev), MSG_NOSIGNAL);
}

/* Large argument lists stand in a sealed memory file. */
static bool map_payload(struct request *req)
{
    if (!(req->head.flags & WIRE_FLAG_PAYLOAD))
        return true;
    int fd = req->fds[wire_fd(req->head.flags, WIRE_FLAG_PAYLOAD)];
    if (req->head.len == 0 || req->head.len > WIRE_STRINGS_MAX)
        return false;
    void *p = mmap(NULL, req->head.len, PROT_READ, MAP_PRIVATE, fd, 0);
    req->strings = p == MAP_FAILED ? NULL : p;
    return req->strings != NULL;
}

static void run(struct runner *r, struct request *req)
{
    if (r->n_reapers == REAPERS_MAX) {
        refuse(req, EAGAIN);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(RUNNER_FD);
        close(r->life[1]);
        if (!map_payload(req)) {
            refuse(req, EINVAL);
            _exit(0);
        }
        reaper_main(req, r->life[0], r->sigfd);
    }
    if (pid < 0)
        refuse(req, errno);
    else
        r->reapers[r->n_reapers++] = pid;
}

/* False at the end of the plugin's socket. */
static bool on_request(struct runner *r)
{
    static char body[sizeof(struct wire_request) + WIRE_INLINE_MAX];
    struct request req = {.fds = {-1, -1, -1, -1, -1, -1, -1}};
    char control[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
    struct iovec iov = {body, sizeof(body)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(RUNNER_FD, &m, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n == 0)
        return false;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    size_t n_fds = c && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    if (n_fds)
        memcpy(req.fds, CMSG_DATA(c), n_fds * sizeof(int));
    memcpy(&req.head, body, n < (ssize_t)sizeof(req.head) ? (size_t)n : sizeof(req.head));
    req.strings = body + sizeof(req.head);
    bool inline_ok = (req.head.flags & WIRE_FLAG_PAYLOAD) || sizeof(req.head) + req.head.len == (size_t)n;
    if (n >= (ssize_t)sizeof(req.head) && req.head.magic == WIRE_MAGIC && inline_ok && n_fds >= 4)
        run(r, &req);
    else
        refuse(&req, EPROTO);
    close_fds(&req);
    return true;
}

static bool setup(struct runner *r)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    (void)setsid();
    (void)umask(022);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > OPEN_FILES) {
        files.rlim_cur = OPEN_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    /* When memory runs out, a command goes before the server does. */
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0) {
        (void)!write(adj, "500", 3);
        close(adj);
    }
    r->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->sigfd >= 0 && pipe2(r->life, O_CLOEXEC) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 &&
           fcntl(RUNNER_FD, F_SETFD, FD_CLOEXEC) == 0;
}

int runner_main(void)
{
    static struct runner r;
    int type;
    socklen_t len = sizeof(type);
    if (getsockopt(RUNNER_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
        fputs("mango-local-runner: started by the sandbox backend `local` or by mango-worker, not by hand\n", stderr);
        return 64;
    }
    if (!setup(&r))
        return 1;
    if (helper_start)
        helper = helper_start();
    for (bool open = true; open;) {
        struct pollfd p[2] = {{.fd = RUNNER_FD, .events = POLLIN}, {.fd = r.sigfd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents)
            on_children(&r);
        if (p[0].revents)
            open = on_request(&r);
    }
    close(r.life[1]);
    (void)kill_descendants(SHUTDOWN_MS, NULL, NULL);
    return 0;
}
