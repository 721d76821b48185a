#include "store/sandbox.h"

static const struct mg_stmt SQL_BINDING = {
    "sandbox_binding",
    "SELECT provider, external_id, label, spec_hash, generation, lost_at IS NOT NULL FROM sandboxes WHERE session_id = "
    "$1",
};

/* The session's lock, and whether the session is on its way out. */
static const struct mg_stmt SQL_LOCK = {
    "sandbox_lock",
    "SELECT deleting_at IS NOT NULL FROM session_state WHERE session_id = $1 FOR UPDATE",
};

static void binding_from(struct mg_arena *a, const struct mg_res *r, struct mg_binding *ret)
{
    *ret = (struct mg_binding){
        .provider = mg_arena_sv(a, mg_res_sv(r, 0, 0)),
        .external_id = mg_arena_sv(a, mg_res_sv(r, 0, 1)),
        .label = mg_arena_sv(a, mg_res_sv(r, 0, 2)),
        .spec_hash = mg_arena_sv(a, mg_res_sv(r, 0, 3)),
        .generation = mg_arena_sv(a, mg_res_sv(r, 0, 4)),
        .lost = mg_res_bool(r, 0, 5),
    };
}

mg_rc mg_binding_get(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_binding *ret,
                     struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_BINDING, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session has no sandbox");
    binding_from(a, r, ret);
    return MG_OK;
}

#define INTENT_COLUMNS                                                                   \
    "i.session_id, i.provider, i.label, i.spec, i.spec_hash, s.deleting_at IS NOT NULL," \
    " i.last_error IS NULL AND coalesce(i.last_try, i.created_at) > now() - make_interval(secs => $2)"

static const struct mg_stmt SQL_INTENT = {
    "intent_get",
    "SELECT " INTENT_COLUMNS " FROM sandbox_intents i JOIN session_state s USING (session_id) WHERE i.session_id = $1",
};

static struct mg_intent intent_from(struct mg_arena *a, const struct mg_res *r, int row)
{
    return (struct mg_intent){
        .session_id = mg_arena_sv(a, mg_res_sv(r, row, 0)),
        .provider = mg_arena_sv(a, mg_res_sv(r, row, 1)),
        .label = mg_arena_sv(a, mg_res_sv(r, row, 2)),
        .spec = mg_arena_sv(a, mg_res_sv(r, row, 3)),
        .spec_hash = mg_arena_sv(a, mg_res_sv(r, row, 4)),
        .deleting = mg_res_bool(r, row, 5),
        .in_flight = mg_res_bool(r, row, 6),
    };
}

mg_rc mg_intent_get(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, int grace_s, struct mg_intent *ret,
                    struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_INTENT, (const struct mg_sv[]){session, mg_p_int(a, grace_s)}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session has no sandbox in the making");
    *ret = intent_from(a, r, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_INTENT_INSERT = {
    "intent_insert",
    "INSERT INTO sandbox_intents AS i (session_id, provider, label, spec, spec_hash, last_try, tries)"
    " VALUES ($1, $2, $3, $4, $5, now(), 1)"
    " ON CONFLICT (session_id) DO UPDATE SET last_try = now(), tries = i.tries + 1, last_error = NULL"
    " RETURNING provider, label, spec, spec_hash",
};

/* MG_ECONFLICT when the session is being deleted. */
static mg_rc lock_session(struct mg_txn *t, struct mg_sv session, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, &session, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "the session does not exist");
    return mg_res_bool(r, 0, 0) ? mg_err_set(err, MG_ECONFLICT, "the session is being deleted") : MG_OK;
}

mg_rc mg_intent_begin(struct mg_pg *pg, struct mg_arena *a, struct mg_intent *in, bool *ret_bound, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_auto(res) struct mg_res *bound = NULL;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = lock_session(&t, in->session_id, err);
    if (rc == MG_OK)
        rc = mg_txn_query(&t, &SQL_BINDING, &in->session_id, 1, &bound, err);
    if (rc < 0)
        return rc;
    *ret_bound = mg_res_rows(bound) > 0;
    if (*ret_bound)
        return MG_OK;
    rc = mg_txn_query(&t, &SQL_INTENT_INSERT,
                      (const struct mg_sv[]){in->session_id, in->provider, in->label, in->spec, in->spec_hash}, 5, &r,
                      err);
    if (rc == MG_OK)
        rc = mg_txn_commit(&t, err);
    if (rc < 0)
        return rc;
    in->provider = mg_arena_sv(a, mg_res_sv(r, 0, 0));
    in->label = mg_arena_sv(a, mg_res_sv(r, 0, 1));
    in->spec = mg_arena_sv(a, mg_res_sv(r, 0, 2));
    in->spec_hash = mg_arena_sv(a, mg_res_sv(r, 0, 3));
    return MG_OK;
}

static const struct mg_stmt SQL_INTENT_FAILED = {
    "intent_failed",
    "UPDATE sandbox_intents SET last_error = $2 WHERE session_id = $1",
};

mg_rc mg_intent_failed(struct mg_pg *pg, struct mg_sv session, struct mg_sv error, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_INTENT_FAILED, (const struct mg_sv[]){session, error}, 2, NULL, err);
}

