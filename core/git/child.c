#include "git/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    ARGS_MAX = 96,
    SECRET_FD = 3,
    CHUNK = 16 * 1024,
    POLL_MAX_MS = 60000, /* of one wait; the deadline is looked at after each */
};

static const char SETPRIV[] = "/usr/bin/setpriv";

/* No home, no system's or user's settings, no questions, no other transport than https. */
static const char *const ENVIRONMENT[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL=C",
    "TZ=UTC",
    "HOME=/nonexistent",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_ALLOW_PROTOCOL=https",
    "GIT_LFS_SKIP_SMUDGE=1",
    NULL,
};
/* What the server may have blocked or ignored comes back to its default. */
static const int DEFAULTS[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGXFSZ};

struct running {
    pid_t pid;
    int out, err; /* read ends; -1 at their end */
};

/* ---- starting ---- */

/* $1 our process id, $2 the blocks of 512 bytes that a file may have; then the command. A child outlives no server: its parent is the thread that waits for it,
 * and setpriv lets the shell hear of that thread's end. The shell leads the group, and takes what git has started (git-remote-https) along, which nothing
 * else would tell. Who began behind the server's end has another parent. */
static const char TETHER[] = "trap 'kill -KILL 0' TERM\n[ \"$PPID\" = \"$1\" ] || exit\n"
                             "ulimit -f \"$2\" 2>/dev/null\nshift 2\n\"$@\" &\nwait $!\n";
enum { NUMBER_MAX = 24, BLOCK = 512 };

struct arguments {
    const char *list[ARGS_MAX];
    char parent[NUMBER_MAX], blocks[NUMBER_MAX];
};

static mg_rc arguments(const struct mg_git_child *c, struct arguments *x, struct mg_err *err)
{
    const char *const first[] = {SETPRIV, "--pdeathsig", "TERM",    "--",      "/bin/sh", "-c",
                                 TETHER,  "mango-git",   x->parent, x->blocks, NULL};
    int n = 0;
    (void)snprintf(x->parent, sizeof(x->parent), "%ld", (long)getpid());
    (void)snprintf(x->blocks, sizeof(x->blocks), "%llu", (unsigned long long)c->file_max / BLOCK);
    for (int i = access(SETPRIV, X_OK) == 0 ? 0 : 4; first[i]; i++)
        x->list[n++] = first[i];
    for (int i = 0; c->argv[i]; i++) {
        if (n == ARGS_MAX - 1)
            return mg_err_set(err, MG_EINTERNAL, "more than %d arguments", ARGS_MAX);
        x->list[n++] = c->argv[i];
    }
    x->list[n] = NULL;
    return MG_OK;
}

static int spawn_with(const char *const *args, const char *cwd, const int fds[4], pid_t *ret_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, def;
    sigemptyset(&none);
    sigemptyset(&def);
    for (size_t i = 0; i < sizeof(DEFAULTS) / sizeof(DEFAULTS[0]); i++)
        sigaddset(&def, DEFAULTS[i]);
    posix_spawn_file_actions_init(&fa);
    for (int i = 0; i < 4; i++)
        if (fds[i] >= 0)
            posix_spawn_file_actions_adddup2(&fa, fds[i], i);
    posix_spawn_file_actions_addclosefrom_np(&fa, fds[SECRET_FD] >= 0 ? SECRET_FD + 1 : SECRET_FD);
    posix_spawn_file_actions_addchdir_np(&fa, cwd);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &def);
    int e = posix_spawnp(ret_pid, args[0], &fa, &attr, (char *const *)args, (char *const *)ENVIRONMENT);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return e;
}

/* Descriptors that stay clear of 0 to 3, which the child gets. */
static mg_rc high_pipe(int fds[2], struct mg_err *err)
{
    int low[2];
    fds[0] = fds[1] = -1;
    if (pipe2(low, O_CLOEXEC) < 0)
        return mg_err_errno(err, errno, "a pipe");
    for (int i = 0; i < 2; i++)
        fds[i] = fcntl(low[i], F_DUPFD_CLOEXEC, SECRET_FD + 1);
    close(low[0]);
    close(low[1]);
    if (fds[0] >= 0 && fds[1] >= 0)
        return MG_OK;
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return mg_err_set(err, MG_EIO, "a pipe: too many open files");
}

