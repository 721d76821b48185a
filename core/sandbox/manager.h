/* The sandbox of each session: made once, found again after a restart, destroyed with its session.
 *
 * Create before bind (semantics 9.2): an intent row is committed before the adapter's create; the binding replaces it
 * in one transaction. A bound sandbox that is missing, or whose workspace is not the one that was left, is MG_EGONE and
 * stays so (sandboxes.lost_at) until the session is deleted: it is never replaced by an empty one.
 *
 * Concurrency: any thread. One lock per session (striped) is held across acquire and destroy, which do SQL and adapter
 * calls: callers must hold no lock and no open transaction. The manager's own lock guards its cache only and is never
 * held across a call. */
#ifndef MG_SANDBOX_MANAGER_H
#define MG_SANDBOX_MANAGER_H

#include "base/cancel.h"
#include "base/err.h"
#include "base/sv.h"
#include "domain/id.h"
#include "mango/plugin.h"
#include "plugin/registry.h"
#include "sandbox/ops.h"
#include "store/pg.h"

enum {
    MG_SANDBOX_CONTROL_MS =
        60000, /* create and attach: an image may have to be pulled on top, see MANGO_SANDBOX_CREATE_MS */
    MG_SANDBOX_FILE_MS = 60000,   /* read, write, stat */
    MG_SANDBOX_PUT_MS = 300000,   /* a large file from the object store */
    MG_SANDBOX_SETUP_MS = 600000, /* packages of the environment, once per session */
    MG_SANDBOX_HEALTH_MS = 2000,
    MG_SANDBOX_DESTROY_MS = 30000,    /* destroy has a limit of its own, not the caller's */
    MG_SANDBOX_RECONCILE_BATCH = 100, /* intents and deletions looked at in one scan (every 5 s) */
    MG_SANDBOX_INTENT_GRACE_S = 90,   /* an intent younger than this may belong to a create that still runs */
};

struct mg_sandboxes;
struct mg_sandbox; /* a live handle on one session's sandbox, counted */

struct mg_sandboxes_opts {
    struct mg_registry *registry;
    struct mg_plugin *backend; /* of new sessions: what MANGO_SANDBOX names. NULL: none are made */
    bool isolated_only;        /* a backend that is no boundary is for teardown alone: a network model is configured */
    struct mg_sv deployment_id;
    struct mg_sv image;       /* MANGO_SANDBOX_IMAGE, or empty */
    uint64_t orphan_grace_ms; /* how long a resource without an owner is left alone; 0: for ever */
};

struct mg_sandboxes *mg_sandboxes_new(const struct mg_sandboxes_opts *opts); /* opts is copied, the registry borrowed */
void mg_sandboxes_free(struct mg_sandboxes *m); /* detaches everything; no handle may be out */

/* The first 32 hex digits of SHA-256("mango-sandbox-v1\0" deployment_id "\0" session_id), with a NUL. */
enum { MG_LABEL_LEN = 33 };
void mg_sandbox_label(struct mg_sv deployment_id, struct mg_sv session_id, char out[MG_LABEL_LEN]);
/* The first 32 hex digits of SHA-256("mango-deployment-v1\0" deployment_id): the key under which a service lists what
 * is ours. */
void mg_sandbox_owner(struct mg_sv deployment_id, char out[MG_LABEL_LEN]);

/* The session whose sandbox has this label, while a call on it runs or a handle is out; false when there is none. */
bool mg_sandbox_session_of(struct mg_sandboxes *m, struct mg_sv label, struct mg_id *ret);

/* Gives a handle on the session's sandbox; makes it at the first call. env_config: the session's snapshot of the
 * environment's config (raw JSON). The calling turn's deadline does not matter: create and attach have limits of their
 * own and obey cancel.
 *
 * errors: MG_EGONE lost for good, terminal for the session's tools; MG_EUNAVAIL try later: code backend_down (or
 * backend_busy: a create under another specification is under way), or another server attaches; MG_EDENIED a
 * label that is not ours; MG_ECONFLICT being deleted, or with
 * code backend_absent bound to a backend that cannot be loaded here; MG_EINVAL a config that
 * the backend cannot do. */
