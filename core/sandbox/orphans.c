#include "sandbox/orphans.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/registry.h"
#include "sandbox/internal.h"
#include "store/sandbox.h"

struct listing {
    struct mg_arena *a;
    struct mg_orphan *items;
    int n, cap;
};

static int32_t on_item(void *ctx, const struct mango_owned *item)
{
    struct listing *l = ctx;
    if (l->n == MG_ORPHANS_MAX)
        return 1;
    if (l->n == l->cap) {
        int cap = l->cap ? l->cap * 2 : 64;
        struct mg_orphan *more = mg_arena_alloc(l->a, (size_t)cap * sizeof(*more));
        if (l->n)
            memcpy(more, l->items, (size_t)l->n * sizeof(*more));
        l->items = more;
        l->cap = cap;
    }
    l->items[l->n++] = (struct mg_orphan){.id = mg_arena_sv(l->a, mg_sv_n(item->id.ptr, item->id.len)),
                                          .label = mg_arena_sv(l->a, mg_sv_n(item->label.ptr, item->label.len)),
                                          .created_us = item->created_us};
    return 0;
}

mg_rc mg_orphans_find(struct mg_plugin *p, struct mg_pg *pg, struct mg_arena *a, struct mg_sv owner,
                      struct mg_orphan **ret, int *ret_n, struct mg_err *err)
{
    struct mg_err own = {0};
    struct listing l = {.a = a};
    *ret_n = 0;
    if (!mg_plugin_can(p, MANGO_CAP_LIST_OWNED) || !MANGO_HAS(p->sandbox, list_owned))
        return mg_err_set(err, MG_EINVAL, "the sandbox backend '%s' cannot list what it owns", p->name);
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_ORPHAN_LIST_MS * UINT64_C(1000000), NULL, &own);
    struct mg_guard g = mg_guard_enter(p, MG_OP_LIST);
    mango_status s = p->sandbox->list_owned(p->ctx, &call, (struct mango_sv){owner.ptr, owner.len}, on_item, &l);
    mg_rc rc = mg_plugin_rc(p, MG_OP_LIST, mg_guard_leave(&g, s), &own);
    if (rc < 0)
        return mg_err_set(err, rc, "list the sandboxes of backend %s: %s", p->name, own.text);
    for (int i = 0; i < l.n; i++) {
        bool known = false;
        rc = mg_owned_known(pg, mg_sv_of(p->name), l.items[i].id, l.items[i].label, &known, err);
        if (rc < 0)
            return rc;
        if (!known)
            l.items[(*ret_n)++] = l.items[i];
    }
    *ret = l.items;
    return MG_OK;
}

mg_rc mg_orphan_destroy(struct mg_plugin *p, struct mg_pg *pg, const struct mg_orphan *o, struct mg_err *err)
{
    bool known = false;
    struct mg_err own = {0};
    if (o->label.len == 0)
        return mg_err_set(err, MG_EINVAL, "backend %s does not say whose '%.*s' is; destroy it at the service", p->name,
                          MG_SV_ARG(o->id));
    mg_rc rc = mg_owned_known(pg, mg_sv_of(p->name), o->id, o->label, &known, err);
    if (rc < 0)
        return rc;
    if (known)
        return mg_err_set(err, MG_ECONFLICT, "'%.*s' belongs to a session", MG_SV_ARG(o->id));
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_ORPHAN_DESTROY_MS * UINT64_C(1000000), NULL, &own);
    struct mg_guard g = mg_guard_enter(p, MG_OP_DESTROY);
    mango_status s = p->sandbox->destroy(p->ctx, &call, (struct mango_sv){o->id.ptr, o->id.len},
                                         (struct mango_sv){o->label.ptr, o->label.len});
    s = mg_guard_leave(&g, s);
    rc = s == MANGO_EGONE ? MG_OK : mg_plugin_rc(p, MG_OP_DESTROY, s, &own);
    return rc < 0 ? mg_err_set(err, rc, "%s", own.text) : MG_OK;
}

/* ---- the reconciler's part ---- */

/* When an orphan was first seen by this process: the grace time runs from then. */
struct sighting {
    uint64_t since_ns;
    unsigned round; /* of the last listing that had it */
};

static struct sighting *see(struct mg_sandboxes *m, struct mg_sv key)
{
    pthread_mutex_lock(&m->lock);
    struct sighting *s = mg_map_get(m->orphans, key);
    if (!s) {
        s = mg_xcalloc(1, sizeof(*s));
        s->since_ns = mg_now_ns();
        (void)mg_map_put(m->orphans, key, s);
    }
    s->round = m->orphan_round;
    pthread_mutex_unlock(&m->lock);
    return s;
}