/* A pipe that holds the secret as a whole, which is far smaller than a pipe's room. */
static mg_rc secret_pipe(struct mg_sv secret, int *ret_fd, struct mg_err *err)
{
    int fds[2];
    if (secret.len == 0)
        return MG_OK;
    mg_rc rc = high_pipe(fds, err);
    if (rc < 0)
        return rc;
    (void)fcntl(fds[1], F_SETFL, O_NONBLOCK);
    bool whole = write(fds[1], secret.ptr, secret.len) == (ssize_t)secret.len;
    close(fds[1]);
    *ret_fd = fds[0];
    return whole ? MG_OK : mg_err_set(err, MG_EIO, "a pipe has no room for the token");
}

static mg_rc start(const struct mg_git_child *c, struct running *ret, struct mg_err *err)
{
    struct arguments args;
    int out[2] = {-1, -1}, errs[2] = {-1, -1};
    mg_autofd int secret = -1, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    mg_rc rc = arguments(c, &args, err);
    if (rc >= 0)
        rc = secret_pipe(c->secret, &secret, err);
    if (rc >= 0)
        rc = high_pipe(out, err);
    if (rc >= 0)
        rc = high_pipe(errs, err);
    mg_autofd int from_out = out[0], to_out = out[1], from_err = errs[0], to_err = errs[1];
    if (rc < 0)
        return rc;
    int e = spawn_with(args.list, c->cwd, (const int[]){null, to_out, to_err, secret}, &ret->pid);
    if (e)
        return mg_err_set(err, MG_EIO, "%s cannot be started: %s", c->argv[0], strerror(e));
    ret->out = mg_steal_fd(&from_out);
    ret->err = mg_steal_fd(&from_err);
    return MG_OK;
}

/* ---- running ---- */

/* The end of what was said is what tells. */
static void keep_end(struct mg_buf *b, const char *p, size_t n)
{
    if (!b)
        return;
    if (n > b->max) {
        p += n - b->max;
        n = b->max;
    }
    if (b->len + n > b->max)
        mg_buf_consume(b, b->len + n - b->max);
    (void)mg_buf_append(b, p, n);
}

static void take(const struct mg_git_child *c, int *fd, bool is_err)
{
    char chunk[CHUNK];
    ssize_t n = read(*fd, chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        close(mg_steal_fd(fd));
        return;
    }
    if (is_err)
        keep_end(c->err, chunk, (size_t)n);
    else if (c->out)
        (void)mg_buf_append(c->out, chunk, (size_t)n);
}

static int wait_ms(uint64_t deadline_ns)
{
    uint64_t now = mg_now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now) / 1000000 + 1;
    return ms < POLL_MAX_MS ? (int)ms : POLL_MAX_MS;
}

static mg_rc follow(const struct mg_git_child *c, struct running *r, struct mg_err *err)
{
    while (r->out >= 0 || r->err >= 0) {
        struct pollfd p[] = {{.fd = r->out, .events = POLLIN},
                             {.fd = r->err, .events = POLLIN},
                             {.fd = c->cancel ? mg_cancel_fd(c->cancel) : -1, .events = POLLIN}};
        (void)poll(p, sizeof(p) / sizeof(p[0]), wait_ms(c->deadline_ns));
        if (mg_cancel_fired(c->cancel))
            return mg_err_set(err, MG_ECANCELED, "it was cancelled");
        if (mg_now_ns() >= c->deadline_ns)
            return mg_err_set(err, MG_ETIMEOUT, "it took too long");
        if (p[0].revents)
            take(c, &r->out, false);
        if (p[1].revents)
            take(c, &r->err, true);
    }
    return MG_OK;
}

mg_rc mg_git_child_run(const struct mg_git_child *c, int *ret_status, struct mg_err *err)
{
    struct running r = {.out = -1, .err = -1};
    int status = 0;
    mg_rc rc = start(c, &r, err);
    if (rc < 0)
        return rc;
    rc = follow(c, &r, err);
    if (rc < 0)
        (void)kill(-r.pid, SIGKILL);
    while (waitpid(r.pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r.out >= 0)
        close(r.out);
    if (r.err >= 0)
        close(r.err);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return rc;
}
