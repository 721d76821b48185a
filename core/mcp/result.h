/* The result of a tool call as the model and clients will see it. Pure, but for the files that the caller keeps. */
#ifndef MG_MCP_RESULT_H
#define MG_MCP_RESULT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_MCP_PARTS_MAX = 256,                /* content items of a result; more are left out and counted */
    MG_MCP_IMAGES_MAX = 20,                /* images of a result that the model is shown; more become files */
    MG_MCP_INLINE_MAX = 100 * 1024,        /* bytes of all texts together: semantics MC7; longer ones become a file */
    MG_MCP_PREVIEW_MAX = 16 * 1024,        /* bytes that are shown of a text that became a file: head and tail */
    MG_MCP_FILES_MAX = 32,                 /* files that one result may leave in a sandbox */
    MG_MCP_CONTENT_MAX = 24 * 1024 * 1024, /* bytes of the rendered content: that of an answer, and room for escapes */
};

/* Keeps bytes as a file that the model can read later. suffix: "-1.png", ".txt". Returns its path for the model, or
 * NULL when it cannot be kept; *ret_why then says why, as the rest of a sentence ("this session has no sandbox"). */
typedef const char *mg_mcp_keep_fn(void *ctx, const char *suffix, struct mg_sv bytes, const char **ret_why);

/* message: the JSON-RPC message of mg_mcp_call. Writes a raw JSON array of content blocks, never empty and legal for
 * every endpoint. MG_EINVAL: it is no result of a tool call. */
mg_rc mg_mcp_render(struct mg_sv message, mg_mcp_keep_fn *keep, void *ctx, struct mg_buf *out, bool *ret_is_error,
                    struct mg_err *err) MG_MUSTCHECK;
/* Whether mg_mcp_render may want to keep something: then a sandbox is worth being made ready. */
bool mg_mcp_wants_files(struct mg_sv message);

#endif
