/* The fold of a Messages stream. */
#include "unit.h"

#include "base/mem.h"
#include "json/json.h"
#include "model/message.h"

#define START "{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}"
#define BLOCK(i, b) "{\"type\":\"content_block_start\",\"index\":" #i ",\"content_block\":" b "}"
#define DELTA(i, d) "{\"type\":\"content_block_delta\",\"index\":" #i ",\"delta\":" d "}"
#define STOP(i) "{\"type\":\"content_block_stop\",\"index\":" #i "}"
#define END(reason) \
    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" reason "\"},\"usage\":{\"output_tokens\":5}}"
#define FIN "{\"type\":\"message_stop\"}"
#define TEXT(i, t) DELTA(i, "{\"type\":\"text_delta\",\"text\":\"" t "\"}")
#define INPUT(i, t) DELTA(i, "{\"type\":\"input_json_delta\",\"partial_json\":\"" t "\"}")
#define TOOL "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"bash\",\"input\":{}}"

static struct mg_buf deltas = MG_BUF_INIT(1 << 20);

static void on_delta(void *ctx, int index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    (void)ctx;
    mg_buf_printf(&deltas, "%d:%d:%d:%.*s|", index, (int)kind, start, MG_SV_ARG(text));
}

static struct mg_model_result *fold(const char *const *events)
{
    struct mg_message *m = mg_message_new(on_delta, NULL);
    mg_buf_reset(&deltas);
    for (; *events; events++)
        (void)mg_message_event(m, mg_sv_of(*events));
    return mg_message_finish(m);
}
#define FOLD(...) fold((const char *const[]){__VA_ARGS__, NULL})

static void text_deltas_are_joined_as_they_are_spelled(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"A\",\"x\":0.10,\"y\":{\"z\":[1, 2]}}"), TEXT(0, "b\\u00e9"),
             TEXT(0, "\\ud83d"), TEXT(0, "\\ude00\\/\\n"), STOP(0), END("end_turn"), FIN);
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_string_equal(r->stop_reason, "end_turn");
    assert_sv_equal(r->blocks[0].raw,
                    "{\"type\":\"text\",\"text\":\"Ab\\u00e9\\ud83d\\ude00\\/\\n\",\"x\":0.10,\"y\":{\"z\":[1, 2]}}");
    assert_sv_equal(r->blocks[0].text, "\"Ab\\u00e9\\ud83d\\ude00\\/\\n\"");
    assert_string_equal(deltas.ptr, "0:0:1:A|0:0:0:b\\u00e9|0:0:0:\\ud83d|0:0:0:\\ude00\\/\\n|");
    assert_int_equal(r->usage.input_tokens, 10);
    assert_int_equal(r->usage.output_tokens, 5);
    mg_model_result_free(r);
}

static void thinking_keeps_its_signature_and_its_place(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"),
             DELTA(0, "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}"),
             DELTA(0, "{\"type\":\"signature_delta\",\"signature\":\"AB+/\"}"),
             DELTA(0, "{\"type\":\"signature_delta\",\"signature\":\"==\"}"), STOP(0),
             BLOCK(1, "{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}"), STOP(1),
             BLOCK(2, "{\"type\":\"thinking\",\"thinking\":\"\"}"),
             DELTA(2, "{\"type\":\"signature_delta\",\"signature\":\"s\"}"), STOP(2), END("end_turn"), FIN);
    assert_int_equal(r->n_blocks, 3);
    assert_sv_equal(r->blocks[0].raw, "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"AB+/==\"}");
    assert_int_equal(r->blocks[1].kind, MG_BLOCK_OTHER);
    assert_sv_equal(r->blocks[1].raw, "{\"type\":\"redacted_thinking\",\"data\":\"xyz\"}");
    assert_sv_equal(r->blocks[2].raw, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"s\"}");
    mg_model_result_free(r);
}

static void tool_inputs_are_joined_and_kept(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START,
             BLOCK(0, "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"ba\\u0073h\",\"input\":{},\"extra\":null}"),
             INPUT(0, ""), INPUT(0, "{\\\"command\\\":"),
             INPUT(0, " \\\"echo \\\\\\\"\\u00e9\\\\\\\"\\\", \\\"n\\\": 1.0}"), STOP(0), END("tool_use"), FIN);
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_sv_equal(r->blocks[0].tool_id, "toolu_1");
    assert_sv_equal(r->blocks[0].tool_name, "bash");
    assert_sv_equal(r->blocks[0].tool_input, "{\"command\": \"echo \\\"\xc3\xa9\\\"\", \"n\": 1.0}");
    assert_sv_equal(r->blocks[0].raw, "{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"ba\\u0073h\",\"input\":{"
                                      "\"command\": \"echo \\\"\xc3\xa9\\\"\", \"n\": "
                                      "1.0},\"extra\":null}");
    mg_model_result_free(r);
}

