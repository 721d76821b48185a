#include "run/turn.h"

#include "base/clock.h"
#include "model/model.h"
#include "run/advisor.h"
#include "run/budget.h"
#include "run/delegate.h"
#include "run/engine-internal.h"
#include "run/outcome.h"
#include "run/threads.h"
#include "run/work.h"

const char MG_END_TURN[] = "{\"type\":\"end_turn\"}";

void mg_turn_claim(struct mg_step *s)
{
    s->st.turn_epoch++;
    if (s->threads && s->st.turn_node.s[0])
        return; /* whoever runs the session's other threads runs this one too */
    pthread_mutex_lock(&s->engine->lock);
    s->st.turn_node = s->engine->node;
    pthread_mutex_unlock(&s->engine->lock);
}

void mg_turn_running(struct mg_step *s)
{
    if (s->threads) {
        mg_threads_run(s);
        return;
    }
    if (s->st.status == MG_ST_RUNNING)
        return;
    s->st.status = MG_ST_RUNNING;
    mg_step_event(s, MG_EV_STATUS_RUNNING, MG_SV(""), true);
}

mg_rc mg_turn_request(struct mg_step *s, bool first, struct mg_err *err)
{
    if (first) {
        s->st.turn_round = 0;
        s->st.turn_continues = 0;
    }
    if (mg_budget_reached(&s->st))
        return mg_budget_pause(s, err);
    mg_turn_running(s);
    s->st.turn_round++;
    s->st.turn_attempt = 0;
    s->st.turn_step = MG_TURN_MODEL;
    s->st.request_id = mg_step_event(s, MG_EV_MODEL_REQUEST_START, MG_SV(""), true);
    return MG_OK;
}

struct mg_sv mg_turn_model_usage(struct mg_arena *a, const struct mg_model_usage *u)
{
    return mg_arena_printf(a,
                           "{\"input_tokens\":%lld,\"output_tokens\":%lld,\"cache_creation_input_tokens\":%lld,"
                           "\"cache_read_input_tokens\":%lld}",
                           (long long)u->input_tokens, (long long)u->output_tokens,
                           (long long)u->cache_creation_input_tokens, (long long)u->cache_read_input_tokens);
}

void mg_turn_request_end(struct mg_step *s, bool is_error, const struct mg_model_usage *usage)
{
    static const struct mg_model_usage none;
    const struct mg_model_usage *u = usage ? usage : &none;
    struct mg_sv members =
        mg_arena_printf(s->arena, "\"model_request_start_id\":\"%s\",\"is_error\":%s,\"model_usage\":%.*s",
                        s->st.request_id.s, is_error ? "true" : "false", MG_SV_ARG(mg_turn_model_usage(s->arena, u)));
    mg_step_event(s, MG_EV_MODEL_REQUEST_END, members, true);
    s->st.add_input += u->input_tokens;
    s->st.add_output += u->output_tokens;
    s->st.add_cache_read += u->cache_read_input_tokens;
    s->st.add_cache_5m += u->cache_5m;
    s->st.add_cache_1h += u->cache_1h;
    s->st.add_web_search += u->web_search_requests;
    s->st.add_web_fetch += u->web_fetch_requests;
}

/* The oldest waiting message: in the log, else among the events that this step adds. */
static mg_rc next_trigger(struct mg_step *s, int64_t *ret, struct mg_err *err)
{
    *ret = 0;
    /* A fresh session's messages, and those of an idle one, are all in this step. */
    int here = 0;
    for (int i = 0; i < s->n_events; i++)
        here += s->events[i].type == MG_EV_USER_MESSAGE && !s->events[i].processed;
    if (here < s->st.queued_inputs) {
        mg_rc rc = mg_events_next_message(s->arena, s->t, &s->st.session, s->st.turn_trigger, ret, err);
        if (rc < 0 || *ret)
            return rc;
    }
    for (int i = 0; i < s->n_events && !*ret; i++)
        if (s->events[i].type == MG_EV_USER_MESSAGE && !s->events[i].processed &&
            s->st.last_seq + i + 1 > s->st.turn_trigger)
            *ret = s->st.last_seq + i + 1;
    return MG_OK;
}

