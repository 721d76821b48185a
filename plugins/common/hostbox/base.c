#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/brought.h"
#include "common/hostbox/hostbox.h"

/* The settings that such backends share (MANGO_LOCAL_BASE_DIR, MANGO_LOCAL_RUNNER, MANGO_SRT_BASE_DIR,
 * MANGO_SRT_RUNNER): base_dir (default STATE_DIR/NAME), runner (default: beside the plugin, then the installed one).
 * */

char *setting(const struct mango_host *h, const char *name)
{
    struct mango_buf *b = h->buf_new(h, PATH_MAX);
    char *z = NULL;
    if (b && h->config_get(h, name, b) == MANGO_OK)
        z = sv_dup(h->buf_view(h, b));
    h->buf_free(h, b);
    return z;
}

/* ---- the runner's file ---- */

static bool executable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static mango_status find_runner(struct boxes *all, const struct mango_call *call)
{
    all->runner = setting(all->host, "runner");
    if (!all->runner)
        all->runner = brought_path(all->kind->runner, X_OK);
    if (!all->runner)
        return fail(all->host, call, MANGO_ERETRY, "out of memory");
    struct stat st;
    if (!executable(all->runner))
        return fail(all->host, call, MANGO_EINVALID, "%s cannot be run; install it or set MANGO_%s_RUNNER to its path",
                    all->runner, all->kind->env_name);
    if (stat(all->runner, &st) == 0 && ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & S_IWOTH)))
        return fail(all->host, call, MANGO_EDENIED,
                    "%s can be changed by other users; run chown root and chmod go-w on it", all->runner);
    return MANGO_OK;
}

/* ---- the base folder ---- */

/* Makes the folder and those above it; the last one private. 0 or errno. */
static int make_private(const char *path)
{
    char *copy = strdup(path);
    int e = copy ? 0 : ENOMEM;
    for (char *c = copy ? copy + 1 : NULL; e == 0 && (c = strchr(c, '/')); c++) {
        *c = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            e = errno;
        *c = '/';
    }
    free(copy);
    if (e == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
        e = errno;
    return e;
}

/* Who can change a folder above ours can put another in its place. */
static bool parents_safe(const char *path)
{
    char up[PATH_MAX];
    struct stat st;
    snprintf(up, sizeof(up), "%s", path);
    for (char *slash; (slash = strrchr(up, '/'));) {
        *slash = '\0';
        if (stat(slash == up ? "/" : up, &st) < 0 || (st.st_uid != 0 && st.st_uid != geteuid()) ||
            ((st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX)))
            return false;
    }
    return true;
}

static mango_status open_base(struct boxes *all, const struct mango_call *call)
{
    char *dir = setting(all->host, "base_dir"), *state = dir ? NULL : setting(all->host, "state_dir");
    if (state && asprintf(&dir, "%s/%s", state, all->kind->name) < 0)
        dir = NULL;
    free(state);
    if (!dir || dir[0] != '/') {
        free(dir);
        return fail(all->host, call, MANGO_EINVALID,
                    "no folder for workspaces; set MANGO_%s_BASE_DIR to an absolute path", all->kind->env_name);
    }
    int e = make_private(dir);
    struct stat st;
    if (e == 0 && lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
        e = ELOOP;
    all->base = e == 0 ? realpath(dir, NULL) : NULL;
    all->base_fd = all->base ? open(all->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    mango_status s = MANGO_OK;
    if (all->base_fd < 0)
        s = fail(all->host, call, MANGO_EINVALID,
                 "cannot use %.300s for workspaces: %s; set MANGO_%s_BASE_DIR to another folder", dir,
                 e == ELOOP ? "it is a symbolic link" : strerror(e ? e : errno), all->kind->env_name);
    else if (fstat(all->base_fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077))
        s = fail(all->host, call, MANGO_EDENIED,
                 "%.300s must belong to user %u with mode 0700 (found user %u, mode %04o); run chown and chmod "
                 "on it",
                 dir, geteuid(), st.st_uid, st.st_mode & 07777U);
    else if (!parents_safe(all->base))
        s = fail(all->host, call, MANGO_EDENIED,
                 "a folder above %.300s can be changed by other users; choose another place", dir);
    free(dir);
    return s;
}

/* ---- all together ---- */

void boxes_done(struct boxes *all)
{
    boxes_drop_all(all);
    if (all->base_fd >= 0)
        close(all->base_fd);
    free(all->base);
    free(all->runner);
    live_table_destroy(&all->live);
}

mango_status boxes_open(struct boxes *all, const struct mango_call *call)
{
    all->base_fd = -1;
    live_table_init(&all->live);
    mango_status s = open_base(all, call);
    if (s == MANGO_OK && !confine_works(all->base_fd))
        s = fail(
            all->host, call, MANGO_EUNSUPPORTED,
            "there is no openat2; the %s backend needs Linux 5.9 or newer (and RestrictSUIDSGID=no in a systemd unit)",
            all->kind->name);
    if (s == MANGO_OK)
        s = find_runner(all, call);
    if (s == MANGO_OK)
        sweep(all);
    return s;
}

mango_status hostbox_health(void *ctx, const struct mango_call *call)
{
    struct boxes *all = ctx;
    struct stat st;
    if (fstat(all->base_fd, &st) < 0 || st.st_nlink == 0 || faccessat(all->base_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return fail(all->host, call, MANGO_EINTERNAL, "workspace folder %s cannot be written any more", all->base);
    if (!executable(all->runner))
        return fail(all->host, call, MANGO_EINTERNAL, "%s is missing; install it again", all->runner);
    return MANGO_OK;
}
