/* Calls a tool in a host box and looks at the one result. */
#ifndef MG_TESTS_TOOL_CALL_H
#define MG_TESTS_TOOL_CALL_H

#include "json/write.h"
#include "support/host-box.h"

struct tool_case {
    struct host_box *box;
    struct mg_tools *tools;
    /* Instead of mg_tool_run over tools, with ctx in front; NULL: that. */
    mg_rc (*run)(void *ctx, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel, struct mg_tool_result *ret,
                 struct mg_err *err);
    void *ctx;
    struct mg_arena *arena;
    struct mg_cancel *cancel; /* of the next calls, or NULL */
    /* of the last call */
    mg_rc rc;
    struct mg_err err;
    bool is_error;
    const char *raw;  /* the content array */
    const char *text; /* of its text block, or "" */
    size_t text_len;
    const char *type; /* of its one block */
    unsigned ms;
};

int tool_case_setup(void **state);
int tool_case_setup_one_shot(void **state);
int tool_case_teardown(void **state);

/* input is JSON; asserts that there is exactly one legal block. Returns the text. */
const char *tool_call(struct tool_case *t, const char *name, struct mg_sv input);
/* String arguments: name, value pairs up to NULL. A value that starts with 0x01 is raw JSON. */
const char *tool_callv(struct tool_case *t, const char *name, ...) __attribute__((sentinel));
const char *tool_bash(struct tool_case *t, const char *command, int timeout_ms);
/* VmHWM in KiB after a reset of the mark. Always 0 under a sanitizer, which keeps freed memory. */
void tool_peak_reset(void);
long tool_peak_kib(void);

#endif
