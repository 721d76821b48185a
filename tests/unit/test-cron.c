/* Schedules and the clock's changes (field case 87). Zones are made by hand here; core/store/zone.c gets real ones. */
#include "base/clock.h"
#include "domain/cron.h"
#include "unit.h"

/* Berlin: +1 h, +2 h from 2026-03-29T01:00Z to 2026-10-25T01:00Z. */
static const struct mg_zone BERLIN = {
    .n = 3, .at_s = {1760000000, 1774746000, 1792890000}, .offset_s = {3600, 7200, 3600}};
/* Lord Howe: +11 h, +10:30 from 2026-04-04T15:00Z to 2026-10-03T15:30Z. */
static const struct mg_zone LORD_HOWE = {
    .n = 3, .at_s = {1760000000, 1775314800, 1791041400}, .offset_s = {39600, 37800, 39600}};
/* New York: -5 h, -4 h from 2026-03-08T07:00Z to 2026-11-01T06:00Z. */
static const struct mg_zone NEW_YORK = {
    .n = 3, .at_s = {1760000000, 1772953200, 1793512800}, .offset_s = {-18000, -14400, -18000}};
static const struct mg_zone UTC = {.n = 1, .at_s = {0}, .offset_s = {0}};

static int64_t us(const char *text)
{
    int64_t t = 0;
    assert_true(mg_time_parse(mg_sv_of(text), &t));
    return t;
}

