#include "base/log.h"
#include "run/advisor.h"
#include "run/engine-internal.h"
#include "run/memory.h"
#include "run/turn.h"

/* After a claim, a back-off, or a commit whose outcome is unknown: the session's row says where the turn stands, and it goes on there. A call that was
 * started and has no result is ambiguous: it may have had its effect, so it is reported and never run again. */

static const char ambiguous_text[] = "The server was interrupted while this call was running, and its result was lost. "
                                     "It may or may not have taken effect; it "
                                     "was not run again. Check before you repeat it.";

static const char advisor_text[] = "the server was interrupted while the advisor was asked, and its answer was lost";

static mg_rc settle_started(struct mg_run *r, struct mg_step *s, struct mg_err *err)
{
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_tool_call *calls;
    int n;
    mg_rc rc =
        mg_calls_of_round(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, &res, &calls, &n, err);
    for (int i = 0; rc == MG_OK && i < n; i++) {
        if (calls[i].state != MG_CALL_STARTED || mg_advisor_owns(s, &calls[i]))
            continue;
        calls[i].state = MG_CALL_AMBIGUOUS;
        atomic_fetch_add(&r->engine->n_ambiguous, 1);
        mg_log(MG_WARN, "tool call is ambiguous after a takeover", MG_F_STR("session", s->st.session.s),
               MG_F_STR("call", calls[i].event_id.s));
        rc = mg_turn_answer_call(s, &calls[i], MG_ANSWER_SERVER, mg_text_content(s->arena, ambiguous_text), true, err);
    }
    return rc < 0 ? rc : mg_turn_after_calls(s, calls, n, err);
}

static mg_rc commit_resume(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, bool *ret_owed,
                           struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    *ret_st = s.st;
    *ret_owed = false;
    if (s.st.turn_step == MG_TURN_BACKOFF && s.st.due_in_us > 0)
        return MG_OK; /* not yet */
    if (s.st.turn_step == MG_TURN_BACKOFF) {
        int64_t attempt = s.st.turn_attempt;
        s.st.turn_round--; /* the same request again */
        rc = mg_turn_request(&s, false, err);
        s.st.turn_attempt = attempt;
    } else if (s.st.turn_step == MG_TURN_TOOLS) {
        rc = mg_memory_owed(r, &s, ret_owed, err);
        if (rc < 0 || *ret_owed)
            return rc;
        rc = settle_started(r, &s, err);
    } else if (s.st.turn_step == MG_TURN_MODEL && mg_advisor_turn(&s)) {
        rc = mg_turn_abandon(&s, advisor_text, err);
    } else {
        return MG_OK;
    }
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.resume", err);
    *ret_st = s.st;
    return rc;
}

void mg_run_resume(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    bool owed;
    r->resumed = true;
    mg_rc rc = commit_resume(r, pg, &st, &owed, &err);
    if (rc < 0)
        mg_run_failed(r, rc, &err, mg_run_resume);
    else if (owed)
        mg_memory_catch_up(r);
    else
        mg_run_continue(r, pg, &st);
}
