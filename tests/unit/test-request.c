/* The body of a model request. */
#include "unit.h"

#include "json/json.h"
#include "model/request.h"

#define USER(c)                                             \
    {                                                       \
        .assistant = false, .content = { c, sizeof(c) - 1 } \
    }
#define ASSISTANT(c)                                       \
    {                                                      \
        .assistant = true, .content = { c, sizeof(c) - 1 } \
    }

static char *build(const struct mg_request_entry *entries, int n, struct mg_request r)
{
    struct mg_buf b = MG_BUF_INIT(1 << 20);
    r.entries = entries;
    r.n_entries = n;
    if (!r.model.ptr)
        r.model = MG_SV("m");
    r.max_tokens = 4096;
    assert_int_equal(mg_request_build(&r, &b), MG_OK);
    assert_int_equal(mg_json_check(mg_buf_view(&b), 512, NULL), MG_OK);
    return mg_buf_steal(&b, NULL);
}

static void members_stand_in_a_fixed_order_and_are_spliced_as_they_came(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {USER("[ {\"type\":\"text\",\"text\":\"\\u00e9 0.10\"} ]")};
    mg_autofree char *body = build(entries, 1,
                                   (struct mg_request){.model = MG_SV("a\"b"),
                                                       .system = MG_SV("\"be\\u0020kind\""),
                                                       .tools = MG_SV("[{\"name\":\"t\",\"x\":1.0}]"),
                                                       .effort = MG_SV("low"),
                                                       .fast = true});
    assert_string_equal(body, "{\"model\":\"a\\\"b\",\"max_tokens\":4096,\"stream\":true,\"output_config\":{\"effort\":"
                              "\"low\"},\"speed\":\"fast\","
                              "\"system\":\"be\\u0020kind\",\"tools\":[{\"name\":\"t\",\"x\":1.0}],\"messages\":[{"
                              "\"role\":\"user\",\"content\":"
                              "[{\"type\":\"text\",\"text\":\"\\u00e9 0.10\"}]}]}");
}

static void neighbours_of_one_role_become_one_message(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"a\":1}]"),          USER("[]"),  USER("[{\"a\":2}]"),      ASSISTANT("[{\"a\":3}]"),
        ASSISTANT(" [ {\"a\":4} ] "), USER("[ ]"), ASSISTANT("[{\"a\":5}]"),
    };
    mg_autofree char *body = build(entries, 7, (struct mg_request){0});
    assert_contains(body, "\"messages\":[{\"role\":\"user\",\"content\":[{\"a\":1},{\"a\":2}]},"
                          "{\"role\":\"assistant\",\"content\":[{\"a\":3},{\"a\":4}]},{\"role\":\"assistant\","
                          "\"content\":[{\"a\":5}]}]}");
}

static void words_that_came_while_a_tool_ran_stand_behind_its_result(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"type\":\"text\",\"text\":\"go\"}]"),
        ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"t\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"wait\"}]"),
        USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"0.10\"}, "
             "{\"type\":\"text\",\"text\":\"more\"}]"),
    };
    mg_autofree char *body = build(entries, 4, (struct mg_request){0});
    assert_contains(
        body, "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":\"0.10\"},"
              "{\"type\":\"text\",\"text\":\"wait\"},{\"type\":\"text\",\"text\":\"more\"}]}]}");
}

static void case_84_a_longer_transcript_begins_with_the_same_bytes(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"type\":\"text\",\"text\":\"1\"}]"),
        ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"t\",\"input\":{\"x\":-0}}]"),
        USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"t\"}]"),
        ASSISTANT("[{\"type\":\"text\",\"text\":\"2\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"3\"}]"),
        ASSISTANT("[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"s\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"4\"}]"),
    };
    mg_autofree char *before = build(entries, 1, (struct mg_request){.system = MG_SV("\"s\"")});
    for (int n = 3; n <= 7; n += 2) {
        char *body = build(entries, n, (struct mg_request){.system = MG_SV("\"s\"")});
        size_t common = strlen(before) - 2; /* without the closing brackets */
        assert_memory_equal(body, before, common);
        free(before);
        before = body;
    }
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"

