/* Loading of plugins: every refusal with a real bad .so, its message as text. Field cases 39 to 43. */
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "json/json.h"
#include "plugin/elf.h"
#include "plugin/probe.h"
#include "plugin/process-state.h"
#include "plugin/registry.h"
#include "support/plugin-build.h"

static char dir[PLUGIN_PATH_MAX];
static char self[PLUGIN_PATH_MAX];
static int set_up(void **state)
{
    (void)state;
    plugin_dir_make(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plugin_dir_remove(dir);
    return 0;
}

/* What a process has once loaded stays under its path (RTLD_NODELETE), so each variant gets a file of its own. Returns its name. */
static const char *build(const char *flags)
{
    static char name[32];
    static int serial;
    char all[1024];
    snprintf(name, sizeof(name), "variant-%d", serial++);
    snprintf(all, sizeof(all), "%s%s%s %s", strstr(flags, "-DNAME=") ? "" : "-DNAME='\"",
             strstr(flags, "-DNAME=") ? "" : name, strstr(flags, "-DNAME=") ? "" : "\"'", flags);
    assert_true(plugin_build(dir, name, "tests/abi/variant.c", all));
    return name;
}

static mg_rc load(const char *name, struct mg_plugin **ret, struct mg_err *err)
{
    struct mg_plugin_load l = {.dir = dir, .name = name, .variable = "MANGO_SANDBOX", .kind = MANGO_KIND_SANDBOX};
    return mg_plugin_open(&l, ret, err);
}

/* $D in want stands for the folder, $N for the name. */
static void refused(const char *name, const char *want)
{
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf text = MG_BUF_INIT(4096);
    for (const char *c = want; *c; c++) {
        if (strncmp(c, "$D", 2) == 0) {
            (void)mg_buf_str(&text, dir);
            c++;
        } else if (strncmp(c, "$N", 2) == 0) {
            (void)mg_buf_str(&text, name);
            c++;
        } else {
            (void)mg_buf_char(&text, *c);
        }
    }
    assert_int_equal(load(name, &p, &err), MG_ECONFIG);
    assert_null(p);
    if (!strstr(err.text, text.ptr))
        print_error("got:  %s\nwant: %s\n", err.text, text.ptr);
    assert_non_null(strstr(err.text, text.ptr));
    assert_null(strchr(err.text, '\n'));
}

static void bad(const char *flags, const char *want)
{
    const char *name = build(flags);
    refused(name, want);
    assert_true(plugin_sh("rm '%s/%s.so'", dir, name));
}

static void names_that_would_be_paths_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "", "a/b", "..", "../local", "-x", "UPPER", "a b", "a.so", "aaaaaaaaaabbbbbbbbbbccccccccccddd"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        refused(names[i], "not a plugin name ([a-z0-9][a-z0-9-]{0,31}); available in $D: ");
    assert_true(mg_plugin_name_ok(MG_SV("a")) && mg_plugin_name_ok(MG_SV("aaaaaaaaaabbbbbbbbbbccccccccccdd")));
}

static void an_unknown_name_lists_what_exists(void **state)
{
    (void)state;
    refused("dokcer", "MANGO_SANDBOX=dokcer: no such sandbox; available in $D: none");
    assert_true(plugin_sh("cd '%s' && touch zeta.so alpha.so .hidden.so README Bad.so", dir));
    refused("dokcer", "MANGO_SANDBOX=dokcer: no such sandbox; available in $D: alpha zeta");
    assert_true(plugin_sh("cd '%s' && rm -f *.so .*.so README", dir));
}

static void what_is_no_shared_object_is_refused(void **state)
{
    (void)state;
    assert_true(plugin_sh("cd '%s' && echo text >text.so && : >empty.so && mkdir folder.so && mkfifo pipe.so && head "
                          "-c 64 /bin/sh >cut.so && "
                          "cp /bin/sh program.so && chmod 755 *.so",
                          dir));
    refused("text", "MANGO_SANDBOX=text: $D/text.so: it is not an ELF shared object; expected a plugin built with cc "
                    "-shared -fPIC");
    refused("empty", "$D/empty.so: it is not an ELF shared object");
    refused("folder", "$D/folder.so: it is not a regular file");
    refused("pipe", "$D/pipe.so: it is not a regular file");
    refused("cut", "$D/cut.so: it is a damaged ELF file");
    refused("program", "$D/program.so: it exports no mango_plugin_entry");
    assert_true(plugin_sh("cd '%s' && rm -rf *.so", dir));
}

