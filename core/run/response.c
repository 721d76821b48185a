#include "base/log.h"
#include "base/rng.h"
#include "domain/web-tools.h"
#include "run/advisor.h"
#include "run/budget.h"
#include "run/delegate.h"
#include "run/engine-internal.h"
#include "run/outcome.h"
#include "run/outputs.h"
#include "run/remedy.h"
#include "run/server-tools.h"
#include "run/tool-config.h"
#include "run/turn.h"

/* A model's answer (or failure) becomes events, transcript, usage and the next state, in one commit. */

/* ---- failures ---- */

struct fail_class {
    const char *error_type;
    bool retry, terminal;
};

static struct fail_class fail_class_of(enum mg_model_fail f)
{
    switch (f) {
    case MG_MODEL_RETRY_OVERLOADED:
        return (struct fail_class){.error_type = "model_overloaded_error", .retry = true};
    case MG_MODEL_RETRY_RATE:
        return (struct fail_class){.error_type = "model_rate_limited_error", .retry = true};
    case MG_MODEL_RETRY_SERVER:
        return (struct fail_class){.error_type = "model_request_failed_error", .retry = true};
    case MG_MODEL_BILLING:
        return (struct fail_class){.error_type = "billing_error", .terminal = true};
    case MG_MODEL_PERMANENT:
        return (struct fail_class){.error_type = "model_request_failed_error", .terminal = true};
    case MG_MODEL_TOO_LARGE:
        return (struct fail_class){.error_type = "compaction_limit_reached_error"};
    case MG_MODEL_OK:
    case MG_MODEL_CANCELED:
        break;
    }
    return (struct fail_class){.error_type = "model_request_failed_error"};
}

/* 1 s, 2 s, 4 s, or what the endpoint asked for (capped by the client); up to a quarter more, so that sessions do not come back together. */
static int64_t backoff_us(int64_t attempt, uint32_t retry_after_ms)
{
    int64_t ms = retry_after_ms ? retry_after_ms : (int64_t)MG_TURN_BACKOFF_MS << (attempt - 1);
    return (ms + (int64_t)mg_rng_below((uint64_t)ms / 4 + 1)) * 1000;
}

static mg_rc give_up(struct mg_step *s, const char *type, const char *message, bool terminal, struct mg_err *err)
{
    mg_step_event(s, MG_EV_SESSION_ERROR,
                  mg_members_error(s->arena, type, message, terminal ? "terminal" : "exhausted"), true);
    if (!terminal || mg_advisor_turn(s))
        return mg_turn_exhaust(s, err);
    mg_rc rc = s->st.thread.s[0] ? mg_thread_report(s, "failed", err) : MG_OK;
    return rc < 0 ? rc : mg_turn_terminate(s, err);
}

static mg_rc on_failure(struct mg_run *r, struct mg_step *s, const struct mg_model_result *res,
                        const struct mg_remedy *remedy, struct mg_err *err)
{
    struct fail_class c = fail_class_of(res->fail);
    mg_budget_charge(s, r->price, &res->usage);
    mg_turn_request_end(s, true, &res->usage);
    if (remedy->kind != MG_REMEDY_NONE) {
        mg_rc rc = mg_remedy_apply(s, res, remedy, err);
        if (rc < 0 || remedy->kind != MG_REMEDY_LIMIT)
            return rc;
    }
    s->st.turn_attempt++;
    if (c.retry && s->st.turn_attempt < MG_TURN_ATTEMPTS_MAX) {
        atomic_fetch_add(&r->engine->n_retries, 1);
        mg_step_event(s, MG_EV_SESSION_ERROR, mg_members_error(s->arena, c.error_type, res->message, "retrying"), true);
        mg_turn_backoff(s, backoff_us(s->st.turn_attempt, res->retry_after_ms));
        return MG_OK;
    }
    mg_rc rc = mg_turn_take_inputs(s, err);
    if (rc < 0)
        return rc;
    return give_up(s, c.error_type, res->message, c.terminal, err);
}

/* ---- answers ---- */

static bool block_is_empty_text(const struct mg_model_block *b)
{
    return b->kind == MG_BLOCK_TEXT && b->text.len <= 2;
}

