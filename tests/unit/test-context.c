/* What of a transcript a request shows, how many tokens that is taken for, and where it may be cut. */
#include "unit.h"

#include <stdio.h>

#include "json/json.h"
#include "run/compact.h"

enum { ROWS_MAX = 64, ANSWER = 4096 };

struct world {
    struct mg_arena *a;
    struct mg_transcript_row rows[ROWS_MAX];
    struct mg_context_mark marks[8];
    struct mg_turn_input in;
    struct mg_context c;
};

static int setup(void **state)
{
    struct world *w = test_calloc(1, sizeof(*w));
    w->a = mg_arena_new();
    w->in = (struct mg_turn_input){.rows = w->rows, .marks = w->marks, .turn = 7};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    mg_arena_free(w->a);
    test_free(w);
    return 0;
}

static struct mg_transcript_row *add(struct world *w, bool assistant, const char *content)
{
    struct mg_transcript_row *r = &w->rows[w->in.n_rows++];
    *r = (struct mg_transcript_row){.assistant = assistant,
                                    .content = mg_sv_of(mg_arena_strdup(w->a, mg_sv_of(content)))};
    w->in.len++;
    return r;
}

static const char *text_of(struct world *w, size_t bytes)
{
    char *x = mg_arena_alloc(w->a, bytes + 1);
    memset(x, 'x', bytes);
    return mg_arena_strdup(w->a, mg_arena_printf(w->a, "[{\"type\":\"text\",\"text\":\"%s\"}]", x));
}

/* A turn of words, a call, its result of so many bytes, and an answer. */
static void add_turn(struct world *w, size_t bytes)
{
    char *x = mg_arena_alloc(w->a, bytes + 1);
    memset(x, 'y', bytes);
    add(w, false, "[{\"type\":\"text\",\"text\":\"do it\"}]");
    add(w, true, "[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"bash\",\"input\":{}}]");
    add(w, false,
        mg_arena_strdup(w->a, mg_arena_printf(w->a,
                                              "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":"
                                              "[{\"type\":\"text\",\"text\":\"%s\"}]}]",
                                              x)));
    add(w, true, "[{\"type\":\"text\",\"text\":\"done\"}]");
}

static void build(struct world *w, int64_t tokens, const char *user)
{
    mg_context_build(&w->c, w->a, &w->in, mg_sv_of(user), 1, 300, mg_window_of(tokens, ANSWER));
}

static struct mg_compact plan(struct world *w, int64_t tokens)
{
    build(w, tokens, "[{\"type\":\"text\",\"text\":\"now\"}]");
    return mg_compact_plan(&w->c);
}

static void windows_are_known_by_name_and_leave_room_for_an_answer(void **state)
{
    (void)state;
    assert_int_equal(mg_model_window(MG_SV("nobody-knows")), MG_WINDOW_UNKNOWN);
    assert_int_equal(mg_model_window(MG_SV("GLM-4.5-air")), 128000);
    static const int64_t sizes[] = {1, 8192, 16000, 32000, 128000, 200000, 400000, 1000000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct mg_window w = mg_window_of(sizes[i], ANSWER);
        assert_true(w.trigger > 0 && w.trigger < w.input_max &&
                    w.input_max <= w.tokens - (w.tokens > 2 * ANSWER ? ANSWER : 0));
        assert_true(w.trigger >= w.input_max / 5 * 4 - 1); /* most of a small window is usable */
    }
    assert_int_equal(mg_window_of(200000, ANSWER).trigger, 200000 - ANSWER - (ANSWER + 15000));
}

static void tokens_are_a_third_of_the_bytes_and_images_count_by_kind(void **state)
{
    struct world *w = *state;
    assert_in_range(mg_content_tokens(mg_sv_of(text_of(w, 3000))), 1000, 1050);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(4 << 20);
    mg_buf_str(
        &b, "[{\"type\":\"tool_result\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"data\":\"");
    for (int i = 0; i < 300000; i++)
        mg_buf_str(&b, "AAAA");
    mg_buf_str(&b, "\"}}]}]");
    assert_in_range(mg_content_tokens(mg_buf_view(&b)), MG_CONTEXT_IMAGE_TOKENS, MG_CONTEXT_IMAGE_TOKENS + 100);
}

static void what_was_measured_counts_until_the_fixed_part_or_the_summary_changes(void **state)
{
    struct world *w = *state;
    add(w, false, text_of(w, 30000));
    struct mg_transcript_row *measured = add(w, true, "[{\"type\":\"text\",\"text\":\"a\"}]");
    measured->tokens = 5000;
    measured->fixed = 1;
    build(w, 200000, "");
    assert_int_equal(mg_context_tokens(&w->c, 2), 5000);
    assert_in_range(mg_context_tokens(&w->c, 1), 10000, 10300); /* estimated: it was not measured up to there */
    measured->fixed = 2;
    build(w, 200000, "");
    assert_in_range(mg_context_tokens(&w->c, 2), 10000, 10300);
    measured->fixed = 1;
    w->marks[w->in.n_marks++] =
        (struct mg_context_mark){.kind = MG_MARK_SUMMARY, .made_at = 2, .a = 0, .content = mg_sv_of(text_of(w, 30))};
    build(w, 200000, "");
    assert_in_range(mg_context_tokens(&w->c, 3), 10000, 10400);
}

