#include "store/outcome.h"

static const struct mg_stmt SQL_INSERT = {
    "outcome_insert",
    "WITH o AS (INSERT INTO outcomes (session_id, id, seq, description, rubric, max_iterations)"
    " VALUES ($1, $2, $3::bigint, $4, $5, $6::int) RETURNING session_id)"
    " UPDATE session_state st SET outcomes = outcomes + 1 FROM o WHERE st.session_id = o.session_id",
};

mg_rc mg_outcome_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_outcome *o,
                        struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(session), mg_id_sv(&o->id), mg_p_int(a, o->seq),
                              o->description,    o->rubric,        mg_p_int(a, o->max_iterations)};
    return mg_txn_queue(t, &SQL_INSERT, p, 6, -1, err);
}

static const struct mg_stmt SQL_OPEN = {
    "outcome_open",
    "SELECT id, seq, description, rubric, max_iterations, iteration, coalesce(start_event, '') FROM outcomes"
    " WHERE session_id = $1 AND completed_at IS NULL",
};

mg_rc mg_outcome_open(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, struct mg_outcome *ret,
                      struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv id = mg_id_sv(session);
    mg_rc rc = mg_txn_query(t, &SQL_OPEN, &id, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "session '%s' has no open outcome", session->s);
    *ret = (struct mg_outcome){
        .seq = mg_res_int(r, 0, 1),
        .description = mg_arena_sv(a, mg_res_sv(r, 0, 2)),
        .rubric = mg_arena_sv(a, mg_res_sv(r, 0, 3)),
        .max_iterations = mg_res_int(r, 0, 4),
        .iteration = mg_res_int(r, 0, 5),
    };
    (void)mg_id_from(mg_res_sv(r, 0, 0), &ret->id);
    (void)mg_id_from(mg_res_sv(r, 0, 6), &ret->start_event);
    return MG_OK;
}

static const struct mg_stmt SQL_SAVE = {
    "outcome_save",
    "UPDATE outcomes SET iteration = $3::int, start_event = nullif($4, ''), result = $5, explanation = $6,"
    " completed_at = CASE WHEN $7::bool THEN now() END WHERE session_id = $1 AND id = $2",
};

mg_rc mg_outcome_save(struct mg_arena *a, struct mg_txn *t, const struct mg_id *session, const struct mg_outcome *o,
                      struct mg_sv result, struct mg_sv explanation, bool completed, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_id_sv(session),         mg_id_sv(&o->id), mg_p_int(a, o->iteration),
                              mg_id_sv(&o->start_event), result,           explanation,
                              mg_p_bool(completed)};
    return mg_txn_queue(t, &SQL_SAVE, p, 7, 1, err);
}
