#include "unit.h"

#include "base/buf.h"

static void appends_until_the_limit_and_not_past_it(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(5);

    (void)state;
    assert_int_equal(mg_buf_str(&b, "abc"), MG_OK);
    assert_int_equal(mg_buf_str(&b, "de"), MG_OK);
    assert_sv_equal(mg_buf_view(&b), "abcde");
    assert_string_equal(b.ptr, "abcde");
    assert_int_equal(mg_buf_char(&b, 'f'), MG_ETOOBIG);
    assert_null(b.ptr);
}

static void a_failure_sticks_until_reset(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(3);

    (void)state;
    assert_int_equal(mg_buf_str(&b, "abcd"), MG_ETOOBIG);
    assert_int_equal(mg_buf_str(&b, "a"), MG_ETOOBIG);
    assert_int_equal(mg_buf_printf(&b, "%d", 1), MG_ETOOBIG);
    assert_false(mg_buf_ok(&b));
    assert_sv_equal(mg_buf_view(&b), "");
    mg_buf_reset(&b);
    assert_int_equal(mg_buf_str(&b, "abc"), MG_OK);
    assert_true(mg_buf_ok(&b));
}

static void huge_lengths_do_not_wrap_around(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);

    (void)state;
    assert_int_equal(mg_buf_str(&b, "abc"), MG_OK);
    assert_int_equal(mg_buf_reserve(&b, SIZE_MAX), MG_ETOOBIG);
    mg_buf_reset(&b);
    assert_int_equal(mg_buf_str(&b, "abc"), MG_OK);
    assert_int_equal(mg_buf_reserve(&b, SIZE_MAX - 2), MG_ETOOBIG);
}

static void printf_and_growth_keep_all_bytes(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1 << 20);

    (void)state;
    for (int i = 0; i < 10000; i++)
        assert_int_equal(mg_buf_printf(&b, "%05d,", i), MG_OK);
    assert_int_equal(b.len, 60000);
    for (int i = 0; i < 10000; i++) {
        char want[16];
        (void)snprintf(want, sizeof(want), "%05d,", i);
        assert_memory_equal(b.ptr + i * 6, want, 6);
    }
}

static void consume_drops_from_the_front(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);

    (void)state;
    mg_buf_consume(&b, 0);
    mg_buf_consume(&b, 3);
    assert_int_equal(mg_buf_str(&b, "hello"), MG_OK);
    mg_buf_consume(&b, 2);
    assert_string_equal(b.ptr, "llo");
    mg_buf_consume(&b, 99);
    assert_sv_equal(mg_buf_view(&b), "");
}

static void reserve_and_added_write_in_place(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);

    (void)state;
    assert_int_equal(mg_buf_reserve(&b, 3), MG_OK);
    memcpy(b.ptr + b.len, "xyz", 3);
    mg_buf_added(&b, 3);
    assert_string_equal(b.ptr, "xyz");
}

static void steal_hands_the_bytes_over(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);
    size_t len = 9;

    (void)state;
    mg_autofree char *none = mg_buf_steal(&b, &len);
    assert_string_equal(none, "");
    assert_int_equal(len, 0);
    assert_int_equal(mg_buf_append(&b, "a\0b", 3), MG_OK);
    mg_autofree char *some = mg_buf_steal(&b, &len);
    assert_memory_equal(some, "a\0b", 4);
    assert_int_equal(len, 3);
    assert_int_equal(b.len, 0);
}

static void percent_leaves_the_unreserved_alone(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64);
    (void)state;
    assert_int_equal(mg_buf_percent(&b, mg_sv_n("aZ09-._~ /%+\0\xc3\xa4", 15)), MG_OK);
    assert_sv_equal(mg_buf_view(&b), "aZ09-._~%20%2F%25%2B%00%C3%A4");
    mg_buf_reset(&b);
    b.max = 4;
    assert_int_equal(mg_buf_percent(&b, MG_SV("  ")), MG_ETOOBIG);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_until_the_limit_and_not_past_it),
        cmocka_unit_test(a_failure_sticks_until_reset),
        cmocka_unit_test(huge_lengths_do_not_wrap_around),
        cmocka_unit_test(printf_and_growth_keep_all_bytes),
        cmocka_unit_test(consume_drops_from_the_front),
        cmocka_unit_test(reserve_and_added_write_in_place),
        cmocka_unit_test(steal_hands_the_bytes_over),
        cmocka_unit_test(percent_leaves_the_unreserved_alone),
    };

    return RUN(tests);
}
