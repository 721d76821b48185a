#include "common/rbox/rbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Files of the workspace. Every path is opened beneath the root by the kernel. */

enum {
    XATTR_NAMES_MAX = 16 * 1024,
    XATTR_VALUE_MAX = 64 * 1024, /* the kernel's limit for a value */
    NAME_TRIES = 8,
};

static const char *kind_text(mode_t m)
{
    return S_ISFIFO(m)   ? "is a FIFO; only regular files can be read or written"
           : S_ISSOCK(m) ? "is a socket; only regular files can be read or written"
           : S_ISCHR(m)  ? "is a character device; only regular files can be read or written"
           : S_ISBLK(m)  ? "is a block device; only regular files can be read or written"
           : S_ISDIR(m)  ? "is a folder; only regular files can be read or written"
                         : "is no regular file";
}

/* ---- stat ---- */

int stat_main(const char *path, bool follow_link)
{
    struct stat st = {0};
    char result[256];
    began();
    int fd = confine_open(&ws, sv_z(path), O_PATH | (follow_link ? 0 : O_NOFOLLOW));
    /* A link that leads nowhere or outside is still there: it is shown as what it is. */
    if ((fd == -ENOENT || fd == -EXDEV || fd == -ELOOP) && follow_link) {
        int link = confine_open(&ws, sv_z(path), O_PATH | O_NOFOLLOW);
        if (link >= 0 && fstat(link, &st) == 0 && S_ISLNK(st.st_mode))
            fd = link;
    }
    if (fd < 0)
        return say_errno(-fd, "");
    if (fstat(fd, &st) < 0)
        return say_errno(errno, "");
    const char *kind = S_ISREG(st.st_mode) ? "f" : S_ISDIR(st.st_mode) ? "d" : S_ISLNK(st.st_mode) ? "l" : "o";
    snprintf(result, sizeof(result),
             "{\"how\":\"" RBOX_DONE "\",\"kind\":\"%s\",\"size\":%lld,\"mode\":%u,\"mtime_us\":%lld}", kind,
             (long long)st.st_size, (unsigned)st.st_mode & 07777,
             (long long)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000);
    return say_result(result);
}

/* ---- read ---- */

/* Looked at before it is opened (a device may act on open), and once more on the descriptor that is read. */
static int open_regular(const char *path, struct stat *st, const char **ret_text)
{
    int fd = confine_open(&ws, sv_z(path), O_PATH);
    if (fd < 0)
        return fd;
    int e = fstat(fd, st) < 0 ? errno : 0;
    close(fd);
    if (e)
        return -e;
    if (S_ISREG(st->st_mode)) {
        fd = confine_open(&ws, sv_z(path), O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || (fstat(fd, st) == 0 && S_ISREG(st->st_mode)))
            return fd;
        close(fd);
    }
    *ret_text = kind_text(st->st_mode);
    return -EINVAL;
}

