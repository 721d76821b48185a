/* Requests that wait for news: their handlers ran and found nothing yet. They hold their connection and nothing else, in a line for each topic, the
 * one that waits longest first.
 *
 * News that comes while a handler runs, or before its answer has reached the loop, must not be missed: the newest topics that were woken are kept in
 * a ring, and a request that is to be parked looks whether its topic is among those that came since its handler began.
 *
 * Concurrency: the loop's thread, except mg_http_unpark. */
#include "base/map.h"
#include "base/mem.h"
#include "http/server.h"

enum { RING = 256 /* topics; a handler during which more came runs again */ };

struct line {
    struct mg_list calls;
    unsigned n;
};

struct mg_parking {
    struct mg_map *lines; /* topic -> struct line, which has at least one call */
    struct mg_id ring[RING];
    uint64_t news; /* how many topics were woken; the newest is ring[(news - 1) % RING] */
};

struct mg_unpark {
    struct mg_unpark *next;
    struct mg_id topic;
    bool all;
};

struct mg_parking *mg_parking_new(void)
{
    struct mg_parking *p = mg_xcalloc(1, sizeof(*p));
    p->lines = mg_map_new();
    return p;
}

void mg_parking_free(struct mg_parking *p)
{
    if (!p)
        return;
    mg_map_free(p->lines); /* the connections are gone, and so are the lines */
    free(p);
}

static bool came_since(const struct mg_parking *p, uint64_t seen, const struct mg_id *topic)
{
    if (p->news - seen > RING)
        return true;
    for (uint64_t i = seen; i < p->news; i++)
        if (strcmp(p->ring[i % RING].s, topic->s) == 0)
            return true;
    return false;
}

void mg_park_begin(struct mg_call *call)
{
    call->news_seen = call->http->parking->news;
}

bool mg_park(struct mg_call *call)
{
    struct mg_parking *p = call->http->parking;
    struct mg_sv topic = mg_id_sv(&call->res.park.topic);
    if (came_since(p, call->news_seen, &call->res.park.topic))
        return false;
    struct line *l = mg_map_get(p->lines, topic);
    if (!l) {
        l = mg_xcalloc(1, sizeof(*l));
        mg_list_init(&l->calls);
        mg_map_put(p->lines, topic, l);
    }
    mg_list_add_tail(&l->calls, &call->parked);
    l->n++;
    call->is_parked = true;
    mg_metric_add(&call->http->metrics.parked, 1);
    return true;
}

void mg_park_leave(struct mg_call *call)
{
    struct mg_parking *p = call->http->parking;
    struct line *l = mg_map_get(p->lines, mg_id_sv(&call->res.park.topic));
    mg_list_del(&call->parked);
    call->is_parked = false;
    mg_metric_sub(&call->http->metrics.parked, 1);
    if (--l->n == 0)
        free(mg_map_del(p->lines, mg_id_sv(&call->res.park.topic)));
}

/* ---- news ---- */

void mg_http_unpark(struct mg_http *h, struct mg_sv topic, bool all)
{
    struct mg_unpark *u = mg_xcalloc(1, sizeof(*u));
    u->all = all;
    if (!mg_id_from(topic, &u->topic)) {
        free(u);
        return;
    }
    pthread_mutex_lock(&h->lock);
    *h->unparks_tail = u;
    h->unparks_tail = &u->next;
    pthread_mutex_unlock(&h->lock);
    mg_loop_signal(h);
}

static struct mg_unpark *take_news(struct mg_http *h)
{
    pthread_mutex_lock(&h->lock);
    struct mg_unpark *all = h->unparks;
    h->unparks = NULL;
    h->unparks_tail = &h->unparks;
    pthread_mutex_unlock(&h->lock);
    return all;
}

static void wake(struct mg_parking *p, const struct mg_unpark *u)
{
    p->ring[p->news++ % RING] = u->topic;
    for (struct line *l; (l = mg_map_get(p->lines, mg_id_sv(&u->topic)));) {
        struct mg_call *call = mg_container_of(l->calls.next, struct mg_call, parked);
        mg_park_leave(call);
        mg_call_again(call);
        if (!u->all)
            return;
    }
}

void mg_park_news(struct mg_http *h)
{
    for (struct mg_unpark *u = take_news(h), *next; u; u = next) {
        next = u->next;
        wake(h->parking, u);
        free(u);
    }
}

void mg_park_free_news(struct mg_http *h)
{
    for (struct mg_unpark *u = take_news(h), *next; u; u = next) {
        next = u->next;
        free(u);
    }
}
