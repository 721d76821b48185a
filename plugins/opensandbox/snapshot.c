#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opensandbox/opensandbox.h"

/* Snapshots of the service: begun at once, ready later. */

static bool snapshot_id(struct mango_sv name, char out[ID_MAX + 1])
{
    static const char prefix[] = SNAPSHOT_PREFIX;
    const uint64_t n = sizeof(prefix) - 1;
    if (name.len <= n || name.len - n > ID_MAX || memcmp(name.ptr, prefix, n) != 0)
        return false;
    snprintf(out, ID_MAX + 1, "%.*s", (int)(name.len - n), name.ptr + n);
    return remote_id_ok(sv_z(out));
}

static mango_status wait_ready(struct osb *o, const struct mango_call *call, const char *id)
{
    char path[ID_MAX + 32];
    snprintf(path, sizeof(path), "/snapshots/%s", id);
    for (;;) {
        struct api_res r;
        char state[STATE_MAX] = "", why[200] = "";
        mango_status s = api_call(o, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "look at the snapshot", &r);
        if (s == MANGO_OK && !remote_good(&r.http))
            s = api_fail(o, call, &r, "look at the snapshot", MANGO_ENOENT);
        if (s == MANGO_OK) {
            (void)json_copy(r.body, "status/state", state, sizeof(state));
            (void)json_copy(r.body, "status/message", why, sizeof(why));
        }
        api_free(o, &r);
        if (s < 0 || strcmp(state, "Ready") == 0)
            return s;
        if (strcmp(state, "Creating") != 0)
            return fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox made no snapshot (%s): %.150s", state, why);
        if ((s = remote_wait(o->remote.host, call, POLL_MS)) < 0)
            return s;
    }
}

mango_status osb_snapshot(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_buf *ret)
{
    struct osb *o = ctx;
    struct errands_box *b;
    struct api_res r;
    char path[ID_MAX + 64], made[ID_MAX + 1], name[sizeof(SNAPSHOT_PREFIX) + ID_MAX];
    text_auto struct text body = {0};
    mango_status s = errands_enter(&o->errands, call, id, &b);
    if (s < 0)
        return s;
    struct mango_call own = remote_within(o->remote.host, call, SNAPSHOT_MS);
    text_add(&body, "{}");
    snprintf(path, sizeof(path), "/sandboxes/%s/snapshots", b->id);
    s = api_call(o, &own, "POST", path, &body, REMOTE_JSON | REMOTE_ONCE, "make a snapshot", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "make a snapshot", MANGO_EGONE);
    else if (s == MANGO_OK && (!json_copy(r.body, "id", made, sizeof(made)) || !remote_id_ok(sv_z(made))))
        s = fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox named no snapshot");
    api_free(o, &r);
    if (s == MANGO_OK) {
        snprintf(name, sizeof(name), SNAPSHOT_PREFIX "%s", made);
        s = wait_ready(o, &own, made);
        if (s < 0) { /* nobody will ask for it */
            const struct mango_call undo = remote_undo(o->remote.host, DESTROY_MS);
            (void)osb_snapshot_delete(o, &undo, sv_z(name));
        }
    }
    if (s == MANGO_OK)
        s = o->remote.host->buf_append(o->remote.host, ret, name, strlen(name));
    errands_leave(&o->errands, b);
    return s;
}

mango_status osb_snapshot_delete(void *ctx, const struct mango_call *call, struct mango_sv snapshot)
{
    struct osb *o = ctx;
    struct api_res r;
    char id[ID_MAX + 1], path[ID_MAX + 32];
    if (!snapshot_id(snapshot, id))
        return fail(o->remote.host, call, MANGO_EINVALID, "no snapshot of OpenSandbox has such a name");
    snprintf(path, sizeof(path), "/snapshots/%s", id);
    mango_status s = api_call(o, call, "DELETE", path, NULL, REMOTE_SAFE, "remove the snapshot", &r);
    if (s == MANGO_OK && !remote_good(&r.http) && !api_gone(&r))
        s = api_fail(o, call, &r, "remove the snapshot", MANGO_OK);
    api_free(o, &r);
    return s;
}

mango_status osb_fork(void *ctx, const struct mango_call *call, struct mango_sv snapshot,
                      const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct osb *o = ctx;
    char id[ID_MAX + 1];
    struct mango_sandbox_spec own = *spec;
    if (!snapshot_id(snapshot, id))
        return fail(o->remote.host, call, MANGO_EINVALID, "no snapshot of OpenSandbox has such a name");
    own.image = snapshot;
    return osb_create(ctx, call, &own, ret);
}
