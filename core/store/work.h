/* Work items: what hands the session of a self_hosted environment to a worker.
 *
 * Lock order: the session's row (store/session-state.h) before its item. What ends an item or queues one needs the session's lock, so that no
 * input is admitted in between; a claim, an ack and a heartbeat change the item alone and take no other lock. All times are the database's. */
#ifndef MG_STORE_WORK_H
#define MG_STORE_WORK_H

#include "domain/id.h"
#include "store/list.h"

enum mg_work_state { MG_WORK_QUEUED, MG_WORK_STARTING, MG_WORK_ACTIVE, MG_WORK_STOPPING, MG_WORK_STOPPED };
const char *mg_work_state_name(enum mg_work_state s);

enum {
    MG_WORK_TTL_MAX_S = 300,   /* a lease that a dead worker may hold: semantics WK15 */
    MG_WORK_RECLAIM_MS = 5000, /* a claim without an ack goes to another poller after this: contract 6.2 */
    MG_WORK_REPLAY_MS =
        10000, /* a heartbeat that was answered within this time may be repeated with the old expectation */
    MG_WORK_POLLERS_S = 30,      /* workers_polling counts those that polled within this time */
    MG_WORK_WORKER_ID_MAX = 255, /* bytes */
    MG_WORK_KEEP_DAYS = 30,      /* ended items are listed this long, or as long as their session */
};

/* Rows are views of a result, or arena copies where it says so. Times are INT64_MIN when there is none. */
struct mg_work_row {
    struct mg_sv id, workspace, environment, session, metadata;
    enum mg_work_state state;
    bool polled;    /* queued: a poller has it */
    bool lapsed;    /* its lease is over, whatever the state still says */
    bool reclaimed; /* stopped: taken from its worker, by another claim or by its lease's end */
    int64_t ttl_s;
    int64_t waiting_us, created_us, acknowledged_us, started_us, heartbeat_us, heartbeat_before_us, stop_requested_us,
        stopped_us;
    bool replay; /* the last heartbeat is younger than MG_WORK_REPLAY_MS */
};

/* ---- queueing: inside the transaction that holds the session's lock ---- */

