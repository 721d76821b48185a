/* Files and paths of the backend `local`. Field cases 70, 71, 72 and 75. */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "support/local-rig.h"

static void files_of_all_sizes_come_back_as_they_were(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 95 * 1024, 200 * 1024, 5 * 1024 * 1024, OUT_MAX - 1};
    char *p = malloc(OUT_MAX);
    for (size_t i = 0; i < OUT_MAX; i++)
        p[i] = (char)(i * 31 >> 3);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct mg_err err;
        struct outcome o;
        int32_t eof = 0;
        assert_int_equal(box_write(text_sv("deep/er/file.bin"), p, sizes[i], &err), MANGO_OK);
        assert_int_equal(box_stat("deep/er/file.bin", MANGO_OK).size, sizes[i]);
        assert_int_equal(box_read(text_sv("deep/er/file.bin"), 0, OUT_MAX, &o, &eof), MANGO_OK);
        assert_int_equal(o.out.len, sizes[i]);
        assert_true(eof);
        if (sizes[i])
            assert_memory_equal(o.out.ptr, p, sizes[i]);
        outcome_done(&o);
    }
    free(p);
    struct outcome o;
    int32_t eof = 1;
    assert_int_equal(box_read(text_sv("deep/er/file.bin"), 10, 5, &o, &eof), MANGO_OK);
    assert_int_equal(o.out.len, 5);
    assert_false(eof);
    outcome_done(&o);
    assert_int_equal(box_read(text_sv("deep/er/file.bin"), UINT64_C(1) << 40, 5, &o, &eof), MANGO_OK);
    assert_true(eof && o.out.len == 0);
    outcome_done(&o);
    assert_int_equal(box_stat("deep", MANGO_OK).kind, 'd');
    (void)box_stat("nothing", MANGO_ENOENT);
}

static void case_70_no_path_leads_out_of_the_workspace(void **state)
{
    (void)state;
    box_says("ln -s /etc escape; ln -s ../../.. up; ln -s /proc/self/cwd magic; ln -s escape again; mkdir in; ln -s "
             "in/../../x y; echo ok",
             "ok\n");
    static const char *const out[] = {"../escape", "escape/passwd", "/etc/passwd", "up/x",
                                      "a/../../b", "again/passwd",  "y",           "in/../../../etc/passwd"};
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
        mango_status r = box_try_read(out[i]), w = box_try_write(out[i], "x");
        assert_true(r == MANGO_EDENIED || r == MANGO_ENOENT);
        assert_true(w == MANGO_EDENIED || w == MANGO_ENOENT || w == MANGO_EINVALID);
    }
    assert_true(box_try_read("magic/passwd") < 0);
    assert_true(plugin_sh("test ! -e '%s'/../escape && test ! -e '%s/x'", the_box.root.ptr, local_base));
    assert_int_equal(box_stat("escape", MANGO_OK).kind, 'l');
}

static void links_that_stay_inside_are_followed(void **state)
{
    (void)state;
    box_says("mkdir -p real/deep && echo text >real/deep/f && ln -s real/deep rel && ln -s \"$PWD/real\" abs && ln -s "
             "abs/deep/f chain && "
             "ln -s new-target dangling && ln -s loop loop && echo ok",
             "ok\n");
    box_holds("rel/f", "text\n");
    box_holds("abs/deep/f", "text\n");
    box_holds("chain", "text\n");
    char path[PLUGIN_PATH_MAX * 2];
    snprintf(path, sizeof(path), "%s/abs/deep/f", the_box.root.ptr);
    box_holds(path, "text\n");
    assert_int_equal(box_try_write("chain", "changed"), MANGO_OK);
    box_holds("real/deep/f", "changed");
    assert_int_equal(box_try_write("abs/made/below", "new"), MANGO_OK);
    box_holds("real/made/below", "new");
    assert_int_equal(box_try_write("dangling", "born"), MANGO_OK);
    box_holds("new-target", "born");
    box_says("test -L chain -a -L dangling && echo links", "links\n");
    assert_int_equal(box_try_read("loop"), MANGO_EINVALID);
    assert_int_equal(box_try_write("loop", "x"), MANGO_EINVALID);
}

