#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/errand/program.h"

/* Files of the workspace: what the service's own file calls cannot promise (no link leads out, old content or new content). */

enum {
    XATTR_NAMES_MAX = 16 * 1024,
    XATTR_VALUE_MAX = 64 * 1024, /* the kernel's limit for a value */
    COPY_PIECE = 256 * 1024,
};

#define PUT_DONE "put"

static const char *kind_text(mode_t m)
{
    return S_ISFIFO(m)   ? "is a FIFO; only regular files can be read or written"
           : S_ISSOCK(m) ? "is a socket; only regular files can be read or written"
           : S_ISCHR(m)  ? "is a character device; only regular files can be read or written"
           : S_ISBLK(m)  ? "is a block device; only regular files can be read or written"
           : S_ISDIR(m)  ? "is a folder; only regular files can be read or written"
                         : "is no regular file";
}

/* Looked at before it is opened (a device may act on open), and once more on the descriptor that is read. */
static int open_regular(const struct place *p, struct mango_sv path, struct stat *st, const char **ret_text)
{
    int fd = confine_open(&p->ws, path, O_PATH);
    if (fd < 0)
        return fd;
    int e = fstat(fd, st) < 0 ? errno : 0;
    close(fd);
    if (e)
        return -e;
    if (S_ISREG(st->st_mode)) {
        fd = confine_open(&p->ws, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || (fstat(fd, st) == 0 && S_ISREG(st->st_mode)))
            return fd;
        close(fd);
    }
    *ret_text = kind_text(st->st_mode);
    return -EINVAL;
}

/* ---- read ---- */

static int read_inline(int fd, uint64_t offset, uint64_t max)
{
    static char piece[ERRAND_READ_MAX];
    size_t have = 0;
    bool eof = false;
    while (have < max && !eof) {
        ssize_t n = pread(fd, piece + have, max - have, (off_t)(offset + have));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return answer_error(errno, "");
        eof = n == 0;
        have += (size_t)n;
    }
    struct stat st;
    eof = eof || (fstat(fd, &st) == 0 && offset + have >= (uint64_t)st.st_size);
    answer_content('d', offset, piece, have);
    answer(ERRAND_MARK "f - 0 %zu %d\n", have, eof);
    return 0;
}

static int copy(int from, int to, uint64_t offset, uint64_t max)
{
    char *piece = malloc(COPY_PIECE);
    int e = piece ? 0 : ENOMEM;
    while (e == 0 && max > 0) {
        ssize_t n = pread(from, piece, max < COPY_PIECE ? max : COPY_PIECE, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            e = n < 0 ? errno : 0;
            break;
        }
        if (!write_whole(to, piece, (size_t)n))
            e = errno;
        offset += (uint64_t)n;
        max -= (uint64_t)n;
    }
    free(piece);
    return e;
}

