/* The Retry-After header of an answer. Pure. */
#ifndef MG_NET_RETRY_AFTER_H
#define MG_NET_RETRY_AFTER_H

#include <stdbool.h>

#include "base/sv.h"

/* Seconds, or an HTTP date beside the wall clock (microseconds since 1970); at most cap_ms. 0: none, past, unreadable. */
uint32_t mg_retry_after_ms(struct mg_sv value, int64_t wall_us, uint32_t cap_ms);

/* What the headers of one answer say of it. A date counts beside the answer's own Date, since the peer's clock may be hours off;
 * without one, beside this host's. All zero before the first header. */
struct mg_retry_after {
    int64_t date_us;
    char text[40]; /* of Retry-After */
};
/* Takes Date and Retry-After, in any order. True: *ret_ms is what both say now. */
bool mg_retry_after_header(struct mg_retry_after *r, struct mg_sv name, struct mg_sv value, uint32_t cap_ms,
                           uint32_t *ret_ms);

#endif
