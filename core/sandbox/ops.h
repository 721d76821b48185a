/* The operations that the tools need of a live sandbox. The core fills the table from a backend plugin
 * (sandbox/manager.h), the worker from the local machine. */
#ifndef MG_SANDBOX_OPS_H
#define MG_SANDBOX_OPS_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"

/* How a command ended. The end of a stream is never success: without an explicit status it is unknown. */
struct mg_exec_status {
    int exit_code; /* valid when exited */
    int signal;    /* > 0: died of it */
    bool exited, timed_out, cancelled, oom, unknown;
};

/* Output goes here as it comes. stream: 1 stdout, 2 stderr. Returns false to stop being called; the command goes on,
 * drained. */
typedef bool mg_exec_sink(void *ctx, int stream, const char *p, size_t n);
/* A sink whose ctx is a struct mg_buf, which takes stdout; stderr is dropped. What does not fit fails the buffer. */
static inline bool mg_exec_to_buf(void *ctx, int stream, const char *p, size_t n)
{
    return stream != 1 || mg_buf_append(ctx, p, n) >= 0;
}

struct mg_exec_req {
    const char *const *argv; /* NULL-terminated */
    const char *cwd;         /* relative to the workspace root, or NULL */
    const char *const *env;  /* "NAME=value" additions, or NULL */
    struct mg_sv stdin_data; /* whole input; empty: end of file at once */
    uint64_t deadline_ns;    /* monotonic */
    struct mg_cancel *cancel;
    mg_exec_sink *sink;
    void *sink_ctx;
};

struct mg_file_stat {
    int64_t size, mtime_us;
    uint32_t mode; /* permission bits */
    char kind;     /* 'f' file, 'd' folder, 'l' link, 'o' other */
};

/* Operations of one live sandbox. Blocking. Paths are relative to the workspace root or absolute inside an allowed
 * root; the implementation confines them. MG_EGONE: the sandbox is lost. MG_ECANCELED, MG_ETIMEOUT as named. */
struct mg_tool_ops {
    mg_rc (*exec)(void *box, const struct mg_exec_req *req, struct mg_exec_status *ret, struct mg_err *err);
    /* Appends at most max bytes from offset; *ret_eof tells whether the file ended there. Special files are MG_EINVAL.
     */
    mg_rc (*read)(void *box, const char *path, int64_t offset, size_t max, struct mg_buf *out, bool *ret_eof,
                  struct mg_err *err);
    /* Atomic replacement, parents made, mode kept for an existing file else 0644. */
    mg_rc (*write)(void *box, const char *path, struct mg_sv content, struct mg_err *err);
    mg_rc (*stat)(void *box, const char *path, struct mg_file_stat *ret, struct mg_err *err);
    const char *(*root)(void *box); /* absolute workspace root as the commands see it */
    /* A long-lived process with piped stdin and stdout/stderr: the persistent shell. NULL when the backend has none;
     * bash then keeps folder and variables in a state file. */
    mg_rc (*proc_open)(void *box, const char *const *argv, const char *const *env, void **ret_proc, struct mg_err *err);
    mg_rc (*proc_write)(void *proc, struct mg_sv data, struct mg_err *err);
    /* Waits for output and hands over what is there: MG_OK after at least one call of sink, or with *ret_closed when
     * the process has ended (all it wrote was handed over before; descendants that hold its pipes do not count).
     * MG_ETIMEOUT: the deadline came first, the process goes on. MG_ECANCELED: the same for the caller's cancel. stdout
     * and stderr are told apart or not, as the backend can. */
    mg_rc (*proc_read)(void *proc, uint64_t deadline_ns, struct mg_cancel *cancel, mg_exec_sink *sink, void *sink_ctx,
                       bool *ret_closed, struct mg_err *err);
    void (*proc_close)(void *proc); /* kills what is left of its process group and descendants */
};

#endif
