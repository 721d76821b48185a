/* The keeper of one box of the launcher `process`: holds the session's lock, starts the worker, passes signals on, keeps its log within a
 * bound, and does not end before everything that the worker has started has ended. It outlives the supervisor, whose successor finds
 * it by the state that it writes.
 *
 *   mango-process-box HOME WORK_ID WORKER [ARGUMENT...]
 *
 * Standard output gets one line, "ok" or why not, as soon as the worker runs; the program that was started leaves then, and a child goes on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/runner/runner.h"
#include "process/state.h"

enum { KILL_MS = 5000, PIECE = 16384 };

struct keeper {
    int home, log_in, sigfd;
    long log_left;
    int log;
    pid_t worker;
    bool ended;
    struct state state;
};

static _Noreturn void leave(const char *why)
{
    dprintf(STDOUT_FILENO, "%s\n", why);
    _exit(1);
}

/* In the worker's process, until exec. */
static _Noreturn void become_worker(int home, int out, char **argv, pid_t keeper)
{
    sigset_t none;
    sigemptyset(&none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(1);
    int work = openat(home, "workspace", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (work < 0 || fchdir(work) < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    (void)close_range(3, ~0U, 0);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static void start_worker(struct keeper *k, char **argv)
{
    int p[2];
    pid_t self = getpid();
    if (pipe2(p, O_CLOEXEC) < 0)
        leave("no pipe");
    k->worker = fork();
    if (k->worker == 0)
        become_worker(k->home, p[1], argv, self);
    if (k->worker < 0)
        leave("no process");
    close(p[1]);
    k->log_in = p[0];
}

static void on_output(struct keeper *k)
{
    char piece[PIECE];
    ssize_t n = read(k->log_in, piece, sizeof(piece));
    if (n > 0 && k->log_left > 0) {
        ssize_t take = n < k->log_left ? n : (ssize_t)k->log_left;
        k->log_left -= write(k->log, piece, (size_t)take) == take ? take : k->log_left;
    } else if (n == 0 || (n < 0 && errno != EINTR)) {
        close(k->log_in);
        k->log_in = -1;
    }
}

static void on_signal(struct keeper *k)
{
    struct signalfd_siginfo si;
    int status;
    while (read(k->sigfd, &si, sizeof(si)) == sizeof(si)) {
        if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT)
            (void)kill(k->worker, SIGTERM);
        if (si.ssi_signo == (unsigned)KEEPER_KILL)
            (void)kill(k->worker, SIGKILL);
    }
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != k->worker)
            continue;
        k->ended = true;
        k->state.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        k->state.signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    }
}

static _Noreturn void keep(struct keeper *k)
{
    while (!k->ended) {
        struct pollfd p[2] = {{.fd = k->sigfd, .events = POLLIN}, {.fd = k->log_in, .events = POLLIN}};
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents)
            on_output(k);
        if (p[0].revents)
            on_signal(k);
    }
    (void)kill_descendants(KILL_MS, NULL, NULL);
    for (int flags = fcntl(k->log_in, F_GETFL); k->log_in >= 0 && fcntl(k->log_in, F_SETFL, flags | O_NONBLOCK) == 0;)
        on_output(k); /* what is left in the pipe; its writers are dead */
    k->state.what = STATE_ENDED;
    (void)state_write(k->home, &k->state);
    _exit(0);
}

static void prepare(struct keeper *k, const char *home, const char *work_id)
{
    sigset_t mask;
    k->home = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int lock = k->home >= 0 ? openat(k->home, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (lock < 0)
        leave("the folder of the session cannot be used");
    if (flock(lock, LOCK_EX | LOCK_NB) < 0)
        leave("busy");
    k->log = openat(k->home, "log", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    k->log_left = LOG_BYTES;
    sigfillset(&mask);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGCHLD);
    sigaddset(&mask, KEEPER_KILL);
    k->sigfd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (k->log < 0 || k->sigfd < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        leave("this system cannot keep a box");
    k->state = (struct state){.keeper = getpid(), .what = STATE_RUNNING, .exit_code = -1, .signal = -1};
    k->state.start = process_start(getpid());
    snprintf(k->state.work_id, sizeof(k->state.work_id), "%s", work_id);
    if (!state_write(k->home, &k->state))
        leave("the state cannot be written: is the disk full?");
}

int main(int argc, char **argv)
{
    static struct keeper k;
    if (argc < 4 || strlen(argv[2]) > WORK_ID_MAX) {
        fputs("mango-process-box: started by the launcher `process`, not by hand\n", stderr);
        return 64;
    }
    (void)setsid();
    pid_t pid = fork();
    if (pid < 0)
        leave("no process");
    if (pid > 0)
        return 0;
    prepare(&k, argv[1], argv[2]);
    start_worker(&k, argv + 3);
    dprintf(STDOUT_FILENO, "ok\n");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    keep(&k);
}