static void files_that_others_can_change_are_refused(void **state)
{
    (void)state;
    const char *name = build("");
    assert_true(plugin_sh("chmod 757 '%s/%s.so'", dir, name));
    refused(name, "MANGO_SANDBOX=$N: $D/$N.so: its mode 0757 lets other users change it; run chmod go-w on it");
    if (geteuid() == 0) {
        assert_true(plugin_sh("chmod 775 '%s/%s.so'", dir, name));
        refused(name, "its mode 0775 lets other users change it");
        assert_true(plugin_sh("chmod 755 '%s/%s.so' && chown 65534 '%s/%s.so'", dir, name, dir, name));
        refused(name, "its owner is user 65534; expected root or this user (0)");
    }
    assert_true(plugin_sh("chmod 777 '%s'", dir));
    refused(name, "can be changed by other users");
    assert_true(plugin_sh("chmod 700 '%s' && rm '%s/%s.so'", dir, dir, name));
}

static void case_42_each_mismatch_has_its_own_line(void **state)
{
    (void)state;
    bad("-DNO_ENTRY", "it exports no mango_plugin_entry; it is not a Mango plugin, or the entry lacks MANGO_EXPORT");
    bad("-DSECOND_ENTRY", "it exports two entry points, mango_plugin_entry and mango_plugin_entry_v2; expected one");
    bad("-DMAGIC=0x12345678", "plugin magic 0x12345678, expected 0x6f676e4d; it is not a Mango plugin");
    bad("-DMAJOR=2", "MANGO_SANDBOX=$N: $D/$N.so: plugin ABI 2.0, this mangod accepts 1.0 to 1.0; rebuild "
                     "the plugin against "
                     "plugin-api 1.x or install the matching mangod");
    bad("-DMINOR=9", "plugin ABI 1.9, this mangod accepts 1.0 to 1.0");
    bad("-DSIZE=8", "struct mango_plugin has struct_size 8, expected at least 88");
    bad("-DSIZE=0", "struct mango_plugin has struct_size 0, expected at least 88");
    bad("-DOPS_SIZE=16", "struct mango_sandbox_ops has struct_size 16, expected at least 72");
    bad("-DKIND=0", "kind 0x0, expected MANGO_KIND_SANDBOX, MANGO_KIND_LAUNCHER or both");
    bad("-DKIND=MANGO_KIND_LAUNCHER", "kind says launcher but .launcher is NULL");
    bad("-DOPS=NULL", "kind says sandbox but .sandbox is NULL");
    bad("-DNAME='\"other\"'", "the plugin calls itself 'other', expected '$N'");
    bad("-DEXEC=NULL", "required operation sandbox.exec is NULL; the plugin must provide it");
    bad("-DINIT=NULL", "required function init is NULL");
    bad("-DCAPS=MANGO_CAP_PAUSE", "capability 'pause' is set but sandbox.pause is NULL; provide it or clear the bit");
    bad("-DCAPS='MANGO_CAP_SNAPSHOT|MANGO_CAP_PROC'", "capability 'proc' is set but sandbox.proc_open is NULL");
    bad("-DCAPS='(UINT64_C(1)<<63)'", "unknown capability bits 0x8000000000000000");
    bad("-DREQUIRED_HOST=MANGO_HOST_HTTP", "it needs host features 0x1, this mangod has 0x0");
    bad("-DREQUIRED_HOST='(UINT64_C(1)<<40)'", "it needs host features 0x10000000000");
    bad("-DINIT=init_fails", "MANGO_SANDBOX=$N: $D/$N.so: its start failed: the key in VARIANT_KEY was refused");
    bad("-DCAPS=MANGO_CAP_ISOLATED -DINIT=init_without",
        "its start takes back capability 'resource-limits' (bits 0x200), which its descriptor does not have");
    bad("-DMISSING_SYMBOL", "the loader refused it: ");
}

static void a_larger_struct_of_the_same_major_loads(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    const char *name =
        build("-DSIZE='sizeof(struct mango_plugin)+32' -DOPS_SIZE='sizeof(struct mango_sandbox_ops)+32'");
    assert_int_equal(load(name, &p, &err), MG_OK);
    assert_false(mg_plugin_isolated(p));
    mg_plugin_close(p);
}

