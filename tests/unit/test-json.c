#include "unit.h"

#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "json/json.h"

static const struct mg_json *parse(struct mg_arena *a, struct mg_sv text, const struct mg_json_limits *lim)
{
    struct mg_err err = {0};
    struct mg_json *j = NULL;

    if (mg_json_parse(a, text, lim, &j, &err) < 0)
        fail_msg("%.*s: %s", text.len > 200 ? 200 : (int)text.len, text.ptr, err.text);
    return j;
}

/* Both doors, all texts of RFC 8259's grammar. */
static void valid_texts_are_accepted(void **state)
{
    static const char *const rows[] = {
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "10",
        "-1.5",
        "1e5",
        "1E+5",
        "1.25e-7",
        "\"\"",
        "\"a\"",
        "[]",
        "{}",
        " [ ] ",
        "\t\r\n{ }\n",
        "[1,2,3]",
        "[ 1 , 2 ]",
        "{\"a\":1}",
        "{ \"a\" : [ { \"b\" : null } ] }",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\"",
        "\"\\ud83d\\ude00\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"\\u0000\"",
        "\"\x7f\"",
        "{\"\":0}",
        "[[[[[]]]]]",
        "{\"a\":{},\"b\":[]}",
        "123456789012345678901234567890",
        "\"\xe2\x80\xa8\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err err = {0};
        struct mg_sv text = mg_sv_of(rows[i]);
        assert_sv_equal(mg_sv_trim(text), mg_arena_strdup(a, parse(a, text, &mg_json_api_limits)->raw));
        assert_sv_equal(mg_sv_trim(text), mg_arena_strdup(a, parse(a, text, &mg_json_raw_limits)->raw));
        if (mg_json_check(text, 64, &err) < 0)
            fail_msg("%s: %s", rows[i], err.text);
    }
}

