#include "run/threads.h"

#include "domain/thread.h"
#include "run/advisor.h"
#include "run/engine-internal.h"
#include "run/turn.h"

/* ---- which thread is current ---- */

static void grow(struct mg_step *s, int n)
{
    struct mg_threads *t = s->threads;
    if (n <= t->cap)
        return;
    int cap = n > MG_THREADS_LIVE_MAX + 1 ? n : MG_THREADS_LIVE_MAX + 1;
    struct mg_thread_state *all = mg_arena_alloc(s->arena, sizeof(*all) * (size_t)cap);
    int64_t *epochs = mg_arena_alloc(s->arena, sizeof(*epochs) * (size_t)cap);
    bool *touched = mg_arena_alloc(s->arena, sizeof(*touched) * (size_t)cap);
    for (int i = 0; i < t->n; i++) {
        all[i] = t->all[i];
        epochs[i] = t->epochs[i];
        touched[i] = t->touched[i];
    }
    t->all = all;
    t->epochs = epochs;
    t->touched = touched;
    t->cap = cap;
}

mg_rc mg_threads_begin(struct mg_step *s, struct mg_err *err)
{
    struct mg_threads *t = mg_arena_new_of(s->arena, struct mg_threads);
    struct mg_thread_state *all;
    int n;
    mg_rc rc = mg_threads_load(s->arena, s->t, &s->st, &all, &n, &t->next, err);
    if (rc < 0)
        return rc;
    s->threads = t;
    t->own = -1;
    grow(s, n);
    for (int i = 0; i < n; i++) {
        t->all[i] = all[i];
        t->epochs[i] = all[i].st.turn_epoch;
    }
    t->n = n;
    return MG_OK;
}

struct mg_id mg_threads_id(const struct mg_step *s, int i)
{
    return i == 0 ? mg_thread_primary(mg_id_sv(&s->st.session)) : s->threads->all[i].st.thread;
}

int mg_threads_index(const struct mg_step *s, struct mg_sv thread)
{
    if (thread.len == 0)
        return 0;
    for (int i = 0; i < s->threads->n; i++) {
        const struct mg_id id = mg_threads_id(s, i);
        if (!s->threads->all[i].ended && mg_sv_eq(mg_id_sv(&id), thread))
            return i;
    }
    return -1;
}

bool mg_threads_ours(const struct mg_step *s)
{
    pthread_mutex_lock(&s->engine->lock);
    bool ours = strcmp(s->st.turn_node.s, s->engine->node.s) == 0;
    pthread_mutex_unlock(&s->engine->lock);
    return ours;
}

/* The session's part of a state goes with the step, the rest with the thread. */
static void session_part(struct mg_session_state *to, const struct mg_session_state *from)
{
    to->session = from->session;
    to->workspace = from->workspace;
    to->archived = from->archived;
    to->deleting = from->deleting;
    to->self_hosted = from->self_hosted;
    to->roster = from->roster;
    to->status = from->status;
    to->last_seq = from->last_seq;
    to->busy_threads = from->busy_threads;
    to->relays = from->relays;
    to->turn_node = from->turn_node;
    to->has_budget = from->has_budget;
    to->budget_nano = from->budget_nano;
    to->cost_nano = from->cost_nano;
    to->cost_unknown = from->cost_unknown;
    to->add_cost = from->add_cost;
    to->add_unknown = from->add_unknown;
}

mg_rc mg_threads_switch(struct mg_step *s, int i, struct mg_err *err)
{
    struct mg_threads *t = s->threads;
    t->touched[i] = true;
    if (i == t->cur)
        return MG_OK;
    mg_rc rc = mg_step_flush_entries(s, err);
    t->all[t->cur].st = s->st;
    struct mg_session_state next = t->all[i].st;
    session_part(&next, &s->st);
    s->st = next;
    t->cur = i;
    return rc;
}

mg_rc mg_threads_add(struct mg_step *s, struct mg_sv name, struct mg_sv agent, int *ret, struct mg_err *err)
{
    struct mg_threads *t = s->threads;
    grow(s, t->n + 1);
    struct mg_thread_state *x = &t->all[t->n];
    *x = (struct mg_thread_state){.ordinal = t->next++, .agent_name = mg_arena_sv(s->arena, name)};
    x->st.session = s->st.session;
    x->st.thread = mg_id_new("sthr");
    *ret = t->n++;
    return mg_thread_insert(s->arena, s->t, x, agent, err);
}

/* ---- status ---- */

static const struct mg_session_state *state_of(const struct mg_step *s, int i)
{
    return i == s->threads->cur ? &s->st : &s->threads->all[i].st;
}

