#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/runner/runner.h"

/* One reaper per command. Single-threaded; lives until the last process that the command has started is gone, or all
 * are killed. */

enum { KILL_MS = 5000, DRAIN_BYTES = 65536 };

struct reaper {
    int status; /* -1 after RELEASE */
    int life, sigfd;
    int drain[2]; /* read ends that the plugin left to us; -1: none */
    pid_t main;
    bool ended;
};

static bool say(const struct reaper *r, const struct wire_event *ev)
{
    return r->status >= 0 && send(r->status, ev, sizeof(*ev), MSG_NOSIGNAL) == sizeof(*ev);
}

/* The plugin has given up meanwhile, or says so now: its caller has had a result, so nothing may start any more. */
static bool too_late(const struct reaper *r)
{
    char c;
    return !say(r, &(struct wire_event){.kind = WIRE_STARTED}) || recv(r->status, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* Points into the strings of the request; the process image is replaced, so nothing is freed. */
static char **vector(const char **at, const char *end, uint32_t n)
{
    char **v = calloc(n + 1, sizeof(*v));
    for (uint32_t i = 0; v && i < n; i++) {
        const char *nul = *at < end ? memchr(*at, '\0', (size_t)(end - *at)) : NULL;
        if (!nul)
            return NULL;
        v[i] = (char *)*at;
        *at = nul + 1;
    }
    return v;
}

/* In the vfork child: only system calls until exec. */
static int exec_child(const struct request *req, char **argv, char **envp, int cwd, const char *dir)
{
    sigset_t none;
    sigemptyset(&none);
    (void)setsid();
    if (req->head.flags & WIRE_FLAG_TTY)
        (void)ioctl(req->fds[wire_fd(req->head.flags, WIRE_FLAG_TTY)], TIOCSCTTY, 0);
    if ((cwd >= 0 && fchdir(cwd) < 0) || (dir && chdir(dir) < 0))
        return errno;
    for (int i = 0; i < 3; i++) {
        if (dup2(req->fds[1 + i], i) < 0)
            return errno;
    }
    (void)close_range(3, ~0U, 0);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(argv[0], argv, envp);
    return errno;
}

static char *const *more_env;

void runner_env(char *const *more)
{
    more_env = more;
}

static bool set_in(char *const *envp, const char *variable)
{
    size_t name = (size_t)(strchrnul(variable, '=') - variable);
    for (; *envp; envp++) {
        if (strncmp(*envp, variable, name) == 0 && (*envp)[name] == '=')
            return true;
    }
    return false;
}

/* envp with what every command gets. NULL: out of memory. */
static char **complete(char **envp, uint32_t n)
{
    size_t n_more = 0;
    while (more_env && more_env[n_more])
        n_more++;
    char **all = n_more && envp ? calloc(n + n_more + 1, sizeof(*all)) : envp;
    for (uint32_t i = 0; n_more && all && i < n; i++)
        all[i] = envp[i];
    for (size_t i = 0; all && i < n_more; i++) {
        if (!set_in(envp, more_env[i]))
            all[n++] = more_env[i];
    }
    return all;
}

static int start(struct reaper *r, const struct request *req)
{
    const char *at = req->strings, *end = req->strings + req->head.len;
    char **argv = vector(&at, end, req->head.argc);
    char **envp = complete(vector(&at, end, req->head.envc), req->head.envc);
    char **dir = req->head.flags & WIRE_FLAG_CHDIR ? vector(&at, end, 1) : NULL;
    if (!argv || !envp || req->head.argc == 0 || ((req->head.flags & WIRE_FLAG_CHDIR) && !dir))
        return EINVAL;
    int cwd = req->head.flags & WIRE_FLAG_CWD ? req->fds[wire_fd(req->head.flags, WIRE_FLAG_CWD)] : -1;
    const char *folder = dir ? dir[0] : NULL;
    volatile int failed = 0;
    pid_t pid = vfork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Vfork): system calls only */
        failed = exec_child(req, argv, envp, cwd, folder);
        _exit(127);
    }
    if (failed) {
        (void)waitpid(pid, NULL, 0);
        return failed;
    }
    r->main = pid;
    return 0;
}

static _Noreturn void kill_and_leave(const struct reaper *r)
{
    unsigned left = kill_descendants(KILL_MS, NULL, NULL);
    (void)say(r, &(struct wire_event){.kind = WIRE_KILLED, .left = left});
    _exit(0);
}

/* Reaps what there is. Leaves when the command has ended and nothing else lives. */
static void on_children(struct reaper *r)
{
    struct wire_event end = {0};
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        if (pid == r->main)
            end = (struct wire_event){.kind = WIRE_ENDED, .status = status, .peak_kib = (uint64_t)usage.ru_maxrss};
    }
    bool alone = pid < 0 && errno == ECHILD;
    if (end.kind) {
        r->ended = true;
        end.alone = alone;
        (void)say(r, &end);
    }
    if (r->ended && alone)
        _exit(0);
}

static void take_drains(struct reaper *r, struct msghdr *m)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n && i < 2; i++)
        memcpy(&r->drain[i], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
}

static void on_command(struct reaper *r)
{
    struct wire_command cmd = {0};
    char control[CMSG_SPACE(2 * sizeof(int))];
    struct iovec iov = {&cmd, sizeof(cmd)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(r->status, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == sizeof(cmd) && cmd.kind == WIRE_RELEASE) {
        take_drains(r, &m);
        close(r->status);
        r->status = -1;
        return;
    }
    kill_and_leave(r);
}

/* The background child must see neither a full pipe nor a broken one. */
static void on_drain(int *fd)
{
    static char waste[DRAIN_BYTES];
    ssize_t n = read(*fd, waste, sizeof(waste));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
}

static _Noreturn void loop(struct reaper *r)
{
    for (;;) {
        struct pollfd p[5] = {{.fd = r->status, .events = POLLIN},
                              {.fd = r->life, .events = POLLIN},
                              {.fd = r->sigfd, .events = POLLIN},
                              {.fd = r->drain[0], .events = POLLIN},
                              {.fd = r->drain[1], .events = POLLIN}};
        if (poll(p, 5, -1) < 0)
            continue;
        if (p[2].revents) {
            char signals[1024];
            while (read(r->sigfd, signals, sizeof(signals)) > 0) {
            }
            on_children(r);
        }
        if (p[1].revents)
            kill_and_leave(r);
        if (p[0].revents)
            on_command(r);
        for (int i = 0; i < 2; i++) {
            if (p[3 + i].revents)
                on_drain(&r->drain[i]);
        }
    }
}

void reaper_main(const struct request *req, int life, int sigfd)
{
    struct reaper r = {.status = req->fds[0], .life = life, .sigfd = sigfd, .drain = {-1, -1}};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (too_late(&r)) {
        (void)say(&r, &(struct wire_event){.kind = WIRE_KILLED});
        _exit(0);
    }
    int e = start(&r, req);
    for (int i = 1; i < WIRE_FDS_MAX; i++) {
        if (req->fds[i] >= 0)
            close(req->fds[i]);
    }
    if (e) {
        (void)say(&r, &(struct wire_event){.kind = WIRE_FAILED, .status = e});
        _exit(0);
    }
    loop(&r);
}
