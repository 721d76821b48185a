/* Objects in a folder: DIR/ab/cdef... by the digits of their key, written to DIR/tmp first. Every open is confined beneath the folder by
 * openat2, so that no link in it leads out. A file is synced, then renamed, then its folder is synced: whatever has its name is whole. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "object/backend.h"

enum {
    SYNC_EVERY = 8 * 1024 * 1024, /* bytes after which the kernel begins to write: the last sync finds little left */
    FAN_OUT = 2,                  /* digits of the key that name a folder */
    ID_BYTES = 16,                /* of the file that says which folder this is */
};

struct folder {
    struct mg_object_backend base;
    int fd;
};

struct folder_put {
    struct folder *folder;
    char key[MG_OBJECT_KEY];
    int fd;
    int64_t written, synced;
    bool sealed;
};

static int open_beneath(int dir, const char *path, int flags, mode_t mode)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

struct path {
    char s[MG_OBJECT_KEY + 8];
};

static struct path temporary(const char *key)
{
    struct path p;
    (void)snprintf(p.s, sizeof(p.s), "tmp/%s", key);
    return p;
}

static struct path folder_of(const char *key)
{
    struct path p;
    (void)snprintf(p.s, sizeof(p.s), "%.*s", FAN_OUT, key);
    return p;
}

static struct path place_of(const char *key)
{
    struct path p;
    (void)snprintf(p.s, sizeof(p.s), "%.*s/%s", FAN_OUT, key, key + FAN_OUT);
    return p;
}

static mg_rc failed(struct mg_err *err, const char *what)
{
    mg_rc rc = errno == ENOSPC || errno == EDQUOT ? MG_EUNAVAIL : MG_EIO;
    return mg_err_set(err, rc, "the object store's folder %s: %s", what, strerror(errno));
}

/* ---- writing ---- */

