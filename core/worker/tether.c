#include "worker/tether.h"

#include "base/clock.h"
#include "base/thread.h"

void mg_tether_init(struct mg_tether *t)
{
    *t = (struct mg_tether){.leave = mg_cancel_new(), .fence = mg_cancel_new()};
    mg_list_init(&t->link);
    pthread_mutex_init(&t->lock, NULL);
    mg_cond_init(&t->changed);
}

void mg_tether_done(struct mg_tether *t)
{
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    mg_cancel_unref(t->leave);
    mg_cancel_unref(t->fence);
}

void mg_tether_end(struct mg_tether *t, enum mg_tether_end end)
{
    pthread_mutex_lock(&t->lock);
    if (end > t->end)
        t->end = end;
    if (t->end != MG_TETHER_RUNS)
        mg_cancel_fire(t->leave);
    if (t->end >= MG_TETHER_OVER)
        mg_cancel_fire(t->fence);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

enum mg_tether_end mg_tether_ended(struct mg_tether *t)
{
    pthread_mutex_lock(&t->lock);
    enum mg_tether_end end = t->end;
    pthread_mutex_unlock(&t->lock);
    return end;
}

void mg_tether_renew(struct mg_tether *t, uint64_t sent_ns, uint32_t ttl_ms)
{
    pthread_mutex_lock(&t->lock);
    t->leased = true;
    t->ttl_ms = ttl_ms;
    t->valid_until_ns = sent_ns + (uint64_t)ttl_ms * 1000000u;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

bool mg_tether_wait(struct mg_tether *t, uint64_t deadline_ns)
{
    if (!deadline_ns) {
        pthread_cond_wait(&t->changed, &t->lock);
        return true;
    }
    return mg_cond_wait_until(&t->changed, &t->lock, deadline_ns);
}

bool mg_tether_may_send(struct mg_tether *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->leased && t->end < MG_TETHER_OVER && mg_now_ns() >= t->valid_until_ns)
        (void)mg_tether_wait(t, 0); /* the lease's thread renews it or ends this */
    bool may = t->end < MG_TETHER_OVER;
    pthread_mutex_unlock(&t->lock);
    return may;
}

void mg_tether_sleep(struct mg_tether *t, uint32_t ms)
{
    uint64_t until = mg_now_ns() + (uint64_t)ms * 1000000u;
    pthread_mutex_lock(&t->lock);
    for (enum mg_tether_end end = t->end; t->end == end && mg_now_ns() < until;)
        (void)mg_tether_wait(t, until);
    pthread_mutex_unlock(&t->lock);
}

void mg_tether_wake(struct mg_tether *t)
{
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}