static void an_empty_tool_input_is_an_empty_object(void **state)
{
    (void)state;
    struct mg_model_result *r = FOLD(START, BLOCK(0, TOOL), INPUT(0, ""), STOP(0), END("tool_use"), FIN);
    assert_sv_equal(r->blocks[0].tool_input, "{}");
    assert_sv_equal(r->blocks[0].raw, TOOL);
    mg_model_result_free(r);
}

static void case_79_a_cut_tool_input_is_never_given_out(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        INPUT(0, "{\\\"file_path\\\":\\\"a.txt\\\",\\\"content\\\":\\\"line1"),
        INPUT(0, "[1]"),
        INPUT(0, "\\\"x\\\""),
        INPUT(0, "{} {}"),
        INPUT(0, "{\\u0000}"),
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        struct mg_model_result *r = FOLD(START, BLOCK(0, TOOL), inputs[i], STOP(0), END("max_tokens"), FIN);
        assert_int_equal(r->fail, MG_MODEL_OK);
        assert_int_equal(r->blocks[0].tool_input.len, 0);
        assert_sv_equal(r->blocks[0].raw, TOOL);
        mg_model_result_free(r);
    }
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, TOOL), INPUT(0, "{\\\"a\\\":1}"), END("max_tokens"), FIN); /* no content_block_stop */
    assert_int_equal(r->blocks[0].tool_input.len, 0);
    mg_model_result_free(r);
    r = FOLD(START, BLOCK(0, TOOL), STOP(0), END("max_tokens"),
             FIN); /* the limit hit before the first byte of the input */
    assert_int_equal(r->blocks[0].tool_input.len, 0);
    mg_model_result_free(r);
    r = FOLD(START, BLOCK(0, TOOL), INPUT(0, "{\\\"a\\\":1}"), STOP(0),
             BLOCK(1, "{\"type\":\"tool_use\",\"id\":\"toolu_2\",\"name\":\"bash\",\"input\":{}}"), INPUT(1, "{\\\"b"),
             STOP(1), END("max_tokens"), FIN);
    assert_sv_equal(r->blocks[0].tool_input, "{\"a\":1}"); /* the whole sibling */
    assert_int_equal(r->blocks[1].tool_input.len, 0);
    mg_model_result_free(r);
}

static void a_tool_input_that_is_no_object_becomes_legal_in_the_transcript(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"x\",\"input\":7}"), STOP(0),
             BLOCK(1, "{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"x\"}"), INPUT(1, "{\\\"k\\\":2}"), STOP(1),
             BLOCK(2, "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"x\"}"), STOP(2), END("tool_use"), FIN);
    assert_sv_equal(r->blocks[0].raw, "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"x\",\"input\":{}}");
    assert_int_equal(r->blocks[0].tool_input.len, 0);
    assert_sv_equal(r->blocks[1].raw, "{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"x\",\"input\":{\"k\":2}}");
    assert_sv_equal(r->blocks[1].tool_input, "{\"k\":2}");
    assert_sv_equal(r->blocks[2].raw, "{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"x\",\"input\":{}}");
    mg_model_result_free(r);
}

static void citations_and_unknown_deltas_are_kept(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\",\"citations\":null}"),
             DELTA(0, "{\"type\":\"citations_delta\",\"citation\":{\"a\":1.0}}"),
             DELTA(0, "{\"type\":\"citations_delta\",\"citation\":{\"a\":2}}"), TEXT(0, "x"), STOP(0),
             BLOCK(1, "{\"type\":\"text\",\"text\":\"y\",\"citations\":[ {\"b\":1} ]}"),
             DELTA(1, "{\"type\":\"citations_delta\",\"citation\":{\"b\":2}}"), STOP(1),
             BLOCK(2, "{\"type\":\"compaction\",\"content\":null}"),
             DELTA(2, "{\"type\":\"compaction_delta\",\"content\":\"sum\"}"),
             DELTA(2, "{\"type\":\"new_delta\",\"score\":1}"), DELTA(2, "{\"type\":\"new_delta\",\"score\":2.50}"),
             STOP(2), BLOCK(3, "{\"type\":\"brand_new\",\"n\":1e400,\"n\":-0}"), STOP(3), END("end_turn"), FIN);
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_sv_equal(r->blocks[0].raw, "{\"type\":\"text\",\"text\":\"x\",\"citations\":[{\"a\":1.0},{\"a\":2}]}");
    assert_sv_equal(r->blocks[1].raw, "{\"type\":\"text\",\"text\":\"y\",\"citations\":[{\"b\":1},{\"b\":2}]}");
    assert_sv_equal(r->blocks[2].raw, "{\"type\":\"compaction\",\"content\":\"sum\",\"score\":2.50}");
    assert_sv_equal(r->blocks[3].raw, "{\"type\":\"brand_new\",\"n\":1e400,\"n\":-0}");
    mg_model_result_free(r);
}

