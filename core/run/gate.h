/* How fast a model endpoint is asked while it says that it is overloaded. Pure: no clock, no thread, no lock.
 *
 * Each session backs off by itself, with jitter; with a thousand of them that is still a thousand requests in one second, again and again. So the
 * endpoint's answers set a common pace: open, until a fifth of the answers of a second say 429 or 529; then a rate that falls by a third in each such
 * second and grows by a fifth in each second of success. A few failures among many answers change nothing. It shapes starts, not a number of
 * requests at once: an overloaded endpoint refuses within milliseconds, and a limit on concurrency would only let the refusals
 * come faster. */
#ifndef MG_RUN_GATE_H
#define MG_RUN_GATE_H

#include <stdbool.h>
#include <stdint.h>

struct mg_gate {
    double rate;                 /* requests a second; 0: open */
    uint64_t next_ns;            /* the next start */
    uint64_t bad_ns;             /* the last refusal */
    uint64_t window_ns;          /* begin of the second that ok and bad count */
    unsigned ok, bad, ok_before; /* ok_before: of the second before */
    bool slowed;                 /* in this second already */
};

/* An answer came; bad: 429 or 529. */
void mg_gate_answer(struct mg_gate *g, uint64_t now_ns, bool bad);
/* Whether a request may start now; its start is taken then. waiting: how many stand before it. */
bool mg_gate_start(struct mg_gate *g, uint64_t now_ns, unsigned waiting);

#endif