/* The file under a name that the service can fetch: a second name of the same file, or a copy of the part where that cannot be. */
static int stage(const struct place *p, int fd, uint64_t offset, uint64_t max, char name[40], uint64_t *ret_skip)
{
    char self[64];
    unsigned char random[ERRAND_NAME_LEN / 2];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return EIO;
    int at = snprintf(name, 40, "out-");
    for (size_t i = 0; i < sizeof(random); i++)
        at += snprintf(name + at, 40 - (size_t)at, "%02x", random[i]);
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    *ret_skip = offset;
    if (linkat(AT_FDCWD, self, p->dir, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    *ret_skip = 0;
    int to = openat(p->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int e = to < 0 ? errno : copy(fd, to, offset, max);
    if (to >= 0 && close(to) < 0 && e == 0)
        e = errno;
    return e;
}

int read_errand(const struct place *p, struct fields *f)
{
    struct stat st;
    const char *text = "";
    char name[40];
    struct mango_sv path = field_text(f);
    uint64_t offset = field_number(f), max = field_number(f), skip = 0;
    if (f->bad || offset > INT64_MAX || max > INT64_MAX)
        return answer_error(EPROTO, "");
    int fd = open_regular(p, path, &st, &text);
    if (fd < 0)
        return answer_error(-fd, text);
    uint64_t size = (uint64_t)st.st_size, there = size > offset ? size - offset : 0;
    if (there <= ERRAND_READ_MAX || max <= ERRAND_READ_MAX)
        return read_inline(fd, offset, max < ERRAND_READ_MAX ? max : ERRAND_READ_MAX);
    uint64_t take = max < there ? max : there;
    int e = stage(p, fd, offset, take, name, &skip);
    if (e)
        return answer_error(e, "");
    answer(ERRAND_MARK "f %s %llu %llu %d\n", name, (unsigned long long)skip, (unsigned long long)take, take == there);
    return 0;
}

/* ---- put ---- */

/* Refuses what must not be replaced. 0 or errno. */
static int check_target(int dir, const char *name, struct stat *st, bool *ret_there, const char **ret_text)
{
    *ret_there = false;
    if (fstatat(dir, name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : errno;
    *ret_there = true;
    if (S_ISDIR(st->st_mode))
        return EISDIR;
    if (!S_ISREG(st->st_mode)) {
        *ret_text = kind_text(st->st_mode);
        return EINVAL;
    }
    if ((st->st_mode & 0222) == 0 || faccessat(dir, name, W_OK, AT_EACCESS) < 0) {
        *ret_text = "is read-only; change its mode first";
        return EACCES;
    }
    return 0;
}

/* Extended attributes of the old file; those that only root may set are left. */
static int copy_xattrs(int dir, const char *name, int to)
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

/* The content gets the old file's mode and attributes, then its name in one step. */
static int take_name(const struct place *p, const char *content, int fd, int dir, const char *name, mode_t mode,
                     const char **ret_text)
{
    struct stat old;
    bool there;
    int e = check_target(dir, name, &old, &there, ret_text);
    if (e == 0 && there)
        e = copy_xattrs(dir, name, fd);
    if (e == 0 && fchmod(fd, there ? old.st_mode & 07777 : mode) < 0)
        e = errno;
    if (e == 0 && renameat(p->dir, content, dir, name) < 0)
        e = errno;
    return e;
}

/* Another file system below the root: the content is copied there under a hidden name first. */
static int take_name_beyond(int fd, int dir, const char *name, mode_t mode, const char **ret_text)
{
    char temp[64];
    unsigned long long random = 0;
    (void)!getrandom(&random, sizeof(random), 0);
    snprintf(temp, sizeof(temp), ".mango-write-%016llx", random);
    int to = openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct place there = {.dir = to};
    int out = to < 0 ? -1 : openat(to, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int e = out < 0 ? errno : copy(fd, out, 0, UINT64_MAX);
    if (e == 0)
        e = take_name(&there, temp, out, dir, name, mode, ret_text);
    if (e && to >= 0)
        (void)unlinkat(to, temp, 0);
    if (out >= 0)
        close(out);
    if (to >= 0)
        close(to);
    return e;
}

/* An answer may be lost, and the errand come again: what was done is noted under the content's name until that is removed. */
static bool was_put(const struct place *p, const char *content)
{
    char target[sizeof(PUT_DONE) + 1];
    ssize_t n = readlinkat(p->dir, content, target, sizeof(target));
    return n == sizeof(PUT_DONE) - 1 && memcmp(target, PUT_DONE, (size_t)n) == 0;
}

int put_errand(const struct place *p, struct fields *f)
{
    char name[256];
    struct stat st;
    bool there;
    const char *text = "";
    struct mango_sv path = field_text(f);
    mode_t mode = (mode_t)field_number(f) & 07777;
    const char *content = field_z(f);
    uint64_t bytes = field_number(f);
    if (f->bad || !name_ok(content, "in-", ERRAND_NAME_LEN))
        return answer_error(EPROTO, "");
    if (was_put(p, content)) {
        answer(ERRAND_MARK "k\n");
        return 0;
    }
    int fd = openat(p->dir, content, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    /* The service says that it took all; the file itself must say so too. */
    int e = fd < 0 || fstat(fd, &st) < 0 ? errno : (uint64_t)st.st_size != bytes ? ENODATA : 0;
    if (e)
        return answer_error(e, "the content did not arrive whole");
    int dir = confine_parent(&p->ws, path, name);
    e = dir < 0 ? -dir : check_target(dir, name, &st, &there, &text);
    if (e == 0)
        e = take_name(p, content, fd, dir, name, mode ? mode : 0644, &text);
    if (e == EXDEV && *text == '\0')
        e = take_name_beyond(fd, dir, name, mode ? mode : 0644, &text);
    if (e) {
        (void)unlinkat(p->dir, content, 0);
        return answer_error(e, text);
    }
    (void)unlinkat(p->dir, content, 0); /* there still after a copy */
    (void)symlinkat(PUT_DONE, p->dir, content);
    answer(ERRAND_MARK "k\n");
    return 0;
}

/* ---- stat ---- */

int stat_errand(const struct place *p, struct fields *f)
{
    struct stat st = {0};
    struct mango_sv path = field_text(f);
    bool nofollow = field_number(f) == 1;
    if (f->bad)
        return answer_error(EPROTO, "");
    int fd = confine_open(&p->ws, path, O_PATH | (nofollow ? O_NOFOLLOW : 0));
    /* A link that leads nowhere or outside is still there: it is shown as what it is. */
    if ((fd == -ENOENT || fd == -EXDEV || fd == -ELOOP) && !nofollow) {
        int link = confine_open(&p->ws, path, O_PATH | O_NOFOLLOW);
        if (link >= 0 && fstat(link, &st) == 0 && S_ISLNK(st.st_mode))
            fd = link;
        else if (link >= 0)
            close(link);
    }
    int e = fd < 0 ? -fd : fstat(fd, &st) < 0 ? errno : 0;
    if (e)
        return answer_error(e, "");
    char kind = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' : 'o';
    long long mtime = (long long)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    answer(ERRAND_MARK "s %c %llu %o %lld\n", kind, (unsigned long long)st.st_size, (unsigned)st.st_mode & 07777U,
           mtime);
    return 0;
}
