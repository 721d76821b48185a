/* Test hooks of the test build; linked into tests/mangod-test only.
 *
 * Concurrency: the table is read once, then only the counters change, atomically. */
#include "base/hook.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/sv.h"

enum { HOOKS_MAX = 32 };

enum action { ACT_KILL, ACT_STOP, ACT_SLEEP, ACT_GATE };

struct hook {
    struct mg_sv name; /* into the copy of the variable */
    enum action action;
    int64_t sleep_ms;
    int64_t nth; /* fires at this pass only */
    atomic_llong passed;
};

static struct hook hooks[HOOKS_MAX];
static int n_hooks;
static pthread_once_t hooks_once = PTHREAD_ONCE_INIT;

static bool parse_action(struct mg_sv s, struct hook *h)
{
    if (mg_sv_eqz(s, "kill")) {
        h->action = ACT_KILL;
        return true;
    }
    if (mg_sv_eqz(s, "stop")) {
        h->action = ACT_STOP;
        return true;
    }
    if (mg_sv_eqz(s, "gate")) {
        h->action = ACT_GATE;
        return true;
    }
    h->action = ACT_SLEEP;
    return mg_sv_starts(s, "sleep") && mg_sv_to_i64(mg_sv_from(s, 5), &h->sleep_ms) && h->sleep_ms >= 0;
}

/* A test with a misspelt hook would test nothing, so it stops at once. */
static void hooks_read(void)
{
    const char *text = getenv("MANGO_TEST_HOOKS");
    struct mg_sv rest = mg_sv_of(text ? mg_xstrdup(text) : "");

    while (rest.len) {
        struct mg_sv item = mg_sv_trim(mg_sv_split(&rest, ','));
        struct mg_sv whole = item;
        if (!item.len)
            continue;
        struct hook *h = &hooks[n_hooks];
        h->name = mg_sv_split(&item, '=');
        struct mg_sv action = mg_sv_split(&item, ':');
        h->nth = 1;
        if (n_hooks + 1 >= HOOKS_MAX || !parse_action(action, h) || (item.len && !mg_sv_to_i64(item, &h->nth))) {
            (void)fprintf(stderr, "MANGO_TEST_HOOKS: cannot use '%.*s'\n", MG_SV_ARG(whole));
            abort();
        }
        n_hooks++;
    }
}

/* The other side of the FIFO opens it to read, which tells it that this point is reached, then to write, which lets it pass. */
static void wait_at_gate(void)
{
    const char *fifo = getenv("MANGO_TEST_HOOK_GATE");
    for (int i = 0; i < 2; i++) {
        int fd = open(fifo ? fifo : "", (i == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        if (fd < 0) {
            (void)fprintf(stderr, "MANGO_TEST_HOOKS: MANGO_TEST_HOOK_GATE names no FIFO\n");
            abort();
        }
        close(fd);
    }
}

static void act(const struct hook *h)
{
    struct timespec ts = {.tv_sec = h->sleep_ms / 1000, .tv_nsec = h->sleep_ms % 1000 * 1000000};

    switch (h->action) {
    case ACT_KILL:
        (void)kill(getpid(), SIGKILL);
        for (;;)
            (void)pause();
    case ACT_STOP:
        (void)raise(SIGSTOP); /* sent to the process, it would let this thread go on for a moment */
        break;
    case ACT_SLEEP:
        while (nanosleep(&ts, &ts) < 0)
            ;
        break;
    case ACT_GATE:
        wait_at_gate();
        break;
    }
}

void mg_hook(const char *name)
{
    (void)pthread_once(&hooks_once, hooks_read);
    for (int i = 0; i < n_hooks; i++)
        if (mg_sv_eqz(hooks[i].name, name) && atomic_fetch_add(&hooks[i].passed, 1) + 1 == hooks[i].nth)
            act(&hooks[i]);
}