static void a_capability_that_init_takes_back_does_not_hold(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    const char *name = build("-DCAPS='MANGO_CAP_LIMITS|MANGO_CAP_ISOLATED' -DINIT=init_without");
    assert_int_equal(load(name, &p, &err), MG_OK);
    assert_true(mg_plugin_can(p, MANGO_CAP_ISOLATED));
    assert_false(mg_plugin_can(p, MANGO_CAP_LIMITS));
    mg_plugin_close(p);
}

static void what_a_plugin_answers_becomes_a_code_and_a_text(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    const char *name = build("");
    assert_int_equal(load(name, &p, &err), MG_OK);
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_sv none = {"", 0};
    struct mg_guard g = mg_guard_enter(p, MG_OP_READ);
    mango_status s = mg_guard_leave(&g, p->sandbox->read(p->ctx, &call, none, NULL, NULL));
    assert_int_equal(mg_plugin_rc(p, MG_OP_READ, s, &err), MG_EUNAVAIL);
    assert_string_equal(err.text, "come back later (request id req-7)");
    assert_int_equal(err.retry_after_s, 2);
    assert_int_equal(atomic_load(&p->stats[MG_OP_READ].calls), 1);
    assert_int_equal(atomic_load(&p->stats[MG_OP_READ].errors), 1);
    assert_int_equal(atomic_load(&p->stats[MG_OP_READ].busy), 0);
    call = mg_plugin_call(0, NULL, &err);
    s = p->sandbox->write(p->ctx, &call, none, NULL);
    assert_int_equal(mg_plugin_rc(p, MG_OP_WRITE, s, &err), MG_EINTERNAL);
    assert_non_null(strstr(err.text, " write with status -77"));
    call = mg_plugin_call(0, NULL, &err);
    s = p->sandbox->stat(p->ctx, &call, none, none, 0, NULL);
    assert_int_equal(mg_plugin_rc(p, MG_OP_STAT, s, &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "no HTTP service"));
    mg_plugin_close(p);
}

static void settings_and_secrets_come_from_the_environment(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    const char *name = build("");
    assert_int_equal(load(name, &p, &err), MG_OK);
    const struct mango_host *h = p->host;
    char variable[64];
    snprintf(variable, sizeof(variable), "MANGO_VARIANT_%s_BASE_DIR", name + sizeof("variant"));
    struct mango_buf *b = h->buf_new(h, 16);
    setenv(variable, "/x", 1);
    setenv("SERVICE_KEY", "s", 1);
    setenv("MANGO_API_KEY", "canary", 1);
    assert_int_equal(h->config_get(h, "base_dir", b), MANGO_OK);
    assert_string_equal(h->buf_view(h, b).ptr, "/x");
    assert_int_equal(h->config_get(h, "unset", b), MANGO_ENOENT);
    assert_int_equal(h->secret_get(h, "SERVICE_KEY", b), MANGO_OK);
    assert_int_equal(h->secret_get(h, "MANGO_API_KEY", b), MANGO_ENOENT); /* the server's own */
    assert_int_equal(h->buf_append(h, b, "0123456789abcdef", 16), MANGO_ETOOBIG);
    h->buf_free(h, b);
    assert_true(h->now_ns(h) > 0);
    mg_plugin_close(p);
}

static void case_39_clashing_names_do_not_meet(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    const char *name = build("-DCLASHES -fvisibility=default");
    assert_int_equal(load(name, &p, &err), MG_OK);
    mg_autofree void *mine = mg_xmalloc(8); /* aborts in the plugin's version */
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    assert_int_equal(p->sandbox->exec(p->ctx, &call, (struct mango_sv){"", 0}, NULL, &r), MANGO_OK);
    mg_plugin_close(p);
}

static void count_export(void *ctx, const char *name)
{
    (void)name;
    (*(int *)ctx)++;
}