static void a_small_context_goes_out_as_it_is(void **state)
{
    struct world *w = *state;
    add_turn(w, 100);
    assert_int_equal(plan(w, 32000).how, MG_COMPACT_NOT);
}

static void no_cut_parts_a_call_from_its_result(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 10; i++)
        add_turn(w, 9000);
    for (int64_t window = 9000; window < 40000; window += 500) {
        struct mg_compact p = plan(w, window);
        assert_int_not_equal(p.how, MG_COMPACT_NOT);
        if (p.how == MG_COMPACT_EXCERPT)
            continue;
        assert_in_range(p.n, 1, w->c.n - 1);
        const struct mg_context_entry *first = &w->c.entries[p.n];
        assert_int_equal(p.upto, first->number);
        assert_false(!first->assistant && mg_content_has(w->a, first->content, "tool_result"));
        if (first->assistant) /* its question is told, and it is the whole of its message */
            assert_false(w->c.entries[p.n - 1].assistant);
    }
}

static void a_quarter_stays_word_for_word_and_the_newest_message_always(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 9; i++)
        add_turn(w, 9000);
    struct mg_compact p = plan(w, 32000);
    assert_int_equal(p.how, MG_COMPACT_ASK);
    int64_t tail = 0;
    for (int i = p.n; i < w->c.n; i++)
        tail += mg_context_entry_tokens(&w->c, i);
    assert_true(tail <= w->c.window.trigger / 4);
    assert_true(mg_context_tokens(&w->c, p.n) + p.summary_max <= w->c.window.tokens);
    assert_int_equal(w->c.entries[w->c.n - 1].number, w->in.len);
    assert_true(p.n < w->c.n);
}

static void the_user_s_last_words_are_quoted_where_they_would_be_lost(void **state)
{
    struct world *w = *state;
    add(w, false, "[{\"type\":\"text\",\"text\":\"find the needle\"}]");
    for (int i = 0; i < 12; i++) {
        add(w, true, "[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"bash\",\"input\":{}}]");
        add(w, false,
            mg_arena_strdup(w->a, mg_arena_printf(w->a,
                                                  "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
                                                  "\"content\":%s}]",
                                                  text_of(w, 9000))));
    }
    build(w, 32000, "");
    struct mg_compact p = mg_compact_plan(&w->c);
    assert_int_equal(p.how, MG_COMPACT_ASK);
    struct mg_sv block = mg_compact_summary(&w->c, p.n, MG_SV("\"notes \\u00e9\""));
    assert_int_equal(mg_json_check(block, 64, NULL), MG_OK);
    assert_contains(mg_arena_strdup(w->a, block), "notes \\u00e9");
    assert_contains(mg_arena_strdup(w->a, block), "find the needle");
}

static void an_extract_holds_the_first_and_the_newest_entries(void **state)
{
    struct world *w = *state;
    add(w, false, "[{\"type\":\"text\",\"text\":\"the first wish\"}]");
    for (int i = 0; i < 10; i++)
        add_turn(w, 2000);
    add(w, true, "[{\"type\":\"text\",\"text\":\"the last word\"}]");
    build(w, 32000, "[{\"type\":\"text\",\"text\":\"now\"}]");
    struct mg_sv block = mg_compact_summary(&w->c, w->c.n - 1, MG_SV(""));
    assert_int_equal(mg_json_check(block, 64, NULL), MG_OK);
    assert_true(block.len < 16000);
    const char *text = mg_arena_strdup(w->a, block);
    assert_contains(text, "the first wish");
    assert_contains(text, "the last word");
    assert_contains(text, "(called bash)");
}

static void what_cannot_be_summarised_is_cut_to_excerpts_once(void **state)
{
    struct world *w = *state;
    build(w, 32000, text_of(w, 200000));
    struct mg_compact p = mg_compact_plan(&w->c);
    assert_int_equal(p.how, MG_COMPACT_EXCERPT);
    w->marks[w->in.n_marks++] =
        (struct mg_context_mark){.kind = MG_MARK_SUMMARY, .turn = 7, .b = p.excerpts, .content = MG_SV("")};
    build(w, 32000, text_of(w, 200000));
    assert_int_equal(mg_compact_plan(&w->c).how, MG_COMPACT_NOT);
    assert_true(w->c.entries[0].content.len < 2 * MG_CONTEXT_EXCERPT);
    assert_int_equal(mg_json_check(w->c.entries[0].content, 64, NULL), MG_OK);
}

