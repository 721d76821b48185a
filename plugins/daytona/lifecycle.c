#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/when.h"
#include "daytona/daytona.h"

#define WORKDIR_RULE "the workspace is an absolute path of letters, digits and /._-"

/* Making, finding, stopping and ending. */

static void name_of(struct mango_sv label, char out[NAME_LEN + 1])
{
    snprintf(out, NAME_LEN + 1, "mango-%.*s", (int)label.len, label.ptr);
}

/* ---- attach ---- */

/* It stands in command lines of a shell. */
static bool workdir_ok(struct mango_sv dir)
{
    for (uint64_t i = 0; i < dir.len; i++) {
        char c = dir.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("/._-", c);
        if (!ok || c == '\0')
            return false;
    }
    return dir.len == 0 || (dir.ptr[0] == '/' && dir.len > 1 && dir.len < 400);
}

static mango_status bind(struct daytona *d, const struct mango_call *call, const char *id,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    const struct mango_host *h = d->remote.host;
    struct seen seen = {0};
    char root[512];
    if (!workdir_ok(spec->workdir))
        return fail(h, call, MANGO_EINVALID, WORKDIR_RULE);
    mango_status s = sandbox_get(d, call, id, &seen);
    if (s == MANGO_OK && (!seen.ours || !sv_is(spec->label, seen.label)))
        return fail(h, call, MANGO_EDENIED, "the sandbox belongs to another session, or was not made by Mango");
    if (s == MANGO_OK)
        s = sandbox_run(d, call, id, &seen);
    if (s < 0)
        return s;
    struct own *own = own_new(&seen);
    if (!own)
        return fail(h, call, MANGO_ERETRY, "out of memory");
    if (spec->workdir.len > 0)
        snprintf(root, sizeof(root), "%.*s", (int)spec->workdir.len, spec->workdir.ptr);
    else
        snprintf(root, sizeof(root), "%s", d->workspace);
    s = errands_enter_new(&d->errands, call, sv_z(seen.id), root, spec, own);
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->id, seen.id, strlen(seen.id));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->root, root, strlen(root));
    int64_t left = (seen.ends_us - when_now_us() - atomic_load(&d->clock_us)) / 1000000;
    ret->expires_s = seen.ends_us == 0 ? d->idle_minutes * 60
                     : left > 1        ? (uint64_t)left
                                       : 1; /* or its timer, when nobody asks */
    return s;
}

mango_status daytona_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                            const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    char z[ID_MAX + 1];
    struct daytona *d = ctx;
    if (!remote_id_ok(id))
        return fail(d->remote.host, call, MANGO_EGONE, "no sandbox of Daytona has such an id");
    snprintf(z, sizeof(z), "%.*s", (int)id.len, id.ptr);
    return bind(d, call, z, spec, ret);
}

mango_status daytona_detach(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct daytona *d = ctx;
    (void)call;
    errands_drop(&d->errands, id);
    return MANGO_OK;
}

/* ---- create ---- */

static mango_status check_spec(struct daytona *d, const struct mango_call *call, const struct mango_sandbox_spec *spec)
{
    const struct mango_host *h = d->remote.host;
    if (!sv_hex(spec->label, 32) || !sv_hex(spec->owner, 32))
        return fail(h, call, MANGO_EINVALID, "label and owner have 32 hex digits");
    if (spec->n_mounts > 0)
        return fail(h, call, MANGO_EUNSUPPORTED, "mounts of this server's host do not reach a remote sandbox");
    if (spec->pids)
        return fail(h, call, MANGO_EUNSUPPORTED, "Daytona limits no processes");
    if (!workdir_ok(spec->workdir))
        return fail(h, call, MANGO_EINVALID, WORKDIR_RULE);
    return MANGO_OK;
}

/* The service counts in whole cores and gigabytes: what is asked for is rounded up. */
static void put_resources(const struct mango_sandbox_spec *spec, struct text *body)
{
    const uint64_t gb = UINT64_C(1) << 30;
    if (spec->cpu_millis)
        text_printf(body, ",\"cpu\":%u", (spec->cpu_millis + 999) / 1000);
    if (spec->memory_bytes)
        text_printf(body, ",\"memory\":%llu", (unsigned long long)((spec->memory_bytes + gb - 1) / gb));
    if (spec->disk_bytes)
        text_printf(body, ",\"disk\":%llu", (unsigned long long)((spec->disk_bytes + gb - 1) / gb));
}

