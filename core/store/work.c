/* Items of the work queue: rows, lists, what queues and what ends them. Claims are in work-claim.c. */
#include "store/work.h"

#include <stdio.h>

#include "base/mem.h"
#include "domain/check.h"
#include "store/work-row.h"

static const char *const state_names[] = {"queued", "starting", "active", "stopping", "stopped"};

const char *mg_work_state_name(enum mg_work_state s)
{
    return state_names[s];
}

struct mg_work_row mg_work_from_row(const struct mg_res *r, int i)
{
    return (struct mg_work_row){
        .id = mg_res_sv(r, i, 0),
        .workspace = mg_res_sv(r, i, 1),
        .environment = mg_res_sv(r, i, 2),
        .session = mg_res_sv(r, i, 3),
        .metadata = mg_res_sv(r, i, 4),
        .state = (enum mg_work_state)mg_sv_index(mg_res_sv(r, i, 5), state_names, 5),
        .polled = mg_res_bool(r, i, 6),
        .lapsed = mg_res_bool(r, i, 7),
        .reclaimed = mg_res_bool(r, i, 8),
        .ttl_s = mg_res_int(r, i, 9),
        .waiting_us = mg_res_time(r, i, 10),
        .created_us = mg_res_time(r, i, 11),
        .acknowledged_us = mg_res_time(r, i, 12),
        .started_us = mg_res_time(r, i, 13),
        .heartbeat_us = mg_res_time(r, i, 14),
        .heartbeat_before_us = mg_res_time(r, i, 15),
        .stop_requested_us = mg_res_time(r, i, 16),
        .stopped_us = mg_res_time(r, i, 17),
        .replay = mg_res_bool(r, i, 18),
    };
}

struct mg_work_row mg_work_kept(struct mg_arena *a, const struct mg_res *r, int i)
{
    struct mg_work_row w = mg_work_from_row(r, i);
    w.id = mg_arena_sv(a, w.id);
    w.workspace = mg_arena_sv(a, w.workspace);
    w.environment = mg_arena_sv(a, w.environment);
    w.session = mg_arena_sv(a, w.session);
    w.metadata = mg_arena_sv(a, w.metadata);
    return w;
}

mg_rc mg_work_missing(struct mg_sv id, struct mg_err *err)
{
    return mg_err_set(err, MG_ENOTFOUND, "work '%.*s' does not exist in this environment", MG_SV_ARG(mg_shown_id(id)));
}

/* ---- queueing ---- */

static const struct mg_stmt SQL_ENQUEUE = {
    "work_enqueue",
    "INSERT INTO work (id, workspace_id, environment_id, session_id) SELECT $1, workspace_id, environment_id, id FROM"
    " sessions WHERE id = $2 ON CONFLICT (session_id) WHERE " MG_WORK_IS_LIVE " DO NOTHING"
    " RETURNING 1",
};

mg_rc mg_work_enqueue(struct mg_txn *t, const struct mg_id *session, struct mg_err *err)
{
    const struct mg_id id = mg_id_new("work");
    return mg_txn_queue(t, &SQL_ENQUEUE, (const struct mg_sv[]){mg_id_sv(&id), mg_id_sv(session)}, 2, -1, err);
}

/* A session that is over gets no successor, whatever was asked. A call that waits for a confirmation is the client's business. */
#define INSERT_SUCCESSOR(id, metadata, from, always)                                                      \
    "INSERT INTO work (id, workspace_id, environment_id, session_id, metadata)"                           \
    " SELECT " id ", s.workspace_id, s.environment_id, s.id, " metadata " FROM " from                     \
    " JOIN session_state st ON st.session_id = s.id"                                                      \
    " WHERE s.archived_at IS NULL AND st.deleting_at IS NULL AND st.status <> 'terminated'"               \
    " AND (" always " OR st.queued_inputs > 0 OR st.turn_step IN ('model', 'tools', 'backoff') OR EXISTS" \
    " (SELECT 1 FROM tool_calls c WHERE c.session_id = s.id AND c.waits_for = 'result'))"                 \
    " ON CONFLICT (session_id) WHERE " MG_WORK_IS_LIVE " DO NOTHING RETURNING 1"

