#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    sigset_t all, none;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -errno;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&fa);
    posix_spawnattr_init(&at);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, pipe_fds[1], 1);
    posix_spawn_file_actions_adddup2(&fa, pipe_fds[1], 2);
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
    posix_spawnattr_setsigdefault(&at, &all);
    posix_spawnattr_setsigmask(&at, &none);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int e = posix_spawn(ret_pid, argv->v[0], &fa, &at, argv->v, env);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
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
    int status = 0;
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
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (strcmp(said, "ready") == 0)
        return MANGO_OK;
    return fail(
        s->boxes.host, call, MANGO_EUNSUPPORTED,
        "no sandbox can be made on this host: %s; the srt backend needs bubblewrap 0.8 or newer and the right to "
        "make namespaces (in a container: --privileged, or another backend)",
        said[0] ? said : "bubblewrap said nothing");
}