static void invalid_texts_are_refused_with_place_and_offset(void **state)
{
    static const struct {
        struct mg_sv text;
        const char *message;
    } rows[] = {
        {MG_SV(""), "invalid JSON: the text is empty at byte 0"},
        {MG_SV("  "), "invalid JSON: the text is empty at byte 2"},
        {MG_SV("\xef\xbb\xbf{}"), "byte order mark"},
        {MG_SV("\xff\xfe{\0}\0"), "UTF-16 byte order mark"},
        {MG_SV("nul"), "'n' where a value was expected at byte 0"},
        {MG_SV("NaN"), "'N' where a value was expected at byte 0"},
        {MG_SV("True"), "'T' where"},
        {MG_SV("nulll"), "'l' where the end of the text was expected at byte 4"},
        {MG_SV("01"), "must not start with a zero at byte 0"},
        {MG_SV("-01"), "must not start with a zero at byte 1"},
        {MG_SV("-"), "needs a digit"},
        {MG_SV("+1"), "'+' where a value"},
        {MG_SV(".5"), "'.' where a value"},
        {MG_SV("1."), "a decimal point needs a digit behind it at byte 2"},
        {MG_SV("1e"), "an exponent needs a digit at byte 2"},
        {MG_SV("1e+"), "an exponent needs a digit at byte 3"},
        {MG_SV("0x10"), "'x' where the end"},
        {MG_SV("1 2"), "'2' where the end of the text was expected at byte 2"},
        {MG_SV("\"a"), "ends inside a string at byte 2"},
        {MG_SV("\"a\\"), "ends inside a string at byte 2"},
        {MG_SV("\"\\x\""), "starts no known escape at byte 1"},
        {MG_SV("\"\\u12g4\""), "four hexadecimal digits at byte 1"},
        {MG_SV("\"\\u123"), "four hexadecimal digits at byte 1"},
        {MG_SV("\"\\\0\""), "starts no known escape"},
        {MG_SV("\"a\nb\""), "line feed inside a string"},
        {MG_SV("\"a\0b\""), "control character inside a string has to be escaped at byte 2"},
        {MG_SV("\"\xff\""), "not UTF-8 at byte 1"},
        {MG_SV("\"\xc0\xaf\""), "not UTF-8 at byte 1"},
        {MG_SV("\"0123456789\xed\xa0\x80\""), "not UTF-8 at byte 11"},
        {MG_SV("\"\xf0\x9f\x98"), "not UTF-8 at byte 1"},
        {MG_SV("'a'"), "''' where a value"},
        {MG_SV("["), "[0]: invalid JSON: the text ends where a value was expected at byte 1"},
        {MG_SV("[1"), "ends where ',' or ']' was expected at byte 2"},
        {MG_SV("[1,"), "[1]: invalid JSON: the text ends where a value was expected at byte 3"},
        {MG_SV("[1,]"), "[1]: invalid JSON: ']' where a value was expected at byte 3"},
        {MG_SV("[,1]"), "[0]: invalid JSON: ',' where"},
        {MG_SV("[1}"), "'}' where ',' or ']'"},
        {MG_SV("]"), "']' where a value"},
        {MG_SV("{"), "ends where a member name in double quotes was expected"},
        {MG_SV("{a:1}"), "'a' where a member name in double quotes"},
        {MG_SV("{\"a\"}"), "'}' where a colon was expected at byte 4"},
        {MG_SV("{\"a\":}"), "a: invalid JSON: '}' where a value was expected at byte 5"},
        {MG_SV("{\"a\":1,}"), "'}' where a member name in double quotes was expected at byte 7"},
        {MG_SV("{\"a\":1 \"b\":2}"), "'\"' where ',' or '}'"},
        {MG_SV("{1:2}"), "'1' where a member name"},
        {MG_SV("{\"events\":[{\"content\":[1,tru]}]}"), "events[0].content[1]: invalid JSON: 't' where"},
        {MG_SV("{\"a b\":[{\"\":x}]}"), "[\"a b\"][0][\"\"]: invalid JSON: 'x' where"},
        {MG_SV("[1]//"), "'/' where the end of the text was expected at byte 3"},
        {MG_SV("\0"), "byte 0x00 where a value"},
        {MG_SV("[1\x0b]"), "byte 0x0b where ',' or ']'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err err = {0};
        struct mg_json *j;
        /* From memory of its own, so that one byte too many is seen. */
        mg_autofree char *copy = mg_xstrndup(rows[i].text.ptr, rows[i].text.len);
        char *exact = memcpy(mg_xmalloc(rows[i].text.len + 1) + 1, copy, rows[i].text.len);
        assert_int_equal(mg_json_parse(a, mg_sv_n(exact, rows[i].text.len), &mg_json_raw_limits, &j, &err), MG_EINVAL);
        assert_contains(err.text, rows[i].message);
        memset(&err, 0, sizeof(err));
        assert_int_equal(mg_json_check(mg_sv_n(exact, rows[i].text.len), 512, &err), MG_EINVAL);
        assert_contains(err.text, rows[i].message);
        assert_int_equal(mg_json_check(mg_sv_n(exact, rows[i].text.len), 512, NULL), MG_EINVAL);
        free(exact - 1);
    }
}

static void strict_refuses_what_lenient_keeps(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"{\"a\":1,\"a\":2}", "a: this member is given twice; the second one is at byte 7"},
        {"[{\"x\":{\"k\":1,\"l\":2,\"k\":1}}]", "[0].x.k: this member is given twice; the second one is at byte 19"},
        {"{\"a\":1,\"\\u0061\" : 2}", "a: this member is given twice; the second one is at byte 7"},
        {"{\"q\\\"\\\\\":1, \"q\\\"\\\\\":2}", "is given twice; the second one is at byte 12"},
        {"{\"\":1,\"\":2}", "[\"\"]: this member is given twice"},
        {"[1e309]", "[0]: invalid JSON: a number is out of the range of a double (1.8e308) at byte 1"},
        {"{\"n\":-1e400}", "n: invalid JSON: a number is out of the range"},
        {"\"\\ud800\"", "an unpaired surrogate escape at byte 1"},
        {"\"\\udc00\\ud800\"", "an unpaired surrogate escape at byte 1"},
        {"\"\\ud800\\u0041\"", "an unpaired surrogate escape at byte 1"},
        {"{\"\\udfff\":1}", "an unpaired surrogate escape at byte 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err err = {0};
        struct mg_json *j;
        assert_int_equal(mg_json_parse(a, mg_sv_of(rows[i].text), &mg_json_api_limits, &j, &err), MG_EINVAL);
        assert_contains(err.text, rows[i].message);
        assert_sv_equal(parse(a, mg_sv_of(rows[i].text), &mg_json_raw_limits)->raw, rows[i].text);
        assert_int_equal(mg_json_check(mg_sv_of(rows[i].text), 64, &err), MG_OK);
    }
}

