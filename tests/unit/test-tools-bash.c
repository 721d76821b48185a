#include "unit/unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "support/tool-call.h"

enum {
    LONG = 20000, /* ms; what hangs takes so long */
    SOON = 5000,  /* ms; within a second on a machine that has nothing else to do, and what hangs takes longer */
};

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static void output_and_status_come_back(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(tool_bash(t, "echo hi; echo there >&2", LONG), "hi\nthere");
    assert_false(t->is_error);
    assert_string_equal(tool_bash(t, "true", LONG), "(no output)");
    assert_false(t->is_error);
    assert_string_equal(tool_bash(t, "printf 'a\\n\\n\\n'", LONG), "a");
    assert_string_equal(tool_bash(t, "false", LONG), "exit 1");
    assert_true(t->is_error);
    assert_string_equal(tool_bash(t, "echo oh; (exit 7)", LONG), "oh\nexit 7");
    assert_true(t->is_error);
}

static void folder_variables_functions_and_jobs_stay(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "mkdir -p d; cd d; x=5; export y=6; f() { echo f$1; }; declare -a z=(1 2 3); declare w=8", LONG);
    char want[128];
    (void)snprintf(want, sizeof(want), "%s/d\n5 6 3 8\nf1", t->box->root);
    assert_string_equal(tool_bash(t, "pwd; echo $x $y ${#z[@]} $w; f 1", LONG), want);
    assert_int_equal(t->box->procs, 1);
}

static void restart_gives_a_new_shell(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "x=5; sleep 300 &", LONG);
    assert_contains(tool_callv(t, "bash", "restart", "\x01true", NULL), "restarted");
    assert_false(t->is_error);
    assert_int_equal(host_box_processes(t->box), 0);
    assert_string_equal(tool_bash(t, "echo \"[$x]\"; jobs", LONG), "[]");
    tool_bash(t, "x=6", LONG);
    assert_string_equal(tool_callv(t, "bash", "restart", "\x01true", "command", "echo \"[$x]\"", NULL), "[]");
}

static void the_input_is_checked(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *in, *says;
    } BAD[] = {
        {"{}", "command is required"},
        {"{\"command\":5}", "command: must be a string"},
        {"{\"command\":\"a\",\"timeout_ms\":-1}", "timeout_ms: must be at least 0"},
        {"{\"command\":\"a\",\"timeout_ms\":3600001}", "timeout_ms: must be at most 3600000"},
        {"{\"command\":\"a\",\"timeout_ms\":1.5}", "timeout_ms: must be an integer"},
        {"{\"command\":\"a\",\"restart\":\"yes\"}", "restart: must be a boolean"},
        {"{\"command\":\"a\",\"cwd\":\"x\"}", "cwd: unknown field"},
        {"{\"command\":\"a\\u0000b\"}", "NUL"},
        {"[]", "must be an object"},
        {"{\"command\":", "not right"},
    };

    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        tool_call(t, "bash", mg_sv_of(BAD[i].in));
        assert_true(t->is_error);
        assert_contains(t->text, BAD[i].says);
    }
    assert_int_equal(t->box->procs, 0);
    assert_contains(tool_call(t, "nothing", MG_SV("{}")), "there is no tool nothing");
}

static void the_default_limit_counts_when_none_is_given(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(tool_bash(t, "sleep 0.1; echo x", 0), "x");
    assert_string_equal(tool_call(t, "bash", MG_SV("{\"command\":\"echo x\",\"restart\":null,\"timeout_ms\":null}")),
                        "x");
}

