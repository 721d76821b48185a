#include "base/log.h"
#include "base/mem.h"
#include <stdio.h>

#include "run/engine-internal.h"
#include "run/mcp.h"
#include "run/memory.h"
#include "run/repositories.h"
#include "run/turn.h"

/* Concurrency: engine.runs under engine.lock; a run's request and call fields belong to the one job that is in flight for it. */

enum {
    MG_RUN_PAUSE_MS = 500,     /* before a step is tried again whose database was away */
    MG_RUN_ABANDON_MS = 30000, /* before a turn that could not even be ended is tried again */
};

struct mg_run *mg_run_ref(struct mg_run *r)
{
    atomic_fetch_add(&r->refs, 1);
    return r;
}

void mg_run_unref(struct mg_run *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    mg_cancel_unref(r->cancel);
    mg_model_result_free(r->result);
    mg_buf_done(&r->call_result.content);
    free(r->agent);
    free(r->user_content);
    free(r->call_name);
    free(r->call_input);
    free(r->outputs_fault);
    mg_mcp_work_free(r->mcp);
    mg_memory_delta_free(r->memory);
    mg_repository_work_free(r->repositories);
    free(r);
}

void mg_run_cancel(struct mg_run *r)
{
    mg_cancel_fire(r->cancel);
    uint64_t call = atomic_load(&r->model_call);
    if (call)
        mg_model_cancel(r->engine->opts.model, call);
}

/* Takes the thread's run out of the registry; its reference is the caller's. With the lock held. */
static struct mg_run *registry_take(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread)
{
    struct mg_run *first = mg_map_get(e->runs, mg_id_sv(session)), **at = &first;
    while (*at && strcmp((*at)->thread.s, thread->s) != 0)
        at = &(*at)->sibling;
    struct mg_run *found = *at;
    if (!found)
        return NULL;
    *at = found->sibling;
    found->sibling = NULL;
    e->n_runs--;
    if (first)
        (void)mg_map_put(e->runs, mg_id_sv(session), first);
    else
        (void)mg_map_del(e->runs, mg_id_sv(session));
    return found;
}

static void registry_add(struct mg_engine *e, struct mg_run *r)
{
    r->sibling = mg_map_put(e->runs, mg_id_sv(&r->session), r);
    e->n_runs++;
}

static struct mg_run *registry_get(struct mg_engine *e, struct mg_sv session, struct mg_sv thread)
{
    struct mg_run *r = mg_map_get(e->runs, session);
    while (r && !mg_sv_eq(mg_id_sv(&r->thread), thread))
        r = r->sibling;
    return r;
}

struct mg_run *mg_run_find(struct mg_engine *e, struct mg_sv session, struct mg_sv thread)
{
    pthread_mutex_lock(&e->lock);
    struct mg_run *r = registry_get(e, session, thread);
    if (r)
        mg_run_ref(r);
    pthread_mutex_unlock(&e->lock);
    return r;
}

int mg_run_siblings(struct mg_engine *e, struct mg_sv session, struct mg_run *ret[MG_RUN_SIBLINGS_MAX])
{
    int n = 0;
    pthread_mutex_lock(&e->lock);
    for (struct mg_run *r = mg_map_get(e->runs, session); r && n < MG_RUN_SIBLINGS_MAX; r = r->sibling)
        ret[n++] = mg_run_ref(r);
    pthread_mutex_unlock(&e->lock);
    return n;
}

struct mg_run *mg_run_new(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread, int64_t epoch)
{
    struct mg_run *r = mg_xcalloc(1, sizeof(*r));
    r->engine = e;
    r->session = *session;
    r->thread = *thread;
    r->epoch = epoch;
    r->cancel = mg_cancel_new();
    r->call_result.content = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    atomic_store(&r->refs, 2); /* registry and caller */
    pthread_mutex_lock(&e->lock);
    const struct mg_run *there = registry_get(e, mg_id_sv(session), mg_id_sv(thread));
    bool known = there && there->epoch >= epoch;
    struct mg_run *old = known ? NULL : registry_take(e, session, thread);
    if (!known)
        registry_add(e, r);
    pthread_mutex_unlock(&e->lock);
    if (known) {
        mg_run_unref(r);
        mg_run_unref(r);
        return NULL;
    }
    if (old) {
        mg_run_cancel(old);
        mg_run_unref(old);
    }
    return r;
}

