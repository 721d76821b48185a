/* A second backend beside `local`, with a service that can be stopped: while the file that its setting down_file names is there, nothing answers.
 * Built by tests/e2e/test_backends.py from the sources of local. */
#include "local-copy.h"

static const struct mango_host *second_host;
static char *down_file;

static mango_status answers(const struct mango_call *call)
{
    if (!down_file || access(down_file, F_OK) < 0)
        return MANGO_OK;
    return second_host->err_set(second_host, call, MANGO_ERETRY, "connection refused", NULL, 0);
}

static mango_status second_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                                  struct mango_sandbox_ref *ret)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_create(ctx, call, spec, ret);
}

static mango_status second_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                                  const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_attach(ctx, call, id, spec, ret);
}

static mango_status second_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                                const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_exec(ctx, call, id, req, ret);
}

static mango_status second_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                                     const struct mango_exec_req *req, mango_proc *ret)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_proc_open(ctx, call, id, req, ret);
}

static mango_status second_proc_write(void *ctx, const struct mango_call *call, mango_proc proc, struct mango_sv data)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_proc_write(ctx, call, proc, data);
}

static mango_status second_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_destroy(ctx, call, id, label);
}

static mango_status second_health(void *ctx, const struct mango_call *call)
{
    mango_status s = answers(call);
    return s < 0 ? s : hostbox_health(ctx, call);
}

static mango_status second_init(const struct mango_host *h, const struct mango_call *call, struct mango_sv config,
                                void **ret_ctx)
{
    second_host = h;
    down_file = setting(h, "down_file");
    return local_init(h, call, config, ret_ctx);
}

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    copy_local("second");
    mine.summary = "local under another name, with a service that can be stopped";
    mine.init = second_init;
    mine_ops.create = second_create;
    mine_ops.attach = second_attach;
    mine_ops.exec = second_exec;
    mine_ops.proc_open = second_proc_open;
    mine_ops.proc_write = second_proc_write;
    mine_ops.destroy = second_destroy;
    mine_ops.health = second_health;
    return &mine;
}
