/* mango-worker run: serves one claimed item that the environment names; the entry point of a sandbox for one session. */
#include <string.h>

#include "base/mem.h"
#include "cmd/worker-common.h"

static const struct mg_worker_flag FLAGS[] = {
    {"session-id", "ANTHROPIC_SESSION_ID", "ID", "the session", false, false},
    {"work-id", "ANTHROPIC_WORK_ID", "ID", "the claimed item", false, false},
    {"environment-id", "ANTHROPIC_ENVIRONMENT_ID", "ID", "its environment", false, false},
    {"work-secret", "ANTHROPIC_WORK_SECRET", "SECRET", "the item's secret, as the poll gave it", false, true},
    {"last-heartbeat", "ANTHROPIC_WORK_LAST_HEARTBEAT", "TEXT", "last_heartbeat of a beat that was sent already", false,
     false},
    {"environment-key", "ANTHROPIC_ENVIRONMENT_KEY", "KEY", "used where there is no secret", false, true},
    {"worker-id", NULL, "NAME", "not used; taken for scripts that pass it on", false, false},
    MG_WORKER_FLAGS_SERVE,
    MG_WORKER_FLAGS_API,
    {NULL, NULL, NULL, NULL, false, false},
};

static int help(void)
{
    puts("mango-worker run: serves one claimed work item and ends\n\nUsage: mango-worker run [OPTIONS]\n\nOptions:");
    mg_worker_flags_help(stdout, FLAGS);
    puts("\nExit status: 0 served or shut down, 3 the item was over or went to another worker, 78 a credential or an "
         "id is missing or refused.");
    return MG_WORKER_EXIT_OK;
}

static int serve(const struct mango_worker_options *o, const struct mango_work *work)
{
    struct mg_worker_signals signals = {0};
    struct mango_worker *w;
    char err[512] = "";
    mg_worker_signals_block(&signals);
    int32_t rc = mango_worker_open(o, &w, err, sizeof(err));
    if (rc != 0)
        return mg_worker_failed(rc, err);
    mg_worker_signals_start(&signals, w);
    rc = mango_worker_serve(w, work, err, sizeof(err));
    mg_worker_signals_end(&signals);
    mango_worker_close(w);
    return rc == 0 || rc == MANGO_WORKER_STOPPED ? MG_WORKER_EXIT_OK : mg_worker_failed(rc, err);
}

int mg_worker_run_main(int argc, char **argv)
{
    mg_auto(worker_args) struct mg_worker_args a = {0};
    struct mango_worker_options o = {0};
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0))
        return help();
    if (!mg_worker_args_read(&a, FLAGS, argc, argv) || !mg_worker_log_setup(&a) || !mg_worker_options(&a, &o))
        return MG_WORKER_EXIT_USAGE;
    for (int i = 0; i < 3; i++)
        if (!a.value[i]) {
            fprintf(stderr, "mango-worker: set %s, or give --%s\n", FLAGS[i].env, FLAGS[i].name);
            return MG_WORKER_EXIT_CONFIG;
        }
    struct mango_work *work = mango_work_new(mg_worker_get(&a, "work-id"), mg_worker_get(&a, "environment-id"),
                                             mg_worker_get(&a, "session-id"), mg_worker_get(&a, "work-secret"));
    const char *last = mg_worker_get(&a, "last-heartbeat");
    int status = MG_WORKER_EXIT_CONFIG;
    if (last && *last && mango_work_continue(work, last) != 0)
        fprintf(stderr,
                "mango-worker: ANTHROPIC_WORK_LAST_HEARTBEAT is longer than any heartbeat's time; give it as the "
                "answer to the heartbeat has it\n");
    else
        status = serve(&o, work);
    mango_work_free(work);
    return status;
}
