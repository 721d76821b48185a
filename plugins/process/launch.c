#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/child.h"
#include "process/process.h"

enum { WORDS_MAX = 256, START_MS = 15000, LINE_MAX = 256, TRIES = 3 };

/* ---- the folder ---- */

static int write_once(int dir_fd, const char *name, struct mango_sv text)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : errno;
    int e = write(fd, text.ptr, text.len) == (ssize_t)text.len ? 0 : ENOSPC;
    close(fd);
    return e;
}

/* Makes the session's folder or finds it. A descriptor or -errno. */
static int home_make(const struct process *p, const struct mango_launch_spec *spec, const char *name)
{
    if (mkdirat(p->base_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = home_open(p, name);
    if (fd < 0)
        return -errno;
    int e = write_once(fd, "owner", spec->owner);
    if (e == 0 && ((mkdirat(fd, "workspace", 0700) < 0 && errno != EEXIST) ||
                   (mkdirat(fd, "scratch", 0700) < 0 && errno != EEXIST)))
        e = errno;
    if (e)
        close(fd);
    return e ? -e : fd;
}

/* ---- the command line ---- */

struct words {
    char *v[WORDS_MAX + 1];
    int n;
};

static void words_free(struct words *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->v[i]);
}

static bool word(struct words *w, char *z)
{
    if (!z || w->n == WORDS_MAX) {
        free(z);
        return false;
    }
    w->v[w->n++] = z;
    return true;
}

static char *path_in(const struct process *p, const char *name, const char *part)
{
    size_t n = strlen(p->base) + strlen(name) + strlen(part) + 3;
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%s/%s%s%s", p->base, name, *part ? "/" : "", part);
    return z;
}

static bool make_argv(const struct process *p, const struct mango_launch_spec *spec, const char *name, struct words *w)
{
    bool ok = word(w, strdup(p->keeper)) && word(w, path_in(p, name, "")) && word(w, sv_dup(spec->work_id));
    /* argv[0] names the worker; where it is on this host is a setting. */
    ok = ok && word(w, strdup(p->worker));
    for (uint64_t i = 1; ok && i < spec->n_argv; i++)
        ok = word(w, sv_dup(spec->argv[i]));
    return ok;
}

static bool variable(struct words *w, const char *name, char *value)
{
    size_t n = strlen(name) + (value ? strlen(value) : 0) + 1;
    char *z = value ? malloc(n) : NULL;
    if (z)
        snprintf(z, n, "%s%s", name, value);
    free(value);
    return word(w, z);
}

static bool make_env(const struct process *p, const struct mango_launch_spec *spec, const char *name, struct words *w)
{
    bool ok = word(w, strdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")) &&
              word(w, strdup("LANG=C.UTF-8")) && variable(w, "HOME=", path_in(p, name, "workspace")) &&
              variable(w, "TMPDIR=", path_in(p, name, "scratch"));
    if (p->runner)
        ok = ok && variable(w, "MANGO_WORKER_RUNNER=", strdup(p->runner));
    for (uint64_t i = 0; ok && i < spec->n_env; i++)
        ok = word(w, sv_dup(spec->env[i]));
    return ok;
}

/* ---- starting ---- */

/* The keeper's one line. */
static bool hear(int fd, char line[LINE_MAX])
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n < LINE_MAX - 1 && poll(&p, 1, START_MS) > 0) {
        ssize_t r = read(fd, line + n, LINE_MAX - 1 - n);
        if (r <= 0)
            break;
        n += (size_t)r;
        if (memchr(line, '\n', n))
            break;
    }
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return n > 0;
}

/* "ok", "busy", or what went wrong. */
static mango_status start(const struct process *p, const struct mango_call *call, const struct mango_launch_spec *spec,
                          const char *name, char line[LINE_MAX])
{
    struct words argv = {.n = 0}, env = {.n = 0};
    int fds[2], e = 0;
    pid_t pid = 0;
    mango_status s = MANGO_OK;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return fail(p->host, call, MANGO_ERETRY, "no pipe: %s", strerror(errno));
    const struct child c = {.argv = argv.v, .env = env.v, .fds = {-1, fds[1], -1}, .n_fds = 3};
    if (!make_argv(p, spec, name, &argv) || !make_env(p, spec, name, &env))
        s = fail(p->host, call, MANGO_EINVALID, "the worker's command line or environment is too long");
    else if ((e = child_start(&c, &pid)) != 0)
        s = fail(p->host, call, MANGO_ERETRY, "cannot start %s: %s", p->keeper, strerror(e));
    close(fds[1]);
    if (s == MANGO_OK) {
        (void)child_reap(pid);
        if (!hear(fds[0], line))
            s = fail(p->host, call, MANGO_ERETRY, "the keeper of the box ended without a word");
    }
    close(fds[0]);
    words_free(&argv);
    words_free(&env);
    return s;
}

