#include "store/list.h"

struct mg_list_page mg_list_page_of(const struct mg_list_query *q, int rows)
{
    bool back = q->cursor.given && q->cursor.back, more = rows > q->limit;
    struct mg_list_page p = {.n = more ? q->limit : rows, .reversed = back};
    if (p.n == 0)
        return p; /* never an empty page with a cursor */
    p.more_after = back || more;
    p.more_before = back ? more : q->cursor.given;
    return p;
}

mg_rc mg_list_exec(struct mg_pg *pg, const struct mg_list_query *q, const struct mg_list_ways *ways,
                   const struct mg_sv *params, int n, struct mg_res **ret, struct mg_list_page *ret_page,
                   struct mg_err *err)
{
    mg_rc rc = mg_pg_exec(pg, mg_list_scan_up(q) ? &ways->up : &ways->down, params, n, ret, err);
    if (rc >= 0)
        *ret_page = mg_list_page_of(q, mg_res_rows(*ret));
    return rc;
}

struct mg_sv mg_list_low(struct mg_arena *a, int64_t us)
{
    return us == INT64_MIN ? MG_SV("-infinity") : mg_p_time(a, us);
}

struct mg_sv mg_list_high(struct mg_arena *a, int64_t us)
{
    return us == INT64_MIN ? MG_SV("infinity") : mg_p_time(a, us);
}

struct mg_sv mg_list_pos(struct mg_arena *a, const struct mg_list_query *q)
{
    if (q->cursor.given)
        return mg_p_time(a, q->cursor.pos);
    return mg_list_scan_up(q) ? MG_SV("-infinity") : MG_SV("infinity");
}

struct mg_sv mg_list_pos_id(const struct mg_list_query *q)
{
    return q->cursor.given && q->cursor.id.ptr ? q->cursor.id : MG_SV("");
}
