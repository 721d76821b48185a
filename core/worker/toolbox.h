/* The tools of one session that is served: custom ones, and an executor or the workspace for the built-in ones.
 *
 * Concurrency: one call at a time, on a thread of its own (job.h). */
#ifndef MG_WORKER_TOOLBOX_H
#define MG_WORKER_TOOLBOX_H

#include "worker/event.h"
#include "worker/tools.h"
#include "worker/worker.h"

enum {
    MG_TOOLBOX_CUSTOM_MS = 120000,                           /* one call of a custom tool, as the official runners */
    MG_TOOLBOX_BUILTIN_MS = MG_TOOL_TIMEOUT_MAX_MS + 300000, /* bash has a limit of its own; this is behind it */
};

/* Borrowed; all of it outlives the toolbox. */
struct mg_toolbox_opts {
    const struct mango_tool *tools;
    unsigned n_tools;
    const struct mango_executor *executor; /* NULL: the workspace */
    struct mg_workspace_opts workspace;
};

struct mg_toolbox;

mg_rc mg_toolbox_open(const struct mg_toolbox_opts *o, const char *session_id, struct mg_toolbox **ret,
                      struct mg_err *err) MG_MUSTCHECK;
void mg_toolbox_close(struct mg_toolbox *b); /* NULL is fine */
bool mg_toolbox_has(const struct mg_toolbox *b, const char *name);
uint32_t mg_toolbox_timeout_ms(const struct mg_toolbox *b, const char *name);
/* As mg_workspace_call. */
mg_rc mg_toolbox_call(struct mg_toolbox *b, const struct mg_call *c, struct mg_cancel *cancel,
                      struct mg_tool_result *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
