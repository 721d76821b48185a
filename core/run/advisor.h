/* The advisor of a coordinator: a model that its primary thread may ask in the middle of a turn (semantics TH6). A question makes a thread named
 * anthropic.advisor with one model request without tools, whose text is the result of the call, and which ends by itself in that commit.
 *
 * The call is `started` while its advisor's thread lives, and the thread alone answers it: whatever ends the thread does, in the same commit. The
 * coordinator's run waits meanwhile without a job, and gets another claim when the last of its calls is answered. A question that a takeover finds
 * asked is not asked again, since its answer may have been paid for (TJ8). All functions are for a locked session. */
#ifndef MG_RUN_ADVISOR_H
#define MG_RUN_ADVISOR_H

#include "json/json.h"
#include "run/step.h"

enum {
    MG_ADVISOR_TOKENS = 2048,             /* of its answer: semantics TH6 */
    MG_ADVISOR_QUESTION_MAX = 64 * 1024,  /* bytes: it reads the conversation besides */
    MG_ADVISOR_CONVERSATION_MAX = 200000, /* bytes of the coordinator's conversation that it reads: the newest part */
};

/* The name of the tool. */
extern const char MG_ADVISOR_TOOL[];
/* The entry of a coordinator's SessionAgent, or NULL. */
const struct mg_json *mg_advisor_of(struct mg_arena *a, const struct mg_json *agent);
/* Its model as a raw JSON string; empty: the agent has none. */
struct mg_sv mg_advisor_model(struct mg_arena *a, const struct mg_json *agent);
extern const char MG_ADVISOR_DEFINITION[];

/* The current thread is an advisor's. */
bool mg_advisor_turn(const struct mg_step *s);
/* A call of the wave waits for its advisor. */
bool mg_advisor_open(const struct mg_tool_call *calls, int n);
/* The same of one call, by a thread that lives. */
bool mg_advisor_owns(const struct mg_step *s, const struct mg_tool_call *c);

/* Asks for a call that is not in the journal yet: it is `started`, or answered with why it cannot be. The primary thread is current. */
mg_rc mg_advisor_ask(struct mg_step *s, const struct mg_json *agent, struct mg_tool_call *c,
                     struct mg_err *err) MG_MUSTCHECK;
/* The current advisor has answered; has failed, as the step's last session.error says; was stopped. Its thread ends, and its call is answered. */
mg_rc mg_advisor_done(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details,
                      struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_advisor_failed(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_advisor_stopped(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* The primary thread, which is current, answers its calls itself: its advisors end without a word. */
mg_rc mg_advisors_stop(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;

/* The request of an advisor's turn. True for the agent of one. */
struct mg_run;
struct mg_assembly;
bool mg_advisor_agent(struct mg_sv agent);
mg_rc mg_advisor_assemble(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                          struct mg_err *err) MG_MUSTCHECK;

#endif
