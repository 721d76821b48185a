#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opensandbox/opensandbox.h"

#define WORKDIR_RULE "the workspace is an absolute path of letters, digits and /._-"

/* Making, finding and ending. */

/* ---- which of them ---- */

/* The oldest stays, so that all who look agree; the service's own times and ids decide. */
struct oldest {
    struct seen best;
    bool any;
    char over[ID_MAX + 1]; /* one of the label that will not run again */
};

static int on_candidate(void *ctx, const struct seen *s)
{
    struct oldest *f = ctx;
    if (!s->ours)
        return 0;
    if (state_over(s)) {
        memcpy(f->over, s->id, sizeof(f->over));
        return 0;
    }
    bool older = !f->any || s->created_us < f->best.created_us ||
                 (s->created_us == f->best.created_us && strcmp(s->id, f->best.id) < 0);
    if (older)
        f->best = *s;
    f->any = true;
    return 0;
}

static mango_status find(struct osb *o, const struct mango_call *call, struct mango_sv label, struct oldest *ret)
{
    *ret = (struct oldest){0};
    return sandbox_list(o, call, "io.mango.session_key", label, on_candidate, ret);
}

/* ---- attach ---- */

/* Some runtimes show no metadata of a paused sandbox: it is resumed, then looked at again. */
static mango_status check_label(struct osb *o, const struct mango_call *call, const char *id, struct mango_sv label,
                                struct seen *seen)
{
    mango_status s = sandbox_get(o, call, id, seen);
    if (s == MANGO_OK && seen->no_metadata && state_is(seen, "Paused"))
        s = sandbox_run(o, call, id, seen);
    if (s == MANGO_OK && (!seen->ours || !sv_is(label, seen->label)))
        s = fail(o->remote.host, call, MANGO_EDENIED,
                 "the sandbox belongs to another session, or was not made by Mango");
    return s;
}

static mango_status fill(const struct osb *o, const char *id, const char *root, uint64_t expires_s,
                         struct mango_sandbox_ref *ret)
{
    const struct mango_host *h = o->remote.host;
    mango_status s = h->buf_append(h, ret->id, id, strlen(id));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->root, root, strlen(root));
    ret->expires_s = expires_s;
    return s;
}

static uint64_t seconds_left(struct osb *o, int64_t expires_us)
{
    int64_t left = expires_us ? expires_us - service_now_us(o) : 0;
    return left > 0 ? (uint64_t)left / 1000000 : 0;
}

/* A full time from now on, where there is a timer at all. */
static mango_status refresh(struct osb *o, const struct mango_call *call, struct seen *seen)
{
    if (!seen->expires_us || !o->timeout_s || seconds_left(o, seen->expires_us) >= o->timeout_s)
        return MANGO_OK;
    return sandbox_renew(o, call, seen->id, o->timeout_s, &seen->expires_us);
}

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

static mango_status bind(struct osb *o, const struct mango_call *call, const char *id,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct seen seen = {0};
    char root[512];
    struct endpoint execd = {0};
    mango_status s = workdir_ok(spec->workdir) ? check_label(o, call, id, spec->label, &seen)
                                               : fail(o->remote.host, call, MANGO_EINVALID, WORKDIR_RULE);
    if (s == MANGO_OK)
        s = sandbox_run(o, call, id, &seen);
    if (s == MANGO_OK)
        s = refresh(o, call, &seen);
    if (s == MANGO_OK)
        s = execd_wait(o, call, id, &execd);
    if (s < 0)
        return s;
    struct own *own = own_new();
    if (!own) {
        endpoint_free(&execd);
        return fail(o->remote.host, call, MANGO_ERETRY, "out of memory");
    }
    own->execd = execd;
    own->expires_us = seen.expires_us;
    if (spec->workdir.len > 0)
        snprintf(root, sizeof(root), "%.*s", (int)spec->workdir.len, spec->workdir.ptr);
    else
        snprintf(root, sizeof(root), "%s", o->workspace);
    s = errands_enter_new(&o->errands, call, sv_z(id), root, spec, own);
    return s < 0 ? s : fill(o, id, root, seconds_left(o, seen.expires_us), ret);
}

