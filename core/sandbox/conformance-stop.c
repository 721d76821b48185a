#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "sandbox/conformance-internal.h"

/* How a command is stopped, and that nothing of it is left. */

enum {
    CANCEL_ROUNDS = 25, /* cancels around the end of a command */
    CANCEL_SPREAD_US = 20000,
    ANSWER_MS = 10000, /* for a stop to be answered on a loaded machine; a kill that waits for nothing takes 2 s */
    CHILD_LIVES_MS = 10000,
    LIMIT_MAX_MS = 16000, /* within which a command begins on any machine */
};

static void a_time_limit_kills_everything(struct cf *c)
{
    struct cf_exec x = {.script = "trap '' TERM HUP INT; (setsid sleep $MARK &); sleep $MARK | sleep $MARK",
                        .limit_ms = 1000};
    cf_exec(c, &x);
    (void)cf_check(
        c, x.status == MANGO_OK && x.r.timed_out && !x.r.exited && !x.r.cancelled && !x.r.unknown && x.r.signal == 0,
        "status %d, timed_out %d, exited %d, signal %d", (int)x.status, x.r.timed_out, x.r.exited, (int)x.r.signal);
    (void)cf_check(c, x.ms >= 900 && x.ms < ANSWER_MS, "it took %llu ms", (unsigned long long)x.ms);
    cf_exec_done(&x);
    (void)cf_nothing_left(c);
    (void)cf_says(c, "exit 124", 124, ""); /* from the program itself it is no time limit */
}

/* Whether the command had begun, by the file that it makes, before its limit of so many ms. */
static bool limited_after(struct cf *c, unsigned limit_ms)
{
    struct mango_stat st;
    struct cf_exec x = {.script = ": >early; echo early; sleep $MARK; echo late", .limit_ms = limit_ms};
    cf_exec(c, &x);
    bool begun = cf_stat(c, MG_SV("early"), 0, &st) == MANGO_OK;
    if (begun)
        (void)cf_check(c, x.r.timed_out && mg_sv_eqz(mg_buf_view(&x.out), "early\n"), "timed_out %d, output '%.*s'",
                       x.r.timed_out, (int)x.out.len, mg_buf_view(&x.out).ptr);
    cf_exec_done(&x);
    return begun;
}

/* A backend that starts a program for each command may need more than the first limit on a loaded machine. */
static void output_before_a_time_limit_is_kept(struct cf *c)
{
    unsigned limit_ms = 1000;
    while (!limited_after(c, limit_ms) &&
           cf_check(c, limit_ms < LIMIT_MAX_MS, "no command began within %u ms", limit_ms))
        limit_ms *= 2;
}

static void case_54_busy_loops_end_at_their_limit(struct cf *c)
{
    struct cf_exec x = {.script = "trap '' TERM; sleep $MARK & while :; do :; done", .limit_ms = 1000};
    cf_exec(c, &x);
    (void)cf_check(c, x.r.timed_out && x.ms < ANSWER_MS, "timed_out %d after %llu ms", x.r.timed_out,
                   (unsigned long long)x.ms);
    cf_exec_done(&x);
    struct cf_exec y = {.script = "while :; do echo flood; done", .limit_ms = 1000, .max_output = 100};
    cf_exec(c, &y);
    (void)cf_check(c, y.r.timed_out && y.ms < ANSWER_MS, "output without a pause: timed_out %d after %llu ms",
                   y.r.timed_out, (unsigned long long)y.ms);
    cf_exec_done(&y);
    (void)cf_nothing_left(c);
}

struct trigger {
    struct mg_cancel *cancel;
    unsigned after_us;
};

static void *fire(void *arg)
{
    const struct trigger *t = arg;
    (void)usleep(t->after_us);
    mg_cancel_fire(t->cancel);
    return NULL;
}

/* Runs the script with a cancel that fires meanwhile. */
static void exec_cancelled(struct cf *c, struct cf_exec *x, unsigned after_us)
{
    pthread_t t;
    struct trigger tr = {.cancel = mg_cancel_new(), .after_us = after_us};
    cf_thread(&t, fire, &tr);
    x->cancel = tr.cancel;
    cf_exec(c, x);
    pthread_join(t, NULL);
    mg_cancel_unref(tr.cancel);
    x->cancel = NULL;
}