static void the_range_of_a_double_is_exact(void **state)
{
    static const struct {
        const char *text;
        bool fits;
    } rows[] = {
        {"1.7976931348623157e308", true},
        {"1.7976931348623158e308", true}, /* rounds down to the largest double */
        {"1.7976931348623159e308", false},
        {"17976931348623157e292", true},
        {"0.00017976931348623159e312", false},
        {"-1.8e308", false},
        {"1e976931348623157348", false}, /* found by the fuzzer: its exponent overflowed */
        {"1e-976931348623157348623157", true},
        {"1e-400", true},
        {"0e999999999999999999999", true},
        {"0.0e999", true},
        {"1e99999999999999999999999999", false},
        {"1e-99999999999999999999999999", true},
        {"1000e305", true},
        {"1000e306", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_json *j;
        assert_int_equal(mg_json_parse(a, mg_sv_of(rows[i].text), &mg_json_api_limits, &j, NULL) == MG_OK,
                         rows[i].fits);
        double d = strtod(rows[i].text, NULL);
        assert_int_equal(d - d == 0, rows[i].fits);
    }
}

/* A number of many digits without an exponent overflows too. */
static void long_plain_numbers_are_judged(void **state)
{
    char text[700];

    (void)state;
    for (size_t n = 300; n < 320; n++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_json *j;
        memset(text, '1', n);
        memcpy(text + n, ".1111", 6);
        assert_int_equal(mg_json_parse(a, mg_sv_of(text), &mg_json_api_limits, &j, NULL) == MG_OK, n <= 309);
    }
}

static const char preserved[] =
    "{\"z\":0.1,\"a\":1.0,\"m\":1e-7,\"b\":-0,\"big\":9007199254740993,\"u64\":18446744073709551615,\"inf\":1e400,"
    "\"a\":\"again\",\"\":\"empty key\",\"nul\":\"\\u0000\",\"esc\":\"\\/\\u00e9\\ud83d\\ude00\", \"sp\" : [ 1 , 2 ] }";

/* Every value's raw text is the text that came, and the members are in the order in which they came. */
static void case_45_json_is_preserved(void **state)
{
    static const struct {
        const char *key, *raw;
    } members[] = {
        {"z", "0.1"},
        {"a", "1.0"},
        {"m", "1e-7"},
        {"b", "-0"},
        {"big", "9007199254740993"},
        {"u64", "18446744073709551615"},
        {"inf", "1e400"},
        {"a", "\"again\""},
        {"", "\"empty key\""},
        {"nul", "\"\\u0000\""},
        {"esc", "\"\\/\\u00e9\\ud83d\\ude00\""},
        {"sp", "[ 1 , 2 ]"},
    };
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_json *j = parse(a, MG_SV(preserved), &mg_json_raw_limits);
    const struct mg_json *m = j->child;

    (void)state;
    assert_sv_equal(j->raw, preserved);
    assert_int_equal(j->n, sizeof(members) / sizeof(members[0]));
    for (size_t i = 0; i < j->n; i++, m = m->next) {
        assert_sv_equal(m->key, members[i].key);
        assert_sv_equal(m->raw, members[i].raw);
    }
    assert_null(m);
    /* Of duplicates the last one counts. */
    assert_sv_equal(mg_json_get(j, "a")->raw, "\"again\"");
    assert_int_equal(mg_json_str(a, mg_json_get(j, "nul")).len, 1);
    assert_sv_equal(mg_json_str(a, mg_json_get(j, "esc")), "/\xc3\xa9\xf0\x9f\x98\x80");
}

static char *nested(size_t levels)
{
    char *text = mg_xmalloc(2 * levels + 1);

    memset(text, '[', levels);
    memset(text + levels, ']', levels);
    text[2 * levels] = '\0';
    return text;
}

static void case_45_depth_is_limited_and_named(void **state)
{
    (void)state;
    for (size_t levels = 500; levels <= 513; levels++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        mg_autofree char *text = nested(levels);
        struct mg_err err = {0};
        struct mg_json *j;
        mg_rc rc = mg_json_parse(a, mg_sv_of(text), &mg_json_raw_limits, &j, &err);
        assert_int_equal(rc, levels <= 512 ? MG_OK : MG_EINVAL);
        assert_int_equal(mg_json_check(mg_sv_of(text), 512, &err), rc);
        if (rc < 0)
            assert_contains(err.text, "nested deeper than 512 levels at byte 512");
        assert_int_equal(mg_json_parse(a, mg_sv_of(text), &mg_json_api_limits, &j, &err), MG_EINVAL);
        assert_contains(err.text, "nested deeper than 64 levels at byte 64");
    }
    /* A million levels cost no stack and no time. */
    mg_autofree char *deep = nested(1000000);
    assert_int_equal(mg_json_check(mg_sv_of(deep), 64, NULL), MG_EINVAL);
    assert_int_equal(mg_json_check(mg_sv_of(deep), 1000000, NULL), MG_OK);
}

static void case_45_five_megabytes_of_string(void **state)
{
    enum { N = 5 * 1024 * 1024 };
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_autofree char *text = mg_xmalloc(N + 2);

    (void)state;
    for (size_t i = 0; i < N; i += 2)
        memcpy(text + 1 + i, "\xc3\xa4", 2);
    text[0] = text[N + 1] = '"';
    const struct mg_json *j = parse(a, mg_sv_n(text, N + 2), &mg_json_api_limits);
    assert_int_equal(j->raw.len, N + 2);
    struct mg_sv s = mg_json_str(a, j);
    assert_ptr_equal(s.ptr, text + 1); /* a view: no copy */
    assert_int_equal(s.len, N);
}

static void values_are_counted(void **state)
{
    static const struct mg_json_limits four = {.max_depth = 10, .max_nodes = 4};
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_err err = {0};
    struct mg_json *j;

    (void)state;
    (void)parse(a, MG_SV("[1,2,3]"), &four);
    assert_int_equal(mg_json_parse(a, MG_SV("[1,2,3,4]"), &four, &j, &err), MG_EINVAL);
    assert_string_equal(err.text, "[3]: more than 4 values at byte 7");
}

/* 150,000 members, all keys different but the last: a quadratic search would take minutes. */
static void duplicates_in_big_objects_are_found_quickly(void **state)
{
    enum { MEMBERS = 150000 };
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(16 * 1024 * 1024);
    struct mg_err err = {0};
    struct mg_json *j;
    uint64_t start = mg_now_ns();

    (void)state;
    (void)mg_buf_char(&b, '{');
    for (int i = 0; i < MEMBERS; i++)
        (void)mg_buf_printf(&b, "\"key%d\":%d,", i, i);
    size_t len = b.len;
    (void)mg_buf_str(&b, "\"last\":0}");
    (void)parse(a, mg_buf_view(&b), &mg_json_api_limits);
    b.len = len;
    (void)mg_buf_str(&b, "\"key77\":0}");
    assert_int_equal(mg_json_parse(a, mg_buf_view(&b), &mg_json_api_limits, &j, &err), MG_EINVAL);
    assert_contains(err.text, "key77: this member is given twice");
    assert_true(mg_now_ns() - start < UINT64_C(20000000000));
}

static void accessors_answer_for_every_type(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_json *j =
        parse(a, MG_SV("{\"s\":\"x\",\"n\":1,\"b\":true,\"z\":null,\"a\":[10,20],\"o\":{}}"), &mg_json_api_limits);
    int64_t v;

    (void)state;
    assert_sv_equal(mg_json_get_str(a, j, "s"), "x");
    assert_sv_equal(mg_json_get_str(a, j, "n"), "");
    assert_sv_equal(mg_json_get_raw(j, "a"), "[10,20]");
    assert_sv_equal(mg_json_get_raw(j, "none"), "");
    assert_null(mg_json_get(j, "none"));
    assert_null(mg_json_get(mg_json_get(j, "a"), "x"));
    assert_null(mg_json_get(NULL, "x"));
    assert_sv_equal(mg_json_at(mg_json_get(j, "a"), 1)->raw, "20");
    assert_null(mg_json_at(mg_json_get(j, "a"), 2));
    assert_null(mg_json_at(j, 0));
    assert_true(mg_json_get(j, "b")->boolean);
    assert_false(mg_json_is(NULL, MG_JSON_NULL));
    assert_true(mg_json_is(mg_json_get(j, "z"), MG_JSON_NULL));
    assert_string_equal(mg_json_type_name(mg_json_get(j, "o")), "an object");
    assert_string_equal(mg_json_type_name(NULL), "nothing");
    assert_true(mg_json_i64(mg_json_get(j, "n"), &v));
    assert_false(mg_json_i64(mg_json_get(j, "s"), &v));
    assert_false(mg_json_i64(NULL, &v));
}

static void integers_are_taken_by_value_not_by_spelling(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"-0.000e99999999999999999999", true, 0},
        {"1.0", true, 1},
        {"1e2", true, 100},
        {"100e-2", true, 1},
        {"1.50e1", true, 15},
        {"0.00012e5", true, 12},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"-9223372036854775808", true, INT64_MIN},
        {"-9223372036854775809", false, 0},
        {"9007199254740993", true, INT64_C(9007199254740993)},
        {"1.5", false, 0},
        {"1e-1", false, 0},
        {"1e19", false, 0},
        {"1e99999999999999999999", false, 0},
        {"1e976931348623157348", false, 0},
        {"1e-99999999999999999999", false, 0},
        {"1e18", true, INT64_C(1000000000000000000)},
        {"10000000000000000000e-1", true, INT64_C(1000000000000000000)},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        int64_t v = 0;
        bool ok = mg_json_i64(parse(a, mg_sv_of(rows[i].text), &mg_json_raw_limits), &v);
        if (ok != rows[i].ok || (ok && v != rows[i].value))
            fail_msg("%s: %d %lld", rows[i].text, ok, (long long)v);
    }
}

