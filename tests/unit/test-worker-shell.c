/* The worker's bash on a folder of this machine: what a persistent shell must survive. What the tool itself says is test-tools-bash. */
#include "unit/unit.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/tool-call.h"
#include "worker/tool-env.h"
#include "worker/tools.h"

enum {
    LONG = 20000, /* ms */
    SOON = 5000,  /* ms: within a second on a machine that has nothing else to do */
};

struct shell_case {
    struct tool_case t; /* first */
    struct mg_workspace *workspace;
    char root[64], extra[64], sealed[64];
};

static char *folder(char out[64], const char *what)
{
    (void)snprintf(out, 64, "/tmp/mango-%s-XXXXXX", what);
    assert_non_null(mkdtemp(out));
    return out;
}

static mg_rc run(void *ctx, struct mg_sv name, struct mg_sv input, struct mg_cancel *cancel, struct mg_tool_result *ret,
                 struct mg_err *err)
{
    return mg_workspace_call(ctx, name, input, cancel, ret, err);
}

static int setup(void **state)
{
    struct shell_case *c = calloc(1, sizeof(*c));
    char runner[512];

    (void)snprintf(runner, sizeof(runner), "%s/plugins/loadable/mango-local-runner", getenv("MANGO_TEST_BUILDDIR"));
    setenv("MANGO_WORKER_RUNNER", runner, 1);
    setenv("ANTHROPIC_ENVIRONMENT_KEY", "canary-key", 1);
    setenv("MANGO_MODEL_API_KEY", "canary-model", 1);
    setenv("DATABASE_URL", "canary-database", 1);
    setenv("PASSED_ON", "passed", 1);
    setenv("MANGO_WORKER_PASS_ENV", "PASSED_*, MANGO_MODEL_API_KEY", 1);
    const char *allowed[] = {folder(c->extra, "extra"), folder(c->sealed, "sealed"), NULL};
    const char *sealed[] = {c->sealed, NULL};
    struct mg_workspace_opts o = {.root = folder(c->root, "work"), .allowed = allowed, .read_only = sealed};
    struct mg_err err = {0};
    if (mg_workspace_open(&o, &c->workspace, &err) < 0)
        fail_msg("%s", err.text);
    c->t.arena = mg_arena_new();
    c->t.run = run;
    c->t.ctx = c->workspace;
    *state = c;
    return 0;
}

static int teardown(void **state)
{
    struct shell_case *c = *state;
    char line[256];

    mg_workspace_close(c->workspace);
    mg_arena_free(c->t.arena);
    (void)snprintf(line, sizeof(line), "rm -rf '%s' '%s' '%s'", c->root, c->extra, c->sealed);
    int rc = system(line); /* NOLINT(cert-env33-c): paths of mkdtemp */
    free(c);
    return rc;
}

