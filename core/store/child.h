/* Programs of the PostgreSQL installation, started by posix_spawn; as another user by way of setpriv. Inside of core/store only. */
#ifndef MG_STORE_CHILD_H
#define MG_STORE_CHILD_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct mg_child_spec {
    const char *const *argv; /* argv[0]: a path */
    const char *user;        /* run as this user (this process is root), or NULL */
    int out_fd;              /* standard output and error */
    bool session;            /* a session of its own: signals of our terminal and group do not reach it */
};

/* Environment: a fixed short list, none of ours. Descriptors: 0 (/dev/null), 1 and 2 only. Working folder: /. */
mg_rc mg_child_spawn(const struct mg_child_spec *c, pid_t *ret_pid, struct mg_err *err) MG_MUSTCHECK;
/* Waits for its end; *ret_status is the exit status, or 128 and the signal. At the deadline it is killed: MG_ETIMEOUT. */
mg_rc mg_child_wait(pid_t pid, int timeout_ms, int *ret_status, struct mg_err *err) MG_MUSTCHECK;
/* Runs it and keeps its standard output and error (at most out->max bytes; more is MG_ETOOBIG). */
mg_rc mg_child_run(const char *const *argv, const char *user, int timeout_ms, struct mg_buf *out, int *ret_status,
                   struct mg_err *err) MG_MUSTCHECK;
/* True when the process pid ends within timeout_ms; for processes that are not ours too. */
bool mg_process_ends(pid_t pid, int timeout_ms);

#endif
