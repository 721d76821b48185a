/* Content arrays of a transcript: their tokens, and what may stand in their place. */
#include "base/utf8.h"
#include "json/json.h"
#include "json/write.h"
#include "run/context.h"

enum {
    CONTENT_MAX = 256 * 1024 * 1024, /* bytes of a rewritten array: a request's own limit */
    BYTES_PER_TOKEN = 3,             /* below what endpoints need for most text (CX1) */
    PDF_BYTES_PER_TOKEN = 9,         /* its pages are text and pictures */
    ENTRY_TOKENS = 8,                /* role and frame of a message */
};

static struct mg_sv type_of(struct mg_arena *a, const struct mg_json *b)
{
    return mg_json_get_str(a, b, "type");
}

static struct mg_json *blocks_of(struct mg_arena *a, struct mg_sv content)
{
    struct mg_json *v = NULL;
    if (mg_json_parse(a, content, &mg_json_raw_limits, &v, NULL) < 0 || v->type != MG_JSON_ARRAY)
        return NULL;
    return v;
}

static bool holds(struct mg_sv s, const char *word)
{
    return s.len && memmem(s.ptr, s.len, word, strlen(word));
}

bool mg_content_has(struct mg_arena *a, struct mg_sv content, const char *type)
{
    const struct mg_json *v = holds(content, type) ? blocks_of(a, content) : NULL;
    for (const struct mg_json *b = v ? v->child : NULL; b; b = b->next)
        if (mg_sv_eqz(type_of(a, b), type))
            return true;
    return false;
}

/* ---- tokens ---- */

int64_t mg_content_pdf_tokens(int64_t bytes)
{
    int64_t n = bytes / PDF_BYTES_PER_TOKEN;
    return n < MG_CONTEXT_PDF_TOKENS ? n : MG_CONTEXT_PDF_TOKENS;
}

int64_t mg_content_text_tokens(int64_t bytes)
{
    return bytes / BYTES_PER_TOKEN;
}

/* Bytes below v that are data of images and documents; *tokens grows by what they count. */
static size_t data_bytes(struct mg_arena *a, const struct mg_json *v, int64_t *tokens)
{
    struct mg_sv type = v->type == MG_JSON_OBJECT ? type_of(a, v) : MG_SV("");
    struct mg_sv data = mg_json_get_raw(mg_json_get(v, "source"), "data");
    if (mg_sv_eqz(type, "image")) {
        *tokens += MG_CONTEXT_IMAGE_TOKENS;
        return data.len;
    }
    if (mg_sv_eqz(type, "document") && mg_sv_eqz(type_of(a, mg_json_get(v, "source")), "base64")) {
        *tokens += mg_content_pdf_tokens((int64_t)data.len / 4 * 3); /* it is base64 */
        return data.len;
    }
    size_t n = 0;
    for (const struct mg_json *c = v->child; c; c = c->next)
        n += data_bytes(a, c, tokens);
    return n;
}

int64_t mg_content_tokens(struct mg_sv content)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_json *v = holds(content, "\"source\"") ? blocks_of(a, content) : NULL;
    int64_t tokens = ENTRY_TOKENS;
    size_t data = v ? data_bytes(a, v, &tokens) : 0;
    return tokens + mg_content_text_tokens((int64_t)(content.len - data));
}

/* ---- excerpts ---- */

static void put_excerpt(struct mg_jw *w, struct mg_sv text)
{
    enum { HEAD = MG_CONTEXT_EXCERPT / 4 * 3, TAIL = MG_CONTEXT_EXCERPT / 4 };
    size_t head = mg_utf8_floor(text, HEAD), tail = mg_utf8_ceil(text, text.len - TAIL);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * MG_CONTEXT_EXCERPT);
    mg_buf_printf(&b, "%.*s\n[... %zu bytes left out to make room ...]\n%.*s", (int)head, text.ptr, tail - head,
                  MG_SV_ARG(mg_sv_from(text, tail)));
    mg_jw_str(w, mg_buf_view(&b));
}

static bool shortened(struct mg_arena *a, const struct mg_json *b, struct mg_jw *w);

/* The members of an object in their order, with one of them written by the caller's hand. */
static void put_with(struct mg_arena *a, const struct mg_json *b, const char *key, struct mg_jw *w,
                     void (*put)(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w))
{
    mg_jw_obj(w);
    for (const struct mg_json *m = b->child; m; m = m->next) {
        mg_jw_key_sv(w, m->key);
        if (mg_sv_eqz(m->key, key))
            put(a, m, w);
        else
            mg_jw_raw(w, m->raw);
    }
    mg_jw_obj_end(w);
}

