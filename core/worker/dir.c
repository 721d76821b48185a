#include "worker/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"

enum {
    RACES_MAX = 64,     /* EAGAIN of openat2: something was renamed meanwhile */
    FOLDER_MODE = 0700, /* of a session's skills and memories: the worker's user alone */
    TEMP_BYTES = 8,     /* of a temporary file's name */
    FOLDERS_MAX = 4096, /* that wait to be walked */
};

static int beneath(int root, const char *path, uint64_t flags, mode_t mode)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    for (int i = 0; i < RACES_MAX; i++) {
        int fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            return fd >= 0 ? fd : -errno;
    }
    return -EAGAIN;
}

bool mg_dir_component(struct mg_sv s)
{
    return s.len > 0 && s.len <= NAME_MAX && !mg_sv_eqz(s, ".") && !mg_sv_eqz(s, "..") && !memchr(s.ptr, '/', s.len) &&
           !memchr(s.ptr, '\0', s.len);
}

int mg_dir_open(int root, const char *path, bool make)
{
    char part[PATH_MAX];
    int fd = beneath(root, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd != -ENOENT || !make)
        return fd;
    fd = beneath(root, "", O_RDONLY | O_DIRECTORY, 0);
    for (const char *p = path; fd >= 0 && *p;) {
        size_t n = strcspn(p, "/");
        if (n >= sizeof(part)) {
            close(fd);
            return -ENAMETOOLONG;
        }
        memcpy(part, p, n);
        part[n] = '\0';
        int e = mkdirat(fd, part, FOLDER_MODE) < 0 && errno != EEXIST ? -errno : 0;
        int next = e < 0 ? e : beneath(fd, part, O_RDONLY | O_DIRECTORY, 0);
        close(fd);
        fd = next;
        p += n + (p[n] == '/');
    }
    return fd;
}

int mg_dir_absolute(const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || path[0] != '/' || len >= sizeof(part))
        return -EINVAL;
    for (size_t n = 1; n <= len; n++) {
        if (n < len && path[n] != '/')
            continue;
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, FOLDER_MODE) < 0 && errno != EEXIST)
            return -errno;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* The folder of path's last component, and that component. A descriptor or -errno. */
static int parent_of(int root, const char *path, bool make, const char **ret_name)
{
    char folder[PATH_MAX] = "";
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    if (slash && (size_t)(slash - path) >= sizeof(folder))
        return -ENAMETOOLONG;
    if (slash) {
        memcpy(folder, path, (size_t)(slash - path));
        folder[slash - path] = '\0';
    }
    return mg_dir_open(root, folder, make);
}

static int write_all(int fd, struct mg_sv s)
{
    while (s.len) {
        ssize_t n = write(fd, s.ptr, s.len);
        if (n < 0 && errno != EINTR)
            return -errno;
        s = mg_sv_from(s, n > 0 ? (size_t)n : 0);
    }
    return 0;
}

/* The new file under its temporary name: its mode is what is asked for, whatever the umask. */
static int write_temp(int dir, const char *temp, struct mg_sv content, mode_t mode)
{
    mg_autofd int fd = beneath(dir, temp, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (fd < 0)
        return fd;
    int e = write_all(fd, content);
    return e == 0 && fchmod(fd, mode) < 0 ? -errno : e;
}

mg_rc mg_dir_write(int root, const char *path, struct mg_sv content, mode_t mode, bool fresh, struct mg_err *err)
{
    const char *name;
    char temp[sizeof(".mango-") + 2 * TEMP_BYTES] = ".mango-";
    uint8_t random[TEMP_BYTES];
    mg_autofd int dir = parent_of(root, path, true, &name);
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), temp + strlen(temp));
    int e = dir < 0 ? dir : write_temp(dir, temp, content, mode);
    if (e == 0 && fresh && linkat(dir, temp, dir, name, 0) < 0)
        e = -errno;
    else if (e == 0 && !fresh && renameat(dir, temp, dir, name) < 0)
        e = -errno;
    if (dir >= 0 && (fresh || e < 0))
        (void)unlinkat(dir, temp, 0);
    if (e == -EEXIST || e == -ENOTDIR || e == -EISDIR)
        return mg_err_set(err, MG_ECONFLICT, "'%s' or a part of it is there and is something else", path);
    return e < 0 ? mg_err_errno(err, -e, "the file '%s'", path) : MG_OK;
}

