/* Model stream: how the bytes are cut makes no difference, and no stream breaks the fold. The first byte says where to cut. */
#include "fuzz/fuzz.h"
#include "model/message.h"
#include "net/sse-parse.h"

enum { LINE_MAX_BYTES = 4096 };

struct seen {
    struct mg_message *message;
    uint64_t hash;
    int n;
};

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    struct seen *s = ctx;
    s->n++;
    for (size_t i = 0; i < name.len + data.len; i++)
        s->hash = (s->hash ^ (uint8_t)(i < name.len ? name.ptr[i] : data.ptr[i - name.len])) * 0x100000001b3u;
    s->hash = (s->hash ^ name.len) * 0x100000001b3u;
    return mg_message_event(s->message, data) != MG_MESSAGE_END;
}

static mg_rc feed(struct mg_sv text, size_t step, struct seen *s)
{
    struct mg_sse p;
    struct mg_err err = {0};
    mg_rc rc = MG_OK;
    s->message = mg_message_new(NULL, NULL);
    mg_sse_init(&p, LINE_MAX_BYTES, on_event, s);
    for (size_t at = 0; at < text.len && rc == MG_OK; at += step)
        rc = mg_sse_feed(&p, text.ptr + at, text.len - at < step ? text.len - at : step, &err);
    mg_sse_done(&p);
    mg_model_result_free(mg_message_finish(s->message));
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct mg_sv text = fuzz_text(data + 1, size - 1);
    struct seen whole = {0}, cut = {0};
    mg_rc a = feed(text, text.len, &whole), b = feed(text, (size_t)data[0] % 16 + 1, &cut);
    fuzz_check(a == b && whole.n == cut.n && whole.hash == cut.hash, "the cuts make no difference");
    struct mg_message *m = mg_message_new(NULL, NULL);
    (void)mg_message_whole(m, text);
    mg_model_result_free(mg_message_finish(m));
    return 0;
}