mg_rc mg_sandbox_acquire(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id, struct mg_sv env_config,
                         struct mg_cancel *cancel, struct mg_sandbox **ret, struct mg_err *err) MG_MUSTCHECK;
/* The same for one that there is: MG_ENOTFOUND, never a new one. */
mg_rc mg_sandbox_acquire_existing(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id,
                                  struct mg_sv env_config, struct mg_sandbox **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_sandbox_release(struct mg_sandbox *box); /* NULL is fine. Free the mg_tools over it first */

/* Whether the backend answers: MG_OK, or MG_EUNAVAIL with code backend_down. May ask it. */
mg_rc mg_sandbox_gate(const struct mg_sandbox *box, struct mg_err *err) MG_MUSTCHECK;
bool mg_sandbox_fresh(const struct mg_sandbox *box); /* it has answered just now: the gate would not ask */

/* The table for mg_tools_new(mg_sandbox_ops(box), box). */
const struct mg_tool_ops *mg_sandbox_ops(const struct mg_sandbox *box);
/* Writes a file of len bytes that come from source, a piece at a time, on this thread. mode: of a new one. */
mg_rc mg_sandbox_put(struct mg_sandbox *box, const char *path, uint32_t mode, mango_source_fn *source, void *ctx,
                     int64_t len, struct mg_err *err) MG_MUSTCHECK;
/* The table's write refuses paths in these folders from now on (MG_EDENIED); mg_sandbox_put does not. folders: relative to the root, a line each. The
 * first call alone counts: what a session may not write never changes. */
void mg_sandbox_protect(struct mg_sandbox *box, const char *folders);
const char *mg_sandbox_provider(const struct mg_sandbox *box);
bool mg_sandbox_isolated(const struct mg_sandbox *box); /* its file system is its own, not a host's */

/* Refuses at session creation what the backend can never do (limited network, packages without the capability).
 * MG_EINVAL names the field. */
mg_rc mg_sandbox_check(const struct mg_sandboxes *m, struct mg_sv env_config, struct mg_err *err) MG_MUSTCHECK;
/* The same for what every backend can do, since the operations that a plugin must have are enough for it (files, outputs, skills, memory stores,
 * repositories): refused where there is none. */
mg_rc mg_sandbox_check_any(const struct mg_sandboxes *m, const char *field, struct mg_err *err) MG_MUSTCHECK;

/* Ends the sandbox of a session whose deleting_at is set: running calls end, the resource goes, then binding and
 * intent. MG_OK when nothing is left (also when there was nothing). On failure the rows stay and the reconciler goes
 * on; the caller must not delete the session. */
mg_rc mg_sandbox_destroy(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id,
                         struct mg_err *err) MG_MUSTCHECK;

/* An operator ends the sandbox of a session that stays: it is noted as lost first, so that the session says so from then
 * on and never works in an empty one. MG_ENOTFOUND: it has none. */
mg_rc mg_sandbox_end(struct mg_sandboxes *m, struct mg_pg *pg, struct mg_sv session_id,
                     struct mg_err *err) MG_MUSTCHECK;

/* One scan, every 5 s, on a thread with a connection of its own: settles intents that a crash left, retries destroys of
 * sessions that are being deleted, cuts off what was noted as lost elsewhere, and looks for orphans. A scan that
 * meets another one of this process does nothing. Calls gone(ctx, session_id) for each deleting session that has nothing
 * left here, so that the caller may delete its row. Safe on several nodes at once. */
void mg_sandboxes_reconcile(struct mg_sandboxes *m, struct mg_pg *pg, void (*gone)(void *ctx, struct mg_sv session_id),
                            void *ctx);

/* Prometheus text: what is still to be destroyed, orphans. */
void mg_sandboxes_metrics(struct mg_sandboxes *m, struct mg_buf *out);

#endif
