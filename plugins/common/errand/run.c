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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/errand/program.h"

/* A command and its supervisor, a process of its own session that outlives every connection. The reaper (common/runner) is the
 * supervisor's child and starts the command; what the command leaves behind lives on below the reaper until it ends, and goes
 * when the supervisor is killed. */

enum {
    PIECE = 64 * 1024,
    KILLED_MS = 7000, /* for the reaper to tell that all are dead */
};

struct supervisor {
    int run;    /* folder of the command */
    int lock;   /* of it, held until the result stands */
    int status; /* to the reaper */
    int notify; /* a file "kill" comes into the folder */
    int news;   /* to the wait of the errand that has started it */
    pid_t reaper;
    struct stream out[2];
    int files[2]; /* what is kept of them */
    uint64_t bound;
    long long until; /* 0: no limit */
};

struct command {
    const char *input;
    struct mango_sv cwd;
    struct parcel parcel;
    uint64_t limit_ms, bound;
};

/* ---- the request ---- */

/* NULL: out of memory; f->bad as always. */
static struct mango_sv *read_list(struct fields *f, uint64_t n)
{
    struct mango_sv *list = calloc(n + 1, sizeof(*list));
    for (uint64_t i = 0; list && i < n && !f->bad; i++)
        list[i] = sv_z(field_z(f));
    return list;
}

/* Arguments, then variables; those of the request win over those of the service's daemon. 0 or errno. */
static int read_strings(struct fields *f, struct command *c)
{
    uint64_t argc = field_number(f);
    if (argc == 0 || argc > WIRE_ARGS_MAX)
        return argc ? E2BIG : EINVAL;
    struct mango_sv *args = read_list(f, argc);
    uint64_t envc = field_number(f);
    if (envc > WIRE_ARGS_MAX || !args || !parcel_begin(&c->parcel, WIRE_STRINGS_MAX)) {
        free(args);
        return E2BIG;
    }
    struct mango_sv *env = read_list(f, envc);
    bool fits = env && parcel_args(&c->parcel, args, argc) && parcel_env(&c->parcel, environ, env, envc);
    free(args);
    free(env);
    return f->bad ? EPROTO : fits ? 0 : E2BIG;
}

/* ---- the end ---- */

static void tell_news(const struct supervisor *s, char what)
{
    (void)!write(s->news, &what, 1); /* a full pipe tells enough, and nobody needs to be there any more */
}

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
    tell_news(s, NEWS_RESULT);
    (void)flock(s->lock, LOCK_UN); /* nothing is written to the folder any more: it may be the next command's */
}

static size_t take(struct supervisor *s, int i)
{
    static char piece[PIECE];
    size_t keep, n = stream_take(&s->out[i], piece, sizeof(piece), s->bound, &keep);
    if (keep > 0 && !write_whole(s->files[i], piece, keep)) /* a full disk loses output, never the command */
        s->out[i].kept -= keep;
    if (keep > 0)
        tell_news(s, NEWS_OUTPUT);
    return n;
}

static void drain(struct supervisor *s)
{
    for (size_t all = 0, n = 1; n > 0 && all < STREAM_DRAIN_MAX; all += n)
        n = take(s, 0) + take(s, 1);
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
        status_release(&(struct ends){s->status, s->out[0].fd, s->out[1].fd});
}

