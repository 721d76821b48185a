/* What the rows of all aggregates share: their texts outlive the result, and they are archived. */
#ifndef MG_STORE_ROW_H
#define MG_STORE_ROW_H

#include "store/pg.h"

/* Each of these views becomes a copy in the arena; ptr NULL stays. */
void mg_row_keep(struct mg_arena *a, struct mg_sv *const views[], size_t n);
/* All rows of the statement, as n things of size bytes in arena memory, each filled by fill, which copies what it keeps. */
mg_rc mg_row_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_stmt *st, const struct mg_sv *params,
                  int n_params, size_t size, void (*fill)(struct mg_arena *a, const struct mg_res *r, int i, void *row),
                  void **ret, int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* The statement archives the row $1 and returns when: both times of the row. */
mg_rc mg_row_archive(struct mg_txn *t, const struct mg_stmt *st, struct mg_sv id, int64_t *ret_archived_us,
                     int64_t *ret_updated_us, struct mg_err *err) MG_MUSTCHECK;

#endif