static const struct mg_stmt SQL_SUCCEED = {
    "work_succeed", INSERT_SUCCESSOR("$1", "$3", "(SELECT * FROM sessions WHERE id = $2) s", "$4::bool")};

mg_rc mg_work_succeed(struct mg_txn *t, const struct mg_id *session, struct mg_sv metadata, bool always, bool *ret,
                      struct mg_err *err)
{
    const struct mg_id id = mg_id_new("work");
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_id_sv(&id), mg_id_sv(session), metadata, mg_p_bool(always)};
    mg_rc rc = mg_txn_query(t, &SQL_SUCCEED, p, 4, &r, err);
    *ret = rc >= 0 && mg_res_rows(r) > 0;
    return rc;
}

static const struct mg_stmt SQL_END_SESSION = {
    "work_end_session",
    "UPDATE work SET state = 'stopped', stopped_at = clock_timestamp(), stop_cause = 'session'"
    " WHERE session_id = $1 AND stopped_at IS NULL",
};

mg_rc mg_work_end_session(struct mg_txn *t, const struct mg_id *session, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_END_SESSION, (const struct mg_sv[]){mg_id_sv(session)}, 1, -1, err);
}

/* ---- ends ---- */

static const struct mg_stmt SQL_SESSION = {"work_session",
                                           "SELECT session_id FROM work WHERE id = $1 AND environment_id = $2"};

mg_rc mg_work_session(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                      struct mg_id *ret, struct mg_err *err)
{
    (void)a;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_SESSION, (const struct mg_sv[]){id, environment}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0 || !mg_id_from(mg_res_sv(r, 0, 0), ret))
        return mg_work_missing(id, err);
    return MG_OK;
}

static const struct mg_stmt SQL_LOCK = {"work_lock", "SELECT " MG_WORK_COLUMNS
                                                     " FROM work WHERE id = $1 AND environment_id = $2 FOR UPDATE"};

mg_rc mg_work_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv environment, struct mg_sv id,
                   struct mg_work_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){id, environment}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_work_missing(id, err);
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_STOPPED = {
    "work_stopped",
    "UPDATE work SET state = 'stopped', stopped_at = clock_timestamp(), stop_cause = $2,"
    " stop_requested_at = coalesce(stop_requested_at, CASE WHEN $2 = 'stop' THEN clock_timestamp() END)"
    " WHERE id = $1 AND state <> 'stopped'",
};

mg_rc mg_work_set_stopped(struct mg_txn *t, struct mg_sv id, const char *cause, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_STOPPED, (const struct mg_sv[]){id, mg_sv_of(cause)}, 2, 1, err);
}

/* An item's session never changes, so that its lock can come first without a look at the item. */
static const struct mg_stmt SQL_STOP_LOCK = {
    "work_stop_lock", "SELECT 1 FROM session_state WHERE session_id ="
                      " (SELECT session_id FROM work WHERE id = $1 AND environment_id = $2) FOR UPDATE"};
/* A statement of its own behind the lock: its snapshot has what was admitted before. statement_timestamp() is one time for the whole row. */
#define ASKS "NOT $3::bool AND state = 'active' AND lease_until > statement_timestamp()"
static const struct mg_stmt SQL_STOP = {
    "work_stop",
    "WITH ended AS (UPDATE work SET state = CASE WHEN " ASKS " THEN 'stopping' ELSE 'stopped' END,"
    " stop_requested_at = coalesce(stop_requested_at, statement_timestamp()), lease_until = CASE WHEN " ASKS
    " THEN statement_timestamp() + ttl_s * interval '1 second' ELSE lease_until END,"
    " stopped_at = CASE WHEN " ASKS " THEN NULL ELSE statement_timestamp() END,"
    " stop_cause = CASE WHEN " ASKS " THEN NULL ELSE 'stop' END"
    " WHERE id = $1 AND environment_id = $2"
    " AND (" MG_WORK_IS_LIVE " OR stopped_at IS NULL AND $3::bool)"
    " RETURNING " MG_WORK_COLUMNS "), successor AS (" INSERT_SUCCESSOR(
        "$4", "ended.metadata", "ended JOIN sessions s ON s.id = ended.session_id", "false") ") SELECT * FROM ended",
};

