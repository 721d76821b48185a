#include "mcp/result.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "crypto/hash.h"
#include "domain/content.h"
#include "json/write.h"
#include "mcp/rpc.h"

enum {
    SHOWN_MAX = 1024,                    /* bytes of a URI, a name or a type inside of a note */
    LINK_MAX = 2048,                     /* bytes of a resource link's description */
    NOTE_MAX = 4 * SHOWN_MAX + LINK_MAX, /* bytes of a note of ours */
};

struct block {
    bool image;
    struct mg_sv text; /* decoded */
    struct mg_sv media_type, data;
};

struct render {
    struct mg_arena *a;
    mg_mcp_keep_fn *keep;
    void *ctx;
    struct block blocks[MG_MCP_PARTS_MAX + 2]; /* and what is said at the end */
    int n_blocks, n_images, n_files, n_left_out;
};

static bool blank(struct mg_sv s)
{
    return mg_sv_trim(s).len == 0;
}

/* Endpoints refuse texts without any character. */
static void add_text(struct render *r, struct mg_sv text)
{
    if (!blank(text) && r->n_blocks < MG_MCP_PARTS_MAX + 2)
        r->blocks[r->n_blocks++] = (struct block){.text = text};
}

static void add_note(struct render *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(struct render *r, const char *fmt, ...)
{
    char note[NOTE_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(note, sizeof(note), fmt, ap);
    va_end(ap);
    if (n > 0)
        add_text(r, mg_arena_sv(r->a, mg_sv_of(note)));
}

static const char *shown(struct render *r, const struct mg_json *obj, const char *key)
{
    char text[SHOWN_MAX];
    mg_rpc_show(text, sizeof(text), mg_json_get_str(r->a, obj, key));
    return mg_arena_strdup(r->a, mg_sv_of(text));
}

/* ---- what is no text ---- */

static const char *extension_of(const char *type)
{
    static const struct {
        const char *type, *extension;
    } known[] = {
        {"image/png", "png"},       {"image/jpeg", "jpg"},        {"image/gif", "gif"}, {"image/webp", "webp"},
        {"audio/wav", "wav"},       {"audio/mpeg", "mp3"},        {"audio/ogg", "ogg"}, {"application/pdf", "pdf"},
        {"application/zip", "zip"}, {"application/json", "json"}, {"text/csv", "csv"},  {"text/plain", "txt"},
        {"image/svg+xml", "svg"},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(type, known[i].type) == 0)
            return known[i].extension;
    return "bin";
}

static const char *keep_bytes(struct render *r, const char *suffix, struct mg_sv bytes, const char **why)
{
    *why = "a result may leave no more than 32 files";
    if (r->n_files == MG_MCP_FILES_MAX)
        return NULL;
    r->n_files++;
    return r->keep(r->ctx, suffix, bytes, why);
}

/* Base64 that the model is not shown becomes a file, or is left out with a word. */
static void add_binary(struct render *r, const char *what, const char *type, struct mg_sv base64, const char *reason)
{
    char suffix[32];
    const char *why;
    mg_auto(buf) struct mg_buf bytes = MG_BUF_INIT(base64.len + 4);
    if (mg_base64_decode(&bytes, base64) < 0) {
        add_note(r, "[%s (%s) left out: its data is not base64]", what, type[0] ? type : "no type");
        return;
    }
    (void)snprintf(suffix, sizeof(suffix), "-%d.%s", r->n_files + 1, extension_of(type));
    const char *path = keep_bytes(r, suffix, mg_buf_view(&bytes), &why);
    if (path)
        add_note(r, "[%s (%s, %zu bytes) saved as %s%s%s]", what, type[0] ? type : "no type", bytes.len, path,
                 reason[0] ? ": " : "", reason);
    else
        add_note(r, "[%s (%s, %zu bytes) left out: %s%s%s]", what, type[0] ? type : "no type", bytes.len, reason,
                 reason[0] ? "; " : "", why);
}

static void add_image(struct render *r, const char *type, struct mg_sv base64)
{
    struct mg_err err = {0};
    if (r->n_images == MG_MCP_IMAGES_MAX) {
        add_binary(r, "image", type, base64, "a result shows no more than 20 images");
        return;
    }
    if (mg_image_check(mg_sv_of(type), base64, &err) < 0) {
        add_binary(r, "image", type, base64, mg_arena_strdup(r->a, mg_sv_of(err.text)));
        return;
    }
    r->n_images++;
    r->blocks[r->n_blocks++] = (struct block){.image = true, .media_type = mg_sv_of(type), .data = base64};
}

/* ---- content items ---- */

static void take_resource(struct render *r, const struct mg_json *item)
{
    const struct mg_json *res = mg_json_get(item, "resource");
    const char *uri = shown(r, res, "uri"), *type = shown(r, res, "mimeType");
    if (mg_json_is(mg_json_get(res, "text"), MG_JSON_STRING)) {
        struct mg_sv text = mg_json_get_str(r->a, res, "text");
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(text.len + 4 * SHOWN_MAX);
        (void)mg_buf_printf(&b, "[resource %s%s%s]\n", uri, type[0] ? ", " : "", type);
        (void)mg_buf_sv(&b, text);
        add_text(r, mg_arena_sv(r->a, mg_buf_view(&b)));
        return;
    }
    struct mg_sv blob = mg_json_get_str(r->a, res, "blob");
    if (blob.len == 0) {
        add_note(r, "[resource %s left out: it is empty]", uri);
        return;
    }
    add_note(r, "[resource %s]", uri);
    if (mg_sv_starts(mg_sv_of(type), "image/"))
        add_image(r, type, blob);
    else
        add_binary(r, "resource", type, blob, "");
}

static void take_link(struct render *r, const struct mg_json *item)
{
    const char *type = shown(r, item, "mimeType"), *name = shown(r, item, "name");
    char about[LINK_MAX];
    mg_rpc_show(about, sizeof(about), mg_json_get_str(r->a, item, "description"));
    add_note(r, "[resource link %s: %s%s%s]%s%s", name, shown(r, item, "uri"), type[0] ? ", " : "", type,
             about[0] ? "\n" : "", about);
}

static void take_item(struct render *r, const struct mg_json *item)
{
    struct mg_sv type = mg_json_get_str(r->a, item, "type");
    if (mg_sv_eqz(type, "text"))
        add_text(r, mg_json_get_str(r->a, item, "text"));
    else if (mg_sv_eqz(type, "image"))
        add_image(r, shown(r, item, "mimeType"), mg_json_get_str(r->a, item, "data"));
    else if (mg_sv_eqz(type, "audio"))
        add_binary(r, "audio", shown(r, item, "mimeType"), mg_json_get_str(r->a, item, "data"), "");
    else if (mg_sv_eqz(type, "resource"))
        take_resource(r, item);
    else if (mg_sv_eqz(type, "resource_link"))
        take_link(r, item);
    else
        add_note(r, "[content of the unknown type \"%s\" left out]", shown(r, item, "type"));
}

/* Structured content is shown unless a text says the same, as servers are asked to do. */
static void take_structured(struct render *r, const struct mg_json *s)
{
    struct mg_json *v;
    if (!s || s->type == MG_JSON_NULL)
        return;
    for (int i = 0; i < r->n_blocks; i++)
        if (!r->blocks[i].image && mg_json_parse(r->a, r->blocks[i].text, &mg_json_raw_limits, &v, NULL) == MG_OK &&
            mg_json_equal(r->a, v, s))
            return;
    add_text(r, s->raw);
}

/* ---- the whole ---- */

static size_t text_bytes(const struct render *r)
{
    size_t n = 0;
    for (int i = 0; i < r->n_blocks; i++)
        n += r->blocks[i].text.len;
    return n;
}

/* All texts become one file; its head and tail stay. */
static void fold_texts(struct render *r)
{
    enum { HEAD = MG_MCP_PREVIEW_MAX / 4 * 3, TAIL = MG_MCP_PREVIEW_MAX / 4 };
    mg_auto(buf) struct mg_buf all = MG_BUF_INIT(MG_MCP_CONTENT_MAX);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_MCP_PREVIEW_MAX + NOTE_MAX);
    const char *why = "";
    int kept = 0;
    for (int i = 0; i < r->n_blocks; i++) {
        if (r->blocks[i].image) {
            r->blocks[kept++] = r->blocks[i];
            continue;
        }
        if (all.len)
            (void)mg_buf_str(&all, "\n\n");
        (void)mg_buf_sv(&all, r->blocks[i].text);
    }
    struct mg_sv text = mg_buf_view(&all);
    const char *path = keep_bytes(r, ".txt", text, &why);
    size_t head = mg_utf8_floor(text, HEAD), tail = mg_utf8_ceil(text, text.len - TAIL);
    (void)mg_buf_append(&b, text.ptr, head);
    if (path)
        (void)mg_buf_printf(&b, "\n\n[%zu bytes left out here; the whole text of %zu bytes is in the file %s]\n\n",
                            tail - head, text.len, path);
    else
        (void)mg_buf_printf(&b, "\n\n[%zu bytes left out here of a text of %zu bytes: %s]\n\n", tail - head, text.len,
                            why);
    (void)mg_buf_sv(&b, mg_sv_from(text, tail));
    r->n_blocks = kept;
    r->blocks[r->n_blocks++] = (struct block){.text = mg_arena_sv(r->a, mg_buf_view(&b))};
}

/* PostgreSQL and many clients take no NUL. */
static struct mg_sv without_nul(struct render *r, struct mg_sv text)
{
    if (!memchr(text.ptr, '\0', text.len))
        return text;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(3 * text.len);
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i])
            (void)mg_buf_char(&b, text.ptr[i]);
        else
            (void)mg_buf_str(&b, "\xE2\x90\x80"); /* U+2400 SYMBOL FOR NULL */
    return mg_arena_sv(r->a, mg_buf_view(&b));
}

