/* What the steps of a turn do to a locked session, without any I/O but the step's own statements. Shared by admission and the engine. */
#ifndef MG_RUN_TURN_H
#define MG_RUN_TURN_H

#include "run/step.h"

/* Claims the turn for this node: epoch + 1. */
void mg_turn_claim(struct mg_step *s);
/* session.status_running, unless it runs. */
void mg_turn_running(struct mg_step *s);
/* Opens a model request: span.model_request_start, step model, status running; with a used-up budget the turn is paused instead. The first of a turn
 * resets the counters. */
mg_rc mg_turn_request(struct mg_step *s, bool first, struct mg_err *err) MG_MUSTCHECK;
extern const char MG_END_TURN[]; /* the stop_reason of a turn that ended by itself */
/* Starts a turn on the oldest queued user message, of the log or of this step: claim and first request. The session must be idle with queued_inputs > 0. */
mg_rc mg_turn_start(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The turn is over: the next queued message starts without an idle between, or, with none, session.status_idle. stop_reason is the raw object
 * ({"type":"end_turn"}), details the raw stop_details or empty. */
mg_rc mg_turn_finish(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details,
                     struct mg_err *err) MG_MUSTCHECK;
/* The thread is idle, step none. With no other thread running so is the session: session.status_idle, no owner. */
mg_rc mg_turn_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details, struct mg_err *err) MG_MUSTCHECK;
/* session.status_idle alone. */
void mg_turn_status_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details);
/* The request is tried again after a pause: rescheduled, step backoff. */
void mg_turn_backoff(struct mg_step *s, int64_t due_in_us);
/* Nothing can go on: the session is terminated; a child ends alone. */
mg_rc mg_turn_terminate(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* What follows from the states of the present assistant message's calls: tools to run (step tools), clients to wait for (idle with requires_action,
 * step action), or all answered (results into the transcript, next request). A session that was idle runs again first. */
mg_rc mg_turn_after_calls(struct mg_step *s, const struct mg_tool_call *calls, int n, struct mg_err *err) MG_MUSTCHECK;
/* Ends what the session does on behalf of an interrupt: every open call gets an answer authored by the server, the transcript is closed, one idle event,
 * a new epoch that fences the runner. No-op on a session without a turn. */
mg_rc mg_turn_interrupt(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The same on behalf of the server, when a step can never succeed: session.error with why, then idle with retries_exhausted. */
mg_rc mg_turn_abandon(struct mg_step *s, const char *why, struct mg_err *err) MG_MUSTCHECK;
/* Brings the session to rest whatever state it is in, on behalf of an operator: a server-authored result for every open call of any round, everything
 * unread into the transcript, session.error with why, one idle event, a new epoch. *ret_calls: how many calls that were; *ret_changed false: it was at
 * rest, and nothing is written. */
mg_rc mg_turn_unwedge(struct mg_step *s, int *ret_calls, bool *ret_changed, struct mg_err *err) MG_MUSTCHECK;
/* The turn is over without an answer: idle with retries_exhausted. What waits in the queue is not tried, since it would fail alike (semantics TU5): it is
 * marked as processed and put into the transcript, so that the next turn's model has read it. */
mg_rc mg_turn_exhaust(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Puts the results of a wave into the transcript, in the order of its calls. */
void mg_turn_results(struct mg_step *s, const struct mg_tool_call *calls, int n);
/* The trigger and its companions go into the transcript as processed input although no answer came (interrupt, failure). */
mg_rc mg_turn_take_inputs(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The user entry of a request from its input events' bodies, as a raw content array; empty view when there is none. */
struct mg_sv mg_turn_user_content(struct mg_arena *a, const struct mg_sv *types, const struct mg_sv *bodies, int n);
/* span.model_request_end of the request in flight. usage NULL: zeros. */
struct mg_model_usage;
void mg_turn_request_end(struct mg_step *s, bool is_error, const struct mg_model_usage *usage);
struct mg_sv mg_turn_model_usage(struct mg_arena *a, const struct mg_model_usage *u); /* as an event shows it */
/* One text block as a content array. */
struct mg_sv mg_text_content(struct mg_arena *a, const char *text);

enum mg_answer_by {
    MG_ANSWER_SERVER, /* the event type that fits the call: agent.tool_result, or on behalf of a client user.tool_result / user.custom_tool_result */
    MG_ANSWER_DENIAL, /* agent.tool_result whatever the environment */
};
/* Completes a call and emits its result event. */
mg_rc mg_turn_answer_call(struct mg_step *s, struct mg_tool_call *c, enum mg_answer_by by, struct mg_sv content,
                          bool is_error, struct mg_err *err) MG_MUSTCHECK;

#endif
