#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/errand/program.h"
#include "common/remote/base64.h"
#include "common/text.h"

/* The request, the answer's lines, and which errand it is. */

/* ---- the answer ---- */

/* Sent in one piece where it fits: each piece costs the service and the server a turn of their own. */
static struct {
    char text[64 * 1024];
    size_t len;
} out;

void answer_flush(void)
{
    (void)write_whole(STDOUT_FILENO, out.text, out.len);
    out.len = 0;
}

static void put(const char *p, size_t n)
{
    if (n > sizeof(out.text) - out.len)
        answer_flush();
    memcpy(out.text + out.len, p, n);
    out.len += n;
}

void answer(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    put(line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

int answer_error(int errnum, const char *text)
{
    answer(ERRAND_MARK "! %d %s\n", errnum, text);
    return 0;
}

void answer_content(char kind, uint64_t offset, const char *p, size_t n)
{
    while (n > 0) {
        size_t take = n < ERRAND_PIECE ? n : ERRAND_PIECE;
        struct text line = {0};
        text_printf(&line, ERRAND_MARK "%c %llu ", kind, (unsigned long long)offset);
        text_base64(&line, (struct mango_sv){p, take}, false);
        text_add(&line, "\n");
        if (!line.bad)               /* else it is missing, which is seen */
            put(line.ptr, line.len); /* of ERRAND_PIECE bytes at most: far below the room */
        text_free(&line);
        p += take;
        n -= take;
        offset += take;
    }
}

/* ---- the request ---- */

uint64_t field_number(struct fields *f)
{
    uint64_t v = 0;
    if (f->left < 8)
        f->bad = true;
    for (int i = 0; i < 8 && !f->bad; i++)
        v |= (uint64_t)(unsigned char)f->at[i] << (8 * i);
    if (!f->bad) {
        f->at += 8;
        f->left -= 8;
    }
    return v;
}

struct mango_sv field_text(struct fields *f)
{
    uint64_t n = field_number(f);
    if (n > f->left)
        f->bad = true;
    if (f->bad)
        return (struct mango_sv){"", 0};
    struct mango_sv s = {f->at, n};
    f->at += n;
    f->left -= n;
    return s;
}

const char *field_z(struct fields *f)
{
    struct mango_sv s = field_text(f);
    if (s.len > 0 && memchr(s.ptr, '\0', s.len)) {
        f->bad = true;
        return "";
    }
    char *z = strndup(s.ptr, s.len);
    f->bad |= !z;
    return z ? z : "";
}

/* ---- the folder ---- */

bool name_ok(const char *name, const char *prefix, size_t digits)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 && strlen(name + n) == digits &&
           strspn(name + n, "0123456789abcdef") == digits;
}

void remove_run(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.')
            (void)unlinkat(fd, e->d_name, 0);
    }
    if (d)
        closedir(d);
    (void)unlinkat(dir, name, AT_REMOVEDIR);
}

static void forget(const struct place *p, const char *name)
{
    if (name_ok(name, "run-", ERRAND_ID_LEN))
        remove_run(p->dir, name);
    else if (name_ok(name, "in-", ERRAND_NAME_LEN) || name_ok(name, "out-", ERRAND_NAME_LEN))
        (void)unlinkat(p->dir, name, 0);
}

/* What a server that died has left. A run counts from its result: one that goes on is never old. Content counts from when it
 * got its name here: on its way out it may be a second name of an old file. */
static void sweep(const struct place *p)
{
    int fd = openat(p->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    time_t old = time(NULL) - ERRAND_SWEEP_S;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300];
        struct stat st;
        bool run = strncmp(e->d_name, "run-", 4) == 0;
        snprintf(path, sizeof(path), run ? "%s/result" : "%s", e->d_name);
        if (fstatat(p->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ctime < old)
            forget(p, e->d_name);
    }
    if (d)
        closedir(d);
}

