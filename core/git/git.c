/* What fetches share: where they work, whether git can be used, and which addresses they may reach.
 *
 * Concurrency: lock guards version; the rest does not change. */
#include "git/git.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/vault.h"
#include "git/child.h"
#include "git/internal.h"
#include "net/address.h"
#include "net/loop.h"
#include "net/resolve.h"

enum {
    REMOVE_MS = 120000,
    VERSION_MS = 10000,
    VERSION_MAX = 256, /* bytes of what `git version` says */
    MAJOR_MIN = 2,
    MINOR_MIN = 37, /* http.curloptResolve, without which a name could lead elsewhere than it was judged for */
    HTTPS_PORT = 443,
};

#define FOLDER_NAME "fetch.XXXXXX"

struct mg_git {
    char *dir;
    int dir_fd;
    char *ca_setting; /* or NULL */
    bool public_only;
    int wake_fd;
    struct mg_resolver *resolver;
    pthread_mutex_t lock;
    bool usable; /* git was found to be here and new enough */
};

/* ---- folders ---- */

static void remove_tree(struct mg_git *g, const char *name)
{
    const char *const argv[] = {"rm", "-rf", "--one-file-system", "--", name, NULL};
    struct mg_err err = {0};
    int status = 0;
    const struct mg_git_child c = {.argv = argv,
                                   .cwd = g->dir,
                                   .deadline_ns = mg_now_ns() + REMOVE_MS * UINT64_C(1000000),
                                   .file_max = MG_GIT_PACK_MAX};
    if (mg_git_child_run(&c, &status, &err) < 0 || status != 0)
        mg_log(MG_WARN, "a folder of a repository is left; the next start removes it", MG_F_STR("folder", name),
               MG_F_STR("error", err.text));
}

