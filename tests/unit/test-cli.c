/* The pure parts of the command line. They are no part of libcore, so the sources are taken in here. */
#include "unit/unit.h"

#include "cmd/cli-args.c"  /* NOLINT(bugprone-suspicious-include) */
#include "cmd/cli-print.c" /* NOLINT(bugprone-suspicious-include) */

static const struct mg_cli_opt OPTS[] = {
    {"after", "CURSOR", "where to start"}, {"keep", NULL, "keep it"}, {NULL, NULL, NULL}};
static const struct mg_cli_command COMMANDS[] = {
    {"run", "TEXT", "run it", OPTS, 1, 1, true, false, NULL, "  mango run x\n"},
    {"session list", "", "list", NULL, 0, 0, true, false, NULL, NULL},
    {"session show", "ID", "show", NULL, 1, 2, true, false, NULL, NULL},
    {"migrate", "", "migrate", NULL, 0, 0, false, true, NULL, NULL},
    {.path = NULL},
};

static int parse(struct mg_cli *c, const struct mg_cli_command *cmd, const char *const *args, struct mg_err *why)
{
    int n = 0;

    while (args[n])
        n++;
    *c = (struct mg_cli){.command = cmd, .arena = mg_arena_new()};
    return mg_cli_parse(c, n, (char **)args, why);
}

static void options_are_read_in_both_forms(void **state)
{
    static const char *const FORMS[][5] = {{"text", "--after", "x", "--keep", NULL},
                                           {"--after=x", "--keep", "text", NULL, NULL}};
    struct mg_err why;

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct mg_cli c;
        assert_int_equal(parse(&c, &COMMANDS[0], FORMS[i], &why), MG_CLI_OK);
        assert_string_equal(mg_cli_get(&c, "after"), "x");
        assert_true(mg_cli_has(&c, "keep"));
        assert_false(mg_cli_has(&c, "url"));
        assert_int_equal(c.n_args, 1);
        assert_string_equal(c.args[0], "text");
        mg_arena_free(c.arena);
    }
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *args[5];
        const char *says;
    } BAD[] = {
        {{"a", "b"}, "b is one argument too many"},
        {{NULL}, "an argument is missing: mango run TEXT"},
        {{"--nope", "a"}, "there is no option --nope"},
        {{"-x", "a"}, "there is no option -x; use --"},
        {{"a", "--after"}, "--after needs a value: CURSOR"},
        {{"a", "--keep=1"}, "--keep takes no value"},
        {{"a", "--after", "1", "--after", "2"}, "--after is given twice"},
        {{"a", "--listen=x"}, "there is no option --listen"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct mg_cli c;
        struct mg_err why = {0};
        const char *args[6] = {0};
        memcpy(args, BAD[i].args, sizeof(BAD[i].args));
        assert_int_equal(parse(&c, &COMMANDS[0], args, &why), MG_CLI_USAGE);
        assert_contains(why.text, BAD[i].says);
        mg_arena_free(c.arena);
    }
}

static void a_dash_and_what_follows_two_dashes_are_arguments(void **state)
{
    struct mg_cli c;
    struct mg_err why;

    (void)state;
    assert_int_equal(parse(&c, &COMMANDS[0], (const char *const[]){"-", NULL}, &why), MG_CLI_OK);
    assert_string_equal(c.args[0], "-");
    mg_arena_free(c.arena);
    assert_int_equal(parse(&c, &COMMANDS[0], (const char *const[]){"--", "--after", NULL}, &why), MG_CLI_OK);
    assert_string_equal(c.args[0], "--after");
    mg_arena_free(c.arena);
}

static void settings_of_the_server_go_to_the_option_table(void **state)
{
    struct mg_cli c;
    struct mg_err why;

    (void)state;
    assert_int_equal(parse(&c, &COMMANDS[3], (const char *const[]){"--state-dir=/x", "--config", "f", NULL}, &why),
                     MG_CLI_OK);
    assert_string_equal(c.conf_args[0], "--state-dir=/x");
    assert_null(c.conf_args[1]);
    assert_string_equal(mg_cli_get(&c, "config"), "f");
    mg_arena_free(c.arena);
}

static void the_longest_command_wins(void **state)
{
    int words = 0;

    (void)state;
    assert_ptr_equal(mg_cli_find(COMMANDS, 3, (char *[]){"session", "show", "x"}, &words), &COMMANDS[2]);
    assert_int_equal(words, 2);
    assert_null(mg_cli_find(COMMANDS, 1, (char *[]){"session"}, &words));
    assert_null(mg_cli_find(COMMANDS, 2, (char *[]){"session", "shows"}, &words));
}

static void json_becomes_one_line_and_is_never_changed_otherwise(void **state)
{
    static const struct {
        const char *in, *compact, *pretty;
    } CASES[] = {
        {" { \"a\" : [ 1 , 2.0 ] , \"b c\":\"x \\\" { y\" } ", "{\"a\":[1,2.0],\"b c\":\"x \\\" { y\"}",
         "{\n  \"a\": [\n    1,\n    2.0\n  ],\n  \"b c\": \"x \\\" { y\"\n}"},
        {"{\"e\":{ },\"f\":[\n],\"n\":-0}", "{\"e\":{},\"f\":[],\"n\":-0}",
         "{\n  \"e\": {},\n  \"f\": [],\n  \"n\": -0\n}"},
        {"\"only \\\\\"", "\"only \\\\\"", "\"only \\\\\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        mg_auto(buf) struct mg_buf compact = MG_BUF_INIT(1024);
        mg_auto(buf) struct mg_buf pretty = MG_BUF_INIT(1024);
        mg_cli_compact(&compact, mg_sv_of(CASES[i].in));
        mg_cli_pretty(&pretty, mg_sv_of(CASES[i].in));
        assert_sv_equal(mg_buf_view(&compact), CASES[i].compact);
        assert_sv_equal(mg_buf_view(&pretty), CASES[i].pretty);
    }
}

static void what_a_terminal_obeys_is_taken_out(void **state)
{
    static const char R[] = "\xEF\xBF\xBD";
    mg_auto(buf) struct mg_buf lines = MG_BUF_INIT(1024);
    mg_auto(buf) struct mg_buf line = MG_BUF_INIT(1024);
    char want[64];

    (void)state;
    mg_cli_clean(&lines, MG_SV("a\x1b[31m\n\tb\x07\xC2\x9B\xE2\x80\xAE\xFF\xC3\xA4"), true);
    (void)snprintf(want, sizeof(want), "a%s[31m\n\tb%s%s%s%s\xC3\xA4", R, R, R, R, R);
    assert_sv_equal(mg_buf_view(&lines), want);
    mg_cli_clean(&line, MG_SV("a\nb"), false);
    (void)snprintf(want, sizeof(want), "a%sb", R);
    assert_sv_equal(mg_buf_view(&line), want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_in_both_forms),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_dash_and_what_follows_two_dashes_are_arguments),
        cmocka_unit_test(settings_of_the_server_go_to_the_option_table),
        cmocka_unit_test(the_longest_command_wins),
        cmocka_unit_test(json_becomes_one_line_and_is_never_changed_otherwise),
        cmocka_unit_test(what_a_terminal_obeys_is_taken_out),
    };

    return RUN(tests);
}
