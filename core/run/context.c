#include "run/context.h"

#include "run/engine-internal.h"
#include "tools/keep.h"

static void take_marks(struct mg_context *c, struct mg_window *w)
{
    const struct mg_turn_input *in = c->in;
    for (int i = 0; i < in->n_marks; i++) {
        const struct mg_context_mark *m = &in->marks[i];
        bool now = m->turn == in->turn;
        switch (m->kind) {
        case MG_MARK_SUMMARY:
            c->summary = m;
            c->forced = false;
            c->again = now && m->made_at == in->len;
            break;
        case MG_MARK_REFUSED:
            c->forced = true;
            c->again = false;
            c->refusals += now;
            /* What was too long once bounds all that follows: the window is smaller, or the tokens are more, than was thought. */
            if (m->a * 3 / 4 < w->tokens)
                *w = mg_window_of(m->a * 3 / 4 + (w->tokens - w->input_max), w->tokens - w->input_max);
            break;
        case MG_MARK_REPLACED:
            c->replacements += now;
            break;
        }
    }
}

/* Only what clients and tools said is cut to excerpts: the model's own blocks may be signed. */
static struct mg_sv shown(struct mg_context *c, bool assistant, int64_t number, struct mg_sv content)
{
    const struct mg_turn_input *in = c->in;
    for (int i = 0; i < in->n_marks; i++)
        if (in->marks[i].kind == MG_MARK_REPLACED && in->marks[i].a == number)
            content = mg_content_replace(c->a, content, in->marks[i].b, in->marks[i].content);
    return !assistant && c->summary && number < c->summary->b ? mg_content_excerpt(c->a, content) : content;
}

static void add(struct mg_context *c, bool assistant, int64_t number, struct mg_sv content, int64_t measured)
{
    struct mg_context_entry *e = &c->entries[c->n++];
    *e = (struct mg_context_entry){.assistant = assistant, .number = number, .measured = measured};
    e->content = number == MG_CONTEXT_SUMMARY ? content : shown(c, assistant, number, content);
}

void mg_context_build(struct mg_context *c, struct mg_arena *a, const struct mg_turn_input *in,
                      struct mg_sv user_content, int64_t fixed, size_t fixed_bytes, struct mg_window window)
{
    *c = (struct mg_context){.a = a, .in = in, .window = window, .fixed_tokens = (int64_t)fixed_bytes / 3};
    take_marks(c, &c->window);
    c->entries = mg_arena_alloc(a, sizeof(*c->entries) * (size_t)(in->n_rows + 2));
    if (c->summary && c->summary->content.len)
        add(c, false, MG_CONTEXT_SUMMARY, c->summary->content, 0);
    for (int i = 0; i < in->n_rows; i++) {
        int64_t number = in->len - in->n_rows + i;
        const struct mg_transcript_row *r = &in->rows[i];
        /* What was counted before the summary was made counted other things. */
        bool valid = r->tokens > 0 && r->fixed == fixed && (!c->summary || number >= c->summary->made_at);
        add(c, r->assistant, number, r->content, valid ? r->tokens : 0);
    }
    if (user_content.len)
        add(c, false, in->len, user_content, 0);
}

int64_t mg_context_entry_tokens(struct mg_context *c, int i)
{
    struct mg_context_entry *e = &c->entries[i];
    if (e->tokens == 0)
        e->tokens = mg_content_tokens(e->content);
    return e->tokens;
}

int64_t mg_context_tokens(struct mg_context *c, int n)
{
    int64_t sum = 0;
    for (int i = n - 1; i >= 0; i--) {
        if (c->entries[i].measured)
            return sum + c->entries[i].measured;
        sum += mg_context_entry_tokens(c, i);
    }
    return sum + c->fixed_tokens;
}

/* A quarter of what requests may fill, at three bytes a token. */
size_t mg_context_result_max(struct mg_window w)
{
    size_t part = (size_t)w.input_max / 4 * 3;
    return part < MG_RESULT_INLINE_MAX ? part : MG_RESULT_INLINE_MAX;
}

size_t mg_engine_result_max(const struct mg_engine *e)
{
    const struct mg_engine_opts *o = &e->opts;
    struct mg_sv model = mg_sv_of(o->model_id ? o->model_id : "");
    return mg_context_result_max(
        mg_window_of(o->model_window ? o->model_window : mg_model_window(model), o->max_tokens));
}
