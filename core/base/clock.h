/* Clocks and the one time format of the API. Leases never use these: they use the database's clock. */
#ifndef MG_BASE_CLOCK_H
#define MG_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sv.h"

enum { MG_TIME_LEN = 28 /* "2026-11-30T07:26:01.123456Z" and the NUL */ };

uint64_t mg_now_ns(void); /* monotonic */
int64_t mg_wall_us(void); /* since 1970, UTC */
/* RFC 3339, UTC, exactly six digits, Z: heartbeats are compared as text, so this is the only formatter. */
void mg_time_format(int64_t wall_us, char out[MG_TIME_LEN]);
/* Any RFC 3339 time with an offset; false when it is not one. Digits beyond microseconds are cut. */
bool mg_time_parse(struct mg_sv s, int64_t *ret_us);

#endif
