/* What MCP servers list and return, as the model sees it. */
#include "unit.h"

#include "base/mem.h"
#include "mcp/result.h"
#include "mcp/rpc.h"
#include "mcp/tool-list.h"

/* A PNG of one pixel. */
#define PNG "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

/* ---- results ---- */

struct kept {
    struct mg_buf names, last;
    const char *why; /* set: nothing can be kept */
};

static const char *keep(void *ctx, const char *suffix, struct mg_sv bytes, const char **ret_why)
{
    struct kept *k = ctx;
    *ret_why = k->why;
    if (k->why)
        return NULL;
    mg_buf_printf(&k->names, "[%s:%zu]", suffix, bytes.len);
    mg_buf_reset(&k->last);
    mg_buf_sv(&k->last, bytes);
    return "/work/result.bin";
}

struct rendered {
    mg_rc rc;
    bool is_error;
    struct mg_buf out;
    struct mg_err err;
};

static struct rendered render(const char *result, struct kept *k)
{
    struct rendered r = {.out = MG_BUF_INIT(MG_MCP_CONTENT_MAX)};
    mg_auto(buf) struct mg_buf message = MG_BUF_INIT(64 * 1024 * 1024);
    mg_buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":1,%s}", result);
    r.rc = mg_mcp_render(mg_buf_view(&message), keep, k, &r.out, &r.is_error, &r.err);
    return r;
}

static void each_kind_of_content_becomes_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *result, *blocks;
        bool is_error;
    } cases[] = {
        {"\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\\nb\"}]}",
         "[{\"type\":\"text\",\"text\":\"a\\nb\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"bad\"}],\"isError\":true}",
         "[{\"type\":\"text\",\"text\":\"bad\"}]", true},
        {"\"result\":{\"content\":[]}", "[{\"type\":\"text\",\"text\":\"(no output)\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"text\",\"text\":\" \\n\"}]}",
         "[{\"type\":\"text\",\"text\":\"(no output)\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"x\\u0000y\",\"annotations\":{\"a\":1}}],\"_meta\":{"
         "\"s\":1}}",
         "[{\"type\":\"text\",\"text\":\"x\xE2\x90\x80y\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"}]}",
         "[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" PNG "\"}}]",
         false},
        {"\"result\":{\"content\":[{\"type\":\"resource\",\"resource\":{\"uri\":\"file:///a\",\"mimeType\":\"text/"
         "x\",\"text\":"
         "\"t\"}}]}",
         "[{\"type\":\"text\",\"text\":\"[resource file:///a, text/x]\\nt\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"resource_link\",\"uri\":\"file:///"
         "a\",\"name\":\"A\",\"description\":\"d\"}]}",
         "[{\"type\":\"text\",\"text\":\"[resource link A: file:///a]\\nd\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"hologram\"},5]}",
         "[{\"type\":\"text\",\"text\":\"[content of the unknown type \\\"hologram\\\" left "
         "out]\"},{\"type\":\"text\",\"text\":"
         "\"[content of the unknown type \\\"\\\" left out]\"}]",
         false},
        {"\"result\":{\"content\":[],\"structuredContent\":{\"t\":0.10}}",
         "[{\"type\":\"text\",\"text\":\"{\\\"t\\\":0.10}\"}]", false},
        {"\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"t\\\": "
         "0.1}\"}],\"structuredContent\":{\"t\":0.10}}",
         "[{\"type\":\"text\",\"text\":\"{\\\"t\\\": 0.1}\"}]", false},
        {"\"error\":{\"code\":-32602,\"message\":\"no\\u0007 such tool\"}",
         "[{\"type\":\"text\",\"text\":\"The MCP server refused the call: no  such tool (code -32602)\"}]", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kept k = {.why = "this session has no sandbox"};
        struct rendered r = render(cases[i].result, &k);
        assert_int_equal(r.rc, MG_OK);
        assert_string_equal(r.out.ptr, cases[i].blocks);
        assert_int_equal(r.is_error, cases[i].is_error);
        mg_buf_done(&r.out);
    }
}

