#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/json.h"
#include "docker/docker.h"
#include "docker/egress.h"
#include "docker/plain.h"

/* The table of the live sandboxes, their connections, and their end. */

enum { ENV_MAX = 256 /* variables of a spec */ };

void sandbox_name(struct mango_sv label, char id[NAME_LEN + 1])
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
    *b = (struct box){.docker = d, .limited = c->door, .plain = c->plain};
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

mango_status box_enlist(struct docker *d, const struct mango_call *call, const struct mango_sandbox_spec *spec,
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
    mango_status s = !b ? MANGO_ERETRY : ret ? give_ref(b, found, ret) : MANGO_OK;
    pthread_mutex_unlock(&d->boxes.lock);
    return b ? s : fail(d->host, call, MANGO_ERETRY, "out of memory");
}

/* ---- the connection ---- */

mango_status box_wake(const struct docker *d, const struct mango_call *call, const char *name,
                      const struct container *c, bool *ret_refused)
{
    *ret_refused = false;
    if (c->paused)
        return container_unpause(d, call, name);
    return c->running ? MANGO_OK : container_start(d, call, name, ret_refused);
}

/* A container that has stopped (a restart of the Engine) is started again: its workspace is what it was. */
mango_status box_revive(struct box *b, const struct mango_call *call)
{
    struct docker *d = b->docker;
    struct container c;
    bool refused;
    mango_status s = container_inspect(d, call, b->live.id, &c);
    if (s == MANGO_OK && !c.there)
        return fail(d->host, call, MANGO_EGONE, "the workspace is lost: the container %s does not exist any more",
                    b->live.id);
    if (s == MANGO_OK && strcmp(c.identity, b->identity) != 0)
        return fail(d->host, call, MANGO_EGONE,
                    "the workspace is lost: the container %s is another one than the session's", b->live.id);
    if (s == MANGO_OK)
        s = volume_check(d, call, b->live.id, b->identity);
    return s == MANGO_OK ? box_wake(d, call, b->live.id, &c, &refused)
                         : s; /* what is refused is made anew by the next attach */
}

static mango_status connect_box(struct box *b, const struct mango_call *call, struct mux **ret)
{
    struct docker *d = b->docker;
    mango_status s = mux_open(d, call, b->live.id, b->root, ret);
    if (s != MANGO_ENOENT) /* it is not running */
        return s;
    s = box_revive(b, call);
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
    plain_cut_all(b);
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
    sandbox_name(label, name);
    if (id.len > 0 && !sv_is(id, name))
        return fail(d->host, call, MANGO_EDENIED, "the stored reference does not belong to this session");
    (void)docker_detach(d, call, sv_z(name));
    mango_status s = container_remove(d, &own, name, label);
    if (s == MANGO_OK)
        egress_close(d, label);
    return s;
}
