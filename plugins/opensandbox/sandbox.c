#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/when.h"
#include "opensandbox/opensandbox.h"

/* One sandbox of the lifecycle API, and lists of them. */

/* ---- what the service tells ---- */

static int64_t time_at(struct mango_sv value, const char *path)
{
    char text[64];
    int64_t us;
    return json_copy(value, path, text, sizeof(text)) && when_parse(sv_z(text), &us) ? us : 0;
}

bool seen_parse(struct mango_sv value, struct seen *ret)
{
    *ret = (struct seen){0};
    if (!json_copy(value, "id", ret->id, sizeof(ret->id)) || !remote_id_ok(sv_z(ret->id)) ||
        !json_copy(value, "status/state", ret->state, sizeof(ret->state)))
        return false;
    struct mango_sv metadata = json_get(value, "metadata");
    uint64_t pos = 0;
    ret->no_metadata = json_kind(metadata) != '{' || !json_next(metadata, &pos, NULL, &(struct mango_sv){0});
    (void)json_copy(metadata, "io.mango.session_key", ret->label, sizeof(ret->label));
    (void)json_copy(metadata, "io.mango.owner", ret->owner, sizeof(ret->owner));
    ret->ours = json_is(metadata, "io.mango.managed", "true");
    ret->created_us = time_at(value, "createdAt");
    ret->expires_us = time_at(value, "expiresAt");
    return true;
}

bool state_is(const struct seen *s, const char *state)
{
    return strcmp(s->state, state) == 0;
}

bool state_over(const struct seen *s)
{
    return state_is(s, "Terminated") || state_is(s, "Failed") || state_is(s, "Stopping");
}

/* ---- one ---- */

static void path_of(char out[ID_MAX + 64], const char *id, const char *tail)
{
    snprintf(out, ID_MAX + 64, "/sandboxes/%s%s", id, tail);
}

mango_status sandbox_get(struct osb *o, const struct mango_call *call, const char *id, struct seen *ret)
{
    char path[ID_MAX + 64];
    struct api_res r;
    path_of(path, id, "");
    mango_status s = api_call(o, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "look at the sandbox", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "look at the sandbox", MANGO_EGONE);
    if (s == MANGO_EGONE)
        s = fail(o->remote.host, call, s, "the workspace is lost: OpenSandbox has no sandbox %s any more", id);
    else if (s == MANGO_OK && !seen_parse(r.body, ret))
        s = fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox described a sandbox without id or state");
    else if (s == MANGO_OK && strcmp(ret->id, id) != 0)
        s = fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox described another sandbox than was asked for");
    api_free(o, &r);
    return s;
}

mango_status sandbox_delete(struct osb *o, const struct mango_call *call, const char *id)
{
    char path[ID_MAX + 64];
    struct mango_call own = remote_within(o->remote.host, call, DESTROY_MS);
    path_of(path, id, "");
    for (unsigned try = 1;; try++) {
        struct api_res r;
        mango_status s = api_call(o, &own, "DELETE", path, NULL, REMOTE_SAFE, "end the sandbox", &r);
        bool done = s == MANGO_OK && (remote_good(&r.http) || api_gone(&r));
        if (s == MANGO_OK && !done)
            s = api_fail(o, call, &r, "end the sandbox", MANGO_ERETRY);
        bool again = s == MANGO_ERETRY || r.http.status == 409; /* another change is under way */
        api_free(o, &r);
        if (done || !again)
            return s;
        mango_status w = remote_wait(o->remote.host, &own, remote_back_off_ms(try));
        if (w < 0)
            return s;
    }
}

static mango_status change(struct osb *o, const struct mango_call *call, const char *id, const char *verb,
                           const char *what)
{
    char path[ID_MAX + 64];
    struct api_res r;
    path_of(path, id, verb);
    mango_status s = api_call(o, call, "POST", path, NULL, REMOTE_SAFE, what, &r);
    /* 409: it is in that state already, or on its way; its state is looked at next */
    if (s == MANGO_OK && !remote_good(&r.http) && r.http.status != 409)
        s = r.http.status == 501 ? fail(o->remote.host, call, MANGO_EUNSUPPORTED,
                                        "the runtime of this OpenSandbox service can neither pause nor resume")
                                 : api_fail(o, call, &r, what, MANGO_EGONE);
    api_free(o, &r);
    return s;
}