static void case_55_stdin_is_empty_and_framing_holds(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *command, *says;
    } CASES[] = {
        {"cat", "(no output)"},
        {"read x; echo got:$x", "got:"},
        {"python3 -c 'input()'", "EOFError"},
        {"cat <<A\nfoo\nA\n", "foo"},
        {"cat <<A\nfoo\nA", "foo"},
        {"cat <<A\nfoo", "foo"},
        {"echo 'unbalanced", "unexpected EOF"},
        {"echo \"unbalanced", "unexpected EOF"},
        {"( echo", "syntax error"},
        {"}", "syntax error"},
        {"echo end \\", "end"},
        {"echo a # comment", "a"},
        {"#", "(no output)"},
        {"sleep 300 &", "(no output)"},
        {"echo 'it'\\''s'", "it's"},
        {"exec 0<&- 1>&- 2>&-", "(no output)"},
        {"exec >/dev/null 2>&1", "(no output)"},
        {"set -v; set -x; echo x", "x"},
        {"echo E\n", "E"},
        {"return 3", "exit 3"},
        {"${q:?is not set}", "is not set"},
    };

    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        assert_contains(tool_bash(t, CASES[i].command, LONG), CASES[i].says);
        assert_int_equal(t->rc, MG_OK);
        assert_true(t->ms < SOON);
        assert_string_equal(tool_bash(t, "echo still", LONG), "still");
    }
}

static void case_56_a_command_of_200_kib_runs(void **state)
{
    struct tool_case *t = *state;
    size_t n = 200 * 1024;
    mg_autofree char *command = malloc(n + 64);

    (void)snprintf(command, 16, "x='");
    memset(command + 3, 'y', n);
    (void)snprintf(command + 3 + n, 32, "'; echo ${#x}");
    assert_string_equal(tool_bash(t, command, LONG), "204800");
    memset(command + 5, '\'', n); /* the worst to quote */
    memcpy(command, "true ", 5);
    command[n + 5] = '\0';
    assert_string_equal(tool_bash(t, command, LONG), "(no output)");
}

static void case_58_the_status_is_named(void **state)
{
    struct tool_case *t = *state;
    static const int CODE[] = {1, 2, 124, 126, 127, 128, 137, 143, 255};

    for (size_t i = 0; i < sizeof(CODE) / sizeof(CODE[0]); i++) {
        char command[64], want[32];
        (void)snprintf(command, sizeof(command), "sh -c 'exit %d'", CODE[i]);
        (void)snprintf(want, sizeof(want), "exit %d", CODE[i]);
        assert_true(starts(tool_bash(t, command, LONG), want));
        assert_true(t->is_error);
        assert_null(strstr(t->text, "timed out"));
    }
    assert_contains(tool_bash(t, "sh -c 'kill -SEGV $$'", LONG), "exit 139 (128+11: as after signal 11, SIGSEGV)");
    assert_contains(tool_bash(t, "sh -c 'kill -KILL $$'", LONG), "SIGKILL");
    assert_contains(tool_bash(t, "sh -c 'kill -PIPE $$'", LONG), "SIGPIPE");
}

static void exit_does_not_lose_the_shell_silently(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "x=5", LONG);
    assert_true(starts(tool_bash(t, "echo before; exit 3", LONG), "before\nexit 3\n"));
    assert_true(t->is_error);
    assert_contains(t->text, "folder, variables and background jobs are lost");
    assert_string_equal(tool_bash(t, "echo \"[$x]\"", LONG), "[]");
    assert_contains(tool_bash(t, "exit 0", LONG), "ended the shell itself");
    assert_false(t->is_error);
    assert_contains(tool_bash(t, "set -e; false; echo no", LONG), "exit 1");
    assert_contains(tool_bash(t, "kill -9 $$", LONG), "exit 137");
    assert_contains(tool_bash(t, "exec sh -c 'echo other; exit 5'", LONG), "other\nexit 5");
}

static void a_shell_that_died_between_calls_is_replaced_and_said(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "x=5; (while [ ! -e go ]; do sleep 0.02; done; kill -9 $$; sleep 0.1; touch done) &", LONG);
    host_box_puts(t->box, "go", "");
    for (struct mg_file_stat st; host_box_ops.stat(t->box, "done", &st, NULL) < 0;)
        (void)usleep(10000);
    assert_contains(tool_bash(t, "echo \"[$x]\"", LONG), "[]\n[the shell had ended since the last command");
    assert_false(t->is_error);
}

