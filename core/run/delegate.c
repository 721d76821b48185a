#include "run/delegate.h"

#include "domain/multiagent.h"
#include "run/advisor.h"
#include "run/engine-internal.h"
#include "run/inline-agent.h"
#include "run/turn.h"

static const char LIST[] = "list_agents", SEND[] = "send_to_agent";

/* ---- the roster ---- */

static const struct mg_json *enabled(struct mg_arena *a, const struct mg_json *v)
{
    return mg_sv_eqz(mg_json_get_str(a, v, "type"), "enabled") ? v : NULL;
}

static const struct mg_json *agent_from(struct mg_arena *a, const struct mg_json *e)
{
    while (e && mg_sv_eqz(mg_json_get_str(a, e, "type"), "advisor"))
        e = e->next;
    return e;
}

const struct mg_json *mg_roster_first(struct mg_arena *a, const struct mg_json *agent)
{
    const struct mg_json *m = mg_json_get(agent, "multiagent");
    if (!mg_json_is(m, MG_JSON_OBJECT))
        return NULL;
    const struct mg_json *agents = mg_sv_eqz(mg_json_get_str(a, m, "type"), "coordinator")
                                       ? mg_json_get(m, "agents")
                                       : mg_json_get(enabled(a, mg_json_get(m, "subagents")), "predefined_agents");
    return agent_from(a, agents ? agents->child : NULL);
}

const struct mg_json *mg_roster_next(struct mg_arena *a, const struct mg_json *entry)
{
    return agent_from(a, entry->next);
}

static bool delegates(struct mg_arena *a, const struct mg_json *agent)
{
    return mg_roster_first(a, agent) || mg_inline_allowed(a, agent);
}

bool mg_delegate_known(struct mg_arena *a, const struct mg_json *agent, struct mg_sv name)
{
    if (mg_sv_eqz(name, MG_ADVISOR_TOOL))
        return mg_advisor_of(a, agent);
    return (mg_sv_eqz(name, LIST) || mg_sv_eqz(name, SEND)) && delegates(a, agent);
}

/* Read by the model at every request: a text that changes costs every session its cached prefix once. */
static const char LIST_DEFINITION[] =
    "{\"name\":\"list_agents\",\"description\":\"Lists the agents that you can give tasks to, and the threads that you "
    "have started with them: each thread's id, agent and status.\",\"input_schema\":{\"type\":\"object\","
    "\"properties\":{},\"additionalProperties\":false}}";
static const char SEND_DEFINITION[] =
    "{\"name\":\"send_to_agent\",\"description\":\"Sends a message to an agent and returns at once. Without "
    "session_thread_id it starts a new thread with the agent of that name; with it the message continues that thread, "
    "which remembers what was said in it. The agent works on its own, in the same file system, and its final message "
    "comes back to you as a new message when it is done.\",\"input_schema\":{\"type\":\"object\",\"properties\":{"
    "\"agent_name\":{\"type\":\"string\",\"description\":\"The agent's name, as list_agents gives it.\"},"
    "\"message\":{\"type\":\"string\",\"description\":\"The whole task: the agent knows nothing of your conversation."
    "\"},\"session_thread_id\":{\"type\":\"string\",\"description\":\"An existing thread of this agent; leave it out "
    "to start a new one.\"}},\"required\":[\"agent_name\",\"message\"],\"additionalProperties\":false}}";

void mg_delegate_definitions(struct mg_arena *a, const struct mg_json *agent, struct mg_jw *w)
{
    if (delegates(a, agent)) {
        mg_jw_raw(w, MG_SV(LIST_DEFINITION));
        mg_jw_raw(w, mg_sv_of(mg_inline_allowed(a, agent) ? MG_INLINE_SEND_DEFINITION : SEND_DEFINITION));
    }
    if (mg_advisor_of(a, agent))
        mg_jw_raw(w, mg_sv_of(MG_ADVISOR_DEFINITION));
}

