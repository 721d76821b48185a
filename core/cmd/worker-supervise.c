/* mango-worker supervise: one sandbox for each work item, through a launcher plugin. */
#include "cmd/worker-args.h"

int mg_worker_supervise_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fputs("mango-worker: supervise is not part of this release; use poll, or poll --on-work SCRIPT\n", stderr);
    return MG_WORKER_EXIT_USAGE;
}
