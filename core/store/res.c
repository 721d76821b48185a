/* Results and parameters. A struct mg_res is libpq's PGresult under another name. */
#include <libpq-fe.h>
#include <stdio.h>

#include "base/clock.h"
#include "store/pg.h"

static PGresult *pgres(const struct mg_res *r)
{
    return (PGresult *)r;
}

int mg_res_rows(const struct mg_res *r)
{
    return r ? PQntuples(pgres(r)) : 0;
}

struct mg_sv mg_res_sv(const struct mg_res *r, int row, int col)
{
    if (PQgetisnull(pgres(r), row, col))
        return (struct mg_sv){NULL, 0};
    return mg_sv_n(PQgetvalue(pgres(r), row, col), (size_t)PQgetlength(pgres(r), row, col));
}

int64_t mg_res_int(const struct mg_res *r, int row, int col)
{
    int64_t n = 0;
    struct mg_sv s = mg_res_sv(r, row, col);
    return s.ptr && mg_sv_to_i64(s, &n) ? n : 0;
}

bool mg_res_bool(const struct mg_res *r, int row, int col)
{
    return mg_sv_eqz(mg_res_sv(r, row, col), "t");
}

int64_t mg_res_time(const struct mg_res *r, int row, int col)
{
    int64_t n = 0;
    struct mg_sv s = mg_res_sv(r, row, col);
    return s.ptr && mg_sv_to_i64(s, &n) ? n : INT64_MIN;
}

void mg_res_free(struct mg_res *r)
{
    PQclear(pgres(r));
}

struct mg_sv mg_p_int(struct mg_arena *a, int64_t n)
{
    return mg_arena_printf(a, "%lld", (long long)n);
}

struct mg_sv mg_p_bool(bool b)
{
    return b ? MG_SV("t") : MG_SV("f");
}

struct mg_sv mg_p_time(struct mg_arena *a, int64_t wall_us)
{
    if (wall_us == INT64_MIN)
        return mg_p_null();
    char text[MG_TIME_LEN];
    mg_time_format(wall_us, text);
    return mg_arena_sv(a, mg_sv_of(text));
}

struct mg_sv mg_p_array(struct mg_arena *a, const struct mg_sv *items, size_t n)
{
    size_t most = 3;
    for (size_t i = 0; i < n; i++)
        most += items[i].ptr ? items[i].len * 2 + 3 : 5;
    char *text = mg_arena_alloc(a, most), *at = text;
    *at++ = '{';
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            *at++ = ',';
        if (!items[i].ptr) {
            memcpy(at, "NULL", 4);
            at += 4;
            continue;
        }
        *at++ = '"';
        for (size_t k = 0; k < items[i].len; k++) {
            char c = items[i].ptr[k];
            if (c == '"' || c == '\\')
                *at++ = '\\';
            *at++ = c;
        }
        *at++ = '"';
    }
    *at++ = '}';
    return mg_sv_n(text, (size_t)(at - text));
}
