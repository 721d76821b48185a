#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/child.h"
#include "common/chunk.h"
#include "helpers/helpers.h"

/* Commands that are processes of this machine. What a command starts is found by a variable of its environment that
 * nothing else has: no group and no session holds what wants to leave it. */

enum {
    PIECE = 64 * 1024,
    ENVIRON_MAX = 256 * 1024, /* bytes of a process's environment that are looked through */
    KILL_ROUNDS = 5000,       /* looks through /proc, a millisecond apart */
    ROUND_US = 1000,
    RUN_MAX = 64,   /* bytes of a command's own variable */
    DRAIN_MAX = 16, /* pieces that a pipe can hold when the command has ended: 1 MiB, the kernel's limit */
};

static atomic_uint serial; /* of commands */

/* ---- what has the mark ---- */

static bool has(const char *pid, char *env, const char *mark)
{
    char path[300];
    size_t n = 0, len = strlen(mark) + 1;
    snprintf(path, sizeof(path), "/proc/%s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && n < ENVIRON_MAX && (got = read(fd, env + n, ENVIRON_MAX - n)) > 0;)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    for (const char *at = env; (at = memmem(at, n - (size_t)(at - env), mark, len)); at++) {
        if (at == env || at[-1] == '\0')
            return true;
    }
    return false;
}

/* True when there was one: what it had just started may not have been seen. */
static bool kill_round(char *env, const char *mark)
{
    DIR *d = opendir("/proc");
    bool found = false;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !has(e->d_name, env, mark))
            continue;
        found = kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL) == 0 || found;
    }
    if (d)
        closedir(d);
    return found;
}

void mango_program_kill(const char *mark)
{
    char *env = malloc(ENVIRON_MAX);
    for (int i = 0; env && i < KILL_ROUNDS && kill_round(env, mark); i++)
        (void)usleep(ROUND_US);
    free(env);
}

/* ---- starting ---- */

struct run {
    char **argv, **env;
    char mark[RUN_MAX];
    int cwd, in, out[2], err[2];
    pid_t pid;
    int pidfd, status;
};

/* Copies, NULL at the end: first what has NULs already, then views. NULL: out of memory. */
static char **strings(const char *const *z, const char *more, const struct mango_sv *list, uint64_t n)
{
    uint64_t n_z = 0, at = 0;
    while (z && z[n_z])
        n_z++;
    char **ret = calloc(n_z + n + 2, sizeof(*ret));
    for (; ret && at < n_z; at++)
        ret[at] = z ? strdup(z[at]) : NULL;
    if (ret && more)
        ret[at++] = strdup(more);
    for (uint64_t i = 0; ret && i < n; i++)
        ret[at++] = strndup(list[i].ptr, list[i].len);
    return ret;
}

static void strings_free(char **z)
{
    for (char **s = z; s && *s; s++)
        free(*s);
    free(z);
}

