/* Rows of memory_versions, which nothing changes but a redaction. */
#include "base/mem.h"
#include "domain/check.h"
#include "store/memory.h"
#include "store/row.h"

#define COLUMNS(content)                                                                                              \
    "seq, id, store_id, memory_id, operation, path, " content ", content_sha256, content_size, actor_kind, actor_id," \
    " mg_us(created_at), mg_us(redacted_at), redactor_kind, redactor_id"

static struct mg_memory_version_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_memory_version_row){
        .seq = mg_res_int(r, i, 0),
        .id = mg_res_sv(r, i, 1),
        .store_id = mg_res_sv(r, i, 2),
        .memory_id = mg_res_sv(r, i, 3),
        .operation = mg_res_sv(r, i, 4),
        .path = mg_res_sv(r, i, 5),
        .content = {.json = mg_res_sv(r, i, 6), .sha256 = mg_res_sv(r, i, 7), .size = mg_res_int(r, i, 8)},
        .actor_kind = mg_res_sv(r, i, 9),
        .actor_id = mg_res_sv(r, i, 10),
        .created_us = mg_res_time(r, i, 11),
        .redacted_us = mg_res_time(r, i, 12),
        .redactor_kind = mg_res_sv(r, i, 13),
        .redactor_id = mg_res_sv(r, i, 14),
    };
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_memory_version_row *x,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "memory version '%.*s' does not exist in this store",
                          MG_SV_ARG(mg_shown_id(id)));
    *x = from_row(r, 0);
    struct mg_sv *const texts[] = {&x->id,          &x->store_id,     &x->memory_id,     &x->operation,
                                   &x->path,        &x->actor_kind,   &x->actor_id,      &x->redactor_kind,
                                   &x->redactor_id, &x->content.json, &x->content.sha256};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
    return MG_OK;
}

static const struct mg_stmt SQL_GET = {
    "memory_version_get", "SELECT " COLUMNS("content") " FROM memory_versions WHERE store_id = $1 AND id = $2"};

mg_rc mg_memory_version_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv store, struct mg_sv id,
                            struct mg_memory_version_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){store, id}, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

static const struct mg_stmt SQL_HEAD = {"memory_version_head",
                                        "SELECT 1 FROM memories WHERE store_id = $1 AND version_id = $2"};
static const struct mg_stmt SQL_REDACT = {
    "memory_version_redact",
    "UPDATE memory_versions SET path = NULL, content = NULL, content_sha256 = NULL, content_size = NULL,"
    " redacted_at = clock_timestamp(), redactor_kind = $3, redactor_id = $4"
    " WHERE store_id = $1 AND id = $2 AND redacted_at IS NULL",
};

mg_rc mg_memory_version_redact(struct mg_arena *a, struct mg_txn *t, struct mg_sv store, struct mg_sv id,
                               const struct mg_memory_actor *by, struct mg_memory_version_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *head = NULL, *r = NULL;
    const struct mg_sv p[] = {store, id, mg_sv_of(by->kind), by->id};
    mg_rc rc = mg_txn_query(t, &SQL_HEAD, p, 2, &head, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(head))
        return mg_err_set(err, MG_ECONFLICT,
                          "memory version '%.*s' is what its memory holds now; update or delete the memory first",
                          MG_SV_ARG(mg_shown_id(id)));
    rc = mg_txn_queue(t, &SQL_REDACT, p, 4, -1, err);
    if (rc >= 0)
        rc = mg_txn_query(t, &SQL_GET, p, 2, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

#define LIST(op, way, content)                                                                                     \
    "SELECT " COLUMNS(                                                                                             \
        content) " FROM memory_versions WHERE store_id = $1 AND seq " op " $2::bigint"                             \
                 " AND created_at >= $3::timestamptz AND created_at <= $4::timestamptz AND ($5::text IS NULL OR "  \
                 "memory_id = $5)"                                                                                 \
                 " AND ($6::text IS NULL OR actor_kind = 'session' AND actor_id = $6)"                             \
                 " AND ($7::text IS NULL OR actor_kind = 'api' AND actor_id = $7) AND ($8::text IS NULL OR false)" \
                 " AND ($9::text IS NULL OR operation = $9) ORDER BY seq " way " LIMIT $10::int"
static const struct mg_list_ways LISTS[2] = {
    {{"memory_version_down", LIST("<", "DESC", "NULL::text")}, {"memory_version_up", LIST(">", "ASC", "NULL::text")}},
    {{"memory_version_full_down", LIST("<", "DESC", "content")},
     {"memory_version_full_up", LIST(">", "ASC", "content")}},
};

mg_rc mg_memory_version_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_memory_version_filter *f,
                             const struct mg_list_query *q, struct mg_res **ret_res, struct mg_memory_version_row **ret,
                             struct mg_list_page *ret_page, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    bool up = mg_list_scan_up(q);
    const struct mg_sv p[] = {
        f->store,
        mg_p_int(a, q->cursor.given ? q->cursor.pos
                    : up            ? 0
                                    : INT64_MAX),
        mg_list_low(a, q->gte_us),
        mg_list_high(a, q->lte_us),
        f->memory_id,
        f->session_id,
        f->api_key_id,
        f->service_account_id,
        f->operation,
        mg_p_int(a, q->limit + 1),
    };
    mg_rc rc = mg_list_exec(pg, q, &LISTS[f->full], p, 10, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_memory_version_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}
