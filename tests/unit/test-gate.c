/* Field case 85 on a clock of its own: 1,000 sessions, an endpoint that refuses everything for a minute and then serves 20 requests a second. */
#include "run/gate.h"

#include <stdlib.h>

#include "base/rng.h"
#include "unit/unit.h"

enum {
    SESSIONS = 1000,
    ATTEMPTS = 3,
    DOWN_S = 60,
    SERVED = 20,
    END_S = 600,
    TICK_MS = 5,
    LATENCY_MS = 50,
};
static const uint64_t MS = 1000000;

struct session {
    int attempt, done, good;
    uint64_t due_ms;  /* wants to ask; UINT64_MAX: waits or asks */
    uint64_t back_ms; /* the answer comes; 0: none is on its way */
    bool bad;
};

struct storm {
    struct mg_gate gate;
    struct session s[SESSIONS];
    int queue[SESSIONS * ATTEMPTS], head, tail;
    int retries[END_S], n_retries, n_good, n_done, n_served;
    uint64_t second;
};

static void start(struct storm *w, int i, uint64_t ms)
{
    struct session *s = &w->s[i];
    if (ms / 1000 != w->second) {
        w->second = ms / 1000;
        w->n_served = 0;
    }
    s->bad = ms < DOWN_S * 1000 || ++w->n_served > SERVED;
    s->back_ms = ms + LATENCY_MS;
    if (s->attempt > 0) {
        w->retries[ms / 1000]++;
        w->n_retries++;
    }
}

static void back(struct storm *w, struct session *s, uint64_t ms)
{
    s->back_ms = 0;
    mg_gate_answer(&w->gate, ms * MS, s->bad);
    s->attempt++;
    if (!s->bad || s->attempt == ATTEMPTS) {
        s->done = 1;
        w->n_done++;
        w->n_good += !s->bad;
        return;
    }
    uint64_t pause = (uint64_t)1000 << (s->attempt - 1);
    s->due_ms = ms + pause + mg_rng_below(pause / 4 + 1);
}

static void tick(struct storm *w, uint64_t ms)
{
    for (int i = 0; i < SESSIONS; i++) {
        struct session *s = &w->s[i];
        if (s->back_ms && s->back_ms <= ms)
            back(w, s, ms);
        if (!s->done && s->due_ms <= ms) {
            s->due_ms = UINT64_MAX;
            if (w->head == w->tail && mg_gate_start(&w->gate, ms * MS, 0))
                start(w, i, ms);
            else
                w->queue[w->tail++] = i;
        }
    }
    while (w->head < w->tail && mg_gate_start(&w->gate, ms * MS, (unsigned)(w->tail - w->head - 1)))
        start(w, w->queue[w->head++], ms);
}

static void case_85_a_retry_storm_is_spread_and_all_sessions_end(void **state)
{
    (void)state;
    struct storm *w = calloc(1, sizeof(*w));
    for (int i = 0; i < SESSIONS; i++)
        w->s[i].due_ms = mg_rng_below(2000); /* they run, each on its own */
    for (uint64_t ms = 0; ms < END_S * 1000 && w->n_done < SESSIONS; ms += TICK_MS)
        tick(w, ms);
    assert_int_equal(w->n_done, SESSIONS);
    assert_true(w->n_good * 10 >= SESSIONS * 9); /* all but those who met the edge of the endpoint's rate three times */
    /* While it refuses, no second has a twentieth of all retries; afterwards they come about as fast as they are served. */
    for (int i = 0; i < END_S; i++) {
        assert_true(i >= DOWN_S || w->retries[i] * 20 <= w->n_retries);
        assert_true(w->retries[i] * 2 <= SERVED * 3);
    }
    free(w);
}

static void a_few_refusals_among_many_answers_change_nothing(void **state)
{
    (void)state;
    struct mg_gate g = {0};
    for (int i = 0; i < 1000; i++) {
        mg_gate_answer(&g, (uint64_t)i * 10 * MS, i % 25 == 0);
        assert_true(mg_gate_start(&g, (uint64_t)i * 10 * MS, 0));
    }
    for (int i = 0; i < 20; i++) /* one session alone, refused again and again */
        mg_gate_answer(&g, (uint64_t)(20000 + i * 1000) * MS, true);
    assert_true(g.rate == 0);
}

static void the_pace_begins_below_what_was_served_and_ends_when_it_is_calm(void **state)
{
    (void)state;
    struct mg_gate g = {0};
    for (int i = 0; i < 300; i++)
        mg_gate_answer(&g, (uint64_t)i * MS, false);
    for (int i = 0; i < 100; i++)
        mg_gate_answer(&g, (uint64_t)(300 + i) * MS, true);
    assert_true(g.rate > 150 && g.rate < 300);
    assert_true(mg_gate_start(&g, 500 * MS, 0));
    assert_false(mg_gate_start(&g, 500 * MS, 0));
    assert_true(mg_gate_start(&g, 20000 * MS, 5)); /* a queue is not let loose */
    assert_true(g.rate > 0);
    assert_true(mg_gate_start(&g, 20001 * MS, 0));
    assert_true(g.rate == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_85_a_retry_storm_is_spread_and_all_sessions_end),
        cmocka_unit_test(a_few_refusals_among_many_answers_change_nothing),
        cmocka_unit_test(the_pace_begins_below_what_was_served_and_ends_when_it_is_calm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
