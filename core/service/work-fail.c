/* The end of a session that its worker cannot serve, and what follows the end of any item. */
#include "base/log.h"
#include "json/write.h"
#include "run/engine.h"
#include "run/threads.h"
#include "run/turn.h"
#include "run/work.h"
#include "service/work-internal.h"
#include "store/event-log.h"

void mg_work_ended_here(struct mg_engine *e, const struct mg_work_row *w)
{
    struct mg_id environment;
    mg_work_revoke(e, w->id);
    if (mg_id_from(w->environment, &environment))
        mg_work_tell(e, &environment);
}

static mg_rc end_session(struct mg_step *s, struct mg_sv message, struct mg_err *err)
{
    const char *text = mg_arena_strdup(s->arena, message);
    mg_step_event(s, MG_EV_SESSION_ERROR, mg_members_error(s->arena, "session_input_failed_error", text, "terminal"),
                  true);
    mg_rc rc = s->threads ? mg_threads_end_children(s, err) : MG_OK;
    if (rc >= 0)
        rc = mg_turn_interrupt(s, err); /* open calls get their answers */
    if (rc >= 0)
        rc = mg_events_mark_all(s->arena, s->t, &s->st.session, &s->st.thread, s->st.last_seq, s->now_us, err);
    if (rc < 0)
        return rc;
    mg_step_event(s, MG_EV_STATUS_TERMINATED, MG_SV(""), true);
    s->st.status = MG_ST_TERMINATED;
    s->st.turn_step = MG_TURN_NONE;
    s->st.queued_inputs = 0;
    s->st.open_actions = 0;
    return MG_OK;
}

mg_rc mg_work_fail_session(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_id *session,
                           struct mg_sv environment, struct mg_sv id, struct mg_sv message,
                           mg_rc (*check)(const struct mg_work_row *w, struct mg_err *err), struct mg_work_row *ret,
                           struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin(&s, e, pg, a, mg_id_sv(session), MG_SV(""), -1, err);
    if (rc >= 0)
        rc = mg_work_lock(a, s.t, environment, id, ret, err);
    if (rc >= 0)
        rc = check(ret, err);
    if (rc >= 0)
        rc = mg_work_set_stopped(s.t, ret->id, "fail", err);
    if (rc >= 0)
        rc = mg_work_lock(a, s.t, environment, id, ret, err);
    if (rc >= 0)
        rc = end_session(&s, message, err);
    if (rc >= 0)
        rc = mg_step_commit(&s, "work.fail", err);
    if (rc < 0)
        return rc;
    mg_engine_cancel(e, session, s.st.turn_epoch);
    mg_log(MG_WARN, "a worker cannot serve a session", MG_F_STR("session", session->s), MG_F_SV("work", ret->id),
           MG_F_SV("why", message));
    return MG_OK;
}
