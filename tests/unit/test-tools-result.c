#include "unit/unit.h"

#include <stdlib.h>

#include "json/json.h"
#include "support/tool-call.h"
#include "tools/marker.h"
#include "tools/names.h"
#include "tools/output.h"
#include "tools/result.h"

static void assert_text(bool is_error, const char *in, size_t n, const char *json)
{
    struct mg_tool_result r = {0};

    assert_int_equal(mg_tool_text(&r, is_error, mg_sv_n(in, n)), MG_OK);
    assert_int_equal(r.is_error, is_error);
    assert_sv_equal(mg_buf_view(&r.content), json);
    mg_tool_result_done(&r);
}

static void a_text_becomes_one_legal_block(void **state)
{
    (void)state;
    assert_text(false, "hi", 2, "[{\"type\":\"text\",\"text\":\"hi\"}]");
    assert_text(true, "", 0, "[{\"type\":\"text\",\"text\":\"(no output)\"}]");
    assert_text(false, "a\0b", 3,
                "[{\"type\":\"text\",\"text\":\"a\xE2\x90\x80"
                "b\"}]");
    assert_text(false, "a\xFF", 2, "[{\"type\":\"text\",\"text\":\"a\xEF\xBF\xBD\"}]");
    assert_text(false, "\"\\\n\x01", 4, "[{\"type\":\"text\",\"text\":\"\\\"\\\\\\n\\u0001\"}]");
}

static void only_what_concerns_the_call_becomes_a_result(void **state)
{
    static const struct {
        mg_rc rc;
        bool result;
    } CASES[] = {{MG_ENOTFOUND, true},  {MG_EIO, true},     {MG_EDENIED, true},    {MG_EINVAL, true},
                 {MG_ETOOBIG, true},    {MG_EGONE, false},  {MG_ECANCELED, false}, {MG_EUNAVAIL, false},
                 {MG_EINTERNAL, false}, {MG_EFENCED, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_tool_result r = {0};
        struct mg_err err;
        (void)mg_err_set(&err, CASES[i].rc, "why");
        assert_int_equal(mg_tool_failed(&r, CASES[i].rc, &err, "cannot read", MG_SV("f")),
                         CASES[i].result ? MG_OK : CASES[i].rc);
        assert_int_equal(r.is_error, CASES[i].result);
        if (CASES[i].result)
            assert_sv_equal(mg_buf_view(&r.content), "[{\"type\":\"text\",\"text\":\"cannot read f: why\"}]");
        mg_tool_result_done(&r);
    }
}

static void the_six_definitions_are_json_with_the_contracts_names(void **state)
{
    static const struct {
        const char *name, *properties;
    } TOOLS[] = {
        {"bash", "command restart timeout_ms "},
        {"read", "file_path view_range "},
        {"write", "file_path content "},
        {"edit", "file_path old_string new_string replace_all "},
        {"glob", "pattern path "},
        {"grep", "pattern path "},
    };
    struct mg_arena *a = mg_arena_new();

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct mg_json *v;
        struct mg_err err;
        char names[256] = "";
        assert_true(mg_tool_known(mg_sv_of(TOOLS[i].name)));
        assert_int_equal(mg_json_parse(a, mg_tool_definition(mg_sv_of(TOOLS[i].name)), &mg_json_api_limits, &v, &err),
                         MG_OK);
        assert_sv_equal(mg_json_get_str(a, v, "name"), TOOLS[i].name);
        assert_true(mg_json_get_str(a, v, "description").len > 40);
        const struct mg_json *schema = mg_json_get(v, "input_schema");
        assert_sv_equal(mg_json_get_str(a, schema, "type"), "object");
        for (const struct mg_json *p = mg_json_get(schema, "properties")->child; p; p = p->next)
            (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ", MG_SV_ARG(p->key));
        assert_string_equal(names, TOOLS[i].properties);
        assert_int_equal(v->n, 3);
    }
    assert_false(mg_tool_known(MG_SV("web_search")));
    assert_int_equal(mg_tool_definition(MG_SV("nope")).len, 0);
    mg_arena_free(a);
}

static void names_survive_the_way_out_and_back(void **state)
{
    static const struct {
        const char *name, *shown;
    } CASES[] = {
        {"plain/name.c", "plain/name.c"},
        {"with space", "with space"},
        {"end ", "\"end \""},
        {"a\nb", "\"a\\nb\""},
        {"a\tb\r", "\"a\\tb\\r\""},
        {"\"q\"", "\"\\\"q\\\"\""},
        {"q\"x", "q\"x"},
        {"b\\s", "b\\s"},
        {"b\\s\n", "\"b\\\\s\\n\""},
        {"\xFF\xC3", "\"\\xFF\\xC3\""},
        {"\x7F", "\"\\x7F\""},
        {"\xC3\xA4", "\xC3\xA4"},
    };
    struct mg_arena *a = mg_arena_new();

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256);
        struct mg_sv back;
        struct mg_err err;
        mg_name_quote(&out, mg_sv_of(CASES[i].name), MG_NAME_LINE);
        assert_sv_equal(mg_buf_view(&out), CASES[i].shown);
        assert_int_equal(mg_name_take(a, mg_buf_view(&out), "file_path", &back, &err), MG_OK);
        assert_sv_equal(back, CASES[i].name);
    }
    mg_arena_free(a);
}

