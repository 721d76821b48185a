#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.h"
#include "common/tar.h"
#include "docker/box/box.h"

/* Archives: `mango-box pack ROOT FOLDER` writes one of the folder to standard output, `mango-box unpack ROOT FOLDER` reads
 * one from standard input into it. Commands like any other, so streams, limits and cancelling are the caller's. */

enum {
    DEPTH_MAX = 400, /* folders in each other, one descriptor each; the limit of open files is 1,024 */
    PIECE = 64 * 1024,
};

static int complain(const char *path, int errnum)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errnum));
    return 1;
}

/* ---- out ---- */

static int put_out(struct text *t)
{
    bool ok = !t->bad && write_whole(STDOUT_FILENO, text_view(t).ptr, t->len);
    text_free(t);
    return ok ? 0 : complain("standard output", EPIPE);
}

/* Exactly size bytes follow the head, whatever happens to the file meanwhile. */
static int put_content(int fd, uint64_t size)
{
    static char piece[PIECE];
    struct text pad = {0};
    for (uint64_t left = size; left > 0;) {
        ssize_t n = read(fd, piece, left < sizeof(piece) ? left : sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* it has become shorter */
            memset(piece, 0, sizeof(piece));
            n = left < sizeof(piece) ? (ssize_t)left : (ssize_t)sizeof(piece);
        }
        if (!write_whole(STDOUT_FILENO, piece, (size_t)n))
            return complain("standard output", EPIPE);
        left -= (uint64_t)n;
    }
    tar_pad(&pad, size);
    return put_out(&pad);
}

static int pack_folder(int dir_fd, const char *path, int depth);

static int pack_entry(int dir_fd, const char *name, const char *path, int depth)
{
    struct stat st;
    struct text head = {0};
    char target[TAR_PATH_MAX] = "";
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : complain(path, errno);
    struct tar_entry e = {.path = sv_z(path),
                          .kind = file_kind(st.st_mode),
                          .mtime_s = st.st_mtim.tv_sec,
                          .mode = st.st_mode & 07777,
                          .uid = st.st_uid,
                          .gid = st.st_gid};
    if (e.kind == 'o')
        return 0; /* sockets and FIFOs are of the moment */
    int fd = -1;
    if (e.kind != 'l') {
        fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (e.kind == 'd' ? O_DIRECTORY : 0));
        if (fd < 0 || fstat(fd, &st) < 0) {
            int rc = errno == ENOENT ? 0 : complain(path, errno);
            if (fd >= 0)
                close(fd);
            return rc;
        }
        e.size = e.kind == 'f' ? (uint64_t)st.st_size : 0;
    } else {
        ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);
        if (n < 0)
            return complain(path, errno);
        target[n] = '\0';
        e.link = sv_z(target);
    }
    tar_head(&head, &e);
    int rc = put_out(&head);
    if (rc == 0 && e.kind == 'f')
        rc = put_content(fd, e.size);
    if (rc == 0 && e.kind == 'd')
        return pack_folder(fd, path, depth + 1); /* closes fd */
    if (fd >= 0)
        close(fd);
    return rc;
}

static int pack_folder(int dir_fd, const char *path, int depth)
{
    char below[TAR_PATH_MAX];
    DIR *d = depth < DEPTH_MAX ? fdopendir(dir_fd) : NULL;
    int rc = 0;
    if (!d) {
        close(dir_fd);
        return complain(path, depth < DEPTH_MAX ? errno : ELOOP);
    }
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int n = snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "", e->d_name);
        rc = n < 0 || n >= (int)sizeof(below) ? complain(path, ENAMETOOLONG)
                                              : pack_entry(dirfd(d), e->d_name, below, depth);
    }
    closedir(d);
    return rc;
}

