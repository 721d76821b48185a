/* The conformance suite itself: it passes the backend that keeps its promises and fails the one that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "sandbox/conformance.h"
#include "support/plugin-build.h"

enum {
    REPORT_MAX = 64 * 1024,
    LOCAL_MAX_S = 120, /* for the whole suite with local: 25 s without a sanitizer on two busy cores */
};

static char dir[PLUGIN_PATH_MAX], base[PLUGIN_PATH_MAX + 8];

static bool setting(void *ctx, const char *plugin, const char *name, struct mg_buf *out)
{
    (void)ctx;
    (void)plugin;
    return strcmp(name, "base_dir") == 0 && mg_buf_str(out, base) == MG_OK;
}

static const struct mg_plugin_services services = {.setting = setting};

static int set_up(void **state)
{
    (void)state;
    plugin_dir_make(dir);
    snprintf(base, sizeof(base), "%s/base", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    plugin_dir_remove(dir);
    return 0;
}

static void on_line(void *ctx, const char *text)
{
    (void)mg_buf_printf(ctx, "%s\n", text);
}

static int run_only(const char *name, const char *only, struct mg_buf *report)
{
    /* The suite starts this program again as its other processes: main. */
    const char *const child[] = {"/proc/self/exe", "child", dir, name, NULL};
    struct mg_conformance_opts o = {.dir = dir, .name = name, .services = &services, .only = only, .child = child};
    return mg_conformance_run(&o, on_line, report);
}

static int run(const char *name, struct mg_buf *report)
{
    return run_only(name, NULL, report);
}

static int be_the_child(char **argv)
{
    snprintf(dir, sizeof(dir), "%s", argv[0]);
    snprintf(base, sizeof(base), "%s/base", dir);
    struct mg_conformance_opts o = {.dir = dir, .name = argv[1], .services = &services};
    return mg_conformance_child(&o, argv[2], argv[3], argv[4]);
}

static void local_passes(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_true(plugin_build_local(dir));
    time_t start = time(NULL);
    int failed = run("local", &report);
    assert_true(time(NULL) - start < LOCAL_MAX_S);
    if (failed)
        print_error("%s", report.ptr);
    assert_int_equal(failed, 0);
    assert_non_null(strstr(report.ptr, "TAP version 13\n"));
    assert_non_null(strstr(report.ptr, "# capability: durable-workspace, proved\n"));
    assert_non_null(strstr(report.ptr, "# not claimed: isolated\n"));
    assert_non_null(strstr(report.ptr, "option/a_pause_stops_commands_and_keeps_files # SKIP the capability"));
    assert_null(strstr(report.ptr, "cannot start a second one"));
    /* What was killed in the middle of a create or a destroy is swept by the next start: this one. */
    mg_buf_reset(&report);
    assert_int_equal(run_only("local", "exit_codes", &report), 0);
    if (!plugin_sh("test -z \"$(ls -A '%s')\"", base))
        (void)plugin_sh("ls -lA '%s' >&2", base);
    assert_true(plugin_sh("test -z \"$(ls -A '%s')\"", base));
}

/* local with bits that it cannot keep: each is found out by the cases of that bit. */
static void a_claimed_capability_that_is_not_kept_fails(void **state)
{
    static const struct {
        uint64_t caps;
        const char *name, *only;
    } lies[] = {
        {MANGO_CAP_PAUSE, "pause", "a_pause"},
        {MANGO_CAP_SNAPSHOT, "snapshot", "a_snapshot_holds"},
        {MANGO_CAP_SNAPSHOT | MANGO_CAP_FORK, "fork", "a_fork_begins"},
        {MANGO_CAP_FORK, "fork", "a_fork_begins"},
        {MANGO_CAP_EGRESS_LIMITED, "limited-egress", "an_empty_allow_list"},
        {MANGO_CAP_PACKAGES, "packages", "packages_that"},
        {MANGO_CAP_MOUNTS_RO, "read-only-mounts", "mounts_are"},
        {MANGO_CAP_ARCHIVES, "archives", "archives_go"},
        {MANGO_CAP_LIMITS, "resource-limits", "memory_and_processes"},
        {MANGO_CAP_PTY, "pty", "a_terminal"},
        {MANGO_CAP_KEEP_ALIVE, "keep-alive", "the_timer"},
        {MANGO_CAP_ISOLATED, "isolated", "the_host"},
        {MANGO_CAP_NO_NETWORK, "no-network", "mode_none"},
        {MANGO_CAP_CONCURRENT_EXEC, "concurrent-exec", "many_commands"},
        {MANGO_CAP_LIST_OWNED, "list-owned", "lists_what"},
        {MANGO_CAP_PROC, "proc", "a_process_keeps"},
    };
    (void)state;
    char text[64];
    assert_true(plugin_build_liar(dir));
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
        snprintf(text, sizeof(text), "%#llx", (unsigned long long)lies[i].caps);
        setenv("LIE_CAPS", text, 1);
        int failed = run_only("liar", lies[i].only, &report);
        snprintf(text, sizeof(text), "# capability: %s, claimed but NOT kept\n", lies[i].name);
        if (failed <= 0 || !strstr(report.ptr, text))
            print_error("%s: %s", lies[i].name, report.ptr);
        assert_true(failed > 0);
        assert_non_null(strstr(report.ptr, text));
        unsetenv("LIE_CAPS");
    }
}

