#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/remote/when.h"
#include "daytona/daytona.h"

/* One sandbox of the API, and the list of those of a deployment. */

bool seen_parse(struct mango_sv value, struct seen *ret)
{
    char text[64];
    *ret = (struct seen){0};
    if (!json_copy(value, "id", ret->id, sizeof(ret->id)) || !remote_id_ok(sv_z(ret->id)) ||
        !json_copy(value, "state", ret->state, sizeof(ret->state)))
        return false;
    (void)json_copy(value, "name", ret->name, sizeof(ret->name));
    (void)json_copy(value, "errorReason", ret->why, sizeof(ret->why));
    (void)json_copy(value, "toolboxProxyUrl", ret->toolbox, sizeof(ret->toolbox));
    (void)json_copy(value, "domainAllowList", ret->domains, sizeof(ret->domains));
    (void)json_copy(value, "labels/io.mango.session_key", ret->label, sizeof(ret->label));
    (void)json_copy(value, "labels/io.mango.owner", ret->owner, sizeof(ret->owner));
    ret->ours = json_is(value, "labels/io.mango.managed", "true");
    ret->blocked = json_true(value, "networkBlockAll");
    ret->recoverable = json_true(value, "recoverable");
    if (json_copy(value, "createdAt", text, sizeof(text)))
        (void)when_parse(sv_z(text), &ret->created_us);
    if (json_copy(value, "autoDestroyAt", text, sizeof(text)))
        (void)when_parse(sv_z(text), &ret->ends_us);
    return true;
}

bool state_is(const struct seen *s, const char *state)
{
    return strcmp(s->state, state) == 0;
}

/* A sandbox that was destroyed can still be read for a while. */
bool state_gone(const struct seen *s)
{
    return state_is(s, "destroyed") || state_is(s, "destroying");
}

static void path_of(char out[ID_MAX + 64], const char *id, const char *tail)
{
    snprintf(out, ID_MAX + 64, "/sandbox/%s%s", id, tail);
}

mango_status sandbox_get(struct daytona *d, const struct mango_call *call, const char *id_or_name, struct seen *ret)
{
    char path[ID_MAX + 64];
    struct api_res r;
    path_of(path, id_or_name, "");
    mango_status s = api_call(d, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "look at the sandbox", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(d, call, &r, "look at the sandbox", MANGO_EGONE);
    if (s == MANGO_EGONE)
        s = fail(d->remote.host, call, s, "the workspace is lost: Daytona has no sandbox %s any more", id_or_name);
    else if (s == MANGO_OK && !seen_parse(r.body, ret))
        s = fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona described a sandbox without id or state");
    else if (s == MANGO_OK && strcmp(ret->id, id_or_name) != 0 && strcmp(ret->name, id_or_name) != 0)
        s = fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona described another sandbox than was asked for");
    api_free(d, &r);
    return s;
}

/* *ret_http: MANGO_OK comes with 2xx, 400 (the wrong state, or not for this class) and 409 (another change is under way). */
mango_status sandbox_post(struct daytona *d, const struct mango_call *call, const char *id, const char *verb,
                          const struct text *body, const char *what, int *ret_http)
{
    char path[ID_MAX + 64];
    struct api_res r;
    path_of(path, id, verb);
    mango_status s = api_call(d, call, "POST", path, body, REMOTE_SAFE, what, &r);
    *ret_http = r.http.status;
    if (s == MANGO_OK && !remote_good(&r.http)) {
        bool state = r.http.status == 400 || r.http.status == 409;
        mango_status told = api_fail(d, call, &r, what, MANGO_EGONE); /* the words stay for a caller who gives up */
        s = state ? MANGO_OK : told;
    }
    api_free(d, &r);
    return s;
}

/* What brings a state to "started". */
static const struct {
    const char *state, *verb;
} ways[] = {{"stopped", "/start"}, {"paused", "/start"}, {"archived", "/start"}};

static mango_status move_on(struct daytona *d, const struct mango_call *call, const struct seen *seen)
{
    int http;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (state_is(seen, ways[i].state))
            return sandbox_post(d, call, seen->id, ways[i].verb, NULL, "start the sandbox", &http);
    }
    if (!state_is(seen, "error") && !state_is(seen, "build_failed"))
        return MANGO_OK;
    if (seen->recoverable)
        return sandbox_post(d, call, seen->id, "/recover", NULL, "recover the sandbox", &http);
    return fail(d->remote.host, call, MANGO_EINTERNAL, "the sandbox has failed (%s): %.150s", seen->state, seen->why);
}

