/* What the lists of all aggregates share: a keyset position, time bounds, one row more than asked to see whether more follow. */
#ifndef MG_STORE_LIST_H
#define MG_STORE_LIST_H

#include "domain/page.h"
#include "store/pg.h"

struct mg_list_query {
    struct mg_sv workspace;
    int limit;
    bool ascending;
    struct mg_cursor cursor;
    bool include_archived;
    /* Bounds of created_at; INT64_MIN: none. */
    int64_t gt_us, gte_us, lt_us, lte_us;
};

/* The rows of a page in r: at most limit of them. A page that was read backwards is stored backwards. */
struct mg_list_page {
    int n;
    bool more_after, more_before; /* whether a next and a previous page exist */
    bool reversed;
};

/* Row i of the page, in the list's order, as a row of the result. */
static inline int mg_list_row(const struct mg_list_page *p, int i)
{
    return p->reversed ? p->n - 1 - i : i;
}

struct mg_list_page mg_list_page_of(const struct mg_list_query *q, int rows);
/* Whether the statement must sort ascending: the list's order, turned round for a page before the cursor. */
static inline bool mg_list_scan_up(const struct mg_list_query *q)
{
    return q->ascending != (q->cursor.given && q->cursor.back);
}
/* Runs the statement of the scan's way, which reads one row more than the limit. */
struct mg_list_ways {
    struct mg_stmt down, up;
};
mg_rc mg_list_exec(struct mg_pg *pg, const struct mg_list_query *q, const struct mg_list_ways *ways,
                   const struct mg_sv *params, int n, struct mg_res **ret, struct mg_list_page *ret_page,
                   struct mg_err *err) MG_MUSTCHECK;
/* Text of timestamptz parameters: a bound, or the infinity that stands for none. */
struct mg_sv mg_list_low(struct mg_arena *a, int64_t us);
struct mg_sv mg_list_high(struct mg_arena *a, int64_t us);
/* The position behind which the scan begins, and its id. */
struct mg_sv mg_list_pos(struct mg_arena *a, const struct mg_list_query *q);
struct mg_sv mg_list_pos_id(const struct mg_list_query *q);

#endif