static void case_82_bad_images_never_reach_the_transcript(void **state)
{
    (void)state;
    static const char *const items[] = {
        "{\"type\":\"image\",\"data\":\"AAAA\",\"mimeType\":\"image/png\"}",
        "{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/jpeg\"}",
        "{\"type\":\"image\",\"data\":\"" PNG "\"}",
        "{\"type\":\"image\"}",
        "{\"type\":\"image\",\"data\":5,\"mimeType\":\"image/png\"}",
        "{\"type\":\"resource\",\"resource\":{\"uri\":\"u\",\"mimeType\":\"image/png\",\"blob\":\"AAAA\"}}",
        "{\"type\":\"image\",\"data\":\"!!!\",\"mimeType\":\"image/png\"}",
    };
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        struct kept k = {.why = "this session has no sandbox"};
        char result[1024];
        (void)snprintf(result, sizeof(result), "\"result\":{\"content\":[%s]}", items[i]);
        struct rendered r = render(result, &k);
        assert_int_equal(r.rc, MG_OK);
        assert_null(strstr(r.out.ptr, "\"type\":\"image\""));
        assert_contains(r.out.ptr, "left out");
        mg_buf_done(&r.out);
    }
}

static void what_is_no_text_is_kept_as_a_file_where_there_is_one(void **state)
{
    (void)state;
    struct kept k = {.names = MG_BUF_INIT(1024), .last = MG_BUF_INIT(1024)};
    struct rendered r =
        render("\"result\":{\"content\":[{\"type\":\"audio\",\"data\":\"YWJj\",\"mimeType\":\"audio/wav\"},{\"type\":"
               "\"resource\",\"resource\":{\"uri\":\"u\",\"blob\":\"AAECAw==\"}}]}",
               &k);
    assert_int_equal(r.rc, MG_OK);
    assert_string_equal(k.names.ptr, "[-1.wav:3][-2.bin:4]");
    assert_contains(r.out.ptr, "[audio (audio/wav, 3 bytes) saved as /work/result.bin]");
    assert_contains(r.out.ptr, "[resource (no type, 4 bytes) saved as");
    mg_buf_done(&r.out);
    k.why = "this session has no sandbox";
    r = render("\"result\":{\"content\":[{\"type\":\"audio\",\"data\":\"YWJj\",\"mimeType\":\"audio/wav\"}]}", &k);
    assert_contains(r.out.ptr, "[audio (audio/wav, 3 bytes) left out: this session has no sandbox]");
    mg_buf_done(&r.out);
    mg_buf_done(&k.names);
    mg_buf_done(&k.last);
}

static void a_long_text_becomes_a_file_and_a_preview(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf result = MG_BUF_INIT(1 << 20);
    mg_buf_str(&result, "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"first \xc3\xa4");
    for (int i = 0; i < 60000; i++)
        mg_buf_str(&result, "\xc3\xb6");
    mg_buf_str(&result, " last\"},{\"type\":\"image\",\"data\":\"" PNG
                        "\",\"mimeType\":\"image/png\"},{\"type\":\"text\",\"text\":"
                        "\"the end\"}]}");
    for (int i = 0; i < 2; i++) {
        struct kept k = {
            .names = MG_BUF_INIT(1024), .last = MG_BUF_INIT(1 << 20), .why = i ? "this session has no sandbox" : NULL};
        struct rendered r = render(result.ptr, &k);
        assert_int_equal(r.rc, MG_OK);
        assert_true(r.out.len < MG_MCP_PREVIEW_MAX + 1024);
        assert_contains(r.out.ptr, "first \xc3\xa4");
        assert_contains(r.out.ptr, "the end\"}]");
        assert_contains(r.out.ptr, "\"type\":\"image\"");
        assert_contains(r.out.ptr, i ? "this session has no sandbox]"
                                     : "the whole text of 120022 bytes is in the file /work/result.bin]");
        if (i == 0)
            assert_int_equal(k.last.len, 120022);
        mg_buf_done(&r.out);
        mg_buf_done(&k.names);
        mg_buf_done(&k.last);
    }
    mg_auto(buf) struct mg_buf message = MG_BUF_INIT(1 << 20);
    mg_buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":1,%s}", result.ptr);
    assert_true(mg_mcp_wants_files(mg_buf_view(&message)));
    assert_false(mg_mcp_wants_files(MG_SV("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}")));
}

static void results_of_too_many_parts_are_cut_and_say_so(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf result = MG_BUF_INIT(1 << 20);
    struct kept k = {.why = "x"};
    mg_buf_str(&result, "\"result\":{\"content\":[");
    for (int i = 0; i < 1000; i++)
        mg_buf_printf(&result, "%s{\"type\":\"resource\",\"resource\":{\"uri\":\"u\",\"blob\":\"AAAA\"}}",
                      i ? "," : "");
    mg_buf_str(&result, "],\"structuredContent\":{}}");
    struct rendered r = render(result.ptr, &k);
    assert_int_equal(r.rc, MG_OK);
    assert_contains(r.out.ptr, "more content items left out");
    mg_buf_done(&r.out);
}

