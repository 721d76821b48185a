#include "unit.h"

#include <time.h>

#include "base/clock.h"

/* Heartbeats are compared as text by official clients: this format must never change. */
static void golden_time_format(void **state)
{
    static const struct {
        int64_t us;
        const char *text;
    } rows[] = {
        {0, "1970-01-01T00:00:00.000000Z"},
        {1, "1970-01-01T00:00:00.000001Z"},
        {-1, "1969-12-31T23:59:59.999999Z"},
        {INT64_C(1796023561123456), "2026-11-30T07:26:01.123456Z"},
        {INT64_C(951782400000000), "2000-02-29T00:00:00.000000Z"},
        {INT64_C(4107542399999999), "2100-02-28T23:59:59.999999Z"},
        {INT64_C(4107542400000000), "2100-03-01T00:00:00.000000Z"},
        {INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z"},
        {INT64_MAX, "9999-12-31T23:59:59.999999Z"},
        {INT64_MIN, "0000-01-01T00:00:00.000000Z"},
    };
    char text[MG_TIME_LEN];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_time_format(rows[i].us, text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(strlen(text), MG_TIME_LEN - 1);
    }
}

static void agrees_with_the_c_library_for_four_centuries(void **state)
{
    char mine[MG_TIME_LEN], theirs[MG_TIME_LEN];

    (void)state;
    for (int64_t s = INT64_C(-6857222400); s < INT64_C(6857222400); s += 86400 * 5 + 3671) {
        struct tm tm;
        time_t t = (time_t)s;
        int64_t back = 0;
        mg_time_format(s * 1000000, mine);
        (void)gmtime_r(&t, &tm);
        (void)strftime(theirs, sizeof(theirs), "%Y-%m-%dT%H:%M:%S.000000Z", &tm);
        assert_string_equal(mine, theirs);
        assert_true(mg_time_parse(mg_sv_of(mine), &back));
        assert_int_equal(back, s * 1000000);
    }
}

static void parses_every_rfc_3339_form(void **state)
{
    static const struct {
        const char *text;
        const char *same_as; /* NULL: refused */
    } rows[] = {
        {"2026-11-30T07:26:01Z", "2026-11-30T07:26:01.000000Z"},
        {"2026-11-30t07:26:01z", "2026-11-30T07:26:01.000000Z"},
        {"2026-11-30T07:26:01.5Z", "2026-11-30T07:26:01.500000Z"},
        {"2026-11-30T07:26:01.123456789Z", "2026-11-30T07:26:01.123456Z"},
        {"2026-11-30T07:26:01+05:30", "2026-11-30T01:56:01.000000Z"},
        {"2026-11-30T07:26:01.25-08:00", "2026-11-30T15:26:01.250000Z"},
        {"2026-11-30T07:26:01-00:00", "2026-11-30T07:26:01.000000Z"},
        {"2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000Z"},
        {"2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000000Z"},
        {"2023-02-29T00:00:00Z", NULL},
        {"2100-02-29T00:00:00Z", NULL},
        {"2026-13-01T00:00:00Z", NULL},
        {"2026-00-01T00:00:00Z", NULL},
        {"2026-01-32T00:00:00Z", NULL},
        {"2026-01-01T24:00:00Z", NULL},
        {"2026-01-01T00:60:00Z", NULL},
        {"2026-01-01T00:00:61Z", NULL},
        {"2026-01-01T00:00:00", NULL},
        {"2026-01-01T00:00:00.Z", NULL},
        {"2026-01-01T00:00:00+0100", NULL},
        {"2026-01-01T00:00:00+24:00", NULL},
        {"2026-01-01T00:00:00Z ", NULL},
        {"2026-01-01 00:00:00Z", NULL},
        {"2026-01-01", NULL},
        {"26-01-01T00:00:00Z", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t us = 0;
        char text[MG_TIME_LEN];
        bool ok = mg_time_parse(mg_sv_of(rows[i].text), &us);
        if (ok != (rows[i].same_as != NULL))
            fail_msg("\"%s\" was %s", rows[i].text, ok ? "accepted" : "refused");
        mg_time_format(us, text);
        if (ok)
            assert_string_equal(text, rows[i].same_as);
    }
}

static void clocks_run_forward(void **state)
{
    uint64_t a = mg_now_ns();

    (void)state;
    assert_true(mg_now_ns() >= a);
    assert_true(mg_wall_us() > INT64_C(1700000000000000));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_time_format),
        cmocka_unit_test(agrees_with_the_c_library_for_four_centuries),
        cmocka_unit_test(parses_every_rfc_3339_form),
        cmocka_unit_test(clocks_run_forward),
    };

    return RUN(tests);
}
