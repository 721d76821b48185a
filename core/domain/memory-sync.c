#include "domain/memory-sync.h"

/* How a side stands to the base. */
enum change { SAME, CHANGED, GONE, N_CHANGES };

/* local, then head. Where both have changed the store wins: no update of another writer is ever lost. */
static const struct mg_memory_decision TABLE[N_CHANGES][N_CHANGES] = {
    [SAME] =
        {[SAME] = {.act = MG_MEMORY_KEEP}, [CHANGED] = {.act = MG_MEMORY_PULL}, [GONE] = {.act = MG_MEMORY_REMOVE}},
    [CHANGED] = {[SAME] = {.act = MG_MEMORY_UPDATE},
                 [CHANGED] = {.act = MG_MEMORY_PULL, .lost = true},
                 [GONE] = {.act = MG_MEMORY_CREATE}},
    [GONE] = {[SAME] = {.act = MG_MEMORY_DELETE},
              [CHANGED] = {.act = MG_MEMORY_PULL, .lost = true},
              [GONE] = {.act = MG_MEMORY_FORGET}},
};

/* The same for a store that takes nothing. A file that was never the store's stays where it is. */
static struct mg_memory_decision without_push(struct mg_memory_decision d, bool had_base)
{
    switch (d.act) {
    case MG_MEMORY_UPDATE:
    case MG_MEMORY_DELETE:
        return (struct mg_memory_decision){MG_MEMORY_PULL, true};
    case MG_MEMORY_CREATE:
        return (struct mg_memory_decision){had_base ? MG_MEMORY_REMOVE : MG_MEMORY_KEEP, true};
    default:
        return d;
    }
}

/* No base: what is there has changed, what is not there has not. */
static enum change change_of(struct mg_sv now, struct mg_sv base)
{
    if (mg_sv_eq(now, base))
        return SAME;
    return now.len ? CHANGED : GONE;
}

struct mg_memory_decision mg_memory_decide(const struct mg_memory_sides *x)
{
    enum change local = change_of(x->local, x->base), head = change_of(x->head, x->base);
    if (local == CHANGED && mg_sv_eq(x->local, x->head))
        return (struct mg_memory_decision){.act = MG_MEMORY_ADOPT};
    if (local == CHANGED && head == SAME && x->base.len == 0)
        head = GONE; /* new here, and never was there */
    if (local == GONE && x->unsure && head != GONE)
        return (struct mg_memory_decision){.act = MG_MEMORY_KEEP};
    struct mg_memory_decision d = TABLE[local][head];
    return x->read_only ? without_push(d, x->base.len > 0) : d;
}