static void case_39_a_plugin_exports_its_entry_alone(void **state)
{
    (void)state;
    char path[PLUGIN_PATH_MAX + 16];
    struct mg_err err;
    assert_true(plugin_build_local(dir));
    snprintf(path, sizeof(path), "%s/local.so", dir);
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    int n = 0;
    assert_int_equal(mg_elf_exports(fd, count_export, &n, &err), MG_OK);
#ifndef __SANITIZE_ADDRESS__ /* its runtime adds names */
    assert_int_equal(n, 1);
#endif
    assert_true(n >= 1);
    assert_true(
        plugin_sh("test \"$(nm -D --defined-only '%s' | grep -vE ' (__odr_asan|__asan|__ubsan|__tsan|_init$|_fini$)' | "
                  "awk '{print $3}')\" = mango_plugin_entry",
                  path));
}

/* Runs this program with two arguments and gives its wait status. */
static int run_self(const char *what, const char *arg)
{
    pid_t pid;
    int status;
    const char *argv[] = {self, what, arg, NULL};
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, (char *const *)argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_folder_given_by_a_relative_path_is_opened_by_its_absolute_one(void **state)
{
    (void)state;
    const char *name = build("");
    char cwd[PLUGIN_PATH_MAX], want[PLUGIN_PATH_MAX + 64];
    struct mg_err err = {0};
    struct mg_plugin *p = NULL;
    struct mg_plugin_load l = {.dir = ".", .name = name, .variable = "MANGO_SANDBOX", .kind = MANGO_KIND_SANDBOX};
    snprintf(want, sizeof(want), "%s/%s.so", dir, name);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(dir), 0);
    mg_rc rc = mg_plugin_open(&l, &p, &err);
    assert_int_equal(chdir(cwd), 0);
    assert_int_equal(rc, MG_OK);
    assert_string_equal(p->path, want);
    mg_plugin_close(p);
}

static void case_41_code_is_never_unmapped(void **state)
{
    (void)state;
    const char *name = build("-DINIT=init_sticky");
    char path[PLUGIN_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(run_self("open", path), 0);
    setenv("VARIANT_FAILS", "1", 1);
    int status = run_self("open", path);
    unsetenv("VARIANT_FAILS");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 78);
}

static void case_43_what_init_changes_in_the_process_is_put_back(void **state)
{
    (void)state;
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    struct mg_process_state before;
    mg_auto(buf) struct mg_buf diff = MG_BUF_INIT(8192);
    char cwd[PLUGIN_PATH_MAX];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    const char *name = build("-DINIT=init_rude");
    mg_process_state_save(&before);
    assert_int_equal(load(name, &p, &err), MG_OK);
    assert_int_equal(chdir(cwd), 0); /* the one thing that is only reported */
    assert_int_equal(mg_process_state_diff(&before, &diff), 0);
    umask(0);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(mg_process_state_diff(&before, &diff), 2);
    assert_non_null(strstr(diff.ptr, "umask is 0000"));
    assert_non_null(strstr(diff.ptr, "SIGPIPE"));
    mg_process_state_restore(&before, name);
    mg_plugin_close(p);
}

static void files_are_looked_at_in_a_child(void **state)
{
    (void)state;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const char *argv[] = {self, "probe", NULL};
    struct mg_json *root;
    struct mg_err err = {0};
    assert_true(plugin_sh("rm -rf '%s'/*", dir));
    const char *crash = build("-DCRASHES");
    assert_true(plugin_sh("cd '%s' && mv %s.so a.so && echo text >b.so && chmod 755 b.so", dir, crash));
    const char *name = build("");
    struct mg_sv all = mg_plugin_probe_all(a, argv, dir);
    assert_int_equal(mg_json_parse(a, all, &mg_json_raw_limits, &root, &err), MG_OK);
    assert_int_equal(root->n, 3);
    for (uint32_t i = 0; i < 2; i++)
        assert_false(mg_json_get(mg_json_at(root, i), "ok")->boolean);
    assert_true(mg_sv_eqz(mg_json_get_str(a, mg_json_at(root, 0), "error"), "loading it killed the probing process"));
    assert_true(mg_json_get(mg_json_at(root, 2), "ok")->boolean);
    assert_true(mg_sv_eqz(mg_json_get_str(a, mg_json_at(root, 2), "name"), name));
}

static void a_registry_loads_each_plugin_once(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct mg_plugin *a, *b;
    const char *name = build("");
    struct mg_registry *r = mg_registry_new(dir, NULL);
    assert_int_equal(mg_registry_get(r, name, "MANGO_SANDBOX", MG_SV("{}"), &a, &err), MG_OK);
    assert_int_equal(mg_registry_get(r, name, "MANGO_SANDBOX", MG_SV("{}"), &b, &err), MG_OK);
    assert_ptr_equal(a, b);
    mg_registry_free(r);
}

