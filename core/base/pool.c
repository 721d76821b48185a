/* Thread pool.
 *
 * Concurrency: every member of mg_pool is guarded by lock; jobs and the start and stop functions run without it. An
 * idle thread above min ends after POOL_IDLE_S and is joined by the next one that ends, or by mg_pool_free, so that at most
 * one ended thread waits to be joined. */
#include "base/pool.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

enum {
    POOL_IDLE_S = 10,             /* an idle thread above min lives that long */
    POOL_STACK = 2 * 1024 * 1024, /* bytes; a thousand tool threads must not ask for 8 GiB */
};

struct job {
    struct job *next;
    mg_pool_fn *fn;
    void *arg;
};

struct mg_pool {
    struct mg_pool_opts opts;
    char name[12];
    pthread_mutex_t lock;
    pthread_cond_t work;     /* a job came, or the pool stops; CLOCK_MONOTONIC */
    pthread_cond_t finished; /* a thread ended */
    struct job *head, **tail;
    unsigned queued, threads, busy;
    bool stopping;
    bool has_ended; /* ended is set */
    pthread_t ended;
};

/* Waits for a job. NULL: this thread has to end. Called and returns with the lock held. */
static struct job *next_job(struct mg_pool *p)
{
    uint64_t until_ns = mg_now_ns() + POOL_IDLE_S * UINT64_C(1000000000);

    while (!p->head) {
        if (p->stopping)
            return NULL;
        if (p->threads <= p->opts.min)
            (void)pthread_cond_wait(&p->work, &p->lock);
        else if (!mg_cond_wait_until(&p->work, &p->lock, until_ns) && !p->head)
            /* Another may have ended meanwhile, so that this one has to stay. */
            if (p->threads > p->opts.min)
                return NULL;
    }
    struct job *j = p->head;
    p->head = j->next;
    if (!p->head)
        p->tail = &p->head;
    p->queued--;
    p->busy++;
    return j;
}

static void end_thread(struct mg_pool *p)
{
    pthread_t before = p->ended;
    bool join_before = p->has_ended;

    p->ended = pthread_self();
    p->has_ended = true;
    p->threads--;
    (void)pthread_cond_broadcast(&p->finished);
    (void)pthread_mutex_unlock(&p->lock);
    /* p may be freed from here on only after this thread was joined. */
    if (join_before)
        (void)pthread_join(before, NULL);
}

static void *thread_main(void *arg)
{
    struct mg_pool *p = arg;
    void *state = NULL;
    bool started = false;

    (void)pthread_setname_np(pthread_self(), p->name);
    (void)pthread_mutex_lock(&p->lock);
    for (struct job *j; (j = next_job(p));) {
        (void)pthread_mutex_unlock(&p->lock);
        if (!started && p->opts.thread_start)
            state = p->opts.thread_start(p->opts.ctx);
        started = true;
        j->fn(j->arg, state);
        free(j);
        (void)pthread_mutex_lock(&p->lock);
        p->busy--;
    }
    if (started && p->opts.thread_stop) {
        (void)pthread_mutex_unlock(&p->lock);
        p->opts.thread_stop(p->opts.ctx, state);
        (void)pthread_mutex_lock(&p->lock);
    }
    end_thread(p);
    return NULL;
}

/* With the lock held. */
static bool spawn(struct mg_pool *p)
{
    pthread_attr_t attr;
    pthread_t t;
    int rc;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, POOL_STACK);
    rc = mg_thread_start(&t, &attr, thread_main, p);
    (void)pthread_attr_destroy(&attr);
    p->threads += rc == 0;
    return rc == 0;
}

struct mg_pool *mg_pool_new(const struct mg_pool_opts *opts)
{
    struct mg_pool *p = mg_xcalloc(1, sizeof(*p));

    p->opts = *opts;
    if (p->opts.max < 1)
        p->opts.max = 1;
    if (p->opts.min > p->opts.max)
        p->opts.min = p->opts.max;
    (void)snprintf(p->name, sizeof(p->name), "%s", opts->name ? opts->name : "pool");
    p->opts.name = p->name;
    p->tail = &p->head;
    (void)pthread_mutex_init(&p->lock, NULL);
    mg_cond_init(&p->work);
    mg_cond_init(&p->finished);
    (void)pthread_mutex_lock(&p->lock);
    while (p->threads < p->opts.min && spawn(p))
        ;
    (void)pthread_mutex_unlock(&p->lock);
    return p;
}

mg_rc mg_pool_submit(struct mg_pool *p, mg_pool_fn *fn, void *arg)
{
    mg_rc rc = MG_OK;

    (void)pthread_mutex_lock(&p->lock);
    if (p->stopping || p->busy + p->queued >= (uint64_t)p->opts.max + p->opts.queue_max)
        rc = MG_EUNAVAIL;
    else if (p->threads < p->opts.max && p->queued >= p->threads - p->busy && !spawn(p) && !p->threads)
        rc = MG_EUNAVAIL; /* the system gives no thread at all; with some, the job waits for one of them */
    if (rc == MG_OK) {
        struct job *j = mg_xmalloc(sizeof(*j));
        *j = (struct job){.fn = fn, .arg = arg};
        *p->tail = j;
        p->tail = &j->next;
        p->queued++;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (rc == MG_OK)
        (void)pthread_cond_signal(&p->work); /* without the lock, which the woken thread wants first */
    return rc;
}

unsigned mg_pool_busy(struct mg_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    unsigned busy = p->busy;
    (void)pthread_mutex_unlock(&p->lock);
    return busy;
}

void mg_pool_stop(struct mg_pool *p)
{
    (void)pthread_mutex_lock(&p->lock);
    p->stopping = true;
    (void)pthread_cond_broadcast(&p->work);
    while (p->threads)
        (void)pthread_cond_wait(&p->finished, &p->lock);
    bool join_last = p->has_ended;
    p->has_ended = false;
    (void)pthread_mutex_unlock(&p->lock);
    if (join_last)
        (void)pthread_join(p->ended, NULL);
}

void mg_pool_free(struct mg_pool *p)
{
    if (!p)
        return;
    mg_pool_stop(p);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_cond_destroy(&p->finished);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}
