#include "unit.h"

static void split_walks_through_all_parts(void **state)
{
    struct mg_sv s = MG_SV("a,,b");

    (void)state;
    assert_sv_equal(mg_sv_split(&s, ','), "a");
    assert_sv_equal(mg_sv_split(&s, ','), "");
    assert_sv_equal(mg_sv_split(&s, ','), "b");
    assert_int_equal(s.len, 0);
    assert_sv_equal(mg_sv_split(&s, ','), "");
}

static void trim_takes_white_space_at_both_ends_only(void **state)
{
    (void)state;
    assert_sv_equal(mg_sv_trim(MG_SV(" \t a b\r\n")), "a b");
    assert_sv_equal(mg_sv_trim(MG_SV("   ")), "");
    assert_sv_equal(mg_sv_trim(MG_SV("")), "");
}

static void find_gives_the_length_when_absent(void **state)
{
    (void)state;
    assert_int_equal(mg_sv_find(MG_SV("abc"), 'c'), 2);
    assert_int_equal(mg_sv_find(MG_SV("abc"), 'x'), 3);
    assert_int_equal(mg_sv_find(mg_sv_n(NULL, 0), 'x'), 0);
}

static void case_is_ignored_for_ascii_only(void **state)
{
    (void)state;
    assert_true(mg_sv_eq_nocase(MG_SV("Content-TYPE"), MG_SV("content-type")));
    assert_false(mg_sv_eq_nocase(MG_SV("@"), MG_SV("`")));
    assert_false(mg_sv_eq_nocase(MG_SV("\xc3\x84"), MG_SV("\xc3\xa4")));
    assert_false(mg_sv_eq_nocase(MG_SV("ab"), MG_SV("abc")));
}

static void tokens_are_what_names_of_headers_are_made_of(void **state)
{
    static const char *const others[] = {"", "a b", "a:", "a\t", "(a)", "\"a\"", "a,b", "a/b", "\xc3\xa4", "a\x7f"};

    (void)state;
    assert_true(mg_sv_is_token(MG_SV("X-Header_09azAZ!#$%&'*+-.^_`|~")));
    assert_false(mg_sv_is_token(MG_SV("a\0b")));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(mg_sv_is_token(mg_sv_of(others[i])));
}

static void integers_are_exact_or_refused(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1.0", false, 0},
        {"0x10", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t v = 0;
        bool ok = mg_sv_to_i64(mg_sv_of(rows[i].text), &v);
        if (ok != rows[i].ok || (ok && v != rows[i].value))
            fail_msg("\"%s\": %d, %lld", rows[i].text, ok, (long long)v);
    }
}

static void prefixes_and_suffixes(void **state)
{
    (void)state;
    assert_true(mg_sv_starts(MG_SV("sesn_1"), "sesn_"));
    assert_false(mg_sv_starts(MG_SV("ses"), "sesn_"));
    assert_true(mg_sv_ends(MG_SV("local.so"), ".so"));
    assert_false(mg_sv_ends(MG_SV("so"), ".so"));
    assert_sv_equal(mg_sv_from(MG_SV("abc"), 1), "bc");
    assert_sv_equal(mg_sv_from(MG_SV("abc"), 9), "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_walks_through_all_parts),
        cmocka_unit_test(trim_takes_white_space_at_both_ends_only),
        cmocka_unit_test(find_gives_the_length_when_absent),
        cmocka_unit_test(case_is_ignored_for_ascii_only),
        cmocka_unit_test(tokens_are_what_names_of_headers_are_made_of),
        cmocka_unit_test(integers_are_exact_or_refused),
        cmocka_unit_test(prefixes_and_suffixes),
    };

    return RUN(tests);
}