static void breakpoints_stand_on_the_fixed_part_and_on_the_last_two_user_messages(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"type\":\"text\",\"text\":\"1\"}]"),      ASSISTANT("[{\"type\":\"text\",\"text\":\"2\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"3\"} ]"),     ASSISTANT("[{\"type\":\"text\",\"text\":\"4\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"5\"}]"),      USER("[{\"type\":\"text\",\"text\":\"6\"}]"),
        ASSISTANT("[{\"type\":\"text\",\"text\":\"7\"}]"),
    };
    mg_autofree char *body = build(entries, 7, (struct mg_request){.cache = true, .system = MG_SV("\"s\"")});
    assert_contains(body, "\"system\":[{\"type\":\"text\",\"text\":\"s\"," MARK "}]");
    assert_contains(body, "{\"type\":\"text\",\"text\":\"3\"," MARK "}");
    assert_contains(body, "{\"type\":\"text\",\"text\":\"6\"," MARK "}");
    assert_int_equal(count(body, MARK), 3);
    mg_autofree char *bare =
        build(entries, 1, (struct mg_request){.cache = true, .tools = MG_SV("[{\"name\":\"t\"}]")});
    assert_contains(bare, "\"tools\":[{\"name\":\"t\"," MARK "}]");
    assert_int_equal(count(bare, MARK), 2);
}

static void a_place_in_the_messages_is_found_again(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"type\":\"text\",\"text\":\"go\"}]"),
        ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"t\"}]"),
        USER("[]"),
        USER("[{\"type\":\"text\",\"text\":\"wait\"}]"),
        USER("[{\"type\":\"text\",\"text\":\"more\"},{\"type\":\"tool_result\",\"tool_use_id\":\"t\"}]"),
    };
    const struct mg_request r = {.entries = entries, .n_entries = 5};
    int entry;
    int64_t block;
    assert_true(mg_request_locate(&r, 2, 0, &entry, &block)); /* results are put first */
    assert_int_equal(entry, 4);
    assert_int_equal(block, 1);
    assert_true(mg_request_locate(&r, 2, 1, &entry, &block));
    assert_int_equal(entry, 3);
    assert_int_equal(block, 0);
    assert_true(mg_request_locate(&r, 2, 2, &entry, &block));
    assert_int_equal(entry, 4);
    assert_int_equal(block, 0);
    assert_true(mg_request_locate(&r, 0, 0, &entry, &block));
    assert_int_equal(entry, 0);
    assert_false(mg_request_locate(&r, 2, 3, &entry, &block));
    assert_false(mg_request_locate(&r, 3, 0, &entry, &block));
}

static void a_body_over_the_limit_is_refused(void **state)
{
    (void)state;
    static const struct mg_request_entry entries[] = {
        USER("[{\"type\":\"text\",\"text\":\"0123456789012345678901234567890123456789\"}]")};
    for (size_t max = 0; max < 160; max++) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(max);
        const struct mg_request r = {.model = MG_SV("m"), .entries = entries, .n_entries = 1, .max_tokens = 1};
        if (mg_request_build(&r, &b) == MG_OK)
            assert_int_equal(mg_json_check(mg_buf_view(&b), 512, NULL), MG_OK);
        else
            assert_true(max < 150);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_stand_in_a_fixed_order_and_are_spliced_as_they_came),
        cmocka_unit_test(neighbours_of_one_role_become_one_message),
        cmocka_unit_test(words_that_came_while_a_tool_ran_stand_behind_its_result),
        cmocka_unit_test(case_84_a_longer_transcript_begins_with_the_same_bytes),
        cmocka_unit_test(breakpoints_stand_on_the_fixed_part_and_on_the_last_two_user_messages),
        cmocka_unit_test(a_place_in_the_messages_is_found_again),
        cmocka_unit_test(a_body_over_the_limit_is_refused),
    };
    return RUN(tests);
}