/* All of it dead, then told. Its own end may have come first: then that is the result. */
static void stop(struct supervisor *s, char kind)
{
    long long end = now_ms() + KILLED_MS;
    status_kill(s->status);
    for (;;) {
        struct wire_event ev;
        struct pollfd p[3] = {{s->status, POLLIN, 0}, {s->out[0].fd, POLLIN, 0}, {s->out[1].fd, POLLIN, 0}};
        long long left = end - now_ms();
        if (left <= 0 || poll(p, 3, (int)left) <= 0)
            break;
        (void)take(s, 0);
        (void)take(s, 1);
        if (!p[0].revents || !status_hear(s->status, &ev))
            continue;
        if (ev.kind == WIRE_ENDED && kind == 'c' && !WIFSIGNALED(ev.status)) {
            drain(s);
            write_result(s, 'x', WEXITSTATUS(ev.status), ev.peak_kib);
            return; /* the reaper has the KILL already: what was left behind goes too */
        }
        if (ev.kind == WIRE_GONE || ev.kind == WIRE_KILLED || ev.kind == WIRE_FAILED)
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
            {s->status, POLLIN, 0}, {s->out[0].fd, POLLIN, 0}, {s->out[1].fd, POLLIN, 0}, {s->notify, POLLIN, 0}};
        long long left = s->until ? s->until - now_ms() : -1;
        if (s->until && left <= 0)
            return stop(s, 't');
        if (poll(p, 4, s->until ? (int)(left < 1000000000 ? left : 1000000000) : -1) < 0)
            continue;
        if (p[3].revents && kill_wanted(s, &kind))
            return stop(s, kind);
        if (p[0].revents) {
            struct wire_event ev;
            if (!status_hear(s->status, &ev))
                continue;
            if (ev.kind == WIRE_GONE) { /* the reaper was killed from inside of the sandbox */
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
static int open_streams(const struct place *p, struct command *c, struct supervisor *s)
{
    static const char *const names[] = {"out", "err"};
    struct ends ends = {-1, -1, -1};
    char path[64];
    int in = open_input(p, c->input);
    int e = in < 0 ? errno : parcel_streams(&c->parcel, in, &ends);
    s->status = ends.status;
    s->out[0].fd = ends.out;
    s->out[1].fd = ends.err;
    for (int i = 0; e == 0 && i < 2; i++) {
        s->files[i] = openat(s->run, names[i], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        e = s->files[i] < 0 ? errno : 0;
    }
    int cwd = e ? -1 : confine_open(&p->ws, c->cwd, O_PATH | O_DIRECTORY);
    if (e || cwd < 0)
        return e ? e : -cwd + ERRAND_FOLDER;
    parcel_fd(&c->parcel, cwd, WIRE_FLAG_CWD);
    s->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->run);
    return s->notify < 0 || inotify_add_watch(s->notify, path, IN_CREATE | IN_MOVED_TO) < 0 ? errno : 0;
}

/* In the reaper: what is the supervisor's. */
static void close_own(const struct supervisor *s)
{
    int fds[] = {s->status, s->notify, s->news, s->out[0].fd, s->out[1].fd, s->files[0], s->files[1]};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
}

/* Never returns. */
static _Noreturn void supervisor_main(const struct place *p, struct command *c, int run, int lock, int news)
{
    struct supervisor s = {.run = run,
                           .lock = lock,
                           .news = news,
                           .status = -1,
                           .notify = -1,
                           .out = {{.fd = -1}, {.fd = -1}},
                           .files = {-1, -1},
                           .bound = c->bound && c->bound < ERRAND_KEEP_MAX ? c->bound : ERRAND_KEEP_MAX,
                           .until = c->limit_ms ? now_ms() + (long long)c->limit_ms : 0};
    int life[2] = {-1, -1}, sigfd = leave_service();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    int e = sigfd < 0 || pipe2(life, O_CLOEXEC) < 0 ? errno : open_streams(p, c, &s);
    s.reaper = e ? -1 : fork();
    if (s.reaper == 0) {
        struct request req = request_of(&c->parcel);
        signal(SIGPIPE, SIG_DFL);
        close(life[1]);
        close_own(&s);
        reaper_main(&req, life[0], sigfd);
    }
    if (s.reaper < 0) {
        write_result(&s, 'f', e ? e : errno, 0);
        _exit(0);
    }
    parcel_done(&c->parcel);
    supervise(&s);
    for (int i = 0; i < 2; i++) { /* the reaper drains its own */
        if (s.out[i].fd >= 0)
            close(s.out[i].fd);
        close(s.files[i]);
    }
    while (waitpid(s.reaper, NULL, 0) < 0 && errno == EINTR) {
    }
    _exit(0);
}

/* ---- the start ---- */

static bool empty_file(int run, const char *name)
{
    int fd = openat(run, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == ENOENT;
}

/* Its files are taken over, since making them costs more than all else of a short command (5 files of 0.9 ms each, on ext4). */
static bool empty_run(int run)
{
    return (unlinkat(run, "kill", 0) == 0 || errno == ENOENT) && empty_file(run, "out") && empty_file(run, "err") &&
           (renameat(run, "result", run, "result.new") == 0 || errno == ENOENT);
}

/* A folder with its lock, held; -1: errno tells. used: it is that of a command before, of which nothing may be left. */
static int lock_run(int dir, const char *name, bool used, int *ret_run)
{
    int run = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int lock = run < 0 ? -1 : openat(run, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    *ret_run = run;
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && (!used || empty_run(run)))
        return lock;
    int e = errno;
    if (lock >= 0)
        close(lock);
    if (run >= 0)
        close(run);
    remove_run(dir, name);
    errno = e;
    return -1;
}

/* The folder with its lock appears in one step under its name, or somebody's is there already. The lock, or -1: it is there. */
static int claim(const struct place *p, const char *id, int *ret_run, int *ret_errnum)
{
    char temp[80], name[80];
    snprintf(name, sizeof(name), "run-%s", id);
    snprintf(temp, sizeof(temp), "new-%s-%d", id, (int)getpid());
    bool used = p->spare && renameat(p->dir, p->spare, p->dir, temp) == 0;
    int lock = used ? lock_run(p->dir, temp, true, ret_run) : -1;
    if (lock < 0 && mkdirat(p->dir, temp, 0700) == 0)
        lock = lock_run(p->dir, temp, false, ret_run);
    *ret_errnum = lock < 0 ? errno : 0;
    if (lock < 0 || renameat(p->dir, temp, p->dir, name) == 0)
        return lock;
    *ret_errnum = errno == EEXIST || errno == ENOTEMPTY ? 0 : errno;
    remove_run(p->dir, temp);
    close(lock);
    close(*ret_run);
    return -1;
}

/* lock and run are the supervisor's from here on. */
static void start(const struct place *p, struct command *c, int run, int lock, struct wait_for *w)
{
    int news[2] = {-1, -1};
    (void)!pipe2(news, O_CLOEXEC | O_NONBLOCK); /* without it the folder is watched */
    pid_t pid = fork();
    if (pid == 0)
        supervisor_main(p, c, run, lock, news[1]);
    if (pid < 0) {
        struct supervisor none = {.run = run, .lock = lock, .news = -1};
        write_result(&none, 'f', errno, 0);
    }
    close(run);
    close(lock);
    if (news[1] >= 0)
        close(news[1]);
    w->news = news[0];
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
    c.cwd = field_text(f);
    if (*c.input && !name_ok(c.input, "in-", ERRAND_NAME_LEN))
        return answer_error(EPROTO, "");
    e = read_strings(f, &c);
    if (e)
        return answer_error(e, "");
    int lock = claim(p, w.id, &run, &e);
    if (e)
        return answer_error(e, "");
    if (lock >= 0)
        start(p, &c, run, lock, &w);
    return wait_errand(p, &w);
}
