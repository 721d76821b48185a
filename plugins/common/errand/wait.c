#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/errand/program.h"

/* What has become of a command: the rest of its output and its end, for whoever asks, as often as it is asked. */

enum {
    LOOK_MS = 500,  /* between two looks where nothing is told */
    HEARD_MS = 200, /* a terminal is told so soon that its errand was heard */
    GATHER_MS = 10, /* after output: its command has perhaps ended too */
    RESULT_MAX = 128,
};

struct told {
    int run;
    uint64_t at[2]; /* bytes of each stream that have been told */
    uint64_t inline_left;
    bool any;
};

bool wait_fields(struct fields *f, struct wait_for *w)
{
    w->id = field_z(f);
    w->out = field_number(f);
    w->err = field_number(f);
    w->ms = field_number(f);
    w->soon_ms = field_number(f);
    w->news = -1;
    return !f->bad && name_ok(w->id, "", ERRAND_ID_LEN);
}

int open_run(const struct place *p, const char *id)
{
    char name[80];
    snprintf(name, sizeof(name), "run-%s", id);
    return openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* False when there is none yet. */
static bool read_result(int run, char text[RESULT_MAX])
{
    int fd = openat(run, "result", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, RESULT_MAX - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* Its supervisor is dead: the lock is nobody's. */
static bool abandoned(int run)
{
    int fd = openat(run, "lock", O_RDWR | O_CLOEXEC);
    bool free = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return free;
}

static void tell_stream(struct told *t, int i)
{
    static char piece[16 * ERRAND_PIECE];
    struct stat st;
    int fd = openat(t->run, i ? "err" : "out", O_RDONLY | O_CLOEXEC);
    uint64_t size = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    while (size > t->at[i]) {
        uint64_t left = size - t->at[i];
        t->any = true;
        if (left > t->inline_left) { /* too much for lines: the file itself */
            answer(ERRAND_MARK "b %d %llu %llu\n", i + 1, (unsigned long long)t->at[i], (unsigned long long)left);
            t->at[i] += left;
            t->inline_left = 0;
            break;
        }
        ssize_t n = pread(fd, piece, left < sizeof(piece) ? left : sizeof(piece), (off_t)t->at[i]);
        if (n <= 0)
            break;
        answer_content(i ? 'e' : 'o', t->at[i], piece, (size_t)n);
        t->at[i] += (uint64_t)n;
        t->inline_left -= (uint64_t)n;
    }
    if (fd >= 0)
        close(fd);
}

/* Looks first whether it has ended, then at its output: so all of it is told before the end is. */
static bool tell(struct told *t, bool dead)
{
    char result[RESULT_MAX];
    bool over = read_result(t->run, result);
    tell_stream(t, 0);
    tell_stream(t, 1);
    if (over)
        answer(ERRAND_MARK ". %s\n", result);
    else if (dead)
        answer(ERRAND_MARK ". l 0 %llu %llu 0\n", (unsigned long long)t->at[0], (unsigned long long)t->at[1]);
    return over || dead;
}

/* The kernel takes 10 to 20 ms to end a watch, which is why a command's first wait has none. */
static int watch(int run)
{
    char path[64];
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", run);
    if (fd >= 0)
        (void)inotify_add_watch(fd, path, IN_MODIFY | IN_MOVED_TO);
    return fd;
}

static bool news_take(int notify, bool *ret_result)
{
    char events[4096];
    ssize_t n, all = 0;
    while (notify >= 0 && (n = read(notify, events, sizeof(events))) > 0) {
        all += n;
        *ret_result |= events[n - 1] == NEWS_RESULT;
    }
    return all > 0;
}

/* Until there is something to be looked at. gather: what comes is NEWS_*, and output alone can wait. */
static void news_wait(int notify, long long ms, bool gather)
{
    struct pollfd q = {notify, POLLIN, 0};
    bool result = false;
    if (poll(&q, 1, (int)(ms < HEARD_MS ? ms : HEARD_MS)) == 0) {
        answer_flush();
        if (ms > HEARD_MS)
            (void)poll(&q, 1, (int)(ms - HEARD_MS));
    }
    if (news_take(notify, &result) && gather && !result && poll(&q, 1, GATHER_MS) > 0)
        (void)news_take(notify, &result);
}

int wait_errand(const struct place *p, const struct wait_for *w)
{
    struct told t = {.run = open_run(p, w->id), .at = {w->out, w->err}, .inline_left = ERRAND_INLINE_MAX};
    if (t.run < 0)
        return answer_error(ESRCH, "");
    int notify = w->news >= 0 ? w->news : watch(t.run);
    long long end = now_ms() + (long long)(w->ms < 3600000 ? w->ms : 3600000), said = 0;
    for (;;) {
        bool dead = abandoned(t.run); /* before the look: a supervisor writes its result, then goes */
        if (tell(&t, dead))
            return 0;
        long long now = now_ms();
        if (t.any && !said)
            said = now;
        if (w->soon_ms && said && said + (long long)w->soon_ms < end)
            end = said + (long long)w->soon_ms;
        if (now >= end || t.inline_left == 0)
            break;
        if (!w->soon_ms) /* the service shows output while its command runs */
            answer_flush();
        news_wait(notify, end - now < LOOK_MS ? end - now : LOOK_MS, w->news >= 0);
    }
    answer(ERRAND_MARK "~\n");
    return 0;
}

/* ---- kill ---- */

/* A command that has not come yet must not start when it does: its place is taken. */
static void forbid(const struct place *p, const char *id, bool limit)
{
    char temp[80], name[80];
    snprintf(name, sizeof(name), "run-%s", id);
    snprintf(temp, sizeof(temp), "new-%s-%d", id, (int)getpid());
    if (mkdirat(p->dir, temp, 0700) < 0)
        return;
    int run = openat(p->dir, temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = run < 0 ? -1 : openat(run, "result", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write_whole(fd, limit ? "t 0 0 0 0\n" : "c 0 0 0 0\n", 10) &&
              renameat(p->dir, temp, p->dir, name) == 0;
    if (!ok && run >= 0)
        (void)unlinkat(run, "result", 0);
    if (!ok)
        (void)unlinkat(p->dir, temp, AT_REMOVEDIR);
    if (fd >= 0)
        close(fd);
    if (run >= 0)
        close(run);
}

int kill_errand(const struct place *p, const char *id, bool limit)
{
    char result[RESULT_MAX];
    forbid(p, id, limit);
    int run = open_run(p, id);
    if (run < 0)
        return answer_error(errno, "");
    long long end = now_ms() + ERRAND_KILL_MS;
    bool asked = false, over = read_result(run, result);
    while (!over && !abandoned(run) && now_ms() < end) {
        int fd = asked ? -1 : openat(run, "kill.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0) {
            (void)write_whole(fd, limit ? "t" : "c", 1);
            close(fd);
            (void)renameat(run, "kill.new", run, "kill");
            asked = true;
        }
        (void)poll(NULL, 0, 5);
        over = read_result(run, result);
    }
    if (!over && !read_result(run, result)) {
        kill_marked(id);
        snprintf(result, sizeof(result), "%c 0 0 0 0", limit ? 't' : 'c');
    }
    answer(ERRAND_MARK ". %s\n", result);
    return 0;
}
