#include "run/gate.h"

static const uint64_t SECOND_NS = UINT64_C(1000000000);

enum {
    BAD_MIN = 5,         /* refusals in a second: fewer are chance, and each session's own back-off deals with them */
    FIRST_RATE = 8,      /* requests a second after the first bad second, when nothing tells more */
    LEAST_RATE = 2,      /* requests a second: enough to notice that the endpoint is back */
    CALM_S = 10,         /* without a refusal and without a queue: open again */
    GROWTH_PERCENT = 20, /* of the rate, in each second of success */
};

static void window_turn(struct mg_gate *g, uint64_t now_ns)
{
    uint64_t age = now_ns - g->window_ns;
    if (age < SECOND_NS)
        return;
    g->ok_before = age < 2 * SECOND_NS ? g->ok : 0;
    g->window_ns = now_ns;
    g->ok = g->bad = 0;
    g->slowed = false;
}

static void slow_down(struct mg_gate *g)
{
    double seen = g->ok > g->ok_before ? g->ok : g->ok_before;
    double least = g->rate > 0 ? LEAST_RATE : FIRST_RATE;
    double rate = (g->rate > 0 ? g->rate : seen) * 2 / 3;
    g->rate = rate > least ? rate : least;
    g->slowed = true;
}

void mg_gate_answer(struct mg_gate *g, uint64_t now_ns, bool bad)
{
    window_turn(g, now_ns);
    if (!bad) {
        g->ok++;
        if (g->rate > 0)
            g->rate += GROWTH_PERCENT / 100.0; /* rate successes come in a second */
        return;
    }
    g->bad++;
    g->bad_ns = now_ns;
    if (!g->slowed && g->bad >= BAD_MIN && g->bad * 4 >= g->ok)
        slow_down(g);
}

bool mg_gate_start(struct mg_gate *g, uint64_t now_ns, unsigned waiting)
{
    if (g->rate > 0 && waiting == 0 && now_ns - g->bad_ns > CALM_S * SECOND_NS)
        g->rate = 0;
    if (g->rate <= 0)
        return true;
    if (now_ns < g->next_ns)
        return false;
    g->next_ns = now_ns + (uint64_t)((double)SECOND_NS / g->rate);
    return true;
}