static void the_layout_is_the_one_that_abi_1_promised(void **state)
{
    (void)state;
    assert_true(
        plugin_sh("cd '%s' && ${CC:-cc} -std=gnu17 -Iplugin-api tests/abi/layout.c -o '%s/layout' && '%s/layout' | "
                  "diff tests/abi/abi-1.txt - >&2",
                  plugin_srcdir(), dir, dir));
}

/* As an author does it: a copy of the headers elsewhere, pkg-config, a compiler, and nothing of this tree. */
static void a_plugin_builds_out_of_tree_with_pkg_config_alone(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct mg_plugin *p;
    assert_true(
        plugin_sh("cd '%s' && rm -rf * && mkdir -p inst/include inst/lib/pkgconfig work && cp -r '%s/plugin-api/mango' "
                  "inst/include/ && "
                  "sed -e \"s|@prefix@|$PWD/inst|; s|@exec_prefix@|\\${prefix}|; s|@includedir@|\\${prefix}/include|; "
                  "s|@libdir@|\\${prefix}/lib|; s|@PACKAGE_VERSION@|1|\" '%s/plugin-api/mango-plugin.pc.in' "
                  ">inst/lib/pkgconfig/mango-plugin.pc && cp '%s/tests/abi/smallest.c' work/",
                  dir, plugin_srcdir(), plugin_srcdir(), plugin_srcdir()));
    if (!plugin_sh("command -v pkg-config >/dev/null"))
        skip();
    assert_true(plugin_sh("cd '%s/work' && PKG_CONFIG_PATH='%s/inst/lib/pkgconfig' && export PKG_CONFIG_PATH && "
                          "${CC:-cc} -Wall -Wextra -Werror -shared -fPIC $(pkg-config --cflags mango-plugin) "
                          "smallest.c -o ../smallest.so && "
                          "chmod 755 ../smallest.so",
                          dir, dir));
    assert_int_equal(load("smallest", &p, &err), MG_OK);
    mg_plugin_close(p);
}

/* The child of case 41: what mangod does with a backend, in short. */
static int child_open(char *path)
{
    struct mg_plugin *p = NULL;
    struct mg_err err = {0};
    char *slash = strrchr(path, '/');
    *slash = '\0';
    snprintf(dir, sizeof(dir), "%s", path);
    if (load(slash + 1, &p, &err) < 0)
        return 78;
    mg_plugin_close(p);
    return 0;
}

int main(int argc, char **argv)
{
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return 1;
    if (argc == 3 && strcmp(argv[1], "probe") == 0)
        return mg_plugin_probe_main(argv[2]);
    if (argc == 3 && strcmp(argv[1], "open") == 0)
        return child_open(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_would_be_paths_are_refused),
        cmocka_unit_test(an_unknown_name_lists_what_exists),
        cmocka_unit_test(what_is_no_shared_object_is_refused),
        cmocka_unit_test(files_that_others_can_change_are_refused),
        cmocka_unit_test(case_42_each_mismatch_has_its_own_line),
        cmocka_unit_test(a_larger_struct_of_the_same_major_loads),
        cmocka_unit_test(a_capability_that_init_takes_back_does_not_hold),
        cmocka_unit_test(what_a_plugin_answers_becomes_a_code_and_a_text),
        cmocka_unit_test(settings_and_secrets_come_from_the_environment),
        cmocka_unit_test(case_39_clashing_names_do_not_meet),
        cmocka_unit_test(case_39_a_plugin_exports_its_entry_alone),
        cmocka_unit_test(a_folder_given_by_a_relative_path_is_opened_by_its_absolute_one),
        cmocka_unit_test(case_41_code_is_never_unmapped),
        cmocka_unit_test(case_43_what_init_changes_in_the_process_is_put_back),
        cmocka_unit_test(files_are_looked_at_in_a_child),
        cmocka_unit_test(a_registry_loads_each_plugin_once),
        cmocka_unit_test(the_layout_is_the_one_that_abi_1_promised),
        cmocka_unit_test(a_plugin_builds_out_of_tree_with_pkg_config_alone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