/* The assistant's entry: all blocks as they came. with_calls = false leaves the calls out (an answer whose calls must not run and need no result); open
 * = false the endpoint's own that have no result, where none will come. */
static struct mg_sv assistant_content(struct mg_arena *a, const struct mg_model_result *res, bool with_calls, bool open)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    for (int i = 0; i < res->n_blocks; i++) {
        const struct mg_model_block *bl = &res->blocks[i];
        /* The endpoint refuses empty text when it comes back. */
        if (block_is_empty_text(bl) || (bl->kind == MG_BLOCK_TOOL_USE && !with_calls) ||
            (!open && mg_server_tool_open(a, res, i)))
            continue;
        (void)mg_buf_char(&b, b.len ? ',' : '[');
        (void)mg_buf_sv(&b, bl->raw);
    }
    if (b.len == 0)
        return MG_SV("");
    (void)mg_buf_char(&b, ']');
    return mg_arena_sv(a, mg_buf_view(&b));
}

static struct mg_id block_event_id(const struct mg_run *r, int i)
{
    return i < MG_RUN_BLOCKS_MAX && r->block_event[i].s[0] ? r->block_event[i] : mg_id_new("sevt");
}

/* One agent.message of the text blocks from i on; returns the index behind them. */
static int message_event(struct mg_run *r, struct mg_step *s, const struct mg_model_result *res, int i)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    struct mg_id id = block_event_id(r, i);
    bool any = false;
    (void)mg_buf_str(&b, "\"content\":[");
    for (; i < res->n_blocks && res->blocks[i].kind == MG_BLOCK_TEXT; i++) {
        if (block_is_empty_text(&res->blocks[i]))
            continue;
        (void)mg_buf_printf(&b, "%s{\"type\":\"text\",\"text\":", any ? "," : "");
        (void)mg_buf_sv(&b, res->blocks[i].text);
        (void)mg_buf_char(&b, '}');
        any = true;
    }
    (void)mg_buf_char(&b, ']');
    if (any)
        mg_step_event_id(s, &id, MG_EV_AGENT_MESSAGE, mg_arena_sv(s->arena, mg_buf_view(&b)), true);
    return i;
}

static const char *permission_name(enum mg_permission p)
{
    switch (p) {
    case MG_PERM_ALLOW:
        return "allow";
    case MG_PERM_ASK:
        return "ask";
    case MG_PERM_DENY:
        break;
    }
    return "deny";
}

static struct mg_sv call_members(struct mg_arena *a, const struct mg_model_block *b, struct mg_sv input,
                                 const struct mg_tool_rule *rule)
{
    mg_auto(buf) struct mg_buf m = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    (void)mg_buf_str(&m, "\"name\":\"");
    mg_json_escape(&m, rule->kind == MG_CALL_MCP ? rule->tool : b->tool_name);
    (void)mg_buf_str(&m, "\",\"input\":");
    (void)mg_buf_sv(&m, input);
    if (rule->kind == MG_CALL_MCP) {
        (void)mg_buf_str(&m, ",\"mcp_server_name\":\"");
        mg_json_escape(&m, rule->server);
        (void)mg_buf_char(&m, '"');
    }
    if (rule->kind == MG_CALL_BUILTIN || rule->kind == MG_CALL_MCP) {
        enum mg_permission p = rule->known ? rule->permission : MG_PERM_DENY;
        (void)mg_buf_printf(&m, ",\"evaluated_permission\":\"%s\"", permission_name(p));
        if (p != MG_PERM_DENY)
            (void)mg_buf_printf(&m, ",\"evaluation\":{\"type\":\"%s\"}",
                                p == MG_PERM_ASK ? "always_ask" : "always_allow");
    }
    return mg_arena_sv(a, mg_buf_view(&m));
}

/* Why a call is answered at once instead of being run; NULL: it is run. */
static const char *call_refusal(const struct mg_model_block *b, const struct mg_tool_rule *rule, bool cut)
{
    if (cut)
        return "This call was not run: the answer was cut off at its token limit. Send it again in smaller pieces.";
    if (!rule->known && mg_web_tool_of(b->tool_name) >= 0)
        return "This call was not run: the model endpoint runs web tools itself, never by a call of this form.";
    if (!rule->known)
        return "This call was not run: the agent has no tool of this name.";
    if (rule->permission == MG_PERM_DENY)
        return "This call was not run: the tool is disabled for this agent.";
    if (b->tool_input.len == 0)
        return "This call was not run: its input is not a complete JSON object.";
    return NULL;
}

