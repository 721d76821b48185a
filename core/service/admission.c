#include "service/admission.h"

#include <stdio.h>

#include "base/log.h"
#include "domain/check.h"
#include "domain/thread.h"
#include "run/budget.h"
#include "run/engine.h"
#include "run/delegate.h"
#include "run/outcome.h"
#include "run/turn.h"
#include "service/client-result.h"
#include "service/content-file.h"
#include "service/work.h"

/* The calls of a thread's present assistant message, once loaded. */
struct wave {
    struct mg_tool_call *calls;
    struct mg_res *res;
    int n;
    bool loaded, changed;
};

/* What the server keeps of one POST while it holds the session's lock. */
struct admission {
    struct mg_step step;
    struct wave *w, *waves; /* the current thread's, and all threads' */
    int n_waves;
    int *routes; /* per draft: the thread that it went to, as an index of the step's threads */
    const struct mg_draft *drafts;
    struct mg_sv *answers; /* one rendered event per draft */
    struct mg_id *ids;
    int64_t *replayed;         /* per draft: seq of the stored event that it repeats, or 0 */
    bool interrupted, claimed; /* the turn of a session without threads; with threads the step knows */
};

struct mg_admitted {
    struct admission ad;
};

static void mg_admission_cleanup(struct admission *ad)
{
    for (int i = 0; i < ad->n_waves; i++)
        mg_res_free(ad->waves[i].res);
    mg_step_cleanup(&ad->step);
}

/* ---- single drafts ---- */

/* The stored event of a draft, which is the newest of the step. */
static void answer_with_event(struct admission *ad, int i)
{
    const struct mg_step *s = &ad->step;
    const struct mg_event_row *row = &s->events[s->n_events - 1];
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    (void)mg_event_render(&b, row->body, row->processed ? s->now_us : INT64_MIN);
    ad->answers[i] = mg_arena_sv(s->arena, mg_buf_view(&b));
    ad->ids[i] = row->id;
}

static void store_draft(struct admission *ad, const struct mg_draft *d, int i, bool processed)
{
    if (d->id.s[0])
        mg_step_event_id(&ad->step, &d->id, d->type, d->members, processed);
    else
        mg_step_event(&ad->step, d->type, d->members, processed);
    answer_with_event(ad, i);
}

/* Makes a thread current; nothing in a session without them. */
static mg_rc enter(struct admission *ad, int i, struct mg_err *err)
{
    if (!ad->step.threads)
        return MG_OK;
    ad->w = &ad->waves[i];
    return mg_threads_switch(&ad->step, i, err);
}

static const char *ref_name(const struct mg_draft *d)
{
    return d->type == MG_EV_USER_CUSTOM_TOOL_RESULT ? "custom_tool_use_id" : "tool_use_id";
}

/* The answer to a call. Clients see all of it in the primary thread's log; a child's has the same under its own ids. */
static void store_answer(struct admission *ad, const struct mg_draft *d, int i, const struct mg_tool_call *c)
{
    struct mg_step *s = &ad->step;
    if (!c->thread.s[0]) {
        store_draft(ad, d, i, true);
        return;
    }
    struct mg_id id = d->id.s[0] ? d->id : mg_id_new("sevt");
    mg_step_event_id(s, &id, d->type, mg_draft_members(s->arena, d, d->ref_id, mg_id_sv(&c->thread)), true);
    s->events[s->n_events - 1].thread = (struct mg_id){0};
    answer_with_event(ad, i);
    mg_step_event(s, d->type, mg_draft_members(s->arena, d, mg_id_sv(&c->event_id), MG_SV("")), true);
}

static mg_rc calls_load(struct admission *ad, struct mg_err *err)
{
    if (ad->w->loaded)
        return MG_OK;
    ad->w->loaded = true;
    struct mg_step *s = &ad->step;
    bool open = s->st.turn_step == MG_TURN_ACTION || s->st.turn_step == MG_TURN_TOOLS;
    if (!open)
        return MG_OK;
    return mg_calls_of_round(s->arena, s->t, &s->st.session, &s->st.thread, s->st.transcript_len, &ad->w->res,
                             &ad->w->calls, &ad->w->n, err);
}

static struct mg_tool_call *call_open(struct admission *ad, struct mg_sv event_id)
{
    for (int i = 0; i < ad->w->n; i++)
        if (mg_sv_eq(mg_id_sv(&ad->w->calls[i].event_id), event_id))
            return &ad->w->calls[i];
    return NULL;
}