mango_status sandbox_run(struct daytona *d, const struct mango_call *call, const char *id, struct seen *ret)
{
    struct mango_call own = remote_within(d->remote.host, call, READY_MS);
    for (;;) {
        mango_status s = sandbox_get(d, &own, id, ret);
        if (s < 0 || state_is(ret, "started"))
            return s;
        if (state_gone(ret))
            return fail(d->remote.host, call, MANGO_EGONE, "the workspace is lost: the sandbox is %s", ret->state);
        s = move_on(d, &own, ret);
        if (s == MANGO_OK)
            s = remote_wait(d->remote.host, &own, POLL_MS);
        if (s == MANGO_ETIMEOUT && (!call->deadline_ns || now_ns(d->remote.host) < call->deadline_ns))
            return fail(d->remote.host, call, MANGO_ERETRY, "the sandbox is still %s after %d s", ret->state,
                        READY_MS / 1000);
        if (s < 0)
            return s;
    }
}

/* 404 and "destroyed" are the end; "destroying" is waited for; a change under way is waited out. */
mango_status sandbox_delete(struct daytona *d, const struct mango_call *call, const char *id)
{
    char path[ID_MAX + 64];
    struct seen seen = {0};
    struct mango_call own = remote_within(d->remote.host, call, DESTROY_MS);
    path_of(path, id, "");
    for (unsigned try = 1;; try++) {
        struct api_res r;
        mango_status s = api_call(d, &own, "DELETE", path, NULL, REMOTE_SAFE, "end the sandbox", &r);
        bool gone = s == MANGO_OK && api_gone(&r);
        int http = r.http.status;
        if (s == MANGO_OK && !gone && !remote_good(&r.http))
            s = api_fail(d, call, &r, "end the sandbox", MANGO_ERETRY);
        api_free(d, &r);
        if (gone)
            return MANGO_OK;
        if (s < 0 && s != MANGO_ERETRY && http != 400)
            return s;
        mango_status look = sandbox_get(d, &own, id, &seen);
        if (look == MANGO_EGONE || (look == MANGO_OK && state_is(&seen, "destroyed")))
            return MANGO_OK;
        if (look < 0)
            return look;
        mango_status w = remote_wait(d->remote.host, &own, s == MANGO_OK ? POLL_MS : remote_back_off_ms(try));
        if (w < 0)
            return s < 0 ? s : fail(d->remote.host, call, MANGO_ERETRY, "the sandbox is still %s", seen.state);
    }
}

/* ---- lists ---- */

struct page {
    char cursor[ID_MAX + 1];
    bool more;
};

static mango_status list_page(struct daytona *d, const struct mango_call *call, const char *path, mango_owned_fn *fn,
                              void *fn_ctx, struct page *p, bool *ret_stop)
{
    struct api_res r;
    uint64_t pos = 0;
    struct mango_sv item;
    struct seen seen = {0};
    char next[ID_MAX + 1] = "";
    mango_status s = api_call(d, call, "GET", path, NULL, REMOTE_SAFE | REMOTE_JSON, "list the sandboxes", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(d, call, &r, "list the sandboxes", MANGO_ERETRY);
    struct mango_sv items = s == MANGO_OK ? json_get(r.body, "items") : no_text();
    if (s == MANGO_OK && json_kind(items) != '[')
        s = fail(d->remote.host, call, MANGO_ERETRY, "Daytona gave a list without items");
    while (s == MANGO_OK && !*ret_stop && json_next(items, &pos, NULL, &item)) {
        if (!seen_parse(item, &seen) || !seen.ours || state_gone(&seen))
            continue;
        struct mango_owned o = {
            .struct_size = sizeof(o), .id = sv_z(seen.id), .label = sv_z(seen.label), .created_us = seen.created_us};
        *ret_stop = fn(fn_ctx, &o) != 0;
    }
    p->more = s == MANGO_OK && json_copy(r.body, "nextCursor", next, sizeof(next)) && next[0];
    if (p->more && strcmp(next, p->cursor) == 0)
        s = fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona gave a list that does not go on");
    memcpy(p->cursor, next, sizeof(next));
    api_free(d, &r);
    return s;
}

mango_status daytona_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx)
{
    struct daytona *d = ctx;
    struct page p = {.more = true};
    bool stop = false;
    mango_status s = MANGO_OK;
    if (!sv_hex(owner, 32))
        return fail(d->remote.host, call, MANGO_EINVALID, "an owner has 32 hex digits");
    for (unsigned n = 0; s == MANGO_OK && p.more && !stop; n++) {
        text_auto struct text labels = {0}, path = {0};
        if (n == PAGES_MAX)
            return fail(d->remote.host, call, MANGO_EINTERNAL, "Daytona gave a list without an end");
        text_printf(&labels, "{\"io.mango.managed\":\"true\",\"io.mango.owner\":\"%.*s\"}", (int)owner.len, owner.ptr);
        text_printf(&path, "/sandbox?limit=%d&labels=", PAGE_SIZE);
        text_url(&path, text_view(&labels));
        if (p.cursor[0]) {
            text_add(&path, "&cursor=");
            text_url(&path, sv_z(p.cursor));
        }
        s = list_page(d, call, path.bad ? "" : path.ptr, fn, fn_ctx, &p, &stop);
    }
    return s;
}
