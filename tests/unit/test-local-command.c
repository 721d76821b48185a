/* One command in a box of the backend `local`: its arguments, streams, environment and result. Field cases 55, 56, 58, 66, 67 and 69. */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/utf8.h"
#include "support/local-rig.h"

static void case_58_exit_codes_and_signals_are_told_apart(void **state)
{
    (void)state;
    static const int codes[] = {0, 1, 2, 124, 126, 127, 128, 137, 143, 255};
    char script[64];
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        snprintf(script, sizeof(script), "exit %d", codes[i]);
        struct outcome o = box_run(script, (struct how){0});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.exited && !o.r.timed_out && !o.r.unknown && o.r.signal == 0);
        assert_int_equal(o.r.exit_code, codes[i]);
        outcome_done(&o);
    }
    static const struct {
        int sig;
        const char *name;
    } signals[] = {{SIGSEGV, "SEGV"}, {SIGKILL, "KILL"}, {SIGPIPE, "PIPE"}, {SIGTERM, "TERM"}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(script, sizeof(script), "kill -%s $$", signals[i].name);
        struct outcome o = box_run(script, (struct how){0});
        assert_int_equal(o.r.signal, signals[i].sig);
        assert_false(o.r.exited || o.r.timed_out || o.r.unknown);
        outcome_done(&o);
    }
}

static void a_command_that_does_not_exist_is_a_result(void **state)
{
    (void)state;
    struct outcome o = box_run_argv((const char *const[]){"no-such-program", NULL}, (struct how){0});
    assert_int_equal(o.status, MANGO_OK);
    assert_int_equal(o.r.exit_code, 127);
    assert_non_null(strstr(o.err.ptr, "not found"));
    outcome_done(&o);
}

static void both_streams_stdin_cwd_and_variables_arrive(void **state)
{
    (void)state;
    box_says("mkdir -p 'sub dir' && echo ok", "ok\n");
    struct outcome o =
        box_run("cat; pwd >&2; echo $NAME", (struct how){.in = "a\nb", .cwd = "sub dir", .env = "NAME=v v"});
    outcome_is(&o, "a\nbv v\n");
    assert_non_null(strstr(o.err.ptr, "workspace/sub dir\n"));
    outcome_done(&o);
    o = box_run("true", (struct how){.cwd = "../.."});
    assert_int_equal(o.status, MANGO_EDENIED);
    outcome_done(&o);
}

static void a_large_binary_stdin_arrives_while_output_is_produced(void **state)
{
    (void)state;
    size_t n = 1 << 20;
    char *in = malloc(n);
    for (size_t i = 0; i < n; i++)
        in[i] = (char)(i * 7);
    struct outcome o =
        box_run("tee copy | wc -c; cmp copy /dev/stdin </dev/null; wc -c <copy", (struct how){.in = in, .in_len = n});
    assert_non_null(strstr(o.out.ptr, "1048576\n"));
    outcome_done(&o);
    o = box_run("cat", (struct how){.in = in, .in_len = n});
    assert_int_equal(o.out.len, n);
    assert_memory_equal(o.out.ptr, in, n);
    outcome_done(&o);
    free(in);
}

static void case_66_a_flood_is_drained_and_the_status_is_the_commands(void **state)
{
    (void)state;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    struct outcome o = box_run("head -c 200000000 /dev/zero; seq 300000 >&2; exit 3",
                               (struct how){.max_output = 65536, .limit_ms = 60000});
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(o.status, MANGO_OK);
    assert_int_equal(o.r.exit_code, 3);
    assert_int_equal(o.out.len, 65536);
    assert_true(o.err.len <= 65536);
    assert_int_equal(o.r.stdout_bytes, 200000000);
    assert_true(after.ru_maxrss - before.ru_maxrss < 4096);
    outcome_done(&o);
}

static void case_67_output_is_never_cut_inside_a_character(void **state)
{
    (void)state;
    static const char *const chars[] = {"a", "\303\244", "\342\202\254", "\360\237\245\255"};
    for (size_t c = 0; c < 4; c++) {
        for (uint64_t cap = 1; cap < 14; cap++) {
            char script[128];
            snprintf(script, sizeof(script), "for i in 1 2 3 4 5 6; do printf '%s'; done", chars[c]);
            struct outcome o = box_run(script, (struct how){.max_output = cap});
            assert_int_equal(o.status, MANGO_OK);
            assert_true(o.out.len <= cap);
            assert_true(mg_utf8_valid(mg_buf_view(&o.out), NULL));
            outcome_done(&o);
        }
    }
    struct outcome o = box_run("printf '\\377\\342\\202'", (struct how){0}); /* what is not UTF-8 comes as it is */
    assert_int_equal(o.out.len, 3);
    outcome_done(&o);
}