mg_rc mg_work_stop(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id, bool force,
                   bool *ret_done, struct mg_work_row *ret, struct mg_err *err)
{
    const struct mg_id next = mg_id_new("work");
    mg_auto(res) struct mg_res *r = NULL;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    const struct mg_sv p[] = {id, environment, mg_p_bool(force), mg_id_sv(&next)};
    *ret_done = false;
    mg_rc rc = mg_txn_queue(&t, &SQL_STOP_LOCK, p, 2, -1, err);
    if (rc >= 0)
        rc = mg_txn_queue(&t, &SQL_STOP, p, 4, -1, err);
    if (rc >= 0)
        rc = mg_txn_commit_last(&t, &r, err);
    if (rc < 0)
        return rc;
    *ret_done = mg_res_rows(r) > 0;
    if (!*ret_done)
        return mg_work_look(a, pg, environment, id, ret, err);
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

/* ---- leases that are over ---- */

static const struct mg_stmt SQL_FIND_LAPSED = {
    "work_find_lapsed",
    "SELECT id, session_id, environment_id FROM work WHERE " MG_WORK_IS_LEASED(
        "") " AND lease_until <= clock_timestamp() ORDER BY lease_until LIMIT $1::int",
};

mg_rc mg_work_find_lapsed(struct mg_arena *a, struct mg_pg *pg, int limit, struct mg_work_lapsed **ret, int *ret_n,
                          struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p = mg_p_int(a, limit);
    mg_rc rc = mg_pg_exec(pg, &SQL_FIND_LAPSED, &p, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++) {
        (void)mg_id_from(mg_res_sv(r, i, 0), &(*ret)[i].id);
        (void)mg_id_from(mg_res_sv(r, i, 1), &(*ret)[i].session);
        (void)mg_id_from(mg_res_sv(r, i, 2), &(*ret)[i].environment);
    }
    return MG_OK;
}

/* A session that another transaction holds is looked at again a second later. */
static const struct mg_stmt SQL_LOCK_SESSION = {
    "work_lock_session", "SELECT 1 FROM session_state WHERE session_id = $1 FOR UPDATE SKIP LOCKED"};

mg_rc mg_work_expire(struct mg_arena *a, struct mg_pg *pg, const struct mg_work_lapsed *l, bool *ret_ended,
                     bool *ret_queued, struct mg_err *err)
{
    struct mg_work_row w = {0};
    mg_auto(res) struct mg_res *held = NULL;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    *ret_ended = *ret_queued = false;
    mg_rc rc = mg_txn_query(&t, &SQL_LOCK_SESSION, (const struct mg_sv[]){mg_id_sv(&l->session)}, 1, &held, err);
    if (rc < 0 || mg_res_rows(held) == 0)
        return rc;
    rc = mg_work_lock(a, &t, mg_id_sv(&l->environment), mg_id_sv(&l->id), &w, err);
    if (rc < 0 || !w.lapsed)
        return rc == MG_ENOTFOUND ? MG_OK : rc;
    bool lost = w.state != MG_WORK_STOPPING;
    rc = mg_work_set_stopped(&t, w.id, lost ? "expired" : "stop", err);
    if (rc >= 0)
        rc = mg_work_succeed(&t, &l->session, w.metadata, lost, ret_queued, err);
    if (rc >= 0)
        rc = mg_txn_commit(&t, err);
    *ret_ended = rc >= 0;
    return rc;
}

/* ---- reading ---- */

static const struct mg_stmt SQL_LOOK = {"work_look",
                                        "SELECT " MG_WORK_COLUMNS " FROM work WHERE id = $1 AND environment_id = $2"};

mg_rc mg_work_look(struct mg_arena *a, struct mg_pg *pg, struct mg_sv environment, struct mg_sv id,
                   struct mg_work_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_LOOK, (const struct mg_sv[]){id, environment}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_work_missing(id, err);
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {
    "work_get",
    "SELECT " MG_WORK_COLUMNS " FROM work WHERE id = $1 AND environment_id = $2 AND workspace_id = $3",
};

mg_rc mg_work_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv environment,
                  struct mg_sv id, struct mg_work_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){id, environment, workspace}, 3, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_work_missing(id, err);
    *ret = mg_work_kept(a, r, 0);
    return MG_OK;
}