/* ---- the marker and the output, at every cut ---- */

static void to_buf(void *ctx, const char *p, size_t n)
{
    mg_buf_append(ctx, p, n);
}

static void a_marker_is_found_at_every_cut(void **state)
{
    static const char SECRET[] = "0123456789abcdef0123456789abcdef";
    static const char TEXT[] = "out\x1e"
                               "0123\x1e\x1e"
                               "0123456789abcdef0123456789abcdef D 1 0\x1e\nrest";
    size_t n = sizeof(TEXT) - 1;

    (void)state;
    for (size_t step = 1; step <= n; step++) {
        struct mg_marker m;
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256);
        bool found = false;
        mg_marker_init(&m, SECRET);
        for (size_t at = 0; at < n;) {
            size_t piece = n - at < step ? n - at : step;
            at += mg_marker_feed(&m, TEXT + at, piece, to_buf, &out);
            if (m.found) {
                assert_false(found);
                assert_string_equal(m.text, " D 1 0");
                found = true;
            }
        }
        assert_true(found);
        assert_sv_equal(mg_buf_view(&out), "out\x1e"
                                           "0123\x1e"
                                           "rest");
    }
}

static void escapes_are_taken_out_at_every_cut(void **state)
{
    static const char TEXT[] = "a\x1b[1;31mb\x1b[0mc\x1b]0;title\ad\x1b(Be\x1b]8;;u\x1b\\f\x1b"
                               "7g\x1b[?25lh\x1b\x1b[mi";
    size_t n = sizeof(TEXT) - 1;

    (void)state;
    for (size_t step = 1; step <= n; step++) {
        mg_auto(output) struct mg_output o;
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256);
        mg_output_init(&o, 1000);
        for (size_t at = 0; at < n; at += step)
            mg_output_feed(&o, TEXT + at, n - at < step ? n - at : step);
        assert_int_equal(mg_output_render(&o, &out, 900), MG_OK);
        assert_sv_equal(mg_buf_view(&out), "abcdefghi");
    }
}

static void the_tail_is_kept_at_every_length(void **state)
{
    (void)state;
    for (size_t n = 0; n < 700; n += 7) {
        mg_auto(output) struct mg_output o;
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1024);
        mg_output_init(&o, 300);
        for (size_t i = 0; i < n; i++)
            mg_output_feed(&o, &"0123456789"[i % 10], 1);
        assert_int_equal(mg_output_render(&o, &out, 300), MG_OK);
        assert_true(out.len <= 300);
        assert_int_equal(strncmp(mg_buf_view(&out).ptr, "[output truncated", 17) == 0, n > 300);
        if (n)
            assert_int_equal(out.ptr[out.len - 1], '0' + (int)((n - 1) % 10));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_becomes_one_legal_block),
        cmocka_unit_test(only_what_concerns_the_call_becomes_a_result),
        cmocka_unit_test(the_six_definitions_are_json_with_the_contracts_names),
        cmocka_unit_test(names_survive_the_way_out_and_back),
        cmocka_unit_test(a_marker_is_found_at_every_cut),
        cmocka_unit_test(escapes_are_taken_out_at_every_cut),
        cmocka_unit_test(the_tail_is_kept_at_every_length),
    };

    return RUN(tests);
}