static struct mg_cron cron(const char *text)
{
    struct mg_cron c;
    struct mg_err err = {0};
    if (mg_cron_parse(mg_sv_of(text), "expression", &c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return c;
}

/* All times between two. */
static void check(const char *expression, const struct mg_zone *z, const char *from, const char *const *want)
{
    const struct mg_cron c = cron(expression);
    int64_t at = us(from);
    for (int i = 0; want[i]; i++) {
        char got[MG_TIME_LEN];
        at = mg_cron_next(&c, z, at);
        assert_int_not_equal(at, INT64_MIN);
        mg_time_format(at, got);
        if (at != us(want[i]))
            fail_msg("%s, time %d: got %s, want %s", expression, i, got, want[i]);
    }
}

static void a_time_that_the_clock_skips_runs_once_behind_the_gap(void **state)
{
    (void)state;
    check("30 2 * * *", &BERLIN, "2026-03-27T12:00:00Z",
          (const char *[]){"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", NULL});
    check("30 2 * * *", &NEW_YORK, "2026-03-07T12:00:00Z",
          (const char *[]){"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z", NULL});
    check("15 2 * * *", &LORD_HOWE, "2026-10-02T00:00:00Z",
          (const char *[]){"2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z", NULL});
    check("*/15 2 * * *", &BERLIN, "2026-03-29T00:00:00Z",
          (const char *[]){"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T00:15:00Z", NULL});
}

static void a_time_that_comes_twice_runs_the_first_time(void **state)
{
    (void)state;
    check("30 2 * * *", &BERLIN, "2026-10-24T12:00:00Z",
          (const char *[]){"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", NULL});
    check("30 1 * * *", &NEW_YORK, "2026-10-31T12:00:00Z",
          (const char *[]){"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z", NULL});
    check("45 1 * * *", &LORD_HOWE, "2026-04-04T00:00:00Z",
          (const char *[]){"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z", NULL});
}

static void an_interval_keeps_its_length(void **state)
{
    (void)state;
    const struct {
        const struct mg_zone *zone;
        const char *from;
    } changes[] = {
        {&BERLIN, "2026-03-29T00:00:00Z"},   {&BERLIN, "2026-10-25T00:00:00Z"},    {&NEW_YORK, "2026-03-08T06:00:00Z"},
        {&NEW_YORK, "2026-11-01T05:00:00Z"}, {&LORD_HOWE, "2026-04-04T14:00:00Z"}, {&LORD_HOWE, "2026-10-03T15:00:00Z"},
    };
    const struct mg_cron c = cron("*/15 * * * *");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        int64_t at = us(changes[i].from);
        for (int n = 0; n < 16; n++) {
            int64_t next = mg_cron_next(&c, changes[i].zone, at);
            assert_int_equal(next - at, 15 * 60 * INT64_C(1000000));
            at = next;
        }
    }
}

static void days_are_the_zones_days(void **state)
{
    (void)state;
    check("0 0 1 * *", &BERLIN, "2026-10-01T00:00:00Z",
          (const char *[]){"2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z", NULL});
    check("0 23 * * 0", &NEW_YORK, "2026-06-01T00:00:00Z",
          (const char *[]){"2026-06-01T03:00:00Z", "2026-06-08T03:00:00Z", NULL});
    check("0 9 * * 1-5", &UTC, "2026-11-27T10:00:00Z",
          (const char *[]){"2026-11-30T09:00:00Z", "2026-12-01T09:00:00Z", NULL});
    check("0 0 * * 7", &UTC, "2026-11-27T10:00:00Z", (const char *[]){"2026-11-29T00:00:00Z", NULL});
    check("0 0 13 * 5", &UTC, "2026-11-01T00:00:00Z", /* Fridays, and the 13th */
          (const char *[]){"2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", NULL});
    check("59 23 31 12 *", &UTC, "2026-11-01T00:00:00Z",
          (const char *[]){"2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z", NULL});
}

static void the_29th_of_february_comes_in_leap_years(void **state)
{
    (void)state;
    check("0 0 29 2 *", &UTC, "2026-11-01T00:00:00Z",
          (const char *[]){"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", NULL});
    const struct mg_cron never = cron("0 0 30 2 *");
    assert_int_equal(mg_cron_next(&never, &UTC, us("2026-11-01T00:00:00Z")), INT64_MIN);
    const struct mg_cron every = cron("* * 31 4 *");
    assert_int_equal(mg_cron_next(&every, &UTC, us("2026-11-01T00:00:00Z")), INT64_MIN);
}

static void the_next_time_is_behind_the_given_one(void **state)
{
    (void)state;
    check("0 12 * * *", &UTC, "2026-11-01T12:00:00Z", (const char *[]){"2026-11-02T12:00:00Z", NULL});
    check("0 12 * * *", &UTC, "2026-11-01T11:59:59.999999Z", (const char *[]){"2026-11-01T12:00:00Z", NULL});
    check("* * * * *", &UTC, "2026-11-01T12:00:00Z", (const char *[]){"2026-11-01T12:01:00Z", NULL});
    check("* * * * *", &UTC, "2026-11-01T12:00:30Z", (const char *[]){"2026-11-01T12:01:00Z", NULL});
}

static void what_is_no_schedule_is_refused(void **state)
{
    static const char *const BAD[] = {
        "",
        "*",
        "* * * *",
        "* * * * * *",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "a * * * *",
        "1,, * * * *",
        "1, * * * *",
        ",1 * * * *",
        "5-1 * * * *",
        "1- * * * *",
        "*/0 * * * *",
        "*/ * * * *",
        "5/10 * * * *",
        "* * L * *",
        "* * ? * *",
        "* * * JAN *",
        "* * * * MON",
        "1 2 3 4 5#2",
        "1.5 * * * *",
        "0x1 * * * *",
        "001 * * * *",
        "* * * * *\n*",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct mg_cron c;
        struct mg_err err = {0};
        if (mg_cron_parse(mg_sv_of(BAD[i]), "schedule.expression", &c, &err) != MG_EINVAL)
            fail_msg("'%s' is taken", BAD[i]);
        assert_non_null(strstr(err.text, "schedule.expression"));
    }
    cron("\t0  9 * *  1-5 ");
    cron("0,30 0-23/2 1-31 */3 0,6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_time_that_the_clock_skips_runs_once_behind_the_gap),
        cmocka_unit_test(a_time_that_comes_twice_runs_the_first_time),
        cmocka_unit_test(an_interval_keeps_its_length),
        cmocka_unit_test(days_are_the_zones_days),
        cmocka_unit_test(the_29th_of_february_comes_in_leap_years),
        cmocka_unit_test(the_next_time_is_behind_the_given_one),
        cmocka_unit_test(what_is_no_schedule_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
