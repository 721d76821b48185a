#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daytona/daytona.h"

/* Settings, health, and the tables. */

enum { IDLE_MINUTES = 15, IDLE_MINUTES_MAX = 7 * 24 * 60 };

static char *setting_or(const struct mango_host *h, const char *name, const char *otherwise)
{
    char *z = remote_setting(h, name);
    return z ? z : strdup(otherwise);
}

static mango_status read_minutes(struct daytona *d, const struct mango_call *call)
{
    char *z = remote_setting(d->remote.host, "DAYTONA_AUTO_PAUSE_MINUTES"), *end = NULL;
    unsigned long v = z && *z >= '0' && *z <= '9' ? strtoul(z, &end, 10) : IDLE_MINUTES;
    bool ok = !z || (end && *end == '\0' && v <= IDLE_MINUTES_MAX);
    d->pause_asked = z != NULL && v > 0;
    d->idle_minutes = v;
    free(z);
    return ok ? MANGO_OK
              : fail(d->remote.host, call, MANGO_EINVALID,
                     "DAYTONA_AUTO_PAUSE_MINUTES is a number from 0 (never) to %d", IDLE_MINUTES_MAX);
}

static mango_status read_settings(struct daytona *d, const struct mango_call *call)
{
    const struct mango_host *h = d->remote.host;
    text_auto struct text bearer = {0};
    mango_status s = remote_url(h, call, "DAYTONA_API_URL", "https://app.daytona.io/api", &d->base);
    if (s == MANGO_OK)
        s = read_minutes(d, call);
    if (s < 0)
        return s;
    d->key = remote_setting(h, "DAYTONA_API_KEY");
    if (!d->key)
        return fail(h, call, MANGO_EINVALID, "DAYTONA_API_KEY must be set to a key of the Daytona service");
    text_printf(&bearer, "Bearer %s", d->key);
    d->bearer = bearer.bad ? NULL : strdup(bearer.ptr);
    explicit_bzero(bearer.ptr, bearer.len);
    d->organization = remote_setting(h, "DAYTONA_ORGANIZATION_ID");
    d->target = remote_setting(h, "DAYTONA_TARGET");
    d->snapshot = remote_setting(h, "DAYTONA_SNAPSHOT");
    d->image = setting_or(h, "DAYTONA_IMAGE", "python:3.12-slim");
    d->workspace = setting_or(h, "DAYTONA_WORKSPACE", "/home/daytona");
    if (!d->bearer || !d->image || !d->workspace || !remote_secret(&d->remote, d->key))
        return fail(h, call, MANGO_ERETRY, "out of memory");
    if (d->workspace[0] != '/' || strlen(d->workspace) < 2 || strpbrk(d->workspace, " '\"\\$`\n"))
        return fail(h, call, MANGO_EINVALID, "DAYTONA_WORKSPACE is an absolute path without blanks and quotes");
    return MANGO_OK;
}

static void wipe(char *z)
{
    if (z)
        explicit_bzero(z, strlen(z));
    free(z);
}

static void daytona_free(struct daytona *d)
{
    errands_close(&d->errands);
    remote_close(&d->remote);
    wipe(d->key);
    wipe(d->bearer);
    free(d->base);
    free(d->organization);
    free(d->target);
    free(d->snapshot);
    free(d->image);
    free(d->workspace);
    free(d);
}

static mango_status daytona_init(const struct mango_host *host, const struct mango_call *call, struct mango_sv config,
                                 void **ret_ctx)
{
    (void)config; /* the settings are asked for by name */
    struct daytona *d = calloc(1, sizeof(*d));
    if (!d)
        return fail(host, call, MANGO_ERETRY, "out of memory");
    mango_status s = remote_open(&d->remote, host, call, "Daytona", "DAYTONA");
    if (s == MANGO_OK)
        s = read_settings(d, call);
    if (s == MANGO_OK)
        s = errands_open(&d->errands, host, call, &toolbox_service, d);
    if (s < 0) {
        daytona_free(d);
        return s;
    }
    *ret_ctx = d;
    return MANGO_OK;
}

static void daytona_fini(void *ctx)
{
    daytona_free(ctx);
}

static mango_status daytona_health(void *ctx, const struct mango_call *call)
{
    struct daytona *d = ctx;
    struct api_res r;
    struct mango_call own = remote_within(d->remote.host, call, HEALTH_MS);
    mango_status s =
        api_call(d, &own, "GET", "/sandbox?limit=1", NULL, REMOTE_SAFE | REMOTE_SINGLE | REMOTE_JSON, "answer", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(d, call, &r, "answer", MANGO_ERETRY);
    api_free(d, &r);
    return s;
}

/* ---- commands and files: mango-rbox's ---- */

static mango_status daytona_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                                 const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    return errands_exec(&((struct daytona *)ctx)->errands, call, id, req, ret);
}

static mango_status daytona_read(void *ctx, const struct mango_call *call, struct mango_sv id,
                                 const struct mango_read_req *req, int32_t *ret_eof)
{
    return errands_read(&((struct daytona *)ctx)->errands, call, id, req, ret_eof);
}

static mango_status daytona_write(void *ctx, const struct mango_call *call, struct mango_sv id,
                                  const struct mango_write_req *req)
{
    return errands_write(&((struct daytona *)ctx)->errands, call, id, req);
}

static mango_status daytona_stat(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv path,
                                 uint32_t flags, struct mango_stat *ret)
{
    return errands_stat(&((struct daytona *)ctx)->errands, call, id, path, flags, ret);
}

static const struct mango_sandbox_ops ops = {
    .struct_size = sizeof(ops),
    .create = daytona_create,
    .attach = daytona_attach,
    .exec = daytona_exec,
    .read = daytona_read,
    .write = daytona_write,
    .stat = daytona_stat,
    .destroy = daytona_destroy,
    .health = daytona_health,
    .detach = daytona_detach,
    .list_owned = daytona_list_owned,
    .pause = daytona_pause,
    .resume = daytona_resume,
    .snapshot = daytona_snapshot,
    .snapshot_delete = daytona_snapshot_delete,
    .fork = daytona_fork,
    .set_network = daytona_set_network,
    .keep_alive = daytona_keep_alive,
};

static const struct mango_plugin plugin = {
    MANGO_PLUGIN_PREFIX,
    .kind = MANGO_KIND_SANDBOX,
    .name = "daytona",
    .version = "1.0",
    .license = "Apache-2.0",
    .summary = "one sandbox of a Daytona service per session",
    .caps = MANGO_CAP_LIST_OWNED | MANGO_CAP_PAUSE | MANGO_CAP_SNAPSHOT | MANGO_CAP_FORK | MANGO_CAP_EGRESS_LIMITED |
            MANGO_CAP_KEEP_ALIVE | MANGO_CAP_DURABLE_WORKSPACE | MANGO_CAP_CONCURRENT_EXEC | MANGO_CAP_ISOLATED |
            MANGO_CAP_NO_NETWORK | MANGO_TRAIT_SNAPSHOT_STOPS | MANGO_TRAIT_HOST_NAMES,
    .required_host = MANGO_HOST_HTTP,
    .init = daytona_init,
    .fini = daytona_fini,
    .sandbox = &ops,
};

MANGO_EXPORT const struct mango_plugin *mango_plugin_entry(void)
{
    return &plugin;
}
