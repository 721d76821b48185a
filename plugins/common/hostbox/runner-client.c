#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "common/child.h"
#include "common/hostbox/hostbox.h"
#include "common/files.h"

/* The plugin's side of the runner: starting it (posix_spawn: the server is never forked) and handing commands over. */

enum { SEND_S = 5 /* for a runner that was stopped from inside of the sandbox */ };

/* ---- the runner itself ---- */

static int spawn_runner(const struct box *b, int sock, pid_t *ret_pid)
{
    struct words argv = {.n = 0};
    const struct child c = {.argv = argv.v,
                            .env = b->env,
                            .fds = {-1, -1, -1, [RUNNER_FD] = sock},
                            .n_fds = RUNNER_FD + 1,
                            .cwd = &b->root_fd};
    b->all->kind->command(b, &argv);
    return argv.n == 0 || argv.n == WORDS_MAX ? E2BIG : child_start(&c, ret_pid);
}

/* With b->live.lock held. 0 or errno. */
static int ensure_runner(struct box *b)
{
    if (b->live.dying)
        return ESHUTDOWN;
    if (b->ctl >= 0)
        return 0;
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return errno;
    struct timeval limit = {.tv_sec = SEND_S};
    (void)setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    int e = spawn_runner(b, sv[1], &b->runner);
    close(sv[1]);
    if (e)
        close(sv[0]);
    else
        b->ctl = sv[0];
    return e;
}

/* Waits for the child; kills it after ms. */
static void reap(pid_t pid, int ms)
{
    int pidfd = pidfd_open(pid, 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    if (pidfd < 0 || poll(&p, 1, ms) <= 0)
        (void)kill(pid, SIGKILL);
    (void)child_reap(pid);
    if (pidfd >= 0)
        close(pidfd);
}

void runner_stop(struct box *b, int ms)
{
    pthread_mutex_lock(&b->live.lock);
    int ctl = b->ctl;
    pid_t pid = b->runner;
    b->ctl = -1;
    b->runner = 0;
    pthread_mutex_unlock(&b->live.lock);
    if (ctl < 0)
        return;
    close(ctl); /* the runner kills everything and leaves */
    reap(pid, ms);
}

/* ---- a request ---- */

static mango_status too_long(const struct box *b, const struct mango_call *call, const char *what)
{
    return fail(b->all->host, call, MANGO_ETOOBIG,
                "%s holds a NUL byte, or one string of more than %d bytes, or more than %d bytes in all; pass large "
                "content through "
                "stdin or a file",
                what, WIRE_STRING_MAX, WIRE_STRINGS_MAX);
}

static mango_status pack(struct box *b, const struct mango_call *call, const struct mango_exec_req *req,
                         struct parcel *p)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < req->n_argv; i++)
        total += req->argv[i].len + 1;
    for (uint64_t i = 0; i < req->n_env; i++)
        total += req->env[i].len + 1;
    for (char **e = b->env; *e; e++)
        total += strlen(*e) + 1;
    total += req->cwd.len + 1;
    if (req->n_argv == 0 || req->n_argv > WIRE_ARGS_MAX || req->n_env > WIRE_ARGS_MAX)
        return fail(b->all->host, call, MANGO_EINVALID, "a command has 1 to %d arguments and at most %d variables",
                    WIRE_ARGS_MAX, WIRE_ARGS_MAX);
    if (total > WIRE_STRINGS_MAX)
        return too_long(b, call, "the command");
    if (!parcel_begin(p, total))
        return fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    if (!parcel_args(p, req->argv, req->n_argv))
        return too_long(b, call, "an argument");
    if (!parcel_env(p, b->env, req->env, req->n_env))
        return too_long(b, call, "a variable");
    if (req->cwd.len == 0 || !b->all->kind->cwd_by_name)
        return MANGO_OK;
    p->flags |= WIRE_FLAG_CHDIR;
    return parcel_string(p, req->cwd) ? MANGO_OK : too_long(b, call, "the folder's name");
}

