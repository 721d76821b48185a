/* Schedules: five cron fields in a time zone, without I/O. The zone's offsets come from outside (core/store/zone.h).
 *
 * When the clock is changed: a schedule that names its hours runs exactly once for each of its times on each of its days: a
 * time that is skipped runs at the first moment after the gap, one that comes twice runs the first time. A schedule of
 * every hour ("*" in the hour field) keeps its interval: it runs at every minute that matches, as the clock shows it. */
#ifndef MG_DOMAIN_CRON_H
#define MG_DOMAIN_CRON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sv.h"

enum {
    MG_CRON_TEXT_MAX = 255, /* characters of an expression */
    MG_ZONE_NAME_MAX = 64,
    MG_CRON_DAYS =
        5 * 366, /* how far a schedule is looked ahead: 29 February comes at least every four years until 2096 */
    MG_ZONE_CHANGES_MAX = 256, /* of the offset, in that time: two a year, and some zones have four */
};

struct mg_cron {
    uint64_t minutes;                       /* bit n: minute n */
    uint32_t hours, days, months, weekdays; /* weekdays: bit 0 is Sunday */
    bool any_day, any_weekday, every_hour;
};

/* place: "schedule.expression". */
mg_rc mg_cron_parse(struct mg_sv text, const char *place, struct mg_cron *ret, struct mg_err *err) MG_MUSTCHECK;

/* Offsets of a zone from UTC. at[i]: from when offset[i] holds; before at[0]: offset[0] too. */
struct mg_zone {
    int n;
    int64_t at_s[MG_ZONE_CHANGES_MAX]; /* seconds since 1970 */
    int32_t offset_s[MG_ZONE_CHANGES_MAX];
};

/* The first time after after_us, in microseconds since 1970, that the schedule names within MG_CRON_DAYS; INT64_MIN: none. */
int64_t mg_cron_next(const struct mg_cron *c, const struct mg_zone *z, int64_t after_us);

#endif
