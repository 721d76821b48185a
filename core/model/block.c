#include "model/block.h"

#include "json/write.h"
#include "model/message.h"

enum {
    PIECES_MAX = 8, /* members of one block that deltas extend; known blocks have at most two */
};

enum piece_kind { PIECE_STRING, PIECE_ITEMS, PIECE_VALUE, PIECE_INPUT };

/* A member of the block that deltas extend. */
struct piece {
    enum piece_kind kind;
    struct mg_sv name;
    struct mg_buf
        text; /* STRING: escaped characters; ITEMS: values with commas between; VALUE: one value; INPUT: as STRING */
};

struct mg_open_block {
    struct mg_arena *arena; /* the result's */
    enum mg_block_kind kind;
    struct mg_sv start; /* the block as it was announced */
    struct mg_sv tool_id, tool_name;
    bool stopped;
    int n_pieces;
    struct piece pieces[PIECES_MAX];
};

/* Where a finished piece goes: over the old value, or as a new member when old is empty. */
struct edit {
    struct mg_sv old, name, text;
};

struct mg_sv mg_raw_inner(struct mg_sv raw)
{
    if (raw.len < 2 || raw.ptr[0] != '"')
        return MG_SV("");
    return mg_sv_n(raw.ptr + 1, raw.len - 2);
}

static enum mg_block_kind kind_of(struct mg_arena *scratch, const struct mg_json *block)
{
    struct mg_sv type = mg_json_get_str(scratch, block, "type");
    const struct mg_json *text = mg_json_get(block, "text");
    if (mg_sv_eqz(type, "text") && (!text || text->type == MG_JSON_STRING))
        return MG_BLOCK_TEXT;
    if (mg_sv_eqz(type, "thinking"))
        return MG_BLOCK_THINKING;
    return mg_sv_eqz(type, "tool_use") ? MG_BLOCK_TOOL_USE : MG_BLOCK_OTHER;
}

struct mg_open_block *mg_open_block_new(struct mg_arena *arena, struct mg_arena *scratch, const struct mg_json *block,
                                        const char **ret_problem)
{
    if (!mg_json_is(block, MG_JSON_OBJECT) || mg_json_get_str(scratch, block, "type").len == 0) {
        *ret_problem = "a content block that is not an object with a type";
        return NULL;
    }
    struct mg_sv id = mg_json_get_str(scratch, block, "id"), name = mg_json_get_str(scratch, block, "name");
    enum mg_block_kind kind = kind_of(scratch, block);
    if (kind == MG_BLOCK_TOOL_USE && (id.len == 0 || name.len == 0)) {
        *ret_problem = "a tool_use without an id or a name";
        return NULL;
    }
    struct mg_open_block *b = mg_xcalloc(1, sizeof(*b));
    b->arena = arena;
    b->kind = kind;
    b->start = mg_arena_sv(arena, block->raw);
    if (kind == MG_BLOCK_TOOL_USE) {
        b->tool_id = mg_arena_sv(arena, id);
        b->tool_name = mg_arena_sv(arena, name);
    }
    return b;
}

void mg_open_block_free(struct mg_open_block *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n_pieces; i++)
        mg_buf_done(&b->pieces[i].text);
    free(b);
}

enum mg_block_kind mg_open_block_kind(const struct mg_open_block *b)
{
    return b->kind;
}

struct mg_sv mg_open_block_tool_id(const struct mg_open_block *b)
{
    return b->tool_id;
}

void mg_open_block_stop(struct mg_open_block *b)
{
    b->stopped = true;
}

/* NULL when there is no room, or the member was extended in another manner before. */
static struct piece *piece_for(struct mg_open_block *b, struct mg_sv name, enum piece_kind kind)
{
    for (int i = 0; i < b->n_pieces; i++) {
        if (mg_sv_eq(b->pieces[i].name, name))
            return b->pieces[i].kind == kind ? &b->pieces[i] : NULL;
    }
    if (b->n_pieces == PIECES_MAX)
        return NULL;
    struct piece *p = &b->pieces[b->n_pieces++];
    p->kind = kind;
    p->name = mg_arena_sv(b->arena, name);
    p->text = MG_BUF_INIT(MG_MODEL_RESPONSE_MAX);
    return p;
}

