#include "unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/tool-call.h"

static const char *read_file(struct tool_case *t, const char *path)
{
    return tool_callv(t, "read", "file_path", path, NULL);
}

static const char *read_range(struct tool_case *t, const char *path, const char *range)
{
    char raw[64];

    (void)snprintf(raw, sizeof(raw), "\x01%s", range);
    return tool_callv(t, "read", "file_path", path, "view_range", raw, NULL);
}

static void a_text_comes_back_as_it_is(void **state)
{
    struct tool_case *t = *state;
    char absolute[128];

    host_box_puts(t->box, "a.txt", "one\r\ntwo\n\nfour \xC3\xA4");
    assert_string_equal(read_file(t, "a.txt"), "one\r\ntwo\n\nfour \xC3\xA4");
    assert_false(t->is_error);
    (void)snprintf(absolute, sizeof(absolute), "%s/a.txt", t->box->root);
    assert_string_equal(read_file(t, absolute), "one\r\ntwo\n\nfour \xC3\xA4");
    assert_contains(read_file(t, "nope"), "cannot read nope");
    assert_true(t->is_error);
    assert_contains(tool_call(t, "read", MG_SV("{}")), "file_path");
    assert_contains(tool_call(t, "read", MG_SV("{\"path\":\"a\"}")), "path: unknown field");
}

static void a_range_gives_its_lines(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *range, *text;
    } GOOD[] = {{"[1,1]", "a"},           {"[2,3]", "b\nc"}, {"[3,0]", "c\nd"},    {"[3,-1]", "c\nd"},
                {"[1,99]", "a\nb\nc\nd"}, {"[4,4]", "d"},    {"[1.0,2e0]", "a\nb"}};

    host_box_puts(t->box, "f", "a\nb\nc\nd\n");
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        assert_string_equal(read_range(t, "f", GOOD[i].range), GOOD[i].text);
        assert_false(t->is_error);
    }
}

static void case_76_a_bad_range_says_the_rule(void **state)
{
    struct tool_case *t = *state;
    static const char *const BAD[] = {"[0,1]", "[5,2]", "[-3,-1]", "[2]", "[1.5,2]", "[1,2,3]", "[\"1\",2]", "[]"};

    host_box_puts(t->box, "f", "a\nb\nc\nd\ne\n");
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        assert_contains(read_range(t, "f", BAD[i]), "view_range must be two integers [first, last], counted from 1");
        assert_true(t->is_error);
    }
    assert_contains(read_range(t, "f", "[6,7]"), "f has 5 lines: there is no line 6");
    assert_true(t->is_error);
    assert_contains(read_range(t, "f", "\"1-2\""), "view_range: must be an array");
}

static void case_76_empty_and_binary_are_said_in_words(void **state)
{
    struct tool_case *t = *state;

    host_box_puts(t->box, "empty", "");
    assert_string_equal(read_file(t, "empty"), "(empty is empty)");
    assert_false(t->is_error);
    host_box_put(t->box, "bin",
                 "\x7f"
                 "ELF\0\0\1",
                 7);
    assert_contains(read_file(t, "bin"), "bin is a binary file of 7 bytes");
    assert_true(t->is_error);
    assert_contains(read_range(t, "bin", "[1,1]"), "binary");
    host_box_put(t->box, "wide", "\xFF\xFEh\0i\0", 6);
    assert_contains(read_file(t, "wide"), "UTF-16");
    host_box_put(t->box, "latin", "caf\xE9", 4);
    assert_string_equal(read_file(t, "latin"), "caf\xEF\xBF\xBD");
}

static void case_76_a_large_file_costs_no_memory(void **state)
{
    struct tool_case *t = *state;

    tool_bash(
        t,
        "yes 'a line' | head -c 700M >big; head -c 50M /dev/zero | tr '\\0' x >line; echo >>line; echo second >>line",
        60000);
    assert_string_equal(read_range(t, "big", "[1,2]"), "a line\na line");
    tool_peak_reset();
    long before = tool_peak_kib();
    assert_string_equal(read_range(t, "big", "[10000000,10000001]"), "a line\na line");
    assert_contains(read_file(t, "big"), "without view_range at most 262144 are read");
    assert_true(t->is_error);
    assert_string_equal(read_range(t, "line", "[2,2]"), "second");
    assert_true(tool_peak_kib() - before < 1024);
    assert_contains(read_range(t, "line", "[1,5]"), "[cut: the result is full after 262144 bytes, inside of line 1");
    assert_false(t->is_error);
}

static void the_limit_without_a_range_is_exact(void **state)
{
    struct tool_case *t = *state;
    size_t n = MG_TOOL_READ_MAX + 1;
    mg_autofree char *text = malloc(n);

    memset(text, 'x', n);
    host_box_put(t->box, "over", text, n);
    host_box_put(t->box, "at", text, n - 1);
    assert_int_equal(strlen(read_file(t, "at")), n - 1);
    assert_contains(read_file(t, "over"), "over has 262145 bytes");
}

static void case_67_a_cut_of_read_never_splits_a_character(void **state)
{
    struct tool_case *t = *state;

    for (int shift = 0; shift < 4; shift++) {
        char command[160];
        (void)snprintf(command, sizeof(command),
                       "{ printf '%.*s'; yes '\xF0\x9F\x98\x80' | head -n 80000 | tr -d '\\n'; } >f", shift, "xyz");
        tool_bash(t, command, 20000);
        read_range(t, "f", "[1,1]");
        assert_null(strstr(t->text, "\xEF\xBF\xBD"));
        assert_contains(t->text, "[cut");
    }
}

static void make_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(a.sun_path, path, strnlen(path, sizeof(a.sun_path) - 1));
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd);
}

