/* The expiry timers of services: moved while a session is in use, left alone while it is idle, so that a service that
 * pauses idle sandboxes does so on time. Whoever knows which sessions are in use asks (run/keep.c).
 *
 * Concurrency: any thread with a reference to the handle. */
#ifndef MG_SANDBOX_KEEP_H
#define MG_SANDBOX_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/manager.h"

enum {
    MG_KEEP_UNKNOWN_S = 90,    /* of a service that does not say when its timer ends */
    MG_KEEP_LEAST_S = 15,      /* a shorter timer would end between two looks of a busy machine */
    MG_KEEP_PAUSE_MAX_S = 600, /* between two moves; else a third of the timer, so that one lost call ends nothing */
    MG_KEEP_CALL_MS = 10000,
};

/* After create and attach, which say when the service ends it: timer_s seconds from now, 0 when they do not. */
void mg_sandbox_keep_from(struct mg_sandbox *s, uint64_t timer_s);
/* True for one caller each time a third of the timer is over: that one calls mg_sandbox_keep. */
bool mg_sandbox_keep_due(struct mg_sandbox *s, uint64_t now_ns);
/* Moves the timer to its whole length from now, a call to the service of MG_KEEP_CALL_MS at most. Never ends a session. */
void mg_sandbox_keep(struct mg_sandbox *s);

#endif