static void put_text(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w)
{
    put_excerpt(w, mg_json_str(a, v));
}

static void put_blocks(struct mg_arena *a, const struct mg_json *v, struct mg_jw *w)
{
    if (v->type == MG_JSON_STRING) {
        put_text(a, v, w);
        return;
    }
    mg_jw_arr(w);
    for (const struct mg_json *b = v->child; b; b = b->next)
        if (!shortened(a, b, w))
            mg_jw_raw(w, b->raw);
    mg_jw_arr_end(w);
}

static void put_note(struct mg_jw *w, struct mg_sv text)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", "text");
    mg_jw_kstr(w, "text", text);
    mg_jw_obj_end(w);
}

/* Writes the shorter form of a block; false when it stays as it is. Only what a client or a tool said is shortened: the model's own blocks may be
 * signed. */
static bool shortened(struct mg_arena *a, const struct mg_json *b, struct mg_jw *w)
{
    struct mg_sv type = type_of(a, b);
    const struct mg_json *text = mg_json_get(b, "text"), *content = mg_json_get(b, "content");
    bool text_block = mg_sv_eqz(type, "text") && mg_json_is(text, MG_JSON_STRING);
    if (text_block && text->raw.len > MG_CONTEXT_EXCERPT + 2 && mg_json_str(a, text).len > MG_CONTEXT_EXCERPT) {
        put_with(a, b, "text", w, put_text);
        return true;
    }
    if (mg_sv_eqz(type, "image") || mg_sv_eqz(type, "document")) {
        put_note(w, mg_arena_printf(a, "[%.*s left out to make room]", MG_SV_ARG(type)));
        return true;
    }
    bool long_string = mg_json_is(content, MG_JSON_STRING) && content->raw.len > MG_CONTEXT_EXCERPT + 2;
    if (mg_sv_eqz(type, "tool_result") && (mg_json_is(content, MG_JSON_ARRAY) || long_string)) {
        put_with(a, b, "content", w, put_blocks);
        return true;
    }
    return false;
}

struct mg_sv mg_content_excerpt(struct mg_arena *a, struct mg_sv content)
{
    const struct mg_json *v = blocks_of(a, content);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(CONTENT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    if (!v)
        return content;
    put_blocks(a, v, &w);
    return mg_buf_ok(&b) && b.len < content.len ? mg_arena_sv(a, mg_buf_view(&b)) : content;
}

/* ---- replacements ---- */

/* A call, the model's or the endpoint's own, has a partner elsewhere. */
static bool replaceable(struct mg_arena *a, const struct mg_json *b)
{
    static const char *const PAIRED[] = {"tool_use", "server_tool_use", "mcp_tool_use", NULL};
    struct mg_sv type = type_of(a, b);
    for (int i = 0; PAIRED[i]; i++)
        if (mg_sv_eqz(type, PAIRED[i]))
            return false;
    return !mg_sv_ends(type, "_tool_result");
}

static void put_replaced(struct mg_arena *a, const struct mg_json *b, struct mg_sv note, struct mg_jw *w)
{
    if (!mg_sv_eqz(type_of(a, b), "tool_result")) {
        put_note(w, note);
        return;
    }
    mg_jw_obj(w);
    for (const struct mg_json *m = b->child; m; m = m->next) {
        mg_jw_key_sv(w, m->key);
        if (!mg_sv_eqz(m->key, "content")) {
            mg_jw_raw(w, m->raw);
            continue;
        }
        mg_jw_arr(w);
        put_note(w, note);
        mg_jw_arr_end(w);
    }
    mg_jw_obj_end(w);
}

struct mg_sv mg_content_replace(struct mg_arena *a, struct mg_sv content, int64_t block, struct mg_sv note)
{
    const struct mg_json *v = blocks_of(a, content);
    const struct mg_json *named = v && block >= 0 && block < v->n ? mg_json_at(v, (uint32_t)block) : NULL;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(CONTENT_MAX);
    struct mg_jw w = mg_jw_to(&b);
    if (!named || !replaceable(a, named))
        return content;
    mg_jw_arr(&w);
    for (const struct mg_json *x = v->child; x; x = x->next) {
        if (x == named)
            put_replaced(a, x, note, &w);
        else
            mg_jw_raw(&w, x->raw);
    }
    mg_jw_arr_end(&w);
    return mg_buf_ok(&b) ? mg_arena_sv(a, mg_buf_view(&b)) : content;
}
