#include "process/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool state_write(int home_fd, const struct state *s)
{
    char text[STATE_BYTES];
    int n = snprintf(text, sizeof(text), "%s\n%d %llu %d %d %d\n", s->work_id, (int)s->keeper, s->start, s->what,
                     s->exit_code, s->signal);
    int fd = openat(home_fd, "state.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return ok && renameat(home_fd, "state.new", home_fd, "state") == 0;
}

bool state_read(int home_fd, struct state *ret)
{
    char text[STATE_BYTES] = "";
    int keeper = 0;
    int fd = openat(home_fd, "state", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *line = n > 0 ? strchr(text, '\n') : NULL;
    *ret = (struct state){.exit_code = -1, .signal = -1};
    if (!line || (size_t)(line - text) > WORK_ID_MAX ||
        sscanf(line + 1, "%d %llu %d %d %d", &keeper, &ret->start, &ret->what, &ret->exit_code, &ret->signal) != 5)
        return false;
    memcpy(ret->work_id, text, (size_t)(line - text));
    ret->keeper = keeper;
    return true;
}

unsigned long long process_start(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *p = strrchr(text, ')'); /* the name may hold anything; the start time is field 22 */
    unsigned long long start = 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p && sscanf(p, " %llu", &start) == 1 ? start : 0;
}