mango_status osb_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                        const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    char z[ID_MAX + 1];
    struct osb *o = ctx;
    if (!remote_id_ok(id))
        return fail(o->remote.host, call, MANGO_EGONE, "no sandbox of OpenSandbox has such an id");
    snprintf(z, sizeof(z), "%.*s", (int)id.len, id.ptr);
    return bind(o, call, z, spec, ret);
}

mango_status osb_detach(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct osb *o = ctx;
    (void)call;
    errands_drop(&o->errands, id);
    return MANGO_OK;
}

/* ---- create ---- */

static mango_status check_spec(struct osb *o, const struct mango_call *call, const struct mango_sandbox_spec *spec)
{
    const struct mango_host *h = o->remote.host;
    if (!sv_hex(spec->label, 32) || !sv_hex(spec->owner, 32))
        return fail(h, call, MANGO_EINVALID, "label and owner have 32 hex digits");
    if (spec->n_mounts > 0)
        return fail(h, call, MANGO_EUNSUPPORTED, "mounts of this server's host do not reach a remote sandbox");
    if (spec->pids || spec->disk_bytes)
        return fail(
            h, call, MANGO_EUNSUPPORTED,
            "OpenSandbox limits processes and disk for the whole service ([docker] pids_limit), not for a sandbox");
    if (!workdir_ok(spec->workdir))
        return fail(h, call, MANGO_EINVALID, WORKDIR_RULE);
    return MANGO_OK;
}

static void put_image(const struct osb *o, const struct mango_sandbox_spec *spec, struct text *body)
{
    static const char prefix[] = SNAPSHOT_PREFIX;
    const uint64_t n = sizeof(prefix) - 1;
    if (spec->image.len > n && memcmp(spec->image.ptr, prefix, n) == 0) {
        text_add(body, "{\"snapshotId\":");
        text_json(body, (struct mango_sv){spec->image.ptr + n, spec->image.len - n});
    } else {
        text_add(body, "{\"image\":{\"uri\":");
        text_json(body, spec->image.len ? spec->image : sv_z(o->image));
        text_add(body, "}");
    }
    text_add(body, ",\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"]");
}

static mango_status put_body(struct osb *o, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                             struct text *body)
{
    enum { MIB = 1024 * 1024 };
    put_image(o, spec, body);
    text_add(body, ",\"resourceLimits\":{\"cpu\":");
    if (spec->cpu_millis)
        text_printf(body, "\"%um\"", spec->cpu_millis);
    else
        text_jsonz(body, o->cpu);
    text_add(body, ",\"memory\":");
    if (spec->memory_bytes)
        text_printf(body, "\"%lluMi\"", (unsigned long long)((spec->memory_bytes + MIB - 1) / MIB));
    else
        text_jsonz(body, o->memory);
    text_printf(
        body,
        "},\"metadata\":{\"io.mango.managed\":\"true\",\"io.mango.session_key\":\"%.*s\",\"io.mango.owner\":\"%.*s\"}",
        (int)spec->label.len, spec->label.ptr, (int)spec->owner.len, spec->owner.ptr);
    if (o->timeout_s)
        text_printf(body, ",\"timeout\":%llu", (unsigned long long)o->timeout_s);
    mango_status s = policy_body(o, call, spec->network, body);
    text_add(body, "}");
    return s == MANGO_OK && body->bad ? fail(o->remote.host, call, MANGO_ERETRY, "out of memory") : s;
}

/* One request. *ret_id empty with MANGO_ERETRY: nobody knows whether one was made; the list will tell. */
static mango_status make(struct osb *o, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         char ret_id[ID_MAX + 1])
{
    text_auto struct text body = {0};
    struct api_res r;
    struct seen seen = {0};
    ret_id[0] = '\0';
    mango_status s = put_body(o, call, spec, &body);
    if (s < 0)
        return s;
    s = api_call(o, call, "POST", "/sandboxes", &body, REMOTE_JSON | REMOTE_ONCE | REMOTE_STREAM, "make a sandbox", &r);
    if (s == MANGO_OK && !remote_good(&r.http))
        s = api_fail(o, call, &r, "make a sandbox", MANGO_EINVALID);
    else if (s == MANGO_OK && !seen_parse(r.body, &seen))
        s = fail(o->remote.host, call, MANGO_ERETRY, "OpenSandbox answered a creation without id or state");
    else if (s == MANGO_OK)
        memcpy(ret_id, seen.id, sizeof(seen.id));
    api_free(o, &r);
    return s;
}

