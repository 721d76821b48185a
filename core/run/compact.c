#include "run/compact.h"

#include "base/utf8.h"
#include "json/json.h"
#include "json/write.h"
#include "model/model.h"
#include "run/turn.h"

enum {
    SUMMARY_BYTES_MAX = 256 * 1024, /* of the block that stands for what went: an answer's own limit is far below */
    EXTRACT_MAX = 12000,            /* bytes of an extract (CX3) */
    USER_SNIPPET = 360,             /* bytes of an extract's entry */
    MODEL_SNIPPET = 240,
    LAST_WORDS = 4000,     /* bytes of the user's last words, which are kept as they were said */
    QUESTION_TOKENS = 400, /* what asks for the summary, estimated */
    SUMMARY_MIN = 512,     /* tokens of a summary */
    SUMMARY_MAX = 4096,
};

static const char question[] =
    "The conversation so far is about to be left out of your context to make room. Write the notes from which you will "
    "go on: they are all that you will still know of it. Keep, word for word where it matters: what the user asked "
    "for, "
    "with every later correction, constraint and preference; facts, names, numbers, ids, paths, URLs and values that "
    "were "
    "stated; what was decided and why; what was done, which files were read or changed and how; what failed; what is "
    "open "
    "and what comes next. Earlier notes at the beginning count as part of the conversation: carry over what they say. "
    "Do "
    "not call a tool and do not answer the user. Write the notes only.";

struct mg_sv mg_compact_question(void)
{
    static char text[sizeof(question) + 64];
    static const char front[] = "[{\"type\":\"text\",\"text\":\"", back[] = "\"}]";
    _Static_assert(sizeof(front) + sizeof(back) < 64, "room around the question");
    size_t n = 0;
    memcpy(text, front, sizeof(front) - 1);
    n += sizeof(front) - 1;
    memcpy(text + n, question, sizeof(question) - 1);
    n += sizeof(question) - 1;
    memcpy(text + n, back, sizeof(back) - 1);
    return mg_sv_n(text, n + sizeof(back) - 1);
}

/* ---- the plan ---- */

/* Whether a context may begin with entry i: a user's own words, or an answer whose question is told. Calls stay with their results, and the parts
 * of one message together. */
static bool may_begin(const struct mg_context *c, int i)
{
    const struct mg_context_entry *e = &c->entries[i];
    if (i == 0)
        return false;
    if (e->assistant)
        return !c->entries[i - 1].assistant;
    return !mg_content_has(c->a, e->content, "tool_result");
}

/* Entries of the newest summary do not count as something to tell again. */
static int first_new(const struct mg_context *c)
{
    return c->n > 0 && c->entries[0].number == MG_CONTEXT_SUMMARY ? 2 : 1;
}

/* The first entry of the tail that stays: the longest one within the budget, and never less than the newest that can stand alone. */
static int choose(struct mg_context *c, int64_t budget)
{
    int best = 0;
    int64_t sum = 0;
    for (int i = c->n - 1; i >= first_new(c); i--) {
        sum += mg_context_entry_tokens(c, i);
        if (best && sum > budget)
            break;
        if (may_begin(c, i))
            best = i;
    }
    return best;
}

static bool excerpts_help(struct mg_context *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct mg_context_entry *e = &c->entries[i];
        if (!e->assistant && e->number != MG_CONTEXT_SUMMARY &&
            mg_content_excerpt(c->a, e->content).len < e->content.len)
            return true;
    }
    return false;
}

static int64_t told_by(const struct mg_context *c, int n)
{
    return c->entries[n].number;
}

/* Whether the first n entries can be read by the model once more, with the question behind them. */
static bool can_be_asked(struct mg_context *c, int n, int64_t summary_max)
{
    return mg_context_tokens(c, n) + QUESTION_TOKENS + summary_max <= c->window.tokens;
}

/* Estimates are on the safe side: a request that is a little over may fit all the same, and the endpoint's refusal is cheap. Where even five bytes to a
 * token are too many, it would be refused for sure. */