/* An outcome that waits has its place in the queue too. */
static mg_rc start_outcome(struct mg_step *s, struct mg_err *err)
{
    s->st.queued_inputs--;
    s->st.turn_trigger = s->st.outcome_seq;
    mg_rc rc = mg_outcome_begin(s, err);
    return rc < 0 ? rc : mg_turn_request(s, true, err);
}

static mg_rc start_queued(struct mg_step *s, struct mg_err *err)
{
    int64_t seq = 0, last = 0;
    int n = 1;
    mg_rc rc = s->threads ? mg_threads_next_inputs(s, &seq, &last, &n, err) : next_trigger(s, &seq, err);
    if (rc < 0)
        return rc;
    if (s->st.outcome_phase == MG_OUTCOME_QUEUED && (seq == 0 || s->st.outcome_seq < seq))
        return start_outcome(s, err);
    if (seq == 0)
        return mg_err_set(err, MG_EINTERNAL, "session '%s' counts queued messages that its log does not hold",
                          s->st.session.s);
    s->st.queued_inputs -= n;
    s->st.turn_trigger = seq;
    s->st.turn_upto = last;
    return mg_turn_request(s, true, err);
}

mg_rc mg_turn_start(struct mg_step *s, struct mg_err *err)
{
    mg_turn_claim(s);
    return start_queued(s, err);
}

void mg_turn_status_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details)
{
    mg_step_post(s, NULL, MG_EV_STATUS_IDLE,
                 mg_arena_printf(s->arena, "\"stop_reason\":%.*s,\"stop_details\":%.*s", MG_SV_ARG(stop_reason),
                                 MG_SV_ARG(details)),
                 true);
    s->st.status = MG_ST_IDLE;
    s->st.turn_node = (struct mg_id){0};
}

mg_rc mg_turn_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details, struct mg_err *err)
{
    struct mg_sv d = details.len ? details : MG_SV("null");
    s->st.turn_step = MG_TURN_NONE;
    s->st.request_id = (struct mg_id){0};
    if (s->threads)
        return mg_threads_idle(s, stop_reason, d, err);
    mg_turn_status_idle(s, stop_reason, d);
    return MG_OK;
}

mg_rc mg_turn_finish(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details, struct mg_err *err)
{
    if (mg_advisor_turn(s))
        return mg_advisor_done(s, stop_reason, details, err);
    if (s->st.thread.s[0]) {
        mg_rc rc = mg_thread_report(s, NULL, err);
        if (rc < 0)
            return rc;
    }
    if (s->st.queued_inputs > 0)
        return start_queued(s, err);
    if (s->st.outcome_phase == MG_OUTCOME_WORK && mg_sv_eqz(stop_reason, MG_END_TURN))
        return mg_outcome_grade(s, err);
    mg_rc rc = mg_outcome_end(s, "failed", "The agent's turn ended before its work could be evaluated.", false, err);
    if (rc < 0)
        return rc;
    if (!mg_budget_reached(&s->st) || !mg_sv_eqz(stop_reason, MG_END_TURN))
        return mg_turn_idle(s, stop_reason, details, err);
    rc = mg_budget_event(s, err);
    return rc < 0 ? rc : mg_turn_idle(s, mg_sv_of(MG_BUDGET_STOP), MG_SV(""), err);
}

void mg_turn_backoff(struct mg_step *s, int64_t due_in_us)
{
    s->st.turn_step = MG_TURN_BACKOFF;
    s->st.due_in_us = due_in_us;
    if (s->threads) {
        mg_threads_reschedule(s);
        return;
    }
    mg_step_event(s, MG_EV_STATUS_RESCHEDULED, MG_SV(""), true);
    s->st.status = MG_ST_RESCHEDULING;
}

mg_rc mg_turn_terminate(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = mg_events_mark_all(s->arena, s->t, &s->st.session, &s->st.thread, s->st.last_seq, s->now_us, err);
    if (rc == MG_OK)
        rc = mg_outcome_end(s, "failed", "The session ended before the work could be evaluated.", true, err);
    if (rc < 0)
        return rc;
    s->st.queued_inputs = 0;
    s->st.open_actions = 0;
    s->st.turn_step = MG_TURN_NONE;
    if (s->st.thread.s[0])
        return mg_thread_end(s, err);
    if (s->threads)
        rc = mg_threads_end_children(s, err);
    mg_step_event(s, MG_EV_STATUS_TERMINATED, MG_SV(""), true);
    s->st.status = MG_ST_TERMINATED;
    s->st.turn_node = (struct mg_id){0};
    return rc;
}

