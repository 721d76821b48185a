/* A plugin that reaches the network by the host's services alone, as an adapter does. exec's argv: what to do, URL,
 * path of a unix socket, and bytes to send. Built and driven by tests/support/peer-rig.c. */
#include <string.h>

#include "still.h"

static int is(struct mango_sv s, const char *z)
{
    return s.len == strlen(z) && memcmp(s.ptr, z, s.len) == 0;
}

/* The answer to the sink, chunk by chunk. */
static mango_status http(const struct mango_call *call, const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct mango_http_res res = {.struct_size = sizeof(res), .sink = req->sink, .sink_ctx = req->sink_ctx};
    const struct mango_http_req r = {.struct_size = sizeof(r),
                                     .method = {"POST", 4},
                                     .url = req->argv[1],
                                     .unix_socket = req->argv[2],
                                     .body = req->argv[3]};
    mango_status s = host->http_call(host, call, &r, &res);
    ret->exit_code = res.status / 100 == 2 ? 0 : 1;
    return s;
}

/* Sends the bytes on an upgraded connection, ends the writing side, and gives all that comes back. */
static mango_status hijack(const struct mango_call *call, const struct mango_exec_req *req)
{
    static const struct mango_http_header headers[] = {{{"Connection", 10}, {"Upgrade", 7}},
                                                       {{"Upgrade", 7}, {"tcp", 3}}};
    struct mango_http_res res = {.struct_size = sizeof(res)};
    const struct mango_http_req r = {.struct_size = sizeof(r),
                                     .method = {"POST", 4},
                                     .url = req->argv[1],
                                     .unix_socket = req->argv[2],
                                     .headers = headers,
                                     .n_headers = 2,
                                     .body = {"{\"Tty\":false}", 13}};
    char piece[4096];
    mango_conn c = 0;
    uint64_t n = 0;
    mango_status s = host->conn_open(host, call, &r, &res, &c);
    if (s < 0)
        return s;
    if (!c)
        return host->err_set(host, call, MANGO_EINTERNAL, "the service did not upgrade the connection", NULL, 0);
    s = host->conn_write(host, call, c, req->argv[3].ptr, req->argv[3].len);
    if (s == MANGO_OK)
        s = host->conn_shutdown(host, call, c);
    while (s == MANGO_OK && (s = host->conn_read(host, call, c, piece, sizeof(piece), &n)) == MANGO_OK && n > 0)
        req->sink(req->sink_ctx, 1, piece, n);
    host->conn_close(host, c);
    return s;
}

static mango_status op_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    (void)ctx, (void)id;
    host->metric_add(host, "execs", 1);
    ret->exited = 1;
    return is(req->argv[0], "http") ? http(call, req, ret) : hijack(call, req);
}

static mango_status op_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                              struct mango_sandbox_ref *ret)
{
    (void)ctx, (void)call, (void)spec, (void)ret;
    return MANGO_EUNSUPPORTED;
}
static mango_status op_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_read_req *req, int32_t *ret_eof)
{
    (void)ctx, (void)call, (void)id, (void)req, (void)ret_eof;
    return MANGO_EUNSUPPORTED;
}
static mango_status op_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_write_req *req)
{
    (void)ctx, (void)call, (void)id, (void)req;
    return MANGO_EUNSUPPORTED;
}
static mango_status op_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                            uint32_t flags, struct mango_stat *ret)
{
    (void)ctx, (void)call, (void)id, (void)path, (void)flags, (void)ret;
    return MANGO_EUNSUPPORTED;
}
static const struct mango_sandbox_ops ops = {.struct_size = sizeof(ops),
                                             .create = op_create,
                                             .attach = op_attach,
                                             .exec = op_exec,
                                             .read = op_read,
                                             .write = op_write,
                                             .stat = op_stat,
                                             .destroy = op_destroy,
                                             .health = op_health};
static const struct mango_plugin plugin = {MANGO_PLUGIN_PREFIX,
                                           .kind = MANGO_KIND_SANDBOX,
                                           .name = "network",
                                           .version = "1",
                                           .license = "MIT",
                                           .summary = "for tests",
                                           .required_host = MANGO_HOST_HTTP | MANGO_HOST_UPGRADE,
                                           .init = init_ok,
                                           .fini = fini,
                                           .sandbox = &ops};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
