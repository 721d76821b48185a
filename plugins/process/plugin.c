#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/hostbox/hostbox.h"
#include "process/process.h"

#ifndef MANGO_BINDIR
#define MANGO_BINDIR "/usr/local/bin"
#endif
#define WORKER "mango-worker"

/* Settings: base_dir and runner as the backends of this host have them (MANGO_PROCESS_BASE_DIR, MANGO_PROCESS_RUNNER), and
 * MANGO_PROCESS_WORKER: the worker's program, else the one that asks, else the one beside the runner, else the installed one. */

struct plugin_ctx {
    struct process p; /* first: the operations see it alone */
    struct boxes boxes;
};

static const struct box_kind kind = {.name = "process", .env_name = "PROCESS", .runner = "mango-process-box"};

static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t dir = slash ? (size_t)(slash - path) : 0, n = dir + strlen(name) + 2;
    char *z = malloc(n);
    if (z)
        snprintf(z, n, "%.*s/%s", (int)dir, path, name);
    return z;
}

/* The supervisor is the worker's program, where it is not somebody's own. */
static char *own_program(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    const char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    path[n > 0 ? n : 0] = '\0';
    return slash && strcmp(slash + 1, WORKER) == 0 ? strdup(path) : NULL;
}

static mango_status find_worker(struct plugin_ctx *c, const struct mango_call *call)
{
    struct process *p = &c->p;
    if ((p->runner = beside(c->boxes.runner, "mango-local-runner")) && access(p->runner, X_OK) < 0) {
        free(p->runner);
        p->runner = NULL;
    }
    p->worker = setting(p->host, "worker");
    bool named = p->worker != NULL;
    if (!p->worker)
        p->worker = own_program();
    if (!p->worker)
        p->worker = beside(c->boxes.runner, WORKER);
    if (!named && p->worker && access(p->worker, X_OK) < 0 && access(MANGO_BINDIR "/" WORKER, X_OK) == 0) {
        free(p->worker);
        p->worker = strdup(MANGO_BINDIR "/" WORKER);
    }
    if (!p->worker)
        return fail(p->host, call, MANGO_ERETRY, "out of memory");
    if (p->worker[0] != '/' || access(p->worker, X_OK) < 0)
        return fail(p->host, call, MANGO_EINVALID,
                    "%s cannot be run; install it or set MANGO_PROCESS_WORKER to the absolute path of mango-worker",
                    p->worker);
    return MANGO_OK;
}

static void process_fini(void *ctx)
{
    struct plugin_ctx *c = ctx;
    boxes_done(&c->boxes); /* what runs goes on: the next supervisor finds it */
    free(c->p.worker);
    free(c->p.runner);
    free(c);
}

static mango_status process_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                                 void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct plugin_ctx *c = calloc(1, sizeof(*c));
    if (!c)
        return fail(host, call, MANGO_ERETRY, "out of memory");
    c->p.host = c->boxes.host = host;
    c->boxes.kind = &kind;
    mango_status s = boxes_open(&c->boxes, call);
    c->p.base = c->boxes.base;
    c->p.base_fd = c->boxes.base_fd;
    c->p.keeper = c->boxes.runner;
    if (s == MANGO_OK)
        s = find_worker(c, call);
    if (s < 0) {
        process_fini(c);
        return s;
    }
    host->log(host, MANGO_LOG_WARN,
              "launcher process is NOT an isolation boundary: workers and their commands run on this host with the "
              "rights of this program; "
              "use it for development and trusted work only");
    *ret_ctx = c;
    return MANGO_OK;
}

static mango_status process_health(void *ctx, const struct mango_call *call)
{
    const struct process *p = ctx;
    if (access(p->worker, X_OK) < 0 || access(p->keeper, X_OK) < 0)
        return fail(p->host, call, MANGO_EINTERNAL, "%s or %s is missing; install it again", p->worker, p->keeper);
    return MANGO_OK;
}

static const struct mango_launcher_ops ops = {
    .struct_size = sizeof(ops),
    .launch = process_launch,
    .watch = process_watch,
    .stop = process_stop,
    .persists = process_persists,
    .health = process_health,
    .list_owned = process_list_owned,
    .logs = process_logs,
    .forget = process_forget,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_LAUNCHER,
    .name = "process",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one worker process per item on this host, one folder per session; no isolation",
    .caps = MANGO_CAP_LAUNCH_LIST | MANGO_CAP_LAUNCH_LOGS,
    .init = process_init,
    .fini = process_fini,
    .launcher = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
