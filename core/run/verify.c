#include "base/log.h"
#include "run/engine-internal.h"

/* Whether the turns that run here are still this node's. An interrupt at another node says so by a wake-up; here it is found when that was lost, before
 * the turn's own next write would find it, which for a tool that runs may be an hour away. */

/* Of primary threads; a child's turn is stopped with its session's. */
static const struct mg_stmt SQL_LEFT = {
    "turns_left",
    "SELECT u.id, u.epoch FROM unnest($1::text[], $2::bigint[]) AS u(id, epoch)"
    " LEFT JOIN session_state st ON st.session_id = u.id WHERE st.turn_epoch IS DISTINCT FROM u.epoch",
};

struct list {
    struct mg_arena *arena;
    struct mg_sv *ids, *epochs;
    size_t n, cap;
};

static void collect(void *ctx, struct mg_sv key, void *value)
{
    struct list *l = ctx;
    for (const struct mg_run *r = value; r && l->n < l->cap; r = r->sibling) {
        if (r->thread.s[0])
            continue;
        l->ids[l->n] = mg_arena_sv(l->arena, key);
        l->epochs[l->n++] = mg_p_int(l->arena, r->epoch);
    }
}

static void leave(struct mg_engine *e, struct mg_sv session, int64_t epoch)
{
    struct mg_run *r = mg_run_find(e, session, MG_SV(""));
    if (r && r->epoch == epoch) {
        mg_log(MG_INFO, "turn left this node", MG_F_SV("session", session), MG_F_INT("epoch", epoch),
               MG_F_STR("why", "it was interrupted or claimed elsewhere"));
        mg_run_cancel(r);
        mg_run_drop(r);
    }
    mg_run_unref(r);
}

void mg_runs_verify(struct mg_engine *e, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_err err = {0};
    struct list l = {.arena = a};
    pthread_mutex_lock(&e->lock);
    l.cap = e->n_runs;
    l.ids = mg_arena_alloc(a, sizeof(*l.ids) * (2 * l.cap + 1));
    l.epochs = l.ids + l.cap;
    mg_map_each(e->runs, collect, &l);
    pthread_mutex_unlock(&e->lock);
    if (l.n == 0)
        return;
    const struct mg_sv p[] = {mg_p_array(a, l.ids, l.n), mg_p_array(a, l.epochs, l.n)};
    if (mg_pg_exec(pg, &SQL_LEFT, p, 2, &r, &err) < 0)
        return; /* the next look is soon */
    for (int i = 0; i < mg_res_rows(r); i++)
        leave(e, mg_res_sv(r, i, 0), mg_res_int(r, i, 1));
}
