#include "run/prompt.h"

#include "base/mem.h"
#include "json/write.h"

enum { ESCAPED = 6 /* bytes that one of a text may become: \\u00XX */ };

void mg_prompt_add(struct mg_arena *a, struct mg_sv text, struct mg_sv *prompt)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(prompt->len + ESCAPED * text.len + 16);
    if (prompt->len > 2)
        (void)mg_buf_printf(&b, "%.*s\\n\\n", (int)(prompt->len - 1), prompt->ptr);
    else
        (void)mg_buf_char(&b, '"');
    mg_json_escape(&b, text);
    (void)mg_buf_char(&b, '"');
    *prompt = mg_arena_sv(a, mg_buf_view(&b));
}
