/* Schedules: an expression, then the next times in a zone whose offset changes where the input says. The first eight bytes are the time from
 * which is looked, the next eight the zone. */
#include <string.h>

#include "domain/cron.h"
#include "fuzz/fuzz.h"

enum { HEAD = 16, TIMES = 4, MINUTE_S = 60, HOUR_S = 3600 };

static const int64_t FROM_S = INT64_C(1700000000), SPAN_S = INT64_C(100) * 365 * 24 * HOUR_S, US = 1000000;

static struct mg_zone zone_of(const uint8_t *b, int64_t from_s)
{
    int32_t base = ((int32_t)(int8_t)b[0] % 14) * HOUR_S + (b[1] % 4) * 15 * MINUTE_S;

    /* Two changes of an hour, as a summer has, some days from where the search begins. */
    return (struct mg_zone){.n = 3,
                            .at_s = {0, from_s + b[2] * INT64_C(86400) + b[3] * MINUTE_S,
                                     from_s + (256 + b[4]) * INT64_C(86400) + b[5] * MINUTE_S},
                            .offset_s = {base, base + HOUR_S, base}};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_cron c = {0};
    struct mg_err err = {0};
    uint64_t seed = 0;

    if (size < HEAD)
        return 0;
    memcpy(&seed, data, sizeof(seed));
    int64_t from_s = FROM_S + (int64_t)(seed % (uint64_t)SPAN_S);
    struct mg_zone z = zone_of(data + sizeof(seed), from_s);
    mg_rc rc = mg_cron_parse(fuzz_text(data + HEAD, size - HEAD), "schedule.expression", &c, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    fuzz_check(c.minutes && c.hours && c.days && c.months && c.weekdays, "each field names something");
    for (int64_t i = 0, at = from_s * US; i < TIMES; i++) {
        int64_t next = mg_cron_next(&c, &z, at);
        if (next == INT64_MIN)
            break;
        fuzz_check(next > at, "the next time is later");
        fuzz_check(next - at <= (MG_CRON_DAYS + 1) * INT64_C(86400) * US, "and not too far away");
        fuzz_check(next % US == 0, "and a whole second");
        at = next;
    }
    return 0;
}