static void server_tool_calls_are_kept_whole(void **state)
{
    (void)state;
    struct mg_model_result *r = FOLD(
        START, BLOCK(0, "{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_1\",\"name\":\"web_search\",\"input\":{}}"),
        INPUT(0, "{\\\"query\\\":\\\"x\\\"}"), STOP(0),
        BLOCK(1, "{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"srvtoolu_1\",\"content\":[{\"encrypted_"
                 "content\":\"q/w==\"}]}"),
        STOP(1), END("pause_turn"), FIN);
    assert_int_equal(r->blocks[0].kind, MG_BLOCK_OTHER);
    assert_sv_equal(
        r->blocks[0].raw,
        "{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_1\",\"name\":\"web_search\",\"input\":{\"query\":\"x\"}}");
    assert_sv_equal(r->blocks[1].raw, "{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"srvtoolu_1\",\"content\":"
                                      "[{\"encrypted_content\":\"q/w==\"}]}");
    assert_string_equal(r->stop_reason, "pause_turn");
    mg_model_result_free(r);
}

static void usage_of_the_end_is_laid_over_that_of_the_start(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD("{\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1,\"cache_read_"
             "input_tokens\":4,\"cache_creation_input_tokens\":5,"
             "\"cache_creation\":{\"ephemeral_5m_input_tokens\":2,\"ephemeral_1h_input_tokens\":3}}}}",
             "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_details\":{\"type\":"
             "\"refusal\",\"category\":\"x\"}},\"usage\":{\"output_tokens\":50,"
             "\"input_tokens\":null,\"cache_read_input_tokens\":-3,\"server_tool_use\":{\"web_search_requests\":2,"
             "\"web_fetch_requests\":1}}}",
             FIN);
    assert_int_equal(r->usage.input_tokens, 1);
    assert_int_equal(r->usage.output_tokens, 50);
    assert_int_equal(r->usage.cache_read_input_tokens, 4);
    assert_int_equal(r->usage.cache_creation_input_tokens, 5);
    assert_int_equal(r->usage.cache_5m, 2);
    assert_int_equal(r->usage.cache_1h, 3);
    assert_int_equal(r->usage.web_search_requests, 2);
    assert_int_equal(r->usage.web_fetch_requests, 1);
    assert_string_equal(r->stop_reason, "refusal");
    assert_sv_equal(r->stop_details, "{\"type\":\"refusal\",\"category\":\"x\"}");
    mg_model_result_free(r);
}

static void a_stream_that_breaks_the_rules_can_be_tried_again(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "nonsense",
        "[]",
        "7",
        "",
        "{\"type\":\"content_block_start\"}",
        BLOCK(1, "{\"type\":\"text\",\"text\":\"\"}"),
        BLOCK(-1, "{\"type\":\"text\"}"),
        BLOCK(0, "7"),
        BLOCK(0, "{}"),
        BLOCK(0, "{\"type\":\"tool_use\",\"name\":\"x\"}"),
        BLOCK(0, "{\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"\"}"),
        TEXT(0, "x"),
        STOP(3),
        START,
        DELTA(99999999999, "{}"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): the macros join literals */
        struct mg_model_result *r = FOLD(START, bad[i], END("end_turn"), FIN);
        assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
        assert_true(r->message[0] != '\0');
        mg_model_result_free(r);
    }
    struct mg_model_result *r = FOLD(START, BLOCK(0, TOOL), STOP(0), BLOCK(1, TOOL), STOP(1), END("tool_use"), FIN);
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    assert_contains(r->message, "same id");
    mg_model_result_free(r);
    r = FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\"}"), STOP(0), TEXT(0, "late"), END("end_turn"), FIN);
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    mg_model_result_free(r);
    r = FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\"}"), DELTA(0, "{\"type\":\"x\",\"text\":7}"),
             TEXT(0, "y"), STOP(0), END("end_turn"), FIN);
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    mg_model_result_free(r);
}

static void a_delta_that_would_spoil_its_block_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *block, *delta;
    } bad[] = {
        {"{\"type\":\"text\",\"text\":\"a\"}", "\"text\":7"},
        {"{\"type\":\"text\",\"text\":\"a\"}", "\"text\":null"},
        {"{\"type\":\"thinking\",\"thinking\":\"a\"}", "\"thinking\":[]"},
        {"{\"type\":\"thinking\",\"thinking\":\"a\"}", "\"signature\":{}"},
        {TOOL, "\"id\":\"x\""},
        {TOOL, "\"name\":\"x\""},
        {TOOL, "\"input\":\"x\""},
        {TOOL, "\"input\":{}"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char block[256], delta[256];
        (void)snprintf(block, sizeof(block), BLOCK(0, "%s"), bad[i].block);
        (void)snprintf(delta, sizeof(delta), DELTA(0, "{\"type\":\"x_delta\",%s}"), bad[i].delta);
        struct mg_model_result *r = FOLD(START, block, delta, STOP(0), END("end_turn"), FIN);
        assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
        assert_sv_equal(r->blocks[0].raw, bad[i].block);
        mg_model_result_free(r);
    }
}

