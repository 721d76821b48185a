#include "unit.h"

#include "base/arena.h"
#include "base/mem.h"

static void memory_is_zeroed_and_aligned(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();

    (void)state;
    for (size_t n = 1; n < 5000; n += 37) {
        unsigned char *p = mg_arena_alloc(a, n);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xaa, n);
    }
}

static void allocations_do_not_overlap(void **state)
{
    enum { N = 2000 };
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    uint32_t *p[N];

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        /* A large one now and then takes a chunk of its own. */
        p[i] = mg_arena_alloc(a, i % 100 == 0 ? 600 * 1024 : sizeof(uint32_t));
        *p[i] = i;
    }
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(*p[i], i);
}

static void strings_get_a_terminator(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();

    (void)state;
    assert_string_equal(mg_arena_strdup(a, mg_sv_n("abcdef", 3)), "abc");
    assert_string_equal(mg_arena_strdup(a, mg_sv_n(NULL, 0)), "");
    struct mg_sv s = mg_arena_sv(a, MG_SV("x\0y"));
    assert_int_equal(s.len, 3);
    assert_int_equal(s.ptr[3], 0);
    assert_sv_equal(mg_arena_printf(a, "%s-%d", "n", 7), "n-7");
    assert_int_equal(mg_arena_printf(a, "%2000d", 1).len, 2000);
}

static void bytes_count_what_was_asked_for(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();

    (void)state;
    assert_int_equal(mg_arena_bytes(a), 0);
    (void)mg_arena_alloc(a, 1000);
    assert_true(mg_arena_bytes(a) >= 1000);
    mg_arena_free(NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(allocations_do_not_overlap),
        cmocka_unit_test(strings_get_a_terminator),
        cmocka_unit_test(bytes_count_what_was_asked_for),
    };

    return RUN(tests);
}
