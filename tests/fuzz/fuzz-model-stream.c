/* The fold of a Messages stream, past the event parser: each line is one event's data. Whatever a model sends, what
 * goes into the transcript is legal JSON, a tool input is a whole object or nothing, and the previews say what the
 * block says. */
#include "fuzz/fuzz.h"
#include "json/json.h"
#include "model/message.h"

enum { PREVIEWS = 8 /* blocks whose previews are compared */ };

struct seen {
    struct mg_buf text[PREVIEWS];
};

static void on_delta(void *ctx, int index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct seen *s = ctx;
    (void)start;
    if (index < PREVIEWS && kind == MG_BLOCK_TEXT)
        mg_buf_sv(&s->text[index], text);
}

static bool is_legal(struct mg_sv raw, char first)
{
    return raw.len > 0 && raw.ptr[0] == first && mg_json_check(raw, MG_MODEL_TEXT_DEPTH, NULL) == MG_OK;
}

static void check_block(const struct mg_model_block *b, const struct seen *s, int i)
{
    fuzz_check(is_legal(b->raw, '{'), "a block is a JSON object");
    fuzz_check((b->kind == MG_BLOCK_TEXT) == (b->text.len > 0), "a text block has a text");
    fuzz_check(b->text.len == 0 || is_legal(b->text, '"'), "a text is a JSON string");
    fuzz_check(b->tool_input.len == 0 || is_legal(b->tool_input, '{'), "a tool input is a JSON object");
    fuzz_check(b->kind != MG_BLOCK_TOOL_USE || (b->tool_id.len > 0 && b->tool_name.len > 0),
               "a call has an id and a name");
    if (s && b->kind == MG_BLOCK_TEXT && i < PREVIEWS)
        fuzz_check(mg_sv_eq(mg_buf_view(&s->text[i]), mg_sv_n(b->text.ptr + 1, b->text.len - 2)),
                   "the previews say what the block says");
}

static void check_result(struct mg_model_result *r, const struct seen *s)
{
    fuzz_check((r->fail == MG_MODEL_OK) == (r->message[0] == '\0'), "a failure has a message");
    fuzz_check(r->fail != MG_MODEL_OK || r->stop_reason[0] != '\0', "success has a stop reason");
    for (int i = 0; i < r->n_blocks; i++)
        check_block(&r->blocks[i], r->fail == MG_MODEL_OK ? s : NULL,
                    i); /* a delta that fails half-way shows nothing */
    fuzz_check(r->usage.input_tokens >= 0 && r->usage.output_tokens >= 0, "usage is not negative");
    mg_model_result_free(r);
}

static void reset(struct seen *s)
{
    for (int i = 0; i < PREVIEWS; i++) {
        mg_buf_done(&s->text[i]);
        s->text[i] = MG_BUF_INIT(1 << 20);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_sv rest = fuzz_text(data, size);
    struct seen s = {0};
    reset(&s);
    struct mg_message *m = mg_message_new(on_delta, &s);
    while (rest.len > 0)
        (void)mg_message_event(m, mg_sv_split(&rest, '\n'));
    check_result(mg_message_finish(m), &s);
    reset(&s);
    m = mg_message_new(on_delta, &s);
    (void)mg_message_whole(m, fuzz_text(data, size));
    check_result(mg_message_finish(m), &s);
    reset(&s);
    for (int i = 0; i < PREVIEWS; i++)
        mg_buf_done(&s.text[i]);
    return 0;
}
