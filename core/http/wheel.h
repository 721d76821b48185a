/* A timer wheel: thousands of coarse timers (keep-alives, timeouts) behind one event-loop timer. Loop thread only. */
#ifndef MG_HTTP_WHEEL_H
#define MG_HTTP_WHEEL_H

#include <stdint.h>

#include "base/list.h"

enum {
    MG_WHEEL_SLOTS = 256,
    MG_WHEEL_TICK_MS = 200, /* a timer fires never earlier, and at most so much later, than asked */
};

struct mg_timer {
    struct mg_list link; /* must be initialised with mg_list_init */
    uint32_t due;        /* tick */
};

struct mg_wheel {
    struct mg_list slot[MG_WHEEL_SLOTS];
    uint32_t now; /* ticks since the start */
};

void mg_wheel_init(struct mg_wheel *w);
/* Due ms from now_ms, which counts from tick 0 of the wheel. Replaces what was set before. */
void mg_wheel_set(struct mg_wheel *w, struct mg_timer *t, uint64_t now_ms, unsigned ms);
void mg_wheel_cancel(struct mg_timer *t);
/* Moves to tick now and calls fn for each timer that is due; it is not set any more then. fn may set and cancel any
 * timer. */
void mg_wheel_advance(struct mg_wheel *w, uint32_t now, void (*fn)(void *ctx, struct mg_timer *t), void *ctx);

#endif
