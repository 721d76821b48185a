/* Keys that were looked up in the last second. Concurrency: one mutex, never held across a query. */
#include <pthread.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "store/api-key.h"

enum { CACHE_MAX = 1024 /* keys; then the cache starts anew */ };

struct entry {
    struct mg_principal who;
    uint64_t until_ns;
};

struct mg_key_cache {
    pthread_mutex_t lock;
    struct mg_map *map;  /* SHA-256 in hex -> struct entry */
    uint64_t generation; /* grows with each forget: a lookup that began before one is not kept */
};

struct mg_key_cache *mg_key_cache_new(void)
{
    struct mg_key_cache *c = mg_xcalloc(1, sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    c->map = mg_map_new();
    return c;
}

static void free_entry(void *ctx, struct mg_sv key, void *value)
{
    (void)ctx;
    (void)key;
    free(value);
}

static void clear(struct mg_key_cache *c)
{
    mg_map_each(c->map, free_entry, NULL);
    mg_map_free(c->map);
    c->map = mg_map_new();
}

void mg_key_cache_free(struct mg_key_cache *c)
{
    if (!c)
        return;
    clear(c);
    mg_map_free(c->map);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool find(struct mg_key_cache *c, struct mg_sv digest, struct mg_principal *ret, uint64_t *ret_generation)
{
    pthread_mutex_lock(&c->lock);
    const struct entry *e = mg_map_get(c->map, digest);
    bool hit = e && mg_now_ns() < e->until_ns;
    if (hit)
        *ret = e->who;
    *ret_generation = c->generation;
    pthread_mutex_unlock(&c->lock);
    return hit;
}

static void keep(struct mg_key_cache *c, struct mg_sv digest, const struct mg_principal *who, uint64_t until_ns,
                 const uint64_t *generation)
{
    struct entry *e = mg_xmalloc(sizeof(*e));
    *e = (struct entry){.who = *who, .until_ns = until_ns};
    pthread_mutex_lock(&c->lock);
    if (!generation || *generation == c->generation) {
        if (mg_map_len(c->map) >= CACHE_MAX)
            clear(c);
        e = mg_map_put(c->map, digest, e);
    }
    pthread_mutex_unlock(&c->lock);
    free(e);
}

mg_rc mg_key_cache_lookup(struct mg_key_cache *c, struct mg_pg *pg, struct mg_sv secret, struct mg_principal *ret,
                          struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    uint64_t generation = 0;
    if (secret.len == 0 || secret.len > MG_API_KEY_MAX)
        return mg_err_set(err, MG_EAUTH, "invalid API key");
    mg_sha256_hex(secret, digest);
    if (find(c, mg_sv_of(digest), ret, &generation))
        return MG_OK;
    uint64_t asked_ns = mg_now_ns();
    mg_rc rc = mg_api_key_lookup(pg, secret, ret, err);
    if (rc == 0)
        keep(c, mg_sv_of(digest), ret, asked_ns + (uint64_t)MG_API_KEY_CACHE_MS * 1000000, &generation);
    return rc;
}

void mg_key_cache_put(struct mg_key_cache *c, struct mg_sv secret, const struct mg_principal *who)
{
    char digest[MG_SHA256_HEX];
    mg_sha256_hex(secret, digest);
    keep(c, mg_sv_of(digest), who, UINT64_MAX, NULL);
}

bool mg_key_cache_get(struct mg_key_cache *c, struct mg_sv secret, struct mg_principal *ret)
{
    char digest[MG_SHA256_HEX];
    uint64_t generation;
    mg_sha256_hex(secret, digest);
    return find(c, mg_sv_of(digest), ret, &generation);
}

static void expire_entry(void *ctx, struct mg_sv key, void *value)
{
    (void)key;
    const struct mg_sv *id = ctx;
    struct entry *e = value;
    if (mg_sv_eq(mg_id_sv(&e->who.key), *id))
        e->until_ns = 0;
}

void mg_key_cache_forget(struct mg_key_cache *c, struct mg_sv key_id)
{
    pthread_mutex_lock(&c->lock);
    c->generation++;
    mg_map_each(c->map, expire_entry, &key_id);
    pthread_mutex_unlock(&c->lock);
}
