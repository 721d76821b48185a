#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"

enum {
    COPY_BYTES = 64 * 1024,
    XATTR_NAMES_MAX = 16 * 1024, /* bytes of names that are carried over */
    XATTR_VALUE_MAX = 64 * 1024, /* the kernel's limit for a value */
    NAME_TRIES = 8,
};

static const char *kind_text(mode_t m)
{
    return S_ISFIFO(m)   ? "is a FIFO"
           : S_ISSOCK(m) ? "is a socket"
           : S_ISCHR(m)  ? "is a character device"
           : S_ISBLK(m)  ? "is a block device"
           : S_ISDIR(m)  ? "is a folder"
                         : "is no regular file";
}

static mango_status special(const struct box *b, const struct mango_call *call, struct mango_sv path, mode_t m)
{
    char name[SHOWN_MAX + 1];
    shown(path, name);
    return fail(b->all->host, call, MANGO_EINVALID, "'%s' %s; only regular files can be read or written", name,
                kind_text(m));
}

/* ---- read ---- */

/* Looked at before it is opened for reading (a device may act on open), and once more on the descriptor that is read.
 */
static mango_status open_regular(const struct box *b, const struct mango_call *call, struct mango_sv path, int *ret_fd)
{
    struct stat st;
    int fd = path_open(b, path, O_PATH);
    if (fd < 0)
        return fail_path(b->all->host, call, -fd, path);
    int e = fstat(fd, &st) < 0 ? errno : 0;
    close(fd);
    if (e)
        return fail_path(b->all->host, call, e, path);
    if (!S_ISREG(st.st_mode))
        return special(b, call, path, st.st_mode);
    fd = path_open(b, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fail_path(b->all->host, call, -fd, path);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *ret_fd = fd;
        return MANGO_OK;
    }
    close(fd);
    return special(b, call, path, st.st_mode);
}

static mango_status stream_out(const struct box *b, const struct mango_call *call, int fd,
                               const struct mango_read_req *req, int32_t *ret_eof)
{
    const struct mango_host *h = b->all->host;
    char *buf = malloc(COPY_BYTES);
    mango_status s = buf ? MANGO_OK : fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    uint64_t done = 0;
    *ret_eof = 0;
    while (s == MANGO_OK && done < req->max) {
        uint64_t want = req->max - done < COPY_BYTES ? req->max - done : COPY_BYTES;
        ssize_t n = pread(fd, buf, want, (off_t)(req->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            s = fail_path(b->all->host, call, errno, req->path);
            break;
        }
        if (n == 0) {
            *ret_eof = 1;
            break;
        }
        done += (uint64_t)n;
        if (req->sink(req->sink_ctx, 0, buf, (uint64_t)n) != 0)
            break;
        if (h->cancelled(h, call))
            s = MANGO_ECANCELED;
    }
    free(buf);
    struct stat st;
    if (s == MANGO_OK && !*ret_eof && fstat(fd, &st) == 0)
        *ret_eof = req->offset + done >= (uint64_t)st.st_size;
    return s;
}

mango_status hostbox_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_read_req *req, int32_t *ret_eof)
{
    struct box *b;
    int fd = -1;
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    if (req->offset > INT64_MAX || req->max > INT64_MAX)
        s = fail(b->all->host, call, MANGO_EINVALID, "offset and max must be below 2^63");
    else
        s = open_regular(b, call, req->path, &fd);
    if (s == MANGO_OK) {
        s = stream_out(b, call, fd, req, ret_eof);
        close(fd);
    }
    live_leave(&b->live);
    return s;
}

/* ---- write ---- */

static int write_all(int fd, const char *p, uint64_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n < COPY_BYTES * 16 ? n : COPY_BYTES * 16);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return errno;
        p += w;
        n -= (uint64_t)w;
    }
    return 0;
}

static mango_status fill(const struct box *b, const struct mango_call *call, int fd, const struct mango_write_req *req)
{
    const struct mango_host *h = b->all->host;
    if (!req->source) {
        int e = write_all(fd, req->content.ptr, req->content.len);
        return e ? fail_path(b->all->host, call, e, req->path) : MANGO_OK;
    }
    char *buf = malloc(COPY_BYTES);
    mango_status s = buf ? MANGO_OK : fail(b->all->host, call, MANGO_ERETRY, "out of memory");
    int64_t total = 0;
    while (s == MANGO_OK) {
        int64_t n = req->source(req->source_ctx, buf, COPY_BYTES);
        if (n < 0)
            s = (mango_status)n;
        if (n <= 0)
            break;
        total += n;
        int e = write_all(fd, buf, (uint64_t)n);
        if (e)
            s = fail_path(b->all->host, call, e, req->path);
        else if (h->cancelled(h, call))
            s = MANGO_ECANCELED;
    }
    free(buf);
    if (s == MANGO_OK && req->source_len >= 0 && total != req->source_len)
        s = fail(b->all->host, call, MANGO_EINVALID, "the content ended after %lld of %lld bytes", (long long)total,
                 (long long)req->source_len);
    return s;
}

/* Extended attributes of the old file; those that only root may set are left when we may not. */
static int copy_xattrs(int dir_fd, const char *name, int to)
{
    int from = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0)
        return 0; /* not readable: then its attributes are not ours to read either */
    char *names = malloc(XATTR_NAMES_MAX), *value = malloc(XATTR_VALUE_MAX);
    ssize_t n = names && value ? flistxattr(from, names, XATTR_NAMES_MAX) : 0;
    int e = 0;
    for (ssize_t at = 0; at < n && e == 0; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t len = fgetxattr(from, names + at, value, XATTR_VALUE_MAX);
        if (len >= 0 && fsetxattr(to, names + at, value, (size_t)len, 0) < 0 && errno != EPERM && errno != ENOTSUP)
            e = errno;
    }
    free(names);
    free(value);
    close(from);
    return e;
}

