#include "unit/unit.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/tool-call.h"
#include "tools/pattern.h"

static const char *glob(struct tool_case *t, const char *pattern)
{
    return tool_callv(t, "glob", "pattern", pattern, NULL);
}

/* The result as names below the root, sorted, with a space behind each. */
static const char *names(struct tool_case *t, const char *pattern)
{
    char *all = mg_arena_strdup(t->arena, mg_sv_of(glob(t, pattern)));
    char *line[300];
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1024 * 1024);
    size_t n = 0;

    for (char *rest = all, *one; (one = strsep(&rest, "\n")) && n < 300;)
        line[n++] = one;
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k && strcmp(line[k - 1], line[k]) > 0; k--) {
            char *swap = line[k];
            line[k] = line[k - 1];
            line[k - 1] = swap;
        }
    for (size_t i = 0; i < n; i++) {
        size_t root = strlen(t->box->root);
        bool below = strncmp(line[i], t->box->root, root) == 0;
        mg_buf_printf(&out, "%s ", below ? line[i] + root + 1 : line[i]);
    }
    return mg_arena_strdup(t->arena, mg_buf_view(&out));
}

static void a_pattern_matches_as_doublestar_does(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool match;
    } CASES[] = {
        {"*", "a", true},
        {"*", "a/b", false},
        {"*", ".a", true},
        {"**", "a/b/c", true},
        {"**/*", "a", true},
        {"**/c", "a/b/c", true},
        {"**/c", "c", true},
        {"a/**", "a/b", true},
        {"a/**", "a", false},
        {"a/**/c", "a/c", true},
        {"a/**/c", "a/x/y/c", true},
        {"a/**/c", "b/c", false},
        {"**/b/**/d", "a/b/c/d", true},
        {"**/b/**/d", "b/d", true},
        {"**/b/**/d", "a/c/d", false},
        {"?", "\xC3\xA4", true},
        {"?", "ab", false},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[!a-c]x", "dx", true},
        {"[^a-c]x", "ax", false},
        {"[]]", "]", true},
        {"[a-]", "-", true},
        {"[\xC3\xA0-\xC3\xBF]", "\xC3\xA9", true},
        {"[", "[", true},
        {"a[", "a[", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"*.{c,h}", "a.h", true},
        {"*.{c,h}", "a.o", false},
        {"{a,b/{c,d}}/*", "b/d/x", true},
        {"{a,b/{c,d}}/*", "b/x", false},
        {"{,x}a", "a", true},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxbxx", false},
        {"./a", "a", true},
        {"a**b", "axxb", true},
        {"[b-a]", "a", false},
        {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         false},
    };
    struct mg_arena *a = mg_arena_new();

    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_pattern p;
        struct mg_err err;
        assert_int_equal(mg_pattern_parse(a, mg_sv_of(CASES[i].pattern), &p, &err), MG_OK);
        if (mg_pattern_match(&p, mg_sv_of(CASES[i].path)) != CASES[i].match)
            fail_msg("%s on %s", CASES[i].pattern, CASES[i].path);
    }
    mg_arena_free(a);
}

static void a_bad_pattern_says_the_rule(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *pattern, *says;
    } BAD[] = {{"/etc/*", "must not start with /"},
               {"../*", "must not contain \"..\""},
               {"a/../b", "\"..\""},
               {"{a", "a { has no }"},
               {"{a,/b}", "must not start with /"},
               {"", "pattern must not be empty"},
               {"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "more than 64"}};
    static char longer[MG_PATTERN_MAX + 2];

    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        assert_contains(glob(t, BAD[i].pattern), BAD[i].says);
        assert_true(t->is_error);
    }
    memset(longer, 'a', MG_PATTERN_MAX + 1);
    assert_contains(glob(t, longer), "at most 1024");
}

static void files_are_found_below_the_folder(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t,
              "mkdir -p src/lib .git node_modules/x sub/.git sub/node_modules empty; "
              "touch a.c src/b.c src/b.h src/lib/c.c .hidden .git/x.c node_modules/x/y.c sub/.git/z.c "
              "sub/node_modules/q.c; ln -s /etc out",
              20000);
    assert_string_equal(names(t, "**/*.c"), "a.c src/b.c src/lib/c.c ");
    assert_string_equal(names(t, "*"), ".hidden a.c out ");
    assert_string_equal(names(t, "*/"), "empty src sub ");
    assert_string_equal(names(t, "src/*.{c,h}"), "src/b.c src/b.h ");
    assert_string_equal(names(t, "src/**/*.c"), "src/b.c src/lib/c.c ");
    assert_string_equal(names(t, "src/**"), "src/b.c src/b.h src/lib/c.c ");
    assert_contains(glob(t, "nothing/**/*.c"), "No files match nothing/**/*.c in ");
    assert_false(t->is_error);
    assert_contains(glob(t, "*.rs"), "No files match *.rs");
    char want[128];
    (void)snprintf(want, sizeof(want), "%s/src/b.c", t->box->root);
    assert_string_equal(tool_callv(t, "glob", "pattern", "*.c", "path", "src/", NULL), want);
    (void)snprintf(want, sizeof(want), "%s/src", t->box->root);
    assert_contains(tool_callv(t, "glob", "pattern", "*.c", "path", want, NULL), "/src/b.c");
}