int pack_main(const char *root, const char *path)
{
    struct confine ws = {root, open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    struct text end = {0};
    if (ws.root_fd < 0)
        return complain(root, errno);
    int fd = confine_open(&ws, sv_z(path), O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return complain(path, -fd);
    int rc = pack_folder(fd, "", 0);
    tar_end(&end);
    return rc ? rc : put_out(&end);
}

/* ---- in ---- */

struct unpack {
    struct confine to;
    int fd; /* of the file that comes; -1: none, its content is dropped */
    char name[TAR_PATH_MAX + 1];
};

/* Folders get their mode at once but for the owner's own rights, which unpacking needs. */
static int make_folder(const struct unpack *u, int parent, const char *name, const struct tar_entry *e)
{
    (void)u;
    if (mkdirat(parent, name, (e->mode & 0777) | 0700) < 0 && errno != EEXIST)
        return errno;
    return 0;
}

static int make_link(const struct unpack *u, int parent, const char *name, const struct tar_entry *e)
{
    char target[TAR_PATH_MAX + 1], self[64];
    snprintf(target, sizeof(target), "%.*s", (int)e->link.len, e->link.ptr);
    (void)unlinkat(parent, name, 0);
    if (e->kind == 'l')
        return symlinkat(target, parent, name) < 0 ? errno : 0;
    int from = confine_open(&u->to, sv_z(target), O_PATH | O_NOFOLLOW);
    if (from < 0)
        return -from;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", from);
    int rc = linkat(AT_FDCWD, self, parent, name, AT_SYMLINK_FOLLOW) < 0 ? errno : 0;
    close(from);
    return rc;
}

static int make_file(struct unpack *u, int parent, const char *name, const struct tar_entry *e)
{
    (void)unlinkat(parent, name, 0);
    u->fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (u->fd < 0)
        return errno;
    return fchmod(u->fd, e->mode & 0777) < 0 ? errno : 0;
}

static int32_t on_entry(void *ctx, const struct tar_entry *e)
{
    struct unpack *u = ctx;
    char name[256];
    if (u->fd >= 0)
        close(u->fd);
    u->fd = -1;
    snprintf(u->name, sizeof(u->name), "%.*s", (int)e->path.len, e->path.ptr);
    if (e->kind == 'o')
        return 0;
    struct mango_sv path = e->path;
    while (path.len > 0 && path.ptr[path.len - 1] == '/')
        path.len--;
    if (path.len == 0 || (path.len == 1 && path.ptr[0] == '.'))
        return 0; /* the folder itself */
    if (path.ptr[0] == '/')
        return complain(u->name, EXDEV);
    int parent = confine_parent(&u->to, path, name);
    if (parent < 0)
        return complain(u->name, -parent);
    int rc = e->kind == 'd'   ? make_folder(u, parent, name, e)
             : e->kind == 'f' ? make_file(u, parent, name, e)
                              : make_link(u, parent, name, e);
    close(parent);
    return rc ? complain(u->name, rc) : 0;
}

static int32_t on_content(void *ctx, const char *p, uint64_t n)
{
    const struct unpack *u = ctx;
    return u->fd < 0 || write_whole(u->fd, p, n) ? 0 : complain(u->name, errno);
}

int unpack_main(const char *root, const char *path)
{
    static char piece[PIECE];
    struct confine ws = {root, open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    char name[256], to[TAR_PATH_MAX + 256];
    if (ws.root_fd < 0)
        return complain(root, errno);
    int fd = confine_open(&ws, sv_z(path), O_RDONLY | O_DIRECTORY);
    if (fd == -ENOENT) {
        int parent = confine_parent(&ws, sv_z(path), name);
        if (parent < 0 || (mkdirat(parent, name, 0755) < 0 && errno != EEXIST))
            return complain(path, parent < 0 ? -parent : errno);
        close(parent);
        fd = confine_open(&ws, sv_z(path), O_RDONLY | O_DIRECTORY);
    }
    if (fd < 0)
        return complain(path, -fd);
    snprintf(to, sizeof(to), "/proc/self/fd/%d", fd); /* no path in an archive begins so */
    struct unpack u = {.to = {to, fd}, .fd = -1};
    struct tar_reader r = {.ctx = &u, .entry = on_entry, .content = on_content};
    int rc = TAR_OK;
    ssize_t n;
    while (rc == TAR_OK && (n = read(STDIN_FILENO, piece, sizeof(piece))) != 0) {
        if (n < 0 && errno != EINTR)
            return complain("standard input", errno);
        if (n > 0)
            rc = tar_feed(&r, piece, (uint64_t)n);
    }
    if (u.fd >= 0)
        close(u.fd);
    if (rc == TAR_BAD)
        return complain("the archive", EBADMSG);
    return rc || !tar_whole(&r) ? rc ? 1 : complain("the archive", ENODATA) : 0;
}
