#include "base/hook.h"
#include "base/log.h"
#include "run/advisor.h"
#include "run/engine-internal.h"
#include "run/mcp.h"
#include "run/memory.h"
#include "run/repositories.h"
#include "run/turn.h"
#include "tools/keep.h"

/* The server's own tool calls, one after another: prepared -> started (committed before the effect begins) -> completed. The result of one call and
 * the start of the next share a commit. */

enum { SANDBOX_PAUSE_MS = 1000 /* before a sandbox is asked for again whose threads were all busy */ };

static struct mg_tool_call *next_prepared(struct mg_tool_call *calls, int n)
{
    for (int i = 0; i < n; i++)
        if (calls[i].state == MG_CALL_PREPARED && calls[i].waits == MG_WAIT_NONE)
            return &calls[i];
    return NULL;
}

/* The sandbox comes first: a call is not `started` while its sandbox may still fail. */
static bool waits_for_sandbox(const struct mg_run *r, const struct mg_tool_call *c)
{
    if (!c || c->kind != MG_CALL_BUILTIN)
        return false;
    return !(r->gated ? mg_box_have : mg_box_ready)(r->engine, &r->session, &r->thread) ||
           (!r->memory_synced && mg_box_has_memory(r->engine, &r->session, &r->thread));
}

static bool waits_for_repositories(const struct mg_run *r, const struct mg_tool_call *c)
{
    return c && c->kind == MG_CALL_BUILTIN && mg_repositories_wanted(r);
}

static void call_forget(struct mg_run *r)
{
    r->call_event = (struct mg_id){0};
    free(r->call_name);
    free(r->call_input);
    r->call_name = r->call_input = NULL;
    mg_buf_done(&r->call_result.content); /* a tool begins with a buffer of its own */
    r->call_result.content = MG_BUF_INIT(MG_STEP_EVENT_BYTES);
    r->call_result.is_error = false;
}

static mg_rc call_start(struct mg_step *s, struct mg_tool_call *c, struct mg_err *err)
{
    c->state = MG_CALL_STARTED;
    return mg_call_save(s->arena, s->t, &s->st.session, s->st.turn_epoch, c, err);
}

/* After the commit: until then the run holds the call before it, whose result may have to be written again. */
static void call_take(struct mg_run *r, const struct mg_tool_call *c)
{
    call_forget(r);
    r->gated = false;
    r->call_event = c->event_id;
    r->call_kind = c->kind;
    r->call_name = mg_xstrndup(c->name.ptr, c->name.len);
    r->call_input = mg_xstrndup(c->input.ptr, c->input.len);
}

/* ---- the effect, on a tool thread ---- */

static void call_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    (void)thread;
    mg_hook("tool.run");
    struct mg_box *box = mg_box_lock(r->engine, &r->session, &r->thread);
    if (box) {
        mg_memory_before(box);
        r->call_rc = mg_tool_run(mg_box_tools(box), mg_sv_of(r->call_name), mg_sv_of(r->call_input), r->cancel,
                                 &r->call_result, &r->call_err);
        if (r->call_rc == MG_OK)
            mg_tool_result_keep(mg_box_tools(box), mg_sv_of(r->call_name), r->call_event.s,
                                r->result_max ? r->result_max : mg_engine_result_max(r->engine), &r->call_result);
        mg_memory_after(r, box);
        mg_box_unlock(box);
    } else {
        r->call_rc = mg_err_set(&r->call_err, MG_EGONE, "the session's sandbox is not attached to this node any more");
    }
    atomic_store(&r->busy_until_ns, 0);
    r->gated = r->call_rc == MG_OK;
    if (r->gated)
        r->backend_waits = 0;
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r); /* whoever cancelled has answered the call */
    else
        mg_run_later(r, mg_run_call_done);
    mg_run_unref(r);
}

static void call_submit(struct mg_run *r, struct mg_pg *pg)
{
    if (r->call_kind == MG_CALL_MCP) {
        mg_run_mcp_call(r, pg);
        return;
    }
    atomic_fetch_add(&r->engine->n_tool_calls, 1);
    atomic_store(&r->busy_until_ns, mg_run_until(mg_call_limit_ms(r->engine, mg_sv_of(r->call_input))));
    if (mg_pool_submit(r->engine->tools, call_work, mg_run_ref(r)) == MG_OK)
        return;
    mg_run_unref(r);
    atomic_store(&r->busy_until_ns, 0);
    r->call_rc = mg_err_set(&r->call_err, MG_EUNAVAIL,
                            "all tool threads of this node are busy (MANGO_TOOL_THREADS); the call was not run");
    mg_run_later(r, mg_run_call_done);
}