static bool same_result(struct mg_arena *a, struct mg_sv stored_body, const struct mg_draft *d)
{
    struct mg_json *v, *x = NULL;
    if (mg_json_parse(a, stored_body, &mg_json_raw_limits, &v, NULL) < 0)
        return false;
    const struct mg_json *old = mg_json_get(v, "content");
    const struct mg_json *old_error = mg_json_get(v, "is_error");
    if ((old_error && old_error->type == MG_JSON_BOOL && old_error->boolean) != d->is_error)
        return false;
    if (d->content.len && mg_json_parse(a, d->content, &mg_json_raw_limits, &x, NULL) < 0)
        return false;
    if (!old || !x)
        return !old == !x;
    return mg_json_equal(a, old, x);
}

/* An event of this step, which is not in the log yet, else of the log. seq 0: of this step. */
static mg_rc event_find(struct admission *ad, const struct mg_id *id, struct mg_res **ret_res,
                        struct mg_event_seen *ret, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    for (int i = 0; i < s->n_events; i++)
        if (strcmp(s->events[i].id.s, id->s) == 0) {
            *ret = (struct mg_event_seen){.type = mg_sv_of(mg_event_type_name(s->events[i].type)),
                                          .body = s->events[i].body,
                                          .processed_us = s->now_us};
            return MG_OK;
        }
    return mg_event_get(s->t, &s->st.session, id, ret_res, ret, err);
}

static void answer_with_seen(struct admission *ad, int i, const struct mg_id *id, const struct mg_event_seen *e)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    (void)mg_event_render(&b, e->body, e->processed_us);
    ad->answers[i] = mg_arena_sv(ad->step.arena, mg_buf_view(&b));
    ad->ids[i] = *id;
    ad->replayed[i] = e->seq;
}

/* A result for a call that has one: the same again is the client's retry after a lost answer; another one is refused for good. */
static mg_rc answer_again(struct admission *ad, const struct mg_draft *d, int i, const struct mg_tool_call *c,
                          struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_event_seen e;
    mg_rc rc = event_find(ad, &c->result_event, &r, &e, err);
    if (rc < 0)
        return rc;
    if (!mg_sv_eqz(e.type, mg_event_type_name(d->type)) || !same_result(ad->step.arena, e.body, d))
        return mg_err_set(err, MG_ECONFLICT,
                          "events[%d].%s: the call '%s' was already answered by '%s'; its result cannot be changed", i,
                          ref_name(d), c->event_id.s, c->result_event.s);
    answer_with_seen(ad, i, &c->result_event, &e);
    return MG_OK;
}

/* session_thread_id is no more than a hint: the call says whose it is. A wrong one is an error of the client. */
static mg_rc fits_thread(const struct mg_step *s, const struct mg_draft *d, int i, const struct mg_tool_call *c,
                         struct mg_err *err)
{
    const struct mg_id owner = c->thread.s[0] ? c->thread : mg_thread_primary(mg_id_sv(&s->st.session));
    if (d->thread_id.len == 0 || mg_sv_eq(d->thread_id, mg_id_sv(&owner)))
        return MG_OK;
    return mg_err_set(
        err, MG_EINVAL,
        "events[%d].session_thread_id: the call '%.*s' belongs to thread '%s', not '%.*s'; leave the field "
        "out",
        i, MG_SV_ARG(d->ref_id), owner.s, MG_SV_ARG(mg_shown_id(d->thread_id)));
}

/* The call that a draft names: of the present wave, then *ret may be changed and saved, or a closed one, whose texts *ret_res keeps. */
static mg_rc call_find(struct admission *ad, const struct mg_draft *d, int i, struct mg_res **ret_res,
                       struct mg_tool_call *closed, struct mg_tool_call **ret, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    mg_rc rc = calls_load(ad, err);
    if (rc < 0)
        return rc;
    *ret = call_open(ad, d->ref_id);
    if (*ret)
        return fits_thread(s, d, i, *ret, err);
    rc = mg_call_by_event(s->arena, s->t, &s->st.session, d->ref_id, ret_res, closed, err);
    if (rc == MG_ENOTFOUND || (rc == MG_OK && closed->kind == MG_CALL_AGENT))
        return mg_err_set(err, MG_EINVAL,
                          "events[%d].%s: this session has no tool call '%.*s'; give the id of its tool use event", i,
                          ref_name(d), MG_SV_ARG(d->ref_id));
    *ret = closed;
    if (rc == MG_OK)
        rc = fits_thread(s, d, i, closed, err);
    int child = rc == MG_OK && closed->thread.s[0] ? mg_threads_index(s, mg_id_sv(&closed->thread)) : 0;
    if (child <= 0)
        return rc;
    ad->routes[i] = child;
    rc = enter(ad, child, err);
    if (rc == MG_OK)
        rc = calls_load(ad, err);
    struct mg_tool_call *open = rc == MG_OK ? call_open(ad, mg_id_sv(&closed->event_id)) : NULL;
    *ret = open ? open : closed;
    return rc;
}

