/* Launcher `process`: one worker process per item on this host, with one folder per session. Not an isolation boundary.
 *
 * Concurrency: no state but what is in the folders; every operation may run at any time, also in two processes. */
#ifndef MANGO_PROCESS_H
#define MANGO_PROCESS_H

#include "common/host.h"
#include "mango/plugin.h"
#include "process/state.h"

enum {
    KEY_LEN = 32,           /* hex digits */
    NAME_LEN = 8 + KEY_LEN, /* "session-" and the label */
    ID_MAX = NAME_LEN + 1 + WORK_ID_MAX,
    REPLACE_GRACE_MS = 5000, /* for the box of the session's last item, which may be about to leave by itself */
    FORCE_MS = 10000,        /* for everything to be dead after KEEPER_KILL */
};

struct process {
    const struct mango_host *host;
    char *base;
    int base_fd;
    char *keeper; /* path of mango-process-box */
    char *worker; /* path of mango-worker */
    char *runner; /* of the worker's commands, beside the keeper; NULL: the worker finds its own */
};

/* "session-LABEL/WORK_ID" */
struct box_id {
    char name[NAME_LEN + 1];
    char work_id[WORK_ID_MAX + 1];
};

/* ---- launch.c ---- */
mango_status process_launch(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                            struct mango_buf *ret_id);
mango_status process_persists(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                              struct mango_persists *ret);

/* ---- watch.c ---- */
mango_status process_watch(void *ctx, const struct mango_call *call, struct mango_sv id,
                           struct mango_launch_state *state);
mango_status process_stop(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t grace_ms);
mango_status process_list_owned(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                                void *fn_ctx);
mango_status process_logs(void *ctx, const struct mango_call *call, struct mango_sv id, mango_sink_fn *sink,
                          void *sink_ctx);
mango_status process_forget(void *ctx, const struct mango_call *call, struct mango_sv label);
bool box_id_parse(struct mango_sv id, struct box_id *ret);
int home_open(const struct process *p, const char *name); /* -1: there is none */
bool home_busy(int home_fd);                              /* a box lives in it */
/* Ends the box whose state this is; grace_ms for the worker, then by force. False when it still lives at the end. */
bool keeper_end(const struct process *p, int home_fd, const struct state *s, uint64_t grace_ms);

#endif
