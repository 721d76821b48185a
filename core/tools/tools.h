/* The six built-in tools (bash, read, write, edit, glob, grep), written once over a small table of operations. The core fills the table from a
 * backend plugin; the worker fills it from the local machine. Behaviour: api-contract 7.2, 7.3 and the field cases 64 to 78. */
#ifndef MG_TOOLS_TOOLS_H
#define MG_TOOLS_TOOLS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_TOOL_OUTPUT_MAX = 100 * 1024,     /* bytes of a bash result (tail kept) and of grep (head kept) */
    MG_TOOL_READ_MAX = 256 * 1024,       /* bytes of a file that read gives without view_range, and that edit takes */
    MG_TOOL_WRITE_MAX = 64 * 1024 * 1024, /* bytes of a write */
    MG_TOOL_GLOB_MAX = 200,              /* paths */
    MG_TOOL_DEFAULT_MS = 120000,         /* bash without timeout_ms */
    MG_TOOL_TIMEOUT_MAX_MS = 3600000,
    MG_TOOL_SEARCH_MS = 60000,           /* glob and grep */
};

/* How a command ended. The end of a stream is never success: without an explicit status it is unknown. */
struct mg_exec_status {
    int exit_code;     /* valid when exited */
    int signal;        /* > 0: died of it */
    bool exited, timed_out, cancelled, oom, unknown;
};

/* Output goes here as it comes. stream: 1 stdout, 2 stderr. Returns false to stop being called; the command goes on, drained. */
typedef bool mg_exec_sink(void *ctx, int stream, const char *p, size_t n);

struct mg_exec_req {
    const char *const *argv;   /* NULL-terminated */
    const char *cwd;           /* relative to the workspace root, or NULL */
    const char *const *env;    /* "NAME=value" additions, or NULL */
    struct mg_sv stdin_data;   /* whole input; empty: end of file at once */
    uint64_t deadline_ns;      /* monotonic */
    struct mg_cancel *cancel;
    mg_exec_sink *sink;
    void *sink_ctx;
};

struct mg_file_stat {
    int64_t size, mtime_us;
    uint32_t mode;             /* permission bits */
    char kind;                 /* 'f' file, 'd' folder, 'l' link, 'o' other */
};

/* Operations of one live sandbox. Blocking. Paths are relative to the workspace root or absolute inside an allowed root; the implementation
 * confines them. MG_EGONE: the sandbox is lost. MG_ECANCELED, MG_ETIMEOUT as named. */
struct mg_tool_ops {
    mg_rc (*exec)(void *box, const struct mg_exec_req *req, struct mg_exec_status *ret, struct mg_err *err);
    /* Appends at most max bytes from offset; *ret_eof tells whether the file ended there. Special files are MG_EINVAL. */
    mg_rc (*read)(void *box, const char *path, int64_t offset, size_t max, struct mg_buf *out, bool *ret_eof, struct mg_err *err);
    /* Atomic replacement, parents made, mode kept for an existing file else 0644. */
    mg_rc (*write)(void *box, const char *path, struct mg_sv content, struct mg_err *err);
    mg_rc (*stat)(void *box, const char *path, struct mg_file_stat *ret, struct mg_err *err);
    const char *(*root)(void *box);  /* absolute workspace root as the commands see it */
    /* A long-lived process with piped stdin and stdout/stderr: the persistent shell. NULL when the backend has none; bash then keeps folder
     * and variables in a state file. */
    mg_rc (*proc_open)(void *box, const char *const *argv, const char *const *env, void **ret_proc, struct mg_err *err);
    mg_rc (*proc_write)(void *proc, struct mg_sv data, struct mg_err *err);
    /* Waits for output until the deadline; *ret_closed when the process ended. */
    mg_rc (*proc_read)(void *proc, uint64_t deadline_ns, struct mg_cancel *cancel, mg_exec_sink *sink, void *sink_ctx, bool *ret_closed,
                       struct mg_err *err);
    void (*proc_close)(void *proc);  /* kills what is left of its process group and descendants */
};

/* A set of tools over one sandbox: holds the persistent shell. One call at a time. */
struct mg_tools;
struct mg_tools *mg_tools_new(const struct mg_tool_ops *ops, void *box); /* box is borrowed and must outlive */
void mg_tools_free(struct mg_tools *t);                                 /* closes the shell */

/* What the model and the client see. content is the raw JSON of a content array (text blocks, or an image for read); never empty text. */
struct mg_tool_result {
    struct mg_buf content;
    bool is_error;
};

/* True for the six names. */
bool mg_tool_known(struct mg_sv name);
/* The description and input schema of each for the model request, a raw JSON object {"name","description","input_schema"}. */
struct mg_sv mg_tool_definition(struct mg_sv name);
/* Runs one call. input is the raw JSON object that the model sent. A tool that fails (bad input, non-zero exit, missing file) is MG_OK with
 * is_error; negative only for MG_ECANCELED, MG_EGONE, and failures of the sandbox itself. */
mg_rc mg_tool_run(struct mg_tools *t, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel, struct mg_tool_result *ret,
                  struct mg_err *err) MG_MUSTCHECK;

#endif