static const char SYSTEM[] =
    "You can give tasks to other agents with send_to_agent; list_agents names them. They run at the same time as you "
    "and as each other, and see neither your conversation nor the others': put all that an agent needs into its "
    "message. A message between <agent_message> and </agent_message> comes from an agent, not from the user. Each "
    "finished task reaches you as such a message and gives you a turn; when you have nothing to do until then, end "
    "your turn. If a task needs another one's result, send it when you have that result. Answer the user when all that "
    "the answer needs has come back.";
static const char INLINE_SYSTEM[] =
    " When none of them fits a task, define an agent for it yourself, with inline_agent of send_to_agent.";

struct mg_sv mg_delegate_system(struct mg_arena *a, const struct mg_json *agent, struct mg_sv system)
{
    if (!delegates(a, agent))
        return system;
    const char *more = mg_inline_allowed(a, agent) ? INLINE_SYSTEM : "";
    if (system.len <= 2)
        return mg_arena_printf(a, "\"%s%s\"", SYSTEM, more);
    return mg_arena_printf(a, "%.*s\\n\\n%s%s\"", (int)(system.len - 1), system.ptr, SYSTEM, more);
}

/* ---- messages ---- */

static void put_name(struct mg_buf *b, const char *key, struct mg_sv name)
{
    (void)mg_buf_printf(b, ",\"%s\":\"", key);
    mg_json_escape(b, name);
    (void)mg_buf_char(b, '"');
}

mg_rc mg_delegate_post(struct mg_step *s, int to, struct mg_sv content, bool taken, struct mg_err *err)
{
    int from = s->threads->cur;
    const struct mg_id from_id = mg_threads_id(s, from), to_id = mg_threads_id(s, to);
    mg_auto(buf) struct mg_buf sent = MG_BUF_INIT(MG_STEP_EVENT_BYTES), got = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    (void)mg_buf_printf(&sent, "\"content\":%.*s,\"to_session_thread_id\":\"%s\"", MG_SV_ARG(content), to_id.s);
    (void)mg_buf_printf(&got, "\"content\":%.*s,\"from_session_thread_id\":\"%s\"", MG_SV_ARG(content), from_id.s);
    /* The contract leaves the primary agent's name out. */
    if (to)
        put_name(&sent, "to_agent_name", s->threads->all[to].agent_name);
    if (from)
        put_name(&got, "from_agent_name", s->threads->all[from].agent_name);
    mg_step_event(s, MG_EV_THREAD_MESSAGE_SENT, mg_arena_sv(s->arena, mg_buf_view(&sent)), true);
    s->st.relays += !taken;
    mg_rc rc = mg_threads_switch(s, to, err);
    if (rc == MG_OK)
        mg_step_event(s, MG_EV_THREAD_MESSAGE_RECEIVED, mg_arena_sv(s->arena, mg_buf_view(&got)), taken);
    return rc;
}

mg_rc mg_delegate_deliver(struct mg_step *s, int to, struct mg_sv content, struct mg_err *err)
{
    int from = s->threads->cur;
    mg_rc rc = mg_delegate_post(s, to, content, false, err);
    if (rc < 0)
        return rc;
    s->st.queued_inputs++;
    if (s->st.turn_step == MG_TURN_NONE)
        rc = mg_turn_start(s, err);
    return rc < 0 ? rc : mg_threads_switch(s, from, err);
}

void mg_thread_message_content(struct mg_arena *a, const struct mg_json *event, struct mg_sv inside, struct mg_buf *out)
{
    struct mg_sv name = mg_json_get_str(a, event, "from_agent_name");
    mg_auto(buf) struct mg_buf head = MG_BUF_INIT(64 * 1024);
    (void)mg_buf_printf(&head, "<agent_message from=\"%.*s\" session_thread_id=\"%.*s\">",
                        MG_SV_ARG(name.len ? name : MG_SV("the coordinator")),
                        MG_SV_ARG(mg_json_get_str(a, event, "from_session_thread_id")));
    (void)mg_buf_str(out, "{\"type\":\"text\",\"text\":\"");
    mg_json_escape(out, mg_buf_view(&head));
    (void)mg_buf_str(out, "\"},");
    (void)mg_buf_sv(out, inside);
    (void)mg_buf_str(out, ",{\"type\":\"text\",\"text\":\"</agent_message>\"}");
}

