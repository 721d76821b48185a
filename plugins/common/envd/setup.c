#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/envd.h"

/* Settings that both backends have. What only one has is in its own folder. */

char *envd_setting(const struct envd *e, const char *name)
{
    char variable[64];
    snprintf(variable, sizeof(variable), "%s_%s", e->flavor->prefix, name);
    return remote_setting(e->host, variable);
}

mango_status envd_no_memory(const struct envd *e, const struct mango_call *call)
{
    return fail(e->host, call, MANGO_ERETRY, "out of memory");
}

static mango_status read_root(struct envd *e, const struct mango_call *call)
{
    e->root = envd_setting(e, "WORKSPACE");
    if (!e->root)
        e->root = strdup("/workspace");
    if (!e->root)
        return envd_no_memory(e, call);
    size_t n = strlen(e->root);
    if (n < 2 || n >= ENVD_ROOT_MAX || e->root[0] != '/' || e->root[n - 1] == '/' || strstr(e->root, "/../"))
        return fail(e->host, call, MANGO_EINVALID,
                    "%s_WORKSPACE is '%.100s'; it must be an absolute path of at most %d bytes, and not /",
                    e->flavor->prefix, e->root, ENVD_ROOT_MAX - 1);
    return MANGO_OK;
}

static mango_status open_it(struct envd *e, const struct mango_host *h, const struct mango_call *call,
                            const struct envd_flavor *flavor)
{
    char variable[64];
    *e = (struct envd){.flavor = flavor, .host = h};
    live_table_init(&e->boxes);
    /* CUBE_PROXY_* are names of the service's own. */
    snprintf(variable, sizeof(variable), "%s%s", flavor->prefix, flavor->by_host ? "_HTTP" : "");
    mango_status s = remote_open(&e->r, h, call, flavor->service, variable);
    e->key = envd_setting(e, "API_KEY");
    e->user = envd_setting(e, "USER");
    snprintf(variable, sizeof(variable), "%s_IDLE_TIMEOUT", flavor->prefix);
    if (s == MANGO_OK)
        s = remote_seconds(h, call, variable, 300, ENVD_IDLE_MIN_S, ENVD_IDLE_MAX_S, &e->idle_s);
    if (s == MANGO_OK)
        s = read_root(e, call);
    if (s == MANGO_OK && !remote_secret(&e->r, e->key))
        s = envd_no_memory(e, call);
    snprintf(variable, sizeof(variable), "%s_RBOX", flavor->prefix);
    if (s == MANGO_OK)
        s = rbox_load(h, call, variable, &e->program);
    return s == MANGO_OK ? flavor->settings(e, call) : s;
}

void envd_fini(void *ctx)
{
    struct envd *e = ctx;
    envd_drop_all(e);
    live_table_destroy(&e->boxes);
    if (e->key)
        explicit_bzero(e->key, strlen(e->key));
    char *all[] = {e->api,  e->key,      e->image,       e->domain,  e->root,
                   e->user, e->data_url, e->data_scheme, e->data_at, e->data_port};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    rbox_unload(e->host, &e->program);
    remote_close(&e->r);
    free(e);
}

mango_status envd_init(const struct envd_flavor *flavor, const struct mango_host *h, const struct mango_call *call,
                       void **ret_ctx)
{
    struct envd *e = calloc(1, sizeof(*e));
    if (!e)
        return fail(h, call, MANGO_ERETRY, "out of memory");
    mango_status s = open_it(e, h, call, flavor);
    if (s < 0) {
        envd_fini(e);
        return s;
    }
    *ret_ctx = e;
    return MANGO_OK;
}
