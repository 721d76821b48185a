/* The timer wheel: no timer is early, however late the wheel itself is, and none is later than one tick. */
#include "unit.h"

#include "http/wheel.h"

struct watch {
    struct mg_timer timer;
    unsigned fired;
};

static void count(void *ctx, struct mg_timer *t)
{
    (void)ctx;
    mg_container_of(t, struct watch, timer)->fired++;
}

/* The first tick at which a timer of ms, set at set_ms when the wheel was last moved at moved_ms, has fired. */
static uint64_t fires_at(uint64_t moved_ms, uint64_t set_ms, unsigned ms)
{
    struct mg_wheel w;
    struct watch x = {0};
    mg_wheel_init(&w);
    mg_list_init(&x.timer.link);
    mg_wheel_advance(&w, (uint32_t)(moved_ms / MG_WHEEL_TICK_MS), count, NULL);
    mg_wheel_set(&w, &x.timer, set_ms, ms);
    for (uint64_t at = set_ms;; at++) {
        mg_wheel_advance(&w, (uint32_t)(at / MG_WHEEL_TICK_MS), count, NULL);
        if (x.fired)
            return at;
    }
}

static void no_timer_is_early_and_none_is_later_than_a_tick(void **state)
{
    static const unsigned MS[] = {0, 1, 199, 200, 201, 300, 999, 60000};
    static const unsigned LATE[] = {0, 1, 199, 200, 1000};
    (void)state;
    for (size_t i = 0; i < sizeof(MS) / sizeof(MS[0]); i++)
        for (size_t k = 0; k < sizeof(LATE) / sizeof(LATE[0]); k++)
            for (uint64_t set = 10000; set < 10000 + MG_WHEEL_TICK_MS; set += 33) {
                uint64_t at = fires_at(set - LATE[k], set, MS[i]);
                assert_true(at >= set + MS[i]);
                assert_true(at <= set + MS[i] + MG_WHEEL_TICK_MS);
            }
}

static void a_timer_fires_once_and_a_new_time_replaces_the_old(void **state)
{
    struct mg_wheel w;
    struct watch x = {0};
    (void)state;
    mg_wheel_init(&w);
    mg_list_init(&x.timer.link);
    mg_wheel_set(&w, &x.timer, 0, 100);
    mg_wheel_set(&w, &x.timer, 0, 1000);
    mg_wheel_advance(&w, 5, count, NULL);
    assert_int_equal(x.fired, 0);
    mg_wheel_advance(&w, 6 + MG_WHEEL_SLOTS * 3, count, NULL);
    assert_int_equal(x.fired, 1);
    mg_wheel_set(&w, &x.timer, UINT64_C(200) * w.now, 10);
    mg_wheel_cancel(&x.timer);
    mg_wheel_advance(&w, w.now + MG_WHEEL_SLOTS, count, NULL);
    assert_int_equal(x.fired, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_timer_is_early_and_none_is_later_than_a_tick),
        cmocka_unit_test(a_timer_fires_once_and_a_new_time_replaces_the_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
