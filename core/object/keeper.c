#include "object/keeper.h"

#include "base/clock.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/file.h"

enum { EXPIRE_MAX = 100 /* rows of one statement */ };

/* ---- leases ---- */

/* Marks the uploads whose lease is over. An upload may have ended meanwhile: it is looked up again. */
static void mark_lost(struct mg_objects *o, const struct mg_sv *keys, const bool *held, size_t n)
{
    pthread_mutex_lock(&o->lock);
    mg_list_each (it, &o->uploads) {
        struct mg_upload *u = mg_container_of(it, struct mg_upload, link);
        for (size_t i = 0; i < n; i++)
            if (!held[i] && mg_sv_eq(mg_object_key_sv(&u->key), keys[i]))
                atomic_store(&u->lost, true);
    }
    pthread_mutex_unlock(&o->lock);
}

static size_t list_keys(struct mg_objects *o, struct mg_arena *a, struct mg_sv **ret)
{
    size_t n = 0;
    pthread_mutex_lock(&o->lock);
    mg_list_each (it, &o->uploads)
        n++;
    *ret = mg_arena_alloc(a, sizeof(**ret) * (n + 1));
    n = 0;
    mg_list_each (it, &o->uploads)
        (*ret)[n++] = mg_arena_sv(a, mg_object_key_sv(&mg_container_of(it, struct mg_upload, link)->key));
    pthread_mutex_unlock(&o->lock);
    return n;
}

static mg_rc renew(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, struct mg_err *err)
{
    struct mg_sv *keys;
    size_t n = list_keys(o, a, &keys);
    if (n == 0)
        return MG_OK;
    bool *held = mg_arena_alloc(a, n);
    mg_rc rc = mg_objects_renew(pg, a, keys, n, o->lease_ms, held, err);
    if (rc >= 0)
        mark_lost(o, keys, held, n);
    return rc;
}

/* ---- what was left behind ---- */

/* One guard: its bytes go; the row goes with them when no write can follow. What fails is tried again after the others. */
static void remove_one(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, const struct mg_object_guard *g)
{
    struct mg_err err = {0};
    mg_hook("object.before_remove");
    mg_rc rc = o->backend->ops->remove(o->backend, mg_arena_strdup(a, g->key), g->partial, &err);
    mg_hook("object.after_remove");
    if (rc >= 0 && g->last)
        rc = mg_object_forget(a, pg, g->key, g->revision, &err);
    if (rc < 0)
        mg_log(MG_WARN, "an object could not be removed; it is tried again", MG_F_SV("object", g->key),
               MG_F_STR("error", err.text));
}

static mg_rc sweep(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, struct mg_err *err)
{
    uint64_t until_ns = mg_now_ns() + (uint64_t)MG_OBJECT_STEP_MS * 1000000;
    struct mg_object_guard *guards;
    int n = 0, expired = 0;
    mg_rc rc = mg_objects_expire(pg, a, EXPIRE_MAX, &expired, err);
    if (rc >= 0 && expired)
        mg_log(MG_WARN, "uploads without a writer are removed", MG_F_INT("uploads", expired));
    if (rc >= 0)
        rc = mg_files_expire(pg, a, EXPIRE_MAX, &n, err);
    if (rc >= 0)
        rc = mg_objects_guards(pg, a, MG_OBJECT_GUARDS_MAX, o->lease_ms / 3, o->late_ms, &guards, &n, err);
    for (int i = 0; rc >= 0 && i < n && mg_now_ns() < until_ns; i++)
        remove_one(o, pg, a, &guards[i]);
    return rc;
}

/* A node whose store is not the deployment's must not take a missing file for a removed one. */
static mg_rc round_of(struct mg_objects *o, struct mg_pg *pg, struct mg_arena *a, struct mg_err *err)
{
    bool mine = false;
    mg_rc rc = renew(o, pg, a, err);
    if (rc >= 0 && !atomic_load(&o->claimed))
        rc = mg_object_store_is(pg, mg_sv_of(o->backend->identity), &mine, err);
    if (mine)
        atomic_store(&o->claimed, true);
    return rc >= 0 && atomic_load(&o->claimed) ? sweep(o, pg, a, err) : rc;
}

/* ---- the thread ---- */

static bool wait_turn(struct mg_objects *o)
{
    uint64_t until_ns = mg_now_ns() + (uint64_t)o->lease_ms / 3 * 1000000;
    pthread_mutex_lock(&o->lock);
    while (!o->stopping && !o->woken && mg_cond_wait_until(&o->changed, &o->lock, until_ns))
        ;
    o->woken = false;
    bool stop = o->stopping;
    pthread_mutex_unlock(&o->lock);
    return !stop;
}

static void *keeper_main(void *arg)
{
    struct mg_objects *o = arg;
    struct mg_pg *pg = mg_pg_new(o->conninfo);
    bool failing = false;
    (void)pthread_setname_np(pthread_self(), "mango-objects");
    do {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err err = {0};
        bool failed = round_of(o, pg, a, &err) < 0;
        if (failed && !failing)
            mg_log(MG_WARN, "the object store is not looked after", MG_F_STR("error", err.text));
        failing = failed;
    } while (wait_turn(o));
    mg_pg_free(pg);
    return NULL;
}

mg_rc mg_keeper_start(struct mg_objects *o, struct mg_err *err)
{
    int e = mg_thread_start(&o->keeper, NULL, keeper_main, o);
    return e ? mg_err_errno(err, e, "cannot start the object store's thread") : MG_OK;
}

void mg_keeper_stop(struct mg_objects *o)
{
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    (void)pthread_join(o->keeper, NULL);
}
