#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/errand/program.h"
#include "common/runner/runner.h"

/* A command and its supervisor, a process of its own session that outlives every connection. The reaper (common/runner) is the
 * supervisor's child and starts the command; what the command leaves behind lives on below the reaper until it ends, and goes
 * when the supervisor is killed. */

enum {
    DRAIN_MAX = 1024 * 1024, /* bytes: the largest pipe. What a command wrote before its end is in it */
    PIECE = 64 * 1024,
    KILLED_MS = 7000, /* for the reaper to tell that all are dead */
    TEMP_TRIES = 8,
};

struct stream {
    int pipe, file;
    uint64_t seen, kept;
};

struct supervisor {
    int run;    /* folder of the command */
    int status; /* to the reaper */
    int notify; /* a file "kill" comes into the folder */
    pid_t reaper;
    struct stream out[2];
    uint64_t bound;
    long long until; /* 0: no limit */
};

struct command {
    const char *cwd, *input;
    struct mango_sv cwd_sv;
    char *strings;
    uint32_t len, argc, envc;
    uint64_t limit_ms, bound;
};

/* ---- the request ---- */

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

static bool put(struct command *c, const char *s)
{
    size_t n = strlen(s) + 1;
    if (n > WIRE_STRING_MAX + 1UL || c->len + n > WIRE_STRINGS_MAX)
        return false;
    memcpy(c->strings + c->len, s, n);
    c->len += (uint32_t)n;
    return true;
}

/* Arguments, then variables; those of the request win over those of the service's daemon. 0 or errno. */
static int read_strings(struct fields *f, struct command *c)
{
    const char *own[WIRE_ARGS_MAX];
    uint64_t n = field_number(f);
    bool fits = true;
    if (n == 0 || n > WIRE_ARGS_MAX || !(c->strings = malloc(WIRE_STRINGS_MAX)))
        return n ? E2BIG : EINVAL;
    for (; n > 0 && !f->bad; n--, c->argc++)
        fits = fits && put(c, field_z(f));
    n = field_number(f);
    if (n > WIRE_ARGS_MAX)
        return E2BIG;
    for (uint64_t i = 0; i < n && !f->bad; i++)
        own[i] = field_z(f);
    if (f->bad)
        return EPROTO;
    for (char **e = environ; *e; e++) {
        bool replaced = false;
        for (uint64_t i = 0; i < n && !replaced; i++)
            replaced = same_name(*e, own[i]);
        if (replaced)
            continue;
        fits = fits && put(c, *e);
        c->envc++;
    }
    for (uint64_t i = 0; i < n; i++, c->envc++)
        fits = fits && put(c, own[i]);
    return fits ? 0 : E2BIG;
}

/* ---- the end ---- */

static void write_result(const struct supervisor *s, char kind, int number, uint64_t peak_kib)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "%c %d %llu %llu %llu\n", kind, number, (unsigned long long)s->out[0].seen,
                     (unsigned long long)s->out[1].seen, (unsigned long long)peak_kib);
    int fd = openat(s->run, "result.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool ok = write_whole(fd, text, (size_t)n);
    if (close(fd) == 0 && ok)
        (void)renameat(s->run, "result.new", s->run, "result");
}

static size_t take(struct supervisor *s, int i)
{
    static char piece[PIECE];
    struct stream *o = &s->out[i];
    if (o->pipe < 0)
        return 0;
    ssize_t n = read(o->pipe, piece, sizeof(piece));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close(o->pipe);
        o->pipe = -1;
        return 0;
    }
    uint64_t room = o->kept < s->bound ? s->bound - o->kept : 0;
    size_t keep = (uint64_t)n < room ? (size_t)n : (size_t)room;
    o->seen += (uint64_t)n;
    if (keep > 0 && write_whole(o->file, piece, keep)) /* a full disk loses output, never the command */
        o->kept += keep;
    return (size_t)n;
}

static void drain(struct supervisor *s)
{
    for (size_t all = 0, n = 1; n > 0 && all < 2UL * DRAIN_MAX; all += n)
        n = take(s, 0) + take(s, 1);
}

/* The result has been written: what lives on may go on, with somebody who reads its pipes. */
static void release(const struct supervisor *s)
{
    struct wire_command cmd = {.kind = WIRE_RELEASE};
    struct iovec iov = {&cmd, sizeof(cmd)};
    int fds[2], n = 0;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    for (int i = 0; i < 2; i++) {
        if (s->out[i].pipe >= 0)
            fds[n++] = s->out[i].pipe;
    }
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
    }
    (void)sendmsg(s->status, &m, MSG_NOSIGNAL);
}

