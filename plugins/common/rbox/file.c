#include "common/rbox/rbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/files.h"

/* Files of the workspace. Every path is opened beneath the root by the kernel. */

/* ---- stat ---- */

int stat_main(const char *path, bool follow_link)
{
    struct stat st;
    char result[256];
    began();
    int e = file_look(opener_of(&ws), sv_z(path), !follow_link, &st);
    if (e)
        return say_errno(e, "");
    snprintf(result, sizeof(result),
             "{\"how\":\"" RBOX_DONE "\",\"kind\":\"%c\",\"size\":%lld,\"mode\":%u,\"mtime_us\":%lld}",
             file_kind(st.st_mode), (long long)st.st_size, (unsigned)st.st_mode & 07777, (long long)file_mtime_us(&st));
    return say_result(result);
}

/* ---- read ---- */

/* n bytes from offset as frames; their number, or -errno. */
static int64_t send_range(int from, uint64_t offset, uint64_t n)
{
    char piece[RBOX_DATA_MAX];
    uint64_t done = 0;
    while (done < n) {
        ssize_t got = pread(from, piece, n - done < sizeof(piece) ? n - done : sizeof(piece), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : (int64_t)done;
        if (!put_frame(STDOUT_FILENO, RBOX_CONTENT, piece, (size_t)got))
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

static int stage(int fd, const char *id, uint64_t offset, uint64_t n, bool eof)
{
    char name[RBOX_ID_MAX + 5];
    int64_t copied;
    snprintf(name, sizeof(name), "%s.out", id);
    int e = file_stage(fd, run_dir, name, 0644, offset, n, &copied);
    if (e)
        return say_errno(e, "cannot be copied for its download");
    return copied < 0 ? done_read(1, 0, n, eof) : done_read(1, offset, (uint64_t)copied, eof);
}

int read_main(const char *id, uint64_t offset, uint64_t max, const char *path)
{
    struct stat st;
    const char *text = "";
    began();
    if (offset > INT64_MAX || max > INT64_MAX)
        return say_errno(EINVAL, "offset and max must be below 2^63");
    int fd = file_open_regular(opener_of(&ws), sv_z(path), &st, &text);
    if (fd < 0)
        return say_errno(-fd, text);
    uint64_t size = (uint64_t)st.st_size, left = size > offset ? size - offset : 0, n = left < max ? left : max;
    if (n > RBOX_INLINE_MAX)
        return stage(fd, id, offset, n, n == left);
    int64_t got = send_range(fd, offset, n);
    if (got < 0)
        return say_errno((int)-got, "");
    return done_read(0, offset, (uint64_t)got, (uint64_t)got == left);
}

/* ---- put ---- */

int put_main(const char *id, uint32_t mode, const char *path)
{
    char in[RBOX_ID_MAX + 4], note[RBOX_ID_MAX + 5], name[256];
    const char *text = "";
    began();
    snprintf(in, sizeof(in), "%s.in", id);
    snprintf(note, sizeof(note), "%s.put", id);
    /* An answer may be lost, and the request come again: then there is no content any more, but the note that it was put. */
    if (faccessat(run_dir, note, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return say_result("{\"how\":\"" RBOX_DONE "\"}");
    int dir = confine_parent(&ws, sv_z(path), name);
    int fd = dir < 0 ? -1 : openat(run_dir, in, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int e = dir < 0 ? -dir : fd < 0 ? errno : 0;
    if (e == 0)
        e = file_replace(run_dir, in, fd, dir, name, mode ? mode & 07777 : 0644, &text);
    if (e) {
        (void)unlinkat(run_dir, in, 0);
        return say_errno(e, text);
    }
    fd = openat(run_dir, note, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return say_result("{\"how\":\"" RBOX_DONE "\"}");
}
