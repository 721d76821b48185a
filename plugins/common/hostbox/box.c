#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"

/* Making, finding and ending the folders of sessions, and the table of the live ones. */

enum {
    NEW_NAME_MAX = 64,
    STALE_S =
        2, /* age of a folder that nobody holds before it counts as left behind: it is held as soon as it is made */
    ENV_MAX = 256, /* variables of a spec */
};

static const char *const env_fixed[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "TERM=dumb",
};

/* ---- the folder ---- */

static int write_small(int dir_fd, const char *name, const char *text, size_t len)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int e = write(fd, text, len) == (ssize_t)len ? 0 : ENOSPC;
    close(fd);
    return e;
}

static bool read_small(int dir_fd, const char *name, char *out, size_t len)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    bool ok = fd >= 0 && read(fd, out, len) == (ssize_t)len;
    if (fd >= 0)
        close(fd);
    out[ok ? len : 0] = '\0';
    return ok;
}

static void id_of(struct mango_sv label, char id[ID_LEN + 1])
{
    memcpy(id, "session-", 8);
    memcpy(id + 8, label.ptr, LABEL_LEN);
    id[ID_LEN] = '\0';
}

/* A folder of the box's user. 0 or errno. */
static int make_part(int fd, const char *name, uid_t user)
{
    if (mkdirat(fd, name, 0700) < 0)
        return errno;
    return user != NO_USER && fchownat(fd, name, user, user, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static uid_t user_of(const struct boxes *all, struct mango_sv label)
{
    return all->kind->user ? all->kind->user(all, label) : NO_USER;
}

static int fill_folder(const struct boxes *all, int fd, const struct mango_sandbox_spec *spec)
{
    static const char *const parts[] = {"workspace", "scratch", "staging"};
    char identity[IDENTITY_LEN + 1];
    random_hex(identity, IDENTITY_LEN);
    for (int i = 0; i < 3; i++) {
        int e = make_part(fd, parts[i], user_of(all, spec->label));
        if (e)
            return e;
    }
    int e = write_small(fd, "identity", identity, IDENTITY_LEN);
    if (e == 0)
        e = write_small(fd, "owner", spec->owner.ptr, spec->owner.len);
    if (e == 0)
        e = write_small(fd, "label", spec->label.ptr, spec->label.len);
    return e;
}

/* Under a name of its own first, then in one rename: a folder of a session is whole or not there, and two creates make
 * one. */
static int make_folder(const struct boxes *all, const struct mango_sandbox_spec *spec, const char *id, bool *ret_found)
{
    char name[NEW_NAME_MAX], random[17];
    random_hex(random, 16);
    snprintf(name, sizeof(name), ".new-%s", random);
    if (mkdirat(all->base_fd, name, 0700) < 0)
        return errno;
    int fd = openat(all->base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int e = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : fill_folder(all, fd, spec);
    if (e == 0 && renameat2(all->base_fd, name, all->base_fd, id, RENAME_NOREPLACE) < 0)
        e = errno;
    if (fd >= 0)
        close(fd); /* and with it the lock, by which a sweep sees that somebody is at it */
    *ret_found = e == EEXIST;
    if (e)
        (void)remove_tree(all->base_fd, name);
    return e == EEXIST ? 0 : e;
}

/* Its maker is still at it. */
static bool held(const struct boxes *all, const char *name)
{
    int fd = openat(all->base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool yes = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

static void remove_trash(const struct boxes *all, const char *prefix, time_t older_than)
{
    int copy = openat(all->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 &&
            fstatat(all->base_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime <= older_than &&
            !held(all, e->d_name))
            (void)remove_tree(all->base_fd, e->d_name);
    }
    if (d)
        closedir(d);
}

void sweep(struct boxes *all)
{
    remove_trash(all, ".trash-", time(NULL));
    remove_trash(all, ".new-", time(NULL) - STALE_S);
}

/* ---- the table ---- */

static void box_free(struct live *l)
{
    struct box *b = (struct box *)l;
    int fds[] = {b->home_fd, b->root_fd, b->staging_fd};
    for (int i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    for (char **e = b->env; e && *e; e++)
        free(*e);
    if (b->all->kind->free)
        b->all->kind->free(b);
    free(b->env);
    free(b->root);
    free(b->scratch);
    live_destroy(l);
    free(b);
}

mango_status box_enter(struct boxes *all, const struct mango_call *call, struct mango_sv id, struct box **ret)
{
    *ret = (struct box *)live_enter(&all->live, id);
    return *ret ? MANGO_OK : fail(all->host, call, MANGO_EGONE, "the workspace is not attached or is being removed");
}

/* ---- attaching ---- */

static char *join(const char *a, const char *b, const char *c)
{
    size_t n = strlen(a) + strlen(b) + strlen(c) + 3;
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%s/%s/%s", a, b, c);
    return z;
}

static char *variable(const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%s=%s", name, value);
    return z;
}

/* True when the spec has a variable of v's name. */
static bool given(const struct mango_sandbox_spec *spec, const char *v)
{
    uint64_t name = (uint64_t)(strchrnul(v, '=') - v) + 1;
    for (uint64_t i = 0; i < spec->n_env; i++) {
        if (spec->env[i].len >= name && memcmp(spec->env[i].ptr, v, name) == 0)
            return true;
    }
    return false;
}

static bool fill_env(struct box *b, const struct mango_sandbox_spec *spec)
{
    size_t fixed = sizeof(env_fixed) / sizeof(env_fixed[0]), n = 0;
    uint64_t more = spec->n_env < ENV_MAX ? spec->n_env : ENV_MAX;
    b->env = calloc(fixed + 2 + more + 1, sizeof(*b->env));
    if (!b->env)
        return false;
    for (size_t i = 0; i < fixed; i++) {
        if (!given(spec, env_fixed[i]))
            b->env[n++] = strdup(env_fixed[i]);
    }
    if (!given(spec, "HOME="))
        b->env[n++] = variable("HOME", b->root);
    if (!given(spec, "TMPDIR="))
        b->env[n++] = variable("TMPDIR", b->scratch);
    for (uint64_t i = 0; i < more; i++)
        b->env[n++] = sv_dup(spec->env[i]);
    for (size_t i = 0; i < n; i++) {
        if (!b->env[i])
            return false;
    }
    return true;
}

static int open_folder(int dir_fd, const char *name)
{
    return openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Opens what make_folder made. errno values; EPERM when it belongs to another label. */
static int open_box(struct boxes *all, struct mango_sv label, const struct mango_sandbox_spec *spec, struct box **ret)
{
    struct box *b = calloc(1, sizeof(*b));
    if (!b)
        return ENOMEM;
    char found[LABEL_LEN + 1], id[ID_LEN + 1];
    struct stat st;
    *b = (struct box){.all = all, .home_fd = -1, .root_fd = -1, .staging_fd = -1, .ctl = -1};
    id_of(label, id);
    live_init(&b->live, id, box_free);
    b->root = all->folder       ? strdup(all->folder)
              : all->kind->root ? strdup(all->kind->root)
                                : join(all->base, b->live.id, "workspace");
    b->scratch = all->kind->scratch ? strdup(all->kind->scratch) : join(all->base, b->live.id, "scratch");
    b->user = user_of(all, label);
    int e = b->root && b->scratch && fill_env(b, spec) ? 0 : ENOMEM;
    if (e == 0 && (b->home_fd = open_folder(all->base_fd, b->live.id)) < 0)
        e = errno == ENOTDIR || errno == ELOOP ? EPERM : errno;
    if (e == 0 && (fstat(b->home_fd, &st) < 0 || st.st_uid != geteuid()))
        e = EPERM;
    if (e == 0 && (!read_small(b->home_fd, "label", found, LABEL_LEN) || memcmp(found, label.ptr, LABEL_LEN) != 0))
        e = EPERM;
    if (e == 0)
        b->root_fd = all->folder ? open_folder(AT_FDCWD, all->folder) : open_folder(b->home_fd, "workspace");
    if (e == 0 && b->root_fd < 0)
        e = errno;
    if (e == 0) {
        (void)read_small(b->home_fd, "identity", b->identity, IDENTITY_LEN);
        (void)make_part(b->home_fd, "staging", b->user);
        (void)make_part(b->home_fd, "scratch", b->user);
        if ((b->staging_fd = open_folder(b->home_fd, "staging")) < 0)
            e = errno;
    }
    if (e) {
        live_unref(&b->live);
        return e;
    }
    staging_sweep(b);
    *ret = b;
    return 0;
}

static mango_status give_ref(const struct box *b, bool found, struct mango_sandbox_ref *ret)
{
    const struct mango_host *h = b->all->host;
    mango_status s = h->buf_append(h, ret->id, b->live.id, strlen(b->live.id));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->root, b->root, strlen(b->root));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->identity, b->identity, strlen(b->identity));
    ret->flags = found ? MANGO_REF_FOUND : 0;
    ret->expires_s = 0;
    return s;
}

/* The one that is attached already, or a new one in the table. */
static mango_status bind_box(struct boxes *all, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                             bool found, struct mango_sandbox_ref *ret)
{
    char id[ID_LEN + 1];
    id_of(spec->label, id);
    struct mango_sv key = {id, ID_LEN};
    pthread_mutex_lock(&all->live.lock);
    struct box *b = (struct box *)live_find(&all->live, key);
    struct stat st;
    /* One whose folder was removed behind our back must not look alive. */
    bool there = fstatat(all->base_fd, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
    int e = there ? 0 : ENOENT;
    if (e == 0 && !b && (e = open_box(all, spec->label, spec, &b)) == 0)
        live_add(&all->live, &b->live);
    mango_status s = e == 0 ? give_ref(b, found, ret) : MANGO_OK;
    if (e == 0)
        live_ref(&b->live);
    pthread_mutex_unlock(&all->live.lock);
    if (s == MANGO_OK && e == 0 && all->kind->attached)
        s = all->kind->attached(b, call, spec);
    if (e == 0)
        live_unref(&b->live);
    if (e == ENOENT)
        return fail(all->host, call, MANGO_EGONE, "workspace folder %s does not exist any more", id);
    if (e == EPERM)
        return fail(all->host, call, MANGO_EDENIED, "workspace folder %s does not belong to this session", id);
    return e ? fail(all->host, call, MANGO_EINTERNAL, "workspace folder %s: %s", id, strerror(e)) : s;
}

static mango_status check_spec(const struct boxes *all, const struct mango_call *call,
                               const struct mango_sandbox_spec *spec)
{
    if (!sv_hex(spec->label, LABEL_LEN) || (spec->owner.len != 0 && !sv_hex(spec->owner, LABEL_LEN)))
        return fail(all->host, call, MANGO_EINVALID, "label and owner must be %d lowercase hex digits", LABEL_LEN);
    return all->kind->check(all, call, spec);
}

mango_status hostbox_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct mango_sandbox_ref *ret)
{
    struct boxes *all = ctx;
    char id[ID_LEN + 1];
    bool found = false;
    mango_status s = check_spec(all, call, spec);
    if (s < 0)
        return s;
    if (all->host->cancelled(all->host, call))
        return MANGO_ECANCELED;
    id_of(spec->label, id);
    int e = make_folder(all, spec, id, &found);
    if (e)
        return fail(all->host, call, e == ENOSPC || e == EDQUOT ? MANGO_EQUOTA : MANGO_EINTERNAL,
                    "cannot make workspace folder %s: %s", id, strerror(e));
    return bind_box(all, call, spec, found, ret);
}

mango_status hostbox_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct boxes *all = ctx;
    char expected[ID_LEN + 1];
    mango_status s = check_spec(all, call, spec);
    if (s < 0)
        return s;
    id_of(spec->label, expected);
    if (!sv_is(id, expected))
        return fail(all->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    return bind_box(all, call, spec, true, ret);
}

/* ---- the end ---- */

/* Ends what runs in it, waits until no call is inside any more, and lets it go. */
static void quiesce(struct box *b)
{
    live_close(&b->live);
    runner_stop(b, DESTROY_WAIT_MS);
    live_wait_quiet(&b->live);
    live_unref(&b->live);
}

mango_status hostbox_detach(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct boxes *all = ctx;
    (void)call;
    struct live *l = live_take(&all->live, id);
    if (l)
        quiesce((struct box *)l);
    return MANGO_OK;
}

void boxes_drop_all(struct boxes *all)
{
    for (struct live *l; (l = live_take_any(&all->live));)
        quiesce((struct box *)l);
}

mango_status hostbox_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    struct boxes *all = ctx;
    char name[ID_LEN + 1], trash[NEW_NAME_MAX], random[17];
    if (!sv_hex(label, LABEL_LEN))
        return fail(all->host, call, MANGO_EINVALID, "label must be %d lowercase hex digits", LABEL_LEN);
    id_of(label, name);
    if (id.len > 0 && !sv_is(id, name))
        return fail(all->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    (void)hostbox_detach(all, call, (struct mango_sv){name, ID_LEN});
    if (all->kind->destroyed)
        all->kind->destroyed(all, label);
    random_hex(random, 16);
    snprintf(trash, sizeof(trash), ".trash-%s", random);
    /* Gone for everybody in one step; what a crash leaves of it is swept at the next start. The lock keeps a start of
     * another process from sweeping at the same time. */
    int lock = open_folder(all->base_fd, name);
    if (lock >= 0)
        (void)flock(lock, LOCK_EX | LOCK_NB);
    int e = renameat(all->base_fd, name, all->base_fd, trash) < 0 ? errno : 0;
    int left = e ? 0 : remove_tree(all->base_fd, trash);
    if (left) /* so that the next try finds it */
        (void)renameat2(all->base_fd, trash, all->base_fd, name, RENAME_NOREPLACE);
    if (lock >= 0)
        close(lock);
    if (e && e != ENOENT)
        return fail(all->host, call, MANGO_EINTERNAL, "cannot remove workspace folder %s: %s", name, strerror(e));
    return left ? fail(all->host, call, MANGO_ERETRY, "cannot remove all of workspace folder %s: %s", name,
                       strerror(left))
                : MANGO_OK;
}

mango_status hostbox_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx)
{
    struct boxes *all = ctx;
    int copy = openat(all->base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d)
        return fail(all->host, call, MANGO_EINTERNAL, "cannot list the workspace folders: %s", strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        char found[LABEL_LEN + 1] = "";
        struct stat st;
        struct mango_sv name = {e->d_name, strlen(e->d_name)};
        int fd = name.len == ID_LEN && memcmp(name.ptr, "session-", 8) == 0 ? open_folder(all->base_fd, e->d_name) : -1;
        if (fd < 0)
            continue;
        bool ours = fstat(fd, &st) == 0 && read_small(fd, "owner", found, LABEL_LEN) && sv_is(owner, found);
        close(fd);
        struct mango_owned item = {.struct_size = sizeof(item),
                                   .id = name,
                                   .label = {name.ptr + 8, LABEL_LEN},
                                   .created_us = ours ? (int64_t)st.st_ctim.tv_sec * 1000000 : 0};
        if (ours && fn(fn_ctx, &item) != 0)
            break;
    }
    closedir(d);
    return MANGO_OK;
}
