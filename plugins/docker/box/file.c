#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "docker/box/box.h"

/* Files of the workspace. Content is written into a file without a name, which gets the target's in one step at the end:
 * no listing ever shows a part of it, and a connection that ends leaves nothing. */

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

static bool parse(const char *p, size_t n, struct mux_file *f, struct mango_sv *path)
{
    if (n < sizeof(*f) || n - sizeof(*f) > MUX_PATH_MAX)
        return false;
    memcpy(f, p, sizeof(*f));
    *path = (struct mango_sv){p + sizeof(*f), n - sizeof(*f)};
    return true;
}

/* ---- read ---- */

/* Looked at before it is opened (a device may act on open), and once more on the descriptor that is read. */
static int open_regular(const struct box *b, struct mango_sv path, const char **ret_text)
{
    struct stat st;
    int fd = confine_open(&b->ws, path, O_PATH);
    if (fd < 0)
        return fd;
    int e = fstat(fd, &st) < 0 ? errno : 0;
    close(fd);
    if (e)
        return -e;
    if (S_ISREG(st.st_mode)) {
        fd = confine_open(&b->ws, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
            return fd;
        close(fd);
    }
    *ret_text = kind_text(st.st_mode);
    return -EINVAL;
}

void file_read(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_file f;
    struct mango_sv path;
    const char *text = "";
    if (!parse(p, n, &f, &path) || f.offset > INT64_MAX || f.max > INT64_MAX)
        return box_fail(b, id, EPROTO, "");
    int fd = open_regular(b, path, &text);
    if (fd < 0)
        return box_fail(b, id, -fd, text);
    struct chan *c = box_channel(b, id, CHAN_READ);
    if (!c) {
        close(fd);
        return;
    }
    c->fd = fd;
    c->at = f.offset;
    c->left = f.max;
}

static void end_read(struct box *b, struct chan *c, int error, bool eof)
{
    struct mux_end end = {.error = error, .eof = eof};
    box_end(b, c, &end, "");
}

void file_more(struct box *b, struct chan *c)
{
    char buf[MUX_DATA_MAX];
    while (c->left > 0 && c->credit > 0 && b->out_len - b->out_at < OUT_QUEUE_MAX) {
        size_t want = c->credit < sizeof(buf) ? c->credit : sizeof(buf);
        ssize_t n = pread(c->fd, buf, c->left < want ? c->left : want, (off_t)c->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return end_read(b, c, n < 0 ? errno : 0, n == 0);
        box_send(b, c->id, MUX_DATA, 0, buf, (size_t)n);
        c->at += (uint64_t)n;
        c->left -= (uint64_t)n;
        c->credit -= (uint32_t)n;
    }
    if (c->left > 0)
        return;
    struct stat st;
    end_read(b, c, 0, fstat(c->fd, &st) == 0 && c->at >= (uint64_t)st.st_size);
}

/* ---- write ---- */

/* Refuses what must not be replaced. 0 or errno. */
static int check_target(const struct chan *c, struct stat *st, bool *ret_there, const char **ret_text)
{
    *ret_there = false;
    if (fstatat(c->dir_fd, c->name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : errno;
    *ret_there = true;
    if (S_ISDIR(st->st_mode))
        return EISDIR;
    if (!S_ISREG(st->st_mode)) {
        *ret_text = kind_text(st->st_mode);
        return EINVAL;
    }
    if ((st->st_mode & 0222) == 0 || faccessat(c->dir_fd, c->name, W_OK, AT_EACCESS) < 0) {
        *ret_text = "is read-only; change its mode first";
        return EACCES;
    }
    return 0;
}

void file_write(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_file f;
    struct mango_sv path;
    struct stat st;
    bool there;
    const char *text = "";
    if (!parse(p, n, &f, &path))
        return box_fail(b, id, EPROTO, "");
    struct chan *c = box_channel(b, id, CHAN_WRITE);
    if (!c)
        return;
    c->mode = f.mode ? f.mode & 07777 : 0644;
    c->dir_fd = confine_parent(&b->ws, path, c->name);
    int e = c->dir_fd < 0 ? -c->dir_fd : check_target(c, &st, &there, &text);
    if (e == 0) {
        /* dir_fd is opened with O_PATH. */
        c->fd = openat(c->dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        e = c->fd < 0 ? errno : 0;
    }
    if (e) {
        struct mux_end end = {.error = e};
        box_end(b, c, &end, text);
    }
}

void file_data(struct box *b, struct chan *c, const char *p, size_t n)
{
    uint32_t more = (uint32_t)n;
    while (n > 0 && c->error == 0) {
        ssize_t w = write(c->fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0) {
            c->error = errno;
            break;
        }
        p += w;
        n -= (size_t)w;
    }
    if (c->error) { /* told at once: the rest need not be sent */
        struct mux_end end = {.error = c->error};
        return box_end(b, c, &end, "");
    }
    box_send(b, c->id, MUX_CREDIT, 0, &more, sizeof(more));
}

/* Extended attributes of the old file; those that only root may set are left. */
static int copy_xattrs(const struct chan *c)
{
    int from = openat(c->dir_fd, c->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0)
        return 0; /* not readable: then its attributes are not ours to read either */
    char *names = malloc(XATTR_NAMES_MAX), *value = malloc(XATTR_VALUE_MAX);
    ssize_t n = names && value ? flistxattr(from, names, XATTR_NAMES_MAX) : 0;
    int e = 0;
    for (ssize_t at = 0; at < n && e == 0; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t len = fgetxattr(from, names + at, value, XATTR_VALUE_MAX);
        if (len >= 0 && fsetxattr(c->fd, names + at, value, (size_t)len, 0) < 0 && errno != EPERM && errno != ENOTSUP)
            e = errno;
    }
    free(names);
    free(value);
    close(from);
    return e;
}

static int inherit(struct chan *c, const char **ret_text)
{
    struct stat st;
    bool there;
    int e = check_target(c, &st, &there, ret_text);
    if (e || !there)
        return e ? e : fchmod(c->fd, c->mode) < 0 ? errno : 0;
    e = copy_xattrs(c);
    return e ? e : fchmod(c->fd, st.st_mode & 07777) < 0 ? errno : 0;
}

/* Under a hidden name for the moment between two system calls: only a rename replaces what is there. */
static int give_name(const struct chan *c)
{
    char self[64], temp[64];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", c->fd);
    for (int i = 0; i < NAME_TRIES; i++) {
        unsigned long long random = 0;
        (void)!getrandom(&random, sizeof(random), 0);
        snprintf(temp, sizeof(temp), ".mango-write-%016llx", random);
        if (linkat(AT_FDCWD, self, c->dir_fd, temp, AT_SYMLINK_FOLLOW) < 0) {
            if (errno == EEXIST)
                continue;
            return errno;
        }
        int e = renameat(c->dir_fd, temp, c->dir_fd, c->name) < 0 ? errno : 0;
        if (e)
            (void)unlinkat(c->dir_fd, temp, 0);
        return e;
    }
    return EEXIST;
}

void file_commit(struct box *b, struct chan *c)
{
    const char *text = "";
    struct mux_end end = {.error = inherit(c, &text)};
    if (end.error == 0)
        end.error = give_name(c);
    box_end(b, c, &end, text);
}

/* ---- stat ---- */

void file_stat(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_file f;
    struct mango_sv path;
    struct stat st = {0};
    if (!parse(p, n, &f, &path))
        return box_fail(b, id, EPROTO, "");
    bool nofollow = f.flags & MUX_NOFOLLOW;
    int fd = confine_open(&b->ws, path, O_PATH | (nofollow ? O_NOFOLLOW : 0));
    /* A link that leads nowhere or outside is still there: it is shown as what it is. */
    if ((fd == -ENOENT || fd == -EXDEV || fd == -ELOOP) && !nofollow) {
        int link = confine_open(&b->ws, path, O_PATH | O_NOFOLLOW);
        if (link >= 0 && fstat(link, &st) == 0 && S_ISLNK(st.st_mode))
            fd = link;
        else if (link >= 0)
            close(link);
    }
    int e = fd < 0 ? -fd : fstat(fd, &st) < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (e)
        return box_fail(b, id, e, "");
    struct mux_end end = {
        .kind = S_ISREG(st.st_mode)   ? 'f'
                : S_ISDIR(st.st_mode) ? 'd'
                : S_ISLNK(st.st_mode) ? 'l'
                                      : 'o',
        .mode = st.st_mode & 07777,
        .size = (uint64_t)st.st_size,
        .mtime_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000,
    };
    struct chan *c = box_channel(b, id, CHAN_NONE);
    if (c)
        box_end(b, c, &end, "");
}