/* Made, and no older one there: it stays. Otherwise the older one is taken, and ours ends. */
static mango_status settle(struct osb *o, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           const char *mine, struct seen *ret)
{
    struct oldest f;
    mango_status s = find(o, call, spec->label, &f);
    if (s < 0)
        return s;
    if (!f.any)
        return fail(o->remote.host, call, MANGO_ERETRY, "the sandbox that was made is not in OpenSandbox's list");
    *ret = f.best;
    if (strcmp(f.best.id, mine) == 0)
        return MANGO_OK;
    struct mango_call own = remote_anyway(o->remote.host, call, DESTROY_MS);
    return sandbox_delete(o, &own, mine);
}

/* Finds or makes, as often as it takes to agree with whoever else does. */
static mango_status choose(struct osb *o, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct seen *ret, bool *ret_found)
{
    enum { ROUNDS = 8 };
    mango_status s = MANGO_ERETRY;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        struct oldest f;
        char mine[ID_MAX + 1];
        mango_status seen = find(o, call, spec->label, &f);
        if (seen < 0)
            return seen;
        *ret = f.best;
        *ret_found = true;
        if (f.any)
            return MANGO_OK;
        if (f.over[0] && (seen = sandbox_delete(o, call, f.over)) < 0)
            return seen;
        *ret_found = false;
        s = make(o, call, spec, mine);
        if (s == MANGO_OK) {
            s = settle(o, call, spec, mine, ret);
            *ret_found = strcmp(ret->id, mine) != 0;
        }
        if (s != MANGO_ERETRY)
            return s; /* what was made and not seen again is found by its label */
        mango_status w = remote_wait(o->remote.host, call, remote_back_off_ms(round));
        if (w < 0)
            return w;
    }
    return s;
}

static pthread_mutex_t *making_lock(struct osb *o, struct mango_sv label)
{
    unsigned h = 0;
    for (uint64_t i = 0; i < label.len; i++)
        h = h * 31 + (unsigned char)label.ptr[i];
    return &o->making[h % MAKING_LOCKS];
}

/* Before anything runs in it, also when a maker died between the creation and this. A sandbox that cannot be held ends. */
static mango_status check_filter(struct osb *o, const struct mango_call *call, const char *id)
{
    mango_status s = policy_check(o, call, id);
    if (s != MANGO_EUNSUPPORTED && s != MANGO_EINTERNAL)
        return s;
    struct mango_call own = remote_anyway(o->remote.host, call, DESTROY_MS);
    mango_status gone = sandbox_delete(o, &own, id);
    return gone < 0 ? gone : policy_refused(o, call);
}

mango_status osb_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                        struct mango_sandbox_ref *ret)
{
    struct osb *o = ctx;
    struct seen seen = {0};
    bool found = false;
    mango_status s = check_spec(o, call, spec);
    if (s < 0)
        return s;
    pthread_mutex_t *lock = making_lock(o, spec->label);
    for (unsigned round = 0;; round++) {
        pthread_mutex_lock(lock);
        s = choose(o, call, spec, &seen, &found);
        pthread_mutex_unlock(lock);
        if (s == MANGO_OK && (!spec->network || spec->network->mode != MANGO_NET_OPEN))
            s = check_filter(o, call, seen.id);
        if (s == MANGO_OK)
            s = bind(o, call, seen.id, spec, ret);
        /* Gone between the two: its maker found that it was not the oldest, or somebody ended it. */
        if (s != MANGO_EGONE || round == 3)
            break;
    }
    if (s == MANGO_OK && found)
        ret->flags |= MANGO_REF_FOUND;
    if (!found && seen.id[0] && remote_final(s)) { /* what was just made cannot be used */
        struct mango_call own = remote_undo(o->remote.host, DESTROY_MS);
        (void)sandbox_delete(o, &own, seen.id);
    }
    return s == MANGO_EGONE ? fail(o->remote.host, call, MANGO_ERETRY, "the sandbox ended while it was made") : s;
}

