#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/envd/envd.h"

/* Making, finding and ending sandboxes.
 *
 * The service knows neither names nor idempotency keys: only metadata, by which a sandbox is found. So a create looks first, and
 * again when its own answer was lost; and because another client may do the same at the same moment, whoever has made one looks
 * once more afterwards: the oldest is the sandbox, and each removes its own when it is not that one. */

enum {
    LOST_LOOKS = 5,    /* for what a lost create has made */
    CONNECT_TRIES = 4, /* a service may deny a sandbox for a moment that it has just paused */
};

/* ---- the table ---- */

static void box_free(struct live *l)
{
    struct box *b = (struct box *)l;
    for (char **v = b->env; v && *v; v++)
        free(*v);
    free(b->env);
    free(b->root);
    explicit_bzero(b->token, sizeof(b->token));
    explicit_bzero(b->traffic, sizeof(b->traffic));
    live_destroy(l);
    free(b);
}

mango_status box_enter(struct envd *e, const struct mango_call *call, struct mango_sv id, struct box **ret)
{
    *ret = (struct box *)live_enter(&e->boxes, id);
    return *ret ? MANGO_OK : fail(e->host, call, MANGO_EGONE, "the sandbox is not attached or is being removed");
}

void box_leave(struct box *b)
{
    live_leave(&b->live);
}

static bool copy_env(struct box *b, const struct mango_sandbox_spec *spec)
{
    uint64_t n = spec->n_env < ENVD_ENV_MAX ? spec->n_env : ENVD_ENV_MAX;
    b->env = calloc(n + 1, sizeof(*b->env));
    for (uint64_t i = 0; b->env && i < n; i++) {
        if (!(b->env[i] = sv_dup(spec->env[i])))
            return false;
    }
    return b->env != NULL;
}

static struct box *box_new(struct envd *e, const struct mango_sandbox_spec *spec, const char *id)
{
    struct box *b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    live_init(&b->live, id, box_free);
    b->e = e;
    memcpy(b->label, spec->label.ptr, ENVD_LABEL_LEN);
    snprintf(b->domain, sizeof(b->domain), "%s", e->domain);
    b->root = spec->workdir.len ? sv_dup(spec->workdir) : strdup(e->root);
    if (b->root && copy_env(b, spec))
        return b;
    live_unref(&b->live);
    return NULL;
}

/* Takes the caller's reference over; the one that is attached already stays. */
static void enlist(struct envd *e, struct box *b)
{
    pthread_mutex_lock(&e->boxes.lock);
    struct box *old = (struct box *)live_find(&e->boxes, sv_z(b->live.id));
    if (!old)
        live_add(&e->boxes, &b->live);
    pthread_mutex_unlock(&e->boxes.lock);
    if (!old)
        return;
    pthread_mutex_lock(&old->live.lock);
    memcpy(old->token, b->token, sizeof(old->token));
    memcpy(old->traffic, b->traffic, sizeof(old->traffic));
    memcpy(old->domain, b->domain, sizeof(old->domain));
    old->until_ns = b->until_ns;
    old->paused = false;
    pthread_mutex_unlock(&old->live.lock);
    live_unref(&b->live);
}

static mango_status give_ref(const struct envd *e, const struct box *b, uint64_t seconds, bool found,
                             struct mango_sandbox_ref *ret)
{
    mango_status s = e->host->buf_append(e->host, ret->id, b->live.id, strlen(b->live.id));
    if (s == MANGO_OK)
        s = e->host->buf_append(e->host, ret->root, b->root, strlen(b->root));
    if (s == MANGO_OK) /* the service never gives an id twice: with it goes the disk */
        s = e->host->buf_append(e->host, ret->identity, b->live.id, strlen(b->live.id));
    ret->flags = found ? MANGO_REF_FOUND : 0;
    ret->expires_s = seconds;
    return s;
}

/* ---- what is asked for ---- */