static mango_status give_id(const struct process *p, const char *name, struct mango_sv work_id, struct mango_buf *ret)
{
    mango_status s = p->host->buf_append(p->host, ret, name, strlen(name));
    if (s == MANGO_OK)
        s = p->host->buf_append(p->host, ret, "/", 1);
    return s == MANGO_OK ? p->host->buf_append(p->host, ret, work_id.ptr, work_id.len) : s;
}

static bool work_id_ok(struct mango_sv id)
{
    for (uint64_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'))
            return false;
    }
    return id.len > 0 && id.len <= WORK_ID_MAX;
}

static mango_status launch_in(const struct process *p, const struct mango_call *call,
                              const struct mango_launch_spec *spec, const char *name, int home)
{
    char line[LINE_MAX] = "", ended[WORK_ID_MAX + 1] = "";
    struct state old;
    for (int i = 0; i < TRIES; i++) {
        bool known = state_read(home, &old);
        if (known && sv_is(spec->work_id, old.work_id))
            return MANGO_OK; /* lives, or has ended: an item is launched once */
        bool replaces = home_busy(home) && known;
        if (replaces && *ended && strcmp(ended, old.work_id) != 0) /* while the last one left, an item overtook this */
            return fail(p->host, call, MANGO_ERETRY, "another item of the session has been given a box meanwhile");
        if (replaces && !keeper_end(p, home, &old, REPLACE_GRACE_MS))
            return fail(p->host, call, MANGO_ERETRY, "the box of the session's last item does not end");
        if (replaces)
            snprintf(ended, sizeof(ended), "%s", old.work_id);
        mango_status s = start(p, call, spec, name, line);
        if (s < 0 || strcmp(line, "ok") == 0)
            return s;
        if (strcmp(line, "busy") != 0)
            return fail(p->host, call, MANGO_ERETRY, "the box cannot be started: %s", line);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return fail(p->host, call, MANGO_ERETRY, "another box of the session is being started");
}

mango_status process_launch(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                            struct mango_buf *ret_id)
{
    const struct process *p = ctx;
    char name[NAME_LEN + 1];
    if (!sv_hex(spec->label, KEY_LEN) || !sv_hex(spec->owner, KEY_LEN) || !work_id_ok(spec->work_id))
        return fail(p->host, call, MANGO_EINVALID,
                    "label and owner must be %d lowercase hex digits, a work id at most %d letters, digits, - and _",
                    KEY_LEN, WORK_ID_MAX);
    if (spec->box && (spec->box->image.len || spec->box->n_mounts))
        return fail(p->host, call, MANGO_EUNSUPPORTED, "the process launcher has neither images nor mounts");
    snprintf(name, sizeof(name), "session-%.*s", KEY_LEN, spec->label.ptr);
    int home = home_make(p, spec, name);
    if (home < 0)
        return fail(p->host, call, -home == ENOSPC || -home == EDQUOT ? MANGO_EQUOTA : MANGO_EINTERNAL,
                    "cannot make the folder %s: %s", name, strerror(-home));
    mango_status s = launch_in(p, call, spec, name, home);
    close(home);
    return s == MANGO_OK ? give_id(p, name, spec->work_id, ret_id) : s;
}

mango_status process_persists(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                              struct mango_persists *ret)
{
    const struct process *p = ctx;
    char line[64 + NAME_LEN];
    (void)call;
    ret->what = MANGO_PERSIST_WORKSPACE;
    if (!ret->names)
        return MANGO_OK;
    int n = snprintf(line, sizeof(line), "folder session-%.*s/workspace\n", KEY_LEN, spec->label.ptr);
    return p->host->buf_append(p->host, ret->names, line, (uint64_t)n);
}