static void a_long_message_that_may_fit_is_sent_and_cut_only_when_it_is_refused(void **state)
{
    struct world *w = *state;
    build(w, 200000, text_of(w, 620000)); /* some 155,000 tokens, for which 206,000 are assumed */
    assert_int_equal(mg_compact_plan(&w->c).how, MG_COMPACT_NOT);
    w->marks[w->in.n_marks++] = (struct mg_context_mark){.kind = MG_MARK_REFUSED, .turn = 7, .a = 206000};
    build(w, 200000, text_of(w, 620000));
    assert_int_equal(mg_compact_plan(&w->c).how, MG_COMPACT_EXCERPT);
}

static void an_excerpt_keeps_calls_and_their_results_and_loses_images(void **state)
{
    struct world *w = *state;
    const char *content = mg_arena_strdup(
        w->a,
        mg_arena_printf(w->a,
                        "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"is_error\":true,\"content\":[{\"type\":"
                        "\"image\",\"source\":{\"type\":\"base64\",\"data\":\"AAAA\"}},%.*s]},{\"x\":1.50}]",
                        MG_SV_ARG(mg_json_inside(mg_sv_of(text_of(w, 9000))))));
    const char *got = mg_arena_strdup(w->a, mg_content_excerpt(w->a, mg_sv_of(content)));
    assert_contains(got, "\"tool_use_id\":\"t\",\"is_error\":true");
    assert_contains(got, "[image left out to make room]");
    assert_contains(got, "6000 bytes left out");
    assert_contains(got, "{\"x\":1.50}");
    assert_int_equal(mg_json_check(mg_sv_of(got), 64, NULL), MG_OK);
}

static void case_82_a_replaced_block_keeps_its_place_and_pairs(void **state)
{
    struct world *w = *state;
    static const char content[] =
        "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"image\"}]},"
        "{\"type\":\"image\"},{\"type\":\"tool_use\",\"id\":\"u\"}]";
    static const struct {
        int64_t block;
        const char *want;
    } cases[] = {
        {0, "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"text\",\"text\":\"n\\\"\"}]},{"
            "\"type\":\"image\"},"
            "{\"type\":\"tool_use\",\"id\":\"u\"}]"},
        {1, "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":\"image\"}]},{\"type\":\"text\","
            "\"text\":\"n\\\"\"},"
            "{\"type\":\"tool_use\",\"id\":\"u\"}]"},
        {2, content}, /* its result would be left alone */
        {3, content},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_sv_equal(mg_content_replace(w->a, MG_SV(content), cases[i].block, MG_SV("n\"")), cases[i].want);
}

static void case_83_a_refusal_bounds_what_follows_and_asks_for_less(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 4; i++)
        add_turn(w, 9000);
    assert_int_equal(plan(w, 200000).how, MG_COMPACT_NOT);
    w->marks[w->in.n_marks++] = (struct mg_context_mark){.kind = MG_MARK_REFUSED, .turn = 7, .a = w->c.n ? 12000 : 0};
    struct mg_compact p = plan(w, 200000);
    assert_int_not_equal(p.how, MG_COMPACT_NOT);
    assert_int_equal(w->c.refusals, 1);
    assert_int_equal(w->c.window.input_max, 9000);
    w->marks[w->in.n_marks++] = (struct mg_context_mark){
        .kind = MG_MARK_SUMMARY, .turn = 7, .made_at = w->in.len, .a = w->in.len, .content = mg_sv_of(text_of(w, 300))};
    w->in.n_rows = 0;
    assert_int_equal(plan(w, 200000).how, MG_COMPACT_NOT); /* compacted: the bound stays, the need is gone */
    assert_int_equal(w->c.window.input_max, 9000);
    w->in.turn = 8;
    (void)plan(w, 200000);
    assert_int_equal(w->c.refusals, 0); /* counted by turn */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(windows_are_known_by_name_and_leave_room_for_an_answer),
        TEST(tokens_are_a_third_of_the_bytes_and_images_count_by_kind),
        TEST(what_was_measured_counts_until_the_fixed_part_or_the_summary_changes),
        TEST(a_small_context_goes_out_as_it_is),
        TEST(no_cut_parts_a_call_from_its_result),
        TEST(a_quarter_stays_word_for_word_and_the_newest_message_always),
        TEST(the_user_s_last_words_are_quoted_where_they_would_be_lost),
        TEST(an_extract_holds_the_first_and_the_newest_entries),
        TEST(what_cannot_be_summarised_is_cut_to_excerpts_once),
        TEST(a_long_message_that_may_fit_is_sent_and_cut_only_when_it_is_refused),
        TEST(an_excerpt_keeps_calls_and_their_results_and_loses_images),
        TEST(case_82_a_replaced_block_keeps_its_place_and_pairs),
        TEST(case_83_a_refusal_bounds_what_follows_and_asks_for_less),
    };
    return RUN(tests);
}