static mango_status put_origin(struct daytona *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                               struct text *body)
{
    static const char prefix[] = SNAPSHOT_PREFIX;
    const uint64_t n = sizeof(prefix) - 1;
    bool ours = spec->image.len > n && memcmp(spec->image.ptr, prefix, n) == 0;
    bool snapshot = ours || (spec->image.len == 0 && d->snapshot);
    if (snapshot && (spec->cpu_millis || spec->memory_bytes || spec->disk_bytes))
        return fail(d->remote.host, call, MANGO_EUNSUPPORTED,
                    "a sandbox from a snapshot of Daytona has the snapshot's processors, memory and disk");
    if (snapshot) {
        text_add(body, ",\"snapshot\":");
        if (ours)
            text_json(body, (struct mango_sv){spec->image.ptr + n, spec->image.len - n});
        else
            text_jsonz(body, d->snapshot);
        return MANGO_OK;
    }
    text_auto struct text file = {0};
    text_add(&file, "FROM ");
    text_sv(&file, spec->image.len ? spec->image : sv_z(d->image));
    if (memchr(file.ptr, '\n', file.len))
        return fail(d->remote.host, call, MANGO_EINVALID, "an image's name has one line");
    text_add(&file, "\n");
    text_add(body, ",\"buildInfo\":{\"dockerfileContent\":");
    text_json(body, text_view(&file));
    text_add(body, "}");
    put_resources(spec, body);
    return MANGO_OK;
}

static mango_status put_body(struct daytona *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                             const char *name, struct text *body)
{
    bool pause = d->pause_asked && !atomic_load(&d->stops);
    text_printf(body,
                "{\"name\":\"%s\",\"labels\":{\"io.mango.managed\":\"true\",\"io.mango.session_key\":\"%.*s\","
                "\"io.mango.owner\":\"%.*s\"},\"%s\":%llu,\"autoDeleteInterval\":-1",
                name, (int)spec->label.len, spec->label.ptr, (int)spec->owner.len, spec->owner.ptr,
                pause ? "autoPauseInterval" : "autoStopInterval", (unsigned long long)d->idle_minutes);
    if (d->target) {
        text_add(body, ",\"target\":");
        text_jsonz(body, d->target);
    }
    mango_status s = put_origin(d, call, spec, body);
    if (s == MANGO_OK)
        s = network_body(d, call, spec->network, false, body);
    text_add(body, "}");
    return s == MANGO_OK && body->bad ? fail(d->remote.host, call, MANGO_ERETRY, "out of memory") : s;
}

/* *ret_taken: the name is somebody's. The name makes it safe to send it again. */
static mango_status make(struct daytona *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const char *name, bool *ret_taken)
{
    text_auto struct text body = {0};
    struct api_res r;
    bool pause = d->pause_asked && !atomic_load(&d->stops);
    mango_status s = put_body(d, call, spec, name, &body);
    if (s < 0)
        return s;
    s = api_call(d, call, "POST", "/sandbox", &body, REMOTE_SAFE | REMOTE_JSON | REMOTE_STREAM, "make a sandbox", &r);
    *ret_taken = s == MANGO_OK && r.http.status == 409;
    bool no_pause = s == MANGO_OK && pause && r.http.status == 400;
    if (s == MANGO_OK && !*ret_taken && !remote_good(&r.http))
        s = api_fail(d, call, &r, "make a sandbox", MANGO_EINVALID);
    api_free(d, &r);
    if (no_pause) { /* sandboxes of this class stop instead */
        atomic_store(&d->stops, true);
        s = make(d, call, spec, name, ret_taken);
        if (s < 0)
            atomic_store(&d->stops, false); /* it was something else */
    }
    return s;
}

/* What stands under the name, or a new one. */
static mango_status choose(struct daytona *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           const char *name, struct seen *ret, bool *ret_found)
{
    struct mango_call own = remote_within(d->remote.host, call, SETTLE_MS + READY_MS);
    *ret_found = true;
    for (unsigned round = 1;; round++) {
        bool taken = false;
        mango_status s = sandbox_get(d, &own, name, ret);
        bool there = s == MANGO_OK && !state_is(ret, "destroyed");
        if (s < 0 && s != MANGO_EGONE)
            return s;
        if (there && (!ret->ours || !sv_is(spec->label, ret->label)))
            return fail(d->remote.host, call, MANGO_EDENIED, "a sandbox of another owner has the name %s", name);
        bool failed = there && (state_is(ret, "error") || state_is(ret, "build_failed")) && !ret->recoverable;
        if (there && !failed && !state_is(ret, "destroying"))
            return MANGO_OK;
        if (failed && round > 1 && !*ret_found)
            return fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona could not make the sandbox (%s): %.150s",
                        ret->state, ret->why);
        if (failed && (s = sandbox_delete(d, &own, ret->id)) < 0)
            return s;
        if (!there) {
            s = make(d, &own, spec, name, &taken);
            if (s < 0)
                return s;
            *ret_found = taken;
        }
        s = remote_wait(d->remote.host, &own, taken || there ? remote_back_off_ms(round) : 1);
        if (s < 0)
            return s;
    }
}

