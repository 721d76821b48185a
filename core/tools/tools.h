/* The six built-in tools (bash, read, write, edit, glob, grep), written once over a small table of operations. The core fills the table from a
 * backend plugin; the worker fills it from the local machine. Behaviour: api-contract 7.2, 7.3 and the field cases 64 to 78. */
#ifndef MG_TOOLS_TOOLS_H
#define MG_TOOLS_TOOLS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"
#include "sandbox/ops.h"

enum {
    MG_TOOL_OUTPUT_MAX = 100 * 1024,      /* bytes of a bash result (tail kept) and of grep (head kept) */
    MG_TOOL_READ_MAX = 256 * 1024,        /* bytes of a file that read gives without view_range, and that edit takes */
    MG_TOOL_WRITE_MAX = 64 * 1024 * 1024, /* bytes of a write */
    MG_TOOL_GLOB_MAX = 200,               /* paths */
    MG_TOOL_DEFAULT_MS = 120000,          /* bash without timeout_ms */
    MG_TOOL_TIMEOUT_MAX_MS = 3600000,
    MG_TOOL_SEARCH_MS = 60000, /* glob and grep */
};

/* A set of tools over one sandbox: holds the persistent shell. One call at a time. */
struct mg_tools;
struct mg_tools *mg_tools_new(const struct mg_tool_ops *ops, void *box); /* box is borrowed and must outlive */
void mg_tools_free(struct mg_tools *t);                                  /* closes the shell */

/* What the model and the client see. content is the raw JSON of a content array: one text block (valid UTF-8 without NUL, never empty), or
 * for read an image. Filled by mg_tool_run; the caller frees it with mg_tool_result_done, also after an error. */
struct mg_tool_result {
    struct mg_buf content;
    bool is_error;
};

void mg_tool_result_done(struct mg_tool_result *r);

/* True for the six names. */
bool mg_tool_known(struct mg_sv name);
/* The description and input schema of each for the model request, a raw JSON object {"name","description","input_schema"}. */
struct mg_sv mg_tool_definition(struct mg_sv name);
/* Runs one call. input is the raw JSON object that the model sent. A tool that fails (bad input, non-zero exit, missing file) is MG_OK with
 * is_error; negative only for MG_ECANCELED, MG_EGONE, and failures of the sandbox itself. */
mg_rc mg_tool_run(struct mg_tools *t, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel,
                  struct mg_tool_result *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
