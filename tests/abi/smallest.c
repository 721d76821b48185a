/* What an author's first plugin looks like: built by a test with nothing but `pkg-config --cflags mango-plugin` and a C compiler. */
#include <mango/plugin.h>

static const struct mango_host *host;

static mango_status create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct mango_sandbox_ref *ret)
{
    (void)ctx, (void)call;
    mango_status s = host->buf_append(host, ret->id, spec->label.ptr, spec->label.len);
    return s < 0 ? s : host->buf_append(host, ret->root, "/", 1);
}
static mango_status attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    (void)id;
    return create(ctx, call, spec, ret);
}
static mango_status run(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                        struct mango_exec_result *ret)
{
    (void)ctx, (void)call, (void)id;
    req->sink(req->sink_ctx, 1, "hello\n", 6);
    ret->exited = 1;
    return MANGO_OK;
}
static mango_status read_file(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_read_req *req, int32_t *ret_eof)
{
    (void)ctx, (void)id, (void)req, (void)ret_eof;
    return host->err_set(host, call, MANGO_ENOENT, "there are no files here", NULL, 0);
}
static mango_status write_file(void *ctx, const struct mango_call *call, struct mango_sv id,
                               const struct mango_write_req *req)
{
    (void)ctx, (void)id, (void)req;
    return host->err_set(host, call, MANGO_EUNSUPPORTED, "nothing can be written here", NULL, 0);
}
static mango_status stat_file(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                              uint32_t flags, struct mango_stat *ret)
{
    (void)ctx, (void)id, (void)path, (void)flags, (void)ret;
    return host->err_set(host, call, MANGO_ENOENT, "there are no files here", NULL, 0);
}
static mango_status destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    (void)ctx, (void)call, (void)id, (void)label;
    return MANGO_OK;
}
static mango_status health(void *ctx, const struct mango_call *call)
{
    (void)ctx, (void)call;
    return MANGO_OK;
}
static mango_status init(const struct mango_host *h, const struct mango_call *call, struct mango_sv config,
                         void **ret_ctx)
{
    (void)call, (void)config, (void)ret_ctx;
    host = h;
    return MANGO_OK;
}
static void fini(void *ctx)
{
    (void)ctx;
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = create,
    .attach = attach,
    .exec = run,
    .read = read_file,
    .write = write_file,
    .stat = stat_file,
    .destroy = destroy,
    .health = health,
};
static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX, .kind = MANGO_KIND_SANDBOX, .name = "smallest", .version = "1.0",
    .license = "MIT",    .summary = "says hello",    .init = init,       .fini = fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
