/* A step: one transaction on a session under its row lock. New events, transcript entries and the next state are collected and go out together in
 * one round trip with the COMMIT; only then do streams see the events. Used by admission, by the turn engine and by session updates. */
#ifndef MG_RUN_STEP_H
#define MG_RUN_STEP_H

#include "base/buf.h"
#include "json/write.h"
#include "store/event-log.h"
#include "store/session-state.h"
#include "store/tool-call.h"
#include "store/transcript.h"

struct mg_engine;
struct mg_run;

enum {
    MG_STEP_EVENT_BYTES = 48 * 1024 * 1024, /* text of one event: a body's limit and room for escapes */
};

struct mg_step {
    struct mg_engine *engine;
    struct mg_arena *arena;
    struct mg_txn txn;
    struct mg_txn *t;           /* &txn, or the caller's */
    struct mg_session_state st; /* the session and its current thread's turn, as locked; change it in place */
    struct mg_threads *threads; /* of a coordinator's session (threads.h), else NULL */
    struct mg_event_row *events;
    int n_events, cap_events;
    struct mg_transcript_row *entries;
    int n_entries, cap_entries;
    int64_t now_us; /* the instant of this step: every processed_at of it */
    bool flushed;
    bool waits_worker; /* a call of a self_hosted session waits for a result */
    bool work_asked;   /* the last statement of the step queues a work item, if there is none */
    bool work_made;    /* and it did */
};

static inline void mg_step_cleanup(struct mg_step *s)
{
    mg_txn_cleanup(&s->txn);
}

/* Locks the session. workspace empty: any. epoch < 0: none is asked for, else MG_EFENCED when the turn is no longer ours. */
mg_rc mg_step_begin(struct mg_step *s, struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, struct mg_sv session,
                    struct mg_sv workspace, int64_t epoch, struct mg_err *err) MG_MUSTCHECK;
/* The same for a step of a claimed turn, on its thread. */
mg_rc mg_step_begin_run(struct mg_step *s, struct mg_run *r, struct mg_pg *pg, struct mg_arena *a,
                        struct mg_err *err) MG_MUSTCHECK;
/* A step inside the caller's transaction, which has just inserted the session's rows. */
mg_rc mg_step_adopt(struct mg_step *s, struct mg_engine *e, struct mg_txn *t, struct mg_arena *a,
                    const struct mg_session_state *st, struct mg_err *err) MG_MUSTCHECK;

/* Adds an event {"id":..,"type":..,MEMBERS}; members is raw text without braces, or empty. The id lives in the step. */
struct mg_id mg_step_event(struct mg_step *s, enum mg_event_type type, struct mg_sv members, bool processed);
/* The same with an id that was made before (previews carry it). */
void mg_step_event_id(struct mg_step *s, const struct mg_id *id, enum mg_event_type type, struct mg_sv members,
                      bool processed);
/* An event in another thread's log: the primary one's (NULL), or a child's. */
struct mg_id mg_step_post(struct mg_step *s, const struct mg_id *thread, enum mg_event_type type, struct mg_sv members,
                          bool processed);
void mg_step_transcript(struct mg_step *s, bool assistant, struct mg_sv content);
/* What the endpoint counted up to and including the newest entry, under the fixed part of that fingerprint. */
void mg_step_measured(struct mg_step *s, int64_t tokens, int64_t fixed);
/* Queues the transcript's new entries, when the current thread changes. Flush does it too. */
mg_rc mg_step_flush_entries(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Queues all that was collected. Called by commit; in an adopted step by its owner. */
mg_rc mg_step_flush(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Flush, COMMIT, publish. point names the commit for the test hooks: "POINT.before" and "POINT.after" are passed around it. */
mg_rc mg_step_commit(struct mg_step *s, const char *point, struct mg_err *err) MG_MUSTCHECK;
/* Tells the streams of this process and the other nodes. Commit does it. */
void mg_step_publish(const struct mg_step *s);

/* Members of a session.error, in the arena. */
struct mg_sv mg_members_error(struct mg_arena *a, const char *type, const char *message, const char *retry_status);

#endif
