#include "store/deploy.h"

#include "base/mem.h"
#include "domain/check.h"
#include "store/row.h"

#define COLUMNS                                                                                                 \
    "id, workspace_id, name, description, agent_id, agent_version, environment_id, initial_events, resources, " \
    "vault_ids, metadata, budget, expression, timezone, paused_reason, upcoming, mg_us(next_run_at), "          \
    "mg_us(last_run_at), mg_us(created_at), mg_us(updated_at), mg_us(archived_at), key_id, secret"

static struct mg_deploy_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_deploy_row){
        .id = mg_res_sv(r, i, 0),
        .workspace = mg_res_sv(r, i, 1),
        .deploy =
            {
                .name = mg_res_sv(r, i, 2),
                .description = mg_res_sv(r, i, 3),
                .agent_id = mg_res_sv(r, i, 4),
                .agent_version = mg_res_int(r, i, 5),
                .environment_id = mg_res_sv(r, i, 6),
                .initial_events = mg_res_sv(r, i, 7),
                .resources = mg_res_sv(r, i, 8),
                .vault_ids = mg_res_sv(r, i, 9),
                .metadata = mg_res_sv(r, i, 10),
                .budget = mg_res_sv(r, i, 11),
                .expression = mg_res_sv(r, i, 12),
                .timezone = mg_res_sv(r, i, 13),
            },
        .paused_reason = mg_res_sv(r, i, 14),
        .upcoming = mg_res_sv(r, i, 15),
        .next_us = mg_res_time(r, i, 16),
        .last_us = mg_res_time(r, i, 17),
        .created_us = mg_res_time(r, i, 18),
        .updated_us = mg_res_time(r, i, 19),
        .archived_us = mg_res_time(r, i, 20),
        .key_id = mg_res_sv(r, i, 21),
        .sealed = mg_res_sv(r, i, 22),
    };
}

