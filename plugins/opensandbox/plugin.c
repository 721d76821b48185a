#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opensandbox/opensandbox.h"

/* Settings, health, and the tables. */

enum { TIMEOUT_MAX_S = 30 * 86400 };

static char *setting_or(const struct mango_host *h, const char *name, const char *otherwise)
{
    char *z = remote_setting(h, name);
    return z ? z : strdup(otherwise);
}

/* "localhost:8080", or a whole URL; with or without /v1. */
static mango_status read_base(struct osb *o, const struct mango_call *call)
{
    char *domain = setting_or(o->remote.host, "OPEN_SANDBOX_DOMAIN", "localhost:8080");
    char *protocol = setting_or(o->remote.host, "OPEN_SANDBOX_PROTOCOL", "http");
    text_auto struct text t = {0};
    bool whole = domain && strstr(domain, "://");
    if (domain && protocol)
        text_printf(&t, whole ? "%.0s%s" : "%s://%s", protocol, domain);
    free(domain);
    free(protocol);
    while (t.len > 0 && t.ptr[t.len - 1] == '/')
        t.ptr[--t.len] = '\0';
    if (t.len == 0 || t.bad || (strncmp(t.ptr, "http://", 7) != 0 && strncmp(t.ptr, "https://", 8) != 0) ||
        strchr(t.ptr, '@'))
        return fail(o->remote.host, call, MANGO_EINVALID,
                    "OPEN_SANDBOX_DOMAIN is a host with its port, or a URL of http or https without a password, and "
                    "OPEN_SANDBOX_PROTOCOL is http or https");
    o->scheme = strdup(t.ptr[4] == 's' ? "https" : "http");
    if (t.len < 3 || strcmp(t.ptr + t.len - 3, "/v1") != 0)
        text_add(&t, "/v1");
    o->base = t.bad ? NULL : strdup(t.ptr);
    return o->scheme && o->base ? MANGO_OK : fail(o->remote.host, call, MANGO_ERETRY, "out of memory");
}

static mango_status read_settings(struct osb *o, const struct mango_call *call)
{
    const struct mango_host *h = o->remote.host;
    mango_status s = read_base(o, call);
    if (s == MANGO_OK)
        s = remote_bool(h, call, "OPEN_SANDBOX_USE_SERVER_PROXY", false, &o->server_proxy);
    if (s == MANGO_OK)
        s = remote_seconds(h, call, "OPEN_SANDBOX_TIMEOUT", 0, 0, TIMEOUT_MAX_S, &o->timeout_s);
    if (s < 0)
        return s;
    if (o->timeout_s && o->timeout_s < TIMEOUT_MIN_S)
        return fail(h, call, MANGO_EINVALID,
                    "OPEN_SANDBOX_TIMEOUT is 0 (sandboxes live until their session is deleted) or at "
                    "least %d seconds",
                    TIMEOUT_MIN_S);
    o->key = remote_setting(h, "OPEN_SANDBOX_API_KEY");
    o->image = setting_or(h, "OPEN_SANDBOX_IMAGE", "python:3.12-slim");
    o->cpu = setting_or(h, "OPEN_SANDBOX_CPU", "1");
    o->memory = setting_or(h, "OPEN_SANDBOX_MEMORY", "2Gi");
    o->workspace = setting_or(h, "OPEN_SANDBOX_WORKSPACE", "/workspace");
    if (!o->image || !o->cpu || !o->memory || !o->workspace || !remote_secret(&o->remote, o->key))
        return fail(h, call, MANGO_ERETRY, "out of memory");
    if (o->workspace[0] != '/' || strlen(o->workspace) < 2 || strpbrk(o->workspace, " '\"\\$`\n"))
        return fail(h, call, MANGO_EINVALID, "OPEN_SANDBOX_WORKSPACE is an absolute path without blanks and quotes");
    return MANGO_OK;
}

static void osb_free(struct osb *o)
{
    errands_close(&o->errands);
    remote_close(&o->remote);
    for (int i = 0; i < MAKING_LOCKS; i++)
        pthread_mutex_destroy(&o->making[i]);
    free(o->base);
    free(o->scheme);
    if (o->key)
        explicit_bzero(o->key, strlen(o->key));
    free(o->key);
    free(o->image);
    free(o->cpu);
    free(o->memory);
    free(o->workspace);
    free(o);
}

static mango_status osb_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                             void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct osb *o = calloc(1, sizeof(*o));
    if (!o)
        return fail(host, call, MANGO_ERETRY, "out of memory");
    for (int i = 0; i < MAKING_LOCKS; i++)
        pthread_mutex_init(&o->making[i], NULL);
    mango_status s = remote_open(&o->remote, host, call, "OpenSandbox", "OPEN_SANDBOX");
    if (s == MANGO_OK)
        s = read_settings(o, call);
    if (s == MANGO_OK)
        s = errands_open(&o->errands, host, call, &execd_service, o);
    if (s < 0) {
        osb_free(o);
        return s;
    }
    *ret_ctx = o;
    return MANGO_OK;
}

static void osb_fini(void *ctx)
{
    osb_free(ctx);
}

/* Whether the key is good, without work for the service: a sandbox that cannot be there is looked for. */
static mango_status osb_health(void *ctx, const struct mango_call *call)
{
    struct osb *o = ctx;
    struct api_res r;
    struct mango_call own = remote_within(o->remote.host, call, HEALTH_MS);
    mango_status s =
        api_call(o, &own, "GET", "/sandboxes/mango-health", NULL, REMOTE_SAFE | REMOTE_SINGLE, "answer", &r);
    if (s == MANGO_OK && !remote_good(&r.http) && !api_gone(&r))
        s = api_fail(o, call, &r, "answer", MANGO_ERETRY);
    api_free(o, &r);
    return s;
}

/* ---- commands and files: mango-rbox's ---- */

static mango_status osb_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    return errands_exec(&((struct osb *)ctx)->errands, call, id, req, ret);
}

static mango_status osb_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                             const struct mango_read_req *req, int32_t *ret_eof)
{
    return errands_read(&((struct osb *)ctx)->errands, call, id, req, ret_eof);
}

static mango_status osb_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_write_req *req)
{
    return errands_write(&((struct osb *)ctx)->errands, call, id, req);
}

static mango_status osb_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                             uint32_t flags, struct mango_stat *ret)
{
    return errands_stat(&((struct osb *)ctx)->errands, call, id, path, flags, ret);
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = osb_create,
    .attach = osb_attach,
    .exec = osb_exec,
    .read = osb_read,
    .write = osb_write,
    .stat = osb_stat,
    .destroy = osb_destroy,
    .health = osb_health,
    .detach = osb_detach,
    .list_owned = osb_list_owned,
    .pause = osb_pause,
    .resume = osb_resume,
    .snapshot = osb_snapshot,
    .snapshot_delete = osb_snapshot_delete,
    .fork = osb_fork,
    .set_network = osb_set_network,
    .keep_alive = osb_keep_alive,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "opensandbox",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one sandbox of an OpenSandbox service per session",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PAUSE | MANGO_CAP_SNAPSHOT | MANGO_CAP_FORK | MANGO_CAP_EGRESS_LIMITED |
            MANGO_CAP_KEEP_ALIVE | MANGO_CAP_CONCURRENT_EXEC | MANGO_CAP_ISOLATED | MANGO_CAP_NO_NETWORK |
            MANGO_TRAIT_HOST_NAMES,
    .required_host = MANGO_HOST_HTTP,
    .init = osb_init,
    .fini = osb_fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
