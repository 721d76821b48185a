/* The Retry-After header of an answer. Pure. */
#ifndef MG_NET_RETRY_AFTER_H
#define MG_NET_RETRY_AFTER_H

#include "base/sv.h"

/* Seconds, or an HTTP date beside the wall clock (microseconds since 1970); at most cap_ms. 0: none, past, unreadable. */
uint32_t mg_retry_after_ms(struct mg_sv value, int64_t wall_us, uint32_t cap_ms);

#endif
