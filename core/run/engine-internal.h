/* Inside of core/run. */
#ifndef MG_RUN_ENGINE_INTERNAL_H
#define MG_RUN_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/cancel.h"
#include "base/map.h"
#include "base/pool.h"
#include "conf/prices.h"
#include "events/hub.h"
#include "events/notify.h"
#include "model/model.h"
#include "run/engine.h"
#include "run/step.h"
#include "run/work.h"
#include "tools/tools.h"

enum {
    MG_RUN_BLOCKS_MAX = 256,  /* content blocks of one answer that may have previews */
    MG_RUN_INPUTS_MAX = 128,  /* input events that one request takes */
    MG_RUN_SIBLINGS_MAX = 32, /* runs of one session: threads.h allows fewer */
};

/* One claimed turn of a thread in memory. Reference-counted: the registry holds one, each job and model call in flight another. Its durable half is
 * the session's row, or the thread's; everything here can be made again from there. */
struct mg_run {
    struct mg_engine *engine;
    struct mg_id session;
    struct mg_id thread;    /* "": the primary one */
    struct mg_run *sibling; /* another thread of the same session; guarded by engine.lock */
    bool roster;            /* of a coordinator's session */
    int64_t epoch;
    atomic_uint refs;
    struct mg_cancel *cancel;
    atomic_ullong model_call; /* 0: none */

    /* The request in flight: touched by one job at a time, and by the model's callbacks before on_done. */
    struct mg_id request_id;
    char *agent;                  /* the session's agent snapshot */
    const struct mg_price *price; /* of its model; NULL: it has none */
    int64_t inputs[MG_RUN_INPUTS_MAX];
    int n_inputs;
    char *user_content; /* raw content array that this request adds to the transcript, or NULL */
    struct mg_id block_event[MG_RUN_BLOCKS_MAX];
    int block_index[MG_RUN_BLOCKS_MAX]; /* of a text block within its message */
    struct mg_model_result *result;
    /* outputs.h: set by a thread of its pool, read by the step behind it */
    bool resumed; /* the turn was not admitted here: calls may have been made of which this process knows nothing */
    bool outputs_done;      /* they were published before this answer is committed */
    bool outputs_said;      /* the answer's step names the fault */
    char *outputs_fault;    /* what was not, until an answer that ends the turn says so; or NULL */
    bool grading;           /* the request is the grader's */
    bool advising;          /* the request is an advisor's */
    atomic_bool ongoing;    /* the timer of an evaluation's signs of life is set */
    bool compacting;        /* the request asks for a summary, not for an answer */
    int64_t told;           /* transcript entries that it lets the model read */
    int64_t fixed;          /* fingerprint of its fixed part */
    int64_t request_tokens; /* estimated */

    /* The tool call in flight. */
    size_t result_max; /* bytes of its text that go into the context; 0: no request was made here yet */
    struct mg_id call_event;
    enum mg_call_kind call_kind;
    char *call_name, *call_input;
    struct mg_mcp_work *mcp; /* of its MCP servers (mcp.h), or NULL */
    struct mg_tool_result call_result;
    mg_rc call_rc;
    struct mg_err call_err;
    unsigned backend_waits;                  /* one after another */
    struct mg_repository_work *repositories; /* that are on their way, or could not be had (repositories.c), or NULL */
    struct mg_memory_delta *memory;          /* what the call in flight changed of its stores' files, or NULL */
    bool memory_synced;                      /* files and memory stores have met in this run */
    bool memory_tried;                       /* or could not, when the run took the turn over */
    bool gated;                              /* the sandbox was found to answer, for the next call to start */
    bool admitted;                           /* the request in flight has its start (pace.c) */
    atomic_ullong busy_until_ns; /* deadline of what a tool or sandbox thread does for this run; 0: nothing */

    char failure[512]; /* why the turn is given up: semantics RT7's limit */
};

struct mg_clock;
struct mg_pace;

