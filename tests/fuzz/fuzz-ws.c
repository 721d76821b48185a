/* WebSocket: frames of a client, cut in two ways, and the commands in them. */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "http/ws-command.h"
#include "http/ws-frame.h"

enum { MESSAGE_MAX_BYTES = 65536 };

struct seen {
    int messages, controls, bad;
};

static void on_message(struct mg_sv text)
{
    struct mg_arena *a = mg_arena_new();
    struct mg_ws_command c = {0};
    struct mg_err err = {0};
    fuzz_check_err(mg_ws_command_parse(a, text, &c, &err), &err);
    mg_arena_free(a);
}

static void feed(struct mg_sv in, size_t step, struct seen *s)
{
    struct mg_frame f;
    mg_frame_init(&f, MESSAGE_MAX_BYTES);
    for (size_t at = 0; at < in.len && !s->bad;) {
        size_t used = 0;
        struct mg_sv piece = mg_sv_n(in.ptr + at, in.len - at < step ? in.len - at : step);
        enum mg_frame_result r = mg_frame_feed(&f, piece, &used);
        fuzz_check(used <= piece.len, "no more is used than was given");
        if (r == MG_FRAME_MESSAGE) {
            s->messages++;
            on_message(mg_buf_view(&f.message));
            mg_buf_reset(&f.message);
        }
        s->controls += r == MG_FRAME_CONTROL;
        if (r == MG_FRAME_CONTROL)
            (void)mg_frame_close_code(&f);
        s->bad = r == MG_FRAME_BAD;
        fuzz_check(r != MG_FRAME_BAD || (f.close_code >= 1000 && f.why), "a bad frame has a closing code");
        fuzz_check(used > 0 || r != MG_FRAME_MORE, "the frames go on");
        at += used;
    }
    mg_frame_done(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_sv in = fuzz_text(data, size);
    struct seen whole = {0}, bytes = {0};
    feed(in, in.len ? in.len : 1, &whole);
    feed(in, 1, &bytes);
    fuzz_check(whole.messages == bytes.messages && whole.controls == bytes.controls, "the cuts make no difference");
    on_message(in);
    return 0;
}
