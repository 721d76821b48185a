#include "srt/runner/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/runner/runner.h"

/* Mode srt, around the sandbox runtime's program: commands cannot see this process, so they cannot stop it. Whatever
 * they do to the runner in there, when the server's end of the socket closes all of them end. */

enum {
    GRACE_MS = 3000, /* for the program and the runner to end by themselves */
    KILL_MS = 4000,
};

static _Noreturn void fail_start(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* From the server's root to the user of the host that owns this sandbox's files. */
static void become(const char *user)
{
    uid_t uid = (uid_t)strtoul(user, NULL, 10);
    if (uid == 0 || setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        fail_start("changing the user");
}

/* Of the program. Commands get their own with each request. */
static char *const environment[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/.mango-srt/run",
    "TMPDIR=/.mango-srt/run", /* the proxy's sockets */
    "CLAUDE_CODE_TMPDIR=/tmp",
    "LANG=C.UTF-8",
    NULL,
};

/* The program hands its standard input on and no other descriptor: there the runner finds its socket. */
static _Noreturn void be_program(char **argv, bool served)
{
    sigset_t none;
    sigemptyset(&none);
    if ((served && dup2(RUNNER_FD, STDIN_FILENO) < 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        fail_start("starting");
    (void)close(RUNNER_FD);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    execve(argv[0], argv, environment);
    fail_start(argv[0]);
}

/* Until the program has ended, or the server's end is closed and its time is over. The program's wait status. */
static int watch(pid_t pid, int sigfd, bool served)
{
    struct pollfd p[] = {{.fd = sigfd, .events = POLLIN}, {.fd = served ? RUNNER_FD : -1, .events = 0}};
    char signals[1024];
    int status = 0, wait_ms = -1;
    for (;;) {
        int n = poll(p, 2, wait_ms);
        if (n == 0)
            return SIGKILL;
        if (n > 0 && p[1].revents) {
            p[1].fd = -1;
            wait_ms = GRACE_MS;
        }
        while (read(sigfd, signals, sizeof(signals)) > 0) {
        }
        for (pid_t got; (got = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (got == pid)
                return status;
        }
    }
}

int outside_main(const char *user, char **argv)
{
    bool served = fcntl(RUNNER_FD, F_GETFD) >= 0;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (strcmp(user, "-") != 0)
        become(user);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);
    int sigfd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sigfd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        fail_start("starting");
    pid_t pid = fork();
    if (pid < 0)
        fail_start("starting");
    if (pid == 0)
        be_program(argv, served);
    int status = watch(pid, sigfd, served);
    (void)kill_descendants(KILL_MS, NULL, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