static void case_64_a_background_child_that_holds_the_pipe_does_not_delay(void **state)
{
    struct tool_case *t = *state;
    static const char *const COMMANDS[] = {"sleep 300 & echo done", "sleep 300 >/dev/null & echo done",
                                           "nohup python3 -m http.server 0 >/dev/null 2>&1 & echo done"};

    for (int i = 0; i < 3; i++) {
        assert_string_equal(tool_bash(t, COMMANDS[i], LONG), "done");
        assert_false(t->is_error);
        assert_true(t->ms < SOON);
    }
    assert_contains(tool_bash(t, "jobs; echo still", LONG), "still");
    assert_contains(t->text, "Running");
    assert_true(host_box_processes(t->box) >= 4);
    mg_tools_free(t->tools);
    t->tools = mg_tools_new(&host_box_ops, t->box);
    assert_int_equal(host_box_processes(t->box), 0);
}

static void case_65_every_call_has_a_result(void **state)
{
    struct tool_case *t = *state;
    static const char *const HANG[] = {"setsid -w sleep 300",
                                       "script -qc 'sleep 300' /dev/null",
                                       "(trap '' TERM INT HUP; sleep 300; sleep 300)",
                                       "sh -c 'setsid sleep 300 & wait'",
                                       "kill -STOP $$",
                                       "while :; do :; done",
                                       "while :; do sleep 0.05; done",
                                       "trap '' URG; while :; do :; done",
                                       "exec sleep 300",
                                       "sleep 300 | sleep 300; sleep 300"};

    assert_string_equal(tool_bash(t, "setsid sleep 300 & echo OK", LONG), "OK");
    assert_true(t->ms < SOON);
    assert_string_equal(tool_bash(t, "(setsid sh -c 'sleep 300 &' &); echo OK", LONG), "OK");
    assert_true(t->ms < SOON);
    for (size_t i = 0; i < sizeof(HANG) / sizeof(HANG[0]); i++) {
        assert_contains(tool_bash(t, HANG[i], 300), "timed out after 300 ms");
        assert_true(t->is_error);
        assert_true(t->ms < SOON + 5300);
        assert_string_equal(tool_bash(t, "echo next", LONG), "next");
    }
}

static void a_timeout_keeps_the_shell_where_it_can(void **state)
{
    struct tool_case *t = *state;
    static const char *const LOOPS[] = {"sleep 300",
                                        "while :; do :; done",
                                        "while :; do sleep 0.05; done",
                                        "sleep 300; sleep 300; sleep 300",
                                        "g() { while :; do :; done; }; g; g",
                                        "wait",
                                        "(while :; do :; done)",
                                        "yes >/dev/null",
                                        "sh -c 'trap \"\" TERM; sleep 300; sleep 300'",
                                        "x=$(sleep 300); echo $x",
                                        "cat /dev/zero | sleep 300"};

    tool_bash(t, "x=keep; sleep 300 & cd /usr", LONG);
    for (size_t i = 0; i < sizeof(LOOPS) / sizeof(LOOPS[0]); i++) {
        assert_contains(tool_bash(t, LOOPS[i], 200),
                        "timed out after 200 ms: what the command had started was ended; the shell is kept");
        assert_true(t->ms < SOON + 2500);
    }
    assert_contains(tool_bash(t, "echo $x; pwd; jobs", LONG), "/usr");
    assert_contains(t->text, "sleep 300 &");
    assert_int_equal(t->box->procs, 1);
    assert_contains(tool_bash(t, "echo a; sleep 300; echo b", 200), "a\ntimed out");
}

static void what_stands_behind_a_timed_out_command_does_not_run(void **state)
{
    struct tool_case *t = *state;

    for (int i = 0; i < 20; i++) {
        assert_contains(tool_bash(t, "sleep 300; touch ran; sleep 0.01", 50), "timed out");
        assert_string_equal(tool_bash(t, "ls", LONG), "(no output)");
    }
}