static void strings_are_decoded(void **state)
{
    static const struct {
        const char *text, *value;
    } rows[] = {
        {"\"\"", ""},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00z\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"},
        {"\"\\ud800x\"", "\xef\xbf\xbdx"},
        {"\"\\udc00\\ud800\"", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\"\\ud800\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\"\\ud800\\n\"", "\xef\xbf\xbd\n"},
        {"\"a\\\\u0041\"", "a\\u0041"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        assert_sv_equal(mg_json_str(a, parse(a, mg_sv_of(rows[i].text), &mg_json_raw_limits)), rows[i].value);
    }
}

static void equality_is_of_values(void **state)
{
    static const struct {
        const char *x, *y;
        bool equal;
    } rows[] = {
        {"1", "1.0", true},
        {"100", "1e2", true},
        {"0.1", "1e-1", true},
        {"12.5", "1.25e1", true},
        {"-0", "0", true},
        {"0.10", "0.1", true},
        {"1", "-1", false},
        {"0.1", "0.10000000000000001", false},
        {"9007199254740993", "9007199254740992", false},
        {"1e400", "1e401", false},
        {"12", "21", false},
        {"123", "12.3", false},
        {"\"a\"", "\"\\u0061\"", true},
        {"\"a\"", "\"b\"", false},
        {"1", "\"1\"", false},
        {"null", "false", false},
        {"true", "false", false},
        {"[1,2]", "[ 1.0, 2e0 ]", true},
        {"[1,2]", "[2,1]", false},
        {"[1]", "[1,1]", false},
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true},
        {"{\"a\":1}", "{\"a\":1,\"b\":2}", false},
        {"{\"a\":1,\"b\":2}", "{\"a\":1}", false},
        {"{\"a\":{\"x\":[1]}}", "{\"\\u0061\":{\"x\":[1.0]}}", true},
        {"{\"a\":1,\"a\":2}", "{\"a\":2}", true},
        {"{\"a\":1,\"a\":2}", "{\"a\":1}", false},
        {"{}", "[]", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        const struct mg_json *x = parse(a, mg_sv_of(rows[i].x), &mg_json_raw_limits);
        const struct mg_json *y = parse(a, mg_sv_of(rows[i].y), &mg_json_raw_limits);
        if (mg_json_equal(a, x, y) != rows[i].equal || mg_json_equal(a, y, x) != rows[i].equal)
            fail_msg("%s and %s", rows[i].x, rows[i].y);
    }
    assert_true(mg_json_equal(NULL, NULL, NULL));
}

static void big_objects_are_compared_by_hash(void **state)
{
    enum { MEMBERS = 50000 };
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(buf) struct mg_buf x = MG_BUF_INIT(1 << 24);
    mg_auto(buf) struct mg_buf y = MG_BUF_INIT(1 << 24);

    (void)state;
    (void)mg_buf_char(&x, '{');
    (void)mg_buf_char(&y, '{');
    for (int i = 0; i < MEMBERS; i++) {
        (void)mg_buf_printf(&x, "%s\"k%d\":%d", i ? "," : "", i, i);
        (void)mg_buf_printf(&y, "%s\"k%d\":%d.0", i ? "," : "", MEMBERS - 1 - i, MEMBERS - 1 - i);
    }
    (void)mg_buf_char(&x, '}');
    (void)mg_buf_char(&y, '}');
    assert_true(mg_json_equal(a, parse(a, mg_buf_view(&x), &mg_json_api_limits),
                              parse(a, mg_buf_view(&y), &mg_json_api_limits)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts_are_accepted),
        cmocka_unit_test(invalid_texts_are_refused_with_place_and_offset),
        cmocka_unit_test(strict_refuses_what_lenient_keeps),
        cmocka_unit_test(the_range_of_a_double_is_exact),
        cmocka_unit_test(long_plain_numbers_are_judged),
        cmocka_unit_test(case_45_json_is_preserved),
        cmocka_unit_test(case_45_depth_is_limited_and_named),
        cmocka_unit_test(case_45_five_megabytes_of_string),
        cmocka_unit_test(values_are_counted),
        cmocka_unit_test(duplicates_in_big_objects_are_found_quickly),
        cmocka_unit_test(accessors_answer_for_every_type),
        cmocka_unit_test(integers_are_taken_by_value_not_by_spelling),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(equality_is_of_values),
        cmocka_unit_test(big_objects_are_compared_by_hash),
    };

    return RUN(tests);
}
