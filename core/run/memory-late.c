/* Changes of memories that no call's commit took over: of a call whose result was lost, and of a session that is deleted. */
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "run/memory-internal.h"

/* ---- after a takeover ---- */

static const struct mg_stmt SQL_OWED = {
    "memory_owed",
    "SELECT EXISTS (SELECT FROM session_memory_stores WHERE session_id = $1 AND mounted_at IS NOT NULL) AND EXISTS"
    " (SELECT FROM tool_calls WHERE session_id = $1 AND state = 'started') AND EXISTS (SELECT FROM sandboxes"
    " WHERE session_id = $1 AND lost_at IS NULL)",
};

mg_rc mg_memory_owed(struct mg_run *r, struct mg_step *s, bool *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *res = NULL;
    const struct mg_sv session = mg_id_sv(&r->session);
    *ret = false;
    if (r->memory_synced || r->memory_tried || !r->engine->opts.sandboxes)
        return MG_OK;
    mg_rc rc = mg_txn_query(s->t, &SQL_OWED, &session, 1, &res, err);
    *ret = rc >= 0 && mg_res_bool(res, 0, 0);
    return rc;
}

static void settle_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    struct mg_err err = {0};
    mg_rc rc = mg_box_acquire(r->engine, thread, &r->session, &r->thread, r->cancel, &err);
    if (rc >= 0)
        rc = mg_memory_meet(r, thread, &err);
    if (rc < 0)
        mg_log(MG_WARN, "memories of an interrupted call are not taken over yet", MG_F_STR("session", r->session.s),
               MG_F_STR("error", err.text));
    atomic_store(&r->busy_until_ns, 0);
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r);
    else
        mg_run_later(r, mg_run_resume);
    mg_run_unref(r);
}

void mg_memory_catch_up(struct mg_run *r)
{
    r->memory_tried = true;
    atomic_store(&r->busy_until_ns, mg_run_until(MG_ACQUIRE_MS));
    if (mg_pool_submit(r->engine->sandbox, settle_work, mg_run_ref(r)) == MG_OK)
        return;
    atomic_store(&r->busy_until_ns, 0);
    mg_run_unref(r);
    mg_run_later(r, mg_run_resume);
}

/* ---- before the sandbox goes ---- */

/* No run and no epoch: the session is marked as deleting, which ended its runs, and its row is locked. */
static mg_rc write_back(struct mg_engine *e, struct mg_pg *pg, struct mg_memory *m, struct mg_sandbox *box,
                        struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {.engine = NULL};
    struct mg_memory_delta *d = mg_memory_delta_new();
    mg_rc rc = mg_memory_load(m, pg, err);
    if (rc >= 0)
        rc = mg_memory_collect(m, box, NULL, true, d, err);
    if (rc >= 0 && d->n > 0)
        rc = mg_step_begin(&s, e, pg, a, mg_id_sv(&m->session), MG_SV(""), -1, err);
    if (rc >= 0 && d->n > 0)
        rc = mg_memory_apply(m, d, &s, err);
    if (rc >= 0 && d->n > 0)
        rc = mg_txn_commit(s.t, err);
    mg_memory_delta_free(d);
    return rc;
}

static const struct mg_stmt SQL_ENV = {"memory_env",
                                       "SELECT s.env_config FROM sessions s JOIN sandboxes b ON b.session_id = s.id"
                                       " WHERE s.id = $1 AND b.lost_at IS NULL"};

static mg_rc write_back_mounted(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session,
                                const struct mg_mounted_store *stores, int n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv id = mg_id_sv(session);
    struct mg_sandbox *box = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_ENV, &id, 1, &r, err);
    if (rc < 0 || mg_res_rows(r) == 0)
        return rc;
    rc = mg_sandbox_acquire_existing(e->opts.sandboxes, pg, id, mg_res_sv(r, 0, 0), &box, err);
    if (rc < 0)
        return rc;
    struct mg_memory *m = mg_memory_new(session, stores, n);
    rc = write_back(e, pg, m, box, err);
    mg_memory_free(m);
    mg_sandbox_release(box);
    return rc;
}

void mg_memory_write_back(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_mounted_store *stores;
    struct mg_err err = {0};
    int n = 0;
    bool writable = false;
    mg_rc rc = mg_mounted_stores(a, pg, mg_id_sv(session), &stores, &n, &err);
    for (int i = 0; i < n && rc >= 0; i++)
        writable = writable || (stores[i].mounted && !stores[i].read_only);
    if (rc >= 0 && writable)
        rc = write_back_mounted(e, pg, session, stores, n, &err);
    if (rc < 0)
        mg_log(MG_WARN, "the last changes of a deleted session's memories are not saved",
               MG_F_STR("session", session->s), MG_F_STR("error", err.text));
}