/* ---- the tools ---- */

struct mg_sv mg_delegate_text(struct mg_arena *a, struct mg_sv text)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * MG_STEP_EVENT_BYTES);
    (void)mg_buf_str(&b, "[{\"type\":\"text\",\"text\":\"");
    mg_json_escape(&b, text);
    (void)mg_buf_str(&b, "\"}]");
    return mg_arena_sv(a, mg_buf_view(&b));
}

static void answer(struct mg_step *s, struct mg_tool_call *c, bool is_error, struct mg_sv text)
{
    c->state = MG_CALL_COMPLETED;
    c->is_error = is_error;
    c->result = mg_delegate_text(s->arena, text);
}

static struct mg_sv list(struct mg_step *s, const struct mg_json *roster)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4 * 1024 * 1024);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_key(&w, "agents");
    mg_jw_arr(&w);
    for (const struct mg_json *e = roster; e; e = mg_roster_next(s->arena, e)) {
        mg_jw_obj(&w);
        mg_jw_kraw(&w, "agent_name", mg_json_get_raw(e, "name"));
        mg_jw_kraw(&w, "description", mg_json_get_raw(e, "description"));
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    mg_jw_key(&w, "threads");
    mg_jw_arr(&w);
    for (int i = 1; i < s->threads->n; i++) {
        const struct mg_thread_state *x = &s->threads->all[i];
        if (x->ended)
            continue;
        mg_jw_obj(&w);
        mg_jw_kstr(&w, "session_thread_id", mg_id_sv(&x->st.thread));
        mg_jw_kstr(&w, "agent_name", x->agent_name);
        mg_jw_kstrz(&w, "status", mg_session_status_name(mg_turn_status(&x->st)));
        if (x->stop_reason.len && mg_turn_status(&x->st) == MG_ST_IDLE)
            mg_jw_kstr(&w, "stop_reason", x->stop_reason);
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return mg_arena_sv(s->arena, mg_buf_view(&b));
}

static const struct mg_json *entry_of(struct mg_arena *a, const struct mg_json *roster, struct mg_sv name)
{
    for (const struct mg_json *e = roster; e; e = mg_roster_next(a, e))
        if (mg_sv_eq(mg_json_get_str(a, e, "name"), name))
            return e;
    return NULL;
}

static int live(const struct mg_step *s)
{
    int n = 0;
    for (int i = 0; i < s->threads->n; i++)
        n += !s->threads->all[i].ended;
    return n;
}

mg_rc mg_delegate_spawn(struct mg_step *s, struct mg_sv name, struct mg_sv agent, int *ret, struct mg_err *err)
{
    mg_rc rc = mg_threads_add(s, name, agent, ret, err);
    if (rc < 0)
        return rc;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(64 * 1024);
    (void)mg_buf_printf(&b, "\"session_thread_id\":\"%s\"", mg_threads_id(s, *ret).s);
    put_name(&b, "agent_name", name);
    (void)mg_buf_str(&b, ",\"workflow_run_id\":null");
    mg_step_event(s, MG_EV_THREAD_CREATED, mg_arena_sv(s->arena, mg_buf_view(&b)), true);
    return MG_OK;
}

static const char TOO_MANY_RELAYS[] = "The agents have exchanged 500 messages since the user's last one, which is the "
                                      "limit. Conclude, and answer the user.";

const char *mg_delegate_limit(const struct mg_step *s)
{
    if (s->st.relays >= MG_RELAYS_MAX)
        return TOO_MANY_RELAYS;
    return live(s) < MG_THREADS_LIVE_MAX
               ? NULL
               : "There are 25 threads, which is the limit; continue one that is idle, by its session_thread_id.";
}

/* What a call of send_to_agent says, and what becomes of it. */
struct errand {
    const struct mg_json *in;
    struct mg_sv message, thread, name;
    struct mg_sv agent; /* of a new thread */
    int to;             /* the thread that it continues; 0: a new one */
};

/* Sets name and agent of a new thread; else says why there is none. */
static const char *choose_agent(struct mg_step *s, const struct mg_json *coordinator, struct errand *e)
{
    const struct mg_json *definition = mg_json_get(e->in, "inline_agent");
    const struct mg_json *entry = entry_of(s->arena, mg_roster_first(s->arena, coordinator), e->name);
    bool may_define = mg_inline_allowed(s->arena, coordinator);
    struct mg_err why = {0};
    if (mg_given(definition) && !may_define)
        return "inline_agent: you cannot define agents; leave it out, and name one that list_agents gives in "
               "agent_name.";
    if (mg_given(definition) && e->name.len)
        return "agent_name and inline_agent exclude each other; leave one of them out.";
    if (!mg_given(definition) && !entry)
        return may_define ? "There is no agent of this name; list_agents gives the names, and inline_agent defines one."
                          : "There is no agent of this name; list_agents gives the names.";
    if (entry) {
        e->agent = entry->raw;
        return NULL;
    }
    e->name = mg_arena_printf(s->arena, "inline-%lld", (long long)s->threads->next);
    if (mg_inline_agent(s->arena, coordinator, s->engine->opts.web_tools, definition, &e->name, &e->agent, &why) < 0)
        return mg_arena_strdup(s->arena, mg_sv_of(why.text));
    return NULL;
}

/* Why a message cannot be sent; NULL: it can. */
static const char *send_problem(struct mg_step *s, const struct mg_json *coordinator, struct errand *e)
{
    if (e->message.len == 0)
        return "message must be a text that is not empty.";
    if (e->message.len > MG_THREAD_MESSAGE_MAX)
        return "message is over 1 MiB; write long material into a file and name the file.";
    if (e->thread.len == 0) {
        const char *problem = choose_agent(s, coordinator, e);
        return problem ? problem : mg_delegate_limit(s);
    }
    if (mg_given(mg_json_get(e->in, "inline_agent")))
        return "inline_agent is for a new thread; leave it out to continue this one, or leave session_thread_id out.";
    if (s->st.relays >= MG_RELAYS_MAX)
        return TOO_MANY_RELAYS;
    e->to = mg_threads_index(s, e->thread);
    if (e->to <= 0)
        return "There is no such thread, or it has ended; list_agents gives the threads.";
    struct mg_sv owner = s->threads->all[e->to].agent_name;
    if (mg_sv_eqz(owner, MG_ADVISOR_NAME) || (e->name.len && !mg_sv_eq(owner, e->name)))
        return "This thread belongs to another agent; list_agents gives the threads with their agents.";
    return NULL;
}

static mg_rc send(struct mg_step *s, const struct mg_json *coordinator, struct mg_tool_call *c, struct mg_err *err)
{
    struct mg_json *in;
    if (mg_json_parse(s->arena, c->input, &mg_json_raw_limits, &in, NULL) < 0 || in->type != MG_JSON_OBJECT) {
        answer(s, c, true, MG_SV("The input must be a JSON object with agent_name and message."));
        return MG_OK;
    }
    struct errand e = {
        .in = in,
        .message = mg_json_get_str(s->arena, in, "message"),
        .thread = mg_json_get_str(s->arena, in, "session_thread_id"),
        .name = mg_json_get_str(s->arena, in, "agent_name"),
    };
    const char *problem = send_problem(s, coordinator, &e);
    if (problem) {
        answer(s, c, true, mg_sv_of(problem));
        return MG_OK;
    }
    mg_rc rc = e.to ? MG_OK : mg_delegate_spawn(s, e.name, e.agent, &e.to, err);
    bool waits = rc == MG_OK && s->threads->all[e.to].st.turn_step != MG_TURN_NONE;
    if (rc == MG_OK)
        rc = mg_delegate_deliver(s, e.to, mg_delegate_text(s->arena, e.message), err);
    answer(s, c, false,
           mg_arena_printf(s->arena, "{\"session_thread_id\":\"%s\",\"status\":\"%s\"}", mg_threads_id(s, e.to).s,
                           waits ? "queued" : "running"));
    return rc;
}

mg_rc mg_delegate_calls(struct mg_step *s, const struct mg_json *agent, struct mg_tool_call *calls,
                        const char *const *refusals, int n, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    if (!s->threads || s->st.thread.s[0])
        return MG_OK;
    for (int i = 0; rc == MG_OK && i < n; i++) {
        if (calls[i].kind != MG_CALL_AGENT || refusals[i])
            continue;
        if (mg_sv_eqz(calls[i].name, LIST))
            answer(s, &calls[i], false, list(s, mg_roster_first(s->arena, agent)));
        else if (mg_sv_eqz(calls[i].name, MG_ADVISOR_TOOL))
            rc = mg_advisor_ask(s, agent, &calls[i], err);
        else
            rc = send(s, agent, &calls[i], err);
    }
    return rc;
}

/* ---- reports ---- */

static struct mg_sv content_of(struct mg_arena *a, struct mg_sv event)
{
    struct mg_json *v;
    if (event.len == 0 || mg_json_parse(a, event, &mg_json_raw_limits, &v, NULL) < 0)
        return MG_SV("");
    struct mg_sv content = mg_json_get_raw(v, "content");
    return mg_json_inside(content).len ? content : MG_SV("");
}

/* The newest event of the type that this step adds to the current thread; its body, or empty. */
static struct mg_sv newest(const struct mg_step *s, enum mg_event_type type)
{
    for (int i = s->n_events - 1; i >= 0; i--)
        if (s->events[i].type == type && strcmp(s->events[i].thread.s, s->st.thread.s) == 0)
            return s->events[i].body;
    return MG_SV("");
}

struct mg_sv mg_delegate_said(const struct mg_step *s)
{
    return content_of(s->arena, newest(s, MG_EV_AGENT_MESSAGE));
}

struct mg_sv mg_delegate_why(const struct mg_step *s)
{
    struct mg_json *v;
    struct mg_sv error = newest(s, MG_EV_SESSION_ERROR);
    if (error.len == 0 || mg_json_parse(s->arena, error, &mg_json_raw_limits, &v, NULL) < 0)
        return MG_SV("");
    return mg_json_get_str(s->arena, mg_json_get(v, "error"), "message");
}

/* What the turn said last: in this step, else before, such as the text in front of a call. */
static mg_rc last_answer(struct mg_step *s, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv body = newest(s, MG_EV_AGENT_MESSAGE);
    mg_rc rc = MG_OK;
    if (body.len == 0)
        rc = mg_events_last_answer(s->arena, s->t, &s->st.session, &s->st.thread, s->st.turn_trigger, &body, err);
    *ret = content_of(s->arena, body);
    if (ret->len == 0)
        *ret = mg_delegate_text(s->arena, MG_SV("(The agent ended its turn without a message.)"));
    return rc;
}

static struct mg_sv notice(struct mg_step *s, const char *how)
{
    struct mg_sv why = mg_delegate_why(s);
    if (strcmp(how, "failed") == 0)
        return mg_arena_printf(s->arena,
                               "(This agent could not finish: %.*s. Its thread has ended; what it had done until then "
                               "remains.)",
                               MG_SV_ARG(why.len ? why : MG_SV("the turn failed")));
    return mg_arena_printf(s->arena, "(The user has %s this agent before it was finished.)", how);
}

mg_rc mg_thread_report(struct mg_step *s, const char *how, struct mg_err *err)
{
    struct mg_sv content;
    mg_rc rc = MG_OK;
    if (s->threads->silent || mg_advisor_turn(s)) /* an advisor's call hears of it when its thread ends */
        return MG_OK;
    if (how)
        content = mg_delegate_text(s->arena, notice(s, how));
    else
        rc = last_answer(s, &content, err);
    return rc < 0 ? rc : mg_delegate_deliver(s, 0, content, err);
}
