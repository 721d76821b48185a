#include "unit.h"

#include <fcntl.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

struct caught {
    char text[10000];
    int lines;
};

static void catch_line(void *ctx, enum mg_log_level level, struct mg_sv line)
{
    struct caught *c = ctx;

    (void)level;
    assert_true(line.len < sizeof(c->text));
    memcpy(c->text, line.ptr, line.len);
    c->text[line.len] = '\0';
    c->lines++;
}

static void text_lines_quote_what_is_not_a_word(void **state)
{
    struct caught c = {.lines = 0};

    (void)state;
    mg_log_setup(MG_INFO, false);
    mg_log_set_sink(catch_line, &c);
    mg_log(MG_WARN, "lease lost", MG_F_STR("session", "sesn_1"), MG_F_INT("age_ms", -7), MG_F_STR("why", "a \"b\"\n"),
           MG_F_STR("none", NULL));
    assert_string_equal(c.text + 27, " WARN lease lost session=sesn_1 age_ms=-7 why=\"a \\\"b\\\"\\n\" none=\"\"");
    assert_int_equal(c.text[26], 'Z');
    mg_log(MG_INFO, "two\nlines");
    assert_string_equal(c.text + 27, " INFO two lines");
    mg_log_set_sink(NULL, NULL);
}

static void levels_below_the_chosen_one_are_left_out(void **state)
{
    struct caught c = {.lines = 0};

    (void)state;
    mg_log_set_sink(catch_line, &c);
    mg_log_setup(MG_WARN, false);
    assert_false(mg_log_on(MG_INFO));
    mg_log(MG_INFO, "no");
    mg_log(MG_DEBUG, "no");
    assert_int_equal(c.lines, 0);
    mg_log(MG_ERROR, "yes");
    assert_int_equal(c.lines, 1);
    mg_log_set_sink(NULL, NULL);
}

static void json_lines_are_json_whatever_the_value(void **state)
{
    struct caught c = {.lines = 0};
    char long_value[9000];
    struct mg_err err = {0};

    (void)state;
    memset(long_value, '"', sizeof(long_value));
    mg_log_setup(MG_DEBUG, true);
    mg_log_set_sink(catch_line, &c);
    for (size_t n = 0; n < sizeof(long_value); n += 13) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_json *j;
        struct mg_sv v = mg_sv_n(long_value, n);
        mg_log(MG_DEBUG, "m\x01", MG_F_SV("a", v), MG_F_STR("b", "\xff\x02\xc3\xa4"), MG_F_INT("c", INT64_MIN),
               MG_F_SV("d", v), MG_F_SV("e", v), MG_F_SV("f", v));
        if (mg_json_parse(a, mg_sv_of(c.text), &mg_json_api_limits, &j, &err) < 0)
            fail_msg("%zu: %s", n, err.text);
        assert_sv_equal(mg_json_get_str(a, j, "level"), "debug");
        assert_sv_equal(mg_json_get_str(a, j, "msg"), "m\x01");
    }
    mg_log_set_sink(NULL, NULL);
    mg_log_setup(MG_INFO, false);
}

static void without_a_sink_lines_go_to_standard_error(void **state)
{
    int pipe_fds[2];
    char text[200] = "";

    (void)state;
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    int saved = dup(STDERR_FILENO);
    (void)dup2(pipe_fds[1], STDERR_FILENO);
    mg_log(MG_INFO, "hello", MG_F_INT("n", 1));
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    ssize_t n = read(pipe_fds[0], text, sizeof(text) - 1);
    assert_true(n > 27);
    assert_string_equal(text + 27, " INFO hello n=1\n");
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_lines_quote_what_is_not_a_word),
        cmocka_unit_test(levels_below_the_chosen_one_are_left_out),
        cmocka_unit_test(json_lines_are_json_whatever_the_value),
        cmocka_unit_test(without_a_sink_lines_go_to_standard_error),
    };

    return RUN(tests);
}