static void on_end(struct supervisor *s, const struct wire_event *ev)
{
    drain(s);
    if (ev->kind == WIRE_FAILED)
        write_result(s, 'f', ev->status, 0);
    else if (WIFSIGNALED(ev->status))
        write_result(s, 's', WTERMSIG(ev->status), ev->peak_kib);
    else
        write_result(s, 'x', WEXITSTATUS(ev->status), ev->peak_kib);
    if (ev->kind == WIRE_ENDED && !ev->alone)
        release(s);
}

/* All of it dead, then told. Its own end may have come first: then that is the result. */
static void stop(struct supervisor *s, char kind)
{
    struct wire_command cmd = {.kind = WIRE_KILL};
    long long end = now_ms() + KILLED_MS;
    (void)send(s->status, &cmd, sizeof(cmd), MSG_NOSIGNAL);
    for (;;) {
        struct wire_event ev = {0};
        struct pollfd p[3] = {{s->status, POLLIN, 0}, {s->out[0].pipe, POLLIN, 0}, {s->out[1].pipe, POLLIN, 0}};
        long long left = end - now_ms();
        if (left <= 0 || poll(p, 3, (int)left) <= 0)
            break;
        (void)take(s, 0);
        (void)take(s, 1);
        if (!p[0].revents)
            continue;
        ssize_t n = recv(s->status, &ev, sizeof(ev), MSG_DONTWAIT);
        if (n == sizeof(ev) && ev.kind == WIRE_ENDED && kind == 'c' && !WIFSIGNALED(ev.status)) {
            drain(s);
            write_result(s, 'x', WEXITSTATUS(ev.status), ev.peak_kib);
            return; /* the reaper has the KILL already: what was left behind goes too */
        }
        if (n != sizeof(ev) || ev.kind == WIRE_KILLED || ev.kind == WIRE_FAILED)
            break;
    }
    drain(s);
    write_result(s, kind, 0, 0);
}

/* ---- the supervisor ---- */

