/* One HTTP request to an MCP server and what comes back; used by core/mcp alone. */
#ifndef MG_MCP_EXCHANGE_H
#define MG_MCP_EXCHANGE_H

#include "base/buf.h"
#include "base/cancel.h"
#include "mcp/mcp.h"
#include "net/loop.h"
#include "net/sse-parse.h"

enum {
    MG_MCP_REFUSAL_MAX = 16 * 1024, /* bytes of an answer's body that are read when its status is no success */
};

struct mg_mcp_exchange_req {
    const char *method; /* POST, GET */
    struct mg_sv url, body;
    const struct mg_net_header *headers;
    int n_headers;
    int64_t id;                 /* of the request whose answer is awaited; 0: none */
    int64_t token;              /* by which the server tells of its progress; 0: none */
    uint32_t idle_ms, total_ms; /* idle: without the answer or progress; pings and noise do not count */
    bool fresh;
    struct mg_cancel *cancel;
    /* A request of the server came; on the loop's thread. */
    void (*on_request)(void *ctx, struct mg_sv id, struct mg_sv method);
    void *ctx;
};

/* What came back. */
struct mg_mcp_exchange {
    mg_rc rc; /* of the transport: MG_OK when the answer ended as HTTP has it, or ours came */
    char text[MG_NET_TEXT_MAX];
    bool sent;      /* the server may have seen the request */
    int status;     /* 0: none */
    bool answered;  /* message holds the answer */
    bool stream;    /* it came as an event stream */
    bool malformed; /* a message that is no JSON-RPC came; text says what is wrong */
    struct mg_buf message;
    struct mg_buf refusal; /* the body of a status that is no success */
    char type[64];         /* its content type, without parameters */
    char session[MG_MCP_SESSION_MAX + 1], location[MG_MCP_URL_MAX + 1];
    char event_id[MG_SSE_ID_MAX + 1]; /* the newest of the stream; "": it cannot be resumed */
    int64_t retry_ms;                 /* what the server asked for; -1: nothing */
};

static inline void mg_mcp_exchange_cleanup(struct mg_mcp_exchange *x)
{
    mg_buf_done(&x->message);
    mg_buf_done(&x->refusal);
}

/* Blocks until the answer, a limit of time or the cancel. Not on a loop's thread. */
void mg_mcp_exchange(struct mg_net *net, const struct mg_mcp_exchange_req *req, struct mg_mcp_exchange *ret);

#endif
