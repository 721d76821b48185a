#include "run/outcome.h"

#include "domain/event.h"
#include "run/turn.h"

static struct mg_sv json_text(struct mg_arena *a, struct mg_sv s)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_str(&w, s);
    return mg_arena_sv(a, mg_buf_view(&b));
}

static void say(struct mg_step *s, struct mg_sv text)
{
    mg_step_transcript(s, false, mg_text_content(s->arena, mg_arena_strdup(s->arena, text)));
}

static struct mg_sv members(struct mg_step *s, const struct mg_outcome *o)
{
    return mg_arena_printf(s->arena, "\"outcome_id\":\"%s\",\"iteration\":%lld", o->id.s, (long long)o->iteration);
}

/* ---- the task ---- */

mg_rc mg_outcome_define(struct mg_step *s, const struct mg_draft *d, const struct mg_id *outcome, const char *place,
                        struct mg_err *err)
{
    if (s->st.outcome_phase != MG_OUTCOME_NONE)
        return mg_err_set(err, MG_ECONFLICT,
                          "%s.type: the session works on another outcome; wait until it ends, or send a user.interrupt",
                          place);
    s->st.outcome_phase = MG_OUTCOME_QUEUED;
    s->st.outcome_seq = s->st.last_seq + s->n_events;
    s->st.queued_inputs++;
    const struct mg_outcome o = {.id = *outcome,
                                 .seq = s->st.outcome_seq,
                                 .description = d->description,
                                 .rubric = d->rubric,
                                 .max_iterations = d->max_iterations};
    return mg_outcome_insert(s->arena, s->t, &s->st.session, &o, err);
}

mg_rc mg_outcome_begin(struct mg_step *s, struct mg_err *err)
{
    struct mg_outcome o;
    mg_rc rc = mg_outcome_open(s->arena, s->t, &s->st.session, &o, err);
    if (rc < 0)
        return rc;
    say(s, mg_arena_printf(
               s->arena,
               "<outcome>\n%.*s\n</outcome>\n<rubric>\n%.*s\n</rubric>\nProduce this outcome. When you are done, "
               "your work is graded by the rubric; if it falls short, you are told why and revise it.",
               MG_SV_ARG(o.description), MG_SV_ARG(o.rubric)));
    s->st.outcome_phase = MG_OUTCOME_WORK;
    return mg_outcome_save(s->arena, s->t, &s->st.session, &o, MG_SV("running"), mg_p_null(), false, err);
}

/* ---- the evaluation ---- */

mg_rc mg_outcome_grade(struct mg_step *s, struct mg_err *err)
{
    struct mg_outcome o;
    mg_rc rc = mg_outcome_open(s->arena, s->t, &s->st.session, &o, err);
    if (rc < 0)
        return rc;
    o.start_event = mg_step_event(s, MG_EV_OUTCOME_START, members(s, &o), true);
    s->st.outcome_phase = MG_OUTCOME_GRADE;
    rc = mg_outcome_save(s->arena, s->t, &s->st.session, &o, MG_SV("evaluating"), mg_p_null(), false, err);
    return rc < 0 ? rc : mg_turn_request(s, false, err);
}

mg_rc mg_outcome_ongoing(struct mg_step *s, struct mg_err *err)
{
    struct mg_outcome o;
    mg_rc rc = mg_outcome_open(s->arena, s->t, &s->st.session, &o, err);
    if (rc == MG_OK)
        mg_step_event(s, MG_EV_OUTCOME_ONGOING, members(s, &o), true);
    return rc;
}

static void end_event(struct mg_step *s, const struct mg_outcome *o, const char *result, struct mg_sv explanation,
                      const struct mg_model_usage *u)
{
    static const struct mg_model_usage none;
    struct mg_sv usage = mg_turn_model_usage(s->arena, u ? u : &none);
    mg_step_event(s, MG_EV_OUTCOME_END,
                  mg_arena_printf(s->arena,
                                  "%.*s,\"outcome_evaluation_start_id\":\"%s\",\"result\":\"%s\",\"explanation\":%.*s,"
                                  "\"usage\":%.*s",
                                  MG_SV_ARG(members(s, o)), o->start_event.s, result,
                                  MG_SV_ARG(json_text(s->arena, explanation)), MG_SV_ARG(usage)),
                  true);
}