/* ---- results ---- */

/* The workspace is lost: every call of the wave is answered, the turn ends with an error, the session stays and says so again at the next try. */
static mg_rc wave_lost(struct mg_step *s, struct mg_tool_call *calls, int n, const char *why, struct mg_err *err)
{
    for (int i = 0; i < n; i++) {
        if (calls[i].state == MG_CALL_COMPLETED || calls[i].state == MG_CALL_AMBIGUOUS)
            continue;
        mg_rc rc = mg_turn_answer_call(s, &calls[i], MG_ANSWER_SERVER, mg_text_content(s->arena, why), true, err);
        if (rc < 0)
            return rc;
    }
    mg_step_event(s, MG_EV_SESSION_ERROR, mg_members_error(s->arena, "unknown_error", why, "exhausted"), true);
    mg_turn_results(s, calls, n);
    return mg_turn_exhaust(s, err);
}

static mg_rc answer_started(struct mg_run *r, struct mg_step *s, struct mg_tool_call *c, struct mg_err *err)
{
    struct mg_sv content = mg_buf_view(&r->call_result.content);
    bool is_error = r->call_result.is_error;
    if (r->call_rc < 0 || content.len == 0) {
        content = mg_text_content(s->arena, r->call_rc < 0 ? r->call_err.text : "(no output)");
        is_error = r->call_rc < 0;
    }
    mg_mcp_answered(r, s, c);
    mg_repositories_noted(r, s->arena, &content);
    mg_rc rc = mg_memory_take(r, s, &content, err);
    return rc < 0 ? rc : mg_turn_answer_call(s, c, MG_ANSWER_SERVER, content, is_error, err);
}

static mg_rc commit_result(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, bool *ret_next,
                           struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_tool_call *calls, *next = NULL;
    int n = 0;
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc == MG_OK)
        rc = mg_calls_of_round(a, s.t, &r->session, &s.st.thread, s.st.transcript_len, &res, &calls, &n, err);
    if (rc < 0)
        return rc;
    struct mg_tool_call *c = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(calls[i].event_id.s, r->call_event.s) == 0)
            c = &calls[i];
    *ret_next = false;
    *ret_st = s.st;
    if (!c || c->state != MG_CALL_STARTED)
        return MG_OK; /* an earlier try was committed after all */
    if (r->call_rc == MG_EGONE) {
        rc = wave_lost(&s, calls, n, r->call_err.text, err);
    } else {
        rc = answer_started(r, &s, c, err);
        next = rc == MG_OK && !atomic_load(&r->engine->draining) ? next_prepared(calls, n) : NULL;
        if (waits_for_sandbox(r, next) || waits_for_repositories(r, next))
            next = NULL; /* the wave goes on with it */
        if (next)
            rc = call_start(&s, next, err);
        else if (rc == MG_OK)
            rc = mg_turn_after_calls(&s, calls, n, err);
    }
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.call_completed", err);
    if (rc == MG_OK) {
        mg_memory_taken(r);
        mg_repositories_told(r);
    }
    if (rc == MG_OK && next)
        call_take(r, next);
    *ret_next = next != NULL;
    *ret_st = s.st;
    return rc;
}

void mg_run_call_done(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    bool next, lost = r->call_rc == MG_EGONE;
    mg_rc rc = commit_result(r, pg, &st, &next, &err);
    if (rc < 0) {
        mg_run_failed(r, rc, &err, mg_run_call_done);
        return;
    }
    if (lost)
        mg_box_drop(r->engine, &r->session);
    if (next)
        call_submit(r, pg);
    else
        mg_run_continue(r, pg, &st);
}

/* ---- the beginning of a wave ---- */

static void acquire_failed(struct mg_run *r, struct mg_pg *pg);

/* The sandbox is here, its memory stores are not. What the sandbox says is said as of an acquire; the database's failures are those of a step. */
static void sync_failed(struct mg_run *r, struct mg_pg *pg)
{
    if (r->call_rc == MG_EGONE || mg_run_backend_away(r))
        acquire_failed(r, pg);
    else
        mg_run_failed(r, r->call_rc, &r->call_err, mg_run_calls);
}