static _Atomic bool stop_swapping;

static void *swapper(void *arg)
{
    (void)arg;
    char dir[PLUGIN_PATH_MAX * 2], aside[PLUGIN_PATH_MAX * 2], link_path[PLUGIN_PATH_MAX * 2],
        link_aside[PLUGIN_PATH_MAX * 2];
    snprintf(dir, sizeof(dir), "%s/swap", the_box.root.ptr);
    snprintf(aside, sizeof(aside), "%s/swap-dir", the_box.root.ptr);
    snprintf(link_path, sizeof(link_path), "%s/swap-link", the_box.root.ptr);
    snprintf(link_aside, sizeof(link_aside), "%s/victim", local_plugins);
    (void)!symlink(link_aside, link_path);
    while (!stop_swapping) {
        (void)rename(dir, aside);
        (void)rename(link_path, dir);
        (void)rename(dir, link_path);
        (void)rename(aside, dir);
    }
    return NULL;
}

static void case_70_a_race_with_links_never_leads_out(void **state)
{
    (void)state;
    pthread_t t;
    assert_true(plugin_sh("mkdir -p '%s/victim' '%s/swap' && echo canary >'%s/victim/file'", local_plugins,
                          the_box.root.ptr, local_plugins));
    stop_swapping = false;
    pthread_create(&t, NULL, swapper, NULL);
    for (int i = 0; i < 5000; i++) {
        struct outcome o;
        int32_t eof;
        if (box_read(text_sv("swap/file"), 0, 100, &o, &eof) == MANGO_OK)
            assert_null(memmem(o.out.ptr ? o.out.ptr : "", o.out.len, "canary", 6));
        outcome_done(&o);
        (void)box_try_write("swap/file", "inside");
        (void)box_try_write("swap/new", "inside");
    }
    stop_swapping = true;
    pthread_join(t, NULL);
    assert_true(plugin_sh("test \"$(cat '%s/victim/file')\" = canary && test \"$(ls '%s/victim')\" = file",
                          local_plugins, local_plugins));
}

static void case_71_special_files_are_refused_at_once(void **state)
{
    (void)state;
    box_says(
        "mkfifo fifo; mkdir dir; ln -s /dev/zero zero; truncate -s 1T sparse; touch secret; chmod 000 secret; echo ok",
        "ok\n");
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    char cwd[PLUGIN_PATH_MAX];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(the_box.root.ptr), 0);
    snprintf(sun.sun_path, sizeof(sun.sun_path), "socket");
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&sun, sizeof(sun)), 0);
    assert_int_equal(chdir(cwd), 0);
    close(s);
    static const char *const names[] = {"fifo", "socket", "dir"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(box_try_read(names[i]), MANGO_EINVALID);
        assert_int_equal(box_try_write(names[i], "x"), MANGO_EINVALID);
    }
    assert_int_equal(box_try_read("zero"), MANGO_EDENIED);
    char device[PLUGIN_PATH_MAX * 2];
    snprintf(device, sizeof(device), "%s/device", the_box.root.ptr);
    if (geteuid() == 0 && mknod(device, S_IFCHR | 0600, makedev(1, 5)) == 0)
        assert_int_equal(box_try_read("device"), MANGO_EINVALID);
    struct outcome o;
    int32_t eof;
    assert_int_equal(box_read(text_sv("sparse"), 0, 1 << 20, &o, &eof), MANGO_OK);
    assert_int_equal(o.out.len, 1 << 20);
    outcome_done(&o);
    if (geteuid() != 0)
        assert_int_equal(box_try_read("secret"), MANGO_EDENIED);
    char name[300];
    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    assert_int_equal(box_try_write(name, "x"), MANGO_EINVALID);
    assert_int_equal(box_try_read(name), MANGO_EINVALID);
    assert_int_equal(box_try_write("", "x"), MANGO_EINVALID);
    assert_int_equal(box_try_write("dir/", "x"), MANGO_EINVALID);
}

