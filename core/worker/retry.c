#include "worker/retry.h"

#include <poll.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/rng.h"

enum { JITTER = 4 /* one part of so many is random */ };

uint32_t mg_retry_delay_ms(unsigned attempt, uint32_t base_ms, uint32_t cap_ms)
{
    uint64_t ms = base_ms;
    for (unsigned i = 0; i < attempt && ms < cap_ms; i++)
        ms *= 2;
    if (ms > cap_ms)
        ms = cap_ms;
    return (uint32_t)(ms - mg_rng_below(ms / JITTER + 1));
}

bool mg_retry_again(int status)
{
    return status == 0 || status == 408 || status == 409 || status == 429 || status >= 500;
}

bool mg_retry_fatal(int status)
{
    return status >= 400 && status < 500 && !mg_retry_again(status);
}

bool mg_retry_sleep(uint32_t ms, struct mg_cancel *cancel)
{
    uint64_t end = mg_now_ns() + (uint64_t)ms * 1000000u;
    struct pollfd p = {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN};
    for (uint64_t now; !mg_cancel_fired(cancel) && (now = mg_now_ns()) < end;)
        (void)poll(&p, 1, (int)((end - now) / 1000000u) + 1);
    return !mg_cancel_fired(cancel);
}