static void case_80_the_end_of_a_stream_is_never_success(void **state)
{
    (void)state;
    struct mg_model_result *r = FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\"}"), TEXT(0, "x"));
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    assert_int_equal(r->n_blocks, 1);
    mg_model_result_free(r);
    r = FOLD(START, END("end_turn")); /* a stop reason alone is not enough */
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    mg_model_result_free(r);
    r = FOLD(START, FIN);
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    assert_contains(r->message, "without a stop reason");
    mg_model_result_free(r);
    r = fold((const char *const[]){NULL});
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    mg_model_result_free(r);
}

static void pings_and_unknown_events_change_nothing(void **state)
{
    (void)state;
    struct mg_message *m = mg_message_new(NULL, NULL);
    assert_int_equal(mg_message_event(m, MG_SV("{\"type\":\"ping\"}")), MG_MESSAGE_PING);
    assert_int_equal(mg_message_event(m, MG_SV(START)), MG_MESSAGE_MORE);
    assert_int_equal(mg_message_event(m, MG_SV("{\"type\":\"brand_new\",\"x\":1}")), MG_MESSAGE_MORE);
    assert_int_equal(mg_message_event(m, MG_SV("{}")), MG_MESSAGE_MORE);
    assert_int_equal(mg_message_event(m, MG_SV(END("end_turn"))), MG_MESSAGE_MORE);
    assert_int_equal(mg_message_event(m, MG_SV(FIN)), MG_MESSAGE_END);
    assert_int_equal(mg_message_event(m, MG_SV("nonsense")), MG_MESSAGE_END);
    struct mg_model_result *r = mg_message_finish(m);
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_int_equal(r->n_blocks, 0);
    mg_model_result_free(r);
}

static void a_flood_of_blocks_is_refused(void **state)
{
    (void)state;
    struct mg_message *m = mg_message_new(NULL, NULL);
    (void)mg_message_event(m, MG_SV(START));
    for (int i = 0; i <= MG_MODEL_BLOCKS_MAX; i++) {
        char event[128];
        (void)snprintf(event, sizeof(event),
                       "{\"type\":\"content_block_start\",\"index\":%d,\"content_block\":{\"type\":\"x\"}}", i);
        (void)mg_message_event(m, mg_sv_of(event));
    }
    struct mg_model_result *r = mg_message_finish(m);
    assert_int_equal(r->fail, MG_MODEL_PERMANENT);
    assert_contains(r->message, "1000 content blocks");
    mg_model_result_free(r);
}

static void names_with_a_nul_do_no_harm(void **state)
{
    (void)state;
    struct mg_model_result *r =
        FOLD(START, BLOCK(0, "{\"type\":\"text\",\"text\":\"\"}"),
             DELTA(0, "{\"type\":\"x\",\"text\\u0000a\":\"1\",\"text\":\"2\"}"), STOP(0), END("end_turn"), FIN);
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    mg_model_result_free(r);
}

static int free_deltas(void **state)
{
    (void)state;
    mg_buf_done(&deltas);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_deltas_are_joined_as_they_are_spelled),
        cmocka_unit_test(thinking_keeps_its_signature_and_its_place),
        cmocka_unit_test(tool_inputs_are_joined_and_kept),
        cmocka_unit_test(an_empty_tool_input_is_an_empty_object),
        cmocka_unit_test(case_79_a_cut_tool_input_is_never_given_out),
        cmocka_unit_test(a_tool_input_that_is_no_object_becomes_legal_in_the_transcript),
        cmocka_unit_test(citations_and_unknown_deltas_are_kept),
        cmocka_unit_test(server_tool_calls_are_kept_whole),
        cmocka_unit_test(usage_of_the_end_is_laid_over_that_of_the_start),
        cmocka_unit_test(a_stream_that_breaks_the_rules_can_be_tried_again),
        cmocka_unit_test(a_delta_that_would_spoil_its_block_changes_nothing),
        cmocka_unit_test(case_80_the_end_of_a_stream_is_never_success),
        cmocka_unit_test(pings_and_unknown_events_change_nothing),
        cmocka_unit_test(a_flood_of_blocks_is_refused),
        cmocka_unit_test(names_with_a_nul_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, free_deltas);
}
