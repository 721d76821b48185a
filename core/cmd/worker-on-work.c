#include "cmd/worker-on-work.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

enum {
    ENV_MAX = 4096, /* entries of the environment that a script inherits */
    OWN_MAX = 8,    /* of ours */
    GRACE_S = 150,  /* a script that was told to end has so long; the worker inside of it has 120 s */
};

struct script {
    const char *path;
    atomic_int pid; /* of the one that runs; 0: none */
};

static struct script on_work; /* the thread of the signals reads its pid */

static void tell_to_end(void *ctx)
{
    struct script *s = ctx;
    int pid = atomic_load(&s->pid);
    if (pid > 0)
        (void)kill(pid, SIGTERM);
}

/* The item on a descriptor that is a file: a script that reads none of it blocks nobody. */
static int item_fd(const struct mango_work *work)
{
    const char *json = mango_work_json(work);
    size_t n = strlen(json);
    int fd = memfd_create("work", MFD_CLOEXEC);
    if (fd < 0 || write(fd, json, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static bool is_ours(const char *entry)
{
    static const char *const NAMES[] = {"ANTHROPIC_WORK_ID=",
                                        "ANTHROPIC_ENVIRONMENT_ID=",
                                        "ANTHROPIC_SESSION_ID=",
                                        "ANTHROPIC_WORK_SECRET=",
                                        "ANTHROPIC_ENVIRONMENT_KEY=",
                                        "ANTHROPIC_BASE_URL=",
                                        "ANTHROPIC_WORK_LAST_HEARTBEAT="};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strncmp(entry, NAMES[i], strlen(NAMES[i])) == 0)
            return true;
    return false;
}

static void add(char **own, int *n, const char *name, const char *value)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(128 * 1024);
    if (!value || !*value || mg_buf_printf(&b, "%s=%s", name, value) < 0)
        return;
    own[(*n)++] = mg_buf_steal(&b, NULL);
}

static int spawn(const struct script *s, const struct mango_work *work, const struct mango_worker_options *o,
                 bool pass_key, pid_t *ret)
{
    char *own[OWN_MAX] = {0}, **env = mg_xcalloc(ENV_MAX + OWN_MAX + 1, sizeof(*env)),
         *argv[] = {(char *)s->path, NULL};
    int n = 0, n_own = 0;
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none;
    mg_autofd int in = item_fd(work);
    if (in < 0) {
        free(env);
        return EMFILE; /* or no memory; an item is small */
    }
    for (char **e = environ; *e && n < ENV_MAX; e++)
        if (!is_ours(*e))
            env[n++] = *e;
    add(own, &n_own, "ANTHROPIC_WORK_ID", mango_work_id(work));
    add(own, &n_own, "ANTHROPIC_ENVIRONMENT_ID", mango_work_environment_id(work));
    add(own, &n_own, "ANTHROPIC_SESSION_ID", mango_work_session_id(work));
    add(own, &n_own, "ANTHROPIC_WORK_SECRET", mango_work_secret(work));
    add(own, &n_own, "ANTHROPIC_BASE_URL", o->base_url);
    if (pass_key)
        add(own, &n_own, "ANTHROPIC_ENVIRONMENT_KEY", o->environment_key);
    memcpy(env + n, own, sizeof(*env) * (size_t)n_own);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in, 0);
    posix_spawn_file_actions_adddup2(&fa, 2, 1);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    sigaddset(&none, SIGPIPE);
    posix_spawnattr_setsigdefault(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(ret, s->path, &fa, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    for (int i = 0; i < n_own; i++) {
        mg_wipe(own[i], strlen(own[i]));
        free(own[i]);
    }
    free(env);
    return rc;
}

/* Waits for the script; after a shutdown not for ever. */
static void wait_for(struct script *s, pid_t pid, const struct mango_work *work,
                     const struct mg_worker_signals *signals)
{
    int status = 0;
    for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0;) {
        siginfo_t si = {0};
        struct timespec tick = {.tv_nsec = 50000000};
        sigset_t chld;
        if (!signals->caught) {
            sigemptyset(&chld);
            sigaddset(&chld, SIGCHLD);
            (void)sigtimedwait(&chld, &si, &tick);
            continue;
        }
        (void)nanosleep(&tick, NULL);
        ms += 50;
        if (ms == 50)
            tell_to_end(s); /* for one that was started in the very moment of the signal */
        if (ms >= GRACE_S * 1000)
            (void)kill(pid, SIGKILL);
    }
    atomic_store(&s->pid, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    mg_log(MG_WARN, "the on-work script failed; the item's lease will run out if nobody serves it",
           MG_F_STR("work", mango_work_id(work)), MG_F_INT("exit", WIFEXITED(status) ? WEXITSTATUS(status) : -1),
           MG_F_INT("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
}

int32_t mg_worker_on_work(struct mango_worker *w, const struct mango_worker_options *o, const char *script,
                          bool pass_key, struct mg_worker_signals *signals, char *err, size_t err_size)
{
    struct script *s = &on_work;
    struct mango_poller *p;
    int32_t rc = mango_poller_open(w, &p, err, err_size);
    if (rc != 0)
        return rc;
    s->path = script;
    signals->ctx = s;
    signals->stop = tell_to_end;
    while (rc == 0) {
        struct mango_work *work;
        pid_t pid = 0;
        rc = mango_poller_next(p, &work, err, err_size);
        if (rc != 0)
            break;
        if (strcmp(mango_work_type(work), "session") != 0) {
            mg_log(MG_WARN, "an item of another type is left", MG_F_STR("work", mango_work_id(work)),
                   MG_F_STR("type", mango_work_type(work)));
            mango_work_free(work);
            continue;
        }
        int failed = spawn(s, work, o, pass_key, &pid);
        if (failed) {
            (void)snprintf(err, err_size, "the on-work script %s cannot be run: %s", script, strerror(failed));
            rc = MG_EINVAL;
        } else {
            atomic_store(&s->pid, pid);
            wait_for(s, pid, work, signals);
        }
        mango_work_free(work);
    }
    signals->stop = NULL;
    mango_poller_close(p);
    return rc == MANGO_WORKER_STOPPED || rc == MANGO_WORKER_EMPTY ? 0 : rc;
}
