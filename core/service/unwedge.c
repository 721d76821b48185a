#include "service/unwedge.h"

#include "base/log.h"
#include "run/engine.h"
#include "run/threads.h"
#include "run/turn.h"

static mg_rc may_be_settled(const struct mg_session_state *st, struct mg_err *err)
{
    if (st->deleting)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' does not exist", st->session.s);
    if (st->archived || st->status == MG_ST_TERMINATED)
        return mg_err_set(err, MG_ECONFLICT, "session '%s' is over; nothing of it waits", st->session.s);
    return MG_OK;
}

mg_rc mg_sessions_unwedge(struct mg_engine *e, struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who,
                          struct mg_sv id, int *ret_calls, bool *ret_changed, struct mg_err *err)
{
    mg_auto(step) struct mg_step s = {0};
    mg_rc rc = mg_step_begin(&s, e, pg, a, id, mg_id_sv(&who->workspace), -1, err);
    if (rc == MG_OK)
        rc = may_be_settled(&s.st, err);
    if (rc == MG_OK)
        rc = s.threads ? mg_threads_unwedge(&s, ret_calls, ret_changed, err)
                       : mg_turn_unwedge(&s, ret_calls, ret_changed, err);
    if (rc < 0 || !*ret_changed)
        return rc;
    rc = mg_step_commit(&s, "unwedge", err);
    if (rc < 0)
        return rc;
    mg_log(MG_WARN, "session settled by an operator", MG_F_STR("session", s.st.session.s),
           MG_F_INT("calls", *ret_calls));
    mg_engine_settled(e, &s.st.session, s.st.turn_epoch);
    return MG_OK;
}
