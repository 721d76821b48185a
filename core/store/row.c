#include "store/row.h"

#include "base/mem.h"

void mg_row_keep(struct mg_arena *a, struct mg_sv *const views[], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (views[i]->ptr)
            *views[i] = mg_arena_sv(a, *views[i]);
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