static mg_rc admit_result(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call closed, *c;
    mg_rc rc = call_find(ad, d, i, &r, &closed, &c, err);
    if (rc < 0)
        return rc;
    bool custom = d->type == MG_EV_USER_CUSTOM_TOOL_RESULT;
    if ((c->kind == MG_CALL_CUSTOM) != custom)
        return mg_err_set(err, MG_EINVAL, "events[%d].type: the call '%s' is answered by a %s event", i, c->event_id.s,
                          custom ? "user.tool_result" : "user.custom_tool_result");
    if (c->denied)
        return mg_err_set(err, MG_EINVAL,
                          "events[%d].tool_use_id: the call '%s' was denied and must not be run; it takes no result", i,
                          c->event_id.s);
    if (c->waits == MG_WAIT_CONFIRMATION)
        return mg_err_set(err, MG_EINVAL,
                          "events[%d].tool_use_id: the call '%s' waits for a user.tool_confirmation first", i,
                          c->event_id.s);
    if (c->state == MG_CALL_COMPLETED || c->state == MG_CALL_AMBIGUOUS)
        return answer_again(ad, d, i, c, err);
    if (c == &closed)
        return mg_err_set(err, MG_ECONFLICT, "events[%d].%s: the call '%s' does not wait for an answer any more", i,
                          ref_name(d), c->event_id.s);
    if (c->waits != MG_WAIT_RESULT)
        return mg_err_set(
            err, MG_EINVAL,
            "events[%d].tool_use_id: the server runs the call '%s' itself (cloud environment); it takes no result", i,
            c->event_id.s);
    store_answer(ad, d, i, c);
    c->state = MG_CALL_COMPLETED;
    c->waits = MG_WAIT_NONE;
    c->is_error = d->is_error;
    c->result = mg_client_result(s->arena, d->content, mg_engine_result_max(s->engine));
    c->result_event = ad->ids[i];
    ad->w->changed = true;
    return mg_call_save(s->arena, s->t, &s->st.session, s->st.turn_epoch, c, err);
}

/* Why a call that waits for no confirmation takes none. */
static mg_rc confirmation_refused(const struct mg_tool_call *c, int i, struct mg_err *err)
{
    if (c->kind == MG_CALL_CUSTOM)
        return mg_err_set(err, MG_EINVAL,
                          "events[%d].type: the call '%s' is answered by a user.custom_tool_result event", i,
                          c->event_id.s);
    if (c->allowed || c->denied)
        return mg_err_set(err, MG_ECONFLICT, "events[%d].tool_use_id: the call '%s' was already %s", i, c->event_id.s,
                          c->allowed ? "allowed" : "denied");
    if (c->result_event.s[0])
        return mg_err_set(err, MG_ECONFLICT,
                          "events[%d].tool_use_id: the call '%s' was already answered by '%s' and waits for nothing", i,
                          c->event_id.s, c->result_event.s);
    return mg_err_set(err, MG_EINVAL,
                      "events[%d].tool_use_id: the call '%s' needs no confirmation (its evaluated_permission is not "
                      "ask)",
                      i, c->event_id.s);
}

static mg_rc admit_confirmation(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call closed, *c;
    mg_rc rc = call_find(ad, d, i, &r, &closed, &c, err);
    if (rc < 0)
        return rc;
    if (c->waits != MG_WAIT_CONFIRMATION || c == &closed)
        return confirmation_refused(c, i, err);
    store_answer(ad, d, i, c);
    ad->w->changed = true;
    c->allowed = d->allow;
    c->denied = !d->allow;
    if (d->allow) {
        c->waits = s->st.self_hosted && c->kind == MG_CALL_BUILTIN ? MG_WAIT_RESULT : MG_WAIT_NONE;
        return mg_call_save(s->arena, s->t, &s->st.session, s->st.turn_epoch, c, err);
    }
    c->deny_message = d->deny_message;
    struct mg_sv text = d->deny_message.len
                            ? mg_arena_printf(s->arena, "The user denied this call: %.*s", MG_SV_ARG(d->deny_message))
                            : MG_SV("The user denied this call.");
    return mg_turn_answer_call(s, c, MG_ANSWER_DENIAL, mg_text_content(s->arena, mg_arena_strdup(s->arena, text)), true,
                               err);
}

