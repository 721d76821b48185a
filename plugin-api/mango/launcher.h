/* Mango plugin ABI 1: operations of a launcher, which starts one worker per claimed work item in a box of its own.
 *
 * Threads: operations block and run on the supervisor's workers; different items at the same time. */
#ifndef MANGO_LAUNCHER_H
#define MANGO_LAUNCHER_H

#include "mango/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a launcher can do beyond the required; in mango_plugin.caps, above the sandbox bits. */
#define MANGO_CAP_LAUNCH_LIST (UINT64_C(1) << 48) /* list_owned */
#define MANGO_CAP_LAUNCH_LOGS (UINT64_C(1) << 49) /* logs */
#define MANGO_CAP_LAUNCH_KNOWN (UINT64_C(3) << 48)

/* What survives the end of one item, for the next item of the same session. */
#define MANGO_PERSIST_WORKSPACE (UINT64_C(1) << 0)
#define MANGO_PERSIST_PROCESSES (UINT64_C(1) << 1)
#define MANGO_PERSIST_IMAGE_LAYER (UINT64_C(1) << 2) /* installed packages */

struct mango_launch_spec {
    uint32_t struct_size;
    uint32_t flags;          /* reserved, 0 */
    struct mango_sv work_id; /* idempotency key: never two live boxes for one item */
    struct mango_sv session_id;
    struct mango_sv label;       /* 32 hex digits of the session: names what persists */
    struct mango_sv owner;       /* 32 hex digits of this supervisor's deployment */
    const struct mango_sv *argv; /* the worker's command line in the box; no secret in it */
    uint64_t n_argv;
    const struct mango_sv *env; /* "NAME=value"; holds the item's token: keep it out of argv, labels and logs */
    uint64_t n_env;
    const struct mango_sandbox_spec *box; /* image, limits, network, mounts; its label and owner are as above */
};
MANGO_AT(struct mango_launch_spec, work_id, 8);
MANGO_AT(struct mango_launch_spec, session_id, 24);
MANGO_AT(struct mango_launch_spec, label, 40);
MANGO_AT(struct mango_launch_spec, owner, 56);
MANGO_AT(struct mango_launch_spec, argv, 72);
MANGO_AT(struct mango_launch_spec, env, 88);
MANGO_AT(struct mango_launch_spec, box, 104);
MANGO_ASSERT(sizeof(struct mango_launch_spec) == 112);

#define MANGO_LAUNCH_PENDING 0
#define MANGO_LAUNCH_RUNNING 1
#define MANGO_LAUNCH_ENDED 2
#define MANGO_LAUNCH_GONE 3 /* no trace of it: never started, or cleaned away */

struct mango_launch_state {
    uint32_t struct_size;
    uint32_t state;                  /* MANGO_LAUNCH_* */
    struct mango_exec_result result; /* how the worker ended, with MANGO_LAUNCH_ENDED */
    struct mango_buf *reason;        /* in: host's, gets text for people; may be NULL */
};
MANGO_AT(struct mango_launch_state, result, 8);
MANGO_AT(struct mango_launch_state, reason, 56);
MANGO_ASSERT(sizeof(struct mango_launch_state) == 64);

struct mango_persists {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t what;           /* MANGO_PERSIST_* */
    struct mango_buf *names; /* in: host's, gets one line for each thing ("volume mango-4f..."); may be NULL */
};
MANGO_ASSERT(sizeof(struct mango_persists) == 24);

struct mango_launcher_ops {
    uint32_t struct_size;
    uint32_t reserved;

    /* ---- required ---- */
    /* Starts the worker's box, or finds the one of this work_id. *ret_id is stored by the supervisor. */
    mango_status (*launch)(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                           struct mango_buf *ret_id);
    /* Waits until the state differs from the one that *state holds, or the deadline (then MANGO_OK with the same
     * state). */
    mango_status (*watch)(void *ctx, const struct mango_call *call, struct mango_sv id,
                          struct mango_launch_state *state);
    /* Asks it to end, and after grace_ms ends it. Idempotent; ignores the token; MANGO_OK when nothing of it runs any
     * more. */
    mango_status (*stop)(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t grace_ms);
    /* What would survive an item started from spec. */
    mango_status (*persists)(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                             struct mango_persists *ret);

    /* ---- optional ---- */
    mango_status (*health)(void *ctx, const struct mango_call *call);
    mango_status (*list_owned)(void *ctx, const struct mango_call *call, struct mango_sv owner, mango_owned_fn *fn,
                               void *fn_ctx);
    mango_status (*logs)(void *ctx, const struct mango_call *call, struct mango_sv id, mango_sink_fn *sink,
                         void *sink_ctx);
    /* Removes what persists of a session that was deleted. Idempotent. */
    mango_status (*forget)(void *ctx, const struct mango_call *call, struct mango_sv label);
};
MANGO_AT(struct mango_launcher_ops, launch, 8);
MANGO_AT(struct mango_launcher_ops, watch, 16);
MANGO_AT(struct mango_launcher_ops, stop, 24);
MANGO_AT(struct mango_launcher_ops, persists, 32);
MANGO_AT(struct mango_launcher_ops, health, 40);
MANGO_AT(struct mango_launcher_ops, list_owned, 48);
MANGO_AT(struct mango_launcher_ops, logs, 56);
MANGO_AT(struct mango_launcher_ops, forget, 64);
MANGO_ASSERT(sizeof(struct mango_launcher_ops) == 72);

#ifdef __cplusplus
}
#endif
#endif
