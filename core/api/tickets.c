#include "api/tickets.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"

struct entry {
    struct mg_principal who;
    uint64_t until_ns;
};

struct mg_tickets {
    pthread_mutex_t lock;
    struct mg_map
        *map; /* SHA-256 of a ticket in hex -> struct entry; guarded by lock. A lookup tells nothing by its time. */
};

struct mg_tickets *mg_tickets_new(void)
{
    struct mg_tickets *t = mg_xcalloc(1, sizeof(*t));
    pthread_mutex_init(&t->lock, NULL);
    t->map = mg_map_new();
    return t;
}

static void free_entry(void *ctx, struct mg_sv key, void *value)
{
    (void)ctx;
    (void)key;
    free(value);
}

void mg_tickets_free(struct mg_tickets *t)
{
    if (!t)
        return;
    mg_map_each(t->map, free_entry, NULL);
    mg_map_free(t->map);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

struct survivors {
    struct mg_map *map;
    uint64_t now_ns;
};

static void keep_live(void *ctx, struct mg_sv key, void *value)
{
    struct survivors *s = ctx;
    struct entry *e = value;
    if (e->until_ns > s->now_ns)
        mg_map_put(s->map, key, e);
    else
        free(e);
}

static void drop_old(struct mg_tickets *t)
{
    struct survivors s = {.map = mg_map_new(), .now_ns = mg_now_ns()};
    mg_map_each(t->map, keep_live, &s);
    mg_map_free(t->map);
    t->map = s.map;
}

mg_rc mg_tickets_issue(struct mg_tickets *t, const struct mg_principal *who, char ret[MG_TICKET_TEXT],
                       struct mg_err *err)
{
    uint8_t random[20];
    char hex[2 * sizeof(random) + 1], digest[MG_SHA256_HEX];
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), hex);
    (void)snprintf(ret, MG_TICKET_TEXT, "tick_%s", hex);
    mg_sha256_hex(mg_sv_of(ret), digest);
    struct entry *e = mg_xmalloc(sizeof(*e));
    *e = (struct entry){.who = *who, .until_ns = mg_now_ns() + (uint64_t)MG_TICKET_S * 1000000000U};
    pthread_mutex_lock(&t->lock);
    if (mg_map_len(t->map) >= MG_TICKETS_MAX)
        drop_old(t);
    bool full = mg_map_len(t->map) >= MG_TICKETS_MAX;
    if (!full)
        mg_map_put(t->map, mg_sv_of(digest), e);
    pthread_mutex_unlock(&t->lock);
    if (!full)
        return MG_OK;
    free(e);
    mg_rc rc =
        mg_err_set(err, MG_ERATE, "%d tickets wait to be used; try again in %d seconds", MG_TICKETS_MAX, MG_TICKET_S);
    if (err)
        err->retry_after_s = MG_TICKET_S;
    return rc;
}

mg_rc mg_tickets_take(struct mg_tickets *t, struct mg_sv text, struct mg_principal *ret, struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    mg_sha256_hex(text, digest);
    pthread_mutex_lock(&t->lock);
    mg_autofree struct entry *e = mg_map_del(t->map, mg_sv_of(digest));
    pthread_mutex_unlock(&t->lock);
    if (!e || e->until_ns <= mg_now_ns())
        return mg_err_set(err, MG_EAUTH,
                          "ticket: unknown, used or older than %d seconds; get another one by POST /v1/stream/tickets",
                          MG_TICKET_S);
    *ret = e->who;
    return MG_OK;
}