mg_rc mg_dir_read(int root, const char *path, size_t max, struct mg_buf *out, struct mg_err *err)
{
    struct stat st;
    mg_autofd int fd = beneath(root, path, O_RDONLY | O_NONBLOCK, 0); /* a FIFO must not block the open */
    if (fd == -ENOENT || fd == -ENOTDIR)
        return mg_err_set(err, MG_ENOTFOUND, "the file '%s' is gone", path);
    if (fd < 0)
        return mg_err_errno(err, -fd, "the file '%s'", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return mg_err_set(err, MG_EINVAL, "'%s' is no regular file", path);
    for (size_t had = out->len;;) {
        if (mg_buf_reserve(out, max + 1 - (out->len - had)) < 0)
            return mg_err_set(err, MG_ETOOBIG, "the file '%s' has more than %zu bytes", path, max);
        ssize_t n = read(fd, out->ptr + out->len, max + 1 - (out->len - had));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mg_err_errno(err, errno, "the file '%s'", path);
        if (n == 0)
            return MG_OK;
        mg_buf_added(out, (size_t)n);
        if (out->len - had > max)
            return mg_err_set(err, MG_ETOOBIG, "the file '%s' has more than %zu bytes", path, max);
    }
}

int mg_dir_unlink(int root, const char *path)
{
    const char *name;
    mg_autofd int dir = parent_of(root, path, false, &name);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return dir;
    return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* ---- walking ---- */

struct walk {
    int root;
    unsigned max, met; /* files */
    void (*fn)(void *ctx, const char *path, off_t size);
    void *ctx;
    char *folders[FOLDERS_MAX];
    int n;
};

static mg_rc meet(struct walk *w, int dir, const char *folder, const char *name, struct mg_err *err)
{
    struct stat st;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", name);
    if (n < 0 || n >= PATH_MAX || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return MG_OK; /* gone meanwhile, or deeper than anything that can be named */
    if (S_ISDIR(st.st_mode)) {
        if (w->n == FOLDERS_MAX)
            return mg_err_set(err, MG_ETOOBIG, "more than %d folders", FOLDERS_MAX);
        w->folders[w->n++] = mg_xstrdup(path);
        return MG_OK;
    }
    if (!S_ISREG(st.st_mode))
        return MG_OK;
    if (w->met++ == w->max)
        return mg_err_set(err, MG_ETOOBIG, "more than %u files", w->max);
    w->fn(w->ctx, path, st.st_size);
    return MG_OK;
}

static mg_rc walk_one(struct walk *w, const char *folder, struct mg_err *err)
{
    int fd = beneath(w->root, folder, O_RDONLY | O_DIRECTORY, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    mg_rc rc = MG_OK;
    if (!d && fd >= 0)
        close(fd);
    if (!d)
        return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? MG_OK
                                                               : mg_err_errno(err, errno, "the folder '%s'", folder);
    for (struct dirent *e; rc == MG_OK && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = meet(w, fd, folder, e->d_name, err);
    closedir(d);
    return rc;
}

mg_rc mg_dir_walk(int root, unsigned max, void (*fn)(void *ctx, const char *path, off_t size), void *ctx,
                  struct mg_err *err)
{
    struct walk *w = mg_xcalloc(1, sizeof(*w));
    *w = (struct walk){.root = root, .max = max, .fn = fn, .ctx = ctx, .folders = {mg_xstrdup("")}, .n = 1};
    mg_rc rc = MG_OK;
    while (w->n > 0) {
        mg_autofree char *folder = w->folders[--w->n];
        if (rc == MG_OK)
            rc = walk_one(w, folder, err);
    }
    free(w);
    return rc;
}
