/* An evaluation that takes long says that it runs. A run has one timer for it, however many evaluations follow each other. */
#include "run/engine-internal.h"
#include "run/outcome.h"

static mg_rc commit_ongoing(struct mg_run *r, struct mg_pg *pg, bool *ret_runs, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    *ret_runs = s.st.outcome_phase == MG_OUTCOME_GRADE;
    if (!*ret_runs)
        return MG_OK;
    rc = mg_outcome_ongoing(&s, err);
    return rc < 0 ? rc : mg_step_commit(&s, "turn.ongoing", err);
}

static void tick(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    bool runs = false;
    atomic_store(&r->ongoing, false);
    if (mg_cancel_fired(r->cancel) || atomic_load(&r->engine->draining))
        return;
    /* One that could not be written is not worth more than the next. */
    if (commit_ongoing(r, pg, &runs, &err) == MG_OK && runs)
        mg_run_ongoing(r);
}

void mg_run_ongoing(struct mg_run *r)
{
    if (!atomic_exchange(&r->ongoing, true))
        mg_run_after(r, MG_GRADER_ONGOING_MS, tick);
}
