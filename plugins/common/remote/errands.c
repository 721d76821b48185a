#include "common/remote/errands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/brought.h"
#include "common/rbox/wire.h"
#include "common/remote/errand-link.h"

/* The program on this host, and the table of live sandboxes. */

/* ---- the program ---- */

static mango_status load(struct errands *e, const struct mango_call *call)
{
    const struct brought_file f = {
        .name = RBOX_PROGRAM, .title = "", .remedy = "install it there", .max = ERRANDS_PROGRAM_MAX};
    struct brought p;
    mango_status s = brought_load(e->host, call, &f, NULL, &p);
    e->program = p.bytes;
    snprintf(e->name, sizeof(e->name), "errand-%016llx", (unsigned long long)p.hash);
    return s;
}

mango_status errands_open(struct errands *e, const struct mango_host *h, const struct mango_call *call,
                          const struct errands_service *service, void *ctx)
{
    *e = (struct errands){.host = h, .service = service, .ctx = ctx};
    pthread_mutex_init(&e->lock, NULL);
    return load(e, call);
}

/* ---- the table ---- */

static void free_env(char **env)
{
    for (char **v = env; v && *v; v++)
        free(*v);
    free(env);
}

static void free_box(struct errands *e, struct errands_box *b)
{
    if (b->own && e->service->free_own)
        e->service->free_own(b->own);
    link_free(b);
    for (unsigned i = 0; i < b->n_forget; i++)
        free(b->forget[i]);
    pthread_mutex_destroy(&b->lock);
    free_env(b->env);
    free(b->id);
    free(b->root);
    free(b);
}

void errands_leave(struct errands *e, struct errands_box *b)
{
    pthread_mutex_lock(&e->lock);
    bool last = --b->refs == 0;
    pthread_mutex_unlock(&e->lock);
    if (last)
        free_box(e, b);
}

static char **copy_env(const struct mango_sandbox_spec *spec)
{
    char **env = calloc(spec->n_env + 1, sizeof(*env));
    for (uint64_t i = 0; env && i < spec->n_env; i++) {
        if (!(env[i] = sv_dup(spec->env[i]))) {
            free_env(env);
            return NULL;
        }
    }
    return env;
}

static struct errands_box *new_box(struct mango_sv id, const char *root, const struct mango_sandbox_spec *spec,
                                   void *own)
{
    struct errands_box *b = calloc(1, sizeof(*b));
    if (!b)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    b->refs = 1; /* the table's */
    b->id = sv_dup(id);
    b->root = strdup(root);
    b->env = copy_env(spec);
    b->own = own;
    return b;
}

/* Unlinked; the caller gives up the table's count. */
static struct errands_box *unlink_box(struct errands *e, struct mango_sv id)
{
    for (struct errands_box **at = &e->boxes; *at; at = &(*at)->next) {
        struct errands_box *b = *at;
        if (sv_is(id, b->id)) {
            *at = b->next;
            return b;
        }
    }
    return NULL;
}

void errands_drop(struct errands *e, struct mango_sv id)
{
    pthread_mutex_lock(&e->lock);
    struct errands_box *b = unlink_box(e, id);
    pthread_mutex_unlock(&e->lock);
    if (b)
        errands_leave(e, b);
}

mango_status errands_enter(struct errands *e, const struct mango_call *call, struct mango_sv id,
                           struct errands_box **ret)
{
    pthread_mutex_lock(&e->lock);
    struct errands_box *b = e->boxes;
    while (b && !sv_is(id, b->id))
        b = b->next;
    if (b)
        b->refs++;
    pthread_mutex_unlock(&e->lock);
    *ret = b;
    return b ? MANGO_OK : fail(e->host, call, MANGO_EINVALID, "nobody has attached to this sandbox");
}

mango_status errands_enter_new(struct errands *e, const struct mango_call *call, struct mango_sv id, const char *root,
                               const struct mango_sandbox_spec *spec, void *own)
{
    struct errands_box *b = new_box(id, root, spec, own);
    if (!b || !b->id || !b->root || !b->env) {
        if (b)
            free_box(e, b);
        else if (own && e->service->free_own)
            e->service->free_own(own);
        return fail(e->host, call, MANGO_EINVALID, "out of memory, or an environment with a NUL in it");
    }
    /* Not known to anybody yet: a sandbox that cannot work is never shown. */
    struct reply r = {0};
    text_auto struct text body = {0};
    request_text(&body, no_text());
    mango_status s = errand_send(e, call, b, ERRAND_HELLO, &body, 0, &r);
    if (s == MANGO_OK && r.last == '!')
        s = errand_refused(e, call, &r, sv_z(root));
    if (s < 0) {
        free_box(e, b);
        return s;
    }
    pthread_mutex_lock(&e->lock);
    struct errands_box *old = unlink_box(e, id);
    b->next = e->boxes;
    e->boxes = b;
    pthread_mutex_unlock(&e->lock);
    if (old)
        errands_leave(e, old); /* calls in flight keep theirs */
    return MANGO_OK;
}

void errands_close(struct errands *e)
{
    if (!e->host)
        return;
    while (e->boxes) {
        struct errands_box *b = e->boxes;
        e->boxes = b->next;
        errands_leave(e, b);
    }
    e->host->buf_free(e->host, e->program);
    pthread_mutex_destroy(&e->lock);
}