static enum mg_call_wait call_wait(const struct mg_step *s, const struct mg_tool_rule *rule)
{
    if (rule->kind == MG_CALL_AGENT)
        return MG_WAIT_NONE;
    if (rule->kind == MG_CALL_CUSTOM)
        return MG_WAIT_RESULT;
    if (rule->permission == MG_PERM_ASK)
        return MG_WAIT_CONFIRMATION;
    return s->st.self_hosted && rule->kind == MG_CALL_BUILTIN ? MG_WAIT_RESULT : MG_WAIT_NONE;
}

static enum mg_event_type call_type(const struct mg_tool_rule *rule)
{
    if (rule->kind == MG_CALL_MCP)
        return MG_EV_AGENT_MCP_TOOL_USE;
    return rule->kind == MG_CALL_CUSTOM ? MG_EV_AGENT_CUSTOM_TOOL_USE : MG_EV_AGENT_TOOL_USE;
}

struct wave {
    struct mg_tool_call *calls;
    const char **refusals;
    int n;
    const struct mg_json *agent; /* whose calls they are */
};

static void call_event(struct mg_step *s, const struct mg_json *agent, const struct mg_model_block *b, bool cut,
                       struct wave *w)
{
    struct mg_tool_rule rule = mg_tool_rule_of(s->arena, agent, b->tool_name);
    struct mg_sv input = b->tool_input.len ? b->tool_input : MG_SV("{}");
    struct mg_tool_call *c = &w->calls[w->n];
    *c = (struct mg_tool_call){
        .ordinal = w->n,
        .thread = s->st.thread,
        .round = s->st.transcript_len + s->n_entries,
        .kind = rule.kind,
        .name = mg_arena_sv(s->arena, b->tool_name),
        .model_id = mg_arena_sv(s->arena, b->tool_id),
        .input = input,
        .state = MG_CALL_PREPARED,
    };
    w->refusals[w->n] = call_refusal(b, &rule, cut);
    c->waits = w->refusals[w->n] ? MG_WAIT_NONE : call_wait(s, &rule);
    w->n++;
    if (rule.kind == MG_CALL_AGENT) {
        c->event_id = mg_id_new("sevt"); /* clients see what it does, not the call */
        return;
    }
    enum mg_event_type type = call_type(&rule);
    struct mg_sv members = call_members(s->arena, b, input, &rule);
    c->event_id = mg_step_event(s, type, members, true);
    mg_thread_show_call(s, c, type, members);
}

/* Events of all blocks, in their order. The transcript entries are in the step already: a call's round is the transcript's length after them. */
static mg_rc block_events(struct mg_run *r, struct mg_step *s, const struct mg_model_result *res, bool with_calls,
                          bool cut, struct wave *w, struct mg_err *err)
{
    struct mg_json *agent;
    mg_rc rc = mg_json_parse(s->arena, mg_sv_of(r->agent), &mg_json_raw_limits, &agent, err);
    if (rc < 0)
        return rc;
    w->agent = agent;
    w->calls = mg_arena_alloc(s->arena, sizeof(*w->calls) * (size_t)(res->n_blocks + 1));
    w->refusals = mg_arena_alloc(s->arena, sizeof(*w->refusals) * (size_t)(res->n_blocks + 1));
    for (int i = 0; i < res->n_blocks;) {
        const struct mg_model_block *b = &res->blocks[i];
        if (b->kind == MG_BLOCK_TEXT) {
            i = message_event(r, s, res, i);
            continue;
        }
        if (b->kind == MG_BLOCK_THINKING) {
            struct mg_id id = block_event_id(r, i);
            mg_step_event_id(s, &id, MG_EV_AGENT_THINKING, MG_SV(""), true);
        }
        if (b->kind == MG_BLOCK_TOOL_USE && with_calls)
            call_event(s, agent, b, cut, w);
        if (b->kind == MG_BLOCK_OTHER)
            rc = mg_server_tool_event(s, res, i, err);
        if (rc < 0)
            return rc;
        i++;
    }
    return MG_OK;
}

