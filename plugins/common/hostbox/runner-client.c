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
#include "common/runner/wire.h"

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

struct parcel {
    char *strings;
    uint32_t len, argc, envc;
    int fds[WIRE_FDS_MAX];
    int n_fds;
    uint32_t flags;
};

static bool put(struct parcel *p, const char *s, uint64_t n)
{
    if (n > WIRE_STRING_MAX || p->len + n + 1 > WIRE_STRINGS_MAX || memchr(s, '\0', n))
        return false;
    memcpy(p->strings + p->len, s, n);
    p->len += (uint32_t)n;
    p->strings[p->len++] = '\0';
    return true;
}

/* True when one of the request's variables has the name of v. */
static bool overridden(const struct mango_exec_req *req, const char *v)
{
    uint64_t name = (uint64_t)(strchrnul(v, '=') - v);
    for (uint64_t i = 0; i < req->n_env; i++) {
        if (req->env[i].len > name && memcmp(req->env[i].ptr, v, name) == 0 && req->env[i].ptr[name] == '=')
            return true;
    }
    return false;
}

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
    p->strings = malloc(total);
    if (!p->strings)
        return fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    for (uint64_t i = 0; i < req->n_argv; i++, p->argc++) {
        if (!put(p, req->argv[i].ptr, req->argv[i].len))
            return too_long(b, call, "an argument");
    }
    for (char **e = b->env; *e; e++) {
        if (overridden(req, *e))
            continue;
        (void)put(p, *e, strlen(*e));
        p->envc++;
    }
    for (uint64_t i = 0; i < req->n_env; i++, p->envc++) {
        if (!put(p, req->env[i].ptr, req->env[i].len))
            return too_long(b, call, "a variable");
    }
    if (req->cwd.len == 0 || !b->all->kind->cwd_by_name)
        return MANGO_OK;
    p->flags |= WIRE_FLAG_CHDIR;
    return put(p, req->cwd.ptr, req->cwd.len) ? MANGO_OK : too_long(b, call, "the folder's name");
}

static void parcel_done(struct parcel *p)
{
    for (int i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    free(p->strings);
}

static bool write_whole(int fd, const char *p, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t w = write(fd, p + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        done += (uint64_t)w;
    }
    return true;
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

/* Opens the pipes; the command's ends go into the parcel in the order of the wire. 0 or errno. */
static int open_streams(struct box *b, const struct mango_exec_req *req, int stdin_kind, struct parcel *p,
                        struct running *r)
{
    int sv[2], in[2], out[2], err[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return errno;
    r->status = sv[0];
    p->fds[p->n_fds++] = sv[1];
    if (stdin_kind == PIPE_STDIN) {
        if (pipe2(in, O_CLOEXEC) < 0)
            return errno;
        r->in = in[1];
        (void)fcntl(in[1], F_SETFL, O_NONBLOCK);
    } else {
        bool data = stdin_kind == DATA_STDIN && (req->stdin_data.len > 0 || req->stdin_source);
        in[0] = data ? data_file(b, req) : open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (in[0] < 0)
            return errno ? errno : EIO;
    }
    p->fds[p->n_fds++] = in[0];
    if (pipe2(out, O_CLOEXEC) < 0)
        return errno;
    r->out = out[0];
    p->fds[p->n_fds++] = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return errno;
    r->err = err[0];
    p->fds[p->n_fds++] = err[1];
    (void)fcntl(r->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(r->err, F_SETFL, O_NONBLOCK);
    return 0;
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
    p->fds[p->n_fds++] = fd;
    p->flags |= WIRE_FLAG_CWD;
    return MANGO_OK;
}

static void add_terminal(struct parcel *p, struct running *r)
{
    int fd = open_terminal(&r->tty);
    if (fd < 0)
        return;
    r->tty_hold = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    p->fds[p->n_fds++] = fd;
    p->flags |= WIRE_FLAG_TTY;
}

/* Strings that do not fit into the datagram go into a memory file. 0 or errno. */
static int open_payload(struct parcel *p)
{
    if (p->len <= WIRE_INLINE_MAX)
        return 0;
    int fd = memfd_create("args", MFD_CLOEXEC);
    if (fd < 0)
        return errno;
    p->fds[p->n_fds++] = fd;
    p->flags |= WIRE_FLAG_PAYLOAD;
    return write_whole(fd, p->strings, p->len) ? 0 : ENOMEM;
}

static int send_parcel(int ctl, const struct parcel *p)
{
    struct wire_request head = {
        .magic = WIRE_MAGIC, .flags = p->flags, .argc = p->argc, .envc = p->envc, .len = p->len};
    struct iovec iov[2] = {{&head, sizeof(head)}, {p->strings, p->flags & WIRE_FLAG_PAYLOAD ? 0 : p->len}};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
    } control;
    struct msghdr m = {.msg_iov = iov,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE((size_t)p->n_fds * sizeof(int))};
    memset(&control, 0, sizeof(control));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN((size_t)p->n_fds * sizeof(int));
    memcpy(CMSG_DATA(c), p->fds, (size_t)p->n_fds * sizeof(int));
    while (sendmsg(ctl, &m, MSG_NOSIGNAL) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return 0;
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
        e = send_parcel(ctl, p);
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
    int *fds[] = {&r->status, &r->in, &r->out, &r->err, &r->tty, &r->tty_hold};
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
    *ret = (struct running){-1, -1, -1, -1, -1, -1};
    mango_status s = pack(b, call, req, &p);
    int e = s == MANGO_OK ? open_streams(b, req, stdin_kind, &p, ret) : 0;
    if (s == MANGO_OK && e == 0)
        s = open_cwd(b, call, req, &p);
    if (s == MANGO_OK && e == 0)
        e = open_payload(&p);
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
    struct wire_command cmd = {.kind = WIRE_RELEASE};
    int fds[2], n = 0;
    if (r->out >= 0)
        fds[n++] = r->out;
    if (r->err >= 0)
        fds[n++] = r->err;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov = {&cmd, sizeof(cmd)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof(control));
    if (n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    (void)sendmsg(r->status, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    run_close(r);
}
