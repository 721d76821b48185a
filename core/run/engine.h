/* The turn engine: a state machine of durable steps over sessions. A turn that waits for a model costs no thread; one that runs a tool occupies one
 * thread of an elastic pool for as long as the tool runs.
 *
 * Threads: engine threads (each with a PostgreSQL connection) run the steps; tool threads run adapter calls and touch no database; sandbox threads
 * (few, with a connection) create and attach sandboxes; the lease thread renews the node's lease and looks for turns of dead nodes. */
#ifndef MG_RUN_ENGINE_H
#define MG_RUN_ENGINE_H

#include "base/buf.h"
#include "base/err.h"
#include "domain/id.h"
#include "store/pg.h"

struct mg_engine;
struct mg_git;
struct mg_hub;
struct mg_keyring;
struct mg_model;
struct mg_net;
struct mg_notify;
struct mg_objects;
struct mg_prices;
struct mg_sandboxes;
struct mg_session_state;

enum {
    MG_TURN_ROUNDS_MAX = 200,  /* model requests of one turn: an endless tool loop ends with an explicit error */
    MG_TURN_ATTEMPTS_MAX = 3,  /* of one request: semantics RT2 */
    MG_TURN_BACKOFF_MS = 1000, /* doubled with each attempt, plus up to a quarter of jitter */
    MG_TURN_CONTINUE_MAX = 3,  /* continuations after max_tokens */
    MG_TURN_PAUSE_MAX = 5,     /* continuations after pause_turn */
    MG_ACQUIRE_MS =
        900000, /* a sandbox that has not come up by then fails its turn: create, packages and room to spare */
    MG_SHELL_IDLE_S = 1800, /* a session's tools (its persistent shell) are kept this long without a call */
};

struct mg_engine;
struct mg_pg;
struct mg_engine_opts {
    const char *conninfo;
    struct mg_hub *hub;
    struct mg_model *model;
    struct mg_objects *objects;     /* NULL: sessions have no files */
    struct mg_sandboxes *sandboxes; /* NULL: cloud environments cannot run tools */
    struct mg_notify *notify;       /* NULL: one node */
    struct mg_id node;
    unsigned threads, tool_threads;
    unsigned node_ttl_ms;
    unsigned tool_grace_ms;           /* on top of a tool's own limit, before its call is given up */
    int64_t sandbox_wait_ms;          /* a turn waits so long for a backend that is down; 0: for ever */
    struct mg_net *users;             /* requests to hosts that users name (MCP); NULL: none are made */
    struct mg_wallet *wallet;         /* credentials of sessions for them; outlives the engine */
    struct mg_git *git;               /* fetches repositories; NULL: none can be had */
    const struct mg_keyring *keyring; /* opens their tokens; NULL: none is kept */
    unsigned mcp_call_ms;             /* 0: MG_MCP_CALL_MS */
    const char *model_id;             /* replaces the agent's model when set (MANGO_MODEL_ID) */
    unsigned max_tokens;
    int64_t model_window;           /* tokens; 0: by the table of names */
    int web_tools;                  /* enum mg_web_mode */
    const struct mg_prices *prices; /* outlives the engine; NULL: no model has a price */
    int64_t call_timeout_ms; /* a worker's call that has no result after so long gets one of the server; 0: never */
    /* Work was queued for this environment, here or elsewhere: its pollers may look. Any thread; must not block; may be NULL. */
    void (*work_queued)(void *ctx, struct mg_sv environment);
    /* Once a second, on an engine thread with its connection: what time alone decides above the engine. May be NULL. */
    void (*each_second)(void *ctx, struct mg_engine *e, struct mg_pg *pg);
    /* The lease thread found the database unreachable: an embedded one may have to be started again. May block; may be NULL. */
    void (*database_down)(void *ctx);
    void *ctx;
};

const struct mg_prices *mg_engine_prices(const struct mg_engine *e);
struct mg_objects *mg_engine_objects(const struct mg_engine *e); /* NULL: there is no object store */
struct mg_git *mg_engine_git(const struct mg_engine *e);
const struct mg_keyring *mg_engine_keyring(const struct mg_engine *e);
/* The node's row must be registered before. */
mg_rc mg_engine_start(const struct mg_engine_opts *o, struct mg_engine **ret, struct mg_err *err) MG_MUSTCHECK;
/* Runs no new step, lets running commits end, hands the turns on, joins all threads. The hub's owner must still run. Calls that come later do nothing. */
void mg_engine_stop(struct mg_engine *e);
void mg_engine_free(struct mg_engine *e); /* stopped before; NULL is fine */

/* After a commit that claimed the session's turn for this node: st is the state as committed. Any thread. */
void mg_engine_go(struct mg_engine *e, const struct mg_session_state *st);
/* A wake-up from another node: if we run a turn of this session, make sure that it is still ours. Any thread. */
void mg_engine_check(struct mg_engine *e, struct mg_sv session);
/* The turn is no longer ours (interrupt, delete): cancels what runs of epochs below, of the primary thread or of another one. Any thread. */
void mg_engine_cancel(struct mg_engine *e, const struct mg_id *session, int64_t below_epoch);
void mg_engine_cancel_thread(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread,
                             int64_t below_epoch);
/* The session was settled by an operator: cancels, and gives up what a sandbox that never answers holds here. */
void mg_engine_settled(struct mg_engine *e, const struct mg_id *session, int64_t epoch);
/* The session is being deleted: cancels, closes its tools, tells its streams. last_seq as in its row. */
void mg_engine_deleted(struct mg_engine *e, const struct mg_id *session, int64_t last_seq);
/* Wake-ups may have been lost: compare the streams with the log now. Any thread. */
void mg_engine_repair(struct mg_engine *e);
/* Milliseconds after its start at which a call with this input is given up, should its sandbox never answer. */
uint64_t mg_call_limit_ms(const struct mg_engine *e, struct mg_sv input);
void mg_engine_metrics(struct mg_engine *e, struct mg_buf *out); /* Prometheus text */
/* Bytes of text that one result may bring into a context, where the model is not known. */
size_t mg_engine_result_max(const struct mg_engine *e);
const struct mg_id *mg_engine_node(const struct mg_engine *e);

#endif
