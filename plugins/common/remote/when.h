/* Times as services write them. */
#ifndef MANGO_COMMON_WHEN_H
#define MANGO_COMMON_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "mango/types.h"

/* RFC 3339 ("2026-12-01T10:00:00.123456Z", an offset instead of Z, any number of decimals), in microseconds since 1970. */
bool when_parse(struct mango_sv text, int64_t *ret_us);
/* An HTTP Date ("Tue, 01 Dec 2026 10:00:00 GMT"). */
bool when_parse_http(struct mango_sv text, int64_t *ret_us);
/* "2026-12-01T10:00:00Z" */
enum { WHEN_LEN = 32 };
void when_format(int64_t us, char out[WHEN_LEN]);
/* A mango_http_header_fn; skew: _Atomic int64_t, gets the service's clock minus ours in microseconds from its Date. */
void when_on_header(void *skew, struct mango_sv name, struct mango_sv value);
int64_t when_now_us(void); /* this host's clock: only for comparing with a service's Date */

#endif
