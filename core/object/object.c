#include "object/object.h"

#include "base/hook.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "crypto/hash.h"
#include "object/keeper.h"

enum { KEY_BYTES = 20 };

static struct mg_object_key new_key(void)
{
    uint8_t random[KEY_BYTES];
    struct mg_object_key k = {""};
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), k.s);
    return k;
}

mg_rc mg_objects_open(const struct mg_objects_opts *opts, struct mg_objects **ret, struct mg_err *err)
{
    struct mg_object_backend *backend = NULL;
    mg_rc rc = opts->s3 ? mg_object_s3_open(opts->s3, &backend, err) : mg_object_folder_open(opts->dir, &backend, err);
    if (rc < 0)
        return rc;
    struct mg_objects *o = mg_xcalloc(1, sizeof(*o));
    o->backend = backend;
    o->conninfo = mg_xstrdup(opts->conninfo);
    o->lease_ms = opts->lease_ms ? opts->lease_ms : MG_OBJECT_LEASE_MS;
    o->late_ms = opts->late_ms ? opts->late_ms : MG_OBJECT_LATE_MS;
    mg_list_init(&o->uploads);
    (void)pthread_mutex_init(&o->lock, NULL);
    mg_cond_init(&o->changed);
    rc = mg_keeper_start(o, err);
    if (rc < 0) {
        backend->ops->close(backend);
        free(o->conninfo);
        free(o);
        return rc;
    }
    *ret = o;
    return MG_OK;
}

void mg_objects_close(struct mg_objects *o)
{
    if (!o)
        return;
    mg_keeper_stop(o);
    o->backend->ops->close(o->backend);
    (void)pthread_cond_destroy(&o->changed);
    (void)pthread_mutex_destroy(&o->lock);
    free(o->conninfo);
    free(o);
}