static bool surely_over(int64_t estimate, int64_t limit)
{
    return estimate / 5 * 3 > limit;
}

/* The context that is left when the first n entries are told by a summary. */
static int64_t left_of(struct mg_context *c, int n)
{
    int64_t sum = c->fixed_tokens + SUMMARY_MAX;
    for (int i = n; i < c->n; i++)
        sum += mg_context_entry_tokens(c, i);
    return sum;
}

/* Where the model cannot read all that should go, less of it may still make enough room; 0: an extract must do. */
static int choose_askable(struct mg_context *c, int best, int64_t summary_max)
{
    for (int i = best; i >= first_new(c); i--)
        if (may_begin(c, i) && can_be_asked(c, i, summary_max))
            return i == best || left_of(c, i) <= c->window.input_max ? i : 0;
    return 0;
}

struct mg_compact mg_compact_plan(struct mg_context *c)
{
    struct mg_compact p = {.how = MG_COMPACT_NOT, .before = mg_context_tokens(c, c->n)};
    bool over = p.before > c->window.trigger;
    if (!c->forced && !over)
        return p;
    p.summary_max = c->window.tokens / 8;
    p.summary_max = p.summary_max < SUMMARY_MIN   ? SUMMARY_MIN
                    : p.summary_max > SUMMARY_MAX ? SUMMARY_MAX
                                                  : p.summary_max;
    if (p.summary_max > c->window.tokens - c->window.input_max)
        p.summary_max = c->window.tokens - c->window.input_max;
    p.n = c->again ? 0 : choose(c, c->window.trigger / (c->forced ? 8 : 4));
    if (p.n > 0) {
        int asked = choose_askable(c, p.n, p.summary_max);
        p.n = asked ? asked : p.n;
        p.how =
            asked || !surely_over(mg_context_tokens(c, p.n), c->window.tokens) ? MG_COMPACT_ASK : MG_COMPACT_EXTRACT;
        p.upto = told_by(c, p.n);
        /* What stays may be too long by itself. */
        p.excerpts = surely_over(left_of(c, p.n), c->window.input_max) ? c->in->len + 1
                     : c->summary                                      ? c->summary->b
                                                                       : 0;
        return p;
    }
    if ((c->forced || surely_over(p.before, c->window.input_max)) && excerpts_help(c)) {
        p.how = MG_COMPACT_EXCERPT;
        p.upto = c->summary ? c->summary->a : 0;
        p.excerpts = c->in->len + 1; /* the turn's input has the number len */
    }
    return p;
}

/* ---- the summary ---- */

struct mg_sv mg_compact_notes(struct mg_arena *a, const struct mg_model_result *res)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(SUMMARY_BYTES_MAX);
    for (int i = 0; i < res->n_blocks; i++) {
        const struct mg_model_block *x = &res->blocks[i];
        if (x->kind != MG_BLOCK_TEXT || x->text.len <= 2)
            continue;
        (void)mg_buf_str(&b, b.len ? "\\n" : "\"");
        (void)mg_buf_append(&b, x->text.ptr + 1, x->text.len - 2);
    }
    if (b.len == 0)
        return MG_SV("");
    (void)mg_buf_char(&b, '"');
    return mg_buf_ok(&b) ? mg_arena_sv(a, mg_buf_view(&b)) : MG_SV("");
}

/* The texts of an entry's own blocks, joined and cut. */
static void put_snippet(struct mg_context *c, const struct mg_context_entry *e, size_t max, struct mg_buf *out)
{
    struct mg_json *v = NULL;
    size_t start = out->len;
    if (mg_json_parse(c->a, e->content, &mg_json_raw_limits, &v, NULL) < 0)
        return;
    for (const struct mg_json *b = v->child; b && out->len - start < max; b = b->next) {
        struct mg_sv type = mg_json_get_str(c->a, b, "type"), text = mg_json_get_str(c->a, b, "text");
        if (mg_sv_eqz(type, "tool_use"))
            text = mg_arena_printf(c->a, "(called %.*s)", MG_SV_ARG(mg_json_get_str(c->a, b, "name")));
        else if (!mg_sv_eqz(type, "text"))
            continue;
        size_t room = max - (out->len - start);
        (void)mg_buf_sv(out, mg_sv_n(text.ptr, mg_utf8_floor(text, room)));
        (void)mg_buf_str(out, text.len > room ? "..." : " ");
    }
}

