#include "unit/unit.h"

#include <stdlib.h>

#include "support/tool-call.h"

static const char *edit(struct tool_case *t, const char *path, const char *from, const char *to)
{
    return tool_callv(t, "edit", "file_path", path, "old_string", from, "new_string", to, NULL);
}

static const char *edit_all(struct tool_case *t, const char *path, const char *from, const char *to)
{
    return tool_callv(t, "edit", "file_path", path, "old_string", from, "new_string", to, "replace_all", "\x01true",
                      NULL);
}

static void file_is(struct tool_case *t, const char *name, const char *want, size_t n)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    bool eof = false;

    assert_int_equal(host_box_ops.read(t->box, name, 0, 1024 * 1024, &b, &eof, NULL), MG_OK);
    assert_int_equal(b.len, n);
    assert_memory_equal(mg_buf_view(&b).ptr, want, n);
}

#define assert_file(t, name, literal) file_is((t), (name), (literal), sizeof(literal) - 1)

static void one_place_is_replaced_and_nothing_else(void **state)
{
    struct tool_case *t = *state;

    host_box_put(t->box, "f", "a\0b\xFF one two\n three", 19);
    assert_string_equal(edit(t, "f", "two", "TWO!"), "replaced 1 occurrence in f");
    assert_false(t->is_error);
    assert_file(t, "f", "a\0b\xFF one TWO!\n three");
    edit(t, "f", " one TWO!\n", "");
    assert_file(t, "f", "a\0b\xFF three");
}

static void case_73_crlf_files_stay_crlf(void **state)
{
    struct tool_case *t = *state;

    host_box_puts(t->box, "f", "one\r\ntwo\r\nthree\r\nfour\r\n");
    assert_contains(edit(t, "f", "two\nthree", "2\n2.5\n3"), "line ending, CRLF, was kept");
    assert_file(t, "f", "one\r\n2\r\n2.5\r\n3\r\nfour\r\n");
    assert_contains(edit(t, "f", "one", "0\n1"), "CRLF");
    assert_file(t, "f", "0\r\n1\r\n2\r\n2.5\r\n3\r\nfour\r\n");
    edit(t, "f", "2.5\r\n", "");
    assert_file(t, "f", "0\r\n1\r\n2\r\n3\r\nfour\r\n");
    assert_null(strstr(edit(t, "f", "four", "4"), "CRLF"));
    host_box_puts(t->box, "mixed", "a\r\nb\nc\r\nd\n");
    edit(t, "mixed", "b\nc", "B\nC"); /* found as it is: stays as it is */
    assert_file(t, "mixed", "a\r\nB\nC\r\nd\n");
    edit(t, "mixed", "a\nB", "x\ny"); /* found only with CRLF */
    assert_file(t, "mixed", "x\r\ny\nC\r\nd\n");
}

static void case_74_what_is_not_unique_names_count_and_lines(void **state)
{
    struct tool_case *t = *state;
    static const char TEXT[] = "x\nfoo\ny\nfoo foo\n";

    host_box_puts(t->box, "f", TEXT);
    assert_contains(edit(t, "f", "foo", "bar"), "occurs 3 times in f (lines 2, 4, 4)");
    assert_true(t->is_error);
    assert_contains(t->text, "replace_all");
    assert_file(t, "f", TEXT);
    assert_string_equal(edit_all(t, "f", "foo", "bar"), "replaced 3 occurrences in f");
    assert_file(t, "f", "x\nbar\ny\nbar bar\n");
    host_box_puts(t->box, "many", "a\na\na\na\na\na\na\n");
    assert_contains(edit(t, "many", "a", "b"), "occurs 7 times in many (lines 1, 2, 3, 4, 5, ...)");
    host_box_puts(t->box, "over", "aaa");
    assert_contains(edit(t, "over", "aa", "b"), "occurs 2 times");
    edit_all(t, "over", "aa", "b");
    assert_file(t, "over", "ba");
}

static void case_74_every_text_is_literal(void **state)
{
    struct tool_case *t = *state;

    host_box_puts(t->box, "f", "a.*b [x] \\1 $& end");
    edit(t, "f", ".*", "$&");
    edit(t, "f", "[x]", "\\1%s%n");
    edit(t, "f", "end", "\x01\"e\\u0000nd\"");
    assert_file(t, "f", "a$&b \\1%s%n \\1 $& e\0nd");
}

static void case_74_refusals_say_what_to_do_and_write_nothing(void **state)
{
    struct tool_case *t = *state;
    size_t n = MG_TOOL_READ_MAX + 1;
    mg_autofree char *big = malloc(n);

    host_box_puts(t->box, "f", "text");
    assert_contains(edit(t, "f", "", "x"), "old_string is empty");
    assert_contains(edit(t, "f", "text", "text"), "equal");
    assert_contains(edit(t, "f", "Text", "x"), "was not found in f");
    assert_contains(edit(t, "missing", "a", "b"), "cannot edit missing");
    memset(big, 'x', n);
    host_box_put(t->box, "big", big, n);
    assert_contains(edit(t, "big", "x", "y"), "big has 262145 bytes: edit takes files of at most 262144");
    assert_true(t->is_error);
    assert_file(t, "f", "text");
    host_box_put(t->box, "full", big, n - 1);
    assert_contains(edit(t, "full", "x", "y"), "at least 1000 times");
    assert_contains(tool_callv(t, "edit", "file_path", "f", "old_string", "a", NULL), "new_string");
    assert_contains(edit_all(t, "full", "x", "yy"), "replaced 262144");
    memset(big, 'x', n);
    assert_contains(tool_callv(t, "edit", "file_path", "f", "old_string", "t", "new_string", "u", "replace_all",
                               "\x01\"yes\"", NULL),
                    "replace_all");
}

static void long_texts_that_overlap_themselves_do_not_hang(void **state)
{
    struct tool_case *t = *state;
    size_t n = MG_TOOL_READ_MAX - 1;
    mg_autofree char *a = malloc(n + 1), *half = malloc(n / 2 + 1);

    memset(a, 'a', n);
    memset(half, 'a', n / 2);
    half[n / 2] = a[n] = '\0';
    host_box_put(t->box, "f", a, n);
    assert_contains(edit(t, "f", half, "b"), "at least 1000 times");
    assert_true(t->ms < 5000);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(one_place_is_replaced_and_nothing_else),
        WITH(case_73_crlf_files_stay_crlf),
        WITH(case_74_what_is_not_unique_names_count_and_lines),
        WITH(case_74_every_text_is_literal),
        WITH(case_74_refusals_say_what_to_do_and_write_nothing),
        WITH(long_texts_that_overlap_themselves_do_not_hang),
    };

    return RUN(tests);
}
