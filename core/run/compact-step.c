/* The steps of a compaction. The request for a summary takes the place of the turn's request: its span ends with what it used, the mark is written,
 * and the turn's request gets a span of its own, in one commit. */
#include "base/log.h"
#include "run/assemble.h"
#include "run/budget.h"
#include "run/turn.h"

static void note(const struct mg_run *r, const struct mg_assembly *x, const char *how)
{
    atomic_fetch_add(&r->engine->n_compactions, 1);
    mg_log(MG_INFO, "context compacted", MG_F_STR("session", r->session.s), MG_F_STR("how", how),
           MG_F_INT("tokens", x->compact.before), MG_F_INT("window", x->context.window.tokens),
           MG_F_INT("told", x->compact.upto));
}

/* The block that stands for what goes; that of before when only excerpts are new. */
static struct mg_sv content_of(struct mg_assembly *x, struct mg_sv notes)
{
    if (x->compact.how != MG_COMPACT_EXCERPT)
        return mg_compact_summary(&x->context, x->compact.n, notes);
    return x->context.summary ? x->context.summary->content : MG_SV("");
}

static mg_rc commit_local(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                          struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc == MG_OK && s.st.turn_step != MG_TURN_MODEL)
        rc = mg_err_set(err, MG_EFENCED, "the turn moved on");
    if (rc == MG_OK)
        rc = mg_compact_commit(&s, &x->compact, content_of(x, MG_SV("")), err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.compact", err);
    *ret_st = s.st;
    return rc;
}

mg_rc mg_run_compact_local(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                           struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_rc rc = commit_local(r, pg, a, x, ret_st, err);
    if (rc == MG_OK)
        note(r, x, x->compact.how == MG_COMPACT_EXTRACT ? "extract" : "excerpts");
    return rc;
}

static mg_rc commit_asked(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_session_state *ret_st,
                          struct mg_err *err)
{
    const struct mg_model_result *res = r->result;
    mg_auto(assembly) struct mg_assembly x = {0};
    mg_auto(step) struct mg_step s = {0};
    bool told = res->fail == MG_MODEL_OK && strcmp(res->stop_reason, "refusal") != 0;
    mg_rc rc = mg_assemble(r, pg, a, &x, err);
    if (rc == MG_OK)
        rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    *ret_st = s.st;
    /* A commit whose answer was lost may have been made: then the request is another one. Other tools may have come meanwhile, and with them another plan:
     * notes never stand for more than the model has read. */
    if (s.st.turn_step != MG_TURN_MODEL || strcmp(s.st.request_id.s, r->request_id.s) != 0 ||
        x.compact.how != MG_COMPACT_ASK || x.compact.upto != r->told)
        return MG_OK;
    mg_budget_charge(&s, r->price, &res->usage);
    mg_turn_request_end(&s, res->fail != MG_MODEL_OK, &res->usage);
    rc = mg_compact_commit(&s, &x.compact, content_of(&x, told ? mg_compact_notes(a, res) : MG_SV("")), err);
    if (rc < 0)
        return rc;
    s.st.turn_round--; /* no round of the turn's */
    rc = mg_turn_request(&s, false, err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.compact", err);
    if (rc == MG_OK)
        note(r, &x, told ? "summary" : "extract");
    *ret_st = s.st;
    return rc;
}

void mg_run_compacted(struct mg_run *r, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err = {0};
    struct mg_session_state st;
    mg_rc rc = commit_asked(r, pg, a, &st, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_compacted);
        return;
    }
    mg_model_result_free(r->result);
    r->result = NULL;
    mg_run_continue(r, pg, &st);
}
