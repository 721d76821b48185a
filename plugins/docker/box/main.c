#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "docker/box/box.h"

/* Process 1: orphans come to it and are waited for. */
static int init_main(void)
{
    sigset_t all;
    int sig;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    do {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (sigwait(&all, &sig) != 0)
            return 1;
    } while (sig != SIGTERM && sig != SIGINT);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "init") == 0)
        return init_main();
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return box_serve(argv[2]);
    fputs("mango-box: started by the sandbox backend `docker`, not by hand\n", stderr);
    return 64;
}
