#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "docker/docker.h"
#include "docker/egress.h"
#include "docker/mux-client.h"

/* Making, finding and ending sandboxes, and the table of the live ones. */

enum {
    ENV_MAX = 256,       /* variables of a spec */
    SHARED_TRIES = 3,    /* of a create that meets another one */
    AWAIT_TRIES = 200,   /* looks at what that one makes */
    AWAIT_NS = 25000000, /* between two of them */
};

static void id_of(struct mango_sv label, char id[NAME_LEN + 1])
{
    memcpy(id, "mango-", 6);
    memcpy(id + 6, label.ptr, LABEL_LEN);
    id[NAME_LEN] = '\0';
}

/* ---- the table ---- */

static void box_free(struct live *l)
{
    struct box *b = (struct box *)l;
    for (char **e = b->env; e && *e; e++)
        free(*e);
    free(b->env);
    free(b->root);
    pthread_mutex_destroy(&b->start);
    live_destroy(l);
    free(b);
}

mango_status box_enter(struct docker *d, const struct mango_call *call, struct mango_sv id, struct box **ret)
{
    *ret = (struct box *)live_enter(&d->boxes, id);
    return *ret ? MANGO_OK : fail(d->host, call, MANGO_EGONE, "the sandbox is not attached or is being removed");
}

static bool fill_env(struct box *b, const struct mango_sandbox_spec *spec)
{
    uint64_t n = spec->n_env < ENV_MAX ? spec->n_env : ENV_MAX, more = 0;
    while (b->limited && egress_env[more])
        more++;
    b->env = calloc(n + more + 1, sizeof(*b->env));
    for (uint64_t i = 0; b->env && i < more; i++) {
        if (!(b->env[n + i] = strdup(egress_env[i])))
            return false;
    }
    for (uint64_t i = 0; b->env && i < n; i++) {
        if (!(b->env[i] = sv_dup(spec->env[i])))
            return false;
    }
    return b->env != NULL;
}

static struct box *box_new(struct docker *d, const struct mango_sandbox_spec *spec, const char *id,
                           const struct container *c)
{
    struct box *b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    *b = (struct box){.docker = d, .limited = c->door};
    live_init(&b->live, id, box_free);
    pthread_mutex_init(&b->start, NULL);
    memcpy(b->identity, c->identity, sizeof(b->identity));
    b->root = strdup(c->root);
    if (b->root && fill_env(b, spec))
        return b;
    live_unref(&b->live);
    return NULL;
}

static mango_status give_ref(const struct box *b, bool found, struct mango_sandbox_ref *ret)
{
    const struct mango_host *h = b->docker->host;
    mango_status s = h->buf_append(h, ret->id, b->live.id, strlen(b->live.id));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->root, b->root, strlen(b->root));
    if (s == MANGO_OK)
        s = h->buf_append(h, ret->identity, b->identity, strlen(b->identity));
    ret->flags = found ? MANGO_REF_FOUND : 0;
    ret->expires_s = 0;
    return s;
}

/* The one that is attached already, or a new one in the table. */
static mango_status enlist(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           const char *id, const struct container *c, bool found, struct mango_sandbox_ref *ret)
{
    pthread_mutex_lock(&d->boxes.lock);
    struct box *b = (struct box *)live_find(&d->boxes, sv_z(id));
    if (!b && (b = box_new(d, spec, id, c)))
        live_add(&d->boxes, &b->live);
    if (b) { /* it runs now */
        pthread_mutex_lock(&b->live.lock);
        b->paused = false;
        pthread_mutex_unlock(&b->live.lock);
    }
    mango_status s = b ? give_ref(b, found, ret) : MANGO_ERETRY;
    pthread_mutex_unlock(&d->boxes.lock);
    return b ? s : fail(d->host, call, MANGO_ERETRY, "out of memory");
}

/* ---- create and attach ---- */

static mango_status check_mount(const struct docker *d, const struct mango_call *call, const struct mango_mount *m)
{
    if (!d->at.socket)
        return fail(d->host, call, MANGO_EUNSUPPORTED,
                    "folders of this host cannot be mounted by a Docker Engine on another one");
    if (m->source.len == 0 || m->source.ptr[0] != '/' || m->target.len == 0 || m->target.ptr[0] != '/' || m->flags)
        return fail(d->host, call, MANGO_EINVALID, "a mount has two absolute paths and is read-only");
    return MANGO_OK;
}

