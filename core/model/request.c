#include "model/request.h"

#include "json/json.h"
#include "json/write.h"

/* Adds the blocks of a raw array, or only those that are (or are not) tool results. */
static void add_blocks(struct mg_buf *content, struct mg_sv raw, const bool *results)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *array = NULL;
    if (!results || mg_json_parse(a, raw, &mg_json_raw_limits, &array, NULL) < 0 || array->type != MG_JSON_ARRAY) {
        struct mg_sv inside =
            results && !*results ? MG_SV("") : mg_json_inside(raw); /* what is no array is spliced once */
        if (inside.len > 0 && content->len > 1)
            (void)mg_buf_char(content, ',');
        (void)mg_buf_sv(content, inside);
        return;
    }
    for (const struct mg_json *b = array->child; b; b = b->next) {
        if (mg_sv_eqz(mg_json_get_str(a, b, "type"), "tool_result") != *results)
            continue;
        if (content->len > 1)
            (void)mg_buf_char(content, ',');
        (void)mg_buf_sv(content, b->raw);
    }
}

static bool has_results(struct mg_sv raw)
{
    return raw.len > 0 && memmem(raw.ptr, raw.len, "tool_result", strlen("tool_result"));
}

/* One message of entries i..: all that follow with the same role. Where several are joined, tool results come first:
 * words that arrived while a tool ran must not stand between a call and its result. Returns the index behind them. */
static int message(const struct mg_request *r, int i, struct mg_jw *w)
{
    mg_auto(buf) struct mg_buf content = MG_BUF_INIT(w->out->max);
    bool assistant = r->entries[i].assistant, mixed = false;
    int end = i;
    for (; end < r->n_entries && r->entries[end].assistant == assistant; end++)
        mixed |= end > i && !assistant && has_results(r->entries[end].content);
    (void)mg_buf_char(&content, '[');
    for (int pass = 0; pass < (mixed ? 2 : 1); pass++) {
        const bool results = pass == 0;
        for (int k = i; k < end; k++)
            add_blocks(&content, r->entries[k].content, mixed ? &results : NULL);
    }
    if (mg_buf_ok(&content) && content.len <= 1)
        return end; /* a message without content is not legal */
    if (mg_buf_char(&content, ']') < 0)
        (void)mg_buf_reserve(w->out, SIZE_MAX); /* the whole fails as its part did */
    mg_jw_obj(w);
    mg_jw_kstrz(w, "role", assistant ? "assistant" : "user");
    mg_jw_kraw(w, "content", mg_buf_view(&content));
    mg_jw_obj_end(w);
    return end;
}

struct mg_sv mg_request_beta(const struct mg_request *r)
{
    return r->fast ? MG_SV("fast-mode-2026-02-01") : MG_SV("");
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
