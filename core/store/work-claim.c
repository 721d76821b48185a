/* Claims of the work queue: poll, ack, heartbeat, and the fence of what a claim's token writes. */
#include "base/mem.h"
#include "domain/check.h"
#include "store/work-row.h"

/* An environment key must be good in the transaction of the claim itself: the shared lock waits for a revocation that is under way, and the
 * revocation for the claim. It depends on the item's row, so that it is looked at only when there is something to claim. */
#define KEY_IS_GOOD(param)                                                                                    \
    "(" param " = '' OR EXISTS (SELECT 1 FROM api_keys k WHERE k.id = " param " AND k.revoked_at IS NULL AND" \
    " k.environment_id = w.environment_id FOR SHARE))"
/* A scalar, so that it is asked for the items that are looked at only, and no list of all claims is made; a boolean, which the planner takes for likely. Where
 * it took it for rare, no plan was kept and each poll planned anew: 0.2 ms. */
#define HOLDS_NO_OTHER                                                                            \
    " (SELECT count(*) = 0 FROM work p WHERE p.session_id = q.session_id AND " MG_WORK_IS_LEASED( \
        "p.") " AND "                                                                             \
              "p.stop_requested_at IS NOT NULL)"

static mg_rc revoked(struct mg_err *err)
{
    return mg_err_set(err, MG_EAUTH, "invalid API key");
}

/* ---- poll ---- */

/* A bound that the index of the queue is entered at. */
#define WAITS_FROM(param) " AND q.waiting_since >= to_timestamp(0) + " param "::bigint * interval '1 microsecond'"

static const struct mg_stmt SQL_OLDEST = {
    "work_oldest",
    "SELECT mg_us(least(min(q.waiting_since), clock_timestamp() - $2::bigint * interval '1 millisecond'))"
    " FROM work q WHERE q.environment_id = $1 AND " MG_WORK_IS_QUEUED("q."),
};

mg_rc mg_work_oldest(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, int64_t late_ms, int64_t *ret_us,
                     struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_OLDEST, (const struct mg_sv[]){environment, mg_p_int(a, late_ms)}, 2, &r, err);
    if (rc >= 0)
        *ret_us = mg_res_int(r, 0, 0);
    return rc;
}

static const struct mg_stmt SQL_CLAIM = {
    "work_claim",
    "UPDATE work w SET polled_at = clock_timestamp(), worker_id = nullif($3, ''), token_sha256 = $4 WHERE w.id ="
    " (SELECT q.id FROM work q WHERE q.environment_id = $1 AND q.workspace_id = $2 AND " MG_WORK_IS_QUEUED(
        "q.") " AND q.polled_at IS NULL" WAITS_FROM("$6") " AND" HOLDS_NO_OTHER " ORDER BY q.waiting_since, q.id LIMIT "
                                                          "1 FOR UPDATE SKIP LOCKED)"
                                                          " AND " KEY_IS_GOOD("$5") " RETURNING " MG_WORK_COLUMNS,
};