static mango_status check_spec(const struct docker *d, const struct mango_call *call,
                               const struct mango_sandbox_spec *spec)
{
    if (!sv_hex(spec->label, LABEL_LEN) || (spec->owner.len != 0 && !sv_hex(spec->owner, LABEL_LEN)))
        return fail(d->host, call, MANGO_EINVALID, "label and owner must be %d lowercase hex digits", LABEL_LEN);
    if (spec->workdir.len >= ROOT_MAX ||
        (spec->workdir.len > 0 && (spec->workdir.len < 2 || spec->workdir.ptr[0] != '/')))
        return fail(d->host, call, MANGO_EINVALID,
                    "the workspace must be an absolute path of at most %d bytes, and not /", ROOT_MAX - 1);
    for (uint64_t i = 0; i < spec->n_mounts; i++) {
        mango_status s = check_mount(d, call, &spec->mounts[i]);
        if (s < 0)
            return s;
    }
    return MANGO_OK;
}

static mango_status verify(const struct docker *d, const struct mango_call *call, const char *name,
                           const struct mango_sandbox_spec *spec, const struct container *c)
{
    if (!sv_is(spec->label, c->label) || !c->root[0])
        return fail(d->host, call, MANGO_EDENIED, "the container %s exists and does not belong to this session", name);
    if (c->open_network && spec->network && spec->network->mode != MANGO_NET_OPEN)
        return fail(d->host, call, MANGO_EDENIED,
                    "the container %s has an open network, and the environment allows none", name);
    mango_status s = volume_check(d, call, name, c->identity);
    return s == MANGO_OK && c->door && spec->network && spec->network->mode == MANGO_NET_LIMITED
               ? egress_open(d, call, spec->label, spec->network, NULL)
               : s;
}

static mango_status wake(const struct docker *d, const struct mango_call *call, const char *name,
                         const struct container *c, bool *ret_refused)
{
    *ret_refused = false;
    if (c->paused)
        return container_unpause(d, call, name);
    return c->running ? MANGO_OK : container_start(d, call, name, ret_refused);
}

/* A container that the Engine cannot start any more is made anew around the same volume, which volume_check has seen:
 * nothing else of it is worth keeping, since all other places are read-only or in memory. */
static mango_status rebuild(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                            const char *name, const struct container *c)
{
    bool lost, refused;
    struct container now;
    mango_status s = container_drop(d, call, name);
    if (s == MANGO_OK)
        s = container_make(d, call, spec, name, c->root, &lost);
    if (s == MANGO_OK)
        s = container_inspect(d, call, name, &now);
    if (s == MANGO_OK && (!now.there || strcmp(now.identity, c->identity) != 0))
        s = fail(d->host, call, MANGO_ERETRY, "the container %s comes and goes: something else removes it", name);
    return s == MANGO_OK ? container_start(d, call, name, &refused) : s;
}

/* The container must be there. */
static mango_status bind(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                         const char *name, const struct container *c, bool found, struct mango_sandbox_ref *ret)
{
    bool refused = false;
    mango_status s = verify(d, call, name, spec, c);
    if (s == MANGO_OK)
        s = wake(d, call, name, c, &refused);
    if (refused && found)
        s = rebuild(d, call, spec, name, c);
    return s == MANGO_OK ? enlist(d, call, spec, name, c, found, ret) : s;
}

/* A start that was refused leaves no container; the volume is new and goes with it. */
static void undo(const struct docker *d, const char *name, struct mango_sv label)
{
    struct mango_call own = {.struct_size = sizeof(own),
                             .deadline_ns = now_ns(d->host) + CONTROL_MS * UINT64_C(1000000)};
    (void)container_remove(d, &own, name, label);
}

/* Another create was faster. The Engine gives the name away before the container can be seen. */
static mango_status await(const struct docker *d, const struct mango_call *call, const char *name, struct container *c)
{
    mango_status s = MANGO_OK;
    for (int i = 0; i < AWAIT_TRIES && s == MANGO_OK && !c->there; i++) {
        if (d->host->cancelled(d->host, call))
            return MANGO_ECANCELED;
        nanosleep(&(struct timespec){.tv_nsec = AWAIT_NS}, NULL);
        s = container_inspect(d, call, name, c);
    }
    return s;
}

mango_status docker_create(void *ctx, const struct mango_call *call, const struct mango_sandbox_spec *spec,
                           struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char name[NAME_LEN + 1], root[ROOT_MAX];
    struct container c;
    mango_status s = check_spec(d, call, spec);
    if (s < 0)
        return s;
    id_of(spec->label, name);
    snprintf(root, sizeof(root), "%.*s", spec->workdir.len ? (int)spec->workdir.len : (int)strlen(WORKSPACE),
             spec->workdir.len ? spec->workdir.ptr : WORKSPACE);
    for (int i = 0; i < SHARED_TRIES; i++) {
        bool lost;
        s = container_inspect(d, call, name, &c);
        if (s < 0)
            return s;
        if (c.there)
            return bind(d, call, spec, name, &c, true, ret);
        s = container_make(d, call, spec, name, root, &lost);
        if (s < 0)
            return s;
        s = lost ? await(d, call, name, &c) : container_inspect(d, call, name, &c);
        if (s == MANGO_OK && lost) {
            if (c.there)
                return bind(d, call, spec, name, &c, true, ret);
            continue; /* what the other one made has gone again */
        }
        if (s == MANGO_OK)
            s = bind(d, call, spec, name, &c, false, ret);
        if (s < 0 && s != MANGO_ECANCELED && s != MANGO_ETIMEOUT)
            undo(d, name, spec->label);
        return s;
    }
    return fail(d->host, call, MANGO_ERETRY, "the container %s comes and goes: something else removes it", name);
}

