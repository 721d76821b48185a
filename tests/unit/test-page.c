#include "domain/page.h"

#include "domain.h"

static void a_cursor_is_read_back_under_its_own_scope(void **state)
{
    static const struct mg_cursor CURSORS[] = {
        {.pos = 0, .id = {"", 0}},
        {.pos = 1764486361123456, .id = {"sesn_01ABC", 10}},
        {.pos = -5, .id = {"x", 1}, .back = true},
        {.pos = INT64_MAX, .id = {"a:b:c", 5}},
    };
    for (size_t i = 0; i < sizeof(CURSORS) / sizeof(CURSORS[0]); i++) {
        struct mg_cursor c;
        struct mg_err err = {0};
        struct mg_sv token = mg_cursor_format(*state, MG_SV("list|filters"), &CURSORS[i]);
        assert_int_equal(mg_cursor_parse(*state, MG_SV("list|filters"), token, &c, &err), 0);
        assert_true(c.given);
        assert_int_equal(c.back, CURSORS[i].back);
        assert_true(c.pos == CURSORS[i].pos);
        assert_true(mg_sv_eq(c.id, CURSORS[i].id));
    }
}

static void no_cursor_is_the_start(void **state)
{
    struct mg_cursor c;
    assert_int_equal(mg_cursor_parse(*state, MG_SV("s"), mg_sv_n(NULL, 0), &c, NULL), 0);
    assert_false(c.given);
    assert_int_equal(mg_cursor_parse(*state, MG_SV("s"), MG_SV(""), &c, NULL), 0);
    assert_false(c.given);
}

static void case_12_a_cut_or_foreign_cursor_is_refused_and_named(void **state)
{
    const struct mg_cursor c = {.pos = 12345, .id = MG_SV("sesn_01ABC")};
    struct mg_sv token = mg_cursor_format(*state, MG_SV("list|a"), &c);
    struct mg_cursor got;
    struct mg_err err = {0};
    for (size_t n = 1; n < token.len; n++)
        assert_int_equal(mg_cursor_parse(*state, MG_SV("list|a"), mg_sv_n(token.ptr, n), &got, &err), MG_EINVAL);
    assert_contains(err.text, "page: ");
    assert_int_equal(mg_cursor_parse(*state, MG_SV("list|b"), token, &got, &err), MG_EINVAL);
    assert_int_equal(mg_cursor_parse(*state, MG_SV("list|a"), MG_SV("sevt_01KBAAAAAAAAAAAAAAAAAAAAAA"), &got, &err),
                     MG_EINVAL);
    assert_int_equal(mg_cursor_parse(*state, MG_SV("list|a"), MG_SV("%%%"), &got, &err), MG_EINVAL);
    for (size_t i = 0; i < token.len; i++) {
        char *bad = mg_arena_strdup(*state, token);
        bad[i] = bad[i] == 'A' ? 'B' : 'A';
        /* The last character may hold bits that no byte has: then the cursor is the same. */
        if (mg_cursor_parse(*state, MG_SV("list|a"), mg_sv_of(bad), &got, &err) == 0)
            assert_int_equal(i, token.len - 1);
    }
}

static void a_limit_is_checked_not_clamped(void **state)
{
    (void)state;
    int n = 0;
    struct mg_err err = {0};
    assert_int_equal(mg_limit_parse(mg_sv_n(NULL, 0), 20, 100, &n, &err), 0);
    assert_int_equal(n, 20);
    assert_int_equal(mg_limit_parse(MG_SV("100"), 20, 100, &n, &err), 0);
    assert_int_equal(n, 100);
    static const char *const BAD[] = {"0", "-1", "101", "1.5", "", " 1", "1e2", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++)
        assert_int_equal(mg_limit_parse(mg_sv_of(BAD[i]), 20, 100, &n, &err), MG_EINVAL);
    assert_contains(err.text, "limit: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cursor_is_read_back_under_its_own_scope),
        cmocka_unit_test(no_cursor_is_the_start),
        cmocka_unit_test(case_12_a_cut_or_foreign_cursor_is_refused_and_named),
        cmocka_unit_test(a_limit_is_checked_not_clamped),
    };
    return RUN_WITH_ARENA(tests);
}