void mg_run_drop(struct mg_run *r)
{
    struct mg_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    bool ours = registry_get(e, mg_id_sv(&r->session), mg_id_sv(&r->thread)) == r;
    if (ours)
        (void)registry_take(e, &r->session, &r->thread);
    pthread_mutex_unlock(&e->lock);
    if (ours)
        mg_run_unref(r);
}

static void each_sibling(void *ctx, struct mg_sv key, void *value)
{
    void (*fn)(struct mg_run *) = *(void (**)(struct mg_run *))ctx;
    (void)key;
    for (struct mg_run *r = value, *next; r; r = next) {
        next = r->sibling;
        fn(r);
    }
}

void mg_run_each(struct mg_engine *e, void (*fn)(struct mg_run *r))
{
    pthread_mutex_lock(&e->lock);
    mg_map_each(e->runs, each_sibling, &fn);
    pthread_mutex_unlock(&e->lock);
}

void mg_run_cancel_all(struct mg_engine *e)
{
    mg_run_each(e, mg_run_cancel);
}

struct step_job {
    struct mg_run *run;
    mg_run_fn *fn;
};

static void step_run(void *arg, void *thread)
{
    struct step_job *j = arg;
    j->fn(j->run, thread);
    mg_run_unref(j->run);
    free(j);
}

void mg_run_later(struct mg_run *r, mg_run_fn *fn)
{
    struct step_job *j = mg_xmalloc(sizeof(*j));
    *j = (struct step_job){.run = mg_run_ref(r), .fn = fn};
    if (mg_pool_submit(r->engine->steps, step_run, j) == MG_OK)
        return;
    free(j);
    mg_run_after(r, MG_RUN_PAUSE_MS, fn);
    mg_run_unref(r);
}

/* What another try may mend: something that this node depends on is away. */
static bool may_pass(mg_rc rc)
{
    return rc == MG_EUNAVAIL || rc == MG_EIO || rc == MG_ETIMEOUT || rc == MG_ERATE;
}

static mg_rc commit_abandon(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc == MG_OK)
        rc = mg_turn_abandon(&s, r->failure, err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.abandon", err);
    *ret_st = s.st;
    return rc;
}

/* No session may be wedged by a step that can never succeed: the turn ends with an error that says why. */
static void run_abandon(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    mg_rc rc = commit_abandon(r, pg, &st, &err);
    if (rc == MG_OK) {
        mg_run_drop(r);
        if (st.turn_step != MG_TURN_NONE)
            mg_engine_go(r->engine, &st); /* the next queued message, under the new epoch */
    } else if (rc == MG_EFENCED || rc == MG_ENOTFOUND) {
        mg_run_drop(r);
    } else {
        mg_log(MG_ERROR, "a turn cannot be ended", MG_F_STR("session", r->session.s), MG_F_STR("error", err.text));
        mg_run_after(r, MG_RUN_ABANDON_MS, run_abandon);
    }
}

void mg_run_failed(struct mg_run *r, mg_rc rc, const struct mg_err *err, mg_run_fn *again)
{
    if (rc == MG_EFENCED || rc == MG_ECANCELED || rc == MG_ENOTFOUND || mg_cancel_fired(r->cancel)) {
        if (rc == MG_EFENCED)
            atomic_fetch_add(&r->engine->n_fenced, 1);
        mg_log(MG_INFO, "turn left this node", MG_F_STR("session", r->session.s), MG_F_STR("thread", r->thread.s),
               MG_F_INT("epoch", r->epoch), MG_F_STR("why", err->text));
        mg_run_cancel(r);
        mg_run_drop(r);
        return;
    }
    mg_log(MG_WARN, "turn step failed", MG_F_STR("session", r->session.s), MG_F_STR("error", err->text));
    if (may_pass(rc)) {
        mg_run_after(r, MG_RUN_PAUSE_MS, again);
        return;
    }
    (void)snprintf(r->failure, sizeof(r->failure), "%s", err->text);
    mg_run_later(r, run_abandon);
}

void mg_run_continue(struct mg_run *r, struct mg_pg *pg, const struct mg_session_state *st)
{
    switch (st->turn_step) {
    case MG_TURN_MODEL:
        mg_run_request(r, pg);
        break;
    case MG_TURN_TOOLS:
        mg_run_calls(r, pg);
        break;
    case MG_TURN_BACKOFF:
        mg_run_after(r, (uint64_t)(st->due_in_us > 0 ? st->due_in_us / 1000 : 0), mg_run_resume);
        break;
    case MG_TURN_NONE:
    case MG_TURN_ACTION:
    case MG_TURN_PAUSED:
        mg_run_drop(r);
        break;
    }
}