/* The first and the newest entries in a line each, as far as there is room. */
static void put_extract(struct mg_context *c, int n, struct mg_buf *out)
{
    enum { FRONT = EXTRACT_MAX / 3 };
    mg_auto(buf) struct mg_buf line = MG_BUF_INIT(EXTRACT_MAX);
    int i = 0, from = n;
    size_t used = 0;
    for (; i < n && out->len < FRONT; i++) {
        (void)mg_buf_str(out, c->entries[i].assistant ? "\nassistant: " : "\nuser: ");
        put_snippet(c, &c->entries[i], c->entries[i].number == MG_CONTEXT_SUMMARY ? FRONT : USER_SNIPPET, out);
    }
    for (; from > i && used < EXTRACT_MAX - FRONT; used += USER_SNIPPET + 16)
        from--;
    if (from > i)
        (void)mg_buf_printf(out, "\n[%d entries left out]", from - i);
    for (int k = from > i ? from : i; k < n; k++) {
        mg_buf_reset(&line);
        put_snippet(c, &c->entries[k], c->entries[k].assistant ? MODEL_SNIPPET : USER_SNIPPET, &line);
        if (line.len)
            (void)mg_buf_printf(out, "\n%s: %s", c->entries[k].assistant ? "assistant" : "user", line.ptr);
    }
}

static bool is_words(struct mg_context *c, int i)
{
    const struct mg_context_entry *e = &c->entries[i];
    return !e->assistant && e->number != MG_CONTEXT_SUMMARY && mg_content_has(c->a, e->content, "text") &&
           !mg_content_has(c->a, e->content, "tool_result");
}

/* The last thing that a user said, where it is among the first n entries: the present turn is about it. */
static void put_last_words(struct mg_context *c, int n, struct mg_buf *out)
{
    for (int i = c->n - 1; i >= 0; i--) {
        if (!is_words(c, i))
            continue;
        if (i < n) {
            (void)mg_buf_str(out, "\n\nThe user's last words before this point:\n");
            put_snippet(c, &c->entries[i], LAST_WORDS, out);
        }
        return;
    }
}

struct mg_sv mg_compact_summary(struct mg_context *c, int n, struct mg_sv notes)
{
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(SUMMARY_BYTES_MAX), tail = MG_BUF_INIT(SUMMARY_BYTES_MAX);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(2 * SUMMARY_BYTES_MAX);
    (void)mg_buf_str(&b,
                     "[{\"type\":\"text\",\"text\":\"<conversation-notes>\\nThe earlier part of this conversation was "
                     "left out to make room. These notes stand for it:\\n\\n");
    if (notes.len > 2)
        (void)mg_buf_append(&b, notes.ptr + 1, notes.len - 2);
    else
        put_extract(c, n, &text);
    mg_json_escape(&b, mg_buf_view(&text));
    put_last_words(c, n, &tail);
    mg_json_escape(&b, mg_buf_view(&tail));
    (void)mg_buf_str(&b, "\\n</conversation-notes>\"}]");
    return mg_arena_sv(c->a, mg_buf_view(&b));
}

mg_rc mg_compact_commit(struct mg_step *s, const struct mg_compact *p, struct mg_sv content, struct mg_err *err)
{
    const struct mg_context_mark m = {
        .kind = MG_MARK_SUMMARY,
        .made_at = s->st.transcript_len,
        .turn = s->st.turn_trigger,
        .a = p->upto,
        .b = p->excerpts,
        .content = content,
    };
    mg_step_event(s, MG_EV_AGENT_CONTEXT_COMPACTED, MG_SV(""), true);
    return mg_context_mark_add(s->arena, s->t, &s->st.session, &s->st.thread, &m, err);
}