/* Whole input as a file that the command can only read: no pipe has to be fed while it runs. -1 on failure. */
static int data_file(struct box *b, const struct mango_exec_req *req)
{
    int fd = req->stdin_source ? openat(b->staging_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        fd = memfd_create("stdin", MFD_CLOEXEC);
    bool ok = fd >= 0 && (req->stdin_source || write_whole(fd, req->stdin_data.ptr, req->stdin_data.len));
    char chunk[16384];
    for (int64_t n; ok && req->stdin_source && (n = req->stdin_source(req->stdin_ctx, chunk, sizeof(chunk))) != 0;)
        ok = n > 0 && write_whole(fd, chunk, (uint64_t)n);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int ro = ok ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (ro < 0 && ok && lseek(fd, 0, SEEK_SET) == 0)
        return fd; /* no /proc: the same file, writable, is harmless */
    if (fd >= 0)
        close(fd);
    return ro;
}

/* A terminal that nobody types at: reading finds its end at once, and what is written passes unchanged. The command's
 * side, or -1 where this machine has no terminals: then there is none. */
static int open_terminal(int *ret_other)
{
    struct termios t;
    int other = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64];
    int fd = other >= 0 && grantpt(other) == 0 && unlockpt(other) == 0 && ptsname_r(other, name, sizeof(name)) == 0
                 ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
                 : -1;
    bool ok = fd >= 0 && tcgetattr(fd, &t) == 0;
    if (ok) {
        cfmakeraw(&t);
        t.c_cc[VMIN] = 0;
        t.c_cc[VTIME] = 0;
        ok = tcsetattr(fd, TCSANOW, &t) == 0 && fcntl(other, F_SETFL, O_NONBLOCK) == 0;
    }
    if (ok) {
        *ret_other = other;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    if (other >= 0)
        close(other);
    return -1;
}

/* The command's standard input; -1: errno tells. */
static int open_input(struct box *b, const struct mango_exec_req *req, int stdin_kind, struct running *r)
{
    int in[2];
    if (stdin_kind == PIPE_STDIN) {
        if (pipe2(in, O_CLOEXEC) < 0)
            return -1;
        r->in = in[1];
        (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
        return in[0];
    }
    bool data = stdin_kind == DATA_STDIN && (req->stdin_data.len > 0 || req->stdin_source);
    return data ? data_file(b, req) : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* 0 or errno. */
static int open_streams(struct box *b, const struct mango_exec_req *req, int stdin_kind, struct parcel *p,
                        struct running *r)
{
    int in = open_input(b, req, stdin_kind, r);
    return in >= 0 ? parcel_streams(p, in, &r->ends) : errno ? errno : EIO;
}

static mango_status open_cwd(struct box *b, const struct mango_call *call, const struct mango_exec_req *req,
                             struct parcel *p)
{
    if (req->cwd.len == 0)
        return MANGO_OK;
    int fd = path_open(b, req->cwd, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return fail_path(b->all->host, call, -fd, req->cwd);
    if (b->all->kind->cwd_by_name) {
        close(fd);
        return MANGO_OK;
    }
    parcel_fd(p, fd, WIRE_FLAG_CWD);
    return MANGO_OK;
}

static void add_terminal(struct parcel *p, struct running *r)
{
    int fd = open_terminal(&r->tty);
    if (fd < 0)
        return;
    r->tty_hold = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    parcel_fd(p, fd, WIRE_FLAG_TTY);
}

/* To the runner, to a new one when the present one has been killed. Nothing has started when this fails. 0 or errno. */
static int deliver(struct box *b, const struct parcel *p)
{
    int e = 0;
    for (int attempt = 0; attempt < 2; attempt++) {
        pthread_mutex_lock(&b->live.lock);
        e = ensure_runner(b);
        int ctl = e == 0 ? fcntl(b->ctl, F_DUPFD_CLOEXEC, 0)
                         : -1; /* so that a stop meanwhile cannot give the number to another */
        if (e == 0 && ctl < 0)
            e = errno;
        pthread_mutex_unlock(&b->live.lock);
        if (e)
            return e;
        e = parcel_send(ctl, p);
        close(ctl);
        /* EAGAIN: it was stopped from inside, and its queue is full. */
        if (e != EPIPE && e != ECONNRESET && e != ENOTCONN && e != EAGAIN)
            return e;
        runner_stop(b, KILL_WAIT_MS);
    }
    return e;
}

void run_close(struct running *r)
{
    int *fds[] = {&r->ends.status, &r->in, &r->ends.out, &r->ends.err, &r->tty, &r->tty_hold};
    for (int i = 0; i < 6; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

mango_status run_start(struct box *b, const struct mango_call *call, const struct mango_exec_req *req, int stdin_kind,
                       struct running *ret)
{
    struct parcel p = {0};
    *ret = (struct running){{-1, -1, -1}, -1, -1, -1};
    mango_status s = pack(b, call, req, &p);
    int e = s == MANGO_OK ? open_streams(b, req, stdin_kind, &p, ret) : 0;
    if (s == MANGO_OK && e == 0)
        s = open_cwd(b, call, req, &p);
    if (s == MANGO_OK && e == 0)
        e = parcel_payload(&p);
    if (s == MANGO_OK && e == 0 && stdin_kind == PIPE_STDIN && b->all->kind->terminal)
        add_terminal(&p, ret);
    if (s == MANGO_OK && e == 0)
        e = deliver(b, &p);
    parcel_done(&p);
    if (e == ESHUTDOWN)
        s = fail(b->all->host, call, MANGO_EGONE, "the workspace is being removed");
    else if (e)
        s = fail(b->all->host, call, MANGO_ERETRY, "cannot start the command's runner %s: %s", b->all->runner,
                 strerror(e));
    if (s < 0)
        run_close(ret);
    return s;
}

void run_release(struct running *r)
{
    status_release(&r->ends);
    run_close(r);
}
