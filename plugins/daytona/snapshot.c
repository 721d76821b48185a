#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daytona/daytona.h"

/* Snapshots: named by us, so that a lost answer is found again. */

static bool snapshot_name(struct mango_sv text, char out[ID_MAX + 1])
{
    static const char prefix[] = SNAPSHOT_PREFIX;
    const uint64_t n = sizeof(prefix) - 1;
    if (text.len <= n || text.len - n > ID_MAX || memcmp(text.ptr, prefix, n) != 0)
        return false;
    snprintf(out, ID_MAX + 1, "%.*s", (int)(text.len - n), text.ptr + n);
    return remote_id_ok(sv_z(out));
}

/* MANGO_ENOENT: there is none. */
static mango_status look(struct daytona *d, const struct mango_call *call, const char *name, char id[ID_MAX + 1],
                         char state[STATE_MAX])
{
    char path[ID_MAX + 32];
    struct api_res r;
    snprintf(path, sizeof(path), "/snapshots/%s", name);
    mango_status s = api_call(d, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "look at the snapshot", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(d, call, &r, "look at the snapshot", MANGO_ENOENT);
    else if (s == MANGO_OK && (!json_copy(r.body, "id", id, ID_MAX + 1) || !remote_id_ok(sv_z(id)) ||
                               !json_copy(r.body, "state", state, STATE_MAX)))
        s = fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona described a snapshot without id or state");
    api_free(d, &r);
    return s;
}

static mango_status wait_active(struct daytona *d, const struct mango_call *call, const char *name)
{
    for (;;) {
        char id[ID_MAX + 1], state[STATE_MAX] = "";
        mango_status s = look(d, call, name, id, state);
        if (s == MANGO_OK && strcmp(state, "active") == 0)
            return s;
        if (s == MANGO_OK && (strcmp(state, "error") == 0 || strcmp(state, "build_failed") == 0))
            return fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona made no snapshot (%s)", state);
        if (s < 0 && s != MANGO_ENOENT)
            return s;
        if ((s = remote_wait(d->remote.host, call, POLL_MS)) < 0)
            return s;
    }
}

mango_status daytona_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret)
{
    struct daytona *d = ctx;
    struct errands_box *b;
    char name[40] = "mango-";
    int http = 0;
    struct seen seen = {0};
    text_auto struct text body = {0}, full = {0};
    mango_status s = errands_enter(&d->errands, call, id, &b);
    if (s < 0)
        return s;
    struct mango_call own = remote_within(d->remote.host, call, SNAPSHOT_MS);
    random_hex(name + 6, 32);
    text_printf(&body, "{\"name\":\"%s\"}", name);
    s = sandbox_post(d, &own, b->id, "/snapshot", &body, "make a snapshot", &http);
    if (s == MANGO_OK && http == 400) { /* machines must stand still; resume comes before the next call */
        s = daytona_pause(ctx, &own, id);
        if (s == MANGO_OK)
            s = sandbox_post(d, &own, b->id, "/snapshot", &body, "make a snapshot", &http);
    }
    if (s == MANGO_OK && http == 400)
        s = MANGO_EUNSUPPORTED; /* with the service's words */
    if (s == MANGO_OK)
        s = wait_active(d, &own, name);
    /* It answers again only when it is out of "snapshotting". */
    while (s == MANGO_OK && (s = sandbox_get(d, &own, b->id, &seen)) == MANGO_OK && state_is(&seen, "snapshotting"))
        s = remote_wait(d->remote.host, &own, POLL_MS);
    text_printf(&full, SNAPSHOT_PREFIX "%s", name);
    if (s < 0) { /* it may have been begun, and nobody will ask for it */
        const struct mango_call undo = remote_undo(d->remote.host, DESTROY_MS);
        (void)daytona_snapshot_delete(d, &undo, text_view(&full));
    }
    if (s == MANGO_OK)
        s = d->remote.host->buf_append(d->remote.host, ret, full.ptr, full.len);
    errands_leave(&d->errands, b);
    return s;
}

mango_status daytona_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot)
{
    struct daytona *d = ctx;
    struct api_res r;
    char name[ID_MAX + 1], id[ID_MAX + 1], state[STATE_MAX], path[ID_MAX + 32];
    if (!snapshot_name(snapshot, name))
        return fail(d->remote.host, call, MANGO_EINVALID, "no snapshot of Daytona has such a name");
    mango_status s = look(d, call, name, id, state);
    if (s < 0)
        return s == MANGO_ENOENT ? MANGO_OK : s;
    snprintf(path, sizeof(path), "/snapshots/%s", id);
    s = api_call(d, call, "DELETE", path, NULL, REMOTE_SAFE, "remove the snapshot", &r);
    if (s == MANGO_OK && !remote_good(&r.http) && !api_gone(&r))
        s = api_fail(d, call, &r, "remove the snapshot", MANGO_OK);
    api_free(d, &r);
    return s;
}

mango_status daytona_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                          const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct daytona *d = ctx;
    char name[ID_MAX + 1];
    struct mango_sandbox_spec own = *spec;
    if (!snapshot_name(snapshot, name))
        return fail(d->remote.host, call, MANGO_EINVALID, "no snapshot of Daytona has such a name");
    own.image = snapshot;
    return daytona_create(ctx, call, &own, ret);
}