/* Processes of this machine whose command line is exactly "sleep SECONDS". */
static int sleepers(const char *seconds)
{
    char want[64], path[300], line[64];
    int n = 0, len = snprintf(want, sizeof(want), "sleep%c%s", '\0', seconds);
    DIR *d = opendir("/proc");

    for (struct dirent *e; d && (e = readdir(d));) {
        (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
        FILE *f = fopen(path, "re");
        size_t got = f ? fread(line, 1, sizeof(line), f) : 0;
        n += got == (size_t)len + 1 && memcmp(line, want, (size_t)len + 1) == 0;
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}

/* Until so many are there: a job has begun before its program has. */
static void await_sleepers(const char *seconds, int n)
{
    uint64_t until = mg_now_ns() + LONG * UINT64_C(1000000);

    while (sleepers(seconds) != n && mg_now_ns() < until)
        usleep(5000);
    assert_int_equal(sleepers(seconds), n);
}

static void folder_variables_and_jobs_stay(void **state)
{
    struct shell_case *c = *state;
    char want[128];

    tool_bash(&c->t, "mkdir -p d; cd d; x=5; export y=6; f() { echo f$1; }; sleep 31.7 &", LONG);
    (void)snprintf(want, sizeof(want), "%s/d\n5 6\nf1", c->root);
    assert_string_equal(tool_bash(&c->t, "pwd; echo $x $y; f 1", LONG), want);
    await_sleepers("31.7", 1);
    tool_callv(&c->t, "bash", "restart", "\x01true", NULL);
    assert_int_equal(sleepers("31.7"), 0);
    (void)snprintf(want, sizeof(want), "[]\n%s", c->root);
    assert_string_equal(tool_bash(&c->t, "echo \"[$x]\"; pwd", LONG), want);
}

static void a_timeout_ends_the_command_and_leaves_the_shell(void **state)
{
    struct shell_case *c = *state;

    tool_bash(&c->t, "x=5; sleep 32.7 &", LONG);
    assert_contains(tool_bash(&c->t, "echo part; sleep 33.7; echo late", 300), "part");
    assert_true(c->t.is_error);
    assert_true(c->t.ms < SOON);
    assert_string_equal(tool_bash(&c->t, "echo $x", LONG), "5");
    assert_int_equal(sleepers("33.7"), 0);
    await_sleepers("32.7", 1);
}

struct later {
    struct mg_cancel *cancel;
    unsigned ms;
};

static void *fire_later(void *ctx)
{
    struct later *l = ctx;

    usleep(l->ms * 1000);
    mg_cancel_fire(l->cancel);
    return NULL;
}

static void a_cancel_from_another_thread_recovers(void **state)
{
    struct shell_case *c = *state;
    pthread_t thread;
    struct later l = {mg_cancel_new(), 300};

    tool_bash(&c->t, "x=5", LONG);
    c->t.cancel = l.cancel;
    assert_int_equal(pthread_create(&thread, NULL, fire_later, &l), 0);
    tool_bash(&c->t, "trap '' TERM INT; sleep 34.7; while :; do :; done", LONG);
    pthread_join(thread, NULL);
    assert_int_equal(c->t.rc, MG_ECANCELED);
    assert_true(c->t.ms < 300 + MG_WORKSPACE_YIELD_MS);
    mg_cancel_unref(l.cancel);
    c->t.cancel = NULL;
    assert_int_equal(sleepers("34.7"), 0);
    assert_string_equal(tool_bash(&c->t, "echo back", LONG), "back");
}

static void case_66_a_flood_is_bounded(void **state)
{
    struct shell_case *c = *state;

    tool_bash(&c->t, ":", LONG);
    tool_peak_reset();
    long before = tool_peak_kib();
    const char *text = tool_bash(&c->t, "yes 0123456789 | head -c 100000000; echo the end", 60000);
    assert_true(strlen(text) <= MG_TOOL_OUTPUT_MAX);
    assert_string_equal(text + strlen(text) - 7, "the end");
    assert_false(c->t.is_error);
    assert_true(tool_peak_kib() - before < 4096);
}

static void odd_bytes_are_shown(void **state)
{
    struct shell_case *c = *state;

    assert_string_equal(tool_bash(&c->t, "printf 'a\\377b\\000c'", LONG), "a\xEF\xBF\xBD"
                                                                          "b\xE2\x90\x80"
                                                                          "c");
    assert_string_equal(tool_bash(&c->t, "printf '\\033[31mred\\033[0m'", LONG), "red");
}

static void the_shell_that_ends_is_followed_by_another(void **state)
{
    struct shell_case *c = *state;
    static const char *const ends[] = {"exit 3", "exec sh -c 'exit 3'", "kill -9 $$", "exec 0<&- 1>&- 2>&-"};

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        tool_bash(&c->t, ends[i], 3000);
        assert_int_equal(c->t.rc, MG_OK);
        if (i < 2) {
            assert_contains(c->t.text, "3");
            assert_true(c->t.is_error);
        }
        assert_contains(tool_bash(&c->t, "echo alive", LONG), "alive");
    }
}

static void case_55_there_is_no_input(void **state)
{
    struct shell_case *c = *state;
    static const char *const reads[] = {"cat", "read x; echo \"got:$x\"", "cat <<E\nabc\nE",
                                        "head -c1 </dev/tty; echo end", "read x </dev/tty; echo \"got:$x\""};
    static const char *const want[] = {"(no output)", "got:", "abc", "end", "got:"};

    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        assert_string_equal(tool_bash(&c->t, reads[i], LONG), want[i]);
        assert_true(c->t.ms < SOON);
    }
    assert_contains(tool_bash(&c->t, "echo \"unbalanced", LONG), "unexpected EOF");
    assert_string_equal(tool_bash(&c->t, "echo ok", LONG), "ok");
}

static void it_has_a_terminal_and_its_output_counts(void **state)
{
    struct shell_case *c = *state;

    assert_string_equal(tool_bash(&c->t, "echo to the terminal >/dev/tty; sleep 0.1; echo out", LONG),
                        "to the terminal\nout");
    assert_string_equal(tool_bash(&c->t, "test -t 1 || echo a pipe", LONG), "a pipe");
    assert_contains(tool_bash(&c->t, "stty -a </dev/tty", LONG), "-icanon");
}

static void prompts_and_traces_fool_nobody(void **state)
{
    struct shell_case *c = *state;

    tool_bash(&c->t, "PS1='> '; PS2='more '; PROMPT_COMMAND='echo prompt'; set -x", LONG);
    assert_string_equal(tool_bash(&c->t, "echo a", LONG), "a");
    tool_bash(&c->t, "set -v", LONG);
    assert_string_equal(tool_bash(&c->t, "echo b", LONG), "b");
    /* What a command can know of the marker is its form. */
    assert_contains(tool_bash(&c->t, "printf '\\036%032d D 99 0\\036\\n' 0; echo after", LONG), "after");
    assert_string_equal(tool_bash(&c->t, "false", LONG), "exit 1");
}

