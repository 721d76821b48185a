#include "service/thread.h"

#include "domain/check.h"
#include "domain/thread.h"
#include "run/delegate.h"
#include "run/turn.h"

/* One that has ended already is only marked. */
static mg_rc archive_ended(struct mg_step *s, struct mg_sv thread_id, struct mg_err *err)
{
    bool known = false;
    mg_rc rc = mg_thread_known(s->t, &s->st.session, thread_id, &known, err);
    if (rc >= 0 && !known)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' has no thread '%.*s'", s->st.session.s,
                          MG_SV_ARG(mg_shown_id(thread_id)));
    return rc < 0 ? rc : mg_thread_set_archived(s->t, &s->st.session, thread_id, err);
}

/* Its open calls are answered, and a coordinator that would wait for it for ever is told. */
static mg_rc archive_live(struct mg_step *s, int i, struct mg_err *err)
{
    mg_rc rc = mg_threads_switch(s, i, err);
    if (rc < 0)
        return rc;
    if (mg_turn_status(&s->st) == MG_ST_RUNNING)
        return mg_err_set(err, MG_ECONFLICT,
                          "thread '%s' is running and cannot be archived; send a user.interrupt with its "
                          "session_thread_id and wait until it is idle",
                          s->st.thread.s);
    if (s->st.turn_step != MG_TURN_NONE) {
        rc = mg_thread_report(s, "archived", err);
        if (rc >= 0)
            rc = mg_turn_interrupt(s, err);
    }
    s->threads->all[i].archived = true;
    return rc < 0 ? rc : mg_thread_end(s, err);
}

mg_rc mg_threads_archive(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                         struct mg_sv session_id, struct mg_sv thread_id, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    const struct mg_id primary = mg_thread_primary(session_id);
    mg_rc rc = mg_step_begin(&s, e, pg, a, session_id, mg_id_sv(&who->workspace), -1, err);
    if (rc < 0)
        return rc;
    if (s.st.deleting)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' does not exist", s.st.session.s);
    if (mg_sv_eq(thread_id, mg_id_sv(&primary)))
        return mg_err_set(err, MG_EINVAL, "the primary thread cannot be archived by itself; archive the session");
    int i = s.threads ? mg_threads_index(&s, thread_id) : -1;
    rc = i > 0 ? archive_live(&s, i, err) : archive_ended(&s, thread_id, err);
    return rc < 0 ? rc : mg_step_commit(&s, "thread_archive", err);
}