static void what_is_no_result_is_refused(void **state)
{
    (void)state;
    static const char *const results[] = {"\"result\":{}", "\"result\":{\"content\":\"text\"}", "\"result\":[]",
                                          "\"result\":{},\"error\":{}", "\"method\":5"};
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        struct kept k = {.why = "x"};
        struct rendered r = render(results[i], &k);
        assert_int_equal(r.rc, MG_EINVAL);
        mg_buf_done(&r.out);
    }
}

/* ---- lists ---- */

static mg_rc add(struct mg_mcp_tool_list *l, const char *text, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v;
    assert_int_equal(mg_json_parse(a, mg_sv_of(text), &mg_json_raw_limits, &v, err), MG_OK);
    return mg_mcp_tool_list_add(a, l, v, err);
}

static void tools_without_a_usable_name_are_left_out(void **state)
{
    (void)state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(4096);
    mg_mcp_tool_list_init(&l);
    mg_buf_printf(&text,
                  "{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"}},{\"name\":\"a\"},{\"name\":\"\"},"
                  "{},5,{\"name\":5},"
                  "{\"name\":\"b\\u0001\"},{\"name\":\"%0200d\"},{\"name\":\"d\",\"title\":\"D\",\"inputSchema\":{"
                  "\"type\":\"object\"}}]}",
                  0);
    assert_int_equal(add(&l, text.ptr, &err), MG_OK);
    mg_mcp_tool_list_end(&l);
    assert_int_equal(l.n_tools, 2);
    assert_int_equal(l.n_left_out, 7);
    assert_string_equal(l.tools.ptr,
                        "[{\"name\":\"a\",\"description\":\"\",\"input_schema\":{\"type\":\"object\"}},{\"name\":\"d\","
                        "\"description\":\"D\",\"input_schema\":{\"type\":\"object\"}}]");
}

static void a_schema_that_endpoints_refuse_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *problem;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":[\"string\",\"null\"]},\"b\":{\"items\":{\"$ref\":\"#/"
         "$defs/x\"}}},"
         "\"required\":[\"a\"],\"$defs\":{\"x\":{\"anyOf\":[{\"type\":\"integer\"},true]}}}",
         NULL},
        {"{\"type\":\"object\"}", NULL},
        {"{}", "type is not object"},
        {"[]", "not an object"},
        {"\"object\"", "not an object"},
        {"{\"type\":\"banana\"}", "type is not object"},
        {"{\"type\":\"object\",\"properties\":[]}", "not an object"},
        {"{\"type\":\"object\",\"properties\":{\"a\":5}}", "not an object"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"banana\"}}}", "unknown type"},
        {"{\"type\":\"object\",\"properties\":{\"a b\":{}}}", "name of a property"},
        {"{\"type\":\"object\",\"required\":\"a\"}", "required"},
        {"{\"type\":\"object\",\"required\":[5]}", "required"},
        {"{\"type\":\"object\",\"oneOf\":[{}]}", "top level"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[]}}}", "empty"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_json *v;
        assert_int_equal(mg_json_parse(a, mg_sv_of(cases[i].schema), &mg_json_raw_limits, &v, NULL), MG_OK);
        const char *problem = mg_mcp_schema_problem(a, v);
        if (!cases[i].problem)
            assert_null(problem);
        else
            assert_contains(problem ? problem : "none", cases[i].problem);
    }
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l;
    struct mg_err err = {0};
    mg_mcp_tool_list_init(&l);
    assert_int_equal(
        add(&l, "{\"tools\":[{\"name\":\"a\",\"description\":\"d\",\"inputSchema\":{\"type\":\"array\"}}]}", &err),
        MG_OK);
    assert_contains(l.tools.ptr, "d\\n[The input schema of the server could not be used: its type is not object.");
    assert_contains(l.tools.ptr, "\"input_schema\":{\"type\":\"object\"}");
}

static void deep_and_large_schemas_are_replaced(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf deep = MG_BUF_INIT(1 << 20), large = MG_BUF_INIT(1 << 20);
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_json *v;
    for (int i = 0; i < 60; i++)
        mg_buf_str(&deep, "{\"type\":\"object\",\"properties\":{\"a\":");
    mg_buf_str(&deep, "{}");
    for (int i = 0; i < 60; i++)
        mg_buf_str(&deep, "}}");
    assert_int_equal(mg_json_parse(a, mg_buf_view(&deep), &mg_json_raw_limits, &v, NULL), MG_OK);
    assert_contains(mg_mcp_schema_problem(a, v), "deep");
    mg_buf_printf(&large, "{\"type\":\"object\",\"title\":\"%0*d\"}", MG_MCP_SCHEMA_MAX, 0);
    assert_int_equal(mg_json_parse(a, mg_buf_view(&large), &mg_json_raw_limits, &v, NULL), MG_OK);
    assert_contains(mg_mcp_schema_problem(a, v), "64 KiB");
}