static void the_newest_come_first_and_two_hundred_at_most(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "for i in $(seq 1 450); do touch -d @$((1000000000+i)) f$i; done", 20000);
    char *list = mg_arena_strdup(t->arena, mg_sv_of(glob(t, "*")));
    for (int i = 0; i < MG_TOOL_GLOB_MAX; i++) {
        char want[128];
        (void)snprintf(want, sizeof(want), "%s/f%d", t->box->root, 450 - i);
        assert_string_equal(strsep(&list, "\n"), want);
    }
    assert_string_equal(list, "[the newest 200 of 450 matches; narrow the pattern or give a path to see others]");
}

static void busybox_times_come_from_stat(void **state)
{
    struct tool_case *t = *state;

    /* a find without -printf, as in busybox */
    tool_bash(t,
              "mkdir bin; for c in sh stat tail cat; do printf '#!/bin/sh\\nexec %s \"$@\"\\n' $(command -v $c) "
              ">bin/$c; chmod +x bin/$c; done; printf '%s\\n' '#!/bin/sh' "
              "'for a; do [ \"$a\" = -printf ] && exit 1; done; exec /usr/bin/find \"$@\"' >bin/find; chmod +x "
              "bin/find; mkdir d; "
              "for i in 1 2 3; do touch -d @$((1000000000+i)) \"d/f $i\"; done; touch -d @1000000009 \"d/new\nline\"",
              20000);
    char path[128], want[512];
    (void)snprintf(path, sizeof(path), "%s/bin", t->box->root);
    t->box->path = path;
    const char *r = t->box->root;
    (void)snprintf(want, sizeof(want), "\"%s/d/new\\nline\"\n%s/d/f 3\n%s/d/f 2\n%s/d/f 1", r, r, r, r);
    assert_string_equal(glob(t, "d/*"), want);
    t->box->path = NULL;
}

static void case_78_a_failure_is_not_an_empty_result(void **state)
{
    struct tool_case *t = *state;
    char path[128];

    assert_contains(tool_callv(t, "glob", "pattern", "*", "path", "nope", NULL), "cannot search nope");
    assert_true(t->is_error);
    tool_bash(t,
              "echo x >file; mkdir bin; for c in sh tail cat; do printf '#!/bin/sh\\nexec %s \"$@\"\\n' $(command -v "
              "$c) >bin/$c; chmod +x bin/$c; done",
              20000);
    assert_contains(tool_callv(t, "glob", "pattern", "*", "path", "file", NULL), "it is not a folder");
    (void)snprintf(path, sizeof(path), "%s/bin", t->box->root);
    t->box->path = path;
    assert_contains(glob(t, "*"), "the sandbox has no find: install findutils");
    assert_true(t->is_error);
    t->box->path = NULL;
    tool_bash(t, "printf '#!/bin/sh\\nkill -9 $PPID\\n' >bin/find; chmod +x bin/find", 20000);
    t->box->path = path;
    glob(t, "*");
    assert_true(t->is_error);
    assert_contains(t->text, "not complete");
    t->box->path = NULL;
    tool_bash(t,
              "printf '#!/bin/sh\\n[ $# -lt 5 ] || { printf \"5 ./one\\\\0\"; echo \"find: oh no\" >&2; exit 2; }\\n' "
              ">bin/find",
              20000);
    t->box->path = path;
    assert_contains(glob(t, "*"), "/one\n[partial: some of it could not be searched, last: find: oh no]");
    assert_false(t->is_error);
    t->box->path = NULL;
}

static void an_unreadable_folder_makes_the_result_partial(void **state)
{
    struct tool_case *t = *state;

    if (geteuid() == 0)
        skip(); /* root reads everything; CI runs as a user */
    tool_bash(t, "mkdir shut; touch x; chmod 000 shut", 20000);
    assert_contains(glob(t, "**"), "[partial: ");
    tool_bash(t, "chmod 700 shut", 20000);
}

static void case_77_a_large_tree_costs_no_memory(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "mkdir many; cd many; seq -f file-with-a-longer-name-%.0f 1 60000 | xargs touch; cd ..", 60000);
    glob(t, "x"); /* everything that is allocated once */
    tool_peak_reset();
    long before = tool_peak_kib();
    assert_contains(glob(t, "**"), "[the newest 200 of 60000 matches");
    assert_true(tool_peak_kib() - before < 2048);
    assert_true(t->ms < 60000);
}

static void case_77_a_cancel_ends_the_search(void **state)
{
    struct tool_case *t = *state;

    t->cancel = mg_cancel_new();
    mg_cancel_fire(t->cancel);
    glob(t, "**");
    assert_int_equal(t->rc, MG_ECANCELED);
    mg_cancel_unref(t->cancel);
    t->cancel = NULL;
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_matches_as_doublestar_does),
        WITH(a_bad_pattern_says_the_rule),
        WITH(files_are_found_below_the_folder),
        WITH(the_newest_come_first_and_two_hundred_at_most),
        WITH(busybox_times_come_from_stat),
        WITH(case_78_a_failure_is_not_an_empty_result),
        WITH(an_unreadable_folder_makes_the_result_partial),
        WITH(case_77_a_large_tree_costs_no_memory),
        WITH(case_77_a_cancel_ends_the_search),
    };

    return RUN(tests);
}
