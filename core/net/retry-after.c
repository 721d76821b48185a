#include "net/retry-after.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* "Sun, 06 Nov 1994 08:49:37 GMT". By hand: strptime follows the locale, which a plugin may have changed. */
static bool http_date(struct mg_sv v, int64_t *ret_s)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char text[40], month[4];
    if (v.len >= sizeof(text))
        return false;
    memcpy(text, v.ptr, v.len);
    text[v.len] = '\0';
    struct tm tm = {0};
    if (sscanf(text, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d GMT", &tm.tm_mday, month, &tm.tm_year, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) != 6)
        return false;
    const char *at = strstr(months, month);
    if (strlen(month) != 3 || !at || (at - months) % 3 != 0)
        return false;
    tm.tm_mon = (int)(at - months) / 3;
    tm.tm_year -= 1900;
    *ret_s = timegm(&tm);
    return *ret_s != -1;
}

/* Digits with an optional fraction, saturated: a peer may send any number. */
static bool seconds_to_ms(struct mg_sv v, int64_t cap, int64_t *ret_ms)
{
    int64_t ms = 0;
    size_t i = 0;
    for (; i < v.len && isdigit((unsigned char)v.ptr[i]); i++) {
        if (ms < cap * 10)
            ms = ms * 10 + (v.ptr[i] - '0') * 1000;
    }
    if (i == 0)
        return false;
    if (i < v.len && v.ptr[i] == '.') {
        int64_t unit = 100;
        for (i++; i < v.len && isdigit((unsigned char)v.ptr[i]); i++, unit /= 10)
            ms += (v.ptr[i] - '0') * unit;
    }
    *ret_ms = ms;
    return i == v.len;
}

uint32_t mg_retry_after_ms(struct mg_sv value, int64_t wall_us, uint32_t cap_ms)
{
    const int64_t cap = cap_ms;
    struct mg_sv v = mg_sv_trim(value);
    int64_t ms = 0, at_s = 0;
    if (!seconds_to_ms(v, cap, &ms)) {
        if (!http_date(v, &at_s))
            return 0;
        ms = at_s * 1000 - wall_us / 1000;
    }
    if (ms <= 0)
        return 0;
    return (uint32_t)(ms < cap ? ms : cap);
}

bool mg_retry_after_header(struct mg_retry_after *r, struct mg_sv name, struct mg_sv value, uint32_t cap_ms,
                           uint32_t *ret_ms)
{
    int64_t at_s;
    struct mg_sv v = mg_sv_trim(value);
    if (mg_sv_eq_nocase(name, MG_SV("date")) && http_date(v, &at_s))
        r->date_us = at_s * 1000000;
    else if (mg_sv_eq_nocase(name, MG_SV("retry-after")))
        (void)snprintf(r->text, sizeof(r->text), "%.*s", MG_SV_ARG(v));
    else
        return false;
    *ret_ms = mg_retry_after_ms(mg_sv_of(r->text), r->date_us ? r->date_us : mg_wall_us(), cap_ms);
    return true;
}
