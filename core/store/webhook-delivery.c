/* Rows of webhook_deliveries: who sends which, and what became of it. All times are the database's. */
#include "base/mem.h"
#include "store/webhook.h"

/* The oldest of its webhook and subject alone is due: whatever comes behind waits until that one is delivered or given up. */
static const struct mg_stmt SQL_CLAIM = {
    "delivery_claim",
    "WITH due AS (SELECT d.webhook_id, d.event_seq FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id AND"
    " w.disabled_at IS NULL WHERE d.state = 'pending' AND d.due_at <= clock_timestamp() AND (d.claim_until IS NULL OR"
    " d.claim_until < clock_timestamp()) AND NOT EXISTS (SELECT FROM webhook_deliveries b WHERE b.webhook_id = "
    "d.webhook_id AND b.subject = d.subject AND b.state = 'pending' AND b.event_seq < d.event_seq)"
    " ORDER BY d.due_at LIMIT $2::int FOR UPDATE OF d SKIP LOCKED)"
    " UPDATE webhook_deliveries d SET claim = $1, claim_until = clock_timestamp() + $3::int * interval '1 second'"
    " FROM due, webhooks w, webhook_events e WHERE d.webhook_id = due.webhook_id AND d.event_seq = due.event_seq AND"
    " w.id = d.webhook_id AND e.seq = d.event_seq RETURNING d.webhook_id, d.event_seq, w.url, w.key_id, w.secret, e.id,"
    " e.type, e.subject, e.workspace_id, e.session_thread_id, e.vault_id, mg_us(e.created_at), d.tries",
};

static struct mg_delivery from_row(const struct mg_res *r, int i)
{
    return (struct mg_delivery){
        .webhook = mg_res_sv(r, i, 0),
        .seq = mg_res_sv(r, i, 1),
        .url = mg_res_sv(r, i, 2),
        .key_id = mg_res_sv(r, i, 3),
        .sealed = mg_res_sv(r, i, 4),
        .event = {.id = mg_res_sv(r, i, 5),
                  .type = mg_res_sv(r, i, 6),
                  .subject = mg_res_sv(r, i, 7),
                  .workspace = mg_res_sv(r, i, 8),
                  .session_thread = mg_res_sv(r, i, 9),
                  .vault = mg_res_sv(r, i, 10),
                  .created_us = mg_res_time(r, i, 11)},
        .tries = mg_res_int(r, i, 12),
    };
}

mg_rc mg_deliveries_claim(struct mg_arena *a, struct mg_pg *pg, struct mg_sv claim, int limit, struct mg_res **ret_res,
                          struct mg_delivery **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {claim, mg_p_int(a, limit), mg_p_int(a, MG_WEBHOOK_CLAIM_S)};
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIM, p, 3, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    *ret = mg_arena_alloc(a, sizeof(**ret) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        (*ret)[i] = from_row(r, i);
    *ret_res = mg_steal(&r);
    return MG_OK;
}

static const struct mg_stmt SQL_DELIVERED = {
    "delivery_delivered",
    "UPDATE webhook_deliveries SET state = 'delivered', tries = tries + 1, done_at = now(), claim = NULL,"
    " claim_until = NULL, last_error = NULL WHERE webhook_id = $1 AND event_seq = $2::bigint AND claim = $3"
    " AND state = 'pending'",
};
static const struct mg_stmt SQL_FAILED = {
    "delivery_failed",
    "UPDATE webhook_deliveries SET tries = tries + 1, last_error = $4, claim = NULL, claim_until = NULL,"
    " due_at = clock_timestamp() + $5::bigint * interval '1 millisecond',"
    " state = CASE WHEN tries + 1 >= $6::int THEN 'failed' ELSE 'pending' END,"
    " done_at = CASE WHEN tries + 1 >= $6::int THEN now() END"
    " WHERE webhook_id = $1 AND event_seq = $2::bigint AND claim = $3 AND state = 'pending'",
};

mg_rc mg_delivery_done(struct mg_arena *a, struct mg_pg *pg, const struct mg_delivery_end *e, struct mg_err *err)
{
    const struct mg_sv p[] = {
        e->webhook, e->seq, e->claim, e->error, mg_p_int(a, e->retry_ms), mg_p_int(a, MG_WEBHOOK_TRIES)};
    return e->error.ptr ? mg_pg_exec(pg, &SQL_FAILED, p, 6, NULL, err)
                        : mg_pg_exec(pg, &SQL_DELIVERED, p, 3, NULL, err);
}

static const struct mg_stmt SQL_RELEASE = {
    "delivery_release",
    "UPDATE webhook_deliveries SET claim = NULL, claim_until = NULL WHERE claim = $1 AND state = 'pending'"};

mg_rc mg_deliveries_release(struct mg_pg *pg, struct mg_sv claim, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_RELEASE, &claim, 1, NULL, err);
}

static const struct mg_stmt SQL_PURGE = {
    "webhook_purge",
    "DELETE FROM webhook_events WHERE seq IN (SELECT seq FROM webhook_events WHERE created_at < now() - $1::int *"
    " interval '1 day' ORDER BY created_at LIMIT $2::int)",
};

mg_rc mg_webhook_purge(struct mg_arena *a, struct mg_pg *pg, int limit, struct mg_err *err)
{
    const struct mg_sv p[] = {mg_p_int(a, MG_WEBHOOK_KEPT_DAYS), mg_p_int(a, limit)};
    return mg_pg_exec(pg, &SQL_PURGE, p, 2, NULL, err);
}

static const struct mg_stmt SQL_WAITING = {
    "delivery_waiting",
    "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(e.created_at)), 0)::bigint"
    " FROM webhook_deliveries d JOIN webhook_events e ON e.seq = d.event_seq JOIN webhooks w ON w.id = d.webhook_id"
    " WHERE d.state = 'pending'"};

mg_rc mg_deliveries_waiting(struct mg_pg *pg, int64_t *ret_n, int64_t *ret_oldest_s, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_WAITING, NULL, 0, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_int(r, 0, 0);
    *ret_oldest_s = mg_res_int(r, 0, 1);
    return MG_OK;
}
