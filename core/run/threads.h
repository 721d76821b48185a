/* The threads of a coordinator's session within a step. All that have not ended are loaded under the session's lock; one of them is current: its
 * turn is in step.st, and events, transcript and calls are its own. The session's status is the projection over all of them: running while any runs,
 * rescheduling while any waits for a retry, else idle (semantics SM4).
 *
 * Each change of a thread's status is an event in its own log, and for a child a copy in the primary one's, which is what clients of the session
 * see. Only what they have to answer is copied besides: calls that wait for them, with the results. */
#ifndef MG_RUN_THREADS_H
#define MG_RUN_THREADS_H

#include "run/step.h"
#include "store/thread-state.h"

enum {
    MG_THREADS_LIVE_MAX = 25, /* threads of a session that have not ended, the primary one included (semantics TH1) */
    MG_INPUTS_AT_ONCE = 100,  /* reports that one turn takes: below MG_RUN_INPUTS_MAX */
};

struct mg_threads {
    struct mg_thread_state *all; /* 0: the primary one */
    int64_t *epochs;             /* as loaded */
    bool *touched;               /* it was current once */
    int n, cap, cur;
    int own;      /* whose run or claim is the caller's business after the commit; -1: none */
    int64_t next; /* ordinal of the next child */
    bool ending;  /* the session is about to be terminated: it is not idle in between */
    bool silent;  /* all of it is settled: nobody is told of an end */
};

mg_rc mg_threads_begin(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* By the id that clients use, or that runs use ("" the primary one); -1: none that has not ended. */
int mg_threads_index(const struct mg_step *s, struct mg_sv thread);
mg_rc mg_threads_switch(struct mg_step *s, int i, struct mg_err *err) MG_MUSTCHECK;
/* This node runs the session's turns. */
bool mg_threads_ours(const struct mg_step *s);
/* The id that clients use. */
struct mg_id mg_threads_id(const struct mg_step *s, int i);
/* A new child, idle, not current; *ret its index. agent is the SessionThreadAgent. */
mg_rc mg_threads_add(struct mg_step *s, struct mg_sv name, struct mg_sv agent, int *ret,
                     struct mg_err *err) MG_MUSTCHECK;

/* The current thread begins to run; has stopped (its step is none already); waits for a retry; has ended. Events, and the session's status. */
void mg_threads_run(struct mg_step *s);
mg_rc mg_threads_idle(struct mg_step *s, struct mg_sv stop_reason, struct mg_sv details,
                      struct mg_err *err) MG_MUSTCHECK;
void mg_threads_reschedule(struct mg_step *s);
mg_rc mg_thread_end(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Interrupts and ends every child. The primary one is current before and after. */
mg_rc mg_threads_end_children(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* Interrupts every thread that runs or waits, the primary one last. */
mg_rc mg_threads_interrupt_all(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;

/* mg_turn_unwedge on every thread, the primary one last; a child that was open ends. */
mg_rc mg_threads_unwedge(struct mg_step *s, int *ret_calls, bool *ret_changed, struct mg_err *err) MG_MUSTCHECK;

/* What begins the current thread's next turn: a client's message, or all reports up to the next one. *ret_first 0: nothing waits. */
mg_rc mg_threads_next_inputs(struct mg_step *s, int64_t *ret_first, int64_t *ret_last, int *ret_n,
                             struct mg_err *err) MG_MUSTCHECK;

/* A child's call that waits for a client, and the result of one, in the primary thread's log. The call's public_id is set. */
void mg_thread_show_call(struct mg_step *s, struct mg_tool_call *c, enum mg_event_type type, struct mg_sv members);
void mg_thread_show_result(struct mg_step *s, const struct mg_tool_call *c, enum mg_event_type type, const char *ref);

/* What the step adds to the session's usage so far, in the add_ members: that of all its threads. */
struct mg_session_state mg_threads_added(const struct mg_step *s);
/* Turns that a used-up budget has paused go on. */
mg_rc mg_threads_resume_paused(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_threads_save(struct mg_step *s, struct mg_err *err) MG_MUSTCHECK;
/* After the commit: runs that lost their turn are cancelled, turns that this node claimed are started. */
void mg_threads_settle(struct mg_step *s);

#endif