static void acquire_work(void *arg, void *thread)
{
    struct mg_run *r = arg;
    r->call_rc = mg_box_acquire(r->engine, thread, &r->session, &r->thread, r->cancel, &r->call_err);
    bool acquired = r->call_rc >= 0;
    if (acquired)
        r->call_rc = mg_memory_meet(r, thread, &r->call_err);
    atomic_store(&r->busy_until_ns, 0);
    if (mg_cancel_fired(r->cancel))
        mg_run_drop(r);
    else
        mg_run_later(r, r->call_rc >= 0 ? mg_run_calls : acquired ? sync_failed : acquire_failed);
    mg_run_unref(r);
}

static mg_rc commit_no_sandbox(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_tool_call *calls;
    int n;
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc == MG_OK)
        rc = mg_calls_of_round(a, s.t, &r->session, &s.st.thread, s.st.transcript_len, &res, &calls, &n, err);
    if (rc == MG_OK)
        rc = wave_lost(&s, calls, n, r->call_err.text, err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, "turn.no_sandbox", err);
    *ret_st = s.st;
    return rc;
}

void mg_run_no_sandbox(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    mg_log(MG_WARN, "no sandbox", MG_F_STR("session", r->session.s), MG_F_STR("error", r->call_err.text));
    mg_rc rc = commit_no_sandbox(r, pg, &st, &err);
    if (rc < 0)
        mg_run_failed(r, rc, &err, mg_run_no_sandbox);
    else
        mg_run_continue(r, pg, &st);
}

static void acquire_failed(struct mg_run *r, struct mg_pg *pg)
{
    if (mg_run_backend_away(r))
        mg_run_backend_wait(r, pg);
    else
        mg_run_no_sandbox(r, pg);
}

enum start { START_DONE, START_CALL, START_SANDBOX, START_REPOSITORIES, START_ADVISOR };

static mg_rc commit_start(struct mg_run *r, struct mg_pg *pg, struct mg_session_state *ret_st, enum start *ret,
                          struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_auto(res) struct mg_res *res = NULL;
    struct mg_tool_call *calls;
    int n;
    *ret = START_DONE;
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    if (rc < 0)
        return rc;
    *ret_st = s.st;
    if (s.st.turn_step != MG_TURN_TOOLS)
        return MG_OK;
    rc = mg_calls_of_round(a, s.t, &r->session, &s.st.thread, s.st.transcript_len, &res, &calls, &n, err);
    if (rc < 0)
        return rc;
    struct mg_tool_call *c = next_prepared(calls, n);
    if (!c && mg_advisor_open(calls, n)) {
        *ret = START_ADVISOR;
        return MG_OK;
    }
    if (waits_for_sandbox(r, c)) {
        *ret = START_SANDBOX;
        return MG_OK;
    }
    if (waits_for_repositories(r, c)) {
        *ret = START_REPOSITORIES;
        return MG_OK;
    }
    mg_turn_running(&s); /* it may have waited for its backend */
    rc = c && c->kind == MG_CALL_BUILTIN ? mg_memory_refresh(r, &s, err) : MG_OK;
    if (rc == MG_OK)
        rc = c ? call_start(&s, c, err) : mg_turn_after_calls(&s, calls, n, err);
    if (rc == MG_OK)
        rc = mg_step_commit(&s, c ? "turn.call_started" : "turn.calls_done", err);
    if (rc == MG_OK && c) {
        call_take(r, c);
        *ret = START_CALL;
    }
    *ret_st = s.st;
    return rc;
}

static void acquire_later(struct mg_run *r)
{
    atomic_store(&r->busy_until_ns, mg_run_until(MG_ACQUIRE_MS));
    if (mg_pool_submit(r->engine->sandbox, acquire_work, mg_run_ref(r)) == MG_OK)
        return;
    atomic_store(&r->busy_until_ns, 0);
    mg_run_unref(r);
    mg_run_after(r, SANDBOX_PAUSE_MS, mg_run_calls);
}

void mg_run_calls(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    enum start start;
    if (atomic_load(&r->engine->draining)) {
        mg_run_drop(r); /* the row says where to go on; the next owner does */
        return;
    }
    mg_rc rc = commit_start(r, pg, &st, &start, &err);
    if (rc < 0)
        mg_run_failed(r, rc, &err, mg_run_resume); /* a start whose commit is unknown is looked at, not repeated */
    else if (start == START_CALL)
        call_submit(r, pg);
    else if (start == START_SANDBOX)
        acquire_later(r);
    else if (start == START_REPOSITORIES)
        mg_run_repositories(r, pg);
    else if (start != START_ADVISOR) /* whose end claims the turn for another run */
        mg_run_continue(r, pg, &st);
}
