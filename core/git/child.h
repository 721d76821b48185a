/* Programs of the host that work for a session: in a process group of their own, with nothing of our environment, and
 * killed with all that they started. Inside of core/git only. */
#ifndef MG_GIT_CHILD_H
#define MG_GIT_CHILD_H

#include <stdint.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"

struct mg_git_child {
    const char *const *argv; /* argv[0]: a name, looked up in the fixed PATH */
    const char *cwd;
    struct mg_sv secret;  /* what descriptor 3 gives to whoever reads it; empty: it is closed */
    uint64_t deadline_ns; /* monotonic */
    uint64_t file_max;    /* bytes of a file that it writes */
    struct mg_cancel *cancel;
    struct mg_buf *out; /* standard output; what is over its limit fails it. NULL: dropped */
    struct mg_buf *err; /* standard error, its end; NULL: dropped */
};

/* Blocks until it has ended, and everything that holds its output. *ret_status: the exit status, or 128 and the
 * signal. MG_ETIMEOUT, MG_ECANCELED: it was killed. MG_EIO: it could not be started. */
mg_rc mg_git_child_run(const struct mg_git_child *c, int *ret_status, struct mg_err *err) MG_MUSTCHECK;

#endif
