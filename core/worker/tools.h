/* The tools of a worker: the six built-in ones on a folder of this machine, opened once for each session that is served.
 *
 * Concurrency: one call at a time; mg_workspace_close comes after the last call has returned. Every call obeys its cancel within
 * MG_WORKSPACE_YIELD_MS, whatever the command does: the lease's fence and a shutdown depend on it. */
#ifndef MG_WORKER_TOOLS_H
#define MG_WORKER_TOOLS_H

#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"
#include "tools/tools.h"

enum {
    MG_WORKSPACE_YIELD_MS = 5000, /* a cancelled call returns within it */
    MG_WORKSPACE_CLOSE_MS = 5000, /* what closing may take: the shell and all it started are gone then */
    MG_WORKSPACE_ROOTS_MAX = 32,  /* allowed roots of one workspace */
};

/* All of it is copied. */
struct mg_workspace_opts {
    const char *root;             /* the work folder, absolute; it must exist */
    const char *const *allowed;   /* further folders that the file tools may enter, NULL-terminated; NULL: none */
    const char *const *read_only; /* of these and of root: nothing is written there; NULL: none */
    bool unrestricted;            /* the file tools go everywhere */
};

struct mg_workspace;

mg_rc mg_workspace_open(const struct mg_workspace_opts *o, struct mg_workspace **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_workspace_close(struct mg_workspace *w); /* NULL is fine */
bool mg_workspace_has(struct mg_sv name);
/* Runs one call; input is the model's raw JSON object. MG_OK with ret filled, is_error for a tool that failed; MG_ECANCELED when the
 * cancel ended it (what the shell held is lost then); another code when the workspace itself failed. ret is the caller's
 * (mg_tool_result_done), also after an error. */
mg_rc mg_workspace_call(struct mg_workspace *w, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel,
                        struct mg_tool_result *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