struct mg_engine {
    struct mg_engine_opts opts;
    struct mg_hub *hub;
    struct mg_notify *notify;
    struct mg_id node; /* changes when the lease was lost: guarded by lock */
    pthread_mutex_t lock;
    struct mg_map *runs;     /* session id -> the first struct mg_run of its siblings; guarded by lock */
    size_t n_runs;           /* of all sessions; guarded by lock */
    struct mg_map *memories; /* session id -> struct mg_memory of the boxes that are here; guarded by lock */
    struct mg_map *boxes;    /* thread id, or session id for the primary one -> struct mg_box; guarded by lock */
    struct mg_pool *steps, *tools, *sandbox, *mcp_threads, *keepers, *outputs;
    struct mg_clock *clock;
    struct mg_pace *pace;
    struct mg_mcp_links *mcp;
    struct mg_validations *validations;
    atomic_bool draining; /* no new step is started */
    atomic_int repairs;   /* stream repairs on their way through the hub's owner */
    atomic_int calls;     /* model calls whose on_done has not returned yet */
    struct mg_work_counters work;
    atomic_bool work_sweeping; /* a sweep of the work queue is on its way */
    atomic_bool work_streams;  /* some stream was opened by a claim's token */
    atomic_uint work_sweeps;
    /* counters for /metrics */
    atomic_llong n_turns, n_requests, n_tool_calls, n_retries, n_takeovers, n_fenced, n_ambiguous, n_overdue,
        n_given_up, n_compactions;
};

/* ---- run.c: the registry ---- */
struct mg_run *mg_run_ref(struct mg_run *r);
void mg_run_unref(struct mg_run *r);
/* Registers a claim; an older run of the thread is cancelled. One reference for the caller; NULL when this claim, or a later one, is registered. */
struct mg_run *mg_run_new(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread, int64_t epoch);
/* A reference, or NULL. */
struct mg_run *mg_run_find(struct mg_engine *e, struct mg_sv session, struct mg_sv thread);
/* References to the runs of a session's threads; their number. */
int mg_run_siblings(struct mg_engine *e, struct mg_sv session, struct mg_run *ret[MG_RUN_SIBLINGS_MAX]);
/* Calls fn for each run, with the lock held. */
void mg_run_each(struct mg_engine *e, void (*fn)(struct mg_run *r));
/* The turn ended or left this node: the registry forgets it. */
void mg_run_drop(struct mg_run *r);
void mg_run_cancel(struct mg_run *r);
void mg_run_cancel_all(struct mg_engine *e);
/* Steps. Each runs on an engine thread with a connection of its own. */
typedef void mg_run_fn(struct mg_run *r, struct mg_pg *pg);
void mg_run_later(struct mg_run *r, mg_run_fn *fn);                    /* takes a reference of its own */
void mg_run_after(struct mg_run *r, uint64_t delay_ms, mg_run_fn *fn); /* the same, later (clock.c) */
/* A step could not be done. Fenced, cancelled or gone: the run is over here. A dependency that is down: again after a pause. Anything else can never
 * succeed: the turn ends with an error. */
void mg_run_failed(struct mg_run *r, mg_rc rc, const struct mg_err *err, mg_run_fn *again);
/* After a commit: what the session's row says comes next. */
void mg_run_continue(struct mg_run *r, struct mg_pg *pg, const struct mg_session_state *st);

/* ---- request.c ---- */
void mg_run_request(struct mg_run *r, struct mg_pg *pg); /* builds and sends the model request of the present step */
/* ---- compact-step.c ---- */
struct mg_assembly;
void mg_run_compacted(struct mg_run *r, struct mg_pg *pg); /* commits the summary in r->result */
mg_rc mg_run_compact_local(struct mg_run *r, struct mg_pg *pg, struct mg_arena *a, struct mg_assembly *x,
                           struct mg_session_state *ret_st, struct mg_err *err) MG_MUSTCHECK;
/* ---- preview.c ---- */
void mg_run_delta(void *ctx, int block_index, enum mg_block_kind kind, bool start, struct mg_sv text);
/* ---- response.c ---- */
void mg_run_response(struct mg_run *r, struct mg_pg *pg); /* commits r->result */
/* ---- ongoing.c ---- */
void mg_run_ongoing(struct mg_run *r); /* sets the timer of a running evaluation's signs of life */
/* ---- calls.c ---- */
void mg_run_no_sandbox(struct mg_run *r,
                       struct mg_pg *pg);              /* r->call_err says why: the wave is answered, the turn ends */
void mg_run_calls(struct mg_run *r, struct mg_pg *pg); /* starts the next prepared call, or ends the wave */
void mg_run_call_done(struct mg_run *r,
                      struct mg_pg *pg); /* commits the result of the call in flight, starts the next */
