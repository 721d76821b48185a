/* JSON-RPC 2.0 messages as MCP uses them. Pure. */
#ifndef MG_MCP_RPC_H
#define MG_MCP_RPC_H

#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

enum {
    MG_RPC_BATCH_MAX = 64, /* messages of one array (protocol 2025-03-26) */
    MG_RPC_ID_MAX = 256,   /* bytes of a foreign id that is sent back */
};

enum mg_rpc_kind { MG_RPC_RESULT, MG_RPC_ERROR, MG_RPC_REQUEST, MG_RPC_NOTE };

struct mg_rpc {
    enum mg_rpc_kind kind;
    struct mg_sv raw;           /* the message */
    struct mg_sv id;            /* raw; RESULT, ERROR (may be null or empty), REQUEST */
    struct mg_sv method;        /* decoded; REQUEST, NOTE */
    const struct mg_json *body; /* result, error or params; NULL: no params */
};

/* Reads one message or an array of them. Errors are MG_EINVAL and say what is wrong. ret has room for
 * MG_RPC_BATCH_MAX. */
mg_rc mg_rpc_parse(struct mg_arena *a, struct mg_sv text, struct mg_rpc *ret, int *ret_n,
                   struct mg_err *err) MG_MUSTCHECK;
bool mg_rpc_is_answer(const struct mg_rpc *m, int64_t id); /* a result or an error of our request */
/* {"code","message"} in words: "message (code -32602)". */
void mg_rpc_error_text(struct mg_arena *a, const struct mg_json *error, char *out, size_t size);
/* Without control characters and bad UTF-8, cut to fit at a character. */
void mg_rpc_show(char *out, size_t size, struct mg_sv text);

/* Messages of ours. params: a raw object, or empty. */
mg_rc mg_rpc_request(struct mg_buf *out, int64_t id, const char *method, struct mg_sv params) MG_MUSTCHECK;
mg_rc mg_rpc_note(struct mg_buf *out, const char *method, struct mg_sv params) MG_MUSTCHECK;
/* The answer to a request of the server: an empty result to a ping, to anything else that we do not do that. */
mg_rc mg_rpc_answer(struct mg_buf *out, struct mg_sv id, struct mg_sv method) MG_MUSTCHECK;

#endif