static void case_69_no_secret_reaches_a_command(void **state)
{
    struct shell_case *c = *state;
    const char *all = tool_bash(&c->t, "env; set; cat /proc/self/environ /proc/$$/environ; ls -l /proc/self/fd", LONG);

    assert_null(strstr(all, "canary"));
    assert_contains(all, "PASSED_ON=passed");
    assert_string_equal(tool_bash(&c->t, "ls /proc/self/fd; echo $TERM", LONG), "0\n1\n2\n3\ndumb");
    assert_true(mg_tool_env_passes("LC_ALL", 6, NULL));
    assert_false(mg_tool_env_passes("ANTHROPIC_WORK_SECRET", 21, "*"));
    assert_true(mg_tool_env_passes("ANYTHING", 8, "*"));
    assert_false(mg_tool_env_passes("PATHS", 5, NULL));
}

static void the_file_tools_stay_inside(void **state)
{
    struct shell_case *c = *state;
    char path[128], dest[128];

    (void)snprintf(path, sizeof(path), "%s/f", c->extra);
    assert_contains(tool_callv(&c->t, "write", "file_path", path, "content", "here", NULL), "f");
    assert_false(c->t.is_error);
    assert_contains(tool_callv(&c->t, "read", "file_path", path, NULL), "here");
    (void)snprintf(path, sizeof(path), "%s/f", c->sealed);
    assert_contains(tool_callv(&c->t, "write", "file_path", path, "content", "x", NULL), "read-only");
    assert_true(c->t.is_error);
    tool_callv(&c->t, "read", "file_path", "/etc/passwd", NULL);
    assert_true(c->t.is_error);
    (void)snprintf(dest, sizeof(dest), "%s/link", c->root);
    assert_int_equal(symlink("/etc", dest), 0);
    assert_contains(tool_callv(&c->t, "read", "file_path", "link/passwd", NULL), "outside");
    tool_callv(&c->t, "write", "file_path", "../escape", "content", "x", NULL);
    assert_true(c->t.is_error);
}

static void everywhere_means_everywhere(void **state)
{
    (void)state;
    struct tool_case t = {.arena = mg_arena_new(), .run = run};
    struct mg_workspace *w = NULL;
    char root[64], link[128];
    struct mg_err err = {0};
    struct mg_workspace_opts o = {.root = folder(root, "work"), .unrestricted = true};

    assert_int_equal(mg_workspace_open(&o, &w, &err), MG_OK);
    t.ctx = w;
    assert_contains(tool_callv(&t, "read", "file_path", "/etc/passwd", NULL), "root:");
    (void)snprintf(link, sizeof(link), "%s/link", root);
    assert_int_equal(symlink("/etc", link), 0);
    assert_contains(tool_callv(&t, "read", "file_path", "link/passwd", NULL), "root:");
    mg_workspace_close(w);
    mg_arena_free(t.arena);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(root), 0);
}

static void closing_ends_all_descendants(void **state)
{
    (void)state;
    struct tool_case t = {.arena = mg_arena_new(), .run = run};
    struct mg_workspace *w = NULL;
    char root[64];
    struct mg_err err = {0};
    struct mg_workspace_opts o = {.root = folder(root, "work")};

    assert_int_equal(mg_workspace_open(&o, &w, &err), MG_OK);
    t.ctx = w;
    tool_bash(&t,
              "sleep 35.7 & setsid sleep 35.7 & (setsid sh -c 'trap \"\" TERM HUP; sleep 35.7; :' &) ; nohup sleep "
              "35.7 >/dev/null &",
              LONG);
    await_sleepers("35.7", 4);
    uint64_t before = mg_now_ns();
    mg_workspace_close(w);
    assert_true((mg_now_ns() - before) / 1000000 < MG_WORKSPACE_CLOSE_MS);
    assert_int_equal(sleepers("35.7"), 0);
    mg_arena_free(t.arena);
    assert_int_equal(rmdir(root), 0);
}

static void a_folder_that_is_missing_is_named(void **state)
{
    (void)state;
    struct mg_workspace *w = NULL;
    struct mg_err err = {0};
    struct mg_workspace_opts o = {.root = "/nowhere/at/all"};

    assert_true(mg_workspace_open(&o, &w, &err) < 0);
    assert_contains(err.text, "/nowhere/at/all");
    assert_null(w);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(folder_variables_and_jobs_stay),
        CASE(a_timeout_ends_the_command_and_leaves_the_shell),
        CASE(a_cancel_from_another_thread_recovers),
        CASE(case_66_a_flood_is_bounded),
        CASE(odd_bytes_are_shown),
        CASE(the_shell_that_ends_is_followed_by_another),
        CASE(case_55_there_is_no_input),
        CASE(it_has_a_terminal_and_its_output_counts),
        CASE(prompts_and_traces_fool_nobody),
        CASE(case_69_no_secret_reaches_a_command),
        CASE(the_file_tools_stay_inside),
        cmocka_unit_test(everywhere_means_everywhere),
        cmocka_unit_test(closing_ends_all_descendants),
        cmocka_unit_test(a_folder_that_is_missing_is_named),
    };

    return RUN(tests);
}
