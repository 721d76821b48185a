#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/pool.h"

enum { DEADLINE_S = 20 };

/* A gate that jobs wait at, and a count that the test waits for. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int waiting, done;
};

static void gate_init(struct gate *g)
{
    memset(g, 0, sizeof(*g));
    (void)pthread_mutex_init(&g->lock, NULL);
    (void)pthread_cond_init(&g->changed, NULL);
}

static void gate_done(struct gate *g)
{
    (void)pthread_cond_destroy(&g->changed);
    (void)pthread_mutex_destroy(&g->lock);
}

static void pass_gate(void *arg, void *thread)
{
    struct gate *g = arg;

    (void)thread;
    (void)pthread_mutex_lock(&g->lock);
    g->waiting++;
    (void)pthread_cond_broadcast(&g->changed);
    while (!g->open)
        (void)pthread_cond_wait(&g->changed, &g->lock);
    g->done++;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
}

/* Waits until *what reaches n; false at the deadline. */
static bool gate_wait(struct gate *g, const int *what, int n)
{
    struct timespec until;
    int rc = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEADLINE_S;
    (void)pthread_mutex_lock(&g->lock);
    while (*what < n && rc == 0)
        rc = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    bool reached = *what >= n;
    (void)pthread_mutex_unlock(&g->lock);
    return reached;
}

static void gate_open(struct gate *g)
{
    (void)pthread_mutex_lock(&g->lock);
    g->open = true;
    (void)pthread_cond_broadcast(&g->changed);
    (void)pthread_mutex_unlock(&g->lock);
}

static void grows_to_max_and_refuses_past_the_queue(void **state)
{
    struct gate g;
    struct mg_pool *p = mg_pool_new(&(struct mg_pool_opts){.name = "t", .min = 1, .max = 3, .queue_max = 2});

    (void)state;
    gate_init(&g);
    for (int i = 0; i < 5; i++)
        assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_OK);
    assert_true(gate_wait(&g, &g.waiting, 3));
    assert_int_equal(mg_pool_busy(p), 3);
    assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_EUNAVAIL);
    gate_open(&g);
    assert_true(gate_wait(&g, &g.done, 5));
    mg_pool_free(p);
    assert_int_equal(g.done, 5);
    gate_done(&g);
}

static void without_a_queue_it_takes_one_job_per_thread(void **state)
{
    struct gate g;
    struct mg_pool *p = mg_pool_new(&(struct mg_pool_opts){.name = "t", .min = 0, .max = 2, .queue_max = 0});

    (void)state;
    gate_init(&g);
    assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_OK);
    assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_OK);
    assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_EUNAVAIL);
    gate_open(&g);
    mg_pool_free(p);
    gate_done(&g);
}

static void free_runs_what_is_queued(void **state)
{
    struct gate g;
    struct mg_pool *p = mg_pool_new(&(struct mg_pool_opts){.name = "t", .min = 2, .max = 2, .queue_max = 1000});

    (void)state;
    gate_init(&g);
    g.open = true;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(mg_pool_submit(p, pass_gate, &g), MG_OK);
    mg_pool_free(p);
    assert_int_equal(g.done, 1000);
    gate_done(&g);
    mg_pool_free(NULL);
}

struct states {
    atomic_int made, freed, jobs;
};

static void *make_state(void *ctx)
{
    struct states *s = ctx;

    atomic_fetch_add(&s->made, 1);
    return &s->made;
}

static void free_state(void *ctx, void *thread)
{
    struct states *s = ctx;

    assert_ptr_equal(thread, &s->made);
    atomic_fetch_add(&s->freed, 1);
}

static void use_state(void *arg, void *thread)
{
    struct states *s = arg;

    assert_ptr_equal(thread, &s->made);
    atomic_fetch_add(&s->jobs, 1);
}

static void each_thread_has_its_state_while_it_works(void **state)
{
    struct states s;
    struct mg_pool_opts o = {.name = "a-long-name-that-is-cut",
                             .min = 0,
                             .max = 4,
                             .queue_max = 500,
                             .thread_start = make_state,
                             .thread_stop = free_state,
                             .ctx = &s};

    (void)state;
    atomic_init(&s.made, 0);
    atomic_init(&s.freed, 0);
    atomic_init(&s.jobs, 0);
    struct mg_pool *p = mg_pool_new(&o);
    assert_int_equal(atomic_load(&s.made), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(mg_pool_submit(p, use_state, &s), MG_OK);
    mg_pool_free(p);
    assert_int_equal(atomic_load(&s.jobs), 500);
    assert_in_range(atomic_load(&s.made), 1, 4);
    assert_int_equal(atomic_load(&s.made), atomic_load(&s.freed));
}

static void many_threads_may_submit_at_once_submit(void *arg, void *thread);

struct chain {
    struct mg_pool *pool;
    atomic_int accepted, ran, refused;
};

/* A job that submits two more until enough ran. */
static void many_threads_may_submit_at_once_submit(void *arg, void *thread)
{
    struct chain *c = arg;

    (void)thread;
    atomic_fetch_add(&c->ran, 1);
    for (int i = 0; i < 2 && atomic_load(&c->accepted) < 5000; i++) {
        atomic_fetch_add(&c->accepted, 1);
        if (mg_pool_submit(c->pool, many_threads_may_submit_at_once_submit, c) < 0) {
            atomic_fetch_sub(&c->accepted, 1);
            atomic_fetch_add(&c->refused, 1);
        }
    }
}

static void many_threads_may_submit_at_once(void **state)
{
    struct chain c;

    (void)state;
    atomic_init(&c.accepted, 1);
    atomic_init(&c.ran, 0);
    atomic_init(&c.refused, 0);
    c.pool = mg_pool_new(&(struct mg_pool_opts){.name = "t", .min = 0, .max = 8, .queue_max = 100});
    assert_int_equal(mg_pool_submit(c.pool, many_threads_may_submit_at_once_submit, &c), MG_OK);
    mg_pool_free(c.pool);
    assert_int_equal(atomic_load(&c.ran), atomic_load(&c.accepted));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_max_and_refuses_past_the_queue),
        cmocka_unit_test(without_a_queue_it_takes_one_job_per_thread),
        cmocka_unit_test(free_runs_what_is_queued),
        cmocka_unit_test(each_thread_has_its_state_while_it_works),
        cmocka_unit_test(many_threads_may_submit_at_once),
    };

    return RUN(tests);
}
