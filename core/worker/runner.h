/* SessionToolRunner: runs the calls of one session and sends their results. The stream is opened first, then the history is read; calls are
 * run one after the other, in order. */
#ifndef MG_WORKER_RUNNER_H
#define MG_WORKER_RUNNER_H

#include "worker/remote.h"
#include "worker/tether.h"
#include "worker/toolbox.h"

enum {
    MG_RUNNER_IDLE_MS = 60000,  /* a session whose turn has ended is left after so long */
    MG_RUNNER_YIELD_MS = 30000, /* a cancelled tool that has not returned by then is abandoned */
    MG_RUNNER_SEND_MS = 300000, /* a result that is not taken is tried again so long; with a lease, as long as that */
    MG_RUNNER_LAST_SEND_MS = 30000, /* the same in a shutdown */
    MG_RUNNER_BACKOFF_MS = 500,     /* before a stream is opened again, doubling */
    MG_RUNNER_BACKOFF_MAX_MS = 10000,
};

enum mg_runner_end {
    MG_RUNNER_IDLE,   /* its turn ended and nothing came since */
    MG_RUNNER_OVER,   /* the session is terminated or deleted */
    MG_RUNNER_TETHER, /* the tether says why */
    MG_RUNNER_FAILED, /* the stream is refused for good */
};

struct mg_runner_opts {
    const struct mg_remote *remote;
    const char *session_id;
    struct mg_tether *tether;
    struct mg_toolbox *toolbox;
    uint32_t max_idle_ms; /* 0: never left */
    /* After each call, on the runner's thread; may be NULL. */
    void (*after_call)(void *ctx);
    void *ctx;
};

/* Blocks until the session is left. MG_RUNNER_FAILED: err says why. *ret_abandoned: a tool still runs, and the toolbox must not be closed. */
enum mg_runner_end mg_runner_run(const struct mg_runner_opts *o, bool *ret_abandoned, struct mg_err *err);

#endif