/* ---- engine.c ---- */
void mg_engine_take(struct mg_engine *e, const struct mg_session_state *st); /* a turn that was taken over */
/* Starts what this node has to run of the session's threads (empty: of all sessions') and does not run yet. */
void mg_engine_adopt(struct mg_engine *e, struct mg_pg *pg, struct mg_sv session);
/* ---- backend-wait.c ---- */
/* Says in the node's row which backends are loaded here, and whether they answer. */
void mg_backends_publish(struct mg_engine *e, struct mg_pg *pg);
void mg_backends_work(void *engine, void *thread); /* checks them and publishes; for a thread that may block */
/* r->call_err says that the backend does not answer, or is not on this node: the turn waits, and says so. */
bool mg_run_backend_away(const struct mg_run *r);
void mg_run_backend_wait(struct mg_run *r, struct mg_pg *pg);
/* ---- resume.c ---- */
void mg_run_resume(struct mg_run *r, struct mg_pg *pg); /* goes on at the durable step, whatever it is */

/* ---- overdue.c ---- */
void mg_runs_overdue(struct mg_engine *e); /* gives up what has not come back by its deadline; about every second */
uint64_t mg_run_until(uint64_t ms);        /* the value of busy_until_ns for work that starts now */
/* ---- pace.c: starts of model requests, while the endpoint says that it is overloaded ---- */
struct mg_pace *mg_pace_new(void);
void mg_pace_free(struct mg_pace *p); /* NULL is fine; no thread uses it any more */
/* True: the run's request may go out. False: the run waits, and mg_run_request is called again when its start comes. */
bool mg_pace_enter(struct mg_pace *p, struct mg_run *r) MG_MUSTCHECK;
void mg_pace_answer(struct mg_pace *p, struct mg_run *r, enum mg_model_fail fail); /* of an admitted request */
void mg_pace_go(struct mg_pace *p);          /* lets those go whose start has come */
uint64_t mg_pace_next_ns(struct mg_pace *p); /* when the next start comes; UINT64_MAX: nobody waits */
void mg_pace_metrics(struct mg_pace *p, struct mg_buf *out);
/* ---- verify.c ---- */
void mg_runs_verify(struct mg_engine *e, struct mg_pg *pg); /* stops what is no longer this node's */

/* ---- box.c: live sandboxes and their tools, by thread. The threads of a session share its sandbox; each has a shell of its own. ---- */
struct mg_box;
/* The thread's box, locked for the caller alone; NULL when it is not acquired here. May wait for a cancelled call to end. */
struct mg_box *mg_box_lock(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread);
void mg_box_unlock(struct mg_box *b);
struct mg_tools *mg_box_tools(struct mg_box *b);
struct mg_sandbox *mg_box_sandbox(struct mg_box *b);
struct mg_memory *mg_box_memory(struct mg_box *b); /* NULL: the session has no memory stores */
struct mg_sv mg_box_session(const struct mg_box *b);
struct mg_box *mg_box_ref_locked(
    struct mg_box *b); /* with engine.lock held: given back with mg_box_unref, without it */
void mg_box_unref(struct mg_box *b);
bool mg_box_have(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread);
bool mg_box_has_memory(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread);
/* A repository is not in its sandbox, and the turn of this epoch has not tried to put it there. */
bool mg_box_wants_repositories(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread,
                               int64_t epoch);
void mg_box_repositories(struct mg_box *b, bool missing, int64_t tried);
/* It is here, and its backend has answered just now: calls may start. */
bool mg_box_ready(struct mg_engine *e, const struct mg_id *session, const struct mg_id *thread);
mg_rc mg_box_acquire(struct mg_engine *e, struct mg_pg *pg, const struct mg_id *session, const struct mg_id *thread,
                     struct mg_cancel *cancel, struct mg_err *err) MG_MUSTCHECK;
void mg_box_drop(struct mg_engine *e,
                 const struct mg_id *session); /* closes the shells of its threads, forgets the handles */
void mg_box_drop_idle(struct mg_engine *e, uint64_t idle_ns); /* 0: all */
/* What is mounted in the session's sandbox may have changed: the next call looks. Any thread. */
void mg_box_stale(struct mg_engine *e, struct mg_sv session);

/* ---- keep.c ---- */
void mg_boxes_keep(struct mg_engine *e); /* once a second: moves the expiry timers of sandboxes whose turns run here */

/* ---- clock.c: the node's lease, timers, takeover ---- */
mg_rc mg_clock_start(struct mg_engine *e, struct mg_err *err) MG_MUSTCHECK;
void mg_clock_look(struct mg_engine *e); /* something of the clock's may be due earlier than it knows */
void mg_clock_stop(struct mg_engine *e); /* joins its threads; timers may still be set */
void mg_clock_free(struct mg_engine *e);

#endif
