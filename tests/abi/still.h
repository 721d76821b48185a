/* What is the same in the small backends of this folder: operations that do nothing and say that all is well. */
#ifndef MG_TESTS_STILL_H
#define MG_TESTS_STILL_H

#include "mango/plugin.h"

static const struct mango_host *host;

/* Each plugin has its own. */
static mango_status op_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                              struct mango_sandbox_ref *ret);

static mango_status op_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    (void)id;
    return op_create(ctx, call, spec, ret);
}

static mango_status op_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    (void)ctx, (void)call, (void)id, (void)label;
    return MANGO_OK;
}

static mango_status op_health(void *ctx, const struct mango_call *call)
{
    (void)ctx, (void)call;
    return MANGO_OK;
}

static mango_status init_ok(const struct mango_host *h, const struct mango_call *call, struct mango_sv config,
                            void **ret_ctx)
{
    (void)call, (void)config;
    host = h;
    *ret_ctx = NULL;
    return MANGO_OK;
}

static void fini(void *ctx)
{
    (void)ctx;
}

#endif
