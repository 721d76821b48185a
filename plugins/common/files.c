#include "common/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    XATTR_NAMES_MAX = 16 * 1024, /* bytes of names that are carried over */
    XATTR_VALUE_MAX = 64 * 1024, /* the kernel's limit for a value */
    COPY_PIECE = 256 * 1024,     /* bytes of one read */
    NAME_TRIES = 8,
};

bool write_whole(int fd, const void *p, uint64_t n)
{
    for (const char *at = p; n > 0;) {
        ssize_t w = write(fd, at, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        at += w;
        n -= (uint64_t)w;
    }
    return true;
}

static int open_confined(const void *ctx, struct mango_sv path, uint64_t flags)
{
    return confine_open(ctx, path, flags);
}

struct opener opener_of(const struct confine *ws)
{
    return (struct opener){open_confined, ws};
}

/* ---- looking ---- */

char file_kind(mode_t m)
{
    return S_ISREG(m) ? 'f' : S_ISDIR(m) ? 'd' : S_ISLNK(m) ? 'l' : 'o';
}

int64_t file_mtime_us(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000 + st->st_mtim.tv_nsec / 1000;
}

const char *file_special(mode_t m)
{
    return S_ISFIFO(m)   ? "is a FIFO; only regular files can be read or written"
           : S_ISSOCK(m) ? "is a socket; only regular files can be read or written"
           : S_ISCHR(m)  ? "is a character device; only regular files can be read or written"
           : S_ISBLK(m)  ? "is a block device; only regular files can be read or written"
           : S_ISDIR(m)  ? "is a folder; only regular files can be read or written"
                         : "is no regular file";
}

int file_look(struct opener o, struct mango_sv path, bool nofollow, struct stat *ret)
{
    int fd = o.open(o.ctx, path, O_PATH | (nofollow ? O_NOFOLLOW : 0));
    if ((fd == -ENOENT || fd == -EXDEV || fd == -ELOOP) && !nofollow) {
        int link = o.open(o.ctx, path, O_PATH | O_NOFOLLOW);
        if (link >= 0 && fstat(link, ret) == 0 && S_ISLNK(ret->st_mode))
            fd = link;
        else if (link >= 0)
            close(link);
    }
    if (fd < 0)
        return -fd;
    int e = fstat(fd, ret) < 0 ? errno : 0;
    close(fd);
    return e;
}

/* Looked at before it is opened (a device may act on open), and once more on the descriptor that is read. */
int file_open_regular(struct opener o, struct mango_sv path, struct stat *st, const char **ret_text)
{
    int e = 0, fd = o.open(o.ctx, path, O_PATH);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        e = errno;
    close(fd);
    if (e)
        return -e;
    if (S_ISREG(st->st_mode)) {
        fd = o.open(o.ctx, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || (fstat(fd, st) == 0 && S_ISREG(st->st_mode)))
            return fd;
        close(fd);
    }
    *ret_text = file_special(st->st_mode);
    return -EINVAL;
}

/* ---- content on its way out ---- */

int64_t file_copy(int from, int to, uint64_t offset, uint64_t n)
{
    char *piece = malloc(COPY_PIECE);
    int64_t done = piece ? 0 : -ENOMEM;
    while (done >= 0 && (uint64_t)done < n) {
        uint64_t left = n - (uint64_t)done;
        ssize_t got = pread(from, piece, left < COPY_PIECE ? left : COPY_PIECE, (off_t)(offset + (uint64_t)done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            break;
        done = got > 0 && write_whole(to, piece, (uint64_t)got) ? done + got : -(errno ? errno : EIO);
    }
    free(piece);
    return done;
}

int file_stage(int fd, int dir, const char *name, mode_t mode, uint64_t offset, uint64_t n, int64_t *ret_copied)
{
    char self[64];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    *ret_copied = -1;
    (void)unlinkat(dir, name, 0); /* of an earlier try: a second name of somebody's file, never to be written to */
    if (linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    int to = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (to < 0)
        return errno;
    int64_t copied = file_copy(fd, to, offset, n);
    int e = copied < 0 ? (int)-copied : 0;
    if (close(to) < 0 && e == 0)
        e = errno;
    *ret_copied = copied;
    return e;
}

/* ---- replacing ---- */

int file_target(int dir, const char *name, struct stat *st, bool *ret_there, const char **ret_text)
{
    *ret_there = false;
    if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : errno;
    *ret_there = true;
    if (S_ISDIR(st->st_mode))
        return EISDIR;
    if (!S_ISREG(st->st_mode)) {
        *ret_text = file_special(st->st_mode);
        return EINVAL;
    }
    if ((st->st_mode & 0222) == 0 || faccessat(dir, name, W_OK, AT_EACCESS) < 0) {
        *ret_text = "is read-only; change its mode first";
        return EACCES;
    }
    return 0;
}

int file_xattrs(int dir, const char *name, int to)
{
    int from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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

int file_inherit(int dir, const char *name, int fd, mode_t mode, const char **ret_text)
{
    struct stat old;
    bool there;
    int e = file_target(dir, name, &old, &there, ret_text);
    if (e == 0 && there)
        e = file_xattrs(dir, name, fd);
    return e ? e : fchmod(fd, there ? old.st_mode & 07777 : mode) < 0 ? errno : 0;
}

void file_temp_name(char name[FILE_TEMP_LEN])
{
    unsigned long long random = 0;
    (void)!getrandom(&random, sizeof(random), 0);
    snprintf(name, FILE_TEMP_LEN, FILE_TEMP_PREFIX "%016llx", random);
}

static int rename_within(int dir, const char *temp, const char *name)
{
    int e = renameat(dir, temp, dir, name) < 0 ? errno : 0;
    if (e)
        (void)unlinkat(dir, temp, 0);
    return e;
}

/* Under a hidden name for the moment between two system calls: only a rename replaces what is there. */
int file_give_name(int fd, int dir, const char *name)
{
    char self[64], temp[FILE_TEMP_LEN];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    for (int i = 0; i < NAME_TRIES; i++) {
        file_temp_name(temp);
        if (linkat(AT_FDCWD, self, dir, temp, AT_SYMLINK_FOLLOW) == 0)
            return rename_within(dir, temp, name);
        if (errno != EEXIST)
            return errno;
    }
    return EEXIST;
}

/* A descriptor, or -errno. */
static int open_temp(int dir, char name[FILE_TEMP_LEN])
{
    for (int i = 0; i < NAME_TRIES; i++) {
        file_temp_name(name);
        int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : -errno;
    }
    return -EEXIST;
}

/* Another file system: the content is copied under a hidden name beside the target first. */
static int replace_beyond(int fd, int dir, const char *name, mode_t mode, const char **ret_text)
{
    char temp[FILE_TEMP_LEN];
    int to = open_temp(dir, temp);
    if (to < 0)
        return -to;
    int64_t n = file_copy(fd, to, 0, UINT64_MAX);
    int e = n < 0 ? (int)-n : file_inherit(dir, name, to, mode, ret_text);
    close(to);
    if (e)
        (void)unlinkat(dir, temp, 0);
    return e ? e : rename_within(dir, temp, name);
}

int file_replace(int from_dir, const char *content, int fd, int dir, const char *name, mode_t mode,
                 const char **ret_text)
{
    int e = file_inherit(dir, name, fd, mode, ret_text);
    if (e || renameat(from_dir, content, dir, name) == 0)
        return e;
    if (errno != EXDEV)
        return errno;
    e = replace_beyond(fd, dir, name, mode, ret_text);
    if (e == 0)
        (void)unlinkat(from_dir, content, 0);
    return e;
}
