#include "store/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"

enum { ARGS_MAX = 48, POLL_MS = 5 /* where the kernel has no pidfd */ };

static const char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                          "LC_ALL=C", "TZ=UTC", "HOME=/nonexistent", NULL};
/* What the server may have blocked or ignored comes back to its default. */
static const int defaults[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};

static const char *setpriv(void)
{
    static const char *const paths[] = {"/usr/bin/setpriv", "/bin/setpriv", "/usr/local/bin/setpriv"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    }
    return NULL;
}

static mg_rc build_argv(const struct mg_child_spec *c, char user[2][80], const char *argv[ARGS_MAX], struct mg_err *err)
{
    int n = 0;
    if (c->user) {
        const char *tool = setpriv();
        if (!tool)
            return mg_err_set(err, MG_ECONFIG,
                              "setpriv is missing, which drops root for PostgreSQL: install util-linux, or start "
                              "mangod as an ordinary user");
        snprintf(user[0], sizeof(user[0]), "--reuid=%s", c->user);
        snprintf(user[1], sizeof(user[1]), "--regid=%s", c->user);
        const char *const head[] = {tool, user[0], user[1], "--init-groups", "--"};
        for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
            argv[n++] = head[i];
    }
    for (int i = 0; c->argv[i]; i++) {
        if (n == ARGS_MAX - 1)
            return mg_err_set(err, MG_EINTERNAL, "more than %d arguments", ARGS_MAX);
        argv[n++] = c->argv[i];
    }
    argv[n] = NULL;
    return MG_OK;
}

static int spawn_with(const struct mg_child_spec *c, const char *const *argv, pid_t *ret_pid)
{
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, def;
    sigemptyset(&none);
    sigemptyset(&def);
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        sigaddset(&def, defaults[i]);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, c->out_fd, 1);
    posix_spawn_file_actions_adddup2(&fa, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawn_file_actions_addchdir_np(&fa, "/");
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(
        &attr, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (c->session ? POSIX_SPAWN_SETSID : 0)));
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &def);
    int e = posix_spawn(ret_pid, argv[0], &fa, &attr, (char *const *)argv, (char *const *)environment);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&attr);
    return e;
}

mg_rc mg_child_spawn(const struct mg_child_spec *c, pid_t *ret_pid, struct mg_err *err)
{
    const char *argv[ARGS_MAX];
    char user[2][80];
    mg_rc rc = build_argv(c, user, argv, err);
    if (rc < 0)
        return rc;
    int e = spawn_with(c, argv, ret_pid);
    return e ? mg_err_set(err, MG_EIO, "%s cannot be started: %s", argv[0], strerror(e)) : MG_OK;
}

bool mg_process_ends(pid_t pid, int timeout_ms)
{
    mg_autofd int fd = pidfd_open(pid, 0);
    if (fd < 0 && errno == ESRCH)
        return true;
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t end = mg_now_ns() + (uint64_t)timeout_ms * 1000000;
        for (;;) {
            int k = poll(&p, 1, timeout_ms);
            if (k >= 0 || errno != EINTR)
                return k > 0;
            uint64_t now = mg_now_ns();
            timeout_ms = now < end ? (int)((end - now) / 1000000) : 0;
        }
    }
    for (int waited = 0; kill(pid, 0) == 0 || errno == EPERM; waited += POLL_MS) {
        if (waited >= timeout_ms)
            return false;
        (void)!poll(NULL, 0, POLL_MS);
    }
    return true;
}

mg_rc mg_child_wait(pid_t pid, int timeout_ms, int *ret_status, struct mg_err *err)
{
    bool over = !mg_process_ends(pid, timeout_ms);
    int status = 0;
    if (over)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return mg_err_errno(err, errno, "wait for a program");
    }
    if (over)
        return mg_err_set(err, MG_ETIMEOUT, "a program did not end within %d s", timeout_ms / 1000);
    *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return MG_OK;
}

mg_rc mg_child_run(const char *const *argv, const char *user, int timeout_ms, struct mg_buf *out, int *ret_status,
                   struct mg_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return mg_err_errno(err, errno, "a pipe");
    mg_autofd int from = ends[0], to = ends[1];
    pid_t pid = 0;
    mg_rc rc = mg_child_spawn(&(struct mg_child_spec){.argv = argv, .user = user, .out_fd = to}, &pid, err);
    if (rc < 0)
        return rc;
    close(mg_steal_fd(&to));
    uint64_t deadline = mg_now_ns() + (uint64_t)timeout_ms * 1000000;
    mg_rc kept = MG_OK;
    for (;;) {
        uint64_t now = mg_now_ns();
        struct pollfd p = {.fd = from, .events = POLLIN};
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000000 + 1)) < 0)
            break;
        char chunk[4096];
        ssize_t n = p.revents ? read(from, chunk, sizeof(chunk)) : -1;
        if (n <= 0)
            break;
        if (kept == 0)
            kept = mg_buf_append(out, chunk, (size_t)n);
    }
    uint64_t now = mg_now_ns();
    rc = mg_child_wait(pid, now < deadline ? (int)((deadline - now) / 1000000) : 0, ret_status, err);
    return rc < 0 ? rc : kept < 0 ? mg_err_set(err, kept, "%s says more than %zu bytes", argv[0], out->max) : MG_OK;
}
