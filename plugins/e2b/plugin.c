#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/envd.h"

/* Backend `e2b`: sandboxes of E2B, or of a server of one's own that speaks like it. */

static mango_status read_settings(struct envd *e, const struct mango_call *call)
{
    const struct mango_host *h = e->host;
    text_auto struct text api = {0};
    if (!e->key)
        return fail(h, call, MANGO_EINVALID,
                    "E2B_API_KEY is not set; it is the account's key, from the service's page");
    e->domain = remote_setting(h, "E2B_DOMAIN");
    if (!e->domain)
        e->domain = strdup("e2b.app");
    e->image = remote_setting(h, "E2B_TEMPLATE_ID");
    if (!e->image)
        e->image = strdup("base");
    e->data_scheme = strdup("https");
    if (!e->domain || !e->image || !e->data_scheme)
        return envd_no_memory(e, call);
    if (!remote_id_ok(sv_z(e->domain)))
        return fail(h, call, MANGO_EINVALID, "E2B_DOMAIN is '%.100s'; it must be a domain such as e2b.app", e->domain);
    text_printf(&api, "https://api.%s", e->domain);
    mango_status s = api.bad ? envd_no_memory(e, call) : remote_url(h, call, "E2B_API_URL", api.ptr, &e->api);
    char *fixed = remote_setting(h, "E2B_SANDBOX_URL");
    if (s == MANGO_OK && fixed)
        s = remote_url(h, call, "E2B_SANDBOX_URL", NULL, &e->data_url);
    free(fixed);
    return s == MANGO_OK ? remote_bool(h, call, "E2B_PUBLIC_TRAFFIC", false, &e->public_traffic) : s;
}

static const struct envd_flavor flavor = {.service = "E2B", .prefix = "E2B", .v2 = true, .settings = read_settings};

static mango_status e2b_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                             void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    return envd_init(&flavor, host, call, ret_ctx);
}

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "e2b",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one microVM of E2B per session, over its API",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PAUSE | MANGO_CAP_SNAPSHOT | MANGO_CAP_FORK | MANGO_CAP_EGRESS_LIMITED |
            MANGO_CAP_KEEP_ALIVE | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC | MANGO_CAP_ISOLATED |
            MANGO_CAP_NO_NETWORK,
    .required_host = MANGO_HOST_HTTP,
    .init = e2b_init,
    .fini = envd_fini,
    .sandbox = &envd_ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
