/* MCP servers in a turn: their tools are listed before the first model request that needs them, and their calls are made on tool threads. */
#ifndef MG_RUN_MCP_H
#define MG_RUN_MCP_H

#include "run/engine-internal.h"

enum { MG_MCP_IDLE_S = 600 /* a link to a server is kept this long without a request */ };

/* Puts the snapshots of the agent's MCP servers into *agent (arena text). A server that has none is noted: mg_mcp_wanted. */
mg_rc mg_mcp_attach(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_sv *agent,
                    struct mg_err *err) MG_MUSTCHECK;
/* Whether servers must be asked before the request can be made. */
bool mg_mcp_wanted(const struct mg_run *r);
/* Asks them, all at once; then the request is built again. A server that fails is a session.error, and the turn goes on without its tools. */
void mg_run_mcp_list(struct mg_run *r);
/* The call in flight is one of a MCP server: made, and answered by mg_run_call_done. On an engine thread. */
void mg_run_mcp_call(struct mg_run *r, struct mg_pg *pg);
/* When the result of a call is written: one whose answer was lost is ambiguous, and a server that failed is a session.error. */
void mg_mcp_answered(struct mg_run *r, struct mg_step *s, struct mg_tool_call *c);
/* What the run keeps of all this. */
struct mg_mcp_work;
void mg_mcp_work_free(struct mg_mcp_work *w); /* NULL is fine */

/* ---- mcp-link.c: live links to servers, by thread and server ---- */
struct mg_mcp;
struct mg_mcp_host;
struct mg_mcp_link;
struct mg_net;
struct mg_mcp_links *mg_mcp_links_new(struct mg_net *net, uint32_t call_ms); /* net NULL: none can be opened */
void mg_mcp_links_free(struct mg_mcp_links *l);                              /* drops all */
/* The thread's link to the server, locked for the caller alone; a new one when there is none or the URL is another. NULL: this server makes no
 * requests to hosts of users. */
struct mg_mcp_link *mg_mcp_link_lock(struct mg_mcp_links *l, const struct mg_id *session, const struct mg_id *thread,
                                     struct mg_sv server, struct mg_sv url);
void mg_mcp_link_unlock(struct mg_mcp_link *k);
struct mg_mcp_host *mg_mcp_links_host(
    struct mg_mcp_links *l); /* NULL: this server makes no requests to hosts of users */
struct mg_mcp *mg_mcp_link_of(struct mg_mcp_link *k);
void mg_mcp_links_drop(struct mg_mcp_links *l, const struct mg_id *session); /* its servers are told that it is over */
void mg_mcp_links_drop_idle(struct mg_mcp_links *l, uint64_t idle_ns);       /* 0: all */
void mg_mcp_metrics(struct mg_mcp_links *l, struct mg_buf *out);             /* Prometheus text */

#endif
