#include "common/rbox/rbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/runner/runner.h"

/* One command: its reaper (common/runner) starts, watches and kills; this process moves its output into the log and the log to
 * standard output, and never waits for the one who reads that. */

enum {
    DRAIN_MAX = 2 * 1024 * 1024, /* bytes: two of the largest pipes. What a command wrote before its end is in them */
    KILL_MS = 6000,              /* for the reaper to have killed: a little more than it takes */
    READER_MS = 60000,           /* for the reader of standard output to take more, at the end */
    OPEN_FILES = 1024,           /* soft limit of the commands: programs with select(2) break above it */
};

struct run {
    const struct command *c;
    struct folder f;
    int status, out[2], signals; /* out: read ends; -1: ended */
    uint64_t seen[2], kept[2];
    uint64_t sent;   /* of the log */
    bool reader;     /* somebody takes standard output */
    bool log_failed; /* the disk is full: nothing more is kept */
    bool no_folder;  /* the start failed for the working folder, not for the program */
    struct wire_event end;
    const char *why; /* it is being killed: the result's "how" */
    uint64_t oom_before;
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t counter(const char *path, const char *name)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Of a container by its cgroup, of a machine of its own by its kernel. */
static uint64_t oom_kills(void)
{
    static const char group[] = "/sys/fs/cgroup/memory.events";
    return access(group, R_OK) == 0 ? counter(group, "oom_kill ") : counter("/proc/vmstat", "oom_kill ");
}

/* ---- the start ---- */

static bool add(char *strings, uint32_t *len, const char *s)
{
    size_t n = strlen(s) + 1;
    if (n > WIRE_STRING_MAX + 1UL || *len + n > WIRE_STRINGS_MAX)
        return false;
    memcpy(strings + *len, s, n);
    *len += (uint32_t)n;
    return true;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* argv, then this process's environment with the request's over it, and the mark. */
static bool pack(const struct command *c, char *strings, struct wire_request *head)
{
    char mark[RBOX_ID_MAX + sizeof(RBOX_MARK) + 2];
    snprintf(mark, sizeof(mark), RBOX_MARK "=%s", c->id);
    for (uint32_t i = 0; i < c->argc; i++, head->argc++) {
        if (!add(strings, &head->len, c->argv[i]))
            return false;
    }
    for (char **e = environ; *e; e++) {
        bool replaced = same_name(*e, mark);
        for (uint32_t i = 0; i < c->envc && !replaced; i++)
            replaced = same_name(*e, c->env[i]);
        if (replaced)
            continue;
        if (!add(strings, &head->len, *e))
            return false;
        head->envc++;
    }
    for (uint32_t i = 0; i < c->envc; i++, head->envc++) {
        if (!add(strings, &head->len, c->env[i]))
            return false;
    }
    head->envc++;
    return add(strings, &head->len, mark);
}

static int open_input(const struct command *c)
{
    char name[RBOX_ID_MAX + 4];
    if (!c->in)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof(name), "%s.in", c->id);
    int fd = openat(run_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        (void)unlinkat(run_dir, name, 0);
    return fd;
}

/* In the child: the reaper, away from everything that the service watches. Never returns. */
static _Noreturn void be_reaper(struct request *req)
{
    int life[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t chld;
    signal(SIGPIPE, SIG_DFL); /* commands would inherit that it is ignored */
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    (void)setsid();
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > OPEN_FILES) {
        files.rlim_cur = OPEN_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    int sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (null < 0 || sigfd < 0 || pipe2(life, O_CLOEXEC) < 0)
        _exit(1);
    reaper_main(req, life[0], sigfd);
}

static int start(struct run *r)
{
    int sv[2], out[2][2];
    struct request req = {.head = {.magic = WIRE_MAGIC}, .fds = {-1, -1, -1, -1, -1, -1}};
    char *strings = malloc(WIRE_STRINGS_MAX);
    if (!strings)
        return ENOMEM;
    if (r->c->argc > WIRE_ARGS_MAX || r->c->envc > WIRE_ARGS_MAX || !pack(r->c, strings, &req.head))
        return E2BIG;
    req.strings = strings;
    int cwd = confine_open(&ws, sv_z(r->c->cwd), O_PATH | O_DIRECTORY);
    r->no_folder = cwd < 0;
    if (cwd < 0)
        return -cwd;
    req.head.flags = WIRE_FLAG_CWD;
    req.fds[4] = cwd;
    if ((req.fds[1] = open_input(r->c)) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0 ||
        pipe2(out[0], O_CLOEXEC) < 0 || pipe2(out[1], O_CLOEXEC) < 0)
        return errno;
    req.fds[0] = sv[1];
    req.fds[2] = out[0][1];
    req.fds[3] = out[1][1];
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        close(sv[0]);
        close(out[0][0]);
        close(out[1][0]);
        be_reaper(&req);
    }
    for (int i = 0; i < 5; i++)
        close(req.fds[i]);
    r->status = sv[0];
    for (int i = 0; i < 2; i++) {
        r->out[i] = out[i][0];
        (void)fcntl(r->out[i], F_SETFL, O_NONBLOCK);
    }
    free(strings);
    return 0;
}

/* ---- output ---- */

/* One piece; false when there is nothing more for now. */
static bool take(struct run *r, int i)
{
    char piece[RBOX_DATA_MAX];
    ssize_t n = r->out[i] < 0 ? -1 : read(r->out[i], piece, sizeof(piece));
    if (n == 0 || (n < 0 && r->out[i] >= 0 && errno != EAGAIN && errno != EINTR)) {
        close(r->out[i]);
        r->out[i] = -1;
    }
    if (n <= 0)
        return false;
    uint64_t max = r->c->max, room = max == 0 ? (uint64_t)n : max > r->kept[i] ? max - r->kept[i] : 0;
    uint64_t keep = (uint64_t)n < room ? (uint64_t)n : room;
    r->seen[i] += (uint64_t)n;
    r->kept[i] += keep;
    if (keep > 0 && !r->log_failed)
        r->log_failed = !put_frame(r->f.log, i == 0 ? RBOX_STDOUT : RBOX_STDERR, piece, keep);
    return true;
}

static void on_status(struct run *r)
{
    struct wire_event ev;
    ssize_t n = recv(r->status, &ev, sizeof(ev), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof(ev))
        r->end = (struct wire_event){.kind = UINT32_MAX}; /* the reaper was killed */
    else if (ev.kind != WIRE_STARTED)
        r->end = ev;
}

static void stop(struct run *r, const char *why)
{
    const struct wire_command cmd = {.kind = WIRE_KILL};
    if (r->why || r->end.kind)
        return;
    r->why = why;
    (void)send(r->status, &cmd, sizeof(cmd), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What lives on keeps its pipes, and they are drained by the reaper. */
static void release(const struct run *r)
{
    struct wire_command cmd = {.kind = WIRE_RELEASE};
    int fds[2], n = 0;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec iov = {&cmd, sizeof(cmd)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    memset(&control, 0, sizeof(control));
    for (int i = 0; i < 2; i++) {
        if (r->out[i] >= 0)
            fds[n++] = r->out[i];
    }
    if (n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(cm), fds, (size_t)n * sizeof(int));
    }
    (void)sendmsg(r->status, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the loop ---- */

static void turn(struct run *r, uint64_t until)
{
    uint64_t now = now_ms();
    off_t size = lseek(r->f.log, 0, SEEK_END);
    bool behind = r->reader && !quiet && (uint64_t)size > r->sent;
    struct pollfd p[5] = {{.fd = r->status, .events = POLLIN},
                          {.fd = r->out[0], .events = POLLIN},
                          {.fd = r->out[1], .events = POLLIN},
                          {.fd = r->signals, .events = POLLIN},
                          {.fd = behind ? STDOUT_FILENO : -1, .events = POLLOUT}};
    int ms = !until ? -1 : now >= until ? 0 : until - now > 60000 ? 60000 : (int)(until - now);
    if (poll(p, 5, ms) < 0)
        return;
    for (int i = 0; i < 2; i++) {
        if (p[1 + i].revents)
            (void)take(r, i);
    }
    if (p[0].revents)
        on_status(r);
    if (p[3].revents) {
        struct signalfd_siginfo info;
        while (read(r->signals, &info, sizeof(info)) > 0) {
        }
        stop(r, RBOX_KILLED);
    }
    if (r->reader)
        r->reader = log_send(&r->f, &r->sent);
}

static void watch(struct run *r)
{
    uint64_t until = r->c->limit_ms ? now_ms() + r->c->limit_ms : 0, killed_by = 0;
    while (!r->end.kind) {
        turn(r, killed_by ? killed_by : until);
        if (!r->why && until && now_ms() >= until)
            stop(r, RBOX_TIMEOUT);
        if (r->why && !killed_by)
            killed_by = now_ms() + KILL_MS;
        if (killed_by && now_ms() >= killed_by)
            break;
    }
    for (uint64_t before = r->seen[0] + r->seen[1]; r->seen[0] + r->seen[1] - before < DRAIN_MAX;) {
        bool a = take(r, 0), b = take(r, 1);
        if (!a && !b)
            break;
    }
}

static void result(const struct run *r, char *out, size_t size)
{
    const char *how = RBOX_LOST;
    int code = 0, signal = 0, e = 0;
    if (r->end.kind == WIRE_FAILED) {
        how = RBOX_FAILED;
        e = r->end.status;
    } else if (r->end.kind == WIRE_ENDED && WIFEXITED(r->end.status)) {
        how = RBOX_EXITED;
        code = WEXITSTATUS(r->end.status);
    } else if (r->end.kind == WIRE_ENDED) {
        how = RBOX_SIGNAL;
        signal = WTERMSIG(r->end.status);
    } else if (r->why) {
        how = r->why;
    }
    snprintf(out, size,
             "{\"how\":\"%s\",\"code\":%d,\"signal\":%d,\"errno\":%d,\"out\":%llu,\"err\":%llu,\"peak_kib\":%llu,"
             "\"oom\":%s,\"left\":%u,\"cut\":%s,\"cwd\":%s}",
             how, code, signal, e, (unsigned long long)r->seen[0], (unsigned long long)r->seen[1],
             (unsigned long long)r->end.peak_kib, oom_kills() > r->oom_before ? "true" : "false", r->end.left,
             r->log_failed ? "true" : "false", r->no_folder ? "true" : "false");
}

/* The log is whole; what the reader has not taken yet is kept for it. */
static void finish(struct run *r)
{
    while (r->reader && !quiet) {
        struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
        uint64_t before = r->sent;
        r->reader = log_send(&r->f, &r->sent);
        if (!r->reader || (uint64_t)lseek(r->f.log, 0, SEEK_END) <= r->sent)
            return;
        if (poll(&p, 1, READER_MS) <= 0 && r->sent == before)
            return;
    }
}

int run_main(const struct command *c)
{
    struct run r = {.c = c, .status = -1, .out = {-1, -1}, .reader = true, .oom_before = oom_kills()};
    char text[512];
    sigset_t all, asked;
    int e = folder_make(c->id, &r.f);
    if (e == EEXIST)
        return follow(c->id, c->offset);
    if (e) {
        began();
        return say_errno(e, "the command's folder cannot be made");
    }
    sweep();
    (void)put_frame(r.f.log, RBOX_BEGAN, NULL, 0);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    sigemptyset(&asked);
    sigaddset(&asked, SIGTERM);
    sigaddset(&asked, SIGINT);
    sigaddset(&asked, SIGHUP);
    r.signals = signalfd(-1, &asked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!quiet)
        (void)fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    e = start(&r);
    if (e)
        r.end = (struct wire_event){.kind = WIRE_FAILED, .status = e};
    watch(&r);
    if (r.end.kind == WIRE_ENDED && !r.end.alone)
        release(&r);
    result(&r, text, sizeof(text));
    folder_end(&r.f, text);
    finish(&r);
    return 0;
}