static int start(struct run *r)
{
    const struct child c = {.argv = r->argv,
                            .env = r->env,
                            .fds = {r->in, r->out[1], r->err[1]},
                            .n_fds = 3,
                            .cwd = &r->cwd,
                            .in_path = true,
                            .session = true};
    return child_start(&c, &r->pid);
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static mango_status set_up(struct run *r, const struct mango_host *h, const struct mango_call *call,
                           const struct mango_folder *f, const char *const *env, const struct mango_exec_req *req)
{
    const struct helper_content input = {req->stdin_data, req->stdin_source, req->stdin_ctx, -1};
    snprintf(r->mark, sizeof(r->mark), "MANGO_RUN=%d-%u", (int)getpid(), atomic_fetch_add(&serial, 1));
    r->argv = strings(NULL, NULL, req->argv, req->n_argv);
    r->env = strings(env, r->mark, req->env, req->n_env);
    if (!r->argv || !r->env || !r->argv[0])
        return fail(h, call, r->argv ? MANGO_EINVALID : MANGO_ERETRY, "no command");
    r->cwd = helper_open(f, req->cwd, O_PATH | O_DIRECTORY);
    if (r->cwd < 0)
        return fail_path(h, call, -r->cwd, req->cwd);
    r->in = memfd_create("stdin", MFD_CLOEXEC);
    if (r->in < 0 || pipe2(r->out, O_CLOEXEC) < 0 || pipe2(r->err, O_CLOEXEC) < 0)
        return fail(h, call, MANGO_ERETRY, "%s", strerror(errno));
    mango_status s = helper_put_all(h, call, r->in, &input, (struct mango_sv){"stdin", 5});
    if (s == MANGO_OK && lseek(r->in, 0, SEEK_SET) < 0)
        s = fail(h, call, MANGO_EINTERNAL, "%s", strerror(errno));
    return s;
}

static void tear_down(struct run *r)
{
    int *fds[] = {&r->cwd, &r->in, &r->out[0], &r->out[1], &r->err[0], &r->err[1], &r->pidfd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close_one(fds[i]);
    strings_free(r->argv);
    strings_free(r->env);
}

/* ---- following ---- */

/* False: nothing more for now. */
static bool feed(int *fd, struct chunk *c, char *piece)
{
    ssize_t n = *fd < 0 ? -1 : read(*fd, piece, PIECE);
    if (n == 0)
        close_one(fd); /* poll must not see its end again */
    if (n > 0)
        chunk_feed(c, piece, (uint64_t)n);
    return n > 0;
}

enum end { ENDED, TIME, CANCEL };

static enum end follow(struct run *r, const struct mango_host *h, const struct mango_call *call, uint64_t until,
                       struct chunk c[2], char *piece)
{
    for (;;) {
        struct pollfd p[] = {
            {r->out[0], POLLIN, 0}, {r->err[0], POLLIN, 0}, {r->pidfd, POLLIN, 0}, {h->cancel_fd(h, call), POLLIN, 0}};
        uint64_t now = h->now_ns(h);
        if (until && now >= until)
            return TIME;
        uint64_t ms = until ? (until - now) / 1000000 + 1 : 0;
        (void)poll(p, 4, !until ? -1 : ms > INT32_MAX ? INT32_MAX : (int)ms);
        if (p[0].revents)
            (void)feed(&r->out[0], &c[0], piece);
        if (p[1].revents)
            (void)feed(&r->err[0], &c[1], piece);
        if (p[3].revents)
            return CANCEL;
        if (p[2].revents)
            return ENDED;
    }
}

static void finish(struct run *r, enum end how, struct chunk c[2], char *piece)
{
    if (how != ENDED)
        mango_program_kill(r->mark);
    r->status = child_reap(r->pid);
    /* What lives on may hold the pipe and write on: neither its end nor its silence is waited for. */
    for (int i = 0; i < DRAIN_MAX && feed(&r->out[0], &c[0], piece); i++) {
    }
    for (int i = 0; i < DRAIN_MAX && feed(&r->err[0], &c[1], piece); i++) {
    }
    chunk_end(&c[0]);
    chunk_end(&c[1]);
}

static mango_status run_it(struct run *r, const struct mango_host *h, const struct mango_call *call,
                           const struct mango_exec_req *req, struct mango_exec_result *ret, char *piece)
{
    struct chunk c[] = {chunk_to(req->sink, req->sink_ctx, 1, req->max_output),
                        chunk_to(req->sink, req->sink_ctx, 2, req->max_output)};
    if (h->cancelled(h, call))
        return fail(h, call, MANGO_ECANCELED, "cancelled before the start");
    int e = start(r);
    if (e == E2BIG)
        return fail(h, call, MANGO_ETOOBIG, "an argument is longer than the kernel takes (131,072 bytes)");
    if (e) { /* as a shell says it */
        ret->exited = 1;
        ret->exit_code = e == ENOENT ? 127 : 126;
        return MANGO_OK;
    }
    close_one(&r->out[1]);
    close_one(&r->err[1]);
    (void)fcntl(r->out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(r->err[0], F_SETFL, O_NONBLOCK);
    r->pidfd = pidfd_open(r->pid, 0);
    enum end how = follow(r, h, call, req->limit_ns ? req->limit_ns : call->deadline_ns, c, piece);
    finish(r, how, c, piece);
    ret->stdout_bytes = c[0].seen;
    ret->stderr_bytes = c[1].seen;
    ret->timed_out = how == TIME;
    ret->cancelled = how == CANCEL;
    ret->exited = how == ENDED && WIFEXITED(r->status);
    ret->exit_code = ret->exited ? WEXITSTATUS(r->status) : 0;
    ret->signal = how == ENDED && !ret->exited ? WTERMSIG(r->status) : 0;
    return how == CANCEL ? fail(h, call, MANGO_ECANCELED, "cancelled") : MANGO_OK;
}

mango_status mango_program_exec(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f,
                                const char *const *env, const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct run r = {.cwd = -1, .in = -1, .out = {-1, -1}, .err = {-1, -1}, .pidfd = -1};
    mango_status s = helper_check(h, call, f);
    if (s < 0)
        return s;
    char *piece = malloc(PIECE);
    if (!piece)
        return fail(h, call, MANGO_ERETRY, "out of memory");
    s = set_up(&r, h, call, f, env, req);
    if (s == MANGO_OK)
        s = run_it(&r, h, call, req, ret, piece);
    tear_down(&r);
    free(piece);
    return s;
}
