#include "common/remote/when.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static bool in_text(struct mango_sv s, char out[64])
{
    if (s.len == 0 || s.len >= 64)
        return false;
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return true;
}

static int64_t seconds_of(int y, int mon, int d, int h, int min, int s)
{
    struct tm tm = {.tm_year = y - 1900, .tm_mon = mon - 1, .tm_mday = d, .tm_hour = h, .tm_min = min, .tm_sec = s};
    return timegm(&tm);
}

bool when_parse(struct mango_sv text, int64_t *ret_us)
{
    char z[64];
    int y, mon, d, h, min, s, n = 0, oh = 0, om = 0;
    /* NOLINTNEXTLINE(cert-err34-c): the number of fields is looked at */
    if (!in_text(text, z) || sscanf(z, "%4d-%2d-%2dT%2d:%2d:%2d%n", &y, &mon, &d, &h, &min, &s, &n) != 6 || n == 0)
        return false;
    const char *p = z + n;
    int64_t us = 0, unit = 100000;
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
            us += (*p - '0') * unit;
    }
    int sign = *p == '-' ? -1 : 1;
    if (*p == '+' || *p == '-') {
        if (sscanf(p + 1, "%2d:%2d", &oh, &om) != 2) /* NOLINT(cert-err34-c) */
            return false;
    } else if (*p != 'Z' && *p != '\0') {
        return false;
    }
    *ret_us = (seconds_of(y, mon, d, h, min, s) - (int64_t)sign * (oh * 3600 + om * 60)) * 1000000 + us;
    return true;
}

bool when_parse_http(struct mango_sv text, int64_t *ret_us)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char z[64], name[4];
    int y, d, h, min, s;
    /* NOLINTNEXTLINE(cert-err34-c): the number of fields is looked at */
    if (!in_text(text, z) || sscanf(z, "%*3s, %2d %3s %4d %2d:%2d:%2d GMT", &d, name, &y, &h, &min, &s) != 6)
        return false;
    const char *at = strstr(months, name);
    if (!at || strlen(name) != 3)
        return false;
    *ret_us = seconds_of(y, (int)(at - months) / 3 + 1, d, h, min, s) * 1000000;
    return true;
}

void when_format(int64_t us, char out[WHEN_LEN])
{
    time_t t = (time_t)(us / 1000000);
    struct tm tm;
    gmtime_r(&t, &tm);
    (void)strftime(out, WHEN_LEN, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

int64_t when_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void when_on_header(void *skew, struct mango_sv name, struct mango_sv value)
{
    _Atomic int64_t *us = skew;
    int64_t theirs;
    if (name.len == 4 && strncasecmp(name.ptr, "Date", 4) == 0 && when_parse_http(value, &theirs))
        atomic_store(us, theirs - when_now_us());
}
