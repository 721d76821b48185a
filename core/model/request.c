#include "model/request.h"

#include "json/write.h"

static struct mg_sv array_inside(struct mg_sv raw)
{
    struct mg_sv s = mg_sv_trim(raw);
    return s.len < 2 ? MG_SV("") : mg_sv_trim(mg_sv_n(s.ptr + 1, s.len - 2));
}

/* One message of entries i..: all that follow with the same role. Returns the index behind them. */
static int message(const struct mg_request *r, int i, struct mg_jw *w)
{
    mg_auto(buf) struct mg_buf content = MG_BUF_INIT(w->out->max);
    bool assistant = r->entries[i].assistant;
    bool any = false;
    (void)mg_buf_char(&content, '[');
    for (; i < r->n_entries && r->entries[i].assistant == assistant; i++) {
        struct mg_sv inside = array_inside(r->entries[i].content);
        if (inside.len == 0)
            continue;
        if (any)
            (void)mg_buf_char(&content, ',');
        (void)mg_buf_sv(&content, inside);
        any = true;
    }
    (void)mg_buf_char(&content, ']');
    if (!any)
        return i;
    mg_jw_obj(w);
    mg_jw_kstrz(w, "role", assistant ? "assistant" : "user");
    mg_jw_kraw(w, "content", mg_buf_view(&content));
    mg_jw_obj_end(w);
    return i;
}

mg_rc mg_request_build(const struct mg_request *r, struct mg_buf *out)
{
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "model", r->model);
    mg_jw_kint(&w, "max_tokens", r->max_tokens);
    mg_jw_kbool(&w, "stream", true);
    if (r->effort.len) {
        mg_jw_key(&w, "output_config");
        mg_jw_obj(&w);
        mg_jw_kstr(&w, "effort", r->effort);
        mg_jw_obj_end(&w);
    }
    if (r->fast)
        mg_jw_kstrz(&w, "speed", "fast");
    if (r->system.len)
        mg_jw_kraw(&w, "system", r->system);
    if (r->tools.len > 2)
        mg_jw_kraw(&w, "tools", r->tools);
    mg_jw_key(&w, "messages");
    mg_jw_arr(&w);
    for (int i = 0; i < r->n_entries;)
        i = message(r, i, &w);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