struct mg_sv mg_text_content(struct mg_arena *a, const char *text)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "text");
    mg_jw_kstrz(&w, "text", text);
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

/* ---- inputs ---- */

struct mg_sv mg_turn_user_content(struct mg_arena *a, const struct mg_sv *types, const struct mg_sv *bodies, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    for (int i = 0; i < n; i++) {
        struct mg_json *v;
        if (mg_json_parse(a, bodies[i], &mg_json_raw_limits, &v, NULL) < 0)
            continue; /* checked when it was accepted */
        struct mg_sv inside = mg_json_inside(mg_json_get_raw(v, "content"));
        if (inside.len == 0)
            continue;
        bool system = mg_sv_eqz(types[i], "system.message");
        (void)mg_buf_str(&b, b.len ? "," : "[");
        if (mg_sv_eqz(types[i], "agent.thread_message_received")) {
            mg_thread_message_content(a, v, inside, &b);
            continue;
        }
        if (system)
            (void)mg_buf_str(&b, "{\"type\":\"text\",\"text\":\"<system-message>\"},");
        (void)mg_buf_sv(&b, inside);
        if (system)
            (void)mg_buf_str(&b, ",{\"type\":\"text\",\"text\":\"</system-message>\"}");
    }
    if (b.len == 0)
        return MG_SV("");
    (void)mg_buf_char(&b, ']');
    return mg_arena_sv(a, mg_buf_view(&b));
}

static struct mg_input_place input_place(const struct mg_step *s)
{
    return (struct mg_input_place){
        .session = &s->st.session, .thread = &s->st.thread, .trigger = s->st.turn_trigger, .upto = s->st.turn_upto};
}

/* One user entry of these inputs, which are processed with it. */
static mg_rc take(struct mg_step *s, const struct mg_input_row *rows, int n, struct mg_err *err)
{
    struct mg_sv *types = mg_arena_alloc(s->arena, sizeof(*types) * 2 * (size_t)n);
    struct mg_sv *bodies = types + n;
    int64_t *seqs = mg_arena_alloc(s->arena, sizeof(*seqs) * (size_t)n);
    for (int i = 0; i < n; i++) {
        types[i] = rows[i].type;
        bodies[i] = rows[i].body;
        seqs[i] = rows[i].seq;
    }
    struct mg_sv content = mg_turn_user_content(s->arena, types, bodies, n);
    if (content.len)
        mg_step_transcript(s, false, content);
    return mg_events_mark(s->arena, s->t, &s->st.session, seqs, n, s->now_us, err);
}

mg_rc mg_turn_take_inputs(struct mg_step *s, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_input_row *rows;
    int n;
    const struct mg_input_place at = input_place(s);
    mg_rc rc = mg_events_inputs(s->arena, s->t, &at, &r, &rows, &n, err);
    return rc < 0 || n == 0 ? rc : take(s, rows, n, err);
}

/* Messages that this very step admitted are not in the log yet. */
static void take_admitted(struct mg_step *s)
{
    for (int i = 0; i < s->n_events; i++) {
        struct mg_event_row *e = &s->events[i];
        bool input = e->type == MG_EV_USER_MESSAGE || e->type == MG_EV_SYSTEM_MESSAGE ||
                     e->type == MG_EV_THREAD_MESSAGE_RECEIVED;
        if (e->processed || !input || strcmp(e->thread.s, s->st.thread.s) != 0)
            continue;
        struct mg_sv type = mg_sv_of(mg_event_type_name(e->type));
        struct mg_sv content = mg_turn_user_content(s->arena, &type, &e->body, 1);
        if (content.len)
            mg_step_transcript(s, false, content);
        e->processed = true;
    }
}