/* n bytes from offset, as frames (whole false) or as they are; the number of bytes, or -errno. */
static int64_t copy_range(int from, uint64_t offset, uint64_t n, int to, bool frames)
{
    char piece[RBOX_DATA_MAX];
    uint64_t done = 0;
    while (done < n) {
        ssize_t got = pread(from, piece, n - done < sizeof(piece) ? n - done : sizeof(piece), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : (int64_t)done;
        if (frames ? !put_frame(to, RBOX_CONTENT, piece, (size_t)got) : write(to, piece, (size_t)got) != got)
            return -(errno ? errno : EIO);
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

static int done_read(uint64_t staged, uint64_t base, uint64_t n, bool eof)
{
    char result[256];
    snprintf(result, sizeof(result), "{\"how\":\"" RBOX_DONE "\",\"staged\":%s,\"base\":%llu,\"size\":%llu,\"eof\":%s}",
             staged ? "true" : "false", (unsigned long long)base, (unsigned long long)n, eof ? "true" : "false");
    return say_result(result);
}

/* A second name for the file, which no one swaps: its content is fetched under that. Where no name can be given (another file
 * system, somebody else's file), a copy of the range. */
static int stage(int fd, const char *id, uint64_t offset, uint64_t n, bool eof)
{
    char self[64], name[RBOX_ID_MAX + 5];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    snprintf(name, sizeof(name), "%s.out", id);
    if (linkat(AT_FDCWD, self, run_dir, name, AT_SYMLINK_FOLLOW) == 0)
        return done_read(1, 0, n, eof);
    int to = openat(run_dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int64_t got = to < 0 ? -errno : copy_range(fd, offset, n, to, false);
    return got < 0 ? say_errno((int)-got, "cannot be copied for its download")
                   : done_read(1, offset, (uint64_t)got, eof);
}

int read_main(const char *id, uint64_t offset, uint64_t max, const char *path)
{
    struct stat st;
    const char *text = "";
    began();
    if (offset > INT64_MAX || max > INT64_MAX)
        return say_errno(EINVAL, "offset and max must be below 2^63");
    int fd = open_regular(path, &st, &text);
    if (fd < 0)
        return say_errno(-fd, text);
    uint64_t size = (uint64_t)st.st_size, left = size > offset ? size - offset : 0, n = left < max ? left : max;
    if (n > RBOX_INLINE_MAX)
        return stage(fd, id, offset, n, n == left);
    int64_t got = copy_range(fd, offset, n, STDOUT_FILENO, true);
    if (got < 0)
        return say_errno((int)-got, "");
    return done_read(0, offset, (uint64_t)got, (uint64_t)got == left);
}

/* ---- put ---- */

struct target {
    int dir; /* O_PATH */
    char name[256];
    struct stat st;
    bool there;
};

/* Refuses what must not be replaced. 0 or errno. */
static int check_target(struct target *t, const char **ret_text)
{
    t->there = fstatat(t->dir, t->name, &t->st, AT_SYMLINK_NOFOLLOW) == 0;
    if (!t->there)
        return errno == ENOENT ? 0 : errno;
    if (S_ISDIR(t->st.st_mode))
        return EISDIR;
    if (!S_ISREG(t->st.st_mode)) {
        *ret_text = kind_text(t->st.st_mode);
        return EINVAL;
    }
    if ((t->st.st_mode & 0222) == 0 || faccessat(t->dir, t->name, W_OK, AT_EACCESS) < 0) {
        *ret_text = "is read-only; change its mode first";
        return EACCES;
    }
    return 0;
}

/* Extended attributes of the old file; those that only root may set are left. */
static void copy_xattrs(const struct target *t, int to)
{
    int from = openat(t->dir, t->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *names = malloc(XATTR_NAMES_MAX), *value = malloc(XATTR_VALUE_MAX);
    ssize_t n = from >= 0 && names && value ? flistxattr(from, names, XATTR_NAMES_MAX) : 0;
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t len = fgetxattr(from, names + at, value, XATTR_VALUE_MAX);
        if (len >= 0)
            (void)fsetxattr(to, names + at, value, (size_t)len, 0);
    }
    free(names);
    free(value);
    if (from >= 0)
        close(from);
}

/* The content under a name beside the target's, on its file system. 0 or errno. */
static int bring_near(const struct target *t, const char *in, int from, char temp[64])
{
    for (int i = 0; i < NAME_TRIES; i++) {
        unsigned long long random = 0;
        (void)!getrandom(&random, sizeof(random), 0);
        snprintf(temp, 64, ".mango-write-%016llx", random);
        int to = openat(t->dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0 && errno == EEXIST)
            continue;
        struct stat st;
        int64_t n = to < 0 || fstat(from, &st) < 0 ? -errno : copy_range(from, 0, (uint64_t)st.st_size, to, false);
        int e = n < 0 ? (int)-n : fstat(from, &st) == 0 && fchmod(to, st.st_mode & 07777) == 0 ? 0 : errno;
        if (e == 0 && t->there)
            copy_xattrs(t, to);
        if (to >= 0)
            close(to);
        if (e)
            (void)unlinkat(t->dir, temp, 0);
        else
            (void)unlinkat(run_dir, in, 0);
        return e;
    }
    return EEXIST;
}

/* In one step: a reader sees the old content or the new one. */
static int give_name(struct target *t, const char *in, uint32_t mode)
{
    char temp[64];
    int fd = openat(run_dir, in, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int e = fchmod(fd, t->there ? t->st.st_mode & 07777 : mode) < 0 ? errno : 0;
    if (e == 0 && t->there)
        copy_xattrs(t, fd);
    if (e == 0 && renameat(run_dir, in, t->dir, t->name) < 0) {
        e = errno == EXDEV ? bring_near(t, in, fd, temp) : errno;
        if (e == 0 && renameat(t->dir, temp, t->dir, t->name) < 0) {
            e = errno;
            (void)unlinkat(t->dir, temp, 0);
        }
    }
    close(fd);
    return e;
}

/* A repetition finds no content any more, but the note that it was put. */
static int once(const char *id, int e)
{
    struct stat st;
    char note[RBOX_ID_MAX + 5];
    snprintf(note, sizeof(note), "%s.put", id);
    if (e == ENOENT && fstatat(run_dir, note, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    int fd = e ? -1 : openat(run_dir, note, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return e;
}

int put_main(const char *id, uint32_t mode, const char *path)
{
    char in[RBOX_ID_MAX + 4];
    struct target t = {0};
    const char *text = "";
    began();
    snprintf(in, sizeof(in), "%s.in", id);
    t.dir = confine_parent(&ws, sv_z(path), t.name);
    int e = t.dir < 0 ? -t.dir : check_target(&t, &text);
    if (e == 0)
        e = give_name(&t, in, mode ? mode & 07777 : 0644);
    e = once(id, e);
    if (e)
        (void)unlinkat(run_dir, in, 0);
    return e ? say_errno(e, text) : say_result("{\"how\":\"" RBOX_DONE "\"}");
}
