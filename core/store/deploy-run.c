/* Rows of deployment_runs. */
#include "base/mem.h"
#include "domain/check.h"
#include "store/deploy.h"
#include "store/row.h"

#define COLUMNS                                                                                               \
    "id, deployment_id, agent_id, agent_version, mg_us(scheduled_at), session_id, error_type, error_message," \
    " mg_us(created_at)"

static struct mg_deploy_run_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_deploy_run_row){
        .id = mg_res_sv(r, i, 0),
        .deployment_id = mg_res_sv(r, i, 1),
        .agent_id = mg_res_sv(r, i, 2),
        .agent_version = mg_res_int(r, i, 3),
        .scheduled_us = mg_res_time(r, i, 4),
        .session_id = mg_res_sv(r, i, 5),
        .error_type = mg_res_sv(r, i, 6),
        .error_message = mg_res_sv(r, i, 7),
        .created_us = mg_res_time(r, i, 8),
    };
}

static void keep(struct mg_arena *a, struct mg_deploy_run_row *x)
{
    struct mg_sv *const texts[] = {&x->id,         &x->deployment_id, &x->agent_id,
                                   &x->session_id, &x->error_type,    &x->error_message};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
}

static const struct mg_stmt SQL_INSERT = {
    "deploy_run_insert",
    "INSERT INTO deployment_runs (id, workspace_id, deployment_id, agent_id, agent_version, scheduled_at, session_id, "
    "error_type, error_message) VALUES ($1, $2, $3, $4, $5::int, $6::timestamptz, $7, $8, $9)"
    " ON CONFLICT (deployment_id, scheduled_at) DO NOTHING RETURNING " COLUMNS,
};

mg_rc mg_deploy_run_insert(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_deploy_run_row *row,
                           bool *ret_taken, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        row->id,
        workspace,
        row->deployment_id,
        row->agent_id,
        mg_p_int(a, row->agent_version),
        mg_p_time(a, row->scheduled_us),
        row->session_id,
        row->error_type,
        row->error_message,
    };
    mg_rc rc = mg_txn_query(t, &SQL_INSERT, p, 9, &r, err);
    if (rc < 0)
        return rc;
    *ret_taken = mg_res_rows(r) == 0;
    if (*ret_taken)
        return MG_OK;
    *row = from_row(r, 0);
    keep(a, row);
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {"deploy_run_get",
                                       "SELECT " COLUMNS " FROM deployment_runs WHERE workspace_id = $1 AND id = $2"};

mg_rc mg_deploy_run_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                        struct mg_deploy_run_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, id}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "deployment run '%.*s' does not exist", MG_SV_ARG(mg_shown_id(id)));
    *ret = from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

#define LIST(op, way)                                                                                             \
    "SELECT " COLUMNS " FROM deployment_runs WHERE workspace_id = $1 AND (created_at, id) " op                    \
    " ($2::timestamptz, $3) AND created_at > $4::timestamptz AND created_at >= $5::timestamptz"                   \
    " AND created_at < $6::timestamptz AND created_at <= $7::timestamptz"                                         \
    " AND ($8::text IS NULL OR deployment_id = $8) AND ($9::bool IS NULL OR (error_type IS NOT NULL) = $9::bool)" \
    " AND ($10::text IS NULL OR (scheduled_at IS NULL) = ($10 = 'manual')) ORDER BY created_at " way ", id " way  \
    " LIMIT $11::int"
static const struct mg_list_ways LISTS = {{"deploy_run_list_down", LIST("<", "DESC")},
                                          {"deploy_run_list_up", LIST(">", "ASC")}};

mg_rc mg_deploy_run_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q,
                         const struct mg_deploy_run_filter *f, struct mg_res **ret_res, struct mg_deploy_run_row **ret,
                         struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {
        q->workspace,
        mg_list_pos(a, q),
        mg_list_pos_id(q),
        mg_list_low(a, q->gt_us),
        mg_list_low(a, q->gte_us),
        mg_list_high(a, q->lt_us),
        mg_list_high(a, q->lte_us),
        f->deployment_id,
        f->has_error,
        f->trigger,
        mg_p_int(a, q->limit + 1),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 11, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_deploy_run_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}