static mg_rc no_thread(const struct mg_draft *d, int i, struct mg_err *err)
{
    return mg_err_set(err, MG_EINVAL,
                      "events[%d].session_thread_id: this session has no thread '%.*s'; leave the field out", i,
                      MG_SV_ARG(mg_shown_id(d->thread_id)));
}

/* Answers of this POST that came before are saved; what is open is answered by the interrupt. */
static void forget_calls(struct wave *w)
{
    w->changed = w->loaded = false;
    w->n = 0;
}

/* One thread alone. The coordinator learns of a child that will not report any more. */
static mg_rc interrupt_thread(struct admission *ad, int i, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    mg_rc rc = enter(ad, i, err);
    if (rc < 0 || s->st.turn_step == MG_TURN_NONE || s->st.turn_step == MG_TURN_PAUSED)
        return rc < 0 ? rc : enter(ad, 0, err);
    if (i > 0)
        rc = mg_thread_report(s, "interrupted", err);
    if (rc == MG_OK)
        rc = mg_turn_interrupt(s, err);
    return rc < 0 ? rc : enter(ad, 0, err);
}

static mg_rc interrupt_target(struct mg_step *s, const struct mg_draft *d, int i, int *ret, struct mg_err *err)
{
    bool known = false;
    *ret = mg_threads_index(s, d->thread_id);
    if (*ret >= 0)
        return MG_OK;
    mg_rc rc = mg_thread_known(s->t, &s->st.session, d->thread_id, &known, err);
    if (rc < 0)
        return rc;
    if (known)
        return mg_err_set(err, MG_ECONFLICT, "events[%d].session_thread_id: thread '%.*s' has ended", i,
                          MG_SV_ARG(mg_shown_id(d->thread_id)));
    return no_thread(d, i, err);
}

static mg_rc interrupt_threads(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    int only = -1;
    mg_rc rc = d->thread_id.len ? interrupt_target(s, d, i, &only, err) : MG_OK;
    if (rc < 0)
        return rc;
    store_draft(ad, d, i, true);
    for (int k = 1; k < s->threads->n; k++)
        if (!s->threads->all[k].ended && (only < 0 || k == only))
            mg_step_post(s, &s->threads->all[k].st.thread, MG_EV_USER_INTERRUPT, MG_SV(""), true);
    for (int k = 0; k < ad->n_waves; k++)
        if (only < 0 || k == only)
            forget_calls(&ad->waves[k]);
    return only < 0 ? mg_threads_interrupt_all(s, err) : interrupt_thread(ad, only, err);
}

static mg_rc admit_interrupt(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    if (ad->step.threads)
        return interrupt_threads(ad, d, i, err);
    const struct mg_id primary = mg_thread_primary(mg_id_sv(&ad->step.st.session));
    if (d->thread_id.len && !mg_sv_eq(d->thread_id, mg_id_sv(&primary)))
        return no_thread(d, i, err);
    store_draft(ad, d, i, true);
    if (ad->step.st.turn_step == MG_TURN_NONE || ad->step.st.turn_step == MG_TURN_PAUSED)
        return MG_OK;
    ad->interrupted = true;
    forget_calls(ad->w);
    return mg_turn_interrupt(&ad->step, err);
}

/* Calls that wait for a client, as the drafts before have left them. */
static int64_t gates(const struct admission *ad)
{
    int64_t n = 0;
    if (!ad->w->loaded)
        return ad->step.st.open_actions;
    for (int i = 0; i < ad->w->n; i++)
        n += ad->w->calls[i].waits != MG_WAIT_NONE;
    return n;
}

/* What stood behind a result that is repeated: the same system.message, or the repeat is another request. */
static mg_rc system_again(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_event_seen e = {0};
    struct mg_id id;
    mg_rc rc = mg_event_at(s->arena, s->t, &s->st.session, ad->replayed[i - 1] + 1, &r, &e, err);
    if (rc < 0 && rc != MG_ENOTFOUND)
        return rc;
    if (rc == MG_ENOTFOUND || !mg_sv_eqz(e.type, "system.message") || !same_result(s->arena, e.body, d) ||
        !mg_id_from(e.id, &id))
        return mg_err_set(err, MG_ECONFLICT,
                          "events[%d]: the result before it was accepted earlier, without this system.message", i);
    answer_with_seen(ad, i, &id, &e);
    return MG_OK;
}

