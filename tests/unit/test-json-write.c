#include "unit.h"

#include "base/mem.h"
#include "json/json.h"
#include "json/write.h"

static void commas_and_colons_are_the_writers(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1000);
    struct mg_jw w = mg_jw_to(&b);

    (void)state;
    mg_jw_obj(&w);
    mg_jw_kstr(&w, "s", MG_SV("x"));
    mg_jw_kint(&w, "i", INT64_MIN);
    mg_jw_key(&w, "a");
    mg_jw_arr(&w);
    mg_jw_int(&w, 1);
    mg_jw_obj(&w);
    mg_jw_obj_end(&w);
    mg_jw_arr(&w);
    mg_jw_arr_end(&w);
    mg_jw_null(&w);
    mg_jw_bool(&w, true);
    mg_jw_arr_end(&w);
    mg_jw_kbool(&w, "b", false);
    mg_jw_knull(&w, "n");
    mg_jw_kraw(&w, "r", MG_SV("{\"x\":1.0}"));
    mg_jw_kstrz(&w, "z", NULL);
    mg_jw_ktime(&w, "t", 0);
    mg_jw_ktime(&w, "u", INT64_MIN);
    mg_jw_key_sv(&w, MG_SV("q\""));
    mg_jw_strz(&w, "v");
    mg_jw_obj_end(&w);
    assert_true(mg_buf_ok(&b));
    assert_sv_equal(mg_buf_view(&b),
                    "{\"s\":\"x\",\"i\":-9223372036854775808,\"a\":[1,{},[],null,true],\"b\":false,\"n\":null,"
                    "\"r\":{\"x\":1.0},\"z\":null,\"t\":\"1970-01-01T00:00:00.000000Z\",\"u\":null,\"q\\\"\":\"v\"}");
}

static void every_byte_survives_or_is_replaced(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++)
        for (size_t before = 0; before < 12; before++) {
            mg_auto(arena) struct mg_arena *a = mg_arena_new();
            mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1000);
            struct mg_jw w = mg_jw_to(&b);
            struct mg_json *j;
            char text[32], want[32];
            memset(text, 'x', sizeof(text));
            memcpy(want, text, sizeof(want));
            text[before] = (char)c;
            memcpy(want + before, c < 0x80 ? (char *)&text[before] : "\xef\xbf\xbd", c < 0x80 ? 1 : 3);
            size_t n = before + 3;
            mg_jw_str(&w, mg_sv_n(text, n));
            assert_int_equal(mg_json_parse(a, mg_buf_view(&b), &mg_json_api_limits, &j, NULL), MG_OK);
            assert_true(mg_sv_eq(mg_json_str(a, j), mg_sv_n(want, n + (c < 0x80 ? 0 : 2))));
        }
}

static void short_escapes_are_used(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1000);

    (void)state;
    mg_json_escape(&b, MG_SV("a\"\\\b\f\n\r\t\x01/\x7f\xc3\xa4\0z"));
    assert_sv_equal(mg_buf_view(&b), "a\\\"\\\\\\b\\f\\n\\r\\t\\u0001/\x7f\xc3\xa4\\u0000z");
    mg_json_escape(&b, MG_SV(""));
    mg_json_escape(&b, mg_sv_n(NULL, 0));
}

static void a_full_buffer_is_told_at_the_end(void **state)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(10);
    struct mg_jw w = mg_jw_to(&b);

    (void)state;
    mg_jw_arr(&w);
    for (int i = 0; i < 100; i++)
        mg_jw_str(&w, MG_SV("text"));
    mg_jw_arr_end(&w);
    assert_false(mg_buf_ok(&b));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_and_colons_are_the_writers),
        cmocka_unit_test(every_byte_survives_or_is_replaced),
        cmocka_unit_test(short_escapes_are_used),
        cmocka_unit_test(a_full_buffer_is_told_at_the_end),
    };

    return RUN(tests);
}
