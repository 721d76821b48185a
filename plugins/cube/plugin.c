#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/envd.h"

/* Backend `cube`: sandboxes of a CubeSandbox server. It speaks like E2B; its data plane is found by host names alone, which mostly
 * mean something inside of its cluster only, so that the address of its proxy is a setting. */

enum { PORT_HTTP = 80, PORT_HTTPS = 443, PORT_MAX = 65535 };

/* CUBE_PROXY_NODE_IP, CUBE_PROXY_PORT_HTTP and CUBE_PROXY_SCHEME: where the proxy is, under whatever name it is asked. */
static mango_status read_proxy(struct envd *e, const struct mango_call *call)
{
    const struct mango_host *h = e->host;
    char *node = remote_setting(h, "CUBE_PROXY_NODE_IP"), *port = remote_setting(h, "CUBE_PROXY_PORT_HTTP");
    char *scheme = remote_setting(h, "CUBE_PROXY_SCHEME"), *end = NULL;
    unsigned long n = port && *port >= '0' && *port <= '9' ? strtoul(port, &end, 10) : PORT_HTTP;
    bool https = scheme ? strcmp(scheme, "https") == 0 : n == PORT_HTTPS;
    mango_status s = MANGO_OK;
    text_auto struct text at = {0}, behind = {0};
    if ((port && (!end || *end)) || n == 0 || n > PORT_MAX)
        s = fail(h, call, MANGO_EINVALID, "CUBE_PROXY_PORT_HTTP is '%.50s'; it must be a port", port ? port : "");
    else if (scheme && !https && strcmp(scheme, "http") != 0)
        s = fail(h, call, MANGO_EINVALID, "CUBE_PROXY_SCHEME is '%.50s'; it must be http or https", scheme);
    else if (node && strpbrk(node, "/@ \t"))
        s = fail(h, call, MANGO_EINVALID, "CUBE_PROXY_NODE_IP is '%.100s'; it must be an address", node);
    if (node)
        text_printf(&at, strchr(node, ':') && node[0] != '[' ? "[%s]:%lu" : "%s:%lu", node, n);
    else if (n != (https ? PORT_HTTPS : PORT_HTTP))
        text_printf(&behind, ":%lu", n);
    e->data_at = at.ptr ? strdup(at.ptr) : NULL;
    e->data_port = behind.ptr ? strdup(behind.ptr) : NULL;
    e->data_scheme = strdup(https ? "https" : "http");
    if (s == MANGO_OK && (!e->data_scheme || at.bad || behind.bad))
        s = envd_no_memory(e, call);
    free(node);
    free(port);
    free(scheme);
    return s;
}

static mango_status read_settings(struct envd *e, const struct mango_call *call)
{
    const struct mango_host *h = e->host;
    e->image = remote_setting(h, "CUBE_TEMPLATE_ID");
    if (!e->image)
        return fail(h, call, MANGO_EINVALID,
                    "CUBE_TEMPLATE_ID is not set; it is the template that sandboxes are made from");
    e->domain = remote_setting(h, "CUBE_SANDBOX_DOMAIN");
    if (!e->domain)
        e->domain = strdup("cube.app");
    if (!e->user)
        e->user = strdup("root"); /* as the service's own client has it */
    if (!e->domain || !e->user)
        return envd_no_memory(e, call);
    if (!remote_id_ok(sv_z(e->domain)))
        return fail(h, call, MANGO_EINVALID, "CUBE_SANDBOX_DOMAIN is '%.100s'; it must be a domain such as cube.app",
                    e->domain);
    mango_status s = remote_url(h, call, "CUBE_API_URL", "http://127.0.0.1:3000", &e->api);
    return s == MANGO_OK ? read_proxy(e, call) : s;
}

static const struct envd_flavor flavor = {.service = "CubeSandbox",
                                          .prefix = "CUBE",
                                          .bearer = true,
                                          .by_host = true,
                                          .both_spellings = true,
                                          .settings = read_settings};

static mango_status cube_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                              void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    return envd_init(&flavor, host, call, ret_ctx);
}

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "cube",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one microVM of a CubeSandbox server per session, over its API",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PAUSE | MANGO_CAP_KEEP_ALIVE | MANGO_CAP_DURABLE_WORKSPACE |
            MANGO_CAP_CONCURRENT_EXEC | MANGO_CAP_ISOLATED | MANGO_CAP_NO_NETWORK,
    .required_host = MANGO_HOST_HTTP,
    .init = cube_init,
    .fini = envd_fini,
    .sandbox = &envd_ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