static mg_rc folder_put(struct mg_object_backend *b, const char *key, struct mg_object_put **ret, struct mg_err *err)
{
    struct folder *f = (struct folder *)b;
    int fd = open_beneath(f->fd, temporary(key).s, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(err, "takes no new file");
    struct folder_put *p = mg_xcalloc(1, sizeof(*p));
    *p = (struct folder_put){.folder = f, .fd = fd};
    (void)snprintf(p->key, sizeof(p->key), "%s", key);
    *ret = (struct mg_object_put *)p;
    return MG_OK;
}

static mg_rc folder_write(struct mg_object_put *put, struct mg_sv data, struct mg_err *err)
{
    struct folder_put *p = (struct folder_put *)put;
    while (data.len) {
        ssize_t n = write(p->fd, data.ptr, data.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(err, "cannot be written");
        p->written += n;
        data = mg_sv_from(data, (size_t)n);
    }
    if (p->written - p->synced >= SYNC_EVERY) {
        (void)sync_file_range(p->fd, p->synced, p->written - p->synced, SYNC_FILE_RANGE_WRITE);
        p->synced = p->written;
    }
    return MG_OK;
}

static mg_rc open_place(struct folder *f, const char *key, int *ret, struct mg_err *err)
{
    const struct path dir = folder_of(key);
    *ret = open_beneath(f->fd, dir.s, O_RDONLY | O_DIRECTORY, 0);
    if (*ret < 0 && errno == ENOENT) {
        if ((mkdirat(f->fd, dir.s, 0700) < 0 && errno != EEXIST) || fsync(f->fd) < 0)
            return failed(err, "takes no new folder");
        *ret = open_beneath(f->fd, dir.s, O_RDONLY | O_DIRECTORY, 0);
    }
    return *ret < 0 ? failed(err, "cannot be opened") : MG_OK;
}

static mg_rc folder_seal(struct mg_object_put *put, struct mg_err *err)
{
    struct folder_put *p = (struct folder_put *)put;
    mg_autofd int dir = -1;
    if (fsync(p->fd) < 0)
        return failed(err, "cannot be synced");
    mg_rc rc = open_place(p->folder, p->key, &dir, err);
    if (rc < 0)
        return rc;
    int moved = renameat(p->folder->fd, temporary(p->key).s, dir, p->key + FAN_OUT);
    if (moved < 0 && errno == ENOENT) /* the lease was over, and another node took it away */
        return mg_err_set(err, MG_EUNAVAIL, "the upload took too long to be finished; send it again");
    if (moved < 0 || fsync(dir) < 0)
        return failed(err, "cannot be written");
    p->sealed = true;
    return MG_OK;
}

static bool folder_end(struct mg_object_put *put)
{
    struct folder_put *p = (struct folder_put *)put;
    (void)close(p->fd);
    if (!p->sealed)
        (void)unlinkat(p->folder->fd, temporary(p->key).s, 0);
    free(p);
    return true;
}

/* ---- reading ---- */

static mg_rc check_size(int fd, int64_t size, struct mg_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failed(err, "cannot be read");
    if (!S_ISREG(st.st_mode) || st.st_size != size)
        return mg_err_code(err, MG_EIO, MG_OBJECT_LOST,
                           "the object store has another number of bytes than were stored");
    return MG_OK;
}

static mg_rc missing(struct mg_err *err)
{
    return mg_err_code(err, MG_EIO, MG_OBJECT_LOST, "the object store does not have these bytes any more");
}

static mg_rc folder_read(struct mg_object_backend *b, const char *key, int64_t size, mg_object_sink *sink, void *ctx,
                         struct mg_cancel *cancel, struct mg_err *err)
{
    struct folder *f = (struct folder *)b;
    mg_autofd int fd = open_beneath(f->fd, place_of(key).s, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 && errno == ENOENT)
        return missing(err);
    if (fd < 0)
        return failed(err, "cannot be read");
    mg_rc rc = check_size(fd, size, err);
    mg_autofree char *piece = mg_xmalloc(MG_OBJECT_PIECE);
    for (int64_t at = 0; rc >= 0 && at < size;) {
        ssize_t n = pread(fd, piece, MG_OBJECT_PIECE, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(err, "cannot be read");
        if (mg_cancel_fired(cancel))
            return mg_err_set(err, MG_ECANCELED, "cancelled");
        rc = sink(ctx, mg_sv_n(piece, (size_t)n), err);
        at += n;
    }
    return rc;
}

static mg_rc folder_read_at(struct mg_object_backend *b, const char *key, int64_t at, char *p, size_t n,
                            struct mg_err *err)
{
    struct folder *f = (struct folder *)b;
    mg_autofd int fd = open_beneath(f->fd, place_of(key).s, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return errno == ENOENT ? missing(err) : failed(err, "cannot be read");
    for (size_t done = 0; done < n;) {
        ssize_t k = pread(fd, p + done, n - done, at + (int64_t)done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? failed(err, "cannot be read") : missing(err);
        done += (size_t)k;
    }
    return MG_OK;
}

static mg_rc folder_remove(struct mg_object_backend *b, const char *key, bool partial, struct mg_err *err)
{
    (void)partial;
    struct folder *f = (struct folder *)b;
    if (unlinkat(f->fd, temporary(key).s, 0) < 0 && errno != ENOENT)
        return failed(err, "cannot be written");
    mg_autofd int dir = open_beneath(f->fd, folder_of(key).s, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0)
        return errno == ENOENT ? MG_OK : failed(err, "cannot be opened");
    if (unlinkat(dir, key + FAN_OUT, 0) < 0 && errno != ENOENT)
        return failed(err, "cannot be written");
    return MG_OK;
}

/* ---- the folder ---- */

static void folder_close(struct mg_object_backend *b)
{
    struct folder *f = (struct folder *)b;
    (void)close(f->fd);
    free(f);
}

/* A name of the folder that replicas on a shared file system see alike. */
static mg_rc read_identity(struct folder *f, struct mg_err *err)
{
    uint8_t random[ID_BYTES];
    char hex[2 * ID_BYTES + 1] = "", name[2 * ID_BYTES + 16];
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), hex);
    (void)snprintf(name, sizeof(name), "tmp/id.%s", hex);
    mg_autofd int made = open_beneath(f->fd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (made < 0 || write(made, hex, sizeof(hex) - 1) != (ssize_t)sizeof(hex) - 1 || fsync(made) < 0)
        return failed(err, "cannot be written");
    /* a link, not a rename: of several first starts one wins */
    if (linkat(f->fd, name, f->fd, "id", 0) < 0 && errno != EEXIST)
        return failed(err, "cannot be written");
    mg_autofd int fd = open_beneath(f->fd, "id", O_RDONLY, 0);
    ssize_t n = fd < 0 ? -1 : read(fd, hex, sizeof(hex) - 1);
    if (n != (ssize_t)sizeof(hex) - 1)
        return failed(err, "has a damaged file 'id'");
    (void)unlinkat(f->fd, name, 0);
    (void)snprintf(f->base.identity, sizeof(f->base.identity), "folder:%s", hex);
    return fsync(f->fd) < 0 ? failed(err, "cannot be synced") : MG_OK;
}

static const struct mg_object_ops FOLDER_OPS = {
    .put = folder_put,
    .write = folder_write,
    .seal = folder_seal,
    .end = folder_end,
    .read = folder_read,
    .read_at = folder_read_at,
    .remove = folder_remove,
    .close = folder_close,
};

mg_rc mg_object_folder_open(const char *dir, struct mg_object_backend **ret, struct mg_err *err)
{
    struct stat st;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return mg_err_set(err, MG_ECONFIG, "object store %s: cannot be made: %s", dir, strerror(errno));
    mg_autofd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return mg_err_set(err, MG_ECONFIG, "object store %s: cannot be opened: %s", dir, strerror(errno));
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return mg_err_set(err, MG_ECONFIG, "object store %s: other users may write it: chmod go-w", dir);
    if (mkdirat(fd, "tmp", 0700) < 0 && errno != EEXIST)
        return mg_err_set(err, MG_ECONFIG, "object store %s: cannot be written: %s", dir, strerror(errno));
    struct folder *f = mg_xcalloc(1, sizeof(*f));
    *f = (struct folder){.base.ops = &FOLDER_OPS, .fd = mg_steal_fd(&fd)};
    mg_rc rc = read_identity(f, err);
    if (rc < 0) {
        folder_close(&f->base);
        return rc;
    }
    *ret = &f->base;
    return MG_OK;
}
