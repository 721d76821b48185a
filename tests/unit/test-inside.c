/* Files as the programs inside of sandboxes handle them: plugins/common/inside. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "common/files.h"
#include "common/parcel.h"
#include "common/sv.h"

struct place {
    char root[64];
    struct confine ws;
};

static int make_place(void **state)
{
    struct place *p = calloc(1, sizeof(*p));
    if (!p)
        return -1;
    snprintf(p->root, sizeof(p->root), "/tmp/mango-inside-XXXXXX");
    if (!mkdtemp(p->root))
        return -1;
    p->ws = (struct confine){p->root, open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    *state = p;
    return p->ws.root_fd < 0 ? -1 : 0;
}

static int remove_place(void **state)
{
    struct place *p = *state;
    char line[128];
    snprintf(line, sizeof(line), "rm -rf '%s'", p->root);
    int rc = system(line); /* NOLINT(cert-env33-c): a name of our own */
    close(p->ws.root_fd);
    free(p);
    return rc;
}

static int put(const struct place *p, const char *name, const char *content, mode_t mode)
{
    int fd = openat(p->ws.root_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(write_whole(fd, content, strlen(content)));
    assert_int_equal(fchmod(fd, mode), 0);
    return fd;
}

static void assert_content(const struct place *p, const char *name, const char *content)
{
    char text[64] = "";
    int fd = openat(p->ws.root_fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) >= 0);
    close(fd);
    assert_string_equal(text, content);
}

/* A read whose answer was lost comes again under the same name. */
static void a_file_that_is_staged_twice_keeps_its_content(void **state)
{
    const struct place *p = *state;
    int64_t copied = 0;
    int fd = put(p, "big", "precious", 0644);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(file_stage(fd, p->ws.root_fd, "id.out", 0600, 2, 3, &copied), 0);
        assert_int_equal(copied, -1); /* a second name of the file itself */
        assert_content(p, "id.out", "precious");
    }
    close(fd);
    assert_content(p, "big", "precious");
}

static void a_file_that_can_have_no_second_name_is_copied_in_part(void **state)
{
    const struct place *p = *state;
    int64_t copied = 0;
    int fd = put(p, "gone", "precious", 0644);
    assert_int_equal(unlinkat(p->ws.root_fd, "gone", 0), 0); /* the kernel links no file without a name */
    assert_int_equal(file_stage(fd, p->ws.root_fd, "id.out", 0600, 2, 3, &copied), 0);
    assert_int_equal(copied, 3);
    close(fd);
    assert_content(p, "id.out", "eci");
}

