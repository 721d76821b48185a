/* Which pollers have been seen, and when their row was written last; and which queues were found empty, and when. */
#include <pthread.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "service/work-internal.h"
#include "store/api-key.h"

enum { POLLERS_MAX = 65536 /* pollers that are remembered; then the memory starts anew */ };

/* A queue that was found empty stays so until there is news; the time bounds what a lost notification costs. */
struct queue {
    uint64_t generation; /* grows with each piece of news */
    uint64_t empty_until_ns;
    int64_t from_us;    /* mg_work_oldest; 0: not known */
    uint64_t looked_ns; /* when that was asked for */
};

struct mg_pollers {
    pthread_mutex_t lock;
    struct mg_map *queues;       /* environment -> struct queue; guarded by lock */
    struct mg_key_cache *tokens; /* of items that were handed out or asked after here */
    struct mg_map
        *map; /* environment, a space, the worker's id -> uint64_t, mg_now_ns() of the write; guarded by lock */
};

struct mg_pollers *mg_pollers_new(void)
{
    struct mg_pollers *p = mg_xcalloc(1, sizeof(*p));
    pthread_mutex_init(&p->lock, NULL);
    p->map = mg_map_new();
    p->queues = mg_map_new();
    p->tokens = mg_key_cache_new();
    return p;
}

struct mg_key_cache *mg_pollers_tokens(struct mg_pollers *p)
{
    return p->tokens;
}

static void free_time(void *ctx, struct mg_sv key, void *value)
{
    (void)ctx;
    (void)key;
    free(value);
}

void mg_pollers_free(struct mg_pollers *p)
{
    if (!p)
        return;
    mg_map_each(p->map, free_time, NULL);
    mg_map_free(p->map);
    mg_map_each(p->queues, free_time, NULL);
    mg_map_free(p->queues);
    mg_key_cache_free(p->tokens);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* Under the lock. */
static uint64_t *slot(struct mg_pollers *p, struct mg_sv key)
{
    uint64_t *at = mg_map_get(p->map, key);
    if (at)
        return at;
    if (mg_map_len(p->map) >= POLLERS_MAX) {
        mg_map_each(p->map, free_time, NULL);
        mg_map_free(p->map);
        p->map = mg_map_new();
    }
    at = mg_xcalloc(1, sizeof(*at));
    mg_map_put(p->map, key, at);
    return at;
}

bool mg_pollers_note(struct mg_pollers *p, struct mg_sv environment, struct mg_sv worker_id)
{
    uint64_t now = mg_now_ns();
    mg_auto(buf) struct mg_buf key = MG_BUF_INIT(MG_ID_MAX + MG_WORK_WORKER_ID_MAX + 1);
    (void)mg_buf_printf(&key, "%.*s %.*s", MG_SV_ARG(environment), MG_SV_ARG(worker_id));
    pthread_mutex_lock(&p->lock);
    uint64_t *at = slot(p, mg_buf_view(&key));
    bool due = *at == 0 || now - *at >= (uint64_t)MG_WORK_POLLER_NOTE_S * 1000000000;
    if (due)
        *at = now;
    pthread_mutex_unlock(&p->lock);
    return due;
}

/* Under the lock. Of an environment that nobody has polled yet nothing is known. */
static struct queue *queue_of(struct mg_pollers *p, struct mg_sv environment)
{
    struct queue *q = mg_map_get(p->queues, environment);
    if (q || mg_map_len(p->queues) >= POLLERS_MAX)
        return q;
    q = mg_xcalloc(1, sizeof(*q));
    mg_map_put(p->queues, environment, q);
    return q;
}

uint64_t mg_pollers_generation(struct mg_pollers *p, struct mg_sv environment)
{
    pthread_mutex_lock(&p->lock);
    const struct queue *q = queue_of(p, environment);
    uint64_t generation = q ? q->generation : 0;
    pthread_mutex_unlock(&p->lock);
    return generation;
}

void mg_pollers_found_empty(struct mg_pollers *p, struct mg_sv environment, uint64_t generation)
{
    pthread_mutex_lock(&p->lock);
    struct queue *q = queue_of(p, environment);
    if (q && q->generation == generation)
        q->empty_until_ns = mg_now_ns() + (uint64_t)MG_WORK_EMPTY_MS * 1000000;
    pthread_mutex_unlock(&p->lock);
}

bool mg_pollers_is_empty(struct mg_pollers *p, struct mg_sv environment)
{
    pthread_mutex_lock(&p->lock);
    const struct queue *q = mg_map_get(p->queues, environment);
    bool empty = q && q->empty_until_ns > mg_now_ns();
    pthread_mutex_unlock(&p->lock);
    return empty;
}

void mg_pollers_news(struct mg_pollers *p, struct mg_sv environment)
{
    pthread_mutex_lock(&p->lock);
    struct queue *q = mg_map_get(p->queues, environment);
    if (q) {
        q->generation++;
        q->empty_until_ns = 0;
    }
    pthread_mutex_unlock(&p->lock);
}

int64_t mg_pollers_from(struct mg_pollers *p, struct mg_sv environment)
{
    pthread_mutex_lock(&p->lock);
    const struct queue *q = mg_map_get(p->queues, environment);
    int64_t from_us = q ? q->from_us : 0;
    pthread_mutex_unlock(&p->lock);
    return from_us;
}

bool mg_works_look_due(struct mg_pollers *p, struct mg_sv environment)
{
    uint64_t now = mg_now_ns();
    pthread_mutex_lock(&p->lock);
    struct queue *q = queue_of(p, environment);
    bool due = q && now - q->looked_ns >= (uint64_t)MG_WORK_LOOK_MS * 1000000;
    if (due)
        q->looked_ns = now;
    pthread_mutex_unlock(&p->lock);
    return due;
}

void mg_works_look(struct mg_pollers *p, struct mg_pg *pg, struct mg_sv environment)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err;
    int64_t us = 0;
    if (mg_work_oldest(a, pg, environment, MG_WORK_LATE_MS, &us, &err) < 0)
        return; /* the bound that there is stays right: it is only further back */
    pthread_mutex_lock(&p->lock);
    struct queue *q = mg_map_get(p->queues, environment);
    if (q)
        q->from_us = us;
    pthread_mutex_unlock(&p->lock);
}
