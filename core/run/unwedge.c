#include "run/turn.h"
#include "run/engine-internal.h"
#include "run/threads.h"

/* For a session that nothing else brings on: no state that the row, the journal or the log may be in is taken for granted here. */

static bool in_wave(const struct mg_step *s, const struct mg_tool_call *c)
{
    bool open = s->st.turn_step == MG_TURN_TOOLS || s->st.turn_step == MG_TURN_ACTION;
    return open && c->round == s->st.transcript_len; /* the end of the turn answers it */
}

/* Calls that no step would look at any more. Those of the last assistant message get their results into the transcript too. */
static mg_rc settle_strays(struct mg_step *s, struct mg_tool_call *open, int n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call *last;
    bool unanswered = false;
    int n_last;
    mg_rc rc = MG_OK;
    for (int i = 0; rc == MG_OK && i < n; i++) {
        struct mg_tool_call *c = &open[i];
        if (in_wave(s, c))
            continue;
        unanswered |= c->round == s->st.transcript_len;
        if (c->state == MG_CALL_STARTED)
            c->state = MG_CALL_AMBIGUOUS;
        rc = mg_turn_answer_call(
            s, c, MG_ANSWER_SERVER,
            mg_text_content(
                s->arena,
                "An operator settled this session while the call was open. Whether it took effect is not known."),
            true, err);
    }
    if (rc < 0 || !unanswered)
        return rc;
    rc =
        mg_calls_of_round(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, &r, &last, &n_last, err);
    if (rc == MG_OK)
        mg_turn_results(s, last, n_last);
    return rc;
}

static mg_rc count_unread(struct mg_step *s, int *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_input_row *rows;
    const struct mg_input_place all = {.session = &s->st.session, .thread = &s->st.thread};
    return mg_events_waiting(s->arena, s->t, &all, &r, &rows, ret, err);
}

mg_rc mg_turn_unwedge(struct mg_step *s, int *ret_calls, bool *ret_changed, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call *open;
    int unread = 0;
    *ret_changed = false;
    mg_rc rc = mg_calls_open(s->arena, s->t, &s->st.session, &s->st.thread, &r, &open, ret_calls, err);
    if (rc == MG_OK)
        rc = count_unread(s, &unread, err);
    if (rc < 0)
        return rc;
    bool still = s->threads || s->st.status == MG_ST_IDLE; /* else others may be what runs */
    if (*ret_calls == 0 && unread == 0 && s->st.turn_step == MG_TURN_NONE && still && s->st.queued_inputs == 0 &&
        s->st.open_actions == 0)
        return MG_OK;
    *ret_changed = true;
    rc = settle_strays(s, open, *ret_calls, err);
    s->st.turn_trigger = 0; /* whatever is unread, also what lies before the present turn */
    s->st.turn_epoch++;
    if (rc == MG_OK)
        rc = mg_turn_abandon(
            s, "an operator settled this session: what was open is closed, and what waited was not tried", err);
    s->st.turn_trigger = s->st.last_seq;
    return rc;
}

mg_rc mg_threads_unwedge(struct mg_step *s, int *ret_calls, bool *ret_changed, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    *ret_calls = 0;
    *ret_changed = false;
    s->threads->silent = true;
    for (int i = s->threads->n - 1; rc == MG_OK && i >= 0; i--) {
        int calls = 0;
        bool changed = false;
        rc = mg_threads_switch(s, i, err);
        if (rc == MG_OK)
            rc = mg_turn_unwedge(s, &calls, &changed, err);
        *ret_calls += calls;
        *ret_changed |= changed;
    }
    return rc;
}