/* Its lock goes with the process that made it. */
static bool is_left(struct mg_git *g, const char *name)
{
    mg_autofd int fd = openat(g->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Under the lock of dir, so that none is seen between its making and its locking. */
static void remove_left(struct mg_git *g)
{
    DIR *d = opendir(g->dir);
    if (!d)
        return;
    (void)flock(g->dir_fd, LOCK_EX);
    for (const struct dirent *e; (e = readdir(d));)
        if (strncmp(e->d_name, "fetch.", strlen("fetch.")) == 0 && is_left(g, e->d_name))
            remove_tree(g, e->d_name);
    (void)flock(g->dir_fd, LOCK_UN);
    closedir(d);
}

mg_rc mg_git_folder_make(struct mg_git *g, struct mg_git_folder *ret, struct mg_err *err)
{
    *ret = (struct mg_git_folder){.lock = -1};
    int n = snprintf(ret->path, sizeof(ret->path), "%s/" FOLDER_NAME, g->dir);
    bool made = n > 0 && (size_t)n < sizeof(ret->path);
    (void)flock(g->dir_fd, LOCK_EX);
    made = made && mkdtemp(ret->path);
    int e = errno;
    if (made) {
        ret->lock = open(ret->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)flock(ret->lock, LOCK_EX);
        (void)snprintf(ret->name, sizeof(ret->name), "%s", strrchr(ret->path, '/') + 1);
    }
    (void)flock(g->dir_fd, LOCK_UN);
    return made ? MG_OK : mg_err_set(err, MG_EUNAVAIL, "the server cannot make a folder for it: %s", strerror(e));
}

void mg_git_folder_remove(struct mg_git *g, struct mg_git_folder *f)
{
    remove_tree(g, f->name);
    if (f->lock >= 0)
        close(f->lock);
}

/* ---- whether git is here ---- */

/* "git version 2.39.5" */
static bool new_enough(const char *said)
{
    int major = 0, minor = 0;
    return sscanf(said, "git version %d.%d", &major, &minor) == 2 && /* NOLINT(cert-err34-c) */
           (major > MAJOR_MIN || (major == MAJOR_MIN && minor >= MINOR_MIN));
}

mg_rc mg_git_here(struct mg_err *err)
{
    static const char *const ARGV[] = {"git", "version", NULL};
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(VERSION_MAX);
    struct mg_err why = {0};
    int status = 0;
    const struct mg_git_child c = {.argv = ARGV,
                                   .cwd = "/",
                                   .deadline_ns = mg_now_ns() + VERSION_MS * UINT64_C(1000000),
                                   .file_max = MG_GIT_PACK_MAX,
                                   .out = &out};
    mg_rc rc = mg_git_child_run(&c, &status, &why);
    if (rc >= 0 && status == 0 && new_enough(mg_buf_view(&out).ptr))
        return MG_OK;
    return mg_err_set(err, MG_EINVAL,
                      "this server cannot fetch repositories: it needs git %d.%d or newer in /usr/bin or "
                      "/usr/local/bin; the operator installs it",
                      MAJOR_MIN, MINOR_MIN);
}

static mg_rc usable(struct mg_git *g, struct mg_err *err)
{
    pthread_mutex_lock(&g->lock);
    mg_rc rc = g->usable ? MG_OK : mg_git_here(err);
    g->usable = rc >= 0;
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- which addresses ---- */

/* The host (with an IPv6 literal's brackets) and port of a URL in its normal form. */
static bool host_of(struct mg_arena *a, struct mg_sv url, struct mg_sv *ret_host, int64_t *ret_port)
{
    struct mg_sv normal;
    *ret_port = HTTPS_PORT;
    if (!mg_server_url_normal(a, url, &normal) || !mg_sv_starts(normal, "https://"))
        return false;
    struct mg_sv authority = mg_sv_from(normal, strlen("https://"));
    authority.len = mg_sv_find(authority, '/');
    const char *bracket = memchr(authority.ptr, ']', authority.len);
    size_t from = bracket ? (size_t)(bracket - authority.ptr) : 0;
    size_t colon = from + mg_sv_find(mg_sv_from(authority, from), ':');
    *ret_host = mg_arena_sv(a, mg_sv_n(authority.ptr, colon));
    return colon >= authority.len || mg_sv_to_i64(mg_sv_from(authority, colon + 1), ret_port);
}

mg_rc mg_git_check(struct mg_git *g, struct mg_sv url, struct mg_err *err)
{
    const struct mg_net_opts o = {.public_only = g->public_only};
    mg_rc rc = mg_net_check_url(url, &o, err);
    if (rc == MG_EDENIED)
        return mg_err_set(err, MG_EINVAL,
                          "url: leads to a private or local address, which only this server's host can reach; "
                          "MANGO_REPOSITORY_ALLOW_PRIVATE=1 allows that");
    if (rc < 0)
        return mg_err_wrap(err, MG_EINVAL, "url");
    return usable(g, err);
}

mg_rc mg_git_resolve(struct mg_git *g, struct mg_arena *a, struct mg_sv url, uint64_t deadline_ns,
                     struct mg_cancel *cancel, const char **ret, struct mg_err *err)
{
    char text[MG_RESOLVE_TEXT_MAX];
    struct mg_sv host = MG_SV("");
    int64_t port = 0;
    bool literal = false;
    *ret = NULL;
    if (!host_of(a, url, &host, &port))
        return mg_err_set(err, MG_EINVAL, "url: must be an https:// URL");
    (void)mg_address_text_is_public(host.ptr, &literal);
    if (literal)
        return MG_OK;
    enum mg_resolve_state state = mg_resolver_wait(g->resolver, host.ptr, deadline_ns, cancel, text);
    if (state == MG_RESOLVE_WAIT)
        return mg_err_set(err, MG_EUNAVAIL, "its host's name was not resolved in time");
    if (state == MG_RESOLVE_FAILED)
        return mg_err_set(err, MG_EUNAVAIL, "its host cannot be reached: %s%s", text,
                          g->public_only ? "; MANGO_REPOSITORY_ALLOW_PRIVATE=1 lets sessions reach private addresses"
                                         : "");
    *ret = mg_arena_printf(a, "http.curloptResolve=%s:%lld:%s", host.ptr, (long long)port, text).ptr;
    return MG_OK;
}

const char *mg_git_ca_setting(const struct mg_git *g)
{
    return g->ca_setting;
}

/* ---- opening ---- */

mg_rc mg_git_open(const struct mg_git_opts *o, struct mg_git **ret, struct mg_err *err)
{
    if (mkdir(o->dir, 0700) < 0 && errno != EEXIST)
        return mg_err_errno(err, errno, "%s", o->dir);
    int fd = open(o->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return mg_err_errno(err, errno, "%s", o->dir);
    struct mg_git *g = mg_xcalloc(1, sizeof(*g));
    *g = (struct mg_git){.dir = mg_xstrdup(o->dir), .dir_fd = fd, .public_only = o->public_only};
    pthread_mutex_init(&g->lock, NULL);
    if (o->ca_file && asprintf(&g->ca_setting, "http.sslCAInfo=%s", o->ca_file) < 0)
        g->ca_setting = NULL;
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->resolver = mg_resolver_new(g->wake_fd, o->public_only);
    remove_left(g);
    *ret = g;
    return MG_OK;
}

void mg_git_close(struct mg_git *g)
{
    if (!g)
        return;
    mg_resolver_close(g->resolver);
    if (g->wake_fd >= 0)
        close(g->wake_fd);
    close(g->dir_fd);
    pthread_mutex_destroy(&g->lock);
    free(g->ca_setting);
    free(g->dir);
    free(g);
}
