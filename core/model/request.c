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

/* The entries i..end-1 make one message: all that follow with the same role. */
static int group_end(const struct mg_request *r, int i, bool *ret_mixed)
{
    bool assistant = r->entries[i].assistant;
    int end = i;
    *ret_mixed = false;
    for (; end < r->n_entries && r->entries[end].assistant == assistant; end++)
        *ret_mixed |= end > i && !assistant && has_results(r->entries[end].content);
    return end;
}

/* The place up to which the endpoint may keep what it read: a member of the message's last block. Moving it changes no cached byte. */
static void add_breakpoint(struct mg_buf *content)
{
    struct mg_sv v = mg_buf_view(content);
    if (v.len < 2 || v.ptr[v.len - 1] != '}' || memmem(v.ptr, v.len, "\"cache_control\"", 15))
        return;
    content->len--;
    (void)mg_buf_str(content, ",\"cache_control\":{\"type\":\"ephemeral\"}}");
}

/* One message of entries i..end-1. Where several are joined, tool results come first: words that arrived while a tool ran must not stand between a
 * call and its result. */
static void message(const struct mg_request *r, int i, int end, bool mixed, bool breakpoint, struct mg_jw *w)
{
    mg_auto(buf) struct mg_buf content = MG_BUF_INIT(w->out->max);
    (void)mg_buf_char(&content, '[');
    for (int pass = 0; pass < (mixed ? 2 : 1); pass++) {
        const bool results = pass == 0;
        for (int k = i; k < end; k++)
            add_blocks(&content, r->entries[k].content, mixed ? &results : NULL);
    }
    if (mg_buf_ok(&content) && content.len <= 1)
        return; /* a message without content is not legal */
    if (breakpoint)
        add_breakpoint(&content);
    if (mg_buf_char(&content, ']') < 0)
        (void)mg_buf_reserve(w->out, SIZE_MAX); /* the whole fails as its part did */
    mg_jw_obj(w);
    mg_jw_kstrz(w, "role", r->entries[i].assistant ? "assistant" : "user");
    mg_jw_kraw(w, "content", mg_buf_view(&content));
    mg_jw_obj_end(w);
}

static bool group_is_empty(const struct mg_request *r, int i, int end)
{
    for (; i < end; i++)
        if (mg_json_inside(r->entries[i].content).len)
            return false;
    return true;
}

/* The first entry of the second to last user message, or n_entries: the request before this one ended there, and what the endpoint kept of it is found
 * however many blocks came since. */
static int breakpoints_from(const struct mg_request *r)
{
    int last = r->n_entries, before = r->n_entries;
    bool mixed;
    for (int i = 0; i < r->n_entries;) {
        int end = group_end(r, i, &mixed);
        if (!r->entries[i].assistant && !group_is_empty(r, i, end)) {
            before = last;
            last = i;
        }
        i = end;
    }
    return before < last ? before : last;
}

static void messages(const struct mg_request *r, struct mg_jw *w)
{
    int from = r->cache ? breakpoints_from(r) : r->n_entries;
    bool mixed;
    mg_jw_arr(w);
    for (int i = 0; i < r->n_entries;) {
        int end = group_end(r, i, &mixed);
        message(r, i, end, mixed, i >= from && !r->entries[i].assistant, w);
        i = end;
    }
    mg_jw_arr_end(w);
}

bool mg_request_locate(const struct mg_request *r, int64_t message, int64_t block, int *ret_entry, int64_t *ret_block)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    bool mixed = false;
    int i = 0, end = 0;
    for (int64_t m = -1; i < r->n_entries; i = end) {
        end = group_end(r, i, &mixed);
        if (!group_is_empty(r, i, end) && ++m == message)
            break;
    }
    for (int pass = 0; i < r->n_entries && pass < (mixed ? 2 : 1); pass++) {
        for (int k = i; k < end; k++) {
            struct mg_json *v = NULL;
            int64_t number = 0;
            if (mg_json_parse(a, r->entries[k].content, &mg_json_raw_limits, &v, NULL) < 0)
                return false;
            for (const struct mg_json *b = v->child; b; b = b->next, number++) {
                bool result = mg_sv_eqz(mg_json_get_str(a, b, "type"), "tool_result");
                if ((mixed && result != (pass == 0)) || block-- > 0)
                    continue;
                *ret_entry = k;
                *ret_block = number;
                return true;
            }
        }
    }
    return false;
}

/* The system prompt; with a breakpoint it must be a block. Tools stand before it, so that one place covers both. */
static void system_prompt(const struct mg_request *r, struct mg_jw *w)
{
    if (!r->cache) {
        mg_jw_kraw(w, "system", r->system);
        return;
    }
    mg_jw_key(w, "system");
    mg_jw_arr(w);
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "text");
    mg_jw_kraw(w, "text", r->system);
    mg_jw_kraw(w, "cache_control", MG_SV("{\"type\":\"ephemeral\"}"));
    mg_jw_obj_end(w);
    mg_jw_arr_end(w);
}

static void tools(const struct mg_request *r, struct mg_jw *w)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(w->out->max);
    if (!r->cache || r->system.len) {
        mg_jw_kraw(w, "tools", r->tools);
        return;
    }
    (void)mg_buf_char(&b, '[');
    (void)mg_buf_sv(&b, mg_json_inside(r->tools));
    add_breakpoint(&b);
    (void)mg_buf_char(&b, ']');
    mg_jw_kraw(w, "tools", mg_buf_view(&b));
}

struct mg_sv mg_request_beta(const struct mg_request *r)
{
    if (r->fast && r->web_fetch)
        return MG_SV("fast-mode-2026-02-01,web-fetch-2025-09-10");
    return r->fast ? MG_SV("fast-mode-2026-02-01") : r->web_fetch ? MG_SV("web-fetch-2025-09-10") : MG_SV("");
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
        system_prompt(r, &w);
    if (r->tools.len > 2)
        tools(r, &w);
    mg_jw_key(&w, "messages");
    messages(r, &w);
    mg_jw_obj_end(&w);
    return mg_buf_ok(out) ? MG_OK : MG_ETOOBIG;
}
