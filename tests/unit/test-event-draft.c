#include "domain/event.h"

#include "domain.h"
#include "domain/content.h"
#include "domain/thread.h"

/* A PNG of 1 x 1 pixels in base64, and the header of one of 9000 x 1. */
#define PNG "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="
#define WIDE_PNG "iVBORw0KGgoAAAANSUhEUgAAIygAAAABCAYAAAAAAAAA"

static mg_rc parse(struct mg_arena *a, const char *text, bool initial, struct mg_draft **d, int *n, struct mg_err *err)
{
    return mg_drafts_parse(a, json_of(a, text), initial ? "initial_events" : "events", initial, d, n, err);
}

static void every_type_that_a_client_may_send_is_read(void **state)
{
    struct mg_draft *d;
    int n;
    struct mg_err err = {0};
    const char *text =
        "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"h\\u00e9\"}]},"
        "{\"type\":\"user.interrupt\",\"session_thread_id\":null},"
        "{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"sevt_1\",\"result\":\"deny\",\"deny_message\":\"no\"},"
        "{\"type\":\"user.custom_tool_result\",\"custom_tool_use_id\":\"sevt_2\",\"content\":[]},"
        "{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_3\",\"is_error\":true},"
        "{\"type\":\"system.message\",\"content\":[{\"type\":\"text\",\"text\":\"s\"}]}]";
    if (parse(*state, text, false, &d, &n, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, 6);
    assert_int_equal(d[0].type, MG_EV_USER_MESSAGE);
    assert_sv_equal(d[0].content, "[{\"type\":\"text\",\"text\":\"h\\u00e9\"}]");
    assert_sv_equal(d[0].members, "\"content\":[{\"type\":\"text\",\"text\":\"h\\u00e9\"}]");
    assert_sv_equal(d[2].ref_id, "sevt_1");
    assert_sv_equal(d[2].deny_message, "no");
    assert_false(d[2].allow);
    assert_sv_equal(d[3].ref_id, "sevt_2");
    assert_sv_equal(d[3].content, "[]");
    assert_true(d[4].is_error);
    assert_int_equal(d[4].content.len, 0);
    assert_int_equal(d[5].type, MG_EV_SYSTEM_MESSAGE);
}

static void case_1_a_result_may_be_empty_in_every_form(void **state)
{
    static const char *const FORMS[] = {
        "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_1\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]}]",
        "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_1\",\"content\":[]}]",
        "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_1\"}]",
        "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_1\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{"
        "\"type\":\"image\","
        "\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" PNG "\"}}]}]",
    };
    for (size_t i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++) {
        struct mg_draft *d;
        int n;
        struct mg_err err = {0};
        if (parse(*state, FORMS[i], false, &d, &n, &err) < 0)
            fail_msg("%s: %s", FORMS[i], err.text);
    }
}

static void a_message_may_hold_images_and_documents(void **state)
{
    struct mg_draft *d;
    int n;
    struct mg_err err = {0};
    const char *text =
        "[{\"type\":\"user.message\",\"content\":["
        "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" PNG "\"}},"
        "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://example.com/a.png\"}},"
        "{\"type\":\"document\",\"source\":{\"type\":\"text\",\"media_type\":\"text/"
        "plain\",\"data\":\"x\"},\"title\":null},"
        "{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":\"application/"
        "pdf\",\"data\":\"JVBERg==\"}}]}]";
    if (parse(*state, text, false, &d, &n, &err) < 0)
        fail_msg("%s", err.text);
}

static void case_27_nul_in_a_message_is_kept_as_its_escape(void **state)
{
    struct mg_draft *d;
    int n;
    struct mg_err err = {0};
    assert_int_equal(parse(*state,
                           "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000b\"}]}]",
                           false, &d, &n, &err),
                     0);
    assert_contains(d[0].members.ptr, "a\\u0000b");
}

#define MESSAGE "{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}"
#define SYSTEM "{\"type\":\"system.message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}"
#define CONTENT(block) "[{\"type\":\"user.message\",\"content\":[" block "]}]"

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    static const struct refusal CASES[] = {
        {"[]", "events: must not be empty"},
        {"{}", "events: must be an array; got an object"},
        {"[1]", "events[0]: must be an object"},
        {"[{}]", "events[0].type: is required"},
        {"[{\"type\":7}]", "events[0].type: must be a string"},
        {"[{\"type\":\"user.mesage\"}]", "events[0].type: must be one of user.message"},
        {"[{\"type\":\"agent.message\"}]", "written by the server only"},
        {"[{\"type\":\"user.define_outcome\",\"description\":\"d\"}]", "events[0].rubric"},
        {"[{\"type\":\"user.message\"}]", "events[0].content: is required"},
        {"[{\"type\":\"user.message\",\"content\":\"x\"}]", "events[0].content: must be an array"},
        {"[{\"type\":\"user.message\",\"content\":[]}]", "events[0].content: must not be empty"},
        {"[{\"type\":\"user.message\",\"content\":[],\"extra\":1}]", "events[0].content"},
        {"[" MESSAGE ",{\"type\":\"user.message\",\"id\":\"sevt_1\",\"content\":[]}]", "events[1].id: unknown field"},
        {CONTENT("{\"type\":\"video\"}"),
         "events[0].content[0].type: must be one of text, image, document; got \"video\""},
        {CONTENT("{\"type\":\"search_result\"}"), "events[0].content[0].type"},
        {CONTENT("{\"type\":\"redacted\"}"), "redacted block"},
        {CONTENT("{\"type\":\"text\"}"), "events[0].content[0].text: is required"},
        {CONTENT("{\"type\":\"text\",\"text\":\" \\n\"}"), "white space"},
        {CONTENT("{\"type\":\"text\",\"text\":1}"), "events[0].content[0].text: must be a string; got a number"},
        {CONTENT("{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{}}"), "cache_control: unknown field"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"file\"}}"), "source.file_id: is required"},
        {CONTENT("{\"type\":\"document\",\"source\":{\"type\":\"file\",\"file_id\":\"a b\"}}"),
         "source.file_id: must be an id"},
        {"[{\"type\":\"user.tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":"
         "\"file\","
         "\"file_id\":\"f\"}}]}]",
         "a file source is taken in a user.message only"},
        {"[{\"type\":\"user.define_outcome\",\"description\":\"d\",\"rubric\":{\"type\":\"file\"}}]",
         "rubric.file_id: is required"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"text\"}}"),
         "source.type: must be one of base64, url, file"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"ftp://x\"}}"),
         "source.url: must begin with"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/tiff\",\"data\":\"" PNG
                 "\"}}"),
         "media type"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/jpeg\",\"data\":\"" PNG
                 "\"}}"),
         "not a jpeg"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" WIDE_PNG
                 "\"}}"),
         "9000 x 1"},
        {CONTENT("{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"!!\"}}"),
         "not base64"},
        {CONTENT(
             "{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"eA==\"}}"),
         "application/pdf"},
        {"[" SYSTEM "]", "must directly follow"},
        {"[" MESSAGE "," SYSTEM "," MESSAGE "]", "must be the last event"},
        {"[" MESSAGE "," SYSTEM "," SYSTEM "]", "must be the last event"},
        {"[{\"type\":\"user.interrupt\"}," SYSTEM "]", "must directly follow"},
        {"[{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"a\",\"result\":\"maybe\"}]",
         "result: must be one of allow, deny"},
        {"[{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"a\",\"result\":\"allow\",\"deny_message\":\"x\"}]",
         "deny_message: is only"},
        {"[{\"type\":\"user.tool_result\",\"custom_tool_use_id\":\"a\"}]", "custom_tool_use_id: unknown field"},
        {"[{\"type\":\"user.tool_result\",\"tool_use_id\":\"a b\"}]", "tool_use_id: must be an id"},
        {"[{\"type\":\"user.tool_result\",\"tool_use_id\":\"a\",\"is_error\":\"no\"}]", "is_error: must be a boolean"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_draft *d;
        int n;
        struct mg_err err = {0};
        if (parse(*state, CASES[i].body, false, &d, &n, &err) != MG_EINVAL)
            fail_msg("accepted: %s", CASES[i].body);
        assert_contains(err.text, CASES[i].text);
    }
}

