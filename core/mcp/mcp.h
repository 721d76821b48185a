/* A client of MCP servers over Streamable HTTP: one link to one server on behalf of one session.
 *
 * Whatever a server does is bounded: time, bytes, events, tools, the size of each description and schema. Requests to
 * other hosts than the one named are never made. A tool call is sent once: it is repeated only where the server said,
 * or the connection shows, that nothing ran; a call whose answer was lost says so instead.
 *
 * Concurrency: a link belongs to one thread at a time; its calls block. Links share a host, from any thread. */
#ifndef MG_MCP_MCP_H
#define MG_MCP_MCP_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"
#include "mcp/tool-list.h"

enum {
    MG_MCP_CALL_MS = 60000,   /* a request without its answer or progress: semantics MC1 */
    MG_MCP_TOTAL_MS = 600000, /* a call that keeps telling of its progress */
    MG_MCP_LIST_MS = 30000,   /* connecting and listing: a turn waits for it */
    MG_MCP_CONNECT_MS = 15000,
    MG_MCP_ANSWER_MAX = 16 * 1024 * 1024, /* bytes of one answer, all its events together: two images and a long text */
    MG_MCP_EVENTS_MAX = 10000,            /* messages of one answer: progress of a long call; more is a flood */
    MG_MCP_RESUMES_MAX = 20,              /* reconnects of one answer: a server may ask for polling */
    MG_MCP_URL_MAX = 2048,                /* bytes: the API's limit for mcp_servers[].url */
    MG_MCP_SESSION_MAX = 512,             /* bytes of a server's session id: far above a UUID or a signed token */
};

struct mg_net;
struct mg_mcp_host; /* what the links of a process share */
struct mg_mcp;

struct mg_mcp_host_opts {
    struct mg_net *net; /* borrowed: must outlive the host */
    uint32_t call_ms;   /* 0: MG_MCP_CALL_MS; the other limits of time shrink with it */
};
/* The longest that a call may take, for a host with this call_ms. */
uint32_t mg_mcp_total_ms(uint32_t call_ms);
struct mg_mcp_host *mg_mcp_host_new(const struct mg_mcp_host_opts *o);
/* All links are freed. Waits a second for what was told to servers at the end; NULL is fine. */
void mg_mcp_host_free(struct mg_mcp_host *h);

/* Says nothing to the server yet. */
struct mg_mcp *mg_mcp_new(struct mg_mcp_host *h, struct mg_sv url);
void mg_mcp_free(struct mg_mcp *m); /* ends the server's session, without waiting; NULL is fine */
struct mg_sv mg_mcp_url(const struct mg_mcp *m);
/* The bearer token of the requests that follow, copied; empty: none. The copy is overwritten by the next one and at the
 * end. It goes to the link's own origin only. */
void mg_mcp_authorize(struct mg_mcp *m, struct mg_sv token);

/* The step that was asked for last, and the answer of a server that refused it. */
struct mg_mcp_refusal {
    const char *method; /* initialize, tools/list; NULL: none yet */
    int status;         /* 0: it was not refused by an HTTP status */
    char type[64], text[1024];
    bool cut;
};
const struct mg_mcp_refusal *mg_mcp_refused(const struct mg_mcp *m);

/* Asks for all tools and adds them to ret. MG_EAUTH: the server wants credentials. MG_ECANCELED. Any other failure: the
 * server cannot be used; the text says why and does not name the server. */
mg_rc mg_mcp_list(struct mg_mcp *m, struct mg_cancel *cancel, struct mg_mcp_tool_list *ret,
                  struct mg_err *err) MG_MUSTCHECK;

/* How a call ended. */
struct mg_mcp_answer {
    struct mg_buf message; /* the whole JSON-RPC message, which holds a result or an error; when MG_OK */
    bool may_have_run;     /* after a failure: the server may have done it, its answer is lost */
};
static inline void mg_mcp_answer_cleanup(struct mg_mcp_answer *a)
{
    mg_buf_done(&a->message);
}
/* input: a raw JSON object. The failures of mg_mcp_list; MG_ETIMEOUT. ret is to be cleaned up in any case. */
mg_rc mg_mcp_call(struct mg_mcp *m, struct mg_sv tool, struct mg_sv input, struct mg_cancel *cancel,
                  struct mg_mcp_answer *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