/* What the new file takes over from the one that it replaces. Refuses what must not be replaced. */
static mango_status inherit(const struct box *b, const struct mango_call *call, int dir_fd, const char *name, int fd,
                            const struct mango_write_req *req)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? MANGO_OK : fail_path(b->all->host, call, errno, req->path);
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? fail_path(b->all->host, call, EISDIR, req->path)
                                   : special(b, call, req->path, st.st_mode);
    char shown_path[SHOWN_MAX + 1];
    shown(req->path, shown_path);
    if ((st.st_mode & 0222) == 0 || faccessat(dir_fd, name, W_OK, AT_EACCESS) < 0)
        return fail(b->all->host, call, MANGO_EDENIED, "'%s' is read-only (mode %04o); change its mode first",
                    shown_path, st.st_mode & 07777U);
    int e = copy_xattrs(dir_fd, name, fd);
    if (e == 0 && (st.st_uid != geteuid() || st.st_gid != getegid()) && fchown(fd, st.st_uid, st.st_gid) < 0)
        e = errno == EPERM ? 0 : errno;
    if (e == 0 && fchmod(fd, st.st_mode & 07777) < 0)
        e = errno;
    return e ? fail_path(b->all->host, call, e, req->path) : MANGO_OK;
}

#define WRITE_PREFIX ".mango-write-"

void staging_sweep(const struct box *b)
{
    int copy = openat(b->staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, WRITE_PREFIX, sizeof(WRITE_PREFIX) - 1) != 0)
            continue;
        pid_t writer = (pid_t)strtol(e->d_name + sizeof(WRITE_PREFIX) - 1, NULL, 10);
        if (writer <= 0 || (kill(writer, 0) < 0 && errno == ESRCH))
            (void)unlinkat(b->staging_fd, e->d_name, 0);
    }
    if (d)
        closedir(d);
}

/* The new content is made in staging_fd, beside the workspace and on its disk, so that no listing of the workspace ever
 * shows it. Where a mount lies in between, a hidden file beside the target does. */
static int open_staged(int dir_fd, char name[64])
{
    for (int i = 0; i < NAME_TRIES; i++) {
        char random[25];
        random_hex(random, 24);
        snprintf(name, 64, WRITE_PREFIX "%d-%s", (int)getpid(), random);
        int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : -errno;
    }
    return -EEXIST;
}

static mango_status write_via(const struct box *b, const struct mango_call *call, int stage_fd, int dir_fd,
                              const char *name, const struct mango_write_req *req, bool *ret_cross)
{
    char temp[64];
    user_enter(b);
    int fd = open_staged(stage_fd, temp);
    user_leave(b);
    if (fd < 0)
        return fail_path(b->all->host, call, -fd, req->path);
    mango_status s = fchmod(fd, req->mode ? req->mode & 07777 : 0644) < 0
                         ? fail_path(b->all->host, call, errno, req->path)
                         : MANGO_OK;
    if (s == MANGO_OK) {
        user_enter(b);
        s = inherit(b, call, dir_fd, name, fd, req);
        user_leave(b);
    }
    if (s == MANGO_OK)
        s = fill(b, call, fd, req);
    /* Some file systems tell of a full disk only here. */
    if (close(fd) < 0 && s == MANGO_OK)
        s = fail_path(b->all->host, call, errno, req->path);
    user_enter(b);
    int e = s == MANGO_OK && renameat(stage_fd, temp, dir_fd, name) < 0 ? errno : 0;
    if (s < 0 || e)
        (void)unlinkat(stage_fd, temp, 0);
    user_leave(b);
    if (e) {
        *ret_cross = e == EXDEV && stage_fd == b->staging_fd;
        s = fail_path(b->all->host, call, e, req->path);
    }
    return s;
}

mango_status hostbox_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_write_req *req)
{
    struct box *b;
    char name[256];
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    int dir = path_parent(b, req->path, name);
    if (dir < 0) {
        s = fail_path(b->all->host, call, -dir, req->path);
    } else {
        bool cross = false;
        s = write_via(b, call, b->staging_fd, dir, name, req, &cross);
        if (cross && !req->source) /* a source can be read once only */
            s = write_via(b, call, dir, dir, name, req, &cross);
        close(dir);
    }
    live_leave(&b->live);
    return s;
}

/* ---- stat ---- */

mango_status hostbox_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                          uint32_t flags, struct mango_stat *ret)
{
    struct box *b;
    struct stat st = {0};
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    int fd = path_open(b, path, O_PATH | (flags & MANGO_STAT_NOFOLLOW ? O_NOFOLLOW : 0));
    /* A link that leads nowhere or outside is still there: it is shown as what it is. */
    if ((fd == -ENOENT || fd == -EXDEV || fd == -ELOOP) && !(flags & MANGO_STAT_NOFOLLOW)) {
        int link = path_open(b, path, O_PATH | O_NOFOLLOW);
        if (link >= 0 && fstat(link, &st) == 0 && S_ISLNK(st.st_mode))
            fd = link;
        else if (link >= 0)
            close(link);
    }
    if (fd < 0) {
        s = fail_path(b->all->host, call, -fd, path);
    } else {
        if (fstat(fd, &st) < 0)
            s = fail_path(b->all->host, call, errno, path);
        close(fd);
    }
    if (s == MANGO_OK) {
        ret->kind = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' : 'o';
        ret->size = (uint64_t)st.st_size;
        ret->mtime_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
        ret->mode = st.st_mode & 07777;
    }
    live_leave(&b->live);
    return s;
}