static const struct mg_stmt SQL_INTENT_DELETE = {
    "intent_delete",
    "DELETE FROM sandbox_intents WHERE session_id = $1",
};

mg_rc mg_intent_delete(struct mg_pg *pg, struct mg_sv session, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_INTENT_DELETE, &session, 1, NULL, err);
}

/* Several nodes scan at a time: each takes other rows. $1 is the batch, $2 the grace. */
static const struct mg_stmt SQL_INTENT_CLAIM = {
    "intent_claim",
    "WITH due AS (SELECT session_id FROM sandbox_intents"
    "   WHERE coalesce(last_try, created_at) <= now() - make_interval(secs => $2)"
    "   ORDER BY coalesce(last_try, created_at) LIMIT $1 FOR UPDATE SKIP LOCKED),"
    " tried AS (UPDATE sandbox_intents i SET last_try = now(), tries = tries + 1 FROM due WHERE i.session_id = "
    "due.session_id"
    "   RETURNING i.*)"
    " SELECT i.session_id, i.provider, i.label, i.spec, i.spec_hash, s.deleting_at IS NOT NULL, false"
    " FROM tried i JOIN session_state s USING (session_id)",
};

mg_rc mg_intent_claim(struct mg_pg *pg, struct mg_arena *a, int grace_s, int max, struct mg_intent **ret, int *ret_n,
                      struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc =
        mg_pg_exec(pg, &SQL_INTENT_CLAIM, (const struct mg_sv[]){mg_p_int(a, max), mg_p_int(a, grace_s)}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, (size_t)*ret_n * sizeof(**ret) + 1);
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = intent_from(a, r, i);
    return MG_OK;
}

static const struct mg_stmt SQL_BIND = {
    "sandbox_bind",
    "INSERT INTO sandboxes (session_id, provider, external_id, label, spec_hash, generation) VALUES ($1, $2, $3, $4, "
    "$5, $6)"
    " ON CONFLICT (session_id) DO NOTHING",
};

mg_rc mg_binding_insert(struct mg_pg *pg, struct mg_arena *a, struct mg_sv session, struct mg_binding *b,
                        struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = lock_session(&t, session, err);
    if (rc == MG_OK)
        rc = mg_txn_queue(
            &t, &SQL_BIND,
            (const struct mg_sv[]){session, b->provider, b->external_id, b->label, b->spec_hash, b->generation}, 6, -1,
            err);
    if (rc == MG_OK)
        rc = mg_txn_queue(&t, &SQL_INTENT_DELETE, &session, 1, -1, err);
    if (rc == MG_OK)
        rc = mg_txn_query(&t, &SQL_BINDING, &session, 1, &r, err);
    if (rc == MG_OK)
        rc = mg_txn_commit(&t, err);
    if (rc == MG_OK)
        binding_from(a, r, b);
    return rc;
}

static const struct mg_stmt SQL_ATTACH_LOCK = {
    "attach_lock",
    "SELECT pg_try_advisory_lock(hashtextextended('mango-attach ' || $1, 0))",
};
static const struct mg_stmt SQL_ATTACH_UNLOCK = {
    "attach_unlock",
    "SELECT pg_advisory_unlock(hashtextextended('mango-attach ' || $1, 0))",
};

mg_rc mg_attach_lock(struct mg_pg *pg, struct mg_sv session, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_ATTACH_LOCK, &session, 1, &r, err);
    if (rc < 0 || mg_res_bool(r, 0, 0))
        return rc;
    return mg_err_set(err, MG_EUNAVAIL, "another server attaches to the session's sandbox at this moment");
}

void mg_attach_unlock(struct mg_pg *pg, struct mg_sv session)
{
    struct mg_err err = {0};
    (void)!mg_pg_exec(pg, &SQL_ATTACH_UNLOCK, &session, 1, NULL, &err); /* lost with its connection otherwise */
}

static const struct mg_stmt SQL_ADVANCE = {
    "sandbox_advance",
    "UPDATE sandboxes SET generation = $3 WHERE session_id = $1 AND generation = $2 RETURNING 1",
};

mg_rc mg_binding_advance(struct mg_pg *pg, struct mg_sv session, struct mg_sv from, struct mg_sv to, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_ADVANCE, (const struct mg_sv[]){session, from, to}, 3, &r, err);
    if (rc < 0)
        return rc;
    return mg_res_rows(r) == 1 ? MG_OK : mg_err_set(err, MG_EFENCED, "another node attaches to the sandbox");
}

static const struct mg_stmt SQL_LOST = {
    "sandbox_lost",
    "UPDATE sandboxes SET lost_at = coalesce(lost_at, now()) WHERE session_id = $1 AND external_id = $2",
};

mg_rc mg_binding_lost(struct mg_pg *pg, struct mg_sv session, struct mg_sv external_id, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_LOST, (const struct mg_sv[]){session, external_id}, 2, NULL, err);
}

static const struct mg_stmt SQL_UNBIND = {
    "sandbox_unbind",
    "DELETE FROM sandboxes WHERE session_id = $1 AND external_id = $2",
};

mg_rc mg_binding_delete(struct mg_pg *pg, struct mg_sv session, struct mg_sv external_id, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_UNBIND, (const struct mg_sv[]){session, external_id}, 2, NULL, err);
}
