#include "unit/unit.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/tool-call.h"

static const char *write_file(struct tool_case *t, const char *path, const char *content)
{
    return tool_callv(t, "write", "file_path", path, "content", content, NULL);
}

static void a_file_is_made_and_replaced(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(write_file(t, "a/b/c.txt", "one"), "wrote 3 bytes to a/b/c.txt");
    assert_false(t->is_error);
    assert_string_equal(tool_callv(t, "read", "file_path", "a/b/c.txt", NULL), "one");
    assert_string_equal(write_file(t, "a/b/c.txt", ""), "wrote 0 bytes to a/b/c.txt");
    assert_contains(tool_callv(t, "read", "file_path", "a/b/c.txt", NULL), "is empty");
}

static void the_input_is_checked(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *in, *says;
    } BAD[] = {
        {"{\"file_path\":\"a\"}", "content"},
        {"{\"content\":\"a\"}", "file_path"},
        {"{\"file_path\":\"\",\"content\":\"a\"}", "file_path is empty"},
        {"{\"file_path\":\"a\\u0000b\",\"content\":\"a\"}", "NUL"},
        {"{\"file_path\":\"d/\",\"content\":\"a\"}", "names a folder"},
        {"{\"file_path\":\"a\",\"content\":null}", "content"},
        {"{\"file_path\":\"\\\"a\\\\q\\\"\",\"content\":\"a\"}", "a backslash starts"},
    };

    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        tool_call(t, "write", mg_sv_of(BAD[i].in));
        assert_true(t->is_error);
        assert_contains(t->text, BAD[i].says);
    }
}

static void case_56_content_of_every_size_arrives_whole(void **state)
{
    struct tool_case *t = *state;
    static const size_t SIZES[] = {0, 95 * 1024, 200 * 1024, 5 * 1024 * 1024, 64 * 1024 * 1024};

    for (size_t i = 0; i < sizeof(SIZES) / sizeof(SIZES[0]); i++) {
        mg_autofree char *content = malloc(SIZES[i] + 2);
        char path[128], want[64];
        struct stat st;
        memset(content, 'x', SIZES[i] + 1);
        content[SIZES[i]] = '\0';
        (void)snprintf(want, sizeof(want), "wrote %zu bytes to f", SIZES[i]);
        assert_string_equal(write_file(t, "f", content), want);
        (void)snprintf(path, sizeof(path), "%s/f", t->box->root);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, SIZES[i]);
        if (SIZES[i] == MG_TOOL_WRITE_MAX) {
            content[SIZES[i]] = 'x';
            content[SIZES[i] + 1] = '\0';
            assert_contains(write_file(t, "f", content), "at most 67108864 can be written");
        }
    }
}

static void case_75_errors_name_the_cause_and_modes_stay(void **state)
{
    struct tool_case *t = *state;
    char path[128];
    struct stat st;

    tool_bash(t, "echo x >file; echo s >script; chmod 755 script; mkdir folder", 20000);
    assert_contains(write_file(t, "file/below", "x"), "cannot write file/below: ");
    assert_true(t->is_error);
    write_file(t, "script", "new");
    (void)snprintf(path, sizeof(path), "%s/script", t->box->root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_contains(write_file(t, "folder", "x"), "cannot write folder");
    assert_true(t->is_error);
    assert_string_equal(tool_bash(t, "cat file; ls -A | sort | tr '\\n' ' '", 20000), "x\nfile folder script ");
}

/* The names of case 72 that JSON can carry; the invalid one goes in its quoted form. */
static const struct {
    const char *given, *bytes;
} NAMES[] = {
    {"with space", "with space"},
    {" leading", " leading"},
    {"\"line\\nbreak\"", "line\nbreak"},
    {"line\nbreak2", "line\nbreak2"},
    {"\"tab\\tname\"", "tab\tname"},
    {"quote'\"x", "quote'\"x"},
    {"\"\\\"quoted\\\"\"", "\"quoted\""},
    {"back\\slash", "back\\slash"},
    {"a:12:b", "a:12:b"},
    {"-rf", "-rf"},
    {"*", "*"},
    {"[x]?", "[x]?"},
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    {"\xC3\xA9", "\xC3\xA9"},   /* NFC */
    {"e\xCC\x81", "e\xCC\x81"}, /* NFD */
    {"\"bad\\xFF\"", "bad\xFF"},
    {"$HOME `id` $(id)", "$HOME `id` $(id)"},
    {"\"trailing \"", "trailing "},
};
enum { N_NAMES = sizeof(NAMES) / sizeof(NAMES[0]) };

static void case_72_every_name_hits_exactly_its_file(void **state)
{
    struct tool_case *t = *state;
    char path[300], content[64];

    for (int i = 0; i < N_NAMES; i++) {
        (void)snprintf(content, sizeof(content), "content-%d-", i);
        write_file(t, NAMES[i].given, content);
        assert_false(t->is_error);
        (void)snprintf(path, sizeof(path), "%s/%s", t->box->root, NAMES[i].bytes);
        assert_int_equal(access(path, F_OK), 0);
    }
    for (int i = 0; i < N_NAMES; i++) {
        (void)snprintf(content, sizeof(content), "content-%d-", i);
        assert_string_equal(tool_callv(t, "read", "file_path", NAMES[i].given, NULL), content);
        tool_callv(t, "edit", "file_path", NAMES[i].given, "old_string", "content", "new_string", "changed", NULL);
        assert_false(t->is_error);
    }
    assert_string_equal(tool_bash(t, "ls -A | wc -l >/tmp/null; set -- * ; echo $#", 20000), "18");
}

static void case_72_glob_and_grep_give_names_that_read_takes(void **state)
{
    struct tool_case *t = *state;

    for (int i = 0; i < N_NAMES; i++) {
        char content[64];
        (void)snprintf(content, sizeof(content), "needle-%d-", i);
        write_file(t, NAMES[i].given, content);
    }
    mg_autofree char *list = mg_xstrdup(tool_callv(t, "glob", "pattern", "**", NULL));
    int n = 0;
    for (char *rest = list, *line; (line = strsep(&rest, "\n")); n++) {
        tool_callv(t, "read", "file_path", line, NULL);
        assert_false(t->is_error);
        assert_contains(t->text, "needle-");
    }
    assert_int_equal(n, N_NAMES);
    mg_autofree char *matches = mg_xstrdup(tool_callv(t, "grep", "pattern", "needle-[0-9]+-", NULL));
    n = 0;
    for (char *rest = matches, *line; (line = strsep(&rest, "\n")); n++) {
        char *text = strstr(line, ":1:needle-");
        assert_non_null(text);
        *text = '\0';
        assert_string_equal(tool_callv(t, "read", "file_path", line, NULL), text + 3);
    }
    assert_int_equal(n, N_NAMES);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_file_is_made_and_replaced),
        WITH(the_input_is_checked),
        WITH(case_56_content_of_every_size_arrives_whole),
        WITH(case_75_errors_name_the_cause_and_modes_stay),
        WITH(case_72_every_name_hits_exactly_its_file),
        WITH(case_72_glob_and_grep_give_names_that_read_takes),
    };

    return RUN(tests);
}