static mg_rc admit_system(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    if (ad->drafts[i - 1].type == MG_EV_USER_MESSAGE && gates(ad) > 0)
        return mg_err_set(err, MG_EINVAL,
                          "events[%d]: while calls wait for a client, a system.message may only follow one of their "
                          "results; send it with a message once they are answered",
                          i);
    if (ad->replayed[i - 1])
        return system_again(ad, d, i, err);
    int child = ad->routes[i - 1];
    store_draft(ad, d, i, child > 0);
    if (child > 0) /* the child's model reads it, behind the result */
        mg_step_post(&ad->step, &ad->step.threads->all[child].st.thread, d->type, d->members, false);
    return MG_OK;
}

static mg_rc budget_is_used_up(int i, struct mg_err *err)
{
    return mg_err_set(
        err, MG_EINVAL,
        "events[%d].type: the session's budget is used up; until it is raised or removed only user.interrupt, "
        "user.tool_confirmation, user.custom_tool_result and user.tool_result are taken",
        i);
}

static mg_rc admit_outcome(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    struct mg_draft with_id = *d;
    struct mg_id outcome = mg_id_new("outc");
    char place[32];
    (void)snprintf(place, sizeof(place), "events[%d]", i);
    with_id.members = mg_arena_printf(ad->step.arena, "%.*s,\"outcome_id\":\"%s\"", MG_SV_ARG(d->members), outcome.s);
    store_draft(ad, &with_id, i, true);
    return mg_outcome_define(&ad->step, d, &outcome, place, err);
}

static mg_rc admit_draft(struct admission *ad, const struct mg_draft *d, int i, struct mg_err *err)
{
    switch (d->type) {
    case MG_EV_USER_MESSAGE:
        if (mg_budget_reached(&ad->step.st))
            return budget_is_used_up(i, err);
        store_draft(ad, d, i, false);
        ad->step.st.queued_inputs++;
        ad->step.st.relays = 0;
        return mg_content_files_pin(ad->step.t, &ad->step.st.session, d, err);
    case MG_EV_USER_DEFINE_OUTCOME:
        return mg_budget_reached(&ad->step.st) ? budget_is_used_up(i, err) : admit_outcome(ad, d, i, err);
    case MG_EV_SYSTEM_MESSAGE:
        return admit_system(ad, d, i, err);
    case MG_EV_USER_INTERRUPT:
        return admit_interrupt(ad, d, i, err);
    case MG_EV_USER_TOOL_RESULT:
    case MG_EV_USER_CUSTOM_TOOL_RESULT:
        return admit_result(ad, d, i, err);
    case MG_EV_USER_TOOL_CONFIRMATION:
        return admit_confirmation(ad, d, i, err);
    default:
        return mg_err_set(err, MG_EINVAL, "events[%d].type: '%s' cannot be sent by a client", i,
                          mg_event_type_name(d->type));
    }
}

/* ---- the whole POST ---- */

static mg_rc session_takes_input(const struct mg_session_state *st, struct mg_err *err)
{
    if (st->deleting)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' does not exist", st->session.s);
    if (st->archived)
        return mg_err_set(err, MG_ECONFLICT, "session '%s' is archived and takes no events", st->session.s);
    if (st->status == MG_ST_TERMINATED)
        return mg_err_set(err, MG_ECONFLICT, "session '%s' is terminated and takes no events; create a new session",
                          st->session.s);
    return MG_OK;
}

/* Answers opened something: tools that may run now, the next request, or the rest of the barrier. While another wave of tools runs (step tools), its
 * owner looks at the calls when it ends. */
static mg_rc settle_wave(struct admission *ad, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    if (s->st.turn_step == MG_TURN_TOOLS) {
        s->st.open_actions = 0;
        for (int i = 0; i < ad->w->n; i++)
            s->st.open_actions += ad->w->calls[i].waits != MG_WAIT_NONE;
        return MG_OK;
    }
    mg_rc rc = mg_turn_after_calls(s, ad->w->calls, ad->w->n, err);
    if (rc == MG_OK && s->st.turn_step != MG_TURN_ACTION && s->st.turn_step != MG_TURN_NONE) {
        mg_turn_claim(s);
        ad->claimed = true;
    }
    return rc;
}