static mango_status end_one(struct daytona *d, const struct mango_call *call, const char *id_or_name,
                            struct mango_sv label)
{
    struct seen seen = {0};
    mango_status s = sandbox_get(d, call, id_or_name, &seen);
    if (s == MANGO_EGONE || (s == MANGO_OK && state_is(&seen, "destroyed")))
        return MANGO_OK;
    if (s == MANGO_OK && (!seen.ours || !sv_is(label, seen.label)))
        return fail(d->remote.host, call, MANGO_EDENIED, "the sandbox belongs to another session");
    if (s == MANGO_OK)
        s = sandbox_delete(d, call, seen.id);
    if (s == MANGO_OK)
        errands_drop(&d->errands, sv_z(seen.id));
    return s;
}

mango_status daytona_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            struct mango_sandbox_ref *ret)
{
    struct daytona *d = ctx;
    struct seen seen = {0};
    char name[NAME_LEN + 1];
    bool found = false;
    mango_status s = check_spec(d, call, spec);
    if (s < 0)
        return s;
    name_of(spec->label, name);
    s = choose(d, call, spec, name, &seen, &found);
    if (s == MANGO_OK)
        s = network_check(d, call, spec->network, &seen);
    if (s == MANGO_OK)
        s = bind(d, call, seen.id, spec, ret);
    if (s == MANGO_OK && found)
        ret->flags |= MANGO_REF_FOUND;
    if (!found && seen.id[0] && remote_final(s)) { /* what was just made cannot be used */
        struct mango_call own = remote_undo(d->remote.host, DESTROY_MS);
        (void)end_one(d, &own, seen.id, spec->label);
    }
    return s == MANGO_EGONE ? fail(d->remote.host, call, MANGO_ERETRY, "the sandbox ended while it was made") : s;
}

/* ---- destroy ---- */

mango_status daytona_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    struct daytona *d = ctx;
    char name[NAME_LEN + 1], z[ID_MAX + 1];
    struct mango_call own = remote_anyway(d->remote.host, call, DESTROY_MS);
    if (call->deadline_ns && call->deadline_ns < own.deadline_ns)
        own.deadline_ns = call->deadline_ns;
    if (!sv_hex(label, 32))
        return fail(d->remote.host, call, MANGO_EINVALID, "a label has 32 hex digits");
    if (id.len > 0 && remote_id_ok(id)) {
        snprintf(z, sizeof(z), "%.*s", (int)id.len, id.ptr);
        mango_status s = end_one(d, &own, z, label);
        if (s == MANGO_OK)
            errands_drop(&d->errands, id);
        return s;
    }
    name_of(label, name);
    return end_one(d, &own, name, label);
}

/* ---- pause, timers ---- */

mango_status daytona_pause(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct daytona *d = ctx;
    struct errands_box *b;
    struct seen seen = {0};
    int http = 0;
    mango_status s = errands_enter(&d->errands, call, id, &b);
    if (s < 0)
        return s;
    struct mango_call own = remote_within(d->remote.host, call, READY_MS);
    s = sandbox_post(d, &own, b->id, "/pause", NULL, "pause the sandbox", &http);
    if ((s == MANGO_OK && http == 400) ||
        s == MANGO_EUNSUPPORTED) /* containers can only be stopped; their files stay */
        s = sandbox_post(d, &own, b->id, "/stop", NULL, "stop the sandbox", &http);
    while (s == MANGO_OK && (s = sandbox_get(d, &own, b->id, &seen)) == MANGO_OK && !state_is(&seen, "paused") &&
           !state_is(&seen, "stopped")) {
        s = state_gone(&seen)
                ? fail(d->remote.host, call, MANGO_EGONE, "the workspace is lost: the sandbox is %s", seen.state)
                : remote_wait(d->remote.host, &own, POLL_MS);
    }
    errands_leave(&d->errands, b);
    return s;
}

mango_status daytona_resume(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct daytona *d = ctx;
    struct errands_box *b;
    mango_status s = errands_enter(&d->errands, call, id, &b);
    if (s < 0)
        return s;
    s = toolbox_service.look(d, call, b);
    errands_leave(&d->errands, b);
    return s;
}

/* The timer stops a sandbox that nobody has asked for anything; a longer time than the interval needs another interval. */
mango_status daytona_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds)
{
    struct daytona *d = ctx;
    struct errands_box *b;
    int http = 0;
    char verb[64];
    mango_status s = errands_enter(&d->errands, call, id, &b);
    if (s < 0)
        return s;
    uint64_t minutes = (seconds + 59) / 60;
    if (d->idle_minutes && minutes > d->idle_minutes) {
        bool pause = d->pause_asked && !atomic_load(&d->stops);
        snprintf(verb, sizeof(verb), "/%s/%llu", pause ? "autopause" : "autostop", (unsigned long long)minutes);
        s = sandbox_post(d, call, b->id, verb, NULL, "move the timer of the sandbox", &http);
    }
    if (s == MANGO_OK)
        s = sandbox_post(d, call, b->id, "/last-activity", NULL, "keep the sandbox alive", &http);
    errands_leave(&d->errands, b);
    return s;
}