static void lists_are_bounded(void **state)
{
    (void)state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l;
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(64 << 20);
    struct mg_err err = {0};
    mg_mcp_tool_list_init(&l);
    mg_buf_str(&text, "{\"tools\":[");
    for (int i = 0; i < 1000; i++)
        mg_buf_printf(&text, "%s{\"name\":\"t%d\",\"description\":\"%0*d\",\"inputSchema\":{\"type\":\"object\"}}",
                      i ? "," : "", i, i ? 1 : 20000, 0);
    mg_buf_str(&text, "]}");
    assert_int_equal(add(&l, text.ptr, &err), MG_OK);
    assert_int_equal(l.n_tools, MG_MCP_TOOLS_MAX);
    assert_int_equal(l.n_left_out, 1000 - MG_MCP_TOOLS_MAX);
    assert_contains(l.tools.ptr, "[cut: the server's description is longer]");
    mg_buf_reset(&text);
    mg_buf_printf(&text, "{\"tools\":[],\"nextCursor\":\"%0*d\"}", MG_MCP_CURSOR_MAX, 0);
    assert_int_equal(add(&l, text.ptr, &err), MG_ETOOBIG);
    assert_int_equal(add(&l, "{\"tools\":{}}", &err), MG_EINVAL);
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list huge;
    mg_mcp_tool_list_init(&huge);
    mg_buf_reset(&text);
    mg_buf_str(&text, "{\"tools\":[");
    for (int i = 0; i < 60; i++)
        mg_buf_printf(&text, "%s{\"name\":\"t%d\",\"inputSchema\":{\"type\":\"object\",\"title\":\"%0*d\"}}",
                      i ? "," : "", i, MG_MCP_SCHEMA_MAX - 1000, 0);
    mg_buf_str(&text, "]}");
    assert_int_equal(add(&huge, text.ptr, &err), MG_ETOOBIG);
}

/* ---- names ---- */

static void names_for_the_model_are_short_plain_and_distinct(void **state)
{
    (void)state;
    static const struct {
        const char *server, *tool, *alias;
    } cases[] = {
        {"github", "get_file", "mcp__github__get_file"},
        {"g", "a.b", NULL},
        {"g", "a_b", "mcp__g__a_b"},
        {"g h", "x", NULL},
        {"g_h", "x", "mcp__g_h__x"},
        {"a__b", "c", NULL},
        {"a", "b__c", NULL},
        {"\xc3\xa9t\xc3\xa9", "x", NULL},
        {"a-long-name-of-a-server-that-goes-on", "and-a-tool-whose-name-is-just-as-long", NULL},
        {"a-long-name-of-a-server-that-goes-on", "and-a-tool-whose-name-is-just-as-long2", NULL},
    };
    enum { N = sizeof(cases) / sizeof(cases[0]) };
    char seen[N][MG_MCP_ALIAS_MAX + 1];
    for (int i = 0; i < N; i++) {
        char again[MG_MCP_ALIAS_MAX + 1];
        mg_mcp_alias(mg_sv_of(cases[i].server), mg_sv_of(cases[i].tool), seen[i]);
        mg_mcp_alias(mg_sv_of(cases[i].server), mg_sv_of(cases[i].tool), again);
        assert_string_equal(seen[i], again);
        if (cases[i].alias)
            assert_string_equal(seen[i], cases[i].alias);
        assert_int_equal(strspn(seen[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"),
                         strlen(seen[i]));
        assert_true(strlen(seen[i]) <= MG_MCP_ALIAS_MAX);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_content_becomes_blocks),
        cmocka_unit_test(case_82_bad_images_never_reach_the_transcript),
        cmocka_unit_test(what_is_no_text_is_kept_as_a_file_where_there_is_one),
        cmocka_unit_test(a_long_text_becomes_a_file_and_a_preview),
        cmocka_unit_test(results_of_too_many_parts_are_cut_and_say_so),
        cmocka_unit_test(what_is_no_result_is_refused),
        cmocka_unit_test(tools_without_a_usable_name_are_left_out),
        cmocka_unit_test(a_schema_that_endpoints_refuse_is_replaced),
        cmocka_unit_test(deep_and_large_schemas_are_replaced),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(names_for_the_model_are_short_plain_and_distinct),
    };
    return RUN(tests);
}