mango_status docker_attach(void *ctx, const struct mango_call *call, struct mango_sv id,
                           const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ret)
{
    struct docker *d = ctx;
    char name[NAME_LEN + 1];
    struct container c;
    mango_status s = check_spec(d, call, spec);
    if (s < 0)
        return s;
    id_of(spec->label, name);
    if (!sv_is(id, name))
        return fail(d->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    s = container_inspect(d, call, name, &c);
    if (s == MANGO_OK && !c.there)
        return fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                    name);
    return s == MANGO_OK ? bind(d, call, spec, name, &c, true, ret) : s;
}

/* ---- the connection ---- */

/* A container that has stopped (a restart of the Engine) is started again: its workspace is what it was. */
static mango_status connect_box(struct box *b, const struct mango_call *call, struct mux **ret)
{
    struct docker *d = b->docker;
    mango_status s = mux_open(d, call, b->live.id, b->root, ret);
    if (s != MANGO_ENOENT) /* it is not running */
        return s;
    struct container c;
    bool refused;
    s = container_inspect(d, call, b->live.id, &c);
    if (s == MANGO_OK && !c.there)
        return fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                    b->live.id);
    if (s == MANGO_OK && strcmp(c.identity, b->identity) != 0)
        return fail(d->host, call, MANGO_EGONE,
                    "the workspace is lost: the container %s is another one than the session's", b->live.id);
    if (s == MANGO_OK)
        s = volume_check(d, call, b->live.id, b->identity);
    if (s == MANGO_OK)
        s = wake(d, call, b->live.id, &c, &refused); /* what was refused here is made anew by the next attach */
    if (s == MANGO_OK)
        s = mux_open(d, call, b->live.id, b->root, ret);
    return s == MANGO_ENOENT
               ? fail(d->host, call, MANGO_ERETRY, "the container %s stops at once after its start", b->live.id)
               : s;
}

mango_status box_mux(struct box *b, const struct mango_call *call, struct mux **ret)
{
    mango_status s = MANGO_OK;
    struct mux *m = NULL, *old = NULL;
    pthread_mutex_lock(&b->start);
    pthread_mutex_lock(&b->live.lock);
    bool dying = b->live.dying, paused = b->paused;
    if (b->mux && mux_alive(b->mux)) {
        m = b->mux;
        mux_ref(m);
    }
    pthread_mutex_unlock(&b->live.lock);
    if (paused && !dying) {
        pthread_mutex_unlock(&b->start);
        if (m)
            mux_unref(m);
        return fail(b->docker->host, call, MANGO_EINVALID, "the sandbox is paused; resume it first");
    }
    if (m && !mux_fresh(m, call)) {
        mux_unref(m);
        m = NULL;
    }
    if (!m && dying)
        s = fail(b->docker->host, call, MANGO_EGONE, "the sandbox is being removed");
    else if (!m)
        s = connect_box(b, call, &m);
    if (s == MANGO_OK && m) {
        pthread_mutex_lock(&b->live.lock);
        if (b->mux != m) {
            old = b->mux;
            b->mux = m;
            mux_ref(m);
        }
        dying = b->live.dying;
        pthread_mutex_unlock(&b->live.lock);
        if (dying) /* quiesce did not see this one */
            mux_kill(m);
    }
    pthread_mutex_unlock(&b->start);
    if (old) {
        mux_kill(old);
        mux_unref(old);
    }
    *ret = m;
    return s;
}

/* ---- the end ---- */

/* Ends what runs through this process, waits until no call is inside any more, and lets the box go. */
static void quiesce(struct box *b)
{
    pthread_mutex_lock(&b->live.lock);
    b->live.dying = true;
    struct mux *m = b->mux;
    b->mux = NULL;
    pthread_mutex_unlock(&b->live.lock);
    if (m) {
        mux_kill(m);
        mux_unref(m);
    }
    live_wait_quiet(&b->live);
    live_unref(&b->live);
}

