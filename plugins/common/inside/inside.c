#include "common/inside/inside.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    MARK_ROUNDS = 100,             /* through /proc: processes are born meanwhile */
    MARK_PAUSE_MS = 2,             /* between two of them */
    ENVIRON_MAX = 2 * 1024 * 1024, /* bytes of one process's environment */
    ID_MAX = 64,                   /* bytes of a command's id */
};

size_t stream_take(struct stream *s, char *piece, size_t size, uint64_t bound, size_t *ret_keep)
{
    *ret_keep = 0;
    if (s->fd < 0)
        return 0;
    ssize_t n = read(s->fd, piece, size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close(s->fd);
        s->fd = -1;
        return 0;
    }
    uint64_t room = bound == 0 ? (uint64_t)n : bound > s->kept ? bound - s->kept : 0;
    *ret_keep = (uint64_t)n < room ? (size_t)n : (size_t)room;
    s->seen += (uint64_t)n;
    s->kept += *ret_keep;
    return (size_t)n;
}

struct mango_sv *views_of(char *const *z, uint64_t n, uint64_t more)
{
    struct mango_sv *v = calloc(n + more + 1, sizeof(*v));
    for (uint64_t i = 0; v && i < n; i++)
        v[i] = sv_z(z[i]);
    return v;
}

struct request request_of(const struct parcel *p)
{
    struct request req = {
        .head = {.magic = WIRE_MAGIC, .flags = p->flags, .argc = p->argc, .envc = p->envc, .len = p->len},
        .strings = p->strings};
    for (int i = 0; i < WIRE_FDS_MAX; i++)
        req.fds[i] = i < p->n_fds ? p->fds[i] : -1;
    return req;
}

int leave_service(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t chld;
    (void)setsid();
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    return null < 0 ? -1 : signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
}

uint64_t kernel_counter(const char *path, const char *name)
{
    char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* ---- the mark ---- */

static size_t read_environ(const char *pid, char *env)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t at = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && at<ENVIRON_MAX; at += n> 0 ? (size_t)n : 0)
        n = read(fd, env + at, ENVIRON_MAX - at);
    if (fd >= 0)
        close(fd);
    return at;
}

/* len: with the NUL. */
static bool holds(const char *env, size_t n, const char *mark, size_t len)
{
    for (const char *at = env; (at = memmem(at, (size_t)(env + n - at), mark, len)); at++) {
        if (at == env || at[-1] == '\0')
            return true;
    }
    return false;
}

static bool kill_once(const char *mark, char *env)
{
    bool any = false;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (isdigit((unsigned char)e->d_name[0]) && holds(env, read_environ(e->d_name, env), mark, strlen(mark) + 1))
            any = kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL) == 0 || any;
    }
    if (d)
        closedir(d);
    return any;
}

void kill_marked(const char *id)
{
    char mark[sizeof(MARK_NAME) + ID_MAX + 2];
    char *env = malloc(ENVIRON_MAX);
    snprintf(mark, sizeof(mark), MARK_NAME "=%s", id);
    for (int i = 0; env && i < MARK_ROUNDS && kill_once(mark, env); i++)
        (void)poll(NULL, 0, MARK_PAUSE_MS);
    free(env);
}
