#include "domain.h"

#include "base/utf8.h"
#include "run/outcome.h"

static struct mg_sv user_text(struct mg_arena *a, const struct mg_request *r)
{
    struct mg_json *v;
    assert_int_equal(r->n_entries, 1);
    assert_int_equal(mg_json_parse(a, r->entries[0].content, &mg_json_raw_limits, &v, NULL), MG_OK);
    return mg_json_get_str(a, v->child, "text");
}

static void ou1_only_the_object_that_was_asked_for_is_a_verdict(void **state)
{
    static const struct {
        const char *text;
        enum mg_verdict want;
        const char *why; /* part of the explanation */
    } ROWS[] = {
        {"{\"result\":\"satisfied\",\"explanation\":\"all met\"}", MG_VERDICT_SATISFIED, "all met"},
        {" \r\n{\"result\":\"needs_revision\",\"explanation\":\"a\\\"b\"}\n", MG_VERDICT_REVISE, "a\"b"},
        {"{\"result\":\"failed\",\"explanation\":\"no\"}", MG_VERDICT_FAILED, "no"},
        {"```json\n{\"result\":\"satisfied\",\"explanation\":\"x\"}\n```", MG_VERDICT_SATISFIED, "x"},
        {"```\n{\"result\":\"satisfied\",\"explanation\":\"x\"}```", MG_VERDICT_SATISFIED, "x"},
        {"{\"result\":\"satisfied\"}", MG_VERDICT_FAILED, "was not the JSON object"},
        {"{\"result\":\"satisfied\",\"explanation\":1}", MG_VERDICT_FAILED, "was not the JSON object"},
        {"{\"result\":\"Satisfied\",\"explanation\":\"x\"}", MG_VERDICT_FAILED, "was not the JSON object"},
        {"[{\"result\":\"satisfied\",\"explanation\":\"x\"}]", MG_VERDICT_FAILED, "was not the JSON object"},
        {"It is satisfied.", MG_VERDICT_FAILED, "was not the JSON object"},
        {"{\"result\":\"satisfied\",\"explanation\":\"x\"} and more", MG_VERDICT_FAILED, "was not the JSON object"},
        {"```", MG_VERDICT_FAILED, "was not the JSON object"},
        {"```\n```", MG_VERDICT_FAILED, "was not the JSON object"},
        {"", MG_VERDICT_FAILED, "was not the JSON object"},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct mg_sv why;
        enum mg_verdict got = mg_outcome_verdict(*state, mg_sv_of(ROWS[i].text), &why);
        if (got != ROWS[i].want)
            fail_msg("row %zu: %d, not %d", i, (int)got, (int)ROWS[i].want);
        assert_contains(mg_arena_strdup(*state, why), ROWS[i].why);
    }
}

static void ou1_the_request_has_task_rubric_and_record_and_no_tools(void **state)
{
    struct mg_arena *a = *state;
    struct mg_request_entry entries[] = {
        {.content = MG_SV("[{\"type\":\"text\",\"text\":\"make it\"}]")},
        {.assistant = true,
         .content =
             MG_SV("[{\"type\":\"text\",\"text\":\"I will\"},{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"bash\","
                   "\"input\":{\"command\":\"ls\"}}]")},
        {.content = MG_SV(
             "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"a b\"}]}]")},
    };
    struct mg_request r = {
        .model = MG_SV("m"), .tools = MG_SV("[{}]"), .max_tokens = 9999, .entries = entries, .n_entries = 3};
    const struct mg_outcome o = {.description = MG_SV("the task"), .rubric = MG_SV("the rubric")};
    mg_outcome_request(a, &o, &r);
    const char *text = mg_arena_strdup(a, user_text(a, &r));
    assert_contains(text, "<task>\nthe task\n</task>");
    assert_contains(text, "<rubric>\nthe rubric\n</rubric>");
    assert_contains(text, "user: make it\nagent: I will\ncall of bash: {\"command\":\"ls\"}\nits result: ");
    assert_contains(text, "a b");
    assert_int_equal(r.tools.len, 0);
    assert_int_equal(r.max_tokens, MG_GRADER_TOKENS);
    assert_true(mg_sv_eqz(r.model, "m"));
}

/* The newest part stays, and no character is cut. */
static void a_long_record_keeps_its_end(void **state)
{
    struct mg_arena *a = *state;
    mg_auto(buf) struct mg_buf long_one = MG_BUF_INIT(4 * 1024 * 1024), result = MG_BUF_INIT(4 * 1024 * 1024);
    (void)mg_buf_str(&long_one, "[{\"type\":\"text\",\"text\":\"START");
    for (int i = 0; i < MG_GRADER_WORK_MAX / 2; i++)
        (void)mg_buf_str(&long_one, "é");
    (void)mg_buf_str(&long_one, "\"}]");
    (void)mg_buf_str(&result, "[{\"type\":\"tool_result\",\"content\":\"");
    for (int i = 0; i < 5000; i++)
        (void)mg_buf_str(&result, "é");
    (void)mg_buf_str(&result, "END\"}]");
    struct mg_request_entry entries[] = {{.content = mg_buf_view(&long_one)}, {.content = mg_buf_view(&result)}};
    struct mg_request r = {.entries = entries, .n_entries = 2};
    const struct mg_outcome o = {.description = MG_SV("d"), .rubric = MG_SV("r")};
    mg_outcome_request(a, &o, &r);
    struct mg_sv text = user_text(a, &r);
    assert_true(text.len <= MG_GRADER_WORK_MAX + 200);
    assert_true(mg_utf8_valid(text, NULL));
    const char *z = mg_arena_strdup(a, text);
    assert_null(strstr(z, "START"));
    assert_contains(z, "é [...]\n</record>");
    assert_null(strstr(z, "END"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ou1_only_the_object_that_was_asked_for_is_a_verdict),
        cmocka_unit_test(ou1_the_request_has_task_rubric_and_record_and_no_tools),
        cmocka_unit_test(a_long_record_keeps_its_end),
    };
    return RUN_WITH_ARENA(tests);
}
