/* mango-worker poll: claims items and serves their sessions in this process, or hands each to a script. */
#include <string.h>

#include "base/mem.h"
#include "cmd/worker-common.h"
#include "cmd/worker-on-work.h"

enum { RECLAIM_MAX_MS = 3600000, GAP_MAX_MS = 60000 };

static const struct mg_worker_flag FLAGS[] = {
    {"environment-id", "ANTHROPIC_ENVIRONMENT_ID", "ID", "the environment to poll", false, false},
    {"environment-key", "ANTHROPIC_ENVIRONMENT_KEY", "KEY", "its key", false, true},
    {"worker-id", "ANTHROPIC_WORKER_ID", "NAME", "how this worker is called (default: the host and a random part)",
     false, false},
    {"on-work", NULL, "SCRIPT", "run for each item instead of serving it here", false, false},
    {"pass-environment-key", NULL, NULL, "the script gets the environment key too", false, false},
    {"drain", NULL, NULL, "end when the queue is empty", false, false},
    {"reclaim-older-than", NULL, "TIME", "take claims that nobody acknowledged for so long (default: the server's)",
     false, false},
    {"poll-gap", NULL, "TIME", "pause behind an empty poll (default: random, 1s to 3s)", false, false},
    MG_WORKER_FLAGS_SERVE,
    MG_WORKER_FLAGS_API,
    {NULL, NULL, NULL, NULL, false, false},
};

static int help(void)
{
    puts("mango-worker poll: claims work of an environment and serves its sessions\n\nUsage: mango-worker poll "
         "[OPTIONS]\n\nOptions:");
    mg_worker_flags_help(stdout, FLAGS);
    puts("\nSIGTERM or SIGINT: the running tool is cancelled, its error result sent, the item stopped; within 120 s.");
    return MG_WORKER_EXIT_OK;
}

static bool in_process(const char *script)
{
    return !script || !*script || strcmp(script, "in-process") == 0;
}

static int serve(struct mg_worker_args *a, struct mango_worker_options *o)
{
    struct mg_worker_signals signals = {0};
    struct mango_worker *w;
    char err[512] = "";
    const char *script = mg_worker_get(a, "on-work");
    mg_worker_signals_block(&signals);
    int32_t rc = mango_worker_open(o, &w, err, sizeof(err));
    if (rc != 0)
        return mg_worker_failed(rc, err);
    mg_worker_signals_start(&signals, w);
    if (in_process(script))
        rc = mango_worker_run(w, err, sizeof(err));
    else
        rc = mg_worker_on_work(w, o, script, mg_worker_get(a, "pass-environment-key") != NULL, &signals, err,
                               sizeof(err));
    mg_worker_signals_end(&signals);
    mango_worker_close(w);
    return rc == 0 ? MG_WORKER_EXIT_OK : mg_worker_failed(rc, err);
}

int mg_worker_poll_main(int argc, char **argv)
{
    mg_auto(worker_args) struct mg_worker_args a = {0};
    struct mango_worker_options o = {0};
    uint32_t reclaim_ms, gap_ms;
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return help();
    if (!mg_worker_args_read(&a, FLAGS, argc, argv) || !mg_worker_log_setup(&a) || !mg_worker_options(&a, &o) ||
        !mg_worker_duration(&a, "reclaim-older-than", RECLAIM_MAX_MS, 0, &reclaim_ms) ||
        !mg_worker_duration(&a, "poll-gap", GAP_MAX_MS, 0, &gap_ms))
        return MG_WORKER_EXIT_USAGE;
    o.drain = mg_worker_get(&a, "drain") != NULL;
    o.reclaim_older_than_ms = reclaim_ms;
    o.poll_gap_ms = gap_ms;
    return serve(&a, &o);
}
