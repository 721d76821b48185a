/* Process 1 of a sandbox of the backend `srt`: bubblewrap has made the namespaces and the files and starts it there. It
 * gives up what is left of its rights, installs the filter of system calls, and is the runner of the sandbox's commands
 * from then on.
 *
 *   mango-srt-runner serve|check USER PROCESSES MEMORY FILE_SIZE
 *   mango-srt-runner join FILE... -- PROGRAM ARGUMENT...       outside, before bubblewrap
 *
 * Mode srt, where the sandbox runtime's program stands between the two:
 *
 *   mango-srt-runner outside USER PROGRAM ARGUMENT...
 *   mango-srt-runner serve|check inside|inside-with-proxy PROCESSES MEMORY FILE_SIZE
 *
 * USER: the host's user to become (the server is root), or "-". `check` says "ready" instead of serving. As process 1
 * it cannot be signalled by what it starts. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/runner/relay.h"
#include "common/runner/runner.h"
#include "srt/runner/filter.h"
#include "srt/runner/outside.h"

enum {
    CAPS_MAX = 63,
    INNER_ID = 1000, /* user and group as commands see them */
    LINE_MAX_BYTES = 64,
    ENV_MAX = 128, /* variables of the sandbox runtime that commands get */
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int usage(void)
{
    fputs("mango-srt-runner: started by the sandbox backend `srt`, not by hand\n", stderr);
    return 64;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die(path);
    close(fd);
}

static void no_capabilities(void)
{
    for (int c = 0; c <= CAPS_MAX; c++) {
        if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EINVAL && errno != EPERM)
            die("dropping capabilities");
    }
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capset, &head, none) < 0)
        die("dropping capabilities");
}

/* From the server's root to a user of the host that owns this sandbox's files and nothing else, and from there into a
 * user namespace in which it is the only one. */
static void become(const char *user)
{
    char line[LINE_MAX_BYTES];
    uid_t uid = (uid_t)strtoul(user, NULL, 10);
    if (uid == 0 || setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        die("changing the user");
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER) < 0)
        die("no user namespace can be made (user.max_user_namespaces, kernel.unprivileged_userns_clone)");
    put("/proc/self/setgroups", "deny");
    snprintf(line, sizeof(line), "%d %u 1", INNER_ID, uid);
    put("/proc/self/uid_map", line);
    put("/proc/self/gid_map", line);
}

static void limit(int what, const char *text)
{
    unsigned long long n = strtoull(text, NULL, 10);
    struct rlimit now;
    if (n == 0 || getrlimit((__rlimit_resource_t)what, &now) < 0)
        die("a limit");
    if (now.rlim_max != RLIM_INFINITY && n > now.rlim_max)
        n = now.rlim_max;
    if (setrlimit((__rlimit_resource_t)what, &(struct rlimit){n, n}) < 0)
        die("a limit");
}

/* Enters the control group of the sandbox, then becomes what is to run in it. */
static int join(char **argv)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++)
        put(*argv, "0");
    if (!*argv || !argv[1])
        return usage();
    execv(argv[1], argv + 1);
    die(argv[1]);
}

/* The program's variables that lead to its proxy, for the commands: their own environment comes with each request. */
static void proxy_variables(void)
{
    static const char *const ours[] = {"PATH", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "LANG", "TERM"};
    static char *list[ENV_MAX + 1];
    size_t n = 0;
    for (char **e = environ; *e && n < ENV_MAX; e++) {
        size_t len = strcspn(*e, "=");
        bool skip = strncmp(*e, "CLAUDE_CODE_", strlen("CLAUDE_CODE_")) == 0;
        for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]) && !skip; i++)
            skip = strlen(ours[i]) == len && strncmp(*e, ours[i], len) == 0;
        if (!skip)
            list[n++] = *e;
    }
    runner_env(list);
}

/* The program has handed over the runner's socket as standard input. */
static void be_inside(char **argv)
{
    if (strcmp(argv[2], "inside-with-proxy") == 0)
        proxy_variables();
    if (strcmp(argv[1], "check") == 0)
        return;
    if (dup2(STDIN_FILENO, RUNNER_FD) < 0) /* first: the next descriptor that is opened may be that one */
        die("the runner's socket");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++) {
        if (null < 0 || dup2(null, fd) < 0)
            die("/dev/null");
    }
    close(null);
}

int main(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "join") == 0)
        return join(argv + 2);
    if (argc > 4 && strcmp(argv[1], "outside") == 0)
        return outside_main(argv[2], argv + 3);
    bool inside = argc == 6 && strncmp(argv[2], "inside", strlen("inside")) == 0;
    if (argc != 6 || (getpid() != 1 && !inside))
        return usage();
    if (inside)
        be_inside(argv);
    int adj = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (adj >= 0) { /* when memory runs out, a command goes before the server does */
        (void)!write(adj, "500", 3);
        close(adj);
    }
    limit(RLIMIT_NPROC, argv[3]);
    limit(RLIMIT_DATA, argv[4]);
    limit(RLIMIT_FSIZE, argv[5]);
    if (!inside && strcmp(argv[2], "-") != 0)
        become(argv[2]);
    if (chdir("/workspace") < 0)
        die("/workspace");
    no_capabilities();
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        die("prctl");
    errno = inside ? 0 : filter_install(); /* the program has its own */
    if (errno)
        die("no filter of system calls can be installed");
    if (strcmp(argv[1], "check") == 0)
        return write(1, "ready", 5) == 5 ? 0 : 1;
    if (!inside)
        runner_helper(relay_start);
    return runner_main();
}
