#include "tools/keep.h"

#include <stdio.h>

#include "base/utf8.h"
#include "json/json.h"
#include "tools/internal.h"
#include "tools/result.h"

enum { WHERE_MAX = 512 };

void mg_result_excerpt(struct mg_buf *out, struct mg_sv text, const char *where)
{
    size_t head = mg_utf8_floor(text, MG_RESULT_HEAD);
    size_t tail = text.len > head + MG_RESULT_TAIL ? mg_utf8_ceil(text, text.len - MG_RESULT_TAIL) : head;
    (void)mg_buf_append(out, text.ptr, head);
    (void)mg_buf_printf(out, "\n[... %zu of %zu bytes are not shown: %s ...]\n", tail - head, text.len, where);
    (void)mg_buf_sv(out, mg_sv_from(text, tail));
}

static void where_of(struct mg_tools *t, struct mg_sv tool, const char *id, struct mg_sv text, char *out, size_t size)
{
    char path[128];
    struct mg_err err = {0};
    if (mg_sv_eqz(tool, "read")) {
        (void)snprintf(out, size, "read the file in parts with view_range, or search it with grep");
        return;
    }
    (void)snprintf(path, sizeof(path), "tool-results/%.64s.txt", id);
    if (t->ops->write(t->box, path, text, &err) < 0)
        (void)snprintf(out, size, "the whole result could not be kept (%.300s)", err.text);
    else
        (void)snprintf(out, size,
                       "the whole result is in the file %s; read it in parts with view_range, or search it with grep",
                       path);
}

void mg_tool_result_keep(struct mg_tools *t, struct mg_sv tool, const char *id, size_t max, struct mg_tool_result *r)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_RESULT_HEAD + MG_RESULT_TAIL + 2 * WHERE_MAX);
    struct mg_json *v = NULL;
    char where[WHERE_MAX];
    if (r->content.len <= max || mg_json_parse(a, mg_buf_view(&r->content), &mg_json_raw_limits, &v, NULL) < 0)
        return;
    const struct mg_json *block = mg_json_at(v, 0);
    struct mg_sv text = mg_json_get_str(a, block, "text");
    if (v->n != 1 || !mg_sv_eqz(mg_json_get_str(a, block, "type"), "text") || text.len <= max)
        return;
    where_of(t, tool, id, text, where, sizeof(where));
    mg_result_excerpt(&b, text, where);
    (void)mg_tool_text(r, r->is_error, mg_buf_view(&b));
}
