#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/runner/relay.h"
#include "docker/box/box.h"

enum {
    IDLE_S = 600, /* alone for so long: no server has come back, or the Engine has lost this container in a crash */
    LOOK_S = 30,
};

/* Process 1: orphans come to it and are waited for. */
static int init_main(void)
{
    sigset_t all;
    int sig = 0, idle_s = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    while (sig != SIGTERM && sig != SIGINT && idle_s < IDLE_S) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        sig = sigtimedwait(&all, NULL, &(struct timespec){.tv_sec = LOOK_S});
        bool alone = kill(-1, 0) < 0; /* nobody else there */
        idle_s = !alone ? 0 : sig < 0 && errno == EAGAIN ? idle_s + LOOK_S : idle_s;
    }
    return 0;
}

/* The way out of a container whose commands others start. */
static int relay_main(void)
{
    pid_t pid = relay_start();
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        return init_main();
    if (argc == 2 && strcmp(argv[1], "relay") == 0)
        return relay_main();
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return box_serve(argv[2]);
    if (argc == 4 && strcmp(argv[1], "pack") == 0)
        return pack_main(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "unpack") == 0)
        return unpack_main(argv[2], argv[3]);
    fputs("mango-box: started by the sandbox backend `docker`, not by hand\n", stderr);
    return 64;
}