static void keep(struct mg_arena *a, struct mg_deploy_row *x)
{
    struct mg_deploy *d = &x->deploy;
    struct mg_sv *const texts[] = {
        &x->id,       &x->workspace,      &x->paused_reason, &x->upcoming,  &d->name,           &d->description,
        &d->agent_id, &d->environment_id, &d->resources,     &d->vault_ids, &d->initial_events, &d->metadata,
        &d->budget,   &d->expression,     &d->timezone,      &x->key_id,    &x->sealed};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_deploy_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "deployment '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    *ret = from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

enum { N_PARAMS = 19 };

static void fill(struct mg_arena *a, const struct mg_deploy_row *row, struct mg_sv p[N_PARAMS])
{
    const struct mg_deploy *d = &row->deploy;
    const struct mg_sv all[N_PARAMS] = {
        row->id,
        row->workspace,
        d->name,
        d->description,
        d->agent_id,
        mg_p_int(a, d->agent_version),
        d->environment_id,
        d->initial_events,
        d->resources,
        d->vault_ids,
        d->metadata,
        d->budget,
        d->expression,
        d->timezone,
        row->paused_reason,
        row->upcoming,
        mg_p_time(a, row->next_us),
        row->key_id,
        row->sealed,
    };
    memcpy(p, all, sizeof(all));
}

static const struct mg_stmt SQL_INSERT = {
    "deploy_insert",
    "INSERT INTO deployments (id, workspace_id, name, description, agent_id, agent_version, environment_id, "
    "initial_events, resources, vault_ids, metadata, budget, expression, timezone, paused_reason, upcoming, "
    "next_run_at, key_id, secret)"
    " VALUES ($1, $2, $3, $4, $5, $6::int, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17::timestamptz, $18, $19) "
    "RETURNING " COLUMNS,
};
static const struct mg_stmt SQL_SAVE = {
    "deploy_save",
    "UPDATE deployments SET name = $3, description = $4, agent_id = $5, agent_version = $6::int, environment_id = $7,"
    " initial_events = $8, resources = $9, vault_ids = $10, metadata = $11, budget = $12, expression = $13,"
    " timezone = $14, paused_reason = $15, upcoming = $16, next_run_at = $17::timestamptz, key_id = $18, secret = $19, "
    "claim = NULL,"
    " claim_until = NULL, updated_at = now() WHERE id = $1 AND workspace_id = $2 RETURNING " COLUMNS,
};

static mg_rc write_row(struct mg_arena *a, struct mg_txn *t, const struct mg_stmt *st, struct mg_deploy_row *row,
                       struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv p[N_PARAMS];
    fill(a, row, p);
    mg_rc rc = mg_txn_query(t, st, p, N_PARAMS, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

mg_rc mg_deploy_insert(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err)
{
    return write_row(a, t, &SQL_INSERT, row, err);
}

mg_rc mg_deploy_save(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err)
{
    return write_row(a, t, &SQL_SAVE, row, err);
}

#define ONE "SELECT " COLUMNS " FROM deployments WHERE workspace_id = $1 AND id = $2"
static const struct mg_stmt SQL_GET = {"deploy_get", ONE};
static const struct mg_stmt SQL_LOCK = {"deploy_lock", ONE " FOR UPDATE"};

mg_rc mg_deploy_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                    struct mg_deploy_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_deploy_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                     struct mg_deploy_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

static const struct mg_stmt SQL_ARCHIVE = {
    "deploy_archive",
    "UPDATE deployments SET archived_at = now(), key_id = NULL, secret = NULL, updated_at = now(), next_run_at = NULL, "
    "upcoming = '[]', "
    "paused_reason "
    "= NULL, claim = NULL, claim_until = NULL WHERE id = $1 RETURNING " COLUMNS,
};

mg_rc mg_deploy_set_archived(struct mg_arena *a, struct mg_txn *t, struct mg_deploy_row *row, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_ARCHIVE, &row->id, 1, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

#define LIST(op, way)                                                                                                  \
    "SELECT " COLUMNS " FROM deployments WHERE workspace_id = $1 AND (created_at, id) " op " ($2::timestamptz, $3)"    \
    " AND created_at >= $4::timestamptz AND created_at <= $5::timestamptz AND ($6::bool OR archived_at IS NULL)"       \
    " AND ($7::text IS NULL OR agent_id = $7) AND ($8::text IS NULL OR (paused_reason IS NOT NULL) = ($8 = 'paused'))" \
    " ORDER BY created_at " way ", id " way " LIMIT $9::int"
static const struct mg_list_ways LISTS = {{"deploy_list_down", LIST("<", "DESC")},
                                          {"deploy_list_up", LIST(">", "ASC")}};

mg_rc mg_deploy_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                     const struct mg_deploy_filter *f, struct mg_res **ret_res, struct mg_deploy_row **ret,
                     struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        q->workspace,
        mg_list_pos(a, q),
        mg_list_pos_id(q),
        mg_list_low(a, q->gte_us),
        mg_list_high(a, q->lte_us),
        mg_p_bool(q->include_archived),
        f->agent_id,
        f->status,
        mg_p_int(a, q->limit + 1),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 9, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_deploy_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* ---- slots ---- */

static const struct mg_stmt SQL_NOW = {"deploy_now", "SELECT mg_us(clock_timestamp())"};

mg_rc mg_deploy_now(struct mg_txn *t, int64_t *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_NOW, NULL, 0, &r, err);
    if (rc >= 0)
        *ret = mg_res_time(r, 0, 0);
    return rc;
}

static const struct mg_stmt SQL_CLAIM = {
    "deploy_claim",
    "UPDATE deployments SET claim = $1, claim_until = clock_timestamp() + $2::int * interval '1 second' WHERE id IN"
    " (SELECT id FROM deployments WHERE next_run_at <= clock_timestamp() AND paused_reason IS NULL AND archived_at IS"
    " NULL AND (claim_until IS NULL OR claim_until < clock_timestamp()) ORDER BY next_run_at LIMIT $3::int"
    " FOR UPDATE SKIP LOCKED) RETURNING " COLUMNS,
};

mg_rc mg_deploy_claim(struct mg_arena *a, struct mg_pg *pg, struct mg_sv claim, struct mg_deploy_row **ret, int *ret_n,
                      struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {claim, mg_p_int(a, MG_DEPLOY_CLAIM_S), mg_p_int(a, MG_DEPLOY_BATCH)};
    mg_rc rc = mg_pg_exec(pg, &SQL_CLAIM, p, 3, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    struct mg_deploy_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++) {
        rows[i] = from_row(r, i);
        keep(a, &rows[i]);
    }
    *ret = rows;
    return MG_OK;
}

static const struct mg_stmt SQL_DONE = {
    "deploy_slot_done",
    "UPDATE deployments SET upcoming = $3, next_run_at = $4::timestamptz, last_run_at = coalesce($5::timestamptz, "
    "last_run_at), paused_reason = coalesce(paused_reason, $6), claim = NULL, claim_until = NULL WHERE id = $1 AND "
    "claim "
    "= $2",
};

mg_rc mg_deploy_slot_done(struct mg_arena *a, struct mg_txn *t, const struct mg_deploy_row *row, struct mg_sv claim,
                          struct mg_err *err)
{
    const struct mg_sv p[] = {
        row->id, claim, row->upcoming, mg_p_time(a, row->next_us), mg_p_time(a, row->last_us), row->paused_reason};
    return mg_txn_queue(t, &SQL_DONE, p, 6, 1, err);
}