static mg_rc settle_calls(struct admission *ad, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; rc == MG_OK && i < ad->n_waves; i++) {
        if (!ad->waves[i].changed)
            continue;
        rc = enter(ad, i, err);
        if (rc == MG_OK)
            rc = settle_wave(ad, err);
    }
    return rc < 0 ? rc : enter(ad, 0, err);
}

static mg_rc admit_all(struct admission *ad, const struct mg_draft *drafts, int n, struct mg_err *err)
{
    struct mg_step *s = &ad->step;
    ad->answers = mg_arena_alloc(s->arena, sizeof(*ad->answers) * (size_t)n);
    ad->ids = mg_arena_alloc(s->arena, sizeof(*ad->ids) * (size_t)n);
    ad->replayed = mg_arena_alloc(s->arena, sizeof(*ad->replayed) * (size_t)n);
    ad->drafts = drafts;
    ad->routes = mg_arena_alloc(s->arena, sizeof(*ad->routes) * (size_t)n);
    ad->n_waves = s->threads ? s->threads->n : 1;
    ad->w = ad->waves = mg_arena_alloc(s->arena, sizeof(*ad->waves) * (size_t)ad->n_waves);
    for (int i = 0; i < n; i++) {
        mg_rc rc = admit_draft(ad, &drafts[i], i, err);
        if (rc == MG_OK)
            rc = enter(ad, 0, err);
        if (rc < 0)
            return rc;
    }
    mg_rc rc = settle_calls(ad, err);
    if (rc == MG_OK && s->st.turn_step == MG_TURN_NONE && s->st.status != MG_ST_TERMINATED && s->st.queued_inputs > 0) {
        rc = mg_turn_start(s, err);
        ad->claimed = true;
    }
    return rc;
}

static void admission_go(struct mg_engine *e, const struct admission *ad)
{
    if (ad->step.threads)
        return; /* the step's end has settled what each thread does now */
    if (ad->interrupted)
        mg_engine_cancel(e, &ad->step.st.session, ad->step.st.turn_epoch);
    if (ad->claimed)
        mg_engine_go(e, &ad->step.st);
}

mg_rc mg_admit(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
               struct mg_sv session_id, struct mg_draft *drafts, int n, struct mg_buf *out, struct mg_id *ret_ids,
               struct mg_err *err)
{
    mg_auto(admission) struct admission ad = {0};
    mg_rc rc = mg_content_files_read(mg_engine_objects(e), pg, a, mg_id_sv(&who->workspace), "events", drafts, n, err);
    if (rc < 0)
        return rc;
    rc = mg_step_begin(&ad.step, e, pg, a, session_id, mg_id_sv(&who->workspace), -1, err);
    if (rc == MG_OK)
        rc = mg_works_may_send(&ad.step, who, drafts, n, err);
    if (rc == MG_OK)
        rc = session_takes_input(&ad.step.st, err);
    if (rc == MG_OK)
        rc = admit_all(&ad, drafts, n, err);
    if (rc == MG_OK)
        rc = mg_step_commit(&ad.step, "admission", err);
    if (rc < 0)
        return rc;
    admission_go(e, &ad);
    (void)mg_buf_char(out, '[');
    for (int i = 0; i < n; i++) {
        if (i)
            (void)mg_buf_char(out, ',');
        (void)mg_buf_sv(out, ad.answers[i]);
        if (ret_ids)
            ret_ids[i] = ad.ids[i];
    }
    return mg_buf_char(out, ']');
}

mg_rc mg_admit_in(struct mg_engine *e, struct mg_txn *t, struct mg_arena *a, const struct mg_session_state *fresh,
                  const struct mg_draft *drafts, int n, struct mg_admitted **ret, struct mg_err *err)
{
    struct mg_admitted *x = mg_arena_new_of(a, struct mg_admitted);
    mg_rc rc = mg_step_adopt(&x->ad.step, e, t, a, fresh, err);
    if (rc == MG_OK)
        rc = admit_all(&x->ad, drafts, n, err);
    if (rc == MG_OK)
        rc = mg_step_flush(&x->ad.step, err);
    if (rc == MG_OK)
        *ret = x;
    return rc;
}

void mg_admitted_publish(struct mg_engine *e, struct mg_admitted *x)
{
    mg_step_publish(&x->ad.step);
    if (x->ad.step.threads)
        mg_threads_settle(&x->ad.step);
    admission_go(e, &x->ad);
}

const char *mg_admitted_status(const struct mg_admitted *x)
{
    return mg_session_status_name(x->ad.step.st.status);
}
