#include "common/live.h"

#include <stdio.h>

#include "common/sv.h"

void live_table_init(struct live_table *t)
{
    pthread_mutex_init(&t->lock, NULL);
    t->first = NULL;
}

void live_table_destroy(struct live_table *t)
{
    pthread_mutex_destroy(&t->lock);
}

void live_init(struct live *l, const char *id, void (*fn)(struct live *l))
{
    *l = (struct live){.free = fn, .refs = 1};
    snprintf(l->id, sizeof(l->id), "%s", id);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->quiet, NULL);
}

void live_destroy(struct live *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->quiet);
}

void live_ref(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    l->refs++;
    pthread_mutex_unlock(&l->lock);
}

void live_unref(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    bool last = --l->refs == 0;
    pthread_mutex_unlock(&l->lock);
    if (last)
        l->free(l);
}

struct live *live_find(const struct live_table *t, struct mango_sv id)
{
    for (struct live *l = t->first; l; l = l->next) {
        if (sv_is(id, l->id))
            return l;
    }
    return NULL;
}

void live_add(struct live_table *t, struct live *l)
{
    l->next = t->first;
    t->first = l;
}

struct live *live_enter(struct live_table *t, struct mango_sv id)
{
    pthread_mutex_lock(&t->lock);
    struct live *l = live_find(t, id);
    if (l) {
        pthread_mutex_lock(&l->lock);
        bool open = !l->dying;
        l->refs += open;
        l->busy += open;
        pthread_mutex_unlock(&l->lock);
        if (!open)
            l = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    return l;
}

void live_leave(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    if (--l->busy == 0)
        pthread_cond_broadcast(&l->quiet);
    pthread_mutex_unlock(&l->lock);
    live_unref(l);
}

bool live_is_dying(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    bool dying = l->dying;
    pthread_mutex_unlock(&l->lock);
    return dying;
}

struct live *live_take(struct live_table *t, struct mango_sv id)
{
    struct live *l = NULL;
    pthread_mutex_lock(&t->lock);
    for (struct live **at = &t->first; *at; at = &(*at)->next) {
        if (!sv_is(id, (*at)->id))
            continue;
        l = *at;
        *at = l->next;
        break;
    }
    pthread_mutex_unlock(&t->lock);
    return l;
}

struct live *live_take_any(struct live_table *t)
{
    pthread_mutex_lock(&t->lock);
    struct live *l = t->first;
    if (l)
        t->first = l->next;
    pthread_mutex_unlock(&t->lock);
    return l;
}

void live_close(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    l->dying = true;
    pthread_mutex_unlock(&l->lock);
}

void live_wait_quiet(struct live *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->busy > 0)
        pthread_cond_wait(&l->quiet, &l->lock);
    pthread_mutex_unlock(&l->lock);
}
