#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.h"
#include "docker/box/box.h"

/* Files of the workspace. Content is written into a file without a name, which gets the target's in one step at the end:
 * no listing ever shows a part of it, and a connection that ends leaves nothing. */

static bool parse(const char *p, size_t n, struct mux_file *f, struct mango_sv *path)
{
    if (n < sizeof(*f) || n - sizeof(*f) > MUX_PATH_MAX)
        return false;
    memcpy(f, p, sizeof(*f));
    *path = (struct mango_sv){p + sizeof(*f), n - sizeof(*f)};
    return true;
}

/* ---- read ---- */

void file_read(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_file f;
    struct mango_sv path;
    struct stat st;
    const char *text = "";
    if (!parse(p, n, &f, &path) || f.offset > INT64_MAX || f.max > INT64_MAX)
        return box_fail(b, id, EPROTO, "");
    int fd = file_open_regular(opener_of(&b->ws), path, &st, &text);
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
    int e = c->dir_fd < 0 ? -c->dir_fd : file_target(c->dir_fd, c->name, &st, &there, &text);
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
    if (!write_whole(c->fd, p, n))
        c->error = errno;
    if (c->error) { /* told at once: the rest need not be sent */
        struct mux_end end = {.error = c->error};
        return box_end(b, c, &end, "");
    }
    box_send(b, c->id, MUX_CREDIT, 0, &more, sizeof(more));
}

void file_commit(struct box *b, struct chan *c)
{
    const char *text = "";
    struct mux_end end = {.error = file_inherit(c->dir_fd, c->name, c->fd, c->mode, &text)};
    if (end.error == 0)
        end.error = file_give_name(c->fd, c->dir_fd, c->name);
    box_end(b, c, &end, text);
}

/* ---- stat ---- */

void file_stat(struct box *b, uint32_t id, const char *p, size_t n)
{
    struct mux_file f;
    struct mango_sv path;
    struct stat st;
    if (!parse(p, n, &f, &path))
        return box_fail(b, id, EPROTO, "");
    int e = file_look(opener_of(&b->ws), path, f.flags & MUX_NOFOLLOW, &st);
    if (e)
        return box_fail(b, id, e, "");
    struct mux_end end = {
        .kind = (unsigned char)file_kind(st.st_mode),
        .mode = st.st_mode & 07777,
        .size = (uint64_t)st.st_size,
        .mtime_us = file_mtime_us(&st),
    };
    struct chan *c = box_channel(b, id, CHAN_NONE);
    if (c)
        box_end(b, c, &end, "");
}
