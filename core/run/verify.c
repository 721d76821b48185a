#include "base/log.h"
#include "run/engine-internal.h"

/* Whether the turns that run here are still this node's. An interrupt at another node says so by a wake-up; here it is found when that was lost, before
 * the turn's own next write would find it, which for a tool that runs may be an hour away. */

static const struct mg_stmt SQL_LEFT = {
    "turns_left",
    "SELECT u.id, u.thread, u.epoch FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(id, thread, epoch)"
    " LEFT JOIN session_state st ON st.session_id = u.id"
    " LEFT JOIN thread_state t ON t.session_id = u.id AND t.thread_id = u.thread"
    " WHERE CASE u.thread WHEN '' THEN st.turn_epoch ELSE t.turn_epoch END IS DISTINCT FROM u.epoch",
};

struct list {
    struct mg_arena *arena;
    struct mg_sv *ids, *threads, *epochs;
    size_t n, cap;
};

static void collect(void *ctx, struct mg_sv key, void *value)
{
    struct list *l = ctx;
    for (const struct mg_run *r = value; r && l->n < l->cap; r = r->sibling) {
        l->ids[l->n] = mg_arena_sv(l->arena, key);
        l->threads[l->n] = mg_arena_sv(l->arena, mg_id_sv(&r->thread));
        l->epochs[l->n++] = mg_p_int(l->arena, r->epoch);
    }
}

static void leave(struct mg_engine *e, struct mg_sv session, struct mg_sv thread, int64_t epoch)
{
    struct mg_run *r = mg_run_find(e, session, thread);
    if (r && r->epoch == epoch) {
        mg_log(MG_INFO, "turn left this node", MG_F_SV("session", session), MG_F_SV("thread", thread),
               MG_F_INT("epoch", epoch), MG_F_STR("why", "it was interrupted or claimed elsewhere"));
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
    l.ids = mg_arena_alloc(a, sizeof(*l.ids) * (3 * l.cap + 1));
    l.threads = l.ids + l.cap;
    l.epochs = l.threads + l.cap;
    mg_map_each(e->runs, collect, &l);
    pthread_mutex_unlock(&e->lock);
    if (l.n == 0)
        return;
    const struct mg_sv p[] = {mg_p_array(a, l.ids, l.n), mg_p_array(a, l.threads, l.n), mg_p_array(a, l.epochs, l.n)};
    if (mg_pg_exec(pg, &SQL_LEFT, p, 3, &r, &err) < 0)
        return; /* the next look is soon */
    for (int i = 0; i < mg_res_rows(r); i++)
        leave(e, mg_res_sv(r, i, 0), mg_res_sv(r, i, 1), mg_res_int(r, i, 2));
}