static mango_status check_spec(const struct envd *e, const struct mango_call *call,
                               const struct mango_sandbox_spec *spec)
{
    const char *what = e->flavor->service;
    if (!sv_hex(spec->label, ENVD_LABEL_LEN) || (spec->owner.len != 0 && !sv_hex(spec->owner, ENVD_LABEL_LEN)))
        return fail(e->host, call, MANGO_EINVALID, "label and owner must be %d lowercase hex digits", ENVD_LABEL_LEN);
    if (spec->workdir.len >= ENVD_ROOT_MAX ||
        (spec->workdir.len > 0 && (spec->workdir.len < 2 || spec->workdir.ptr[0] != '/')))
        return fail(e->host, call, MANGO_EINVALID,
                    "the workspace must be an absolute path of at most %d bytes, and not /", ENVD_ROOT_MAX - 1);
    if (spec->n_mounts > 0)
        return fail(e->host, call, MANGO_EUNSUPPORTED, "folders of this host cannot be mounted into a sandbox of %s",
                    what);
    if (spec->memory_bytes || spec->disk_bytes || spec->cpu_millis || spec->pids)
        return fail(e->host, call, MANGO_EUNSUPPORTED,
                    "memory, disk, processors and processes of a sandbox are the template's at %s: choose another "
                    "template (%s_TEMPLATE_ID) instead of a limit",
                    what, e->flavor->prefix);
    return MANGO_OK;
}

/* envd before 0.5.7 takes files in another form only. */
static mango_status check_version(const struct envd *e, const struct mango_call *call, const char *version)
{
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(version, "%u.%u.%u", &major, &minor, &patch) != 3) /* NOLINT(cert-err34-c): not told, then taken */
        return MANGO_OK;
    if (major == 0 && (minor < 5 || (minor == 5 && patch < 7)))
        return fail(e->host, call, MANGO_EUNSUPPORTED,
                    "the template's envd has version %s; 0.5.7 or newer is needed: build the template anew", version);
    return MANGO_OK;
}

/* ---- binding ---- */

/* The label as the control plane has it. A paused sandbox may be shown without its metadata: then it is woken first. */
static mango_status verify(struct envd *e, const struct mango_call *call, struct sandbox *s, struct mango_sv label)
{
    if (!s->has_metadata && strcmp(s->state, "paused") == 0) {
        struct sandbox again = {0}, awake = {0};
        mango_status rc = control_connect(e, call, s->id, e->idle_s, &awake);
        if (rc == MANGO_OK)
            rc = control_get(e, call, s->id, &again);
        if (rc < 0)
            return rc;
        *s = again;
    }
    if (!s->has_metadata)
        return fail(e->host, call, MANGO_ERETRY, "%s does not show whose the sandbox %s is", e->flavor->service, s->id);
    if (!sv_is(label, s->label))
        return fail(e->host, call, MANGO_EDENIED, "the sandbox %s does not belong to this session", s->id);
    return MANGO_OK;
}

/* Its timer never becomes shorter by that. */
static mango_status connect_to(struct envd *e, const struct mango_call *call, const struct sandbox *was,
                               struct sandbox *ret, uint64_t *ret_s)
{
    uint64_t seconds = was->left_s > e->idle_s ? was->left_s : e->idle_s;
    mango_status s = MANGO_OK;
    if (seconds > ENVD_IDLE_MAX_S)
        seconds = ENVD_IDLE_MAX_S;
    *ret_s = seconds;
    for (unsigned n = 1;; n++) {
        struct sandbox look;
        s = control_connect(e, call, was->id, seconds, ret);
        if (s != MANGO_EGONE || n == CONNECT_TRIES || control_get(e, call, was->id, &look) < 0)
            return s;
        if ((s = remote_wait(e->host, call, remote_back_off_ms(n))) < 0)
            return s;
    }
}

/* *b gets a reference; it is not in the table yet. */
static mango_status bind(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const struct sandbox *was, struct box **ret, uint64_t *ret_s)
{
    struct sandbox now = {0};
    mango_status s = connect_to(e, call, was, &now, ret_s);
    if (s == MANGO_OK)
        s = check_version(e, call, now.version);
    if (s < 0)
        return s;
    struct box *b = box_new(e, spec, was->id);
    if (!b)
        return envd_no_memory(e, call);
    if (was->token[0] && !now.token[0])
        memcpy(now.token, was->token, sizeof(now.token));
    box_take_tokens(b, &now, *ret_s);
    *ret = b;
    return MANGO_OK;
}