static void a_cancel_in_the_middle_kills_everything(struct cf *c)
{
    struct cf_exec x = {.script = "trap '' TERM; (setsid sleep $MARK &); sleep $MARK | sleep $MARK"};
    exec_cancelled(c, &x, 300000);
    (void)cf_check(c, x.status == MANGO_ECANCELED && !x.r.exited, "status %d, exited %d, wanted MANGO_ECANCELED",
                   (int)x.status, x.r.exited);
    (void)cf_check(c, x.ms < ANSWER_MS, "it took %llu ms", (unsigned long long)x.ms);
    cf_exec_done(&x);
    (void)cf_nothing_left(c);
    (void)cf_says(c, "echo next", 0, "next\n");
}

static void a_cancel_before_the_start_starts_nothing(struct cf *c)
{
    struct mg_cancel *cancel = mg_cancel_new();
    mg_cancel_fire(cancel);
    struct cf_exec x = {.script = "touch started", .cancel = cancel};
    cf_exec(c, &x);
    (void)cf_check(c, x.status == MANGO_ECANCELED, "status %d, wanted MANGO_ECANCELED", (int)x.status);
    cf_exec_done(&x);
    mg_cancel_unref(cancel);
    (void)cf_says(c, "test -e started || echo never", 0, "never\n");
}

static void case_68_a_cancel_around_the_end_gives_one_result(struct cf *c)
{
    int cancelled = 0, ended = 0;
    for (int i = 0; i < CANCEL_ROUNDS && !c->failed; i++) {
        struct cf_exec x = {.script = "sleep 0.01; exit 9"};
        exec_cancelled(c, &x, (unsigned)mg_rng_below(CANCEL_SPREAD_US));
        bool over = x.status == MANGO_OK && x.r.exited && x.r.exit_code == 9 && !x.r.cancelled;
        bool stopped = x.status == MANGO_ECANCELED && !x.r.exited;
        (void)cf_check(c, over != stopped, "round %d: status %d, exited %d, code %d, cancelled %d, unknown %d", i,
                       (int)x.status, x.r.exited, (int)x.r.exit_code, x.r.cancelled, x.r.unknown);
        ended += over;
        cancelled += stopped;
        cf_exec_done(&x);
    }
    struct mg_cancel *late = mg_cancel_new();
    struct cf_exec x = {.script = "sleep $MARK >/dev/null 2>&1 & exit 9", .cancel = late};
    cf_exec(c, &x);
    mg_cancel_fire(late); /* of a command that has ended: nothing is done to what it left */
    (void)cf_check(c, x.status == MANGO_OK && x.r.exited && x.r.exit_code == 9, "status %d, code %d", (int)x.status,
                   (int)x.r.exit_code);
    cf_exec_done(&x);
    mg_cancel_unref(late);
    (void)cf_says(c, "echo next", 0, "next\n");
    cf_note(c, "%d ended, %d cancelled", ended, cancelled);
}

static void case_64_a_background_child_does_not_delay(struct cf *c)
{
    static const char *const scripts[] = {"sleep $MARK & echo done", "sleep $MARK >/dev/null & echo done",
                                          "sleep $MARK >/dev/null 2>&1 & echo done"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct cf_exec x = {.script = scripts[i]};
        cf_exec(c, &x);
        (void)cf_check(c, x.status == MANGO_OK && x.r.exited && mg_sv_eqz(mg_buf_view(&x.out), "done\n"),
                       "`%s`: status %d, exited %d, output '%.*s'", scripts[i], (int)x.status, x.r.exited,
                       (int)x.out.len, mg_buf_view(&x.out).ptr);
        (void)cf_check(c, x.ms < CHILD_LIVES_MS, "`%s` took %llu ms", scripts[i], (unsigned long long)x.ms);
        cf_exec_done(&x);
    }
}

const struct cf_case cf_stop_cases[] = {
    CF_CASE(0, a_time_limit_kills_everything),
    CF_CASE(0, output_before_a_time_limit_is_kept),
    CF_CASE(0, case_54_busy_loops_end_at_their_limit),
    CF_CASE(0, a_cancel_in_the_middle_kills_everything),
    CF_CASE(0, a_cancel_before_the_start_starts_nothing),
    CF_CASE(0, case_68_a_cancel_around_the_end_gives_one_result),
    CF_CASE(0, case_64_a_background_child_does_not_delay),
    {NULL, 0, NULL},
};