/* What the kind of a block makes of a member: its text stays a text, a call keeps its names, and its input comes as partial_json only. */
static bool may_extend(const struct mg_open_block *b, struct mg_sv name, enum piece_kind kind)
{
    if (memchr(name.ptr, 0, name.len)) /* it would make two names one when they are looked up */
        return false;
    switch (b->kind) {
    case MG_BLOCK_TEXT:
        return kind == PIECE_STRING || !mg_sv_eqz(name, "text");
    case MG_BLOCK_THINKING:
        return kind == PIECE_STRING || !(mg_sv_eqz(name, "thinking") || mg_sv_eqz(name, "signature"));
    case MG_BLOCK_TOOL_USE:
        return kind == PIECE_INPUT || !(mg_sv_eqz(name, "input") || mg_sv_eqz(name, "id") || mg_sv_eqz(name, "name"));
    case MG_BLOCK_OTHER:
        break;
    }
    return true;
}

static const char *fold_member(struct mg_open_block *b, struct mg_sv name, const struct mg_json *v)
{
    enum piece_kind kind = v->type == MG_JSON_STRING ? PIECE_STRING : PIECE_VALUE;
    if (kind == PIECE_STRING && mg_sv_eqz(name, "partial_json")) {
        kind = PIECE_INPUT;
        name = MG_SV("input");
    } else if (mg_sv_eqz(name, "citation")) {
        kind = PIECE_ITEMS;
        name = MG_SV("citations");
    }
    struct piece *p = may_extend(b, name, kind) ? piece_for(b, name, kind) : NULL;
    if (!p)
        return "a delta that does not fit its block";
    if (kind == PIECE_VALUE)
        mg_buf_reset(&p->text);
    if (kind == PIECE_ITEMS && p->text.len > 0)
        mg_buf_char(&p->text, ',');
    mg_buf_sv(&p->text, v->type == MG_JSON_STRING && kind != PIECE_ITEMS ? mg_raw_inner(v->raw) : v->raw);
    return mg_buf_ok(&p->text) ? NULL : "a block over the size limit";
}

const char *mg_open_block_delta(struct mg_open_block *b, struct mg_arena *scratch, const struct mg_json *delta)
{
    (void)scratch;
    if (!mg_json_is(delta, MG_JSON_OBJECT))
        return "a delta that is not an object";
    if (b->stopped)
        return "a delta behind its block's end";
    for (const struct mg_json *v = delta->child; v; v = v->next) {
        if (mg_sv_eqz(v->key, "type"))
            continue;
        const char *problem = fold_member(b, v->key, v);
        if (problem)
            return problem;
    }
    return NULL;
}

/* The text between the brackets of a raw array, without outer white space; empty for anything else. */
static struct mg_sv array_inner(const struct mg_json *v)
{
    if (!v || v->type != MG_JSON_ARRAY)
        return MG_SV("");
    return mg_sv_trim(mg_sv_n(v->raw.ptr + 1, v->raw.len - 2));
}

static bool is_object_text(struct mg_sv text)
{
    return text.len > 0 && text.ptr[0] == '{' && mg_json_check(text, MG_MODEL_TEXT_DEPTH, NULL) == MG_OK;
}

/* The tool input that the deltas spell, decoded as a whole: an escape may be cut between two of them. Empty view when
 * it is not one whole object. */
static struct mg_sv join_input(struct mg_arena *arena, struct mg_arena *scratch, const struct piece *p)
{
    struct mg_sv quoted = mg_arena_printf(scratch, "\"%.*s\"", MG_SV_ARG(mg_buf_view(&p->text)));
    struct mg_json *v = NULL;
    if (mg_json_parse(scratch, quoted, &mg_json_raw_limits, &v, NULL) < 0 || v->type != MG_JSON_STRING)
        return MG_SV("");
    struct mg_sv text = mg_sv_trim(mg_json_str(scratch, v));
    return is_object_text(text) ? mg_arena_sv(arena, text) : MG_SV("");
}

static struct mg_sv join_piece(struct mg_arena *scratch, const struct piece *p, const struct mg_json *old)
{
    struct mg_sv text = mg_buf_view(&p->text);
    if (p->kind == PIECE_VALUE)
        return text;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SIZE_MAX / 4); /* both halves are bounded by the answer's size */
    struct mg_sv before = p->kind == PIECE_ITEMS ? array_inner(old) : old ? mg_raw_inner(old->raw) : MG_SV("");
    mg_buf_char(&b, p->kind == PIECE_ITEMS ? '[' : '"');
    mg_buf_sv(&b, before);
    if (p->kind == PIECE_ITEMS && before.len > 0 && text.len > 0)
        mg_buf_char(&b, ',');
    mg_buf_sv(&b, text);
    mg_buf_char(&b, p->kind == PIECE_ITEMS ? ']' : '"');
    return mg_arena_sv(scratch, mg_buf_view(&b));
}