static void write_block(struct render *r, struct mg_jw *w, const struct block *b)
{
    mg_jw_obj(w);
    mg_jw_kstrz(w, "type", b->image ? "image" : "text");
    if (b->image) {
        mg_jw_key(w, "source");
        mg_jw_obj(w);
        mg_jw_kstrz(w, "type", "base64");
        mg_jw_kstr(w, "media_type", b->media_type);
        mg_jw_kstr(w, "data", b->data);
        mg_jw_obj_end(w);
    } else {
        mg_jw_kstr(w, "text", without_nul(r, b->text));
    }
    mg_jw_obj_end(w);
}

static mg_rc write_all(struct render *r, struct mg_buf *out, struct mg_err *err)
{
    struct mg_jw w = mg_jw_to(out);
    if (r->n_left_out)
        add_note(r, "[%d more content items left out: a result may have %d]", r->n_left_out, MG_MCP_PARTS_MAX);
    if (r->n_blocks == 0)
        add_note(r, "(no output)");
    mg_jw_arr(&w);
    for (int i = 0; i < r->n_blocks; i++)
        write_block(r, &w, &r->blocks[i]);
    mg_jw_arr_end(&w);
    return mg_buf_ok(out) ? MG_OK : mg_err_set(err, MG_ETOOBIG, "the result is over %d bytes", MG_MCP_CONTENT_MAX);
}