static void a_replaced_file_keeps_its_mode_and_the_content_has_only_the_new_name(void **state)
{
    const struct place *p = *state;
    struct stat st;
    const char *text = "";
    close(put(p, "target", "old", 0751));
    int fd = put(p, "id.in", "new", 0600);
    assert_int_equal(file_replace(p->ws.root_fd, "id.in", fd, p->ws.root_fd, "target", 0644, &text), 0);
    close(fd);
    assert_content(p, "target", "new");
    assert_int_equal(fstatat(p->ws.root_fd, "target", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(faccessat(p->ws.root_fd, "id.in", F_OK, 0), -1);
}

/* /dev/shm is in memory, and /tmp mostly is not. */
static void a_file_on_another_file_system_is_replaced_by_a_copy(void **state)
{
    const struct place *p = *state;
    struct stat here, there;
    char dir[] = "/dev/shm/mango-inside-XXXXXX", line[128];
    const char *text = "";
    assert_non_null(mkdtemp(dir));
    const struct place beyond = {.ws.root_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    assert_int_equal(fstat(p->ws.root_fd, &here), 0);
    assert_int_equal(fstat(beyond.ws.root_fd, &there), 0);
    if (here.st_dev == there.st_dev)
        print_message("/tmp and /dev/shm are one file system: nothing is copied\n");
    close(put(&beyond, "target", "old", 0751));
    int fd = put(p, "id.in", "new", 0600);
    assert_int_equal(file_replace(p->ws.root_fd, "id.in", fd, beyond.ws.root_fd, "target", 0644, &text), 0);
    close(fd);
    assert_content(&beyond, "target", "new");
    assert_int_equal(fstatat(beyond.ws.root_fd, "target", &there, 0), 0);
    assert_int_equal(there.st_mode & 07777, 0751);
    assert_int_equal(faccessat(p->ws.root_fd, "id.in", F_OK, 0), -1);
    fd = put(p, "other.in", "newer", 0600);
    assert_int_equal(fchmodat(beyond.ws.root_fd, "target", 0444, 0), 0);
    assert_int_equal(file_replace(p->ws.root_fd, "other.in", fd, beyond.ws.root_fd, "target", 0644, &text), EACCES);
    close(fd);
    assert_content(&beyond, "target", "new");
    close(beyond.ws.root_fd);
    snprintf(line, sizeof(line), "rm '%s/target' && rmdir '%s'", dir, dir);
    assert_int_equal(system(line), 0); /* NOLINT(cert-env33-c): names of our own; nothing else is left there */
}

static void what_must_not_be_replaced_is_refused_with_the_reason(void **state)
{
    const struct place *p = *state;
    struct stat st;
    bool there;
    const char *text = "";
    assert_int_equal(mkfifoat(p->ws.root_fd, "pipe", 0600), 0);
    assert_int_equal(file_target(p->ws.root_fd, "pipe", &st, &there, &text), EINVAL);
    assert_string_equal(text, "is a FIFO; only regular files can be read or written");
    close(put(p, "fixed", "x", 0444));
    assert_int_equal(file_target(p->ws.root_fd, "fixed", &st, &there, &text), EACCES);
    assert_string_equal(text, "is read-only; change its mode first");
    assert_int_equal(file_target(p->ws.root_fd, "absent", &st, &there, &text), 0);
    assert_false(there);
    assert_int_equal(file_open_regular(opener_of(&p->ws), sv_z("pipe"), &st, &text), -EINVAL);
}

static void a_link_that_leads_out_is_looked_at_as_a_link(void **state)
{
    const struct place *p = *state;
    struct stat st;
    const char *text = "";
    assert_int_equal(symlinkat("/etc/passwd", p->ws.root_fd, "out"), 0);
    assert_int_equal(file_look(opener_of(&p->ws), sv_z("out"), false, &st), 0);
    assert_int_equal(file_kind(st.st_mode), 'l');
    assert_int_equal(file_open_regular(opener_of(&p->ws), sv_z("out"), &st, &text), -EXDEV);
}

static void variables_of_a_command_win_over_those_of_its_starter(void **state)
{
    (void)state;
    char *base[] = {(char[]){"A=1"}, (char[]){"AB=2"}, (char[]){"C"}, NULL};
    const struct mango_sv own[] = {sv_z("A=3"), sv_z("D=")};
    static const char want[] = "AB=2\0C\0A=3\0D=";
    enum { ROOM = 64 };
    char many[ROOM];
    struct parcel p;
    memset(many, 'x', sizeof(many));
    assert_true(parcel_begin(&p, ROOM));
    assert_true(parcel_env(&p, base, own, 2));
    assert_int_equal(p.envc, 4);
    assert_int_equal(p.len, sizeof(want));
    assert_memory_equal(p.strings, want, sizeof(want));
    assert_false(parcel_string(&p, (struct mango_sv){"x\0y", 3}));
    assert_false(parcel_string(&p, (struct mango_sv){many, ROOM - sizeof(want)})); /* its NUL is too much */
    assert_true(parcel_string(&p, (struct mango_sv){many, ROOM - sizeof(want) - 1}));
    parcel_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_is_staged_twice_keeps_its_content, make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_file_that_can_have_no_second_name_is_copied_in_part, make_place,
                                        remove_place),
        cmocka_unit_test_setup_teardown(a_replaced_file_keeps_its_mode_and_the_content_has_only_the_new_name,
                                        make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_file_on_another_file_system_is_replaced_by_a_copy, make_place, remove_place),
        cmocka_unit_test_setup_teardown(what_must_not_be_replaced_is_refused_with_the_reason, make_place, remove_place),
        cmocka_unit_test_setup_teardown(a_link_that_leads_out_is_looked_at_as_a_link, make_place, remove_place),
        cmocka_unit_test(variables_of_a_command_win_over_those_of_its_starter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