static void case_72_strange_names_hit_exactly_their_file(void **state)
{
    (void)state;
    char long_name[256];
    memset(long_name, 'l', 255);
    long_name[255] = '\0';
    const char *const names[] = {
        "a b", "new\nline",        "t\tab",     "qu'o\"te", "back\\slash", "x:12:y",         "-rf",
        "*",   "\360\237\245\255", "e\314\201", "\303\251", "\377\376",    "$(touch pwned)", long_name};
    struct mg_err err;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[8];
        snprintf(text, sizeof(text), "%zu", i);
        assert_int_equal(box_write(text_sv(names[i]), text, strlen(text), &err), MANGO_OK);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[8];
        snprintf(text, sizeof(text), "%zu", i);
        box_holds(names[i], text);
    }
    box_says("ls -A1q | wc -l", "14\n");
    assert_int_equal(box_write((struct mango_sv){"a\0b", 3}, "x", 1, &err), MANGO_EINVALID);
}

static void case_75_a_write_is_whole_or_not_at_all(void **state)
{
    (void)state;
    char path[PLUGIN_PATH_MAX * 2];
    snprintf(path, sizeof(path), "%s/tool", the_box.root.ptr);
    assert_int_equal(box_try_write("tool", "#!/bin/sh\n"), MANGO_OK);
    assert_int_equal(box_stat("tool", MANGO_OK).mode, 0644);
    assert_int_equal(chmod(path, 0755), 0);
    bool has_xattr = setxattr(path, "user.note", "kept", 4, 0) == 0;
    assert_int_equal(box_try_write("tool", "new"), MANGO_OK);
    assert_int_equal(box_stat("tool", MANGO_OK).mode, 0755);
    char value[8];
    if (has_xattr)
        assert_int_equal(getxattr(path, "user.note", value, sizeof(value)), 4);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(box_try_write("tool", "no"), MANGO_EDENIED);
    box_holds("tool", "new");
    assert_int_equal(box_try_write("tool/below", "x"), MANGO_EINVALID);
    assert_int_equal(box_try_write("empty", ""), MANGO_OK);
    assert_int_equal(box_stat("empty", MANGO_OK).size, 0);
    /* a file size limit stands for a full disk */
    assert_int_equal(box_try_write("full", "old"), MANGO_OK);
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    char big[4000];
    memset(big, 'x', sizeof(big));
    struct mg_err err;
    mango_status s = box_write(text_sv("full"), big, sizeof(big), &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(s, MANGO_EQUOTA);
    box_holds("full", "old");
    box_says("ls -A", "empty\nfull\ntool\n");
    assert_true(plugin_sh("test -z \"$(ls -A '%s/%s/staging')\"", local_base, the_box.id.ptr));
}

static int64_t broken_source(void *ctx, char *p, uint64_t n)
{
    int *calls = ctx;
    memset(p, 'x', n);
    return (*calls)++ < 3 ? (int64_t)n : MANGO_ECANCELED;
}

static void a_source_that_gives_up_changes_nothing(void **state)
{
    (void)state;
    struct mg_err err;
    int calls = 0;
    assert_int_equal(box_try_write("f", "old"), MANGO_OK);
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_write_req req = {.struct_size = sizeof(req),
                                  .path = text_sv("f"),
                                  .source = broken_source,
                                  .source_ctx = &calls,
                                  .source_len = -1};
    assert_int_equal(local_plugin->sandbox->write(local_plugin->ctx, &call, box_id(), &req), MANGO_ECANCELED);
    box_holds("f", "old");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX_TEST(files_of_all_sizes_come_back_as_they_were), BOX_TEST(case_70_no_path_leads_out_of_the_workspace),
        BOX_TEST(links_that_stay_inside_are_followed),       BOX_TEST(case_70_a_race_with_links_never_leads_out),
        BOX_TEST(case_71_special_files_are_refused_at_once), BOX_TEST(case_72_strange_names_hit_exactly_their_file),
        BOX_TEST(case_75_a_write_is_whole_or_not_at_all),    BOX_TEST(a_source_that_gives_up_changes_nothing),
    };
    return cmocka_run_group_tests(tests, local_group_up, local_group_down);
}