static void forget(struct mg_sandboxes *m, struct mg_sv key)
{
    pthread_mutex_lock(&m->lock);
    free(mg_map_del(m->orphans, key));
    pthread_mutex_unlock(&m->lock);
}

struct sweep {
    struct mg_sandboxes *m;
    struct mg_pg *pg;
    struct mg_arena *a;
    unsigned left; /* orphans that are there still */
};

static void sweep_one(struct sweep *w, struct mg_plugin *p, const struct mg_orphan *o)
{
    struct mg_err err = {0};
    struct mg_sv key = mg_arena_printf(w->a, "%s %.*s", p->name, MG_SV_ARG(o->id));
    const struct sighting *s = see(w->m, key);
    if (o->label.len == 0 || mg_now_ns() - s->since_ns < w->m->opts.orphan_grace_ms * UINT64_C(1000000)) {
        w->left++;
        return;
    }
    mg_rc rc = mg_orphan_destroy(p, w->pg, o, &err);
    mg_log(rc < 0 ? MG_WARN : MG_INFO, rc < 0 ? "an orphan is not destroyed yet" : "an orphan was destroyed",
           MG_F_STR("backend", p->name), MG_F_SV("id", o->id), MG_F_STR("error", err.text));
    if (rc == MG_OK || rc == MG_ECONFLICT)
        forget(w->m, key);
    else
        w->left++;
}

static void sweep_backend(struct sweep *w, struct mg_plugin *p)
{
    struct mg_err err = {0};
    struct mg_orphan *o = NULL;
    int n = 0;
    if (!mg_plugin_can(p, MANGO_CAP_LIST_OWNED))
        return;
    if (mg_orphans_find(p, w->pg, w->a, mg_sv_of(w->m->owner), &o, &n, &err) < 0) {
        mg_log(MG_WARN, "orphans cannot be looked for", MG_F_STR("error", err.text));
        return;
    }
    for (int i = 0; i < n; i++)
        sweep_one(w, p, &o[i]);
}

struct stale {
    struct mg_arena *a;
    unsigned round;
    struct mg_sv *keys;
    int n, cap;
};

static void note_stale(void *ctx, struct mg_sv key, void *value)
{
    struct stale *s = ctx;
    const struct sighting *seen = value;
    if (seen->round != s->round && s->n < s->cap)
        s->keys[s->n++] = mg_arena_sv(s->a, key);
}

/* What is not there any more, or has an owner, begins anew when it is seen again. */
static void drop_stale(struct mg_sandboxes *m, struct mg_arena *a)
{
    pthread_mutex_lock(&m->lock);
    struct stale s = {.a = a, .round = m->orphan_round, .cap = (int)mg_map_len(m->orphans)};
    s.keys = mg_arena_alloc(a, sizeof(*s.keys) * (size_t)(s.cap + 1));
    mg_map_each(m->orphans, note_stale, &s);
    for (int i = 0; i < s.n; i++)
        free(mg_map_del(m->orphans, s.keys[i]));
    pthread_mutex_unlock(&m->lock);
}

struct loaded {
    struct mg_plugin *all[MG_PLUGIN_LIST_MAX];
    int n;
};

static void note_loaded(void *ctx, struct mg_plugin *p)
{
    struct loaded *l = ctx;
    if (p->sandbox && l->n < MG_PLUGIN_LIST_MAX)
        l->all[l->n++] = p;
}

void mg_orphans_sweep(struct mg_sandboxes *m, struct mg_pg *pg)
{
    uint64_t now = mg_now_ns(), grace = m->opts.orphan_grace_ms;
    if (grace == 0 || now < m->orphan_next_ns)
        return;
    uint64_t pause = grace / 4;
    pause = pause < MG_ORPHAN_LOOK_MIN_MS   ? MG_ORPHAN_LOOK_MIN_MS
            : pause > MG_ORPHAN_LOOK_MAX_MS ? MG_ORPHAN_LOOK_MAX_MS
                                            : pause;
    m->orphan_next_ns = now + pause * UINT64_C(1000000);
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct sweep w = {.m = m, .pg = pg, .a = a};
    struct loaded *l = mg_arena_alloc(a, sizeof(*l));
    l->n = 0;
    m->orphan_round++;
    mg_registry_each(m->opts.registry, note_loaded, l); /* no call while the registry is locked */
    for (int i = 0; i < l->n; i++)
        sweep_backend(&w, l->all[i]);
    drop_stale(m, a);
    atomic_store(&m->n_orphans, w.left);
}