mg_rc mg_work_claim_fresh(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_claim *c, struct mg_work_row *ret,
                          struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {c->environment,
                              c->workspace,
                              c->worker_id.len ? c->worker_id : MG_SV(""),
                              c->token_sha256,
                              c->key.len ? c->key : MG_SV(""),
                              mg_p_int(a, c->from_us)};
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIM, p, 6, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return MG_ENOTFOUND;
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

/* One look for all that an empty poll has to know. */
static const struct mg_stmt SQL_STALE = {
    "work_stale",
    "SELECT e.config_type, (SELECT q.id FROM work q WHERE q.environment_id = e.id AND " MG_WORK_IS_QUEUED(
        "q.") " AND q.polled_at <= clock_timestamp() - $3::bigint * interval '1 millisecond'" WAITS_FROM("$5") " AN"
                                                                                                               "D" HOLDS_NO_OTHER
                                                                                                               " ORDER "
                                                                                                               "BY "
                                                                                                               "q."
                                                                                                               "waiting"
                                                                                                               "_since,"
                                                                                                               " q.id "
                                                                                                               "LIMIT "
                                                                                                               "1), $4 "
                                                                                                               "= '' "
                                                                                                               "OR "
                                                                                                               "EXISTS"
                                                                                                               " ("
                                                                                                               "SELECT "
                                                                                                               "1 FROM "
                                                                                                               "api_"
                                                                                                               "keys k "
                                                                                                               "WHERE "
                                                                                                               "k.id = "
                                                                                                               "$4 AND "
                                                                                                               "k."
                                                                                                               "revoked"
                                                                                                               "_at IS "
                                                                                                               "NULL),"
                                                                                                               " NOT "
                                                                                                               "EXISTS "
                                                                                                               "(SELECT"
                                                                                                               " 1 "
                                                                                                               "FROM "
                                                                                                               "work q "
                                                                                                               "WHERE "
                                                                                                               "q."
                                                                                                               "environ"
                                                                                                               "ment_"
                                                                                                               "id = "
                                                                                                               "e.id "
                                                                                                               "AND"
                                                                                                               " " MG_WORK_IS_QUEUED(
                                                                                                                   "q.")
                                                                                                                   WAITS_FROM(
                                                                                                                       "$5") ")"
                                                                                                                             " FROM environments e WHERE e.id = $1 AND e.workspace_id = $2",
};
static const struct mg_stmt SQL_STALE_LOCK = {
    "work_stale_lock",
    "SELECT q.waiting_since::text, q.metadata, q.session_id FROM work q WHERE q.id = $1 AND " MG_WORK_IS_QUEUED(
        "q.") " AND q.polled_at <= clock_timestamp() - $2::bigint * interval '1 millisecond' FOR UPDATE SKIP LOCKED",
};
static const struct mg_stmt SQL_STALE_END = {
    "work_stale_end",
    "UPDATE work SET state = 'stopped', stopped_at = clock_timestamp(), stop_cause = 'reclaimed' WHERE id = $1",
};
static const struct mg_stmt SQL_STALE_CLAIM = {
    "work_stale_claim",
    "INSERT INTO work AS w (id, workspace_id, environment_id, session_id, metadata, waiting_since, polled_at, "
    "worker_id,"
    " token_sha256) VALUES ($1, $2, $3, $4, $5, $6::timestamptz, clock_timestamp(), nullif($7, ''), $8)"
    " RETURNING " MG_WORK_COLUMNS,
};
static const struct mg_stmt SQL_KEY = {"work_key_lock",
                                       "SELECT 1 FROM api_keys WHERE id = $1 AND revoked_at IS NULL FOR SHARE"};

static mg_rc take_over(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_claim *c, struct mg_sv old,
                       struct mg_work_row *ret, struct mg_err *err)
{
    const struct mg_id id = mg_id_new("work");
    mg_auto(res) struct mg_res *held = NULL, *r = NULL, *key = NULL;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    const struct mg_sv lock[] = {old, mg_p_int(a, c->reclaim_ms)};
    mg_rc rc = mg_txn_query(&t, &SQL_STALE_LOCK, lock, 2, &held, err);
    if (rc < 0 || mg_res_rows(held) == 0)
        return rc; /* another poller was first, or it was acknowledged after all */
    if (c->key.len) {
        rc = mg_txn_query(&t, &SQL_KEY, &c->key, 1, &key, err);
        if (rc < 0 || mg_res_rows(key) == 0)
            return rc < 0 ? rc : revoked(err);
    }
    rc = mg_txn_queue(&t, &SQL_STALE_END, &old, 1, 1, err);
    const struct mg_sv p[] = {
        mg_id_sv(&id),
        c->workspace,
        c->environment,
        mg_res_sv(held, 0, 2),
        mg_res_sv(held, 0, 1),
        mg_res_sv(held, 0, 0),
        c->worker_id.len ? c->worker_id : MG_SV(""),
        c->token_sha256,
    };
    if (rc >= 0)
        rc = mg_txn_query(&t, &SQL_STALE_CLAIM, p, 8, &r, err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    if (rc >= 0)
        *ret = mg_work_kept(a, r, 0);
    return rc;
}

mg_rc mg_work_claim_stale(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_claim *c, struct mg_work_row *ret,
                          struct mg_id *ret_old, bool *ret_empty, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {c->environment, c->workspace, mg_p_int(a, c->reclaim_ms), c->key.len ? c->key : MG_SV(""),
                              mg_p_int(a, c->from_us)};
    *ret = (struct mg_work_row){.id = MG_SV("")};
    *ret_empty = false;
    mg_rc rc = mg_pg_exec(pg, &SQL_STALE, p, 5, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_code(err, MG_ENOTFOUND, "environment_not_found", "environment '%.*s' does not exist",
                           MG_SV_ARG(mg_shown_id(c->environment)));
    if (!mg_sv_eqz(mg_res_sv(r, 0, 0), "self_hosted"))
        return mg_err_set(
            err, MG_EINVAL,
            "environment '%.*s' has config.type cloud: the server runs its tools, and it has no work; use "
            "an environment of type self_hosted",
            MG_SV_ARG(mg_shown_id(c->environment)));
    if (!mg_res_bool(r, 0, 2))
        return revoked(err);
    *ret_empty = mg_res_bool(r, 0, 3);
    struct mg_sv old = mg_res_sv(r, 0, 1);
    if (!old.ptr || !mg_id_from(old, ret_old))
        return MG_OK;
    return take_over(a, pg, c, mg_id_sv(ret_old), ret, err);
}

static const struct mg_stmt SQL_POLLER = {
    "work_poller",
    "INSERT INTO work_pollers (environment_id, worker_id) VALUES ($1, $2)"
    " ON CONFLICT (environment_id, worker_id) DO UPDATE SET seen_at = clock_timestamp()",
};

mg_rc mg_work_poller_seen(struct mg_pg *pg, struct mg_sv environment, struct mg_sv worker_id, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_POLLER, (const struct mg_sv[]){environment, worker_id}, 2, NULL, err);
}

/* ---- ack ---- */

static const struct mg_stmt SQL_ACK = {
    "work_ack",
    "UPDATE work w SET state = 'starting', acknowledged_at = clock_timestamp(), ttl_s = $4::int,"
    " lease_until = clock_timestamp() + $4::int * interval '1 second'"
    " WHERE w.id = $1 AND w.environment_id = $2 AND w.state = 'queued' AND w.polled_at IS NOT NULL"
    " AND " KEY_IS_GOOD("$3") " RETURNING " MG_WORK_COLUMNS,
};
static const struct mg_stmt SQL_ACK_LOOK = {
    "work_ack_look",
    "SELECT " MG_WORK_COLUMNS ", $3 = '' OR EXISTS (SELECT 1 FROM api_keys k WHERE k.id = $3 AND k.revoked_at IS NULL)"
    " FROM work WHERE id = $1 AND environment_id = $2",
};
enum { ACK_LOOK_KEY = 19 /* the column behind those of an item */ };

mg_rc mg_work_ack(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id, struct mg_sv key,
                  int64_t ttl_s, bool *ret_done, struct mg_work_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL, *look = NULL;
    const struct mg_sv p[] = {id, environment, key.len ? key : MG_SV(""), mg_p_int(a, ttl_s)};
    mg_rc rc = mg_pg_exec(pg, &SQL_ACK, p, 4, &r, err);
    *ret_done = rc >= 0 && mg_res_rows(r) > 0;
    if (rc < 0)
        return rc;
    if (*ret_done) {
        *ret = mg_work_kept(a, r, 0);
        return MG_OK;
    }
    rc = mg_pg_exec(pg, &SQL_ACK_LOOK, p, 3, &look, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(look) == 0)
        return mg_work_missing(id, err);
    if (!mg_res_bool(look, 0, ACK_LOOK_KEY))
        return revoked(err);
    *ret = mg_work_kept(a, look, 0);
    return MG_OK;
}

/* ---- heartbeat ---- */

/* Never the same time twice: it is the token of the next heartbeat. */
static const struct mg_stmt SQL_BEAT = {
    "work_beat",
    "UPDATE work SET state = 'active', started_at = coalesce(started_at, clock_timestamp()),"
    " heartbeat_before = heartbeat_at,"
    " heartbeat_at = greatest(clock_timestamp(), heartbeat_at + interval '1 microsecond'), ttl_s = $5::int,"
    " lease_until = clock_timestamp() + $5::int * interval '1 second'"
    " WHERE id = $1 AND environment_id = $2 AND state IN ('starting', 'active') AND lease_until > clock_timestamp()"
    " AND CASE $3 WHEN 'any' THEN true WHEN 'none' THEN heartbeat_at IS NULL ELSE mg_us(heartbeat_at) = $4::bigint END"
    " RETURNING " MG_WORK_COLUMNS,
};
mg_rc mg_work_beat(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                   enum mg_work_expect expect, int64_t expected_us, int64_t ttl_s, bool *ret_done,
                   struct mg_work_row *ret, struct mg_err *err)
{
    static const char *const words[] = {"any", "none", "time"};
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {id, environment, mg_sv_of(words[expect]), mg_p_int(a, expected_us), mg_p_int(a, ttl_s)};
    mg_rc rc = mg_pg_exec(pg, &SQL_BEAT, p, 5, &r, err);
    *ret_done = rc >= 0 && mg_res_rows(r) > 0;
    if (rc < 0)
        return rc;
    if (*ret_done) {
        *ret = mg_work_kept(a, r, 0);
        return MG_OK;
    }
    return mg_work_look(a, pg, environment, id, ret, err);
}

/* ---- tokens ---- */

static const struct mg_stmt SQL_BY_TOKEN = {"work_by_token",
                                            "SELECT " MG_WORK_COLUMNS " FROM work WHERE id = $1 AND token_sha256 = $2"};

mg_rc mg_work_by_token(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_sv token_sha256,
                       struct mg_work_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_BY_TOKEN, (const struct mg_sv[]){id, token_sha256}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return MG_ENOTFOUND;
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

#define HOLDS_CLAIM MG_WORK_IS_LEASED("") " AND lease_until > clock_timestamp()"

static const struct mg_stmt SQL_FENCE = {
    "work_fence", "SELECT 1 FROM work WHERE id = $1 AND session_id = $2 AND " HOLDS_CLAIM " FOR UPDATE"};
static const struct mg_stmt SQL_FENCE_ANY = {
    "work_fence_any",
    "SELECT 1 FROM work WHERE environment_id = $1 AND session_id = $2 AND " HOLDS_CLAIM " FOR UPDATE"};
static const struct mg_stmt SQL_LIVE_CLAIM = {
    "work_live_claim", "SELECT 1 FROM work WHERE environment_id = $1 AND session_id = $2 AND " HOLDS_CLAIM};

static mg_rc fence(struct mg_txn *t, const struct mg_stmt *st, struct mg_sv first, const struct mg_id *session,
                   const char *what, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, st, (const struct mg_sv[]){first, mg_id_sv(session)}, 2, &r, err);
    if (rc < 0 || mg_res_rows(r) > 0)
        return rc;
    return mg_err_code(err, MG_EPRECOND, "work_lease_lost", "%s; stop the tools of this session and send nothing more",
                       what);
}

mg_rc mg_work_fence(struct mg_txn *t, struct mg_sv id, const struct mg_id *session, struct mg_err *err)
{
    return fence(t, &SQL_FENCE, id, session, "the lease of this work item is over", err);
}

mg_rc mg_work_fence_any(struct mg_txn *t, struct mg_sv environment, const struct mg_id *session, struct mg_err *err)
{
    return fence(t, &SQL_FENCE_ANY, environment, session, "no worker of this environment holds the session", err);
}

mg_rc mg_work_live_claim(struct mg_pg *pg, struct mg_sv environment, struct mg_sv session, bool *ret,
                         struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_LIVE_CLAIM, (const struct mg_sv[]){environment, session}, 2, &r, err);
    *ret = rc >= 0 && mg_res_rows(r) > 0;
    return rc;
}