static mg_rc wave_save(struct mg_step *s, struct wave *w, struct mg_err *err)
{
    mg_rc rc = mg_delegate_calls(s, w->agent, w->calls, w->refusals, w->n, err);
    if (rc == MG_OK)
        rc = mg_calls_insert(s->arena, s->t, &s->st.session, s->st.turn_epoch, w->calls, w->n, err);
    for (int i = 0; rc == MG_OK && i < w->n; i++)
        if (w->refusals[i])
            rc = mg_turn_answer_call(s, &w->calls[i], MG_ANSWER_DENIAL, mg_text_content(s->arena, w->refusals[i]), true,
                                     err);
    return rc;
}

enum verdict {
    V_END,       /* the turn is over */
    V_CALLS,     /* calls follow */
    V_CUT_CALLS, /* calls of an answer that was cut: none is run, each is answered */
    V_CONTINUE,  /* the same turn goes on with another request */
    V_BROKEN,    /* an answer that breaks the protocol */
};

static enum verdict verdict_of(const struct mg_model_result *res, const struct mg_session_state *st, int n_calls)
{
    struct mg_sv stop = mg_sv_of(res->stop_reason);
    if (mg_sv_eqz(stop, "tool_use"))
        return n_calls ? V_CALLS : V_BROKEN;
    bool full = mg_sv_eqz(
        stop, "model_context_window_exceeded"); /* cut like at max_tokens; what follows is made smaller first */
    if ((full || mg_sv_eqz(stop, "max_tokens")) && n_calls)
        return st->turn_continues < MG_TURN_CONTINUE_MAX ? V_CUT_CALLS : V_END;
    if (full || mg_sv_eqz(stop, "max_tokens"))
        return st->turn_continues < MG_TURN_CONTINUE_MAX ? V_CONTINUE : V_END;
    /* A turn that is over asks for nothing; a refusal may cut an answer anywhere. */
    if (n_calls && !mg_sv_eqz(stop, "refusal"))
        return V_BROKEN;
    if (mg_sv_eqz(stop, "pause_turn"))
        return st->turn_continues < MG_TURN_PAUSE_MAX ? V_CONTINUE : V_END;
    if (mg_sv_eqz(stop, "end_turn") || mg_sv_eqz(stop, "stop_sequence") || mg_sv_eqz(stop, "refusal"))
        return V_END;
    return V_BROKEN;
}

static mg_rc end_of_turn(struct mg_step *s, const struct mg_model_result *res, struct mg_err *err)
{
    if (strcmp(res->stop_reason, "refusal") == 0)
        return mg_turn_finish(s, MG_SV("{\"type\":\"refusal\"}"), res->stop_details, err);
    return mg_turn_finish(s, mg_sv_of(MG_END_TURN), MG_SV(""), err);
}

static mg_rc after_answer(struct mg_step *s, const struct mg_model_result *res, enum verdict v, struct wave *w,
                          struct mg_err *err)
{
    mg_rc rc;
    switch (v) {
    case V_END:
        return end_of_turn(s, res, err);
    case V_CUT_CALLS:
        s->st.turn_continues++;
        /* fall through */
    case V_CALLS:
        rc = wave_save(s, w, err);
        return rc < 0 ? rc : mg_turn_after_calls(s, w->calls, w->n, err);
    case V_CONTINUE:
        s->st.turn_continues++;
        if (strcmp(res->stop_reason, "pause_turn") != 0)
            mg_step_transcript(
                s, false,
                mg_text_content(s->arena,
                                "Your answer was cut off at its token limit. Go on exactly where it stopped."));
        return mg_turn_request(s, false, err);
    case V_BROKEN:
        break;
    }
    return give_up(
        s, "model_request_failed_error",
        mg_arena_strdup(
            s->arena,
            mg_arena_printf(s->arena, "the model's answer ended with stop_reason '%s', which does not fit its content",
                            res->stop_reason)),
        false, err);
}