/* ---- destroy ---- */

struct ending {
    struct osb *o;
    const struct mango_call *call;
    mango_status s;
    unsigned n;
};

static int on_ending(void *ctx, const struct seen *s)
{
    struct ending *e = ctx;
    if (!s->ours)
        return 0;
    e->n++;
    mango_status one = sandbox_delete(e->o, e->call, s->id);
    if (one < 0)
        e->s = one;
    return 0;
}

/* All of the label, also one whose maker never learnt of it, until none is listed. */
static mango_status destroy_all(struct osb *o, const struct mango_call *call, struct mango_sv label)
{
    enum { ROUNDS = 10 };
    for (unsigned round = 1;; round++) {
        struct ending e = {.o = o, .call = call};
        mango_status s = sandbox_list(o, call, "io.mango.session_key", label, on_ending, &e);
        if (s == MANGO_OK)
            s = e.s;
        if (s < 0 || e.n == 0)
            return s;
        if (round == ROUNDS)
            return fail(o->remote.host, call, MANGO_ERETRY, "sandboxes that were ended are still listed");
        if ((s = remote_wait(o->remote.host, call, round > 1 ? POLL_MS : 1)) < 0)
            return s;
    }
}

mango_status osb_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    struct osb *o = ctx;
    struct mango_call own = remote_anyway(o->remote.host, call, DESTROY_MS);
    if (call->deadline_ns && call->deadline_ns < own.deadline_ns)
        own.deadline_ns = call->deadline_ns;
    if (!sv_hex(label, 32))
        return fail(o->remote.host, call, MANGO_EINVALID, "a label has 32 hex digits");
    if (id.len > 0 && remote_id_ok(id)) {
        char z[ID_MAX + 1];
        struct seen seen;
        snprintf(z, sizeof(z), "%.*s", (int)id.len, id.ptr);
        mango_status s = sandbox_get(o, &own, z, &seen);
        if (s == MANGO_OK && seen.no_metadata && state_is(&seen, "Paused"))
            s = check_label(o, &own, z, label, &seen);
        if (s == MANGO_OK && (!seen.ours || !sv_is(label, seen.label)))
            return fail(o->remote.host, call, MANGO_EDENIED, "the sandbox belongs to another session");
        if (s == MANGO_OK)
            s = sandbox_delete(o, &own, z);
        if (s < 0 && s != MANGO_EGONE)
            return s;
        errands_drop(&o->errands, id);
        return MANGO_OK;
    }
    return destroy_all(o, &own, label);
}

/* ---- what is ours ---- */

struct owning {
    mango_owned_fn *fn;
    void *ctx;
};

static int on_owned(void *ctx, const struct seen *s)
{
    const struct owning *w = ctx;
    struct mango_owned item = {
        .struct_size = sizeof(item), .id = sv_z(s->id), .label = sv_z(s->label), .created_us = s->created_us};
    return s->ours && !state_is(s, "Stopping") ? w->fn(w->ctx, &item) : 0;
}

mango_status osb_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                            void *fn_ctx)
{
    struct osb *o = ctx;
    struct owning w = {fn, fn_ctx};
    if (!sv_hex(owner, 32))
        return fail(o->remote.host, call, MANGO_EINVALID, "an owner has 32 hex digits");
    return sandbox_list(o, call, "io.mango.owner", owner, on_owned, &w);
}

mango_status osb_keep_alive(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t seconds)
{
    struct osb *o = ctx;
    struct errands_box *b;
    struct seen seen = {0};
    mango_status s = errands_enter(&o->errands, call, id, &b);
    if (s < 0)
        return s;
    struct own *own = b->own;
    s = sandbox_get(o, call, b->id, &seen);
    if (s == MANGO_OK && seen.expires_us && seconds_left(o, seen.expires_us) < seconds)
        s = sandbox_renew(o, call, b->id, seconds, &seen.expires_us);
    if (s == MANGO_OK) {
        pthread_mutex_lock(&own->lock);
        own->expires_us = seen.expires_us;
        pthread_mutex_unlock(&own->lock);
    }
    errands_leave(&o->errands, b);
    return s;
}
