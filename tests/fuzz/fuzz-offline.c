/* The offline model: any request body, and any user text, gets a stream that the client understands; the same one
 * each time. */
#include "fuzz/fuzz.h"
#include "json/json.h"
#include "json/write.h"
#include "model/failure.h"
#include "model/message.h"
#include "model/offline.h"
#include "net/retry-after.h"
#include "net/sse-parse.h"

enum { ANSWER_MAX = 4 * 1024 * 1024 };

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    return mg_message_event(ctx, data) != MG_MESSAGE_END;
}

static void ask(struct mg_sv body, bool must_answer)
{
    struct mg_buf a = MG_BUF_INIT(ANSWER_MAX), b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_message *m = mg_message_new(NULL, NULL);
    struct mg_sse sse;
    fuzz_check(mg_offline_answer(body, &a) == mg_offline_answer(body, &b) && mg_sv_eq(mg_buf_view(&a), mg_buf_view(&b)),
               "the answer is the same again");
    mg_sse_init(&sse, ANSWER_MAX, on_event, m);
    if (a.len > 0)
        (void)!mg_sse_feed(&sse, a.ptr, a.len, NULL);
    struct mg_model_result *r = mg_message_finish(m);
    fuzz_check(r->fail != MG_MODEL_RETRY_SERVER, "the stream is whole");
    fuzz_check(!must_answer || r->fail == MG_MODEL_OK, "a legal request is answered");
    for (int i = 0; i < r->n_blocks && must_answer; i++)
        fuzz_check(r->blocks[i].kind != MG_BLOCK_TOOL_USE || r->blocks[i].tool_input.len > 0, "a call has its input");
    mg_model_result_free(r);
    mg_sse_done(&sse);
    mg_buf_done(&a);
    mg_buf_done(&b);
}

static void ask_text(struct mg_sv text)
{
    static const char tools[] = "[{\"name\":\"bash\"},{\"name\":\"read\"},{\"name\":\"write\"},{\"name\":\"edit\"},{"
                                "\"name\":\"glob\"},{\"name\":\"grep\"}]";
    struct mg_buf b = MG_BUF_INIT(ANSWER_MAX);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kraw(&w, "tools", mg_sv_of(tools));
    mg_jw_key(&w, "messages");
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "role", "user");
    mg_jw_kstr(&w, "content", text);
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    ask(mg_buf_view(&b), true);
    mg_buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mg_sv text = fuzz_text(data, size);
    char shown[64];
    ask(text, false);
    ask_text(text);
    mg_model_clean(shown, sizeof(shown), text, MG_SV("secret-word"));
    fuzz_check(strlen(shown) < sizeof(shown) && !strstr(shown, "secret-word"), "messages hold no secret");
    (void)mg_retry_after_ms(text, 0, UINT32_MAX);
    return 0;
}
