#include <stdlib.h>

#include "common/hostbox/hostbox.h"

/* Backend `local`: commands run on this host with the rights of the server. Not an isolation boundary. */

static mango_status local_check(const struct boxes *all, const struct mango_call *call,
                                const struct mango_sandbox_spec *spec)
{
    if (spec->n_mounts > 0)
        return fail(all->host, call, MANGO_EUNSUPPORTED, "the local backend has no mounts");
    if (spec->network && spec->network->mode != MANGO_NET_OPEN)
        return fail(all->host, call, MANGO_EUNSUPPORTED,
                    "the local backend cannot hold commands back from the network");
    return MANGO_OK;
}

static void local_command(const struct box *b, struct words *argv)
{
    word(argv, b->all->runner);
}

static const struct box_kind kind = {
    .name = "local",
    .env_name = "LOCAL",
    .runner = "mango-local-runner",
    .check = local_check,
    .command = local_command,
};

static mango_status local_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                               void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct boxes *all = calloc(1, sizeof(*all));
    if (!all)
        return host->err_set(host, call, MANGO_ERETRY, "out of memory", NULL, 0);
    all->host = host;
    all->kind = &kind;
    mango_status s = boxes_open(all, call);
    if (s < 0) {
        boxes_done(all);
        free(all);
        return s;
    }
    host->log(host, MANGO_LOG_WARN,
              "sandbox backend local is NOT an isolation boundary: commands run on this host with the rights "
              "of this server; use it for development and trusted work only");
    *ret_ctx = all;
    return MANGO_OK;
}

static void local_fini(void *ctx)
{
    boxes_done(ctx);
    free(ctx);
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = hostbox_create,
    .attach = hostbox_attach,
    .exec = hostbox_exec,
    .read = hostbox_read,
    .write = hostbox_write,
    .stat = hostbox_stat,
    .destroy = hostbox_destroy,
    .health = hostbox_health,
    .detach = hostbox_detach,
    .list_owned = hostbox_list_owned,
    .proc_open = hostbox_proc_open,
    .proc_write = hostbox_proc_write,
    .proc_read = hostbox_proc_read,
    .proc_close = hostbox_proc_close,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "local",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "commands on this host, one folder per session; no isolation",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PROC | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC,
    .init = local_init,
    .fini = local_fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