void mg_objects_wake(struct mg_objects *o)
{
    pthread_mutex_lock(&o->lock);
    o->woken = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

/* The first store that is used is the deployment's; found out once. */
static mg_rc claim(struct mg_objects *o, struct mg_pg *pg, struct mg_err *err)
{
    if (atomic_load(&o->claimed))
        return MG_OK;
    mg_rc rc = mg_object_store_claim(pg, mg_sv_of(o->backend->identity), err);
    if (rc >= 0)
        atomic_store(&o->claimed, true);
    return rc;
}

/* ---- uploads ---- */

static void enlist(struct mg_objects *o, struct mg_upload *u)
{
    pthread_mutex_lock(&o->lock);
    mg_list_add_tail(&o->uploads, &u->link);
    pthread_mutex_unlock(&o->lock);
}

mg_rc mg_upload_begin(struct mg_objects *o, struct mg_pg *pg, struct mg_sv workspace, const char *kind,
                      struct mg_upload **ret, struct mg_err *err)
{
    const struct mg_object_key key = new_key();
    mg_rc rc = claim(o, pg, err);
    if (rc >= 0)
        rc = mg_object_insert(pg, &key, workspace, kind, o->lease_ms, err);
    if (rc < 0)
        return rc;
    struct mg_upload *u = mg_xcalloc(1, sizeof(*u));
    u->objects = o;
    u->key = key;
    u->hash = mg_sha256_new();
    enlist(o, u);
    mg_hook("object.begun");
    rc = o->backend->ops->put(o->backend, u->key.s, &u->put, err);
    if (rc < 0) {
        mg_upload_end(u, pg, rc, err);
        return rc;
    }
    *ret = u;
    return MG_OK;
}

static mg_rc lost(struct mg_err *err)
{
    if (err)
        err->retry_after_s = 1;
    return mg_err_set(err, MG_EUNAVAIL,
                      "the upload lost its lease: the server could not renew it in time; send it again");
}

mg_rc mg_upload_write(struct mg_upload *u, struct mg_sv data, struct mg_err *err)
{
    if (atomic_load(&u->lost))
        return lost(err);
    mg_sha256_update(u->hash, data.ptr, data.len);
    u->size += (int64_t)data.len;
    return u->objects->backend->ops->write(u->put, data, err);
}

mg_rc mg_upload_seal(struct mg_upload *u, struct mg_err *err)
{
    mg_sha256_final_hex(mg_steal(&u->hash), u->sha256);
    if (atomic_load(&u->lost))
        return lost(err);
    mg_hook("object.before_seal");
    mg_rc rc = u->objects->backend->ops->seal(u->put, err);
    mg_hook("object.sealed");
    return rc;
}

int64_t mg_upload_size(const struct mg_upload *u)
{
    return u->size;
}

const char *mg_upload_sha256(const struct mg_upload *u)
{
    return u->sha256;
}

const struct mg_object_key *mg_upload_key(const struct mg_upload *u)
{
    return &u->key;
}

mg_rc mg_upload_complete(struct mg_upload *u, struct mg_arena *a, struct mg_txn *t, struct mg_err *err)
{
    return mg_object_complete(a, t, &u->key, u->size, u->sha256, err);
}

/* This writer has ended, so the bytes go at once and the row with them; where that fails, the keeper goes on. */
static void drop(struct mg_upload *u, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_objects *o = u->objects;
    int64_t revision = 0;
    struct mg_err err = {0};
    mg_rc rc = mg_object_give_up(pg, &u->key, &revision, &err);
    if (rc >= 0 && revision)
        rc = o->backend->ops->remove(o->backend, u->key.s, true, &err);
    if (rc >= 0 && revision)
        rc = mg_object_forget(a, pg, mg_object_key_sv(&u->key), revision, &err);
    if (rc < 0)
        mg_objects_wake(o);
}

void mg_upload_end(struct mg_upload *u, struct mg_pg *pg, mg_rc committed, const struct mg_err *err)
{
    struct mg_objects *o = u->objects;
    bool settled = !u->put || o->backend->ops->end(u->put);
    if (u->hash)
        mg_sha256_final_hex(mg_steal(&u->hash), u->sha256);
    pthread_mutex_lock(&o->lock);
    mg_list_del(&u->link);
    pthread_mutex_unlock(&o->lock);
    bool unknown = err && strcmp(err->code, "commit_unknown") == 0;
    if (committed < 0 && !unknown && settled)
        drop(u, pg);
    else if (committed < 0 && !unknown)
        (void)mg_object_abandon(pg, &u->key, NULL); /* where that fails, the lease ends by itself */
    free(u);
}

/* ---- reading ---- */

static mg_rc key_of(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, struct mg_object_key *ret,
                    struct mg_err *err)
{
    mg_rc rc = claim(o, pg, err);
    if (rc < 0)
        return rc;
    if (key.len != MG_OBJECT_KEY - 1)
        return mg_err_set(err, MG_EINTERNAL, "a stored object key is damaged");
    memcpy(ret->s, key.ptr, key.len);
    ret->s[key.len] = '\0';
    return MG_OK;
}

mg_rc mg_object_read_at(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, int64_t at, char *p,
                        size_t max, size_t *ret_n, struct mg_err *err)
{
    struct mg_object_key k;
    int64_t left = at < size ? size - at : 0;
    size_t n = (int64_t)max < left ? max : (size_t)left;
    mg_rc rc = key_of(o, pg, key, &k, err);
    if (rc >= 0 && n)
        rc = o->backend->ops->read_at(o->backend, k.s, at, p, n, err);
    *ret_n = n;
    return rc;
}

mg_rc mg_object_read(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, mg_object_sink *sink,
                     void *ctx, struct mg_cancel *cancel, struct mg_err *err)
{
    struct mg_object_key k;
    mg_rc rc = key_of(o, pg, key, &k, err);
    return rc < 0 ? rc : o->backend->ops->read(o->backend, k.s, size, sink, ctx, cancel, err);
}

static mg_rc keep_piece(void *ctx, struct mg_sv data, struct mg_err *err)
{
    return mg_buf_sv(ctx, data) < 0 ? mg_err_set(err, MG_EINTERNAL, "a stored object is larger than its row says")
                                    : MG_OK;
}

mg_rc mg_object_load(struct mg_objects *o, struct mg_pg *pg, struct mg_sv key, int64_t size, struct mg_buf *out,
                     struct mg_cancel *cancel, struct mg_err *err)
{
    return mg_object_read(o, pg, key, size, keep_piece, out, cancel, err);
}