/* How many threads have this status. */
static int count(const struct mg_step *s, enum mg_session_status status)
{
    int n = 0;
    for (int i = 0; i < s->threads->n; i++)
        n += !s->threads->all[i].ended && mg_turn_status(state_of(s, i)) == status;
    return n;
}

/* A thread's status event: in its own log, and in the primary one's. shown is what differs there. */
static void status_event(struct mg_step *s, enum mg_event_type type, struct mg_sv own, struct mg_sv shown)
{
    int cur = s->threads->cur;
    const struct mg_id id = mg_threads_id(s, cur);
    mg_auto(buf) struct mg_buf name = MG_BUF_INIT(16 * 1024);
    mg_json_escape(&name, s->threads->all[cur].agent_name);
    for (int copy = 0; copy < (cur ? 2 : 1); copy++) {
        struct mg_sv more = copy ? shown : own;
        struct mg_sv members =
            mg_arena_printf(s->arena, "\"session_thread_id\":\"%s\",\"agent_name\":\"%.*s\"%s%.*s", id.s,
                            MG_SV_ARG(mg_buf_view(&name)), more.len ? "," : "", MG_SV_ARG(more));
        mg_step_post(s, copy ? NULL : &s->st.thread, type, members, true);
    }
}

void mg_threads_run(struct mg_step *s)
{
    if (mg_turn_status(&s->st) == MG_ST_RUNNING)
        return;
    status_event(s, MG_EV_THREAD_RUNNING, MG_SV(""), MG_SV(""));
    if (s->st.status == MG_ST_RUNNING)
        return;
    s->st.status = MG_ST_RUNNING;
    mg_step_post(s, NULL, MG_EV_STATUS_RUNNING, MG_SV(""), true);
}

void mg_threads_reschedule(struct mg_step *s)
{
    status_event(s, MG_EV_THREAD_RESCHEDULED, MG_SV(""), MG_SV(""));
    if (count(s, MG_ST_RUNNING) || s->st.status == MG_ST_RESCHEDULING)
        return;
    s->st.status = MG_ST_RESCHEDULING;
    mg_step_post(s, NULL, MG_EV_STATUS_RESCHEDULED, MG_SV(""), true);
}

/* What the thread waits for (NULL: what any waits for), as clients know it. */
static mg_rc waits_for(struct mg_step *s, const struct mg_id *thread, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_sv *ids;
    int n;
    mg_rc rc = mg_calls_waiting(s->arena, s->t, &s->st.session, thread, &ids, &n, err);
    if (rc < 0)
        return rc;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    (void)mg_buf_str(&b, "{\"type\":\"requires_action\",\"event_ids\":[");
    for (int i = 0; i < n; i++)
        (void)mg_buf_printf(&b, "%s\"%.*s\"", i ? "," : "", MG_SV_ARG(ids[i]));
    (void)mg_buf_str(&b, "]}");
    *ret = mg_arena_sv(s->arena, mg_buf_view(&b));
    return MG_OK;
}

/* After the current thread has stopped: what that makes of the session. A call that waits for a client, in whatever thread, is what its idle says. */
static mg_rc session_follows(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details, struct mg_err *err)
{
    int64_t actions = 0;
    if (s->threads->ending || count(s, MG_ST_RUNNING))
        return MG_OK;
    if (count(s, MG_ST_RESCHEDULING)) {
        if (s->st.status != MG_ST_RESCHEDULING)
            mg_step_post(s, NULL, MG_EV_STATUS_RESCHEDULED, MG_SV(""), true);
        s->st.status = MG_ST_RESCHEDULING;
        return MG_OK;
    }
    for (int i = 0; i < s->threads->n; i++)
        actions += s->threads->all[i].ended ? 0 : state_of(s, i)->open_actions;
    if (actions) {
        mg_rc rc = waits_for(s, NULL, &stop_reason, err);
        if (rc < 0)
            return rc;
        details = MG_SV("null");
    }
    mg_turn_status_idle(s, stop_reason, details);
    return MG_OK;
}

static struct mg_sv type_of(struct mg_arena *a, struct mg_sv stop_reason)
{
    struct mg_json *v;
    if (mg_json_parse(a, stop_reason, &mg_json_raw_limits, &v, NULL) < 0)
        return MG_SV("");
    return mg_arena_sv(a, mg_json_get_str(a, v, "type"));
}