static mango_status bind_found(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                               const struct sandbox *was, struct mango_sandbox_ref *ret)
{
    struct box *b = NULL;
    uint64_t seconds = 0;
    mango_status s = bind(e, call, spec, was, &b, &seconds);
    if (s < 0 || !b)
        return s < 0 ? s : MANGO_EINTERNAL;
    s = give_ref(e, b, seconds, true, ret);
    enlist(e, b);
    return s;
}

/* ---- create ---- */

struct search {
    struct mango_sv label;
    struct sandbox oldest;
    int n;
};

static bool older(const struct sandbox *a, const struct sandbox *b)
{
    if (a->started_us != b->started_us)
        return a->started_us < b->started_us;
    return strcmp(a->id, b->id) < 0;
}

static bool on_match(void *ctx, const struct sandbox *s)
{
    struct search *f = ctx;
    if (!sv_is(f->label, s->label)) /* the service's filter is not trusted */
        return true;
    if (f->n == 0 || older(s, &f->oldest))
        f->oldest = *s;
    f->n++;
    return true;
}

static mango_status find(struct envd *e, const struct mango_call *call, struct mango_sv label, struct search *ret)
{
    *ret = (struct search){.label = label};
    return control_list(e, call, "io.mango.label", label, on_match, ret);
}

/* A create whose answer was lost may have made one all the same. */
static mango_status find_lost(struct envd *e, const struct mango_call *call, struct mango_sv label, mango_status s,
                              struct search *ret)
{
    for (unsigned n = 1; n <= LOST_LOOKS; n++) {
        mango_status w = remote_wait(e->host, call, remote_back_off_ms(n));
        if (w == MANGO_OK)
            w = find(e, call, label, ret);
        if (w < 0 || ret->n > 0)
            return w;
    }
    return fail(e->host, call, s,
                "%s did not tell whether it has made a sandbox, and shows none; what comes later is "
                "found as an orphan",
                e->flavor->service);
}

static void give_up(struct envd *e, struct box *b)
{
    struct mango_call own = remote_undo(e->host, REMOTE_CALL_MS);
    (void)control_delete(e, &own, b->live.id);
    live_unref(&b->live);
}

/* Ours is there and works. Is it the one? */
static mango_status settle(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct box *b, struct mango_sandbox_ref *ret)
{
    struct search f = {.n = 0};
    mango_status s = find(e, call, spec->label, &f);
    if (s < 0 || (f.n > 0 && strcmp(f.oldest.id, b->live.id) != 0)) {
        give_up(e, b);
        return s < 0 ? s : bind_found(e, call, spec, &f.oldest, ret);
    }
    s = give_ref(e, b, e->idle_s, false, ret);
    enlist(e, b);
    return s;
}

static mango_status make(struct envd *e, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         struct mango_sandbox_ref *ret)
{
    struct sandbox made = {0};
    struct search f = {.n = 0};
    bool maybe = false;
    mango_status s = control_create(e, call, spec, &made, &maybe);
    if (s < 0 && maybe && s != MANGO_ECANCELED) {
        s = find_lost(e, call, spec->label, s, &f);
        return s == MANGO_OK ? bind_found(e, call, spec, &f.oldest, ret) : s;
    }
    if (s < 0)
        return s;
    struct box *b = box_new(e, spec, made.id);
    if (!b)
        return envd_no_memory(e, call);
    box_take_tokens(b, &made, e->idle_s);
    s = check_version(e, call, made.version);
    if (s == MANGO_OK)
        s = envd_provision(b, call);
    if (s == MANGO_OK)
        return settle(e, call, spec, b, ret);
    give_up(e, b);
    return s;
}

mango_status envd_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         struct mango_sandbox_ref *ret)
{
    struct envd *e = ctx;
    struct search f = {.n = 0};
    mango_status s = check_spec(e, call, spec);
    if (s == MANGO_OK)
        s = find(e, call, spec->label, &f);
    if (s < 0)
        return s;
    return f.n > 0 ? bind_found(e, call, spec, &f.oldest, ret) : make(e, call, spec, ret);
}

