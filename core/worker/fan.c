#include "worker/fan.h"

#include <stdatomic.h>

#include "base/thread.h"

enum { WIDTH_MAX = 64 };

/* Concurrency: next is all that the threads share. */
struct fan {
    unsigned n;
    void (*fn)(void *ctx, unsigned i);
    void *ctx;
    atomic_uint next;
};

static void *work(void *arg)
{
    struct fan *f = arg;
    for (unsigned i; (i = atomic_fetch_add(&f->next, 1)) < f->n;)
        f->fn(f->ctx, i);
    return NULL;
}

void mg_fan(unsigned n, unsigned width, void (*fn)(void *ctx, unsigned i), void *ctx)
{
    struct fan f = {.n = n, .fn = fn, .ctx = ctx};
    pthread_t threads[WIDTH_MAX] = {0};
    unsigned started = 0;
    width = width < WIDTH_MAX ? width : WIDTH_MAX;
    while (started + 1 < width && started + 1 < n && mg_thread_start(&threads[started], NULL, work, &f) == 0)
        started++;
    (void)work(&f);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
