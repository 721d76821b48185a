/* A line that stays open to the program in a sandbox: an errand over it costs neither a request nor a shell of the service.
 *
 * It is a terminal of the service in which `mango-rbox errand -t` runs (common/errand/talk.c), and only ever a shorter way: one
 * errand at a time goes over it, and what finds it busy, closed or silent goes as a request, as all did. Since every errand may
 * come twice, one that was cut on the line is simply asked for again. */
#ifndef MANGO_COMMON_ERRAND_LINK_H
#define MANGO_COMMON_ERRAND_LINK_H

#include "common/remote/errand-call.h"

/* Sends the errand coded, whose answer takes at most ms, and feeds r. False: it has no whole answer, and goes as a request.
 * *ret_sent: it may have reached the sandbox. */
bool link_errand(struct errands *e, const struct mango_call *call, struct errands_box *b, const struct text *coded,
                 uint32_t ms, struct reply *r, bool *ret_sent);
void link_free(struct errands_box *b);

#endif