static int count_calls(const struct mg_model_result *res)
{
    int n = 0;
    for (int i = 0; i < res->n_blocks; i++)
        n += res->blocks[i].kind == MG_BLOCK_TOOL_USE;
    return n;
}

/* The window was full before the answer was: the next request is compacted, and later ones stay below. */
static mg_rc note_full(const struct mg_run *r, struct mg_step *s, struct mg_err *err)
{
    const struct mg_context_mark m = {
        .kind = MG_MARK_REFUSED, .made_at = s->st.transcript_len, .turn = s->st.turn_trigger, .a = r->request_tokens};
    return mg_context_mark_add(s->arena, s->t, &s->st.session, &s->st.thread, &m, err);
}

static mg_rc on_answer(struct mg_run *r, struct mg_step *s, const struct mg_model_result *res, struct mg_err *err)
{
    struct wave w = {0};
    /* An advisor is asked once: what it said is its answer. */
    enum verdict v = r->advising ? V_END : verdict_of(res, &s->st, count_calls(res));
    bool with_calls = v == V_CALLS || v == V_CUT_CALLS;
    if (r->user_content)
        mg_step_transcript(s, false, mg_sv_of(r->user_content));
    struct mg_sv content = assistant_content(
        s->arena, res, with_calls, v == V_CALLS || (v == V_CONTINUE && strcmp(res->stop_reason, "pause_turn") == 0));
    if (content.len) {
        mg_step_transcript(s, true, content);
        mg_step_measured(s, mg_model_usage_tokens(&res->usage), r->fixed);
    }
    mg_rc rc = mg_events_mark(s->arena, s->t, &s->st.session, r->inputs, r->n_inputs, s->now_us, err);
    if (rc == MG_OK)
        rc = block_events(r, s, res, with_calls, v == V_CUT_CALLS, &w, err);
    if (rc < 0)
        return rc;
    mg_budget_charge(s, r->price, &res->usage);
    mg_turn_request_end(s, false, &res->usage);
    s->st.turn_attempt = 0;
    if (strcmp(res->stop_reason, "model_context_window_exceeded") == 0)
        rc = note_full(r, s, err);
    if (v == V_END || v == V_BROKEN)
        mg_outputs_say(r, s);
    return rc < 0 ? rc : after_answer(s, res, v, &w, err);
}

static mg_rc on_verdict(const struct mg_run *r, struct mg_step *s, const struct mg_model_result *res,
                        struct mg_err *err)
{
    mg_budget_charge(s, r->price, &res->usage);
    mg_turn_request_end(s, false, &res->usage);
    s->st.turn_attempt = 0;
    return mg_outcome_judge(s, res, err);
}

/* ---- the commit ---- */

static mg_rc commit_response(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    struct mg_remedy remedy;
    mg_rc rc = mg_remedy_find(r, pg, a, &remedy, err);
    if (rc == MG_OK)
        rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    /* A commit whose answer was lost may have moved the turn on. */
    if (s.st.turn_step == MG_TURN_MODEL && strcmp(s.st.request_id.s, r->request_id.s) == 0) {
        if (r->grading && r->result->fail == MG_MODEL_OK)
            rc = on_verdict(r, &s, r->result, err);
        else if (r->result->fail == MG_MODEL_OK)
            rc = on_answer(r, &s, r->result, err);
        else
            rc = on_failure(r, &s, r->result, &remedy, err);
        if (rc == MG_OK)
            rc = mg_step_commit(&s, r->result->fail == MG_MODEL_OK ? "turn.response" : "turn.failure", err);
    }
    *ret_st = s.st;
    return rc;
}

void mg_run_response(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    if (r->result->fail == MG_MODEL_CANCELED) {
        mg_run_drop(r);
        return;
    }
    if (mg_outputs_first(r))
        return;
    mg_rc rc = commit_response(r, pg, &st, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_response);
        return;
    }
    mg_model_result_free(r->result);
    r->result = NULL;
    mg_outputs_committed(r);
    if (st.turn_step == MG_TURN_NONE || st.turn_step == MG_TURN_ACTION)
        atomic_fetch_add(&r->engine->n_turns, 1);
    mg_run_continue(r, pg, &st);
}
