/* How a list answers: its rows, and the cursors of the pages beside them. */
#include "api/api.h"
#include "domain/page.h"

struct mg_jw mg_page_begin(struct mg_http_res *res)
{
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_key(&w, "data");
    mg_jw_arr(&w);
    return w;
}

static void page_edge(struct mg_jw *w, struct mg_arena *a, const char *key, struct mg_sv scope, bool more, bool back,
                      struct mg_page_edge e)
{
    const struct mg_cursor c = {.back = back, .pos = e.pos, .id = e.id};
    if (more)
        mg_jw_kstr(w, key, mg_cursor_format(a, scope, &c));
    else
        mg_jw_knull(w, key);
}

void mg_page_next(struct mg_jw *w, struct mg_arena *a, struct mg_sv scope, bool more, struct mg_page_edge last)
{
    mg_jw_arr_end(w);
    page_edge(w, a, "next_page", scope, more, false, last);
}

void mg_page_prev(struct mg_jw *w, struct mg_arena *a, struct mg_sv scope, bool more, struct mg_page_edge first)
{
    page_edge(w, a, "prev_page", scope, more, true, first);
}