static void case_54_nothing_of_a_timed_out_command_runs_on(void **state)
{
    struct tool_case *t = *state;

    tool_bash(t, "true", LONG);
    int idle = host_box_processes(t->box);
    for (int i = 0; i < 5; i++) {
        assert_contains(tool_bash(t, "sh -c 'sleep 600 | sleep 600'; while :; do :; done", 100), "timed out");
        uint64_t deadline = mg_now_ns() + 5000000000u;
        while (host_box_processes(t->box) > idle && mg_now_ns() < deadline)
            (void)usleep(5000);
        assert_true(host_box_processes(t->box) <= idle);
        assert_string_equal(tool_bash(t, "echo x", LONG), "x");
    }
}

static void *fire_later(void *arg)
{
    struct tool_case *t = arg;

    for (struct mg_file_stat st; host_box_ops.stat(t->box, "started", &st, NULL) < 0;)
        (void)usleep(2000);
    mg_cancel_fire(t->cancel);
    return NULL;
}

static void a_cancel_ends_within_a_second_and_keeps_the_shell(void **state)
{
    struct tool_case *t = *state;
    pthread_t thread;

    tool_bash(t, "x=5", LONG);
    t->cancel = mg_cancel_new();
    assert_int_equal(pthread_create(&thread, NULL, fire_later, t), 0);
    uint64_t before = mg_now_ns();
    tool_bash(t, "touch started; sleep 300", LONG);
    assert_int_equal(t->rc, MG_ECANCELED);
    assert_true(mg_now_ns() - before < (SOON + 1000) * UINT64_C(1000000));
    pthread_join(thread, NULL);
    tool_bash(t, "echo never", LONG);
    assert_int_equal(t->rc, MG_ECANCELED);
    mg_cancel_unref(t->cancel);
    t->cancel = NULL;
    assert_string_equal(tool_bash(t, "echo $x; jobs", LONG), "5");
}

static void case_66_a_flood_costs_no_memory(void **state)
{
    struct tool_case *t = *state;
    static const struct {
        const char *command, *tail;
        int status;
    } FLOODS[] = {
        {"yes | head -c 500M; echo; echo END; (exit 9)", "\nEND\nexit 9", 9},
        {"head -c 150M /dev/urandom | base64 -w 0 | head -c 200M; echo; echo END", "\nEND", 0},
        {"seq 1 3000000 >&2; echo END", "\nEND", 0},
        {"i=0; while [ $i -lt 100000 ]; do printf '%d%%\\r' $i; i=$((i+1)); done; echo END", "END", 0},
    };

    tool_bash(t, "yes | head -c 300K", LONG); /* everything that is allocated once */
    for (size_t i = 0; i < sizeof(FLOODS) / sizeof(FLOODS[0]); i++) {
        tool_peak_reset();
        long before = tool_peak_kib();
        tool_bash(t, FLOODS[i].command, 120000);
        long grown = tool_peak_kib() - before;
        assert_true(t->text_len <= MG_TOOL_OUTPUT_MAX);
        assert_true(starts(t->text, "[output truncated: the last "));
        size_t n = strlen(FLOODS[i].tail);
        assert_string_equal(t->text + t->text_len - n, FLOODS[i].tail);
        assert_int_equal(t->is_error, FLOODS[i].status != 0);
        if (grown >= 4096)
            fail_msg("flood %zu: %ld KiB", i, grown);
    }
}

static void case_67_a_cut_never_splits_a_character(void **state)
{
    struct tool_case *t = *state;
    static const char *const CHARS[] = {"a", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};

    for (int i = 0; i < 4; i++)
        for (int shift = 0; shift < 4; shift++) {
            char command[200];
            (void)snprintf(command, sizeof(command), "printf '%.*s'; yes '%s' | head -n 120000 | tr -d '\\n'", shift,
                           "xyz", CHARS[i]);
            tool_bash(t, command, LONG);
            assert_true(t->text_len <= MG_TOOL_OUTPUT_MAX);
            assert_true(t->text_len > MG_TOOL_OUTPUT_MAX - 2048);
            assert_null(strstr(t->text, "\xEF\xBF\xBD"));
            const char *body = strchr(t->text, '\n') + 1;
            assert_int_equal(strlen(body) % strlen(CHARS[i]), 0);
        }
}

