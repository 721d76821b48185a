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

/* The roster of a coordinator's SessionAgent: its first SessionThreadAgent, the rest behind it; NULL: the agent has none. */
const struct mg_json *mg_roster_first(struct mg_arena *a, const struct mg_json *agent);
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
/* A received message as the model reads it: its blocks between two that name the sender. inside: the blocks, without brackets. */
void mg_thread_message_content(struct mg_arena *a, const struct mg_json *event, struct mg_sv inside,
                               struct mg_buf *out);

#endif