static void case_69_only_the_documented_environment_and_descriptors(void **state)
{
    (void)state;
    setenv("MANGO_DATABASE_URL", "canary-4717.25", 1);
    setenv("SOME_SECRET", "canary-4717.25", 1);
    int leak = open("/dev/null", O_RDONLY); /* without CLOEXEC, as a library might */
    assert_true(leak >= 0);
    assert_int_equal(box_destroy(), MANGO_OK);
    box_close(&the_box);
    assert_int_equal(box_up(NULL), 0); /* so that the runner is started now */
    struct outcome o = box_run("env | sort | cut -d= -f1", (struct how){0});
    outcome_is(&o, "HOME\nLANG\nPATH\nPWD\nTERM\nTMPDIR\n");
    outcome_done(&o);
    o = box_run("{ env; set; cat /proc/self/environ /proc/$PPID/environ; tr '\\0' ' ' </proc/$PPID/cmdline; } 2>&1",
                (struct how){0});
    assert_null(memmem(o.out.ptr, o.out.len, "canary", 6));
    outcome_done(&o);
    o = box_run_argv((const char *const[]){"ls", "/proc/self/fd", NULL}, (struct how){0});
    outcome_is(&o, "0\n1\n2\n3\n"); /* 3 is the folder that ls reads */
    outcome_done(&o);
    close(leak);
    unsetenv("MANGO_DATABASE_URL");
    unsetenv("SOME_SECRET");
}

static void case_55_stdin_is_at_its_end(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "cat",   "read x; echo got:$x", "cat <<E\nhi\nE\n", "cat <<E\nhi", "echo 'unbalanced", "echo a\\", "echo a #",
        "true &"};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct outcome o = box_run(scripts[i], (struct how){0});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.exited && o.ms < QUICK_MS);
        outcome_done(&o);
    }
}

static void case_56_large_arguments_run_or_are_refused_by_name(void **state)
{
    (void)state;
    char *big = malloc(140001);
    memset(big, 'x', 140000);
    big[140000] = '\0';
    struct outcome o = box_run_argv((const char *const[]){"/bin/echo", big, NULL}, (struct how){0});
    assert_int_equal(o.status, MANGO_ETOOBIG);
    assert_non_null(strstr(o.error.text, "131071"));
    outcome_done(&o);
    big[100000] = '\0'; /* more than one datagram holds */
    o = box_run_argv((const char *const[]){"/bin/echo", "-n", big, big, NULL}, (struct how){0});
    assert_int_equal(o.out.len, 200001);
    outcome_done(&o);
    /* content of any size goes through stdin */
    o = box_run("wc -c", (struct how){.in = big, .in_len = 100000});
    outcome_is(&o, "100000\n");
    outcome_done(&o);
    free(big);
}

static void *many_execs(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10; i++) {
        struct outcome o = box_run("echo $$; exit 5", (struct how){0});
        if (o.status != MANGO_OK || o.r.exit_code != 5 || o.out.len < 2)
            return (void *)1;
        outcome_done(&o);
    }
    return NULL;
}

static void thirty_two_commands_run_at_a_time(void **state)
{
    (void)state;
    pthread_t t[32];
    for (int i = 0; i < 32; i++)
        pthread_create(&t[i], NULL, many_execs, NULL);
    for (int i = 0; i < 32; i++) {
        void *bad = NULL;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX_TEST(case_58_exit_codes_and_signals_are_told_apart),
        BOX_TEST(a_command_that_does_not_exist_is_a_result),
        BOX_TEST(both_streams_stdin_cwd_and_variables_arrive),
        BOX_TEST(a_large_binary_stdin_arrives_while_output_is_produced),
        BOX_TEST(case_66_a_flood_is_drained_and_the_status_is_the_commands),
        BOX_TEST(case_67_output_is_never_cut_inside_a_character),
        BOX_TEST(case_69_only_the_documented_environment_and_descriptors),
        BOX_TEST(case_55_stdin_is_at_its_end),
        BOX_TEST(case_56_large_arguments_run_or_are_refused_by_name),
        BOX_TEST(thirty_two_commands_run_at_a_time),
    };
    return cmocka_run_group_tests(tests, local_group_up, local_group_down);
}