static void case_68_each_call_has_exactly_one_result(void **state)
{
    struct tool_case *t = *state;
    int done = 0, late = 0;

    for (int i = 0; i < 300; i++) {
        char command[96];
        int limit = 30, run = limit - 20 + (int)mg_rng_below(41);
        (void)snprintf(command, sizeof(command), "sleep 0.0%02d; echo result-%d", run, i);
        tool_bash(t, command, limit);
        assert_int_equal(t->rc, MG_OK);
        char want[32];
        (void)snprintf(want, sizeof(want), "result-%d", i);
        bool own = strcmp(t->text, want) == 0, limit_hit = strstr(t->text, "timed out after 30 ms") != NULL;
        if (own == limit_hit)
            fail_msg("call %d: \"%s\"", i, t->text);
        assert_int_equal(t->is_error, limit_hit);
        done += own;
        late += limit_hit;
    }
    assert_int_equal(done + late, 300);
    assert_true(done > 0 && late > 0);
}

static void case_69_nothing_of_the_server_is_in_the_environment(void **state)
{
    struct tool_case *t = *state;

    setenv("MANGO_CANARY", "canary-value", 1);
    tool_bash(
        t,
        "env; set; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'; cat /proc/$PPID/cmdline | tr '\\0' ' '",
        LONG);
    assert_null(strstr(t->text, "canary-value"));
    assert_string_equal(tool_bash(t, "ls /proc/self/fd", LONG),
                        "0\n1\n2\n3"); /* the last is the folder that ls reads */
    assert_string_equal(tool_bash(t, "ls /proc/self/fd | cat", LONG), "0\n1\n2\n3");
}

static void case_27_nul_and_bad_bytes_are_shown(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(tool_bash(t, "printf 'W\\0s\\0l\\0'", LONG), "W\xE2\x90\x80s\xE2\x90\x80l\xE2\x90\x80");
    assert_string_equal(tool_bash(t, "printf 'a\\377b'", LONG), "a\xEF\xBF\xBD"
                                                                "b");
}

static void terminal_escapes_are_taken_out(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(
        tool_bash(
            t,
            "printf '\\033[1;31mred\\033[0m \\033]0;title\\007x\\033(By\\033]8;;http://a\\033\\\\l\\033]8;;\\033\\\\'",
            LONG),
        "red xyl");
    assert_string_equal(tool_bash(t, "printf '\\033]never ends\\nnext'", LONG), "\nnext");
}

static void output_of_background_jobs_is_not_lost_between_calls(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(
        tool_bash(t, "(while [ ! -e go ]; do sleep 0.02; done; echo from-behind; touch done) & echo now", LONG), "now");
    host_box_puts(t->box, "go", "");
    for (struct mg_file_stat st; host_box_ops.stat(t->box, "done", &st, NULL) < 0;)
        (void)usleep(5000);
    assert_contains(tool_bash(t, "echo then", LONG), "from-behind");
    assert_contains(t->text, "then");
    tool_bash(t, "yes &", LONG);
    assert_contains(tool_bash(t, "kill %%; echo flood-is-over", LONG), "flood-is-over");
}

static void a_sandbox_with_plain_sh_works(void **state)
{
    struct tool_case *t = *state;
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/bin", t->box->root);
    tool_bash(t,
              "mkdir bin; for c in sh cat sleep env ls; do printf '#!/bin/sh\\nexec %s \"$@\"\\n' $(command -v $c) "
              ">bin/$c; chmod +x bin/$c; done",
              LONG);
    tool_callv(t, "bash", "restart", "\x01true", NULL);
    t->box->path = path;
    assert_string_equal(tool_bash(t, "echo \"[$BASH_VERSION]\"; x=5; cd bin", LONG), "[]");
    assert_contains(tool_bash(t, "echo 'unbalanced", LONG), "Unterminated");
    assert_contains(tool_bash(t, "echo $x; pwd", LONG), "5\n");
    assert_contains(tool_bash(t, "sleep 300", 200), "the shell is kept");
    assert_contains(tool_bash(t, "while :; do sleep 0.05; done", 200), "timed out");
    assert_string_equal(tool_bash(t, "echo $((1+1))", LONG), "2");
    assert_contains(tool_bash(t, "exit 4", LONG), "exit 4");
}

