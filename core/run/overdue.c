#include "base/clock.h"
#include "base/log.h"
#include "run/engine-internal.h"
#include "run/turn.h"

/* The deadline of every call that this node runs, whatever becomes of the adapter: one that neither returns nor obeys its own deadline and the cancel may
 * keep a tool thread, but no session.
 *
 * Concurrency: run.busy_until_ns is set by the step that hands work to a pool and cleared by the pool's thread when it is back, so a step under the
 * session's lock that still finds it passed knows that the work has not come back; when it does, its epoch is an old one. */

enum {
    LOOK_MAX = 64, /* runs given up in one look; the next is a second later */
    RETRY_S = 15,  /* before a run is looked at again whose giving up could not be committed */
    NS_PER_MS = 1000 * 1000,
};

uint64_t mg_run_until(uint64_t ms)
{
    return mg_now_ns() + ms * NS_PER_MS;
}

/* A tool's own limit, by its input; nothing here says that the tool keeps it. */
static uint64_t own_limit_ms(struct mg_arena *a, struct mg_sv input)
{
    struct mg_json *v;
    int64_t n = 0;
    if (mg_json_parse(a, input, &mg_json_raw_limits, &v, NULL) < 0)
        return MG_TOOL_DEFAULT_MS;
    const struct mg_json *ms = mg_json_get(v, "timeout_ms");
    if (!ms || ms->type != MG_JSON_NUMBER || !mg_sv_to_i64(ms->raw, &n) || n <= 0)
        return MG_TOOL_DEFAULT_MS;
    return n < MG_TOOL_TIMEOUT_MAX_MS ? (uint64_t)n : MG_TOOL_TIMEOUT_MAX_MS;
}

uint64_t mg_call_limit_ms(const struct mg_engine *e, struct mg_sv input)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    return own_limit_ms(a, input) + e->opts.tool_grace_ms;
}

static mg_rc give_up_calls(struct mg_run *r, struct mg_step *s, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_tool_call *calls;
    int n;
    *ret_n = 0;
    mg_rc rc =
        mg_calls_of_round(s->arena, s->t, &r->session, &s->st.thread, s->st.transcript_len, &res, &calls, &n, err);
    for (int i = 0; rc == MG_OK && i < n; i++) {
        if (calls[i].state != MG_CALL_STARTED || calls[i].kind == MG_CALL_AGENT)
            continue;
        calls[i].state = MG_CALL_AMBIGUOUS;
        mg_log(MG_ERROR, "a tool call did not come back by its deadline; it is given up",
               MG_F_STR("session", r->session.s), MG_F_STR("call", calls[i].event_id.s),
               MG_F_SV("tool", calls[i].name));
        rc = mg_turn_answer_call(
            s, &calls[i], MG_ANSWER_SERVER,
            mg_text_content(
                s->arena, "The sandbox did not answer by the call's deadline, and the server stopped waiting. The call "
                          "may still run or may have taken effect; it was not run again. Check before you repeat it."),
            true, err);
        (*ret_n)++;
    }
    if (rc < 0 || *ret_n == 0)
        return rc;
    mg_turn_claim(s);
    return mg_turn_after_calls(s, calls, n, err);
}

static mg_rc commit_overdue(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, bool *ret_done,
                            struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    int n = 0;
    *ret_done = false;
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    if (atomic_load(&r->busy_until_ns) == 0)
        return MG_OK; /* it came back in the meantime */
    rc = give_up_calls(r, &s, &n, err);
    if (rc == MG_OK && n == 0)
        rc = mg_turn_abandon(&s, "the session's sandbox did not answer by the server's deadline", err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.overdue", err);
    *ret_done = rc == MG_OK;
    *ret_st = s.st;
    return rc;
}

static void run_overdue(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    bool done;
    mg_rc rc = commit_overdue(r, pg, &st, &done, &err);
    if (rc < 0) {
        mg_log(MG_WARN, "an overdue call is not given up yet", MG_F_STR("session", r->session.s),
               MG_F_STR("error", err.text));
        return;
    }
    if (!done)
        return;
    atomic_fetch_add(&r->engine->n_overdue, 1);
    mg_box_drop(r->engine, &r->session); /* the thread that is stuck holds its lock */
    mg_run_cancel(r);
    mg_run_drop(r);
    if (st.turn_step != MG_TURN_NONE && st.turn_step != MG_TURN_ACTION)
        mg_engine_go(r->engine, &st);
}

struct look {
    uint64_t now;
    struct mg_run *late[LOOK_MAX];
    int n;
};

static void look_at(void *ctx, struct mg_sv key, void *value)
{
    struct look *l = ctx;
    (void)key;
    for (struct mg_run *r = value; r; r = r->sibling) {
        unsigned long long until = atomic_load(&r->busy_until_ns);
        if (until == 0 || until > l->now || l->n == LOOK_MAX)
            continue;
        uint64_t again = l->now + RETRY_S * UINT64_C(1000000000);
        if (atomic_compare_exchange_strong(&r->busy_until_ns, &until, again))
            l->late[l->n++] = mg_run_ref(r);
    }
}

void mg_runs_overdue(struct mg_engine *e)
{
    struct look l = {.now = mg_now_ns()};
    if (atomic_load(&e->draining))
        return;
    pthread_mutex_lock(&e->lock);
    mg_map_each(e->runs, look_at, &l);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < l.n; i++) {
        mg_run_later(l.late[i], run_overdue);
        mg_run_unref(l.late[i]);
    }
}