mg_rc mg_turn_exhaust(struct mg_step *s, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_input_row *rows;
    int n;
    const struct mg_input_place at = input_place(s);
    mg_rc rc = s->threads && s->threads->cur == 0 ? mg_advisors_stop(s, err) : MG_OK;
    if (rc == MG_OK)
        rc = mg_events_waiting(s->arena, s->t, &at, &r, &rows, &n, err);
    for (int i = 0, next; rc == MG_OK && i < n; i = next) {
        for (next = i + 1; next < n && mg_sv_eqz(rows[next].type, "system.message"); next++)
            ;
        rc = take(s, &rows[i], next - i, err);
    }
    if (rc < 0)
        return rc;
    take_admitted(s);
    rc = mg_outcome_end(s, "failed", "The agent's turn failed before its work could be evaluated.", true, err);
    if (rc < 0)
        return rc;
    s->st.queued_inputs = 0;
    s->st.open_actions = 0;
    if (mg_advisor_turn(s))
        return mg_advisor_failed(s, err);
    bool child = s->st.thread.s[0] != '\0';
    if (child)
        rc = mg_thread_report(s, "failed", err);
    if (rc == MG_OK)
        rc = mg_turn_idle(s, MG_SV("{\"type\":\"retries_exhausted\"}"), MG_SV(""), err);
    return rc < 0 || !child ? rc : mg_thread_end(s, err);
}

/* ---- tool calls ---- */

static struct mg_sv results_content(struct mg_arena *a, const struct mg_tool_call *calls, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_arr(&w);
    for (int i = 0; i < n; i++) {
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "tool_result");
        mg_jw_kstr(&w, "tool_use_id", calls[i].model_id);
        mg_jw_kraw(&w, "content", calls[i].result);
        if (calls[i].is_error)
            mg_jw_kbool(&w, "is_error", true);
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

void mg_turn_results(struct mg_step *s, const struct mg_tool_call *calls, int n)
{
    if (n)
        mg_step_transcript(s, false, results_content(s->arena, calls, n));
}

static struct mg_sv requires_action(struct mg_arena *a, const struct mg_tool_call *calls, int n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "requires_action");
    mg_jw_key(&w, "event_ids");
    mg_jw_arr(&w);
    for (int i = 0; i < n; i++)
        if (calls[i].waits != MG_WAIT_NONE)
            mg_jw_str(&w, mg_id_sv(&calls[i].event_id));
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return mg_arena_sv(a, mg_buf_view(&b));
}

mg_rc mg_turn_after_calls(struct mg_step *s, const struct mg_tool_call *calls, int n, struct mg_err *err)
{
    int runnable = 0, waiting = 0, working = 0;
    for (int i = 0; i < n; i++) {
        runnable +=
            calls[i].waits == MG_WAIT_NONE && (calls[i].state == MG_CALL_PREPARED || calls[i].state == MG_CALL_STARTED);
        waiting += calls[i].waits != MG_WAIT_NONE;
        working += mg_work_is_call(s, &calls[i]);
        s->waits_worker |= s->st.self_hosted && calls[i].waits == MG_WAIT_RESULT;
    }
    s->st.open_actions = waiting;
    if (runnable) {
        mg_turn_running(s);
        s->st.turn_step = MG_TURN_TOOLS;
        return MG_OK;
    }
    /* A worker's business: the session runs, as it does while the server runs a call. With threads the others may be of interest to clients. */
    if (working && !s->threads) {
        mg_turn_running(s);
        s->st.turn_step = MG_TURN_ACTION;
        s->st.turn_node = (struct mg_id){0};
        return MG_OK;
    }
    if (waiting) {
        mg_rc rc = mg_turn_idle(s, requires_action(s->arena, calls, n), MG_SV(""), err);
        s->st.turn_step = MG_TURN_ACTION;
        return rc;
    }
    mg_turn_results(s, calls, n);
    if (s->st.turn_round >= MG_TURN_ROUNDS_MAX) {
        mg_step_event(s, MG_EV_SESSION_ERROR,
                      mg_members_error(s->arena, "tool_use_limit_reached_error",
                                       "the turn reached its limit of 200 model requests", "exhausted"),
                      true);
        return mg_turn_exhaust(s, err);
    }
    return mg_turn_request(s, false, err);
}

