/* When a request is made again, and after how long. Pure but for the jitter. */
#ifndef MG_WORKER_RETRY_H
#define MG_WORKER_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"

/* base * 2^attempt, at most cap, less a random quarter: many workers must not come back in step. attempt counts from 0. */
uint32_t mg_retry_delay_ms(unsigned attempt, uint32_t base_ms, uint32_t cap_ms);
/* What no repetition mends: every 4xx but 408, 409 and 429. 0 is no answer. */
bool mg_retry_fatal(int status);
/* Whether one request is repeated at once: no answer, 408, 409, 429, 5xx. */
bool mg_retry_again(int status);
/* False when the cancel (may be NULL) fired meanwhile. */
bool mg_retry_sleep(uint32_t ms, struct mg_cancel *cancel);

#endif