mg_rc mg_threads_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details, struct mg_err *err)
{
    struct mg_thread_state *x = &s->threads->all[s->threads->cur];
    struct mg_sv shown = stop_reason;
    if (s->st.thread.s[0] && s->st.open_actions) {
        mg_rc rc = waits_for(s, &s->st.thread, &shown, err);
        if (rc < 0)
            return rc;
    }
    x->stop_reason = type_of(s->arena, stop_reason);
    status_event(
        s, MG_EV_THREAD_IDLE,
        mg_arena_printf(s->arena, "\"stop_reason\":%.*s,\"stop_details\":%.*s", MG_SV_ARG(stop_reason),
                        MG_SV_ARG(details)),
        mg_arena_printf(s->arena, "\"stop_reason\":%.*s,\"stop_details\":%.*s", MG_SV_ARG(shown), MG_SV_ARG(details)));
    return session_follows(s, stop_reason, details, err);
}

mg_rc mg_thread_end(struct mg_step *s, struct mg_err *err)
{
    struct mg_thread_state *x = &s->threads->all[s->threads->cur];
    if (x->ended)
        return MG_OK;
    bool ran = mg_turn_status(&s->st) != MG_ST_IDLE;
    status_event(s, MG_EV_THREAD_TERMINATED, MG_SV(""), MG_SV(""));
    x->ended = true;
    s->st.turn_step = MG_TURN_NONE;
    s->st.queued_inputs = 0;
    bool follows = ran || s->st.status == MG_ST_RUNNING || s->st.status == MG_ST_RESCHEDULING;
    return follows ? session_follows(s, MG_SV("{\"type\":\"end_turn\"}"), MG_SV("null"), err) : MG_OK;
}

mg_rc mg_threads_end_children(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    s->threads->ending = true;
    for (int i = 1; rc == MG_OK && i < s->threads->n; i++) {
        if (s->threads->all[i].ended)
            continue;
        rc = mg_threads_switch(s, i, err);
        if (rc == MG_OK)
            rc = mg_turn_interrupt(s, err);
        if (rc == MG_OK)
            rc = mg_thread_end(s, err);
    }
    return rc < 0 ? rc : mg_threads_switch(s, 0, err);
}

mg_rc mg_threads_interrupt_all(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = mg_threads_switch(s, 0, err);
    if (rc == MG_OK)
        rc = mg_advisors_stop(s, err);
    for (int i = s->threads->n - 1; rc == MG_OK && i >= 0; i--) {
        if (s->threads->all[i].ended)
            continue;
        rc = mg_threads_switch(s, i, err);
        if (rc == MG_OK && s->st.turn_step != MG_TURN_PAUSED) /* a used-up budget has stopped it: semantics AD15 */
            rc = mg_turn_interrupt(s, err);
    }
    return rc;
}

/* ---- inputs ---- */

struct queued {
    int64_t seq;
    bool report;
};

static bool is_report(enum mg_event_type t)
{
    return t == MG_EV_THREAD_MESSAGE_RECEIVED;
}

/* Reports that wait together are one turn: answering each alone would cost a request each. */
mg_rc mg_threads_next_inputs(struct mg_step *s, int64_t *ret_first, int64_t *ret_last, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_input_row *rows;
    struct queued q[MG_INPUTS_AT_ONCE];
    int n = 0, found;
    const struct mg_input_place at = {
        .session = &s->st.session, .thread = &s->st.thread, .trigger = s->st.turn_trigger};
    mg_rc rc = mg_events_queue(s->arena, s->t, &at, MG_INPUTS_AT_ONCE, &r, &rows, &found, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < found; i++)
        q[n++] = (struct queued){.seq = rows[i].seq,
                                 .report = mg_sv_eqz(rows[i].type, mg_event_type_name(MG_EV_THREAD_MESSAGE_RECEIVED))};
    for (int i = 0; i < s->n_events && n < MG_INPUTS_AT_ONCE; i++) {
        const struct mg_event_row *e = &s->events[i];
        if (e->processed || strcmp(e->thread.s, s->st.thread.s) != 0 ||
            (e->type != MG_EV_USER_MESSAGE && !is_report(e->type)))
            continue;
        if (s->st.last_seq + i + 1 > s->st.turn_trigger)
            q[n++] = (struct queued){.seq = s->st.last_seq + i + 1, .report = is_report(e->type)};
    }
    *ret_first = *ret_last = n ? q[0].seq : 0;
    *ret_n = n ? 1 : 0;
    for (int i = 1; i < n && q[0].report && q[i].report; i++) {
        *ret_last = q[i].seq;
        (*ret_n)++;
    }
    return MG_OK;
}

/* ---- what the primary thread's log shows of a child's calls ---- */

