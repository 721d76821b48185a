#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"
#include "common/files.h"

enum {
    COPY_BYTES = 64 * 1024,
    NAME_TRIES = 8,
};

static mango_status special(const struct box *b, const struct mango_call *call, struct mango_sv path, const char *text)
{
    char name[SHOWN_MAX + 1];
    shown(path, name);
    return fail(b->all->host, call, MANGO_EINVALID, "'%s' %s", name, text);
}

static int open_in_box(const void *ctx, struct mango_sv path, uint64_t flags)
{
    return path_open(ctx, path, flags);
}

/* ---- read ---- */

static mango_status open_regular(const struct box *b, const struct mango_call *call, struct mango_sv path, int *ret_fd)
{
    struct stat st;
    const char *text = NULL;
    *ret_fd = file_open_regular((struct opener){open_in_box, b}, path, &st, &text);
    if (*ret_fd >= 0)
        return MANGO_OK;
    return text ? special(b, call, path, text) : fail_path(b->all->host, call, -*ret_fd, path);
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

static mango_status fill(const struct box *b, const struct mango_call *call, int fd, const struct mango_write_req *req)
{
    const struct mango_host *h = b->all->host;
    if (!req->source) {
        bool ok = write_whole(fd, req->content.ptr, req->content.len);
        return ok ? MANGO_OK : fail_path(b->all->host, call, errno, req->path);
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
        if (!write_whole(fd, buf, (uint64_t)n))
            s = fail_path(b->all->host, call, errno, req->path);
        else if (h->cancelled(h, call))
            s = MANGO_ECANCELED;
    }
    free(buf);
    if (s == MANGO_OK && req->source_len >= 0 && total != req->source_len)
        s = fail(b->all->host, call, MANGO_EINVALID, "the content ended after %lld of %lld bytes", (long long)total,
                 (long long)req->source_len);
    return s;
}

/* What the new file takes over from the one that it replaces. Refuses what must not be replaced. */
static mango_status inherit(const struct box *b, const struct mango_call *call, int dir_fd, const char *name, int fd,
                            const struct mango_write_req *req)
{
    struct stat st;
    bool there;
    const char *text = NULL;
    char shown_path[SHOWN_MAX + 1];
    int e = file_target(dir_fd, name, &st, &there, &text);
    shown(req->path, shown_path);
    if (e == EACCES && text)
        return fail(b->all->host, call, MANGO_EDENIED, "'%s' is read-only (mode %04o); change its mode first",
                    shown_path, st.st_mode & 07777U);
    if (e && text)
        return special(b, call, req->path, text);
    if (e || !there)
        return e ? fail_path(b->all->host, call, e, req->path) : MANGO_OK;
    e = file_xattrs(dir_fd, name, fd);
    if (e == 0 && (st.st_uid != geteuid() || st.st_gid != getegid()) && fchown(fd, st.st_uid, st.st_gid) < 0)
        e = errno == EPERM ? 0 : errno;
    if (e == 0 && fchmod(fd, st.st_mode & 07777) < 0)
        e = errno;
    return e ? fail_path(b->all->host, call, e, req->path) : MANGO_OK;
}

void staging_sweep(const struct box *b)
{
    int copy = openat(b->staging_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, FILE_TEMP_PREFIX, sizeof(FILE_TEMP_PREFIX) - 1) != 0)
            continue;
        pid_t writer = (pid_t)strtol(e->d_name + sizeof(FILE_TEMP_PREFIX) - 1, NULL, 10);
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
        snprintf(name, 64, FILE_TEMP_PREFIX "%d-%s", (int)getpid(), random);
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
    struct stat st;
    mango_status s = box_enter(ctx, call, id, &b);
    if (s < 0)
        return s;
    int e = file_look((struct opener){open_in_box, b}, path, flags & MANGO_STAT_NOFOLLOW, &st);
    if (e)
        s = fail_path(b->all->host, call, e, path);
    if (s == MANGO_OK) {
        ret->kind = (unsigned char)file_kind(st.st_mode);
        ret->size = (uint64_t)st.st_size;
        ret->mtime_us = file_mtime_us(&st);
        ret->mode = st.st_mode & 07777;
    }
    live_leave(&b->live);
    return s;
}
