/* EnvironmentWorker: one acknowledged item from its first heartbeat to its stop. */
#ifndef MG_WORKER_SERVE_H
#define MG_WORKER_SERVE_H

#include "worker/item.h"
#include "worker/remote.h"
#include "worker/tether.h"
#include "worker/toolbox.h"

enum { MG_SERVE_STOP_MS = 30000 /* the stop at the end */ };

struct mg_serve_opts {
    struct mg_net *net;
    const char *base_url;
    const char *environment_key;    /* used where the item has no token; may be NULL */
    struct mg_toolbox_opts toolbox; /* read_only and allowed of its workspace are the operator's */
    uint32_t max_idle_ms;           /* 0: never left */
    uint32_t memory_sync_ms;        /* between passes over memory stores; 0: they are not prepared */
};

/* t is the caller's, and may be ended by it at any time. MG_OK: served to its end, or a health check, or a session that was over.
 * MG_EFENCED: the lease was lost, or the item was over before it began. MG_ECANCELED: a shutdown. Else what went wrong; the item is
 * stopped then too, or, when no worker can ever prepare what the session has, failed (MG_OK). *ret_abandoned: a tool still runs; this process should not serve any more. */
mg_rc mg_serve(const struct mg_serve_opts *o, const struct mg_work_item *w, struct mg_tether *t, bool *ret_abandoned,
               struct mg_err *err) MG_MUSTCHECK;

#endif