static mg_rc take_result(struct render *r, const struct mg_json *result, struct mg_err *err)
{
    const struct mg_json *content = mg_json_get(result, "content"),
                         *structured = mg_json_get(result, "structuredContent");
    if (!mg_json_is(content, MG_JSON_ARRAY) && !structured)
        return mg_err_set(err, MG_EINVAL, "the server's result has no array of content");
    const struct mg_json *item = mg_json_is(content, MG_JSON_ARRAY) ? content->child : NULL;
    for (; item; item = item->next) {
        if (r->n_blocks + 1 >= MG_MCP_PARTS_MAX) /* an item gives at most two blocks */
            r->n_left_out++;
        else
            take_item(r, item);
    }
    take_structured(r, structured);
    if (text_bytes(r) > MG_MCP_INLINE_MAX)
        fold_texts(r);
    return MG_OK;
}

mg_rc mg_mcp_render(struct mg_sv message, mg_mcp_keep_fn *keep, void *ctx, struct mg_buf *out, bool *ret_is_error,
                    struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_rpc m[MG_RPC_BATCH_MAX];
    char text[512];
    int n;
    mg_rc rc = mg_rpc_parse(a, message, m, &n, err);
    if (rc < 0)
        return rc;
    struct render *r = mg_arena_new_of(a, struct render);
    r->a = a;
    r->keep = keep;
    r->ctx = ctx;
    const struct mg_json *is_error = mg_json_get(m[0].body, "isError");
    *ret_is_error = m[0].kind == MG_RPC_ERROR || (mg_json_is(is_error, MG_JSON_BOOL) && is_error->boolean);
    if (m[0].kind == MG_RPC_ERROR) {
        mg_rpc_error_text(a, m[0].body, text, sizeof(text));
        add_note(r, "The MCP server refused the call: %s", text);
    } else {
        rc = take_result(r, m[0].body, err);
    }
    return rc < 0 ? rc : write_all(r, out, err);
}

static const char *keep_nothing(void *ctx, const char *suffix, struct mg_sv bytes, const char **ret_why)
{
    (void)suffix;
    (void)bytes;
    *(bool *)ctx = true;
    *ret_why = "";
    return NULL;
}

bool mg_mcp_wants_files(struct mg_sv message)
{
    bool wants = false, is_error;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(MG_MCP_CONTENT_MAX);
    return mg_mcp_render(message, keep_nothing, &wants, &out, &is_error, NULL) == MG_OK && wants;
}
