#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/local.h"

/* Settings: base_dir (default STATE_DIR/local), runner (default: beside this file, then the installed one). */

#ifndef MANGO_LIBEXECDIR
#define MANGO_LIBEXECDIR "/usr/local/libexec/mango"
#endif
#define RUNNER_NAME "mango-local-runner"

/* A setting as malloc memory, or NULL. */
static char *setting(const struct mango_host *h, const char *name)
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

static char *beside_self(void)
{
    Dl_info info;
    static const char anchor = 0; /* any address inside of this file */
    if (dladdr(&anchor, &info) == 0 || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    size_t dir = slash ? (size_t)(slash - info.dli_fname) : 0, n = dir + sizeof("/" RUNNER_NAME);
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%.*s/" RUNNER_NAME, (int)dir, info.dli_fname);
    return z;
}

static mango_status find_runner(struct local *l, const struct mango_call *call)
{
    l->runner = setting(l->host, "runner");
    if (!l->runner) {
        l->runner = beside_self();
        if (!l->runner || !executable(l->runner)) {
            free(l->runner);
            l->runner = strdup(MANGO_LIBEXECDIR "/" RUNNER_NAME);
        }
    }
    if (!l->runner)
        return fail(l, call, MANGO_ERETRY, "out of memory");
    struct stat st;
    if (!executable(l->runner))
        return fail(l, call, MANGO_EINVALID, "%s cannot be run; install it or set MANGO_LOCAL_RUNNER to its path",
                    l->runner);
    if (stat(l->runner, &st) == 0 && ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & S_IWOTH)))
        return fail(l, call, MANGO_EDENIED, "%s can be changed by other users; run chown root and chmod go-w on it",
                    l->runner);
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

static mango_status open_base(struct local *l, const struct mango_call *call)
{
    char *dir = setting(l->host, "base_dir"), *state = dir ? NULL : setting(l->host, "state_dir");
    if (state) {
        size_t n = strlen(state) + sizeof("/local");
        dir = malloc(n);
        if (dir)
            snprintf(dir, n, "%s/local", state);
    }
    free(state);
    if (!dir || dir[0] != '/') {
        free(dir);
        return fail(l, call, MANGO_EINVALID, "no folder for workspaces; set MANGO_LOCAL_BASE_DIR to an absolute path");
    }
    int e = make_private(dir);
    struct stat st;
    if (e == 0 && lstat(dir, &st) == 0 && S_ISLNK(st.st_mode))
        e = ELOOP;
    l->base = e == 0 ? realpath(dir, NULL) : NULL;
    l->base_fd = l->base ? open(l->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    mango_status s = MANGO_OK;
    if (l->base_fd < 0)
        s = fail(l, call, MANGO_EINVALID,
                 "cannot use %.300s for workspaces: %s; set MANGO_LOCAL_BASE_DIR to another folder", dir,
                 e == ELOOP ? "it is a symbolic link" : strerror(e ? e : errno));
    else if (fstat(l->base_fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077))
        s = fail(l, call, MANGO_EDENIED,
                 "%.300s must belong to user %u with mode 0700 (found user %u, mode %04o); run chown and chmod "
                 "on it",
                 dir, geteuid(), st.st_uid, st.st_mode & 07777U);
    else if (!parents_safe(l->base))
        s = fail(l, call, MANGO_EDENIED, "a folder above %.300s can be changed by other users; choose another place",
                 dir);
    free(dir);
    return s;
}

/* ---- the plugin ---- */

static void local_free(struct local *l)
{
    if (l->base_fd >= 0)
        close(l->base_fd);
    free(l->base);
    free(l->runner);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static mango_status local_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                               void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct local *l = calloc(1, sizeof(*l));
    if (!l)
        return host->err_set(host, call, MANGO_ERETRY, "out of memory", NULL, 0);
    l->host = host;
    l->base_fd = -1;
    pthread_mutex_init(&l->lock, NULL);
    mango_status s = open_base(l, call);
    if (s == MANGO_OK && !confine_works(l->base_fd))
        s = fail(l, call, MANGO_EUNSUPPORTED, "this kernel has no openat2; the local backend needs Linux 5.9 or newer");
    if (s == MANGO_OK)
        s = find_runner(l, call);
    if (s < 0) {
        local_free(l);
        return s;
    }
    sweep(l);
    host->log(host, MANGO_LOG_WARN,
              "sandbox backend local is NOT an isolation boundary: commands run on this host with the rights "
              "of this server; use it for development and trusted work only");
    *ret_ctx = l;
    return MANGO_OK;
}

static void local_fini(void *ctx)
{
    boxes_drop_all(ctx);
    local_free(ctx);
}

static mango_status local_health(void *ctx, const struct mango_call *call)
{
    struct local *l = ctx;
    struct stat st;
    if (fstat(l->base_fd, &st) < 0 || st.st_nlink == 0 || faccessat(l->base_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return fail(l, call, MANGO_EINTERNAL, "workspace folder %s cannot be written any more", l->base);
    if (!executable(l->runner))
        return fail(l, call, MANGO_EINTERNAL, "%s is missing; install it again", l->runner);
    return MANGO_OK;
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = local_create,
    .attach = local_attach,
    .exec = local_exec,
    .read = local_read,
    .write = local_write,
    .stat = local_stat,
    .destroy = local_destroy,
    .health = local_health,
    .detach = local_detach,
    .list_owned = local_list_owned,
    .proc_open = local_proc_open,
    .proc_write = local_proc_write,
    .proc_read = local_proc_read,
    .proc_close = local_proc_close,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "local",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "commands on this host, one folder per session; no isolation",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PROC | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC,
    .init = local_init,
    .fini = local_fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
