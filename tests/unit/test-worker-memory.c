/* Files of memory stores on the way between a folder and its store; and the same work on many things at once. */
#include "unit.h"

#include <stdatomic.h>

#include "worker/fan.h"
#include "worker/memory-folder.h"

static void what_was_sent_without_an_answer_is_known_by_the_next_listing(void **state)
{
    struct mg_memory_file arrived = {.base = "a", .local = "c", .remote = "b", .sent = "b"};
    struct mg_memory_file lost = {.base = "a", .local = "b", .remote = "c", .sent = "b"};
    (void)state;
    mg_memory_settle(&arrived);
    assert_string_equal(arrived.base, "b"); /* so that what was written since goes out over it */
    mg_memory_settle(&lost);
    assert_string_equal(lost.base, "a"); /* somebody else's is there */
    assert_string_equal(lost.sent, "");
}

static void a_pass_deletes_a_part_of_a_store_only(void **state)
{
    (void)state;
    assert_int_equal(mg_memory_deletes_max(1), 8);
    assert_int_equal(mg_memory_deletes_max(100), 25);
    assert_int_equal(mg_memory_deletes_max(2000), 50);
}

static void count(void *ctx, unsigned i)
{
    atomic_uint *seen = ctx;
    atomic_fetch_add(&seen[i], 1);
}

static void a_fan_does_each_thing_once(void **state)
{
    static atomic_uint seen[500];
    (void)state;
    mg_fan(0, 8, count, seen);
    mg_fan(1, 8, count, seen);
    mg_fan(500, 1000, count, seen);
    for (size_t i = 0; i < 500; i++)
        assert_int_equal(atomic_load(&seen[i]), i == 0 ? 2 : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sent_without_an_answer_is_known_by_the_next_listing),
        cmocka_unit_test(a_pass_deletes_a_part_of_a_store_only),
        cmocka_unit_test(a_fan_does_each_thing_once),
    };
    return RUN(tests);
}