/* The program proves by running that it can, then gets its name: nobody ever starts half of one. */
static int hello(struct place *p, struct fields *f, const char *self)
{
    const char *name = field_z(f), *base = strrchr(self, '/');
    if (f->bad || !base || strncmp(base + 1, "errand-", 7) != 0)
        return answer_error(EPROTO, "");
    if (!confine_works(p->ws.root_fd))
        return answer_error(ENOSYS, "the kernel of the sandbox has no openat2 (Linux 5.6)");
    if (*name && strcmp(name, base + 1) != 0 && renameat(p->dir, base + 1, p->dir, name) < 0)
        return answer_error(errno, "");
    sweep(p);
    answer(ERRAND_MARK "k\n");
    return 0;
}

/* ---- which errand ---- */

static int open_place(struct place *p, struct fields *f)
{
    p->ws.root = field_z(f);
    p->ws.root_fd = open(p->ws.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->ws.root_fd < 0)
        return errno;
    p->dir = openat(p->ws.root_fd, ERRAND_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return p->dir < 0 ? errno : 0;
}

static int dispatch(struct place *p, struct fields *f, const char *self, uint64_t op)
{
    struct wait_for w;
    switch (op) {
    case ERRAND_HELLO:
        return hello(p, f, self);
    case ERRAND_RUN:
        return run_errand(p, f);
    case ERRAND_WAIT:
        return wait_fields(f, &w) ? wait_errand(p, &w) : answer_error(EPROTO, "");
    case ERRAND_KILL: {
        const char *id = field_z(f);
        bool limit = field_number(f) == 1;
        return f->bad || !name_ok(id, "", ERRAND_ID_LEN) ? answer_error(EPROTO, "") : kill_errand(p, id, limit);
    }
    case ERRAND_READ:
        return read_errand(p, f);
    case ERRAND_PUT:
        return put_errand(p, f);
    case ERRAND_STAT:
        return stat_errand(p, f);
    default:
        return answer_error(EPROTO, "");
    }
}

/* A request that is too long for a command line stands in a file. */
static char *load(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *p =
        fd >= 0 && fstat(fd, &st) == 0 && st.st_size <= ERRAND_REQUEST_MAX ? malloc((size_t)st.st_size + 1) : NULL;
    ssize_t n = 0, at = 0;
    while (p && at < st.st_size && (n = read(fd, p + at, (size_t)(st.st_size - at))) > 0)
        at += n;
    if (p)
        p[at] = '\0';
    if (fd >= 0)
        close(fd);
    (void)unlink(path);
    return p;
}

static int errand(const char *self, char **argv, int argc)
{
    struct place place = {.dir = -1};
    char *request = argc == 1 ? argv[0] : argc == 2 && strcmp(argv[0], "-f") == 0 ? load(argv[1]) : NULL;
    uint64_t n = 0;
    if (!request || !base64_decode(sv_z(request), request, &n)) {
        fputs("mango-rbox errand: started by the sandbox backends of remote services, not by hand\n", stderr);
        return 64;
    }
    struct fields f = {.at = request, .left = n};
    uint64_t op = field_number(&f);
    if (op != ERRAND_RUN) /* a command is told of with its answer, when that comes soon */
        answer_flush();
    int e = open_place(&place, &f);
    if (e)
        return answer_error(e, place.ws.root);
    for (uint64_t left = field_number(&f); left > 0 && !f.bad; left--) {
        const char *name = field_z(&f);
        if (op == ERRAND_RUN && !place.spare && name_ok(name, "run-", ERRAND_ID_LEN))
            place.spare = name;
        else
            forget(&place, name);
    }
    e = dispatch(&place, &f, self, op);
    if (place.spare)
        remove_run(place.dir, place.spare); /* it was not taken */
    return e;
}

int errand_main(const char *self, char **argv, int argc)
{
    umask(022);
    int status = argc == 1 && strcmp(argv[0], "-t") == 0 ? talk_errands(self) : errand(self, argv, argc);
    answer_flush();
    return status;
}
