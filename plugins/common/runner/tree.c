#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/runner/runner.h"

/* Single-threaded. Finding by /proc is only a means: the proof that nothing is left is waitpid's ECHILD, since as a
 * subreaper this process becomes the parent of every descendant whose parent dies. */

enum { PROCS_MAX = 32768, ROUND_NS = 2000000 /* between two rounds of kills */, STAT_MAX = 512 };

struct proc {
    pid_t pid, ppid, pgid;
    bool ours;
};

static struct proc procs[PROCS_MAX];

static bool read_stat(const char *pid, struct proc *ret)
{
    char path[64], text[STAT_MAX];
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* the name may hold anything */
    char state;
    int ppid, pgid;
    if (!end || sscanf(end + 1, " %c %d %d", &state, &ppid, &pgid) != 3 || state == 'Z' || state == 'X')
        return false;
    *ret = (struct proc){.pid = (pid_t)strtol(pid, NULL, 10), .ppid = ppid, .pgid = pgid};
    return true;
}

static size_t list_procs(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && n < PROCS_MAX && (e = readdir(d));) {
        if (isdigit((unsigned char)e->d_name[0]) && read_stat(e->d_name, &procs[n]))
            n++;
    }
    if (d)
        closedir(d);
    return n;
}

/* Marks what descends from this process. Parents may stand behind their children in the list, so passes go on until one
 * finds nothing. */
static void mark(size_t n, bool (*known)(void *, pid_t), void *ctx)
{
    pid_t self = getpid();
    for (size_t i = 0; i < n; i++)
        procs[i].ours = procs[i].ppid == self && !(known && known(ctx, procs[i].pid));
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (procs[i].ours || procs[i].ppid == self)
                continue;
            for (size_t j = 0; j < n && !procs[i].ours; j++)
                procs[i].ours = procs[j].ours && procs[j].pid == procs[i].ppid;
            more |= procs[i].ours;
        }
    }
}

static size_t kill_round(bool (*known)(void *, pid_t), void *ctx)
{
    size_t n = list_procs(), killed = 0;
    mark(n, known, ctx);
    for (size_t i = 0; i < n; i++) {
        if (!procs[i].ours)
            continue;
        killed++;
        /* A whole group at once outruns a command that forks as fast as it is killed. Its leader is ours, so is the
         * group. */
        if (procs[i].pgid == procs[i].pid)
            (void)kill(-procs[i].pid, SIGKILL);
        (void)kill(procs[i].pid, SIGKILL);
    }
    return killed;
}

long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

unsigned kill_descendants(int ms, bool (*known)(void *ctx, pid_t pid), void *ctx)
{
    long long end = now_ms() + ms;
    for (;;) {
        size_t left = kill_round(known, ctx);
        bool none = false;
        /* Known children are reaped by their own loop. */
        for (int status; !known;) {
            pid_t pid = waitpid(-1, &status, WNOHANG);
            if (pid > 0)
                continue;
            none = pid < 0 && errno == ECHILD;
            break;
        }
        if (none || (known && left == 0))
            return 0;
        if (now_ms() >= end)
            return (unsigned)left;
        nanosleep(&(struct timespec){.tv_nsec = ROUND_NS}, NULL);
    }
}