mg_rc mg_turn_answer_call(struct mg_step *s, struct mg_tool_call *c, enum mg_answer_by by, struct mg_sv content,
                          bool is_error, struct mg_err *err)
{
    enum mg_event_type type = MG_EV_AGENT_TOOL_RESULT;
    const char *ref = "tool_use_id";
    if (c->kind == MG_CALL_CUSTOM) {
        type = MG_EV_USER_CUSTOM_TOOL_RESULT;
        ref = "custom_tool_use_id";
    } else if (c->kind == MG_CALL_MCP) {
        type = MG_EV_AGENT_MCP_TOOL_RESULT;
        ref = "mcp_tool_use_id";
    } else if (s->st.self_hosted && by == MG_ANSWER_SERVER) {
        type = MG_EV_USER_TOOL_RESULT;
    }
    c->result = content;
    c->is_error = is_error;
    c->waits = MG_WAIT_NONE;
    if (c->state != MG_CALL_AMBIGUOUS)
        c->state = MG_CALL_COMPLETED;
    if (c->kind == MG_CALL_AGENT)
        return mg_call_save(s->arena, s->t, &s->st.session, s->st.turn_epoch, c, err); /* no event tells of it */
    mg_thread_show_result(s, c, type, ref);
    c->result_event = mg_step_event(s, type,
                                    mg_arena_printf(s->arena, "\"%s\":\"%s\",\"content\":%.*s,\"is_error\":%s", ref,
                                                    c->event_id.s, MG_SV_ARG(content), is_error ? "true" : "false"),
                                    true);
    return mg_call_save(s->arena, s->t, &s->st.session, s->st.turn_epoch, c, err);
}

/* ---- interrupts ---- */

static mg_rc interrupt_calls(struct mg_step *s, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call *calls = NULL;
    int n = 0;
    mg_rc rc = s->threads && s->threads->cur == 0 ? mg_advisors_stop(s, err) : MG_OK;
    if (rc == MG_OK)
        rc =
            mg_calls_of_round(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, &r, &calls, &n, err);
    for (int i = 0; rc == MG_OK && i < n; i++) {
        struct mg_tool_call *c = &calls[i];
        if (c->state == MG_CALL_COMPLETED || c->state == MG_CALL_AMBIGUOUS)
            continue;
        bool started = c->state == MG_CALL_STARTED;
        const char *text = started ? "Interrupted while the call was running, before its result was recorded. What it "
                                     "had done by then is not known, and it "
                                     "was not run again."
                                   : "Interrupted before the call was run. It was not run.";
        if (started)
            c->state = MG_CALL_AMBIGUOUS;
        rc = mg_turn_answer_call(s, c, MG_ANSWER_SERVER, mg_text_content(s->arena, text), true, err);
    }
    if (rc < 0)
        return rc;
    s->st.open_actions = 0;
    mg_turn_results(s, calls, n);
    return mg_turn_take_inputs(s, err); /* a system.message behind a result that was only a part */
}

/* Ends what the present step does, with a legal transcript, and fences its runner. */
static mg_rc close_step(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    switch (s->st.turn_step) {
    case MG_TURN_NONE:
        return MG_OK;
    case MG_TURN_MODEL:
        mg_turn_request_end(s, true, NULL);
        rc = mg_turn_take_inputs(s, err);
        break;
    case MG_TURN_BACKOFF:
    case MG_TURN_PAUSED:
        rc = mg_turn_take_inputs(s, err);
        break;
    case MG_TURN_TOOLS:
    case MG_TURN_ACTION:
        rc = interrupt_calls(s, err);
        break;
    }
    s->st.turn_epoch++;
    return rc;
}

mg_rc mg_turn_interrupt(struct mg_step *s, struct mg_err *err)
{
    if (s->st.turn_step == MG_TURN_NONE)
        return MG_OK;
    mg_rc rc = close_step(s, err);
    if (rc == MG_OK)
        rc = mg_outcome_end(s, "interrupted", "The user interrupted the session.", false, err);
    if (rc == MG_OK && mg_advisor_turn(s))
        return mg_advisor_stopped(s, err);
    return rc < 0 ? rc : mg_turn_idle(s, mg_sv_of(MG_END_TURN), MG_SV(""), err);
}

mg_rc mg_turn_abandon(struct mg_step *s, const char *why, struct mg_err *err)
{
    mg_step_event(s, MG_EV_SESSION_ERROR, mg_members_error(s->arena, "unknown_error", why, "exhausted"), true);
    mg_rc rc = close_step(s, err);
    return rc < 0 ? rc : mg_turn_exhaust(s, err);
}