/* Queues the insert of an item unless a live one exists; its one row tells that it was made (mg_txn_commit_last). */
mg_rc mg_work_enqueue(struct mg_txn *t, const struct mg_id *session, struct mg_err *err) MG_MUSTCHECK;
/* The same, when the session has something for a worker: a turn under way, messages that wait, calls that wait for a result. *ret: it was made. */
mg_rc mg_work_succeed(struct mg_txn *t, const struct mg_id *session, struct mg_sv metadata, bool always, bool *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* Queues: the session is over, and so is every item of it. */
mg_rc mg_work_end_session(struct mg_txn *t, const struct mg_id *session, struct mg_err *err) MG_MUSTCHECK;

/* ---- claims ---- */

struct mg_work_claim {
    struct mg_sv workspace, environment;
    struct mg_sv key; /* id of the environment key that polls, which must not be revoked; empty: another credential */
    struct mg_sv worker_id; /* empty: unknown */
    struct mg_sv token_sha256;
    int64_t reclaim_ms;
    int64_t from_us; /* items that wait since before this are not looked at: mg_work_oldest; 0: all are */
};
/* Nothing that waits is older than this, but for what is committed late_ms after its own time. What is queued has a row in the index for as long as an
 * old transaction may see it, and each look from the beginning walks over all of them: field case 30. */
mg_rc mg_work_oldest(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, int64_t late_ms, int64_t *ret_us,
                     struct mg_err *err) MG_MUSTCHECK;
/* The oldest item that nobody has; MG_ENOTFOUND without a text: none. MG_EAUTH: the key is revoked. The row is arena memory. */
mg_rc mg_work_claim_fresh(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_claim *c, struct mg_work_row *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* Looks after the environment (MG_ENOTFOUND with a text, MG_EINVAL: not self_hosted) and takes over a claim that was not acknowledged in time, under a
 * new id. MG_OK with ret->id empty: none. *ret_old: the item that ended so. *ret_empty: nothing is queued at all, claimed or not. */
mg_rc mg_work_claim_stale(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_claim *c, struct mg_work_row *ret,
                          struct mg_id *ret_old, bool *ret_empty, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_poller_seen(struct mg_pg *pg, struct mg_sv environment, struct mg_sv worker_id,
                          struct mg_err *err) MG_MUSTCHECK;

/* queued and polled becomes starting: *ret_done. Otherwise the item as it is. key as in a claim. MG_ENOTFOUND. */
mg_rc mg_work_ack(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id, struct mg_sv key,
                  int64_t ttl_s, bool *ret_done, struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;

/* expected: what the last heartbeat must have been. */
enum mg_work_expect { MG_EXPECT_ANY, MG_EXPECT_NONE, MG_EXPECT_TIME };
/* starting or active, with a live lease and the expected last heartbeat: active, and the lease runs anew (*ret_done). Otherwise the item as it is. */
mg_rc mg_work_beat(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                   enum mg_work_expect expect, int64_t expected_us, int64_t ttl_s, bool *ret_done,
                   struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;

/* ---- ends ---- */

/* The session of an item: for the lock that comes first. MG_ENOTFOUND. */
mg_rc mg_work_session(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                      struct mg_id *ret, struct mg_err *err) MG_MUSTCHECK;
/* Reads and locks. Arena memory. */
mg_rc mg_work_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv environment, struct mg_sv id,
                   struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Queues: stopped, for this reason. */
mg_rc mg_work_set_stopped(struct mg_txn *t, struct mg_sv id, const char *cause, struct mg_err *err) MG_MUSTCHECK;
/* One round trip, session and item locked in it: the item is stopped, and what came in while its worker was leaving, or what that leaves open, gets the next
 * one. An active item that is not forced is asked to stop instead, and has what its ttl gives. *ret_done: it was neither stopped nor, without force,
 * stopping before. MG_ENOTFOUND. Arena memory. */
mg_rc mg_work_stop(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id, bool force,
                   bool *ret_done, struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;

/* Items whose lease is over, of all environments; then one of them, under its session's lock (skipped when another has it): *ret_queued is the
 * environment that got a new item, or "". */
struct mg_work_lapsed {
    struct mg_id id, session, environment;
};
mg_rc mg_work_find_lapsed(struct mg_arena *a, struct mg_pg *pg, int limit, struct mg_work_lapsed **ret, int *ret_n,
                          struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_expire(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_lapsed *l, bool *ret_ended,
                     bool *ret_queued, struct mg_err *err) MG_MUSTCHECK;

/* ---- reading ---- */

/* The item as it is. MG_ENOTFOUND. Arena memory. */
mg_rc mg_work_look(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                   struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv environment,
                  struct mg_sv id, struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv environment,
                   struct mg_res **ret_res, struct mg_work_row **ret, struct mg_list_page *ret_page,
                   struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_set_metadata(struct mg_txn *t, struct mg_sv id, struct mg_sv metadata, struct mg_err *err) MG_MUSTCHECK;

struct mg_work_stats {
    int64_t depth, pending, leased, stopping, workers;
    int64_t oldest_us; /* INT64_MIN: the queue is empty */
    int64_t oldest_age_us;
};
/* environment empty: of all. */
mg_rc mg_work_stats(struct mg_pg *pg, struct mg_sv environment, struct mg_work_stats *ret,
                    struct mg_err *err) MG_MUSTCHECK;

/* ---- tokens ---- */

/* The item that has or had this token, whatever became of it. MG_ENOTFOUND: it has another. Arena memory. */
mg_rc mg_work_by_token(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_sv token_sha256,
                       struct mg_work_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Inside of a transaction that holds the session's lock: the item still has its claim; its row is locked. MG_EPRECOND with the reason when not. */
mg_rc mg_work_fence(struct mg_txn *t, struct mg_sv id, const struct mg_id *session, struct mg_err *err) MG_MUSTCHECK;
/* The same for an environment key: some claim of the session, in this environment, is live. */
mg_rc mg_work_fence_any(struct mg_txn *t, struct mg_sv environment, const struct mg_id *session,
                        struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_work_live_claim(struct mg_pg *pg, struct mg_sv environment, struct mg_sv session, bool *ret,
                         struct mg_err *err) MG_MUSTCHECK;

/* Claims that ended within the last seconds, for streams that they opened. */
mg_rc mg_work_ended(struct mg_pg *pg, int seconds, void (*fn)(void *ctx, struct mg_sv id), void *ctx,
                    struct mg_err *err) MG_MUSTCHECK;
/* Rows that nobody asks for any more. */
mg_rc mg_work_tidy(struct mg_pg *pg, struct mg_err *err) MG_MUSTCHECK;

#endif