mango_status docker_detach(void *ctx, const struct mango_call *call, struct mango_sv id)
{
    struct docker *d = ctx;
    (void)call;
    struct live *l = live_take(&d->boxes, id);
    if (l)
        quiesce((struct box *)l);
    return MANGO_OK;
}

void boxes_drop_all(struct docker *d)
{
    for (struct live *l; (l = live_take_any(&d->boxes));)
        quiesce((struct box *)l);
}

mango_status docker_destroy(void *ctx, const struct mango_call *call, struct mango_sv id, struct mango_sv label)
{
    struct docker *d = ctx;
    char name[NAME_LEN + 1];
    struct mango_call own = *call;
    own.token = NULL;
    if (!sv_hex(label, LABEL_LEN))
        return fail(d->host, call, MANGO_EINVALID, "label must be %d lowercase hex digits", LABEL_LEN);
    id_of(label, name);
    if (id.len > 0 && !sv_is(id, name))
        return fail(d->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    (void)docker_detach(d, call, sv_z(name));
    mango_status s = container_remove(d, &own, name, label);
    if (s == MANGO_OK)
        egress_close(d, label);
    return s;
}

/* ---- orphans ---- */

static mango_status list(const struct docker *d, const struct mango_call *call, const char *what, struct mango_sv owner,
                         struct engine_res *r)
{
    text_auto struct text path = {0};
    text_auto struct text filter = {0};
    text_printf(&filter, "{\"label\":[\"io.mango.owner=%.*s\"]}", (int)owner.len, owner.ptr);
    text_printf(&path, "/%s%s=", what, strcmp(what, "volumes") == 0 ? "?filters" : "/json?all=1&filters");
    text_url(&path, text_view(&filter));
    const struct engine_req req = {.method = "GET", .path = path.ptr, .control = true};
    mango_status s =
        path.bad || filter.bad ? fail(d->host, call, MANGO_ERETRY, "out of memory") : engine_call(d, call, &req, r);
    return s == MANGO_OK && r->status != 200 ? engine_fail(d, call, r, "list what this deployment owns") : s;
}

struct listing {
    struct mango_sv owner;
    mango_owned_fn *fn;
    void *fn_ctx;
    bool stop;
};

/* labels: of a container or a volume. */
static void give(struct listing *l, struct mango_sv labels, int64_t created_us)
{
    char label[LABEL_LEN + 1], owner[LABEL_LEN + 1], name[NAME_LEN + 1];
    if (l->stop || !json_copy(labels, "io.mango.label", label, sizeof(label)) || !sv_hex(sv_z(label), LABEL_LEN) ||
        !json_copy(labels, "io.mango.owner", owner, sizeof(owner)) || !sv_is(l->owner, owner))
        return;
    id_of(sv_z(label), name);
    struct mango_owned item = {
        .struct_size = sizeof(item), .id = sv_z(name), .label = sv_z(label), .created_us = created_us};
    l->stop = l->fn(l->fn_ctx, &item) != 0;
}

static bool has_container(struct mango_sv containers, struct mango_sv labels)
{
    char label[LABEL_LEN + 1];
    struct mango_sv item;
    if (!json_copy(labels, "io.mango.label", label, sizeof(label)))
        return false;
    for (uint64_t pos = 0; json_next(containers, &pos, NULL, &item);) {
        if (json_is(item, "Labels/io.mango.label", label))
            return true;
    }
    return false;
}

mango_status docker_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx)
{
    struct docker *d = ctx;
    struct engine_res containers = {0}, volumes = {0};
    struct listing l = {.owner = owner, .fn = fn, .fn_ctx = fn_ctx};
    struct mango_sv item;
    if (!sv_hex(owner, LABEL_LEN))
        return fail(d->host, call, MANGO_EINVALID, "owner must be %d lowercase hex digits", LABEL_LEN);
    mango_status s = list(d, call, "containers", owner, &containers);
    if (s == MANGO_OK)
        s = list(d, call, "volumes", owner, &volumes);
    if (s == MANGO_OK) {
        struct mango_sv all = engine_body(d, &containers), left = json_get(engine_body(d, &volumes), "Volumes");
        for (uint64_t pos = 0; json_next(all, &pos, NULL, &item);) {
            int64_t created_s = 0;
            (void)json_int(item, "Created", &created_s);
            give(&l, json_get(item, "Labels"), created_s * 1000000);
        }
        /* A create that was cut off between the two, or a container that somebody removed. */
        for (uint64_t pos = 0; json_next(left, &pos, NULL, &item);) {
            if (!has_container(all, json_get(item, "Labels")))
                give(&l, json_get(item, "Labels"), 0);
        }
    }
    engine_free(d, &containers);
    engine_free(d, &volumes);
    return s;
}
