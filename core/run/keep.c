#include "base/clock.h"
#include "base/mem.h"
#include "run/engine-internal.h"
#include "sandbox/keep.h"

/* A sandbox is in use while a turn of its session runs here: also between its tool calls, while the model thinks. One
 * that waits for a client is idle, and so is one that is only watched. */

enum { BATCH = 64 /* timers that one look moves; the next look comes a second later */ };

struct look {
    struct mg_engine *engine;
    uint64_t now_ns;
    struct mg_box *due[BATCH]; /* references */
    int n;
};

static void keep_look(void *ctx, struct mg_sv key, void *value)
{
    struct look *l = ctx;
    struct mg_box *b = value;
    (void)key;
    if (l->n < BATCH && mg_map_get(l->engine->runs, mg_box_session(b)) &&
        mg_sandbox_keep_due(mg_box_sandbox(b), l->now_ns))
        l->due[l->n++] = mg_box_ref_locked(b);
}

static void keep_work(void *arg, void *thread)
{
    struct mg_box *b = arg;
    (void)thread;
    mg_sandbox_keep(mg_box_sandbox(b));
    mg_box_unref(b);
}

void mg_boxes_keep(struct mg_engine *e)
{
    struct look l = {.engine = e, .now_ns = mg_now_ns()};
    pthread_mutex_lock(&e->lock);
    mg_map_each(e->boxes, keep_look, &l);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < l.n; i++) {
        if (mg_pool_submit(e->keepers, keep_work, l.due[i]) < 0)
            mg_box_unref(l.due[i]); /* it is tried again after the pause */
    }
}
