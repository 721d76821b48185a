#include "unit.h"

#include <poll.h>
#include <pthread.h>

#include "base/cancel.h"

enum { DEADLINE_MS = 10000 };

static bool readable(int fd, int wait_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, wait_ms) == 1 && (p.revents & POLLIN);
}

static void fires_once_and_stays_fired(void **state)
{
    struct mg_cancel *c = mg_cancel_new();

    (void)state;
    assert_false(mg_cancel_fired(c));
    assert_false(readable(mg_cancel_fd(c), 0));
    mg_cancel_fire(c);
    mg_cancel_fire(c);
    assert_true(mg_cancel_fired(c));
    assert_true(readable(mg_cancel_fd(c), 0));
    assert_true(readable(mg_cancel_fd(c), 0));
    mg_cancel_unref(c);
    assert_false(mg_cancel_fired(NULL));
    mg_cancel_unref(NULL);
}

static void *wait_for_it(void *arg)
{
    struct mg_cancel *c = arg;
    bool seen = readable(mg_cancel_fd(c), DEADLINE_MS) && mg_cancel_fired(c);

    mg_cancel_unref(c);
    return seen ? c : NULL;
}

static void *fire_it(void *arg)
{
    mg_cancel_fire(arg);
    mg_cancel_unref(arg);
    return arg;
}

static void wakes_every_thread_that_polls(void **state)
{
    enum { WAITERS = 4, FIRERS = 3, ROUNDS = 50 };
    pthread_t t[WAITERS + FIRERS];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct mg_cancel *c = mg_cancel_new();
        for (int i = 0; i < WAITERS + FIRERS; i++)
            assert_int_equal(pthread_create(&t[i], NULL, i < WAITERS ? wait_for_it : fire_it, mg_cancel_ref(c)), 0);
        /* The first reference goes before the threads end: the last one frees. */
        mg_cancel_unref(c);
        for (int i = 0; i < WAITERS + FIRERS; i++) {
            void *seen = NULL;
            assert_int_equal(pthread_join(t[i], &seen), 0);
            assert_non_null(seen);
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(fires_once_and_stays_fired),
        cmocka_unit_test(wakes_every_thread_that_polls),
    };

    return RUN(tests);
}
