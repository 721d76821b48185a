#include "base/log.h"
#include "base/rng.h"
#include "run/engine-internal.h"
#include "run/turn.h"
#include "sandbox/health.h"
#include "store/node.h"
#include "store/waiting.h"

/* A turn whose sandbox cannot be reached waits: its calls stay prepared, the session's events say why, and it goes on when the
 * backend is back; an interrupt ends it, and so does the limit of sandbox_wait. The row says all of it (step tools, status rescheduling), so
 * that whoever owns the turn after a crash goes on waiting. A node that does not have the backend hands the turn on. */

enum {
    WAIT_FIRST_MS = 1000, /* between two looks, doubled each time; a look costs a read of the binding at most */
    WAIT_MAX_MS = 8000,
    BUSY_MS = 500, /* another server attaches at this moment, or the database does not answer: nothing to tell */
};

static bool has_code(const struct mg_run *r, const char *code)
{
    return strcmp(r->call_err.code, code) == 0;
}

static bool absent(const struct mg_run *r)
{
    return has_code(r, "backend_absent");
}

bool mg_run_backend_away(const struct mg_run *r)
{
    return r->call_rc == MG_EUNAVAIL || absent(r);
}

static uint64_t delay_ms(struct mg_run *r)
{
    uint64_t ms = WAIT_FIRST_MS;
    for (unsigned i = 0; i < r->backend_waits && ms < WAIT_MAX_MS; i++)
        ms *= 2;
    r->backend_waits++;
    return ms * 3 / 4 + mg_rng_below(ms / 2 + 1);
}

/* hand_on: another node takes the turn up; only the primary thread's claim moves alone. */
static mg_rc commit_wait(struct mg_run *r, struct mg_pg *pg, bool hand_on, bool *ret_waits, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin_run(&s, r, pg, a, err);
    *ret_waits = rc == MG_OK && s.st.turn_step == MG_TURN_TOOLS;
    if (rc < 0 || !*ret_waits)
        return rc;
    bool told = s.st.status == MG_ST_RESCHEDULING;
    if (told && !hand_on)
        return MG_OK;
    if (!told) {
        mg_step_event(&s, MG_EV_SESSION_ERROR, mg_members_error(a, "unknown_error", r->call_err.text, "retrying"),
                      true);
        mg_step_event(&s, MG_EV_STATUS_RESCHEDULED, MG_SV(""), true);
        s.st.status = MG_ST_RESCHEDULING;
    }
    if (hand_on) {
        s.st.turn_node = (struct mg_id){0};
        s.st.turn_epoch++;
    }
    return mg_step_commit(&s, "turn.backend_wait", err);
}

/* Then r->call_err says so. Not known, as while the database is away: the turn waits on. */
static bool waited_too_long(struct mg_run *r, struct mg_pg *pg)
{
    int64_t limit = r->engine->opts.sandbox_wait_ms, age = 0;
    struct mg_err err = {0}, why = r->call_err;
    if (limit <= 0 || mg_step_age_ms(pg, &r->session, &r->thread, &age, &err) < 0 || age < limit)
        return false;
    (void)mg_err_set(&r->call_err, MG_EUNAVAIL,
                     "no sandbox for %lld s, the limit that sandbox_wait sets; the call was not run: %.300s",
                     (long long)(limit / 1000), why.text);
    return true;
}

void mg_run_backend_wait(struct mg_run *r, struct mg_pg *pg)
{
    struct mg_err err = {0};
    bool hand_on = absent(r) && !r->thread.s[0], waits = true;
    if (strncmp(r->call_err.code, "backend_", 8) != 0) {
        mg_run_after(r, BUSY_MS, mg_run_calls);
        return;
    }
    if (waited_too_long(r, pg)) {
        atomic_fetch_add(&r->engine->n_given_up, 1);
        mg_run_no_sandbox(r, pg);
        return;
    }
    mg_log(MG_INFO, "a turn waits for its sandbox", MG_F_STR("session", r->session.s),
           MG_F_STR("why", r->call_err.text));
    mg_rc rc = commit_wait(r, pg, hand_on, &waits, &err);
    if (rc < 0)
        mg_run_failed(r, rc, &err, mg_run_backend_wait);
    else if (hand_on && waits)
        mg_run_drop(r);
    else
        mg_run_after(r, delay_ms(r), mg_run_calls);
}

/* ---- which backends this node has ---- */

void mg_backends_publish(struct mg_engine *e, struct mg_pg *pg)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err = {0};
    int n = 0;
    if (!e->opts.sandboxes)
        return;
    struct mg_sv *rows = mg_health_rows(e->opts.sandboxes, a, &n);
    pthread_mutex_lock(&e->lock);
    struct mg_id node = e->node;
    pthread_mutex_unlock(&e->lock);
    if (mg_node_set_backends(pg, a, &node, rows, n, &err) < 0)
        mg_log(MG_WARN, "the node's backends could not be published", MG_F_STR("error", err.text));
}

void mg_backends_work(void *engine, void *thread)
{
    struct mg_engine *e = engine;
    if (!e->opts.sandboxes)
        return;
    mg_health_tick(e->opts.sandboxes);
    mg_backends_publish(e, thread);
}
