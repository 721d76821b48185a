#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/confine.h"
#include "common/hostbox/hostbox.h"
#include "helpers/helpers.h"

/* Files of a workspace that is a folder of this machine. */

enum {
    PIECE = 64 * 1024,
    REMOVE_TRIES = 100, /* a write may be under way */
    REMOVE_WAIT_US = 10000,
};

static atomic_uint serial; /* of files that are being written */

static mango_status special(const struct mango_host *h, const struct mango_call *call)
{
    return fail(h, call, MANGO_EINVALID, "not a regular file");
}

mango_status helper_check(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f)
{
    return f->fd < 0 ? fail(h, call, MANGO_EGONE, "the workspace does not exist any more") : MANGO_OK;
}

int helper_open(const struct mango_folder *f, struct mango_sv path, uint64_t flags)
{
    return confine_open(&(struct confine){f->path, f->fd}, path, flags);
}

static mango_status stream_out(const struct mango_host *h, const struct mango_call *call, int fd,
                               const struct mango_read_req *req, int32_t *ret_eof)
{
    char *piece = malloc(PIECE);
    mango_status s = piece ? MANGO_OK : fail(h, call, MANGO_ERETRY, "out of memory");
    uint64_t done = 0;
    *ret_eof = 0;
    while (s == MANGO_OK && done < req->max) {
        uint64_t want = req->max - done < PIECE ? req->max - done : PIECE;
        ssize_t n = pread(fd, piece, want, (off_t)(req->offset + done));
        if (n < 0 && errno != EINTR)
            s = fail_path(h, call, errno, req->path);
        *ret_eof = n == 0;
        if (n == 0 || (n > 0 && req->sink(req->sink_ctx, 0, piece, (uint64_t)n) != 0))
            break;
        done += n > 0 ? (uint64_t)n : 0;
        if (s == MANGO_OK && h->cancelled(h, call))
            s = MANGO_ECANCELED;
    }
    free(piece);
    struct stat st;
    if (s == MANGO_OK && !*ret_eof && fstat(fd, &st) == 0)
        *ret_eof = req->offset + done >= (uint64_t)st.st_size;
    return s;
}

mango_status mango_folder_read(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f,
                               const struct mango_read_req *req, int32_t *ret_eof)
{
    struct stat st;
    mango_status s = helper_check(h, call, f);
    if (s < 0)
        return s;
    if (req->offset > INT64_MAX || req->max > INT64_MAX)
        return fail(h, call, MANGO_EINVALID, "offset and max must be below 2^63");
    int fd = helper_open(f, req->path, O_PATH); /* a device may act when it is opened for reading */
    if (fd >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        close(fd);
        return special(h, call);
    }
    if (fd >= 0) {
        close(fd);
        fd = helper_open(f, req->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    }
    if (fd < 0)
        return fail_path(h, call, -fd, req->path);
    s = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? stream_out(h, call, fd, req, ret_eof) : special(h, call);
    close(fd);
    return s;
}

mango_status mango_folder_stat(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f,
                               struct mango_sv path, uint32_t flags, struct mango_stat *ret)
{
    struct stat st;
    mango_status s = helper_check(h, call, f);
    if (s < 0)
        return s;
    int fd = helper_open(f, path, O_PATH | (flags & MANGO_STAT_NOFOLLOW ? O_NOFOLLOW : 0));
    if (fd < 0)
        return fail_path(h, call, -fd, path);
    int e = fstat(fd, &st) < 0 ? errno : 0;
    close(fd);
    if (e)
        return fail_path(h, call, e, path);
    ret->kind = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' : 'o';
    ret->size = (uint64_t)st.st_size;
    ret->mode = st.st_mode & 07777;
    ret->mtime_us = (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000;
    return MANGO_OK;
}

/* ---- write ---- */

int helper_put(int fd, const char *p, uint64_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n < INT32_MAX ? n : INT32_MAX);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return errno;
        p += w;
        n -= (uint64_t)w;
    }
    return 0;
}

mango_status helper_put_all(const struct mango_host *h, const struct mango_call *call, int fd,
                            const struct helper_content *c, struct mango_sv path)
{
    int e = c->source ? 0 : helper_put(fd, c->whole.ptr, c->whole.len);
    char *piece = c->source ? malloc(PIECE) : NULL;
    int64_t total = 0, n = 0;
    mango_status s = c->source && !piece ? fail(h, call, MANGO_ERETRY, "out of memory") : MANGO_OK;
    while (piece && e == 0 && s == MANGO_OK && (n = c->source(c->ctx, piece, PIECE)) > 0) {
        e = helper_put(fd, piece, (uint64_t)n);
        total += n;
        if (h->cancelled(h, call))
            s = MANGO_ECANCELED;
    }
    free(piece);
    if (e)
        return fail_path(h, call, e, path);
    if (n < 0)
        return (mango_status)n;
    if (s == MANGO_OK && c->source && c->len >= 0 && total != c->len)
        return fail(h, call, MANGO_EINVALID, "the content ended too early");
    return s;
}

/* The whole content under another name first: a reader sees the old one or the new one. */
static mango_status write_into(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f,
                               int dir, const char *name, const struct mango_write_req *req)
{
    struct stat st;
    char fresh[64];
    bool old = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const struct helper_content content = {req->content, req->source, req->source_ctx, req->source_len};
    if (old && !S_ISREG(st.st_mode))
        return special(h, call);
    if (old && faccessat(dir, name, W_OK, AT_EACCESS) < 0)
        return fail_path(h, call, errno, req->path);
    snprintf(fresh, sizeof(fresh), "%d-%u", (int)getpid(), atomic_fetch_add(&serial, 1));
    int fd = openat(f->fresh_fd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_path(h, call, errno, req->path);
    mango_status s = helper_put_all(h, call, fd, &content, req->path);
    mode_t mode = old ? st.st_mode & 07777 : req->mode ? req->mode & 07777 : 0644;
    if (s == MANGO_OK && (fchmod(fd, mode) < 0 || renameat(f->fresh_fd, fresh, dir, name) < 0))
        s = fail_path(h, call, errno, req->path);
    close(fd);
    if (s < 0)
        (void)unlinkat(f->fresh_fd, fresh, 0);
    return s;
}

mango_status mango_folder_write(const struct mango_host *h, const struct mango_call *call, const struct mango_folder *f,
                                const struct mango_write_req *req)
{
    char name[256];
    mango_status s = helper_check(h, call, f);
    if (s < 0)
        return s;
    int dir = confine_parent(&(struct confine){f->path, f->fd}, req->path, name);
    if (dir < 0)
        return fail_path(h, call, -dir, req->path);
    s = write_into(h, call, f, dir, name, req);
    close(dir);
    return s;
}

int mango_folder_remove(int parent_fd, const char *name)
{
    int e = 0;
    for (int i = 0; i < REMOVE_TRIES && (e = remove_tree(parent_fd, name)) != 0; i++)
        (void)usleep(REMOVE_WAIT_US);
    return e;
}
