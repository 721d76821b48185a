#include "unit/unit.h"

#include <stdlib.h>

#include "support/tool-call.h"
#include "tools/regex.h"

static const char *grep(struct tool_case *t, const char *pattern)
{
    return tool_callv(t, "grep", "pattern", pattern, NULL);
}

static const char *grep_in(struct tool_case *t, const char *pattern, const char *path)
{
    return tool_callv(t, "grep", "pattern", pattern, "path", path, NULL);
}

static void perl_forms_become_posix(void **state)
{
    static const struct {
        const char *in, *out;
        bool fold;
    } CASES[] = {
        {"a.b", "a.b", false},
        {"\\d+", "[0-9]+", false},
        {"\\D", "[^0-9]", false},
        {"\\w\\b\\.", "\\w\\b\\.", false},
        {"[\\w.]", "[[:alnum:]_.]", false},
        {"[^\\d\\s]", "[^0-9[:space:]]", false},
        {"[\\]a]", "[]a]", false},
        {"[a\\-z]", "[az-]", false},
        {"[[:alpha:]]", "[[:alpha:]]", false},
        {"(?:a|b)", "(a|b)", false},
        {"(?i)Ab", "Ab", true},
        {"[]x]", "[]x]", false},
        {"\\t", "\t", false},
        {"[", "[", false},
        {"a\\", "a\\", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256);
        bool fold = false;
        assert_int_equal(mg_regex_to_posix(&out, mg_sv_of(CASES[i].in), &fold), MG_OK);
        assert_sv_equal(mg_buf_view(&out), CASES[i].out);
        assert_int_equal(fold, CASES[i].fold);
    }
}

static void lines_come_with_path_and_number(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t,
              "mkdir -p src .git node_modules; printf 'one\\nfoo 1\\n' >a; printf 'foo2\\nx\\nFOO\\n' >src/b; echo foo "
              ">.git/c; echo foo >node_modules/d; "
              "ln -s /etc/passwd link; echo foo | tee 'co:lon' >/dev/null",
              20000);
    assert_string_equal(grep_in(t, "foo", "src"), "src/b:1:foo2");
    assert_false(t->is_error);
    assert_string_equal(grep_in(t, "foo", "src/b"), "src/b:1:foo2");
    assert_string_equal(grep_in(t, "foo", "a"), "a:2:foo 1");
    assert_string_equal(grep_in(t, "(?i)foo", "src/"), "src/b:1:foo2\nsrc/b:3:FOO");
    assert_string_equal(grep(t, "foo \\d"), "a:2:foo 1");
    assert_string_equal(grep(t, "^foo$"), "\"co:lon\":1:foo");
    assert_string_equal(grep(t, "root:"), "No matches for root:.");
    assert_false(t->is_error);
    char absolute[128], want[160];
    (void)snprintf(absolute, sizeof(absolute), "%s/src", t->box->root);
    (void)snprintf(want, sizeof(want), "%s/b:1:foo2", absolute);
    assert_string_equal(grep_in(t, "foo", absolute), want);
}

static void patterns_that_look_like_options_are_patterns(void **state)
{
    struct tool_case *t = *state;

    host_box_puts(t->box, "-v", "x --help y\n$HOME `id` 'q'\n");
    assert_string_equal(grep(t, "--help"), "-v:1:x --help y");
    assert_string_equal(grep(t, "\\$HOME `id` 'q'"), "-v:2:$HOME `id` 'q'");
}

static void a_bad_pattern_says_why(void **state)
{
    struct tool_case *t = *state;
    static char longer[9000];

    assert_contains(grep(t, "a("), "not a valid extended regular expression");
    assert_true(t->is_error);
    assert_contains(grep(t, "[a"), "not a valid");
    assert_contains(grep(t, ""), "pattern is empty");
    assert_contains(grep(t, "a\nb"), "line breaks");
    memset(longer, 'a', sizeof(longer) - 1);
    assert_contains(grep(t, longer), "more than 8192 bytes");
    assert_contains(tool_call(t, "grep", MG_SV("{\"pattern\":\"a\",\"include\":\"*.c\"}")), "include: unknown field");
}

static void binary_files_are_named_not_shown(void **state)
{
    struct tool_case *t = *state;

    host_box_put(t->box, "bin", "a\0needle\n", 9);
    assert_contains(grep(t, "needle"), "[binary files match and are not shown: bin]");
    assert_false(t->is_error);
    host_box_puts(t->box, "latin", "caf\xE9 needle\n");
    assert_contains(grep(t, "needle"), "latin");
}

static void the_head_is_kept_and_long_lines_are_cut(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t,
              "yes 'match here' | head -n 50000 >f; { printf 'long needle '; head -c 3000000 /dev/zero | tr '\\0' x; "
              "echo; } >g",
              20000);
    grep_in(t, "match", "f");
    assert_true(t->text_len <= MG_TOOL_OUTPUT_MAX);
    assert_int_equal(strncmp(t->text, "f:1:match here\nf:2:match here\n", 30), 0);
    assert_contains(t->text, "[output truncated: the first 102400 bytes");
    assert_contains(grep_in(t, "needle", "g"), "g:1:long needle xxx");
    assert_true(t->text_len < 2200);
}