static bool kill_wanted(const struct supervisor *s, char *ret_kind)
{
    char events[4096], kind = 'c';
    while (read(s->notify, events, sizeof(events)) > 0) {
    }
    int fd = openat(s->run, "kill", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    (void)!read(fd, &kind, 1);
    close(fd);
    *ret_kind = kind == 't' ? 't' : 'c';
    return true;
}

static void supervise(struct supervisor *s)
{
    char kind;
    for (;;) {
        struct pollfd p[4] = {
            {s->status, POLLIN, 0}, {s->out[0].pipe, POLLIN, 0}, {s->out[1].pipe, POLLIN, 0}, {s->notify, POLLIN, 0}};
        long long left = s->until ? s->until - now_ms() : -1;
        if (s->until && left <= 0)
            return stop(s, 't');
        if (poll(p, 4, s->until ? (int)(left < 1000000000 ? left : 1000000000) : -1) < 0)
            continue;
        if (p[3].revents && kill_wanted(s, &kind))
            return stop(s, kind);
        if (p[0].revents) {
            struct wire_event ev = {0};
            ssize_t n = recv(s->status, &ev, sizeof(ev), MSG_DONTWAIT);
            if (n < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            if (n != sizeof(ev)) { /* the reaper was killed from inside of the sandbox */
                (void)kill_descendants(KILLED_MS, NULL, NULL);
                drain(s);
                return write_result(s, 's', SIGKILL, 0);
            }
            if (ev.kind == WIRE_STARTED)
                continue;
            return on_end(s, &ev);
        }
        (void)take(s, 0);
        (void)take(s, 1);
    }
}

static int open_input(const struct place *p, const char *name)
{
    int fd = *name ? openat(p->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*name && fd >= 0)
        (void)unlinkat(p->dir, name, 0);
    return fd;
}

/* 0 or errno, plus ERRAND_FOLDER when the folder is at fault. */
static int open_streams(const struct place *p, const struct command *c, struct supervisor *s, struct request *req)
{
    static const char *const names[] = {"out", "err"};
    int sv[2], ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return errno;
    s->status = sv[0];
    req->fds[0] = sv[1];
    if ((req->fds[1] = open_input(p, c->input)) < 0)
        return errno;
    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            return errno;
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        s->out[i].pipe = ends[0];
        req->fds[2 + i] = ends[1];
        s->out[i].file = openat(s->run, names[i], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (s->out[i].file < 0)
            return errno;
    }
    req->fds[4] = confine_open(&p->ws, c->cwd_sv, O_PATH | O_DIRECTORY);
    if (req->fds[4] < 0)
        return -req->fds[4] + ERRAND_FOLDER;
    req->head.flags |= WIRE_FLAG_CWD;
    s->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->run);
    return s->notify < 0 || inotify_add_watch(s->notify, path, IN_CREATE | IN_MOVED_TO) < 0 ? errno : 0;
}

static _Noreturn void reap(const struct supervisor *s, const struct request *req, int life, int sigfd)
{
    for (int i = 0; i < 2; i++) {
        close(s->out[i].pipe);
        close(s->out[i].file);
    }
    close(s->status);
    close(s->notify);
    reaper_main(req, life, sigfd);
}

/* Never returns. Holds the lock of the folder until nothing of the command is left. */
static _Noreturn void supervisor_main(const struct place *p, const struct command *c, int run)
{
    struct supervisor s = {.run = run,
                           .status = -1,
                           .notify = -1,
                           .out = {{.pipe = -1, .file = -1}, {.pipe = -1, .file = -1}},
                           .bound = c->bound && c->bound < ERRAND_KEEP_MAX ? c->bound : ERRAND_KEEP_MAX,
                           .until = c->limit_ms ? now_ms() + (long long)c->limit_ms : 0};
    struct request req = {.head = {.magic = WIRE_MAGIC, .argc = c->argc, .envc = c->envc, .len = c->len},
                          .strings = c->strings,
                          .fds = {-1, -1, -1, -1, -1, -1}};
    int life[2] = {-1, -1}, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t chld;
    (void)setsid();
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    int e = sigfd < 0 || pipe2(life, O_CLOEXEC) < 0 ? errno : open_streams(p, c, &s, &req);
    s.reaper = e ? -1 : fork();
    if (s.reaper == 0) {
        signal(SIGPIPE, SIG_DFL);
        close(life[1]);
        reap(&s, &req, life[0], sigfd);
    }
    if (s.reaper < 0) {
        write_result(&s, 'f', e ? e : errno, 0);
        _exit(0);
    }
    for (int i = 0; i < WIRE_FDS_MAX; i++) {
        if (req.fds[i] >= 0)
            close(req.fds[i]);
    }
    supervise(&s);
    for (int i = 0; i < 2; i++) { /* the reaper drains its own */
        if (s.out[i].pipe >= 0)
            close(s.out[i].pipe);
        close(s.out[i].file);
    }
    while (waitpid(s.reaper, NULL, 0) < 0 && errno == EINTR) {
    }
    _exit(0);
}

/* ---- the start ---- */

/* The folder with its lock appears in one step under its name, or somebody's is there already. The lock, or -1: it is there. */
static int claim(const struct place *p, const char *id, int *ret_run, int *ret_errnum)
{
    char temp[80], name[80];
    snprintf(name, sizeof(name), "run-%s", id);
    snprintf(temp, sizeof(temp), "new-%s-%d", id, (int)getpid());
    *ret_errnum = 0;
    if (mkdirat(p->dir, temp, 0700) < 0) {
        *ret_errnum = errno;
        return -1;
    }
    int run = openat(p->dir, temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int lock = run < 0 ? -1 : openat(run, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool mine = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && renameat(p->dir, temp, p->dir, name) == 0;
    if (mine) {
        *ret_run = run;
        return lock;
    }
    *ret_errnum = errno == EEXIST || errno == ENOTEMPTY ? 0 : errno;
    if (run >= 0)
        (void)unlinkat(run, "lock", 0);
    (void)unlinkat(p->dir, temp, AT_REMOVEDIR);
    if (lock >= 0)
        close(lock);
    if (run >= 0)
        close(run);
    return -1;
}

int run_errand(const struct place *p, struct fields *f)
{
    struct wait_for w;
    struct command c = {0};
    int run, e = 0;
    if (!wait_fields(f, &w))
        return answer_error(EPROTO, "");
    c.limit_ms = field_number(f);
    c.bound = field_number(f);
    c.input = field_z(f);
    c.cwd_sv = field_text(f);
    if (*c.input && !name_ok(c.input, "in-", ERRAND_NAME_LEN))
        return answer_error(EPROTO, "");
    e = read_strings(f, &c);
    if (e)
        return answer_error(e, "");
    int lock = claim(p, w.id, &run, &e);
    if (e)
        return answer_error(e, "");
    if (lock >= 0) {
        pid_t pid = fork();
        if (pid == 0)
            supervisor_main(p, &c, run);
        if (pid < 0) {
            struct supervisor none = {.run = run};
            write_result(&none, 'f', errno, 0);
        }
        close(run);
        close(lock); /* the supervisor has it too, and holds it */
    }
    return wait_errand(p, &w);
}
