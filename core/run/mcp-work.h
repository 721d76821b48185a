/* What a run keeps of its MCP servers; used by core/run/mcp*.c alone. */
#ifndef MG_RUN_MCP_WORK_H
#define MG_RUN_MCP_WORK_H

#include "mcp/mcp.h"
#include "run/mcp.h"
#include "run/wallet.h"

enum { MG_MCP_TEXT_MAX = 512 /* bytes of a failure's text in an event: semantics RT7 */ };

/* A server that is asked for its tools. */
struct mg_mcp_asked {
    char *server, *url;
    struct mg_token *token; /* NULL: the session has no credential for it */
    mg_rc rc;               /* before it is asked: why it cannot be */
    struct mg_err err;
    struct mg_mcp_tool_list list;
};

struct mg_mcp_work {
    struct mg_mcp_asked *asked;
    int n_asked;
    atomic_int left; /* that have not answered */
    /* The call in flight: from the engine thread that starts it to the tool thread that makes it, and back. */
    char *server, *tool, *url;
    struct mg_token *token;
    bool cloud; /* the session's environment is the server's own: it may have a sandbox */
    struct mg_mcp_answer answer;
    bool lost;              /* it may have run, and its answer is lost */
    const char *error_type; /* of the session.error that tells clients, or NULL */
    char text[MG_MCP_TEXT_MAX];
};

struct mg_mcp_work *mg_mcp_work_of(struct mg_run *r); /* made when there is none */
/* Members of a session.error about a server, in the arena. */
struct mg_sv mg_mcp_error_members(struct mg_arena *a, const char *type, struct mg_sv server, const char *text);
/* The type of the session.error for a failure. */
const char *mg_mcp_error_type(mg_rc rc);
/* Calls fn over the thread's link to the server, with the token, which is refreshed when it has expired or when the server refuses it. fn must
 * not have had an effect when it says MG_EAUTH. Blocks. */
mg_rc mg_mcp_with_link(struct mg_run *r, struct mg_sv server, struct mg_sv url, struct mg_token *token,
                       mg_rc (*fn)(void *ctx, struct mg_mcp *m, struct mg_err *err), void *ctx,
                       struct mg_err *err) MG_MUSTCHECK;
void mg_mcp_count(struct mg_mcp_links *l, bool call, bool failed); /* for /metrics */

#endif