static void initial_events_are_messages_only(void **state)
{
    struct mg_draft *d;
    int n;
    struct mg_err err = {0};
    assert_int_equal(parse(*state, "[]", true, &d, &n, &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(parse(*state, "[{\"type\":\"user.interrupt\"}]", true, &d, &n, &err), MG_EINVAL);
    assert_contains(err.text, "initial_events[0].type: must be one of user.message, user.define_outcome");
}

static void at_most_fifty_initial_events_and_a_hundred_in_a_post(void **state)
{
    static const struct {
        int n;
        bool initial;
        mg_rc rc;
    } CASES[] = {{50, true, 0}, {51, true, MG_EINVAL}, {100, false, 0}, {101, false, MG_EINVAL}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_sv text = MG_SV("[" MESSAGE);
        for (int k = 1; k < CASES[i].n; k++)
            text = mg_arena_printf(*state, "%.*s,%s", MG_SV_ARG(text), MESSAGE);
        text = mg_arena_printf(*state, "%.*s]", MG_SV_ARG(text));
        struct mg_draft *d;
        int n;
        struct mg_err err = {0};
        assert_int_equal(parse(*state, text.ptr, CASES[i].initial, &d, &n, &err), CASES[i].rc);
    }
}

static void names_and_types_are_each_others_inverse(void **state)
{
    (void)state;
    for (int t = 0; t < MG_EV__COUNT; t++) {
        enum mg_event_type back;
        assert_non_null(mg_event_type_name((enum mg_event_type)t));
        assert_true(mg_event_type_from(mg_sv_of(mg_event_type_name((enum mg_event_type)t)), &back));
        assert_int_equal(back, t);
        assert_true(mg_event_type_is_contract(mg_sv_of(mg_event_type_name((enum mg_event_type)t))));
    }
    assert_true(mg_event_type_is_contract(MG_SV("workflow_run.created")));
    assert_false(mg_event_type_is_contract(MG_SV("user.")));
}

static void the_primary_thread_is_named_after_its_session(void **state)
{
    (void)state;
    const struct mg_id id = mg_thread_primary(MG_SV("sesn_01ABC"));
    assert_string_equal(id.s, "sthr_01ABC");
}

static void a_cut_or_hostile_image_header_is_refused(void **state)
{
    (void)state;
    static const char *const DATA[] = {
        "", "iVBORw0KGgo=", "/9j/", "/9j/////////////", "UklGRgAAAABXRUJQVlA4WA==", "R0lG"};
    static const char *const KINDS[] = {"image/png", "image/jpeg", "image/gif", "image/webp"};
    for (size_t i = 0; i < sizeof(DATA) / sizeof(DATA[0]); i++)
        for (size_t k = 0; k < sizeof(KINDS) / sizeof(KINDS[0]); k++)
            assert_int_equal(mg_image_check(mg_sv_of(KINDS[k]), mg_sv_of(DATA[i]), NULL), MG_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_that_a_client_may_send_is_read),
        cmocka_unit_test(case_1_a_result_may_be_empty_in_every_form),
        cmocka_unit_test(a_message_may_hold_images_and_documents),
        cmocka_unit_test(case_27_nul_in_a_message_is_kept_as_its_escape),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(initial_events_are_messages_only),
        cmocka_unit_test(at_most_fifty_initial_events_and_a_hundred_in_a_post),
        cmocka_unit_test(names_and_types_are_each_others_inverse),
        cmocka_unit_test(the_primary_thread_is_named_after_its_session),
        cmocka_unit_test(a_cut_or_hostile_image_header_is_refused),
    };
    return RUN_WITH_ARENA(tests);
}