/* Keeps the edits in the order of the places that they replace; new members come last. */
static void add_edit(struct edit *edits, int *n, struct edit e)
{
    int at = (*n)++;
    while (at > 0 && e.old.len > 0 && (edits[at - 1].old.len == 0 || edits[at - 1].old.ptr > e.old.ptr)) {
        edits[at] = edits[at - 1];
        at--;
    }
    edits[at] = e;
}

static struct mg_sv splice(struct mg_arena *arena, struct mg_sv start, const struct edit *edits, int n)
{
    if (n == 0)
        return start;
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SIZE_MAX / 4);
    const char *from = start.ptr, *brace = start.ptr + start.len - 1;
    bool empty = mg_sv_trim(mg_sv_n(start.ptr + 1, start.len - 2)).len == 0;
    for (int i = 0; i < n; i++) {
        const struct edit *e = &edits[i];
        const char *to = e->old.len > 0 ? e->old.ptr : brace;
        mg_buf_append(&b, from, (size_t)(to - from));
        from = e->old.len > 0 ? to + e->old.len : brace;
        if (e->old.len == 0) {
            mg_buf_printf(&b, "%s\"", empty ? "" : ",");
            mg_json_escape(&b, e->name);
            mg_buf_str(&b, "\":");
        }
        mg_buf_sv(&b, e->text);
    }
    mg_buf_append(&b, from, (size_t)(start.ptr + start.len - from));
    return mg_arena_sv(arena, mg_buf_view(&b));
}

/* The raw value of TOOL_USE's input and the edit that puts it there. A cut input is not run: the block then keeps the
 * object that it was announced with, so that the transcript stays legal. */
static struct mg_sv close_input(struct mg_open_block *b, struct mg_arena *arena, struct mg_arena *scratch,
                                const struct mg_json *old, const struct piece *p, bool last_of_cut, struct edit *edits,
                                int *n)
{
    bool spelled = p && mg_sv_trim(mg_buf_view(&p->text)).len > 0;
    struct mg_sv input = MG_SV("");
    if (spelled)
        input = join_input(arena, scratch, p);
    else if (mg_json_is(old, MG_JSON_OBJECT) && !last_of_cut)
        input = mg_arena_sv(arena, old->raw);
    if (spelled && input.len > 0)
        add_edit(edits, n, (struct edit){old ? old->raw : MG_SV(""), MG_SV("input"), input});
    else if (!mg_json_is(old, MG_JSON_OBJECT))
        add_edit(edits, n, (struct edit){old ? old->raw : MG_SV(""), MG_SV("input"), MG_SV("{}")});
    return b->stopped ? input : MG_SV("");
}

struct mg_model_block mg_open_block_close(struct mg_open_block *b, struct mg_arena *arena, bool last_of_cut)
{
    mg_auto(arena) struct mg_arena *scratch = mg_arena_new();
    struct mg_model_block out = {.kind = b->kind, .raw = b->start, .tool_id = b->tool_id, .tool_name = b->tool_name};
    struct mg_json *start = NULL;
    if (mg_json_parse(scratch, b->start, &mg_json_raw_limits, &start, NULL) < 0)
        return out; /* cannot be: it was parsed before */
    struct edit edits[PIECES_MAX + 1];
    const struct piece *input = NULL;
    int n = 0;
    for (int i = 0; i < b->n_pieces; i++) {
        const struct piece *p = &b->pieces[i];
        const struct mg_json *old = mg_json_get(start, p->name.ptr);
        if (p->kind == PIECE_INPUT)
            input = p;
        else
            add_edit(edits, &n, (struct edit){old ? old->raw : MG_SV(""), p->name, join_piece(scratch, p, old)});
    }
    const struct mg_json *text = mg_json_get(start, "text");
    if (b->kind == MG_BLOCK_TEXT)
        out.text = text ? text->raw : MG_SV("\"\"");
    for (int i = 0; i < n && b->kind == MG_BLOCK_TEXT; i++) {
        if (mg_sv_eqz(edits[i].name, "text"))
            out.text = mg_arena_sv(arena, edits[i].text);
    }
    if (b->kind == MG_BLOCK_TOOL_USE || input)
        out.tool_input = close_input(b, arena, scratch, mg_json_get(start, "input"), input, last_of_cut, edits, &n);
    out.raw = splice(arena, b->start, edits, n);
    return out;
}