static void case_71_special_files_are_refused_at_once(void **state)
{
    struct tool_case *t = *state;
    char path[128];
    static const char *const NAMES[] = {"fifo", "socket", "folder", "zero"};

    (void)snprintf(path, sizeof(path), "%s/fifo", t->box->root);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)snprintf(path, sizeof(path), "%s/socket", t->box->root);
    make_socket(path);
    tool_bash(t, "mkdir folder; ln -s /dev/zero zero; truncate -s 1T sparse; ln -s loop loop", 20000);
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        read_file(t, NAMES[i]);
        assert_true(t->is_error);
        assert_true(t->ms < 1000);
        tool_callv(t, "edit", "file_path", NAMES[i], "old_string", "a", "new_string", "b", NULL);
        assert_true(t->is_error);
        assert_true(t->ms < 1000);
        tool_callv(t, "write", "file_path", NAMES[i], "content", "b", NULL);
        assert_true(t->ms < 1000);
    }
    assert_contains(read_file(t, "sparse"), "binary");
    assert_true(t->is_error);
    read_file(t, "loop");
    assert_true(t->is_error);
    char longer[300];
    memset(longer, 'n', 299);
    longer[299] = '\0';
    read_file(t, longer);
    assert_true(t->is_error);
    tool_bash(t, "(while :; do echo growing >>grow; done) &", 20000);
    read_file(t, "grow");
    assert_true(t->ms < 1000);
}

static void case_70_links_out_of_the_workspace_are_refused(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "ln -s /etc escape", 20000);
    read_file(t, "escape/passwd");
    assert_true(t->is_error);
    assert_null(strstr(t->text, "root:"));
    read_file(t, "../../etc/passwd");
    assert_true(t->is_error);
    read_file(t, "/etc/passwd");
    assert_true(t->is_error);
    tool_callv(t, "write", "file_path", "escape/mango-test", "content", "x", NULL);
    assert_true(t->is_error);
    assert_int_not_equal(access("/etc/mango-test", F_OK), 0);
}

/* ---- images ---- */

static void big_endian(unsigned char *p, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(n >> (24 - 8 * i));
}

/* A PNG with its chunks, whose picture data is `fill` bytes of nothing. */
static void put_png(struct tool_case *t, const char *name, uint32_t w, uint32_t h, size_t fill, size_t cut)
{
    size_t n = 8 + 25 + 12 + fill + 12;
    mg_autofree unsigned char *p = calloc(1, n);

    memcpy(p, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    big_endian(p + 16, w);
    big_endian(p + 20, h);
    big_endian(p + 33, (uint32_t)fill);
    memcpy(p + 37, "IDAT", 4);
    memcpy(p + n - 8, "IEND", 4);
    host_box_put(t->box, name, p, n - cut);
}

static void case_82_an_image_is_checked_before_it_is_shown(void **state)
{
    struct tool_case *t = *state;
    static const unsigned char JPEG[] = {0xFF, 0xD8, 0xFF, 0xC0, 0,    11, 8, 0x1E, 0x36, 0x25, 0x80, 1,
                                         1,    0x11, 0,    0xFF, 0xDA, 0,  2, 1,    2,    3,    0xFF, 0xD9};

    put_png(t, "ok.png", 640, 480, 1000, 0);
    read_file(t, "ok.png");
    assert_string_equal(t->type, "image");
    assert_contains(t->raw, "\"media_type\":\"image/png\",\"data\":\"iVBORw0KGgo");
    put_png(t, "ok.txt", 640, 480, 1000, 0); /* the content counts, not the name */
    read_file(t, "ok.txt");
    assert_string_equal(t->type, "image");
    put_png(t, "wide.png", 2162, 322, 1000, 0);
    assert_contains(read_file(t, "wide.png"), "2162 x 322 pixels");
    put_png(t, "bomb.png", 100000, 100000, 10, 0);
    assert_contains(read_file(t, "bomb.png"), "100000 x 100000");
    put_png(t, "cut.png", 64, 64, 1000, 500);
    assert_contains(read_file(t, "cut.png"), "cut off");
    put_png(t, "heavy.png", 64, 64, 5 * 1024 * 1024, 0);
    assert_contains(read_file(t, "heavy.png"), "the limit is 3932160");
    assert_contains(t->text, "heavy.png");
    host_box_put(t->box, "huge.jpg", JPEG, sizeof(JPEG));
    assert_contains(read_file(t, "huge.jpg"), "9600 x 7734");
    unsigned char small[sizeof(JPEG)];
    memcpy(small, JPEG, sizeof(JPEG));
    small[7] = small[9] = 1;
    host_box_put(t->box, "small.jpg", small, sizeof(small));
    read_file(t, "small.jpg");
    assert_string_equal(t->type, "image");
    host_box_put(t->box, "cut.jpg", small, sizeof(small) - 2);
    assert_contains(read_file(t, "cut.jpg"), "cut off");
    host_box_puts(t->box, "text.png", "no image at all");
    assert_string_equal(read_file(t, "text.png"), "no image at all");
    host_box_puts(t->box, "riff", "RIFF but text");
    assert_string_equal(read_file(t, "riff"), "RIFF but text");
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_text_comes_back_as_it_is),
        WITH(a_range_gives_its_lines),
        WITH(case_76_a_bad_range_says_the_rule),
        WITH(case_76_empty_and_binary_are_said_in_words),
        WITH(case_76_a_large_file_costs_no_memory),
        WITH(the_limit_without_a_range_is_exact),
        WITH(case_67_a_cut_of_read_never_splits_a_character),
        WITH(case_71_special_files_are_refused_at_once),
        WITH(case_70_links_out_of_the_workspace_are_refused),
        WITH(case_82_an_image_is_checked_before_it_is_shown),
    };

    return RUN(tests);
}
