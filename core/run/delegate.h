/* How a coordinator and its children talk. The coordinator gets two tools, list_agents and send_to_agent, which are no client's business: clients
 * see the threads and messages that come of them. A call of them changes only the session, so it is completed in the commit that takes it: the new
 * thread, the message in both logs and the receiver's turn are one transaction with the answer that asked for them. A child's last message goes
 * to the coordinator in the commit that ends its turn, and begins a turn there (semantics TH2, TH3). */
#ifndef MG_RUN_DELEGATE_H
#define MG_RUN_DELEGATE_H

#include "run/threads.h"

enum {
    MG_RELAYS_MAX =
        500, /* messages between threads for one message of the client: ends agents that only talk to each other */
    MG_THREAD_MESSAGE_MAX =
        1 << 20, /* bytes of one message that an agent sends: it is in two logs and in a transcript */
};

/* The roster of a coordinator's SessionAgent: its first SessionThreadAgent; NULL: the agent has none. The advisor is none of them. */
const struct mg_json *mg_roster_first(struct mg_arena *a, const struct mg_json *agent);
const struct mg_json *mg_roster_next(struct mg_arena *a, const struct mg_json *entry);
/* A tool that the agent has as a coordinator. */
bool mg_delegate_known(struct mg_arena *a, const struct mg_json *agent, struct mg_sv name);
void mg_delegate_definitions(struct mg_arena *a, const struct mg_json *agent, struct mg_jw *w);
/* The system prompt (a raw JSON string, or empty) with what a coordinator has to know. */
struct mg_sv mg_delegate_system(struct mg_arena *a, const struct mg_json *agent, struct mg_sv system);

/* Runs the coordinator's own calls of a wave that are not refused, in their order; they are not in the journal yet. */
mg_rc mg_delegate_calls(struct mg_step *s, const struct mg_json *agent, struct mg_tool_call *calls,
                        const char *const *refusals, int n, struct mg_err *err) MG_MUSTCHECK;
/* Before the current child's turn ends: tells the coordinator. how NULL: its answer; else "failed", "interrupted" or "archived", which becomes a notice. */
mg_rc mg_thread_report(struct mg_step *s, const char *how, struct mg_err *err) MG_MUSTCHECK;
/* ---- what advisor.c shares ---- */
/* A new idle child, with its session.thread_created; *ret its index. agent is its SessionThreadAgent. */
mg_rc mg_delegate_spawn(struct mg_step *s, struct mg_sv name, struct mg_sv agent, int *ret,
                        struct mg_err *err) MG_MUSTCHECK;
/* Why no further thread or message is possible, or NULL. */
const char *mg_delegate_limit(const struct mg_step *s);
/* A message in both logs, from the current thread to another, which is current then. taken: it is no input there. content: a raw array of blocks. */
mg_rc mg_delegate_post(struct mg_step *s, int to, struct mg_sv content, bool taken, struct mg_err *err) MG_MUSTCHECK;
/* The same as an input, whose turn begins where there is none; the current thread stays. */
mg_rc mg_delegate_deliver(struct mg_step *s, int to, struct mg_sv content, struct mg_err *err) MG_MUSTCHECK;
struct mg_sv mg_delegate_text(struct mg_arena *a, struct mg_sv text); /* one text block as an array */
/* What the current thread says in this step, as a raw array, and what its last error does; or empty. */
struct mg_sv mg_delegate_said(const struct mg_step *s);
struct mg_sv mg_delegate_why(const struct mg_step *s);

/* A received message as the model reads it: its blocks between two that name the sender. inside: the blocks, without brackets. */
void mg_thread_message_content(struct mg_arena *a, const struct mg_json *event, struct mg_sv inside,
                               struct mg_buf *out);

#endif
