/* What the files of this folder share: one call in flight, and the table of tools. */
#ifndef MG_TOOLS_INTERNAL_H
#define MG_TOOLS_INTERNAL_H

#include "domain/check.h"
#include "tools/tools.h"

struct mg_shell;

struct mg_tools {
    const struct mg_tool_ops *ops;
    void *box;
    struct mg_shell *shell; /* NULL: none is open */
    bool shell_replaced;    /* the next result has to say so */
    char state_name
        [40]; /* backends without proc_open: file that keeps folder and variables, "" before the first command */
};

enum { MG_TOOL_ARGS_MAX = 4, MG_TOOL_PATH_MAX = 4095 /* bytes of a path: PATH_MAX without the NUL */ };

struct mg_tool_call {
    struct mg_tools *tools;
    struct mg_arena *arena;                      /* dies with the call */
    const struct mg_json *arg[MG_TOOL_ARGS_MAX]; /* in the order of the tool's rules; NULL: absent or null */
    struct mg_cancel *cancel;                    /* may be NULL */
    struct mg_tool_result *ret;
    struct mg_err *err;
};

/* Each fills c->ret and returns MG_OK, or a negative code as mg_tool_run does. */
mg_rc mg_tool_bash(struct mg_tool_call *c);
mg_rc mg_tool_read(struct mg_tool_call *c);
mg_rc mg_tool_write(struct mg_tool_call *c);
mg_rc mg_tool_edit(struct mg_tool_call *c);
mg_rc mg_tool_glob(struct mg_tool_call *c);
mg_rc mg_tool_grep(struct mg_tool_call *c);

#endif
