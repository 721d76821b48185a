/* Clocks and RFC 3339. Calendar arithmetic is our own: gmtime_r takes a lock of the time zone and may fail. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static const int64_t us_per_second = 1000000;
static const int64_t seconds_per_day = 86400;
/* 0000-01-01T00:00:00Z and 9999-12-31T23:59:59.999999Z: the years that have four digits. */
static const int64_t wall_us_min = INT64_C(-62167219200000000);
static const int64_t wall_us_max = INT64_C(253402300799999999);

uint64_t mg_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

int64_t mg_wall_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * us_per_second + ts.tv_nsec / 1000;
}

/* Days since 1970-01-01 of a date of the proleptic Gregorian calendar; years start in March, so leap days come last. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;

    return era * 146097 + day_of_era - 719468;
}

static void civil_from_days(int64_t days, int *ret_year, int *ret_month, int *ret_day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153;

    *ret_day = (int)(day_of_year - (153 * shifted_month + 2) / 5 + 1);
    *ret_month = (int)(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
    *ret_year = (int)(year_of_era + era * 400 + (*ret_month <= 2));
}

static void put_digits(char *out, int n, int64_t v)
{
    for (int i = n - 1; i >= 0; i--) {
        out[i] = (char)('0' + v % 10);
        v /= 10;
    }
}

void mg_time_format(int64_t wall_us, char out[MG_TIME_LEN])
{
    int year, month, day;

    if (wall_us < wall_us_min)
        wall_us = wall_us_min;
    if (wall_us > wall_us_max)
        wall_us = wall_us_max;
    int64_t us = wall_us % us_per_second, seconds = wall_us / us_per_second;
    if (us < 0) {
        us += us_per_second;
        seconds--;
    }
    int64_t second_of_day = seconds % seconds_per_day, days = seconds / seconds_per_day;
    if (second_of_day < 0) {
        second_of_day += seconds_per_day;
        days--;
    }
    civil_from_days(days, &year, &month, &day);
    memcpy(out, "0000-00-00T00:00:00.000000Z", MG_TIME_LEN);
    put_digits(out, 4, year);
    put_digits(out + 5, 2, month);
    put_digits(out + 8, 2, day);
    put_digits(out + 11, 2, second_of_day / 3600);
    put_digits(out + 14, 2, second_of_day / 60 % 60);
    put_digits(out + 17, 2, second_of_day % 60);
    put_digits(out + 20, 6, us);
}

/* Takes n digits and, when after is not 0, that separator off the front. */
static bool take_digits(struct mg_sv *s, size_t n, char after, int *ret)
{
    int v = 0;

    if (s->len < n + (after != 0))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9')
            return false;
        v = v * 10 + (s->ptr[i] - '0');
    }
    if (after && s->ptr[n] != after)
        return false;
    *s = mg_sv_from(*s, n + (after != 0));
    *ret = v;
    return true;
}

static int days_in_month(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap);
}

/* ".123" at the front, if there; digits beyond microseconds are cut. */
static bool take_fraction(struct mg_sv *s, int64_t *ret_us)
{
    int64_t unit = us_per_second / 10;
    size_t n = 1;

    *ret_us = 0;
    if (!s->len || s->ptr[0] != '.')
        return true;
    for (; n < s->len && s->ptr[n] >= '0' && s->ptr[n] <= '9'; n++) {
        *ret_us += (s->ptr[n] - '0') * unit;
        unit /= 10;
    }
    *s = mg_sv_from(*s, n);
    return n > 1;
}

/* "Z" or "+hh:mm" and nothing behind it. */
static bool take_offset(struct mg_sv s, int64_t *ret_seconds)
{
    int hours, minutes;

    *ret_seconds = 0;
    if (s.len == 1 && (s.ptr[0] == 'Z' || s.ptr[0] == 'z'))
        return true;
    if (s.len != 6 || (s.ptr[0] != '+' && s.ptr[0] != '-'))
        return false;
    bool west = s.ptr[0] == '-';
    s = mg_sv_from(s, 1);
    if (!take_digits(&s, 2, ':', &hours) || !take_digits(&s, 2, 0, &minutes) || hours > 23 || minutes > 59)
        return false;
    *ret_seconds = (west ? -1 : 1) * (hours * 3600 + minutes * 60);
    return true;
}

bool mg_time_parse(struct mg_sv s, int64_t *ret_us)
{
    int year, month, day, hour, minute, second;
    int64_t us, offset;

    if (!take_digits(&s, 4, '-', &year) || !take_digits(&s, 2, '-', &month) || !take_digits(&s, 2, 0, &day))
        return false;
    if (!s.len || (s.ptr[0] != 'T' && s.ptr[0] != 't'))
        return false;
    s = mg_sv_from(s, 1);
    if (!take_digits(&s, 2, ':', &hour) || !take_digits(&s, 2, ':', &minute) || !take_digits(&s, 2, 0, &second))
        return false;
    /* 60 is a leap second; it counts as the first second of the next minute. */
    if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) || hour > 23 || minute > 59 ||
        second > 60)
        return false;
    if (!take_fraction(&s, &us) || !take_offset(s, &offset))
        return false;
    int64_t seconds = days_from_civil(year, month, day) * seconds_per_day + hour * 3600 + minute * 60 + second - offset;
    *ret_us = seconds * us_per_second + us;
    return true;
}
