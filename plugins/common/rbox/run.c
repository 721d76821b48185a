#include "common/rbox/rbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/inside/inside.h"

/* One command: its reaper (common/runner) starts, watches and kills; this process moves its output into the log and the log to
 * standard output, and never waits for the one who reads that. */

enum {
    KILL_MS = 6000,    /* for the reaper to have killed: a little more than it takes */
    READER_MS = 60000, /* for the reader of standard output to take more, at the end */
    OPEN_FILES = 1024, /* soft limit of the commands: programs with select(2) break above it */
};

struct run {
    const struct command *c;
    struct folder f;
    int status, signals;
    struct stream out[2];
    uint64_t sent;   /* of the log */
    bool reader;     /* somebody takes standard output */
    bool log_failed; /* the disk is full: nothing more is kept */
    bool no_folder;  /* the start failed for the working folder, not for the program */
    struct wire_event end;
    const char *why; /* it is being killed: the result's "how" */
    uint64_t oom_before;
};

/* Of a container by its cgroup, of a machine of its own by its kernel. */
static uint64_t oom_kills(void)
{
    static const char group[] = "/sys/fs/cgroup/memory.events";
    return access(group, R_OK) == 0 ? kernel_counter(group, "oom_kill ") : kernel_counter("/proc/vmstat", "oom_kill ");
}

/* ---- the start ---- */

/* argv, then this process's environment with the request's over it, and the mark. 0 or errno. */
static int pack(const struct command *c, struct parcel *p)
{
    char mark[RBOX_ID_MAX + sizeof(MARK_NAME) + 2];
    struct mango_sv *args = views_of(c->argv, c->argc, 0), *env = views_of(c->env, c->envc, 1);
    bool ok = args && env && parcel_begin(p, WIRE_STRINGS_MAX);
    int e = ok ? 0 : ENOMEM;
    if (ok) {
        snprintf(mark, sizeof(mark), MARK_NAME "=%s", c->id);
        env[c->envc] = sv_z(mark);
        e = parcel_args(p, args, c->argc) && parcel_env(p, environ, env, c->envc + 1UL) ? 0 : E2BIG;
    }
    free(args);
    free(env);
    return e;
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
static _Noreturn void be_reaper(const struct parcel *p)
{
    int life[2];
    struct request req = request_of(p);
    signal(SIGPIPE, SIG_DFL); /* commands would inherit that it is ignored */
    int sigfd = leave_service();
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > OPEN_FILES) {
        files.rlim_cur = OPEN_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (sigfd < 0 || pipe2(life, O_CLOEXEC) < 0)
        _exit(1);
    reaper_main(&req, life[0], sigfd);
}

/* 0 or errno; the starter's ends are in *ends then too. */
static int open_all(struct run *r, struct parcel *p, struct ends *ends)
{
    if (r->c->argc > WIRE_ARGS_MAX || r->c->envc > WIRE_ARGS_MAX)
        return E2BIG;
    int e = pack(r->c, p);
    if (e)
        return e;
    int cwd = confine_open(&ws, sv_z(r->c->cwd), O_PATH | O_DIRECTORY);
    r->no_folder = cwd < 0;
    if (cwd < 0)
        return -cwd;
    int in = open_input(r->c);
    e = in < 0 ? errno : parcel_streams(p, in, ends);
    parcel_fd(p, cwd, WIRE_FLAG_CWD);
    return e;
}

static int start(struct run *r)
{
    struct parcel p = {0};
    struct ends ends = {-1, -1, -1};
    int e = open_all(r, &p, &ends);
    pid_t pid = e ? -1 : fork();
    if (e == 0 && pid < 0)
        e = errno;
    if (pid == 0) {
        close(ends.status);
        close(ends.out);
        close(ends.err);
        be_reaper(&p);
    }
    parcel_done(&p);
    r->status = ends.status;
    r->out[0].fd = ends.out;
    r->out[1].fd = ends.err;
    return e;
}

/* ---- output ---- */

/* One piece; false when there is nothing more for now. */
static bool take(struct run *r, int i)
{
    char piece[RBOX_DATA_MAX];
    size_t keep, n = stream_take(&r->out[i], piece, sizeof(piece), r->c->max, &keep);
    if (keep > 0 && !r->log_failed)
        r->log_failed = !put_frame(r->f.log, i == 0 ? RBOX_STDOUT : RBOX_STDERR, piece, keep);
    return n > 0;
}

static uint64_t seen(const struct run *r)
{
    return r->out[0].seen + r->out[1].seen;
}

static void on_status(struct run *r)
{
    struct wire_event ev;
    if (status_hear(r->status, &ev) && ev.kind != WIRE_STARTED)
        r->end = ev;
}

static void stop(struct run *r, const char *why)
{
    if (r->why || r->end.kind)
        return;
    r->why = why;
    status_kill(r->status);
}

/* ---- the loop ---- */

static void turn(struct run *r, long long until)
{
    long long now = now_ms();
    off_t size = lseek(r->f.log, 0, SEEK_END);
    bool behind = r->reader && (uint64_t)size > r->sent;
    struct pollfd p[5] = {{.fd = r->status, .events = POLLIN},
                          {.fd = r->out[0].fd, .events = POLLIN},
                          {.fd = r->out[1].fd, .events = POLLIN},
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
    long long until = r->c->limit_ms ? now_ms() + (long long)r->c->limit_ms : 0, killed_by = 0;
    while (!r->end.kind) {
        turn(r, killed_by ? killed_by : until);
        if (!r->why && until && now_ms() >= until)
            stop(r, RBOX_TIMEOUT);
        if (r->why && !killed_by)
            killed_by = now_ms() + KILL_MS;
        if (killed_by && now_ms() >= killed_by)
            break;
    }
    for (uint64_t before = seen(r); seen(r) - before < STREAM_DRAIN_MAX;) {
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
             how, code, signal, e, (unsigned long long)r->out[0].seen, (unsigned long long)r->out[1].seen,
             (unsigned long long)r->end.peak_kib, oom_kills() > r->oom_before ? "true" : "false", r->end.left,
             r->log_failed ? "true" : "false", r->no_folder ? "true" : "false");
}

/* The log is whole; what the reader has not taken yet is kept for it. */
static void finish(struct run *r)
{
    while (r->reader) {
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
    struct run r = {.c = c, .status = -1, .out = {{.fd = -1}, {.fd = -1}}, .reader = true, .oom_before = oom_kills()};
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
    (void)fcntl(STDOUT_FILENO, F_SETFL, fcntl(STDOUT_FILENO, F_GETFL) | O_NONBLOCK);
    e = start(&r);
    if (e)
        r.end = (struct wire_event){.kind = WIRE_FAILED, .status = e};
    watch(&r);
    if (r.end.kind == WIRE_ENDED && !r.end.alone)
        status_release(&(struct ends){r.status, r.out[0].fd, r.out[1].fd});
    result(&r, text, sizeof(text));
    folder_end(&r.f, text);
    finish(&r);
    return 0;
}
