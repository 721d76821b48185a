#include "http/wheel.h"

void mg_wheel_init(struct mg_wheel *w)
{
    for (int i = 0; i < MG_WHEEL_SLOTS; i++)
        mg_list_init(&w->slot[i]);
    w->now = 0;
}

static void put(struct mg_wheel *w, struct mg_timer *t)
{
    mg_list_add_tail(&w->slot[t->due % MG_WHEEL_SLOTS], &t->link);
}

/* Counted from the caller's clock, not from the last advance: a loop that is late would make timers early. */
void mg_wheel_set(struct mg_wheel *w, struct mg_timer *t, uint64_t now_ms, unsigned ms)
{
    mg_list_del(&t->link);
    t->due = (uint32_t)((now_ms + ms) / MG_WHEEL_TICK_MS) + 1;
    put(w, t);
}

void mg_wheel_cancel(struct mg_timer *t)
{
    mg_list_del(&t->link);
}

static void fire_slot(struct mg_wheel *w, void (*fn)(void *ctx, struct mg_timer *t), void *ctx)
{
    struct mg_list *slot = &w->slot[w->now % MG_WHEEL_SLOTS];
    struct mg_list batch;

    /* Taken off as a whole: fn may free other timers of the slot, and may put its own back into it. */
    mg_list_init(&batch);
    while (!mg_list_empty(slot)) {
        struct mg_list *it = slot->next;
        mg_list_del(it);
        mg_list_add_tail(&batch, it);
    }
    while (!mg_list_empty(&batch)) {
        struct mg_timer *t = mg_container_of(batch.next, struct mg_timer, link);
        mg_list_del(&t->link);
        if ((int32_t)(t->due - w->now) > 0)
            put(w, t); /* a later round */
        else
            fn(ctx, t);
    }
}

void mg_wheel_advance(struct mg_wheel *w, uint32_t now, void (*fn)(void *ctx, struct mg_timer *t), void *ctx)
{
    /* After a pause (a stopped process) one round finds everything that is due. */
    if (now - w->now > MG_WHEEL_SLOTS)
        w->now = now - MG_WHEEL_SLOTS;
    while (w->now != now) {
        w->now++;
        fire_slot(w, fn, ctx);
    }
}
