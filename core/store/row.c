#include "store/row.h"

#include "base/mem.h"

void mg_row_keep(struct mg_arena *a, struct mg_sv *const views[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (views[i]->ptr)
            *views[i] = mg_arena_sv(a, *views[i]);
}

mg_rc mg_row_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params,
                  int n_params, size_t size, void (*fill)(struct mg_arena *a, const struct mg_res *r, int i, void *row),
                  void **ret, int *ret_n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, st, params, n_params, &r, err);
    if (rc < 0)
        return rc;
    *ret_n = mg_res_rows(r);
    char *rows = mg_arena_alloc(a, size * (size_t)(*ret_n + 1));
    for (int i = 0; i < *ret_n; i++)
        fill(a, r, i, rows + size * (size_t)i);
    *ret = rows;
    return MG_OK;
}

mg_rc mg_row_archive(struct mg_txn *t, const struct mg_stmt *st, struct mg_sv id, int64_t *ret_archived_us,
                     int64_t *ret_updated_us, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, st, &id, 1, &r, err);
    if (rc >= 0)
        *ret_archived_us = *ret_updated_us = mg_res_time(r, 0, 0);
    return rc;
}
