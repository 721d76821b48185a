/* Hash map: open addressing with linear probing; a deletion moves the followers back, so there are no tombstones. */
#include "base/map.h"

#include "base/mem.h"
#include "base/siphash.h"

enum { MAP_FIRST_SLOTS = 16 };

struct slot {
    uint64_t hash;
    char *key; /* NULL: free; a NUL stands behind it */
    size_t key_len;
    void *value;
};

struct mg_map {
    struct slot *slots;
    size_t n_slots; /* a power of two; 0 before the first put */
    size_t n;
};

struct mg_map *mg_map_new(void)
{
    return mg_xcalloc(1, sizeof(struct mg_map));
}

void mg_map_free(struct mg_map *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_slots; i++)
        free(m->slots[i].key);
    free(m->slots);
    free(m);
}

/* The slot of key, or the free one where it belongs. */
static size_t probe(const struct mg_map *m, uint64_t hash, struct mg_sv key)
{
    size_t mask = m->n_slots - 1, i = hash & mask;

    while (m->slots[i].key &&
           (m->slots[i].hash != hash || !mg_sv_eq(mg_sv_n(m->slots[i].key, m->slots[i].key_len), key)))
        i = (i + 1) & mask;

    return i;
}

void *mg_map_get(const struct mg_map *m, struct mg_sv key)
{
    return m->n ? m->slots[probe(m, mg_siphash(key), key)].value : NULL;
}

static void grow(struct mg_map *m)
{
    struct slot *old = m->slots;
    size_t n_old = m->n_slots;

    m->n_slots = n_old ? n_old * 2 : MAP_FIRST_SLOTS;
    m->slots = mg_xcalloc(m->n_slots, sizeof(*m->slots));
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key)
            m->slots[probe(m, old[i].hash, mg_sv_n(old[i].key, old[i].key_len))] = old[i];
    free(old);
}

void *mg_map_put(struct mg_map *m, struct mg_sv key, void *value)
{
    uint64_t hash = mg_siphash(key);

    if (m->n + 1 > m->n_slots / 4 * 3)
        grow(m);
    struct slot *s = &m->slots[probe(m, hash, key)];
    void *before = s->value;
    if (!s->key) {
        s->hash = hash;
        s->key = mg_xstrndup(key.ptr, key.len);
        s->key_len = key.len;
        m->n++;
    }
    s->value = value;
    return before;
}

void *mg_map_del(struct mg_map *m, struct mg_sv key)
{
    if (!m->n)
        return NULL;
    size_t mask = m->n_slots - 1, hole = probe(m, mg_siphash(key), key);
    void *before = m->slots[hole].value;

    if (!m->slots[hole].key)
        return NULL;
    free(m->slots[hole].key);
    m->n--;
    for (size_t i = (hole + 1) & mask; m->slots[i].key; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        /* An entry may move to the hole unless its home lies between the two. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct slot){0};
    return before;
}

size_t mg_map_len(const struct mg_map *m)
{
    return m->n;
}

void mg_map_each(const struct mg_map *m, void (*fn)(void *ctx, struct mg_sv key, void *value), void *ctx)
{
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].key)
            fn(ctx, mg_sv_n(m->slots[i].key, m->slots[i].key_len), m->slots[i].value);
}