void mg_thread_show_call(struct mg_step *s, struct mg_tool_call *c, enum mg_event_type type, struct mg_sv members)
{
    if (!s->st.thread.s[0] || c->waits == MG_WAIT_NONE)
        return;
    c->public_id = mg_step_post(
        s, NULL, type,
        mg_arena_printf(s->arena, "%.*s,\"session_thread_id\":\"%s\"", MG_SV_ARG(members), s->st.thread.s), true);
}

void mg_thread_show_result(struct mg_step *s, const struct mg_tool_call *c, enum mg_event_type type, const char *ref)
{
    if (!c->public_id.s[0])
        return;
    bool of_user = type == MG_EV_USER_TOOL_RESULT || type == MG_EV_USER_CUSTOM_TOOL_RESULT;
    mg_step_post(s, NULL, type,
                 mg_arena_printf(s->arena, "\"%s\":\"%s\",\"content\":%.*s,\"is_error\":%s%s%s%s", ref, c->public_id.s,
                                 MG_SV_ARG(c->result), c->is_error ? "true" : "false",
                                 of_user ? ",\"session_thread_id\":\"" : "", of_user ? s->st.thread.s : "",
                                 of_user ? "\"" : ""),
                 true);
}

/* ---- the end of a step ---- */

static void add_usage(struct mg_session_state *to, const struct mg_session_state *from)
{
    to->add_input += from->add_input;
    to->add_output += from->add_output;
    to->add_cache_read += from->add_cache_read;
    to->add_cache_5m += from->add_cache_5m;
    to->add_cache_1h += from->add_cache_1h;
    to->add_web_search += from->add_web_search;
    to->add_web_fetch += from->add_web_fetch;
}

struct mg_session_state mg_threads_added(const struct mg_step *s)
{
    struct mg_session_state sum = s->st;
    for (int i = 0; s->threads && i < s->threads->n; i++)
        if (i != s->threads->cur)
            add_usage(&sum, &s->threads->all[i].st);
    return sum;
}

mg_rc mg_threads_resume_paused(struct mg_step *s, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = s->threads->n - 1; rc == MG_OK && i >= 0; i--) {
        if (s->threads->all[i].ended)
            continue;
        rc = mg_threads_switch(s, i, err);
        if (rc < 0 || s->st.turn_step != MG_TURN_PAUSED)
            continue;
        mg_turn_claim(s);
        rc = mg_turn_request(s, false, err);
    }
    return rc;
}

/* The session's turns have one node. Where another one has been named, and none of the turns that it runs is left, this one takes the new turns itself:
 * nothing of the session would make that node look. */
static void choose_node(struct mg_step *s)
{
    const struct mg_threads *t = s->threads;
    bool kept = false, any = false;
    for (int i = 0; i < t->n; i++) {
        const struct mg_session_state *st = state_of(s, i);
        bool runs = !t->all[i].ended && mg_turn_status(st) != MG_ST_IDLE;
        any |= runs;
        kept |= runs && st->turn_epoch == t->epochs[i];
    }
    if (!any || kept)
        return;
    pthread_mutex_lock(&s->engine->lock);
    s->st.turn_node = s->engine->node;
    pthread_mutex_unlock(&s->engine->lock);
}

/* The session's row has the usage of all its threads: here is the one place where it is summed, which a budget is held against. */
mg_rc mg_threads_save(struct mg_step *s, struct mg_err *err)
{
    struct mg_threads *t = s->threads;
    mg_rc rc = MG_OK;
    s->st.busy_threads = 0;
    for (int i = 1; i < t->n; i++)
        s->st.busy_threads += !t->all[i].ended && mg_turn_status(state_of(s, i)) != MG_ST_IDLE;
    choose_node(s);
    t->all[t->cur].st = s->st;
    struct mg_session_state primary = t->all[0].st;
    session_part(&primary, &s->st);
    for (int i = 1; rc == MG_OK && i < t->n; i++) {
        if (!t->touched[i])
            continue;
        add_usage(&primary, &t->all[i].st);
        rc = mg_thread_save(s->arena, s->t, &t->all[i], err);
    }
    return rc < 0 ? rc : mg_session_state_save(s->arena, s->t, &primary, err);
}

void mg_threads_settle(struct mg_step *s)
{
    const struct mg_threads *t = s->threads;
    for (int i = 0; i < t->n; i++) {
        if (i == t->own || t->all[i].st.turn_epoch == t->epochs[i])
            continue;
        struct mg_session_state st = t->all[i].st;
        session_part(&st, &s->st);
        mg_engine_cancel_thread(s->engine, &st.session, &st.thread, st.turn_epoch);
        if (!t->all[i].ended && mg_turn_status(&st) != MG_ST_IDLE)
            mg_engine_go(s->engine, &st);
    }
}