/* ---- without a persistent process ---- */

static void one_shot_keeps_folder_variables_and_functions(void **state)
{
    struct tool_case *t = *state;

    assert_string_equal(tool_bash(t, "mkdir d; cd d; x='a b'; export y=6; f() { echo f$1; }; echo ok", LONG), "ok");
    char want[128];
    (void)snprintf(want, sizeof(want), "%s/d\na b 6\nf1\n6", t->box->root);
    assert_string_equal(tool_bash(t, "pwd; echo $x $y; f 1; sh -c 'echo $y'", LONG), want);
    assert_string_equal(tool_bash(t, "z=1; echo out; exit 3", LONG), "out\nexit 3");
    assert_string_equal(tool_bash(t, "echo $z", LONG), "1");
    assert_contains(tool_bash(t, "z=2; sleep 300", 200), "timed out after 200 ms");
    assert_string_equal(tool_bash(t, "echo $z; cat; read a; echo \"[$a]\"", LONG), "1\n[]");
    assert_contains(tool_bash(t, "echo 'unbalanced", LONG), "unexpected EOF");
    tool_callv(t, "bash", "restart", "\x01true", NULL);
    assert_string_equal(tool_bash(t, "echo \"[$z]\"; ls -a /tmp/.mango-* 2>/dev/null", LONG), "[]\nexit 2");
}

static void case_47_an_unknown_end_is_said(void **state)
{
    struct tool_case *t = *state;

    assert_contains(tool_bash(t, "kill -9 $$", LONG), "signal 9 (SIGKILL)");
    assert_true(t->is_error);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, tool_case_setup, tool_case_teardown)
#define ONE_SHOT(f) cmocka_unit_test_setup_teardown(f, tool_case_setup_one_shot, tool_case_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(output_and_status_come_back),
        WITH(folder_variables_functions_and_jobs_stay),
        WITH(restart_gives_a_new_shell),
        WITH(the_input_is_checked),
        WITH(the_default_limit_counts_when_none_is_given),
        WITH(case_55_stdin_is_empty_and_framing_holds),
        WITH(case_56_a_command_of_200_kib_runs),
        WITH(case_58_the_status_is_named),
        WITH(exit_does_not_lose_the_shell_silently),
        WITH(a_shell_that_died_between_calls_is_replaced_and_said),
        WITH(case_64_a_background_child_that_holds_the_pipe_does_not_delay),
        WITH(case_65_every_call_has_a_result),
        WITH(a_timeout_keeps_the_shell_where_it_can),
        WITH(what_stands_behind_a_timed_out_command_does_not_run),
        WITH(case_54_nothing_of_a_timed_out_command_runs_on),
        WITH(a_cancel_ends_within_a_second_and_keeps_the_shell),
        WITH(case_66_a_flood_costs_no_memory),
        WITH(case_67_a_cut_never_splits_a_character),
        WITH(case_68_each_call_has_exactly_one_result),
        WITH(case_69_nothing_of_the_server_is_in_the_environment),
        WITH(case_27_nul_and_bad_bytes_are_shown),
        WITH(terminal_escapes_are_taken_out),
        WITH(output_of_background_jobs_is_not_lost_between_calls),
        WITH(a_sandbox_with_plain_sh_works),
        ONE_SHOT(one_shot_keeps_folder_variables_and_functions),
        ONE_SHOT(case_47_an_unknown_end_is_said),
    };

    return RUN(tests);
}