mango_status envd_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                         const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct envd *e = ctx;
    struct sandbox s = {0};
    char name[ENVD_ID_MAX + 1];
    mango_status rc = check_spec(e, call, spec);
    if (rc < 0)
        return rc;
    if (!remote_id_ok(id) || id.len > ENVD_ID_MAX)
        return fail(e->host, call, MANGO_EDENIED, "the stored reference is none of %s", e->flavor->service);
    snprintf(name, sizeof(name), "%.*s", (int)id.len, id.ptr);
    rc = control_get(e, call, name, &s);
    if (rc == MANGO_EGONE)
        return fail(e->host, call, MANGO_EGONE, "the workspace is lost: %s has no sandbox %s any more",
                    e->flavor->service, name);
    if (rc == MANGO_OK)
        rc = verify(e, call, &s, spec->label);
    return rc == MANGO_OK ? bind_found(e, call, spec, &s, ret) : rc;
}

/* ---- the end ---- */

mango_status envd_detach(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct envd *e = ctx;
    (void)call;
    struct live *l = live_take(&e->boxes, id);
    if (!l)
        return MANGO_OK;
    live_close(l);
    live_wait_quiet(l);
    live_unref(l);
    return MANGO_OK;
}

void envd_drop_all(struct envd *e)
{
    for (struct live *l; (l = live_take_any(&e->boxes));) {
        live_close(l);
        live_wait_quiet(l);
        live_unref(l);
    }
}

struct removal {
    struct envd *e;
    const struct mango_call *call;
    struct mango_sv label;
    mango_status s;
};

static bool remove_one(void *ctx, const struct sandbox *s)
{
    struct removal *r = ctx;
    if (!sv_is(r->label, s->label))
        return true;
    r->s = control_delete(r->e, r->call, s->id);
    return r->s == MANGO_OK;
}

/* Never one of another label. */
static mango_status remove_named(struct envd *e, const struct mango_call *call, struct mango_sv id,
                                 struct mango_sv label)
{
    struct sandbox s;
    char name[ENVD_ID_MAX + 1];
    if (!remote_id_ok(id) || id.len > ENVD_ID_MAX)
        return fail(e->host, call, MANGO_EDENIED, "the stored reference is none of %s", e->flavor->service);
    snprintf(name, sizeof(name), "%.*s", (int)id.len, id.ptr);
    mango_status rc = control_get(e, call, name, &s);
    if (rc == MANGO_EGONE)
        return MANGO_OK;
    if (rc == MANGO_OK)
        rc = verify(e, call, &s, label);
    return rc == MANGO_OK ? control_delete(e, call, name) : rc == MANGO_EGONE ? MANGO_OK : rc;
}

mango_status envd_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    struct envd *e = ctx;
    struct mango_call own = *call;
    own.token = NULL;
    struct removal r = {.e = e, .call = &own, .label = label};
    if (!sv_hex(label, ENVD_LABEL_LEN))
        return fail(e->host, call, MANGO_EINVALID, "label must be %d lowercase hex digits", ENVD_LABEL_LEN);
    mango_status s =
        id.len ? remove_named(e, &own, id, label) : control_list(e, &own, "io.mango.label", label, remove_one, &r);
    struct live *l = s == MANGO_OK && id.len ? live_take(&e->boxes, id) : NULL;
    if (l) { /* what is inside ends with the sandbox */
        live_close(l);
        live_wait_quiet(l);
        live_unref(l);
    }
    return s < 0 ? s : r.s;
}

/* ---- orphans ---- */

struct listing {
    struct mango_sv owner;
    mango_owned_fn *fn;
    void *ctx;
};

static bool on_owned(void *ctx, const struct sandbox *s)
{
    struct listing *l = ctx;
    if (!sv_is(l->owner, s->owner) || !sv_hex(sv_z(s->label), ENVD_LABEL_LEN))
        return true;
    const struct mango_owned item = {
        .struct_size = sizeof(item), .id = sv_z(s->id), .label = sv_z(s->label), .created_us = s->started_us};
    return l->fn(l->ctx, &item) == 0;
}

mango_status envd_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                             void *fn_ctx)
{
    struct envd *e = ctx;
    struct listing l = {.owner = owner, .fn = fn, .ctx = fn_ctx};
    if (!sv_hex(owner, ENVD_LABEL_LEN))
        return fail(e->host, call, MANGO_EINVALID, "owner must be %d lowercase hex digits", ENVD_LABEL_LEN);
    return control_list(e, call, "io.mango.owner", owner, on_owned, &l);
}
