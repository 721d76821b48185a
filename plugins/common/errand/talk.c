#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "common/errand/program.h"

/* Errands from a terminal, each in a process of its own, one after the other (common/remote/errand-link.h). */

enum {
    ENVIRON_MAX = 1024 * 1024, /* bytes of the variables of the service's daemon */
    LAST = 1,                  /* exit status: there is no errand any more */
};

/* A terminal's shell sets variables of its own; commands get those of the daemon, as when it starts them itself. */
static bool daemon_environ(void)
{
    static char text[ENVIRON_MAX + 1];
    char path[64];
    size_t n = 0, count = 0;
    ssize_t got = 0;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)getppid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && n < ENVIRON_MAX && (got = read(fd, text + n, ENVIRON_MAX - n)) > 0)
        n += (size_t)got;
    if (fd >= 0)
        close(fd);
    if (fd < 0 || got < 0 || n == 0 || n == ENVIRON_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        count += text[i] == '\0';
    char **list = calloc(count + 2, sizeof(*list));
    if (!list)
        return false;
    count = 0;
    for (char *at = text; at < text + n; at += strlen(at) + 1)
        list[count++] = at;
    environ = list;
    return true;
}

/* Bytes as they are, and no signals from them; nothing is echoed. */
static void make_raw(void)
{
    struct termios t;
    if (tcgetattr(STDIN_FILENO, &t) < 0)
        return;
    cfmakeraw(&t);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

/* An interactive shell ignores some of them. */
static void usual_signals(void)
{
    sigset_t none;
    for (int n = 1; n < SIGRTMIN; n++)
        (void)signal(n, n == SIGPIPE ? SIG_IGN : SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* False: nobody has asked for long, or the terminal is gone. line has room for ERRAND_TALK_MAX; what stands behind it in the
 * terminal is never more than the next line, which comes after the answer. */
static bool read_line(char *line)
{
    size_t n = 0;
    for (;;) {
        struct pollfd p = {STDIN_FILENO, POLLIN, 0};
        if (poll(&p, 1, ERRAND_TALK_MS) <= 0)
            return false;
        ssize_t got = read(STDIN_FILENO, line + n, ERRAND_TALK_MAX - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        if (line[n - 1] != '\n' && n < ERRAND_TALK_MAX - 1)
            continue;
        line[n - 1] = '\0';
        return n < ERRAND_TALK_MAX - 1;
    }
}

/* Waits for one line and does what it says; its end is told behind it, whatever it does. Whether there was one. */
static bool do_errand(const char *self)
{
    static char line[ERRAND_TALK_MAX];
    char *end;
    if (!read_line(line))
        return false;
    unsigned long long number = strtoull(line, &end, 10);
    char *argv[] = {end + 1, NULL};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)dup2(null, STDIN_FILENO);
    if (*end != ' ')
        return false;
    answer(ERRAND_MARK "< %llu\n", number);
    (void)errand_main(self, argv, 1);
    return true;
}

/* Each errand has a process of its own, made ahead of it. */
int talk_errands(const char *self)
{
    if (!daemon_environ())
        return answer_error(ENOENT, "the variables of the service's daemon cannot be read");
    usual_signals();
    make_raw();
    for (const char *told = "\n" ERRAND_MARK "t\n";; told = ERRAND_MARK ">\n") {
        int status = 0;
        if (!write_whole(STDOUT_FILENO, told, strlen(told)))
            return 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(do_errand(self) ? 0 : LAST);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == LAST))
            return 0;
    }
}
