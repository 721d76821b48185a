/* mango-worker: finds the command and runs it. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "cmd/worker-args.h"

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} COMMANDS[] = {
    {"poll", "claims work and serves its sessions", mg_worker_poll_main},
    {"run", "serves one claimed item and ends", mg_worker_run_main},
    {"supervise", "polls, and launches one sandbox for each work item", mg_worker_supervise_main},
};
enum { N_COMMANDS = sizeof(COMMANDS) / sizeof(COMMANDS[0]) };

static int overview(FILE *out, int status)
{
    fputs("mango-worker: serves sessions of self-hosted environments\n\nUsage: mango-worker COMMAND "
          "[OPTIONS]\n\nCommands:\n",
          out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", COMMANDS[i].name, COMMANDS[i].about);
    fputs("\nmango-worker COMMAND --help shows its options.\n", out);
    return status;
}

int main(int argc, char **argv)
{
    /* Commands of tools run as the same user: neither the memory with the credentials nor the environment is theirs to read. */
    (void)prctl(PR_SET_DUMPABLE, 0);
    if (argc < 2)
        return overview(stderr, MG_WORKER_EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return overview(stdout, MG_WORKER_EXIT_OK);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)
        return puts("mango-worker " MANGO_VERSION) < 0;
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 2, argv + 2);
    fprintf(stderr, "mango-worker: there is no command %s\n", argv[1]);
    return overview(stderr, MG_WORKER_EXIT_USAGE);
}
