/* The conformance suite itself: it passes the backend that keeps its promises and fails the one that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "sandbox/conformance.h"
#include "support/plugin-build.h"

enum { REPORT_MAX = 64 * 1024 };

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

static int run(const char *name, struct mg_buf *report)
{
    struct mg_conformance_opts o = {.dir = dir, .name = name, .services = &services};
    return mg_conformance_run(&o, on_line, report);
}

static void local_passes(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf report = MG_BUF_INIT(REPORT_MAX);
    assert_true(plugin_build_local(dir));
    int failed = run("local", &report);
    if (failed)
        print_error("%s", report.ptr);
    assert_int_equal(failed, 0);
    assert_non_null(strstr(report.ptr, "TAP version 13\n"));
    assert_non_null(strstr(report.ptr, "# capability: durable-workspace\n"));
    assert_non_null(strstr(report.ptr, "option/a_pause_keeps_the_files # SKIP"));
    assert_true(plugin_sh("test -z \"$(ls -A '%s')\"", base));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_passes),
        cmocka_unit_test(a_backend_that_only_says_hello_fails),
        cmocka_unit_test(a_plugin_that_does_not_load_is_named),
        cmocka_unit_test(case_39_names_beyond_the_entry_are_listed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
