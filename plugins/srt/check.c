#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/child.h"
#include "srt/srt.h"

enum {
    CHECK_MS = 20000, /* a loaded machine; it takes 40 ms */
    SAID_MAX = 400,   /* bytes of what the programs say */
};

/* Starts it with both outputs in one pipe. The read end, or -errno. */
static int start(struct words *argv, pid_t *ret_pid)
{
    static char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    const struct child c = {.argv = argv->v, .env = env, .fds = {-1, pipe_fds[1], pipe_fds[1]}, .n_fds = 3};
    int e = child_start(&c, ret_pid);
    close(pipe_fds[1]);
    if (e == 0)
        return pipe_fds[0];
    close(pipe_fds[0]);
    return -e;
}

/* What it says until its end, on one line. */
static void listen_to(int fd, char said[SAID_MAX])
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n < SAID_MAX - 1 && poll(&p, 1, CHECK_MS) > 0) {
        ssize_t got = read(fd, said + n, SAID_MAX - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    said[n] = '\0';
    for (char *c = said; *c; c++) {
        if (*c == '\n')
            *c = c[1] ? ' ' : '\0';
    }
}

mango_status check_host(const struct srt *s, const struct mango_call *call)
{
    struct words argv = {.n = 0};
    char said[SAID_MAX];
    pid_t pid = 0;
    check_command(s, s->root ? "1879048191" : "-", &argv); /* one below the users of sandboxes */
    int fd = start(&argv, &pid);
    if (fd < 0)
        return fail(s->boxes.host, call, MANGO_EUNSUPPORTED,
                    "%.200s cannot be run: %s; install bubblewrap 0.8 or newer, or set MANGO_SRT_BWRAP to its path",
                    s->bwrap, strerror(-fd));
    listen_to(fd, said);
    close(fd);
    if (pid > 0)
        (void)kill(pid, SIGKILL); /* has ended, or never will */
    (void)child_reap(pid);
    if (strcmp(said, "ready") == 0)
        return MANGO_OK;
    return fail(
        s->boxes.host, call, MANGO_EUNSUPPORTED,
        "no sandbox can be made on this host: %s; the srt backend needs bubblewrap 0.8 or newer and the right to "
        "make namespaces (in a container: --privileged, or another backend)",
        said[0] ? said : "bubblewrap said nothing");
}
