#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/errand/program.h"

/* Files of the workspace: what the service's own file calls cannot promise (no link leads out, old content or new content). */

#define PUT_DONE "put"

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

static int stage(const struct place *p, int fd, uint64_t offset, uint64_t max, char name[40], uint64_t *ret_skip)
{
    int64_t copied;
    memcpy(name, "out-", 4);
    random_hex(name + 4, ERRAND_NAME_LEN);
    int e = file_stage(fd, p->dir, name, 0600, offset, max, &copied);
    *ret_skip = copied < 0 ? offset : 0;
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
    int fd = file_open_regular(opener_of(&p->ws), path, &st, &text);
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
    e = dir < 0 ? -dir : file_replace(p->dir, content, fd, dir, name, mode ? mode : 0644, &text);
    if (e) {
        (void)unlinkat(p->dir, content, 0);
        return answer_error(e, text);
    }
    (void)symlinkat(PUT_DONE, p->dir, content);
    answer(ERRAND_MARK "k\n");
    return 0;
}

/* ---- stat ---- */

int stat_errand(const struct place *p, struct fields *f)
{
    struct stat st;
    struct mango_sv path = field_text(f);
    bool nofollow = field_number(f) == 1;
    if (f->bad)
        return answer_error(EPROTO, "");
    int e = file_look(opener_of(&p->ws), path, nofollow, &st);
    if (e)
        return answer_error(e, "");
    answer(ERRAND_MARK "s %c %llu %o %lld\n", file_kind(st.st_mode), (unsigned long long)st.st_size,
           (unsigned)st.st_mode & 07777U, (long long)file_mtime_us(&st));
    return 0;
}
