/* The hot row of a session: its lock, its status, its turn. Every write of a session locks this row first. */
#ifndef MG_STORE_SESSION_STATE_H
#define MG_STORE_SESSION_STATE_H

#include "domain/id.h"
#include "store/pg.h"

enum mg_session_status { MG_ST_IDLE, MG_ST_RUNNING, MG_ST_RESCHEDULING, MG_ST_TERMINATED };
enum mg_turn_step {
    MG_TURN_NONE,
    MG_TURN_MODEL,   /* a model request is in flight, or to be sent */
    MG_TURN_TOOLS,   /* the server runs tool calls */
    MG_TURN_ACTION,  /* clients must act; no node owns it */
    MG_TURN_BACKOFF, /* a failed request is tried again when it is due */
    MG_TURN_PAUSED,  /* the budget is used up before the next request; no node owns it */
};

/* Where the open outcome stands. */
enum mg_outcome_phase { MG_OUTCOME_NONE, MG_OUTCOME_QUEUED, MG_OUTCOME_WORK, MG_OUTCOME_GRADE };

const char *mg_session_status_name(enum mg_session_status s);
const char *mg_turn_step_name(enum mg_turn_step s);
struct mg_session_state;
/* The status of the thread by its turn: running, rescheduling, or idle. */
enum mg_session_status mg_turn_status(const struct mg_session_state *s);

/* The session, and the turn of one of its threads: of the primary one unless thread says otherwise. */
struct mg_session_state {
    struct mg_id session, workspace, environment;
    bool archived, deleting, self_hosted;
    bool roster;                   /* a coordinator's session: it may have child threads */
    enum mg_session_status status; /* of the session: over all its threads */
    int64_t last_seq;
    int64_t busy_threads;   /* children whose turn runs */
    int64_t relays;         /* messages between threads since the client's last one */
    struct mg_id turn_node; /* who runs the session's turns, all of them; "" when none runs */
    /* the thread */
    struct mg_id thread; /* "": the primary one */
    int64_t transcript_len, queued_inputs, open_actions;
    int64_t turn_epoch;
    enum mg_turn_step turn_step;
    int64_t turn_trigger; /* seq of the input that this turn answers */
    int64_t turn_upto;    /* of the last one, when it answers several; else 0 */
    int64_t turn_round, turn_attempt, turn_continues;
    int64_t due_in_us;       /* written: from now, by the database's clock; read: what is left (may be negative) */
    struct mg_id request_id; /* event id of the span.model_request_start */
    /* written: added to the totals */
    int64_t add_input, add_output, add_cache_read, add_cache_5m, add_cache_1h, add_web_search, add_web_fetch;
    /* money, in nano-dollars; read, but for add_cost and add_unknown, which are added */
    bool has_budget, cost_unknown, add_unknown;
    int64_t budget_nano, cost_nano, add_cost;
    int64_t own_cost; /* of add_cost, what the thread itself adds; own_unknown as well */
    bool own_unknown;
    enum mg_outcome_phase outcome_phase;
    int64_t outcome_seq; /* of its event */
};

/* Locks the row and reads it, with the primary thread's turn. workspace empty: any. MG_ENOTFOUND also for another workspace's. */
mg_rc mg_session_lock(struct mg_txn *t, struct mg_sv session, struct mg_sv workspace, struct mg_session_state *ret,
                      struct mg_err *err) MG_MUSTCHECK;
/* Queues the update of everything but the ids; the turn is the primary thread's. updated_at becomes now. */
mg_rc mg_session_state_save(struct mg_arena *a, struct mg_txn *t, const struct mg_session_state *s,
                            struct mg_err *err) MG_MUSTCHECK;

/* Takes the turns of sessions whose node is dead (or none) for node: epoch + 1. At most limit sessions, each with all its running threads. ret gets
 * {session, thread, epoch, step, due_in_us, roster} as states. */
mg_rc mg_turn_claim_dead(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *node, int limit,
                         struct mg_session_state **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Gives a node's turns back at a clean stop, so that another node takes them at once. */
mg_rc mg_turn_release(struct mg_pg *pg, const struct mg_id *node, struct mg_err *err) MG_MUSTCHECK;
/* The running turns of node in coordinators' sessions (session empty: in all of them), as states. */
mg_rc mg_turns_own(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *node, struct mg_sv session,
                   struct mg_session_state **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Of the given sessions those whose last_seq is above heads[i]: for the repair of streams. */
mg_rc mg_session_heads(struct mg_arena *a, struct mg_pg *pg, const struct mg_sv *sessions, const int64_t *heads, int n,
                       void (*fn)(void *ctx, struct mg_sv session, int64_t last_seq), void *ctx,
                       struct mg_err *err) MG_MUSTCHECK;

#endif