mango_status sandbox_run(struct osb *o, const struct mango_call *call, const char *id, struct seen *ret)
{
    struct mango_call own = remote_within(o->remote.host, call, READY_MS);
    for (;;) {
        mango_status s = sandbox_get(o, &own, id, ret);
        if (s < 0 || state_is(ret, "Running"))
            return s;
        if (state_over(ret))
            return fail(o->remote.host, call, MANGO_EGONE, "the workspace is lost: the sandbox has ended (%s)",
                        ret->state);
        if (state_is(ret, "Paused"))
            s = change(o, &own, id, "/resume", "resume the sandbox");
        if (s == MANGO_OK)
            s = remote_wait(o->remote.host, &own, POLL_MS);
        if (s == MANGO_ETIMEOUT && (!call->deadline_ns || now_ns(o->remote.host) < call->deadline_ns))
            return fail(o->remote.host, call, MANGO_ERETRY, "the sandbox is still %s after %d s", ret->state,
                        READY_MS / 1000);
        if (s < 0)
            return s;
    }
}

mango_status osb_pause(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct osb *o = ctx;
    struct errands_box *b;
    struct seen seen = {0};
    mango_status s = errands_enter(&o->errands, call, id, &b);
    if (s < 0)
        return s;
    struct mango_call own = remote_within(o->remote.host, call, READY_MS);
    s = change(o, &own, b->id, "/pause", "pause the sandbox");
    while (s == MANGO_OK && (s = sandbox_get(o, &own, b->id, &seen)) == MANGO_OK && !state_is(&seen, "Paused")) {
        s = state_over(&seen) ? fail(o->remote.host, call, MANGO_EGONE,
                                     "the workspace is lost: the sandbox has ended (%s)", seen.state)
                              : remote_wait(o->remote.host, &own, POLL_MS);
    }
    errands_leave(&o->errands, b);
    return s;
}

mango_status osb_resume(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct osb *o = ctx;
    struct errands_box *b;
    mango_status s = errands_enter(&o->errands, call, id, &b);
    if (s < 0)
        return s;
    s = execd_service.look(o, call, b);
    errands_leave(&o->errands, b);
    return s;
}

/* ---- the timer ---- */

mango_status sandbox_renew(struct osb *o, const struct mango_call *call, const char *id, uint64_t seconds,
                           int64_t *ret_expires_us)
{
    char path[ID_MAX + 64], when[WHEN_LEN];
    text_auto struct text body = {0};
    struct api_res r;
    int64_t us = service_now_us(o) + (int64_t)seconds * 1000000;
    when_format(us, when);
    text_printf(&body, "{\"expiresAt\":\"%s\"}", when);
    path_of(path, id, "/renew-expiration");
    mango_status s = api_call(o, call, "POST", path, &body, REMOTE_SAFE, "keep the sandbox alive", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "keep the sandbox alive", MANGO_EGONE);
    if (s == MANGO_OK)
        *ret_expires_us = us;
    api_free(o, &r);
    return s;
}

/* ---- lists ---- */

static mango_status page(struct osb *o, const struct mango_call *call, const char *path,
                         int (*fn)(void *, const struct seen *), void *ctx, bool *ret_stop, bool *ret_more)
{
    struct api_res r;
    uint64_t pos = 0;
    struct mango_sv item;
    struct seen seen = {0};
    unsigned n = 0;
    mango_status s = api_call(o, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "list the sandboxes", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "list the sandboxes", MANGO_ERETRY);
    struct mango_sv items = s == MANGO_OK ? json_get(r.body, "items") : no_text();
    if (s == MANGO_OK && json_kind(items) != '[')
        s = fail(o->remote.host, call, MANGO_ERETRY, "OpenSandbox gave a list without items");
    while (s == MANGO_OK && !*ret_stop && json_next(items, &pos, NULL, &item)) {
        n++;
        if (seen_parse(item, &seen))
            *ret_stop = fn(ctx, &seen) != 0;
    }
    *ret_more = s == MANGO_OK && json_true(r.body, "pagination/hasNextPage");
    if (*ret_more && n == 0)
        s = fail(o->remote.host, call, MANGO_ERETRY, "OpenSandbox gave an empty page of a list that goes on");
    api_free(o, &r);
    return s;
}

mango_status sandbox_list(struct osb *o, const struct mango_call *call, const char *key, struct mango_sv value,
                          int (*fn)(void *ctx, const struct seen *s), void *ctx)
{
    bool stop = false, more = true;
    mango_status s = MANGO_OK;
    for (unsigned n = 1; s == MANGO_OK && more && !stop; n++) {
        char path[256];
        if (n > PAGES_MAX)
            return fail(o->remote.host, call, MANGO_EINTERNAL, "OpenSandbox gave a list without an end");
        /* Keys and values are hex digits and dots: no further encoding. */
        snprintf(path, sizeof(path), "/sandboxes?metadata=io.mango.managed%%3Dtrue%%26%s%%3D%.*s&page=%u&pageSize=%d",
                 key, (int)value.len, value.ptr, n, PAGE_SIZE);
        s = page(o, call, path, fn, ctx, &stop, &more);
    }
    return s;
}