static void case_67_a_cut_line_never_splits_a_character(void **state)
{
    struct tool_case *t = *state;

    for (int shift = 0; shift < 4; shift++) {
        char command[160];
        (void)snprintf(command, sizeof(command),
                       "{ printf 'n%.*s'; yes '\xF0\x9F\x98\x80' | head -n 2000 | tr -d '\\n'; echo; } >f", shift,
                       "xyz");
        tool_bash(t, command, 20000);
        assert_contains(grep(t, "^n"), "[line cut: 80");
        assert_null(strstr(t->text, "\xEF\xBF\xBD"));
    }
}

static void busybox_grep_gives_the_same_lines(void **state)
{
    struct tool_case *t = *state;
    char path[128];

    tool_bash(t,
              "mkdir bin; for c in sh tail cat head find; do printf '#!/bin/sh\\nexec %s \"$@\"\\n' $(command -v $c) "
              ">bin/$c; chmod +x bin/$c; done; printf '%s\\n' '#!/bin/sh' "
              "'for a; do case $a in -*Z*) echo bad option >&2; exit 2;; esac; done; exec /usr/bin/grep \"$@\"' "
              ">bin/grep; chmod +x bin/grep; mkdir d; "
              "printf 'no\\nfoo  \\\\ x\\n' >d/a; printf 'foo\\n' >\"d/b\nc\"",
              20000);
    (void)snprintf(path, sizeof(path), "%s/bin", t->box->root);
    t->box->path = path;
    grep_in(t, "foo", "d");
    assert_contains(t->text, "d/a:2:foo  \\ x");
    assert_contains(t->text, "\"d/b\\nc\":1:foo");
    assert_string_equal(grep_in(t, "foo", "d/a"), "d/a:2:foo  \\ x");
    assert_contains(grep_in(t, "nothing", "d"), "No matches");
    t->box->path = NULL;
}

static void case_78_a_failure_is_not_an_empty_result(void **state)
{
    struct tool_case *t = *state;
    char path[128];

    assert_contains(grep_in(t, "x", "nope"), "cannot search nope");
    assert_true(t->is_error);
    tool_bash(t,
              "echo needle >file; mkdir bin; for c in sh tail cat head find; do printf '#!/bin/sh\\nexec %s \"$@\"\\n' "
              "$(command -v $c) >bin/$c; chmod +x bin/$c; done",
              20000);
    (void)snprintf(path, sizeof(path), "%s/bin", t->box->root);
    t->box->path = path;
    assert_contains(grep(t, "x"), "the sandbox has no grep");
    assert_true(t->is_error);
    t->box->path = NULL;
    tool_bash(t,
              "printf '%s\\n' '#!/bin/sh' 'case $* in *-nHZE*) printf \"./file\\\\0001:needle\\\\n\"; echo oh dear "
              ">&2; exit 2;; esac; exec /usr/bin/grep \"$@\"' "
              ">bin/grep; chmod +x bin/grep",
              20000);
    t->box->path = path;
    assert_contains(grep(t, "needle"), "[partial: some of it could not be searched, last: oh dear]");
    t->box->path = NULL;
    tool_bash(t, "rm bin/head; printf '#!/bin/sh\\nexit 0\\n' >bin/head; chmod +x bin/head",
              20000); /* a transport that loses everything */
    t->box->path = path;
    grep(t, "needle");
    assert_true(t->is_error);
    assert_contains(t->text, "not complete");
    t->box->path = NULL;
}

static void case_71_pipes_and_devices_are_not_opened(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "mkfifo pipe; ln -s /dev/zero zero; truncate -s 1T sparse; echo needle >file", 20000);
    assert_contains(grep(t, "needle"), "file:1:needle");
    assert_true(t->ms < 5000);
    assert_contains(grep_in(t, "needle", "pipe"), "not a folder or a regular file");
}

static void case_77_a_flood_of_matches_costs_no_memory(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "for i in 1 2 3 4 5 6 7 8; do yes 'a needle in the haystack' | head -n 400000 >f$i; done", 60000);
    grep_in(t, "zzz", "f1");
    tool_peak_reset();
    long before = tool_peak_kib();
    assert_contains(grep(t, "needle"), "[output truncated");
    assert_true(tool_peak_kib() - before < 2048);
    assert_true(t->ms < 10000);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perl_forms_become_posix),
        WITH(lines_come_with_path_and_number),
        WITH(patterns_that_look_like_options_are_patterns),
        WITH(a_bad_pattern_says_why),
        WITH(binary_files_are_named_not_shown),
        WITH(the_head_is_kept_and_long_lines_are_cut),
        WITH(case_67_a_cut_line_never_splits_a_character),
        WITH(busybox_grep_gives_the_same_lines),
        WITH(case_78_a_failure_is_not_an_empty_result),
        WITH(case_71_pipes_and_devices_are_not_opened),
        WITH(case_77_a_flood_of_matches_costs_no_memory),
    };

    return RUN(tests);
}