static void a_workspace_that_is_lost_at_a_restart_is_not_durable(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    setenv("LIE_FORGETS", "1", 1);
    assert_int_equal(run_only("liar", "a_durable", &report), 1);
    unsetenv("LIE_FORGETS");
    assert_non_null(strstr(report.ptr, "# capability: durable-workspace, claimed but NOT kept\n"));
}

/* A service that cannot kill a command and mangles its output: what the core brings for it makes it as good as any. */
static void the_helper_makes_up_for_a_poor_service(void **state)
{
    static const char *const parts[] = {"kills_everything", "case_67", "both_streams", "output_before", "case_58"};
    (void)state;
    assert_true(plugin_build_limp(dir));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
        int failed = run_only("limp", parts[i], &report);
        if (failed)
            print_error("%s", report.ptr);
        assert_int_equal(failed, 0);
        assert_null(strstr(report.ptr, "\n1..0\n"));
        assert_non_null(strstr(report.ptr, "# weakness, met by the core: needs-kill-helper\n"));
    }
}

static void a_plugin_of_a_service_runs_only_when_told_so(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_true(
        plugin_build(dir, "served", "tests/abi/variant.c", "-DREQUIRED_HOST=MANGO_HOST_HTTP -DNAME='\"served\"'"));
    assert_int_equal(run("served", &report), 0);
    assert_non_null(strstr(report.ptr, "ok 1 - the file, its descriptor and its tables are what this server loads\n"));
    assert_non_null(strstr(report.ptr, "core/health_answers # SKIP it makes sandboxes at a service: add --live\n"));
}

static void a_backend_that_only_says_hello_fails(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_true(plugin_build(dir, "smallest", "tests/abi/smallest.c", ""));
    assert_true(run("smallest", &report) > 5);
    assert_non_null(strstr(report.ptr, "not ok "));
}

static void a_plugin_that_does_not_load_is_named(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_int_equal(run("nothing", &report), -1);
    assert_non_null(strstr(report.ptr, "Bail out! conformance=nothing: no such sandbox"));
}

static void case_39_names_beyond_the_entry_are_listed(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_true(
        plugin_build(dir, "clashing", "tests/abi/variant.c", "-DCLASHES -fvisibility=default -DNAME='\"clashing\"'"));
    assert_true(run("clashing", &report) > 0);
    assert_non_null(strstr(report.ptr, "# curl_easy_init\n"));
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "child") == 0)
        return be_the_child(argv + 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_passes),
        cmocka_unit_test(a_claimed_capability_that_is_not_kept_fails),
        cmocka_unit_test(a_workspace_that_is_lost_at_a_restart_is_not_durable),
        cmocka_unit_test(the_helper_makes_up_for_a_poor_service),
        cmocka_unit_test(a_plugin_of_a_service_runs_only_when_told_so),
        cmocka_unit_test(a_backend_that_only_says_hello_fails),
        cmocka_unit_test(a_plugin_that_does_not_load_is_named),
        cmocka_unit_test(case_39_names_beyond_the_entry_are_listed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