#define LIST(op, way)                                                                                               \
    "SELECT " MG_WORK_COLUMNS " FROM work WHERE environment_id = $1 AND workspace_id = $2 AND (created_at, id) " op \
    " ($3::timestamptz, $4) ORDER BY created_at " way ", id " way " LIMIT $5::int"

static const struct mg_list_ways LISTS = {{"work_list_down", LIST("<", "DESC")}, {"work_list_up", LIST(">", "ASC")}};

mg_rc mg_work_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_sv environment,
                   struct mg_res **ret_res, struct mg_work_row **ret, struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {environment, q->workspace, mg_list_pos(a, q), mg_list_pos_id(q),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 5, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_work_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = mg_work_from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_METADATA = {"work_metadata", "UPDATE work SET metadata = $2 WHERE id = $1"};

mg_rc mg_work_set_metadata(struct mg_txn *t, struct mg_sv id, struct mg_sv metadata, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_METADATA, (const struct mg_sv[]){id, metadata}, 2, 1, err);
}

static const struct mg_stmt SQL_STATS = {
    "work_stats",
    "SELECT count(*) FILTER (WHERE state = 'queued' AND polled_at IS NULL),"
    " count(*) FILTER (WHERE state = 'queued' AND polled_at IS NOT NULL),"
    " count(*) FILTER (WHERE state IN ('starting', 'active')), count(*) FILTER (WHERE state = 'stopping'),"
    " mg_us(min(waiting_since) FILTER (WHERE state = 'queued' AND polled_at IS NULL)),"
    " mg_us(clock_timestamp()) - mg_us(min(waiting_since) FILTER (WHERE state = 'queued' AND polled_at IS NULL)),"
    " (SELECT count(DISTINCT worker_id) FROM work_pollers WHERE ($1 = '' OR environment_id = $1)"
    " AND seen_at > clock_timestamp() - interval '30 seconds')"
    " FROM work WHERE stopped_at IS NULL AND ($1 = '' OR environment_id = $1)",
};

mg_rc mg_work_stats(struct mg_pg *pg, struct mg_sv environment, struct mg_work_stats *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p = environment.len ? environment : MG_SV("");
    mg_rc rc = mg_pg_exec(pg, &SQL_STATS, &p, 1, &r, err);
    if (rc < 0)
        return rc;
    *ret = (struct mg_work_stats){
        .depth = mg_res_int(r, 0, 0),
        .pending = mg_res_int(r, 0, 1),
        .leased = mg_res_int(r, 0, 2),
        .stopping = mg_res_int(r, 0, 3),
        .oldest_us = mg_res_time(r, 0, 4),
        .oldest_age_us = mg_res_int(r, 0, 5),
        .workers = mg_res_int(r, 0, 6),
    };
    return MG_OK;
}

static const struct mg_stmt SQL_ENDED = {
    "work_ended",
    "SELECT id FROM work WHERE stopped_at > clock_timestamp() - $1::int * interval '1 second'",
};

mg_rc mg_work_ended(struct mg_pg *pg, int seconds, void (*fn)(void *ctx, struct mg_sv id), void *ctx,
                    struct mg_err *err)
{
    char text[16];
    mg_auto(res) struct mg_res *r = NULL;
    (void)snprintf(text, sizeof(text), "%d", seconds);
    mg_rc rc = mg_pg_exec(pg, &SQL_ENDED, (const struct mg_sv[]){mg_sv_of(text)}, 1, &r, err);
    for (int i = 0; rc >= 0 && i < mg_res_rows(r); i++)
        fn(ctx, mg_res_sv(r, i, 0));
    return rc;
}

static const struct mg_stmt SQL_TIDY = {
    "work_tidy",
    "DELETE FROM work WHERE stopped_at < now() - interval '30 days'",
};
static const struct mg_stmt SQL_TIDY_POLLERS = {
    "work_tidy_pollers", "DELETE FROM work_pollers WHERE seen_at < now() - interval '10 minutes'"};

mg_rc mg_work_tidy(struct mg_pg *pg, struct mg_err *err)
{
    mg_rc rc = mg_pg_exec(pg, &SQL_TIDY, NULL, 0, NULL, err);
    return rc < 0 ? rc : mg_pg_exec(pg, &SQL_TIDY_POLLERS, NULL, 0, NULL, err);
}