/* The evaluation is over, and with it the outcome; what follows is the caller's. */
static mg_rc complete(struct mg_step *s, struct mg_outcome *o, const char *result, struct mg_sv explanation,
                      const struct mg_model_usage *u, struct mg_err *err)
{
    end_event(s, o, result, explanation, u);
    s->st.outcome_phase = MG_OUTCOME_NONE;
    s->st.outcome_seq = 0;
    return mg_outcome_save(s->arena, s->t, &s->st.session, o, mg_sv_of(result), explanation, true, err);
}

/* The agent is told the verdict and goes on; each cycle has a turn's rounds. */
static mg_rc go_on(struct mg_step *s, const char *result, struct mg_sv why, const char *what_now, struct mg_err *err)
{
    say(s, mg_arena_printf(s->arena, "<evaluation result=\"%s\">\n%.*s\n</evaluation>\n%s", result, MG_SV_ARG(why),
                           what_now));
    s->st.turn_round = 0;
    s->st.turn_continues = 0;
    return mg_turn_request(s, false, err);
}

static mg_rc revise(struct mg_step *s, struct mg_outcome *o, struct mg_sv why, const struct mg_model_usage *u,
                    struct mg_err *err)
{
    end_event(s, o, "needs_revision", why, u);
    s->st.outcome_phase = MG_OUTCOME_WORK;
    o->iteration++;
    o->start_event = (struct mg_id){0};
    mg_rc rc = mg_outcome_save(s->arena, s->t, &s->st.session, o, MG_SV("running"), why, false, err);
    return rc < 0 ? rc : go_on(s, "needs_revision", why, "Revise your work so that it meets the rubric.", err);
}

/* One answer more, in which the agent says what it has and what is missing; nobody grades it. */
static mg_rc give_up(struct mg_step *s, struct mg_outcome *o, struct mg_sv why, const struct mg_model_usage *u,
                     struct mg_err *err)
{
    mg_rc rc = complete(s, o, "max_iterations_reached", why, u, err);
    return rc < 0
               ? rc
               : go_on(s, "max_iterations_reached", why,
                       "No further evaluation follows. Say briefly what is done and which criteria are still not met.",
                       err);
}

static struct mg_sv text_of(struct mg_arena *a, const struct mg_model_result *res)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    for (int i = 0; i < res->n_blocks; i++) {
        struct mg_json *v;
        if (res->blocks[i].kind == MG_BLOCK_TEXT &&
            mg_json_parse(a, res->blocks[i].text, &mg_json_raw_limits, &v, NULL) == MG_OK)
            (void)mg_buf_sv(&b, mg_json_str(a, v));
    }
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_outcome_judge(struct mg_step *s, const struct mg_model_result *res, struct mg_err *err)
{
    struct mg_outcome o;
    struct mg_sv why;
    mg_rc rc = mg_outcome_open(s->arena, s->t, &s->st.session, &o, err);
    if (rc < 0)
        return rc;
    switch (mg_outcome_verdict(s->arena, text_of(s->arena, res), &why)) {
    case MG_VERDICT_REVISE:
        return o.iteration + 1 < o.max_iterations ? revise(s, &o, why, &res->usage, err)
                                                  : give_up(s, &o, why, &res->usage, err);
    case MG_VERDICT_SATISFIED:
        rc = complete(s, &o, "satisfied", why, &res->usage, err);
        break;
    case MG_VERDICT_FAILED:
        rc = complete(s, &o, "failed", why, &res->usage, err);
        break;
    }
    return rc < 0 ? rc : mg_turn_finish(s, mg_sv_of(MG_END_TURN), MG_SV(""), err);
}

mg_rc mg_outcome_end(struct mg_step *s, const char *result, const char *explanation, bool all, struct mg_err *err)
{
    struct mg_outcome o;
    bool begun = s->st.outcome_phase == MG_OUTCOME_WORK || s->st.outcome_phase == MG_OUTCOME_GRADE;
    if (s->st.outcome_phase == MG_OUTCOME_NONE || (!begun && !all))
        return MG_OK;
    mg_rc rc = mg_outcome_open(s->arena, s->t, &s->st.session, &o, err);
    return rc < 0 ? rc : complete(s, &o, result, mg_sv_of(explanation), NULL, err);
}
