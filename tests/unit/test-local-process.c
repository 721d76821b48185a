/* The processes of commands and shells of the backend `local`: what is killed, what may go on, what is told. Field cases 54, 61, 64
 * and 65. */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "support/local-rig.h"

static void case_54_a_timeout_kills_everything(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "while :; do :; done # mark4713.25",
        "sleep 4713.25 | sleep 4713.25",
        "trap '' TERM INT HUP; sleep 4713.25; sleep 4713.25",
        "setsid sh -c 'sleep 4713.25 & sleep 4713.25' & sleep 4713.25",
        "(setsid setsid sh -c '(sleep 4713.25 &) ; sleep 4713.25' &) ; sleep 4713.25",
    };
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct outcome o = box_run(scripts[i], (struct how){.limit_ms = 150});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.timed_out && !o.r.exited && !o.r.unknown);
        assert_true(o.ms < QUICK_MS);
        assert_int_equal(marked_count("4713.25"), 0);
        outcome_done(&o);
        box_says("echo next", "next\n");
    }
}

static void *firer(void *arg)
{
    usleep(100000); /* the command must be running; nothing is asserted about the time */
    mg_cancel_fire(arg);
    return NULL;
}

static void a_cancel_ends_the_command_within_a_second(void **state)
{
    (void)state;
    pthread_t t;
    struct mg_cancel *c = mg_cancel_new();
    pthread_create(&t, NULL, firer, c);
    struct outcome o = box_run("sh -c 'sleep 4714.25 | sleep 4714.25' & sleep 4714.25", (struct how){.cancel = c});
    pthread_join(t, NULL);
    assert_int_equal(o.status, MANGO_ECANCELED);
    assert_true(o.r.cancelled && o.ms < QUICK_MS);
    assert_int_equal(marked_count("4714.25"), 0);
    outcome_done(&o);
    o = box_run("touch started", (struct how){.cancel = c}); /* fired before the start */
    assert_int_equal(o.status, MANGO_ECANCELED);
    outcome_done(&o);
    assert_int_equal(box_try_read("started"), MANGO_ENOENT);
    mg_cancel_unref(c);
    box_says("echo next", "next\n");
}

static void case_64_a_background_child_does_not_delay_the_result(void **state)
{
    (void)state;
    static const char *const scripts[] = {
        "sleep 4715.25 & echo done",
        "sleep 4715.25 >/dev/null & echo done",
        "nohup sleep 4715.25 >/dev/null 2>&1 & echo done",
    };
    for (size_t i = 0; i < 3; i++) {
        struct outcome o = box_run(scripts[i], (struct how){0});
        outcome_is(&o, "done\n");
        assert_true(o.r.exited && o.r.exit_code == 0 && o.ms < QUICK_MS);
        outcome_done(&o);
    }
    assert_true(marked_becomes("4715.25", 3)); /* forked; to exec they may need a moment */
    box_says("echo still", "still\n");
    assert_int_equal(box_destroy(), MANGO_OK);
    assert_true(marked_becomes("4715.25", 0));
}

static void a_background_child_can_go_on_writing(void **state)
{
    (void)state;
    /* far more than a pipe holds, after the result was taken: neither SIGPIPE nor a full pipe */
    struct outcome o = box_run("(trap 'echo pipe >broken' PIPE; sleep 0.2; seq 100000 && touch finished) & echo done",
                               (struct how){0});
    outcome_is(&o, "done\n");
    outcome_done(&o);
    struct how how = {0};
    o = box_run("for i in $(seq 100); do test -e finished -o -e broken && break; sleep 0.05; done; ls finished broken "
                "2>/dev/null",
                how);
    outcome_is(&o, "finished\n");
    outcome_done(&o);
}

static void case_65_each_call_has_exactly_one_result(void **state)
{
    (void)state;
    struct outcome o = box_run("setsid sleep 4716.25 & echo OK", (struct how){0});
    outcome_is(&o, "OK\n");
    assert_true(o.ms < QUICK_MS);
    outcome_done(&o);
    static const char *const scripts[] = {"setsid -w sleep 4716.25", "exec 0<&- 1>&- 2>&-; sleep 4716.25",
                                          "script -qc 'sleep 4716.25' /dev/null 2>/dev/null || sleep 4716.25"};
    for (size_t i = 0; i < 3; i++) {
        o = box_run(scripts[i], (struct how){.limit_ms = 200});
        assert_int_equal(o.status, MANGO_OK);
        assert_true(o.r.timed_out && o.ms < QUICK_MS);
        outcome_done(&o);
    }
    assert_true(marked_becomes("4716.25", 1)); /* the one that was let go on */
}

static void case_61_orphans_are_reaped(void **state)
{
    (void)state;
    box_says(
        "i=0; while [ $i -lt 2000 ]; do (true &); i=$((i+1)); done; sleep 0.2; "
        "n=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v p=$PPID '$4==p && $3==\"Z\"' | wc -l); [ $n -lt 10 ] && echo "
        "few",
        "few\n");
}

static void a_killed_runner_is_replaced_and_its_children_do_not_survive(void **state)
{
    (void)state;
    box_says("sleep 4718.25 & echo ok", "ok\n");
    /* the reaper, then the runner: what they kept must go, the next command must run */
    struct outcome o = box_run("kill -9 $PPID; sleep 4718.25", (struct how){.limit_ms = 3000});
    assert_int_equal(o.status, MANGO_OK);
    assert_true(o.r.unknown);
    outcome_done(&o);
    assert_true(marked_becomes("4718.25", 1));
    o = box_run("r=$(awk '{print $4}' /proc/$PPID/stat); kill -9 $r; sleep 4718.25", (struct how){.limit_ms = 3000});
    outcome_done(&o);
    box_says("echo again", "again\n");
    assert_true(marked_becomes("4718.25", 0));
}

static void a_command_whose_time_is_over_never_starts_late(void **state)
{
    (void)state;
    char stop[64];
    struct outcome o =
        box_run("awk '{print $4}' /proc/$PPID/stat", (struct how){0}); /* the runner is the reaper's parent */
    long runner = strtol(o.out.ptr, NULL, 10);
    outcome_done(&o);
    assert_true(runner > 1);
    assert_int_equal(kill((pid_t)runner, SIGSTOP), 0);
    o = box_run("touch late", (struct how){.limit_ms = 100});
    assert_true(o.status == MANGO_OK && o.r.timed_out);
    outcome_done(&o);
    assert_int_equal(kill((pid_t)runner, SIGCONT), 0);
    box_says("echo behind it", "behind it\n");
    assert_int_equal(box_try_read("late"), MANGO_ENOENT);
    snprintf(stop, sizeof(stop), "kill -STOP %ld", runner);
    (void)plugin_sh("%s", stop);
    assert_int_equal(box_destroy(), MANGO_OK); /* a stopped runner does not hold up the end */
}

static mango_proc open_shell(void)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_sv argv[] = {text_sv("/bin/sh")};
    struct mango_exec_req req = {.struct_size = sizeof(req), .argv = argv, .n_argv = 1};
    mango_proc p = 0;
    assert_int_equal(local_plugin->sandbox->proc_open(local_plugin->ctx, &call, box_id(), &req, &p), MANGO_OK);
    return p;
}

static void tell(mango_proc p, const char *text)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS_NS, NULL, &err);
    assert_int_equal(local_plugin->sandbox->proc_write(local_plugin->ctx, &call, p, text_sv(text)), MANGO_OK);
}

/* Reads until the text has come (true) or the process has ended. */
static bool hear(mango_proc p, const char *text, struct mango_exec_result *r)
{
    struct outcome o = {.out = MG_BUF_INIT(OUT_MAX), .err = MG_BUF_INIT(OUT_MAX)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + 5000 * MS_NS, NULL, &o.error);
    int32_t closed = 0;
    bool found = false;
    while (!closed && !found) {
        assert_int_equal(local_plugin->sandbox->proc_read(local_plugin->ctx, &call, p, outcome_collect, &o, &closed, r),
                         MANGO_OK);
        found = text && o.out.len && strstr(o.out.ptr, text);
    }
    outcome_done(&o);
    return found;
}

static void close_shell(mango_proc p)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    assert_int_equal(local_plugin->sandbox->proc_close(local_plugin->ctx, &call, p), MANGO_OK);
}

static void a_shell_keeps_its_folder_and_its_children_until_it_is_closed(void **state)
{
    (void)state;
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    mango_proc p = open_shell();
    tell(p, "mkdir d; cd d; X=5\n");
    tell(p, "echo $X in ${PWD##*/}\n");
    assert_true(hear(p, "5 in d\n", &r));
    tell(p, "setsid sleep 4719.25 & setsid sh -c 'sleep 4719.25' & echo started\n");
    assert_true(hear(p, "started\n", &r));
    box_says("echo beside", "beside\n");
    close_shell(p);
    assert_int_equal(marked_count("4719.25"), 0);
}

static void the_end_of_a_shell_is_seen_though_a_child_holds_its_pipes(void **state)
{
    (void)state;
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    mango_proc p = open_shell();
    tell(p, "sleep 4720.25 & exit 9\n");
    assert_false(hear(p, NULL, &r));
    assert_true(r.exited);
    assert_int_equal(r.exit_code, 9);
    struct mg_err err;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 1000 * MS_NS, NULL, &err);
    /* writing to what has gone is an error and no SIGPIPE */
    mango_status s = MANGO_OK;
    for (uint64_t end = mg_now_ns() + 3000 * MS_NS; s == MANGO_OK && mg_now_ns() < end;)
        s = local_plugin->sandbox->proc_write(local_plugin->ctx, &call, p, text_sv("x\n"));
    assert_true(s < 0);
    close_shell(p);
    assert_int_equal(marked_count("4720.25"), 0);
}

static void reading_a_silent_process_ends_at_the_deadline(void **state)
{
    (void)state;
    struct outcome o = {.out = MG_BUF_INIT(1024), .err = MG_BUF_INIT(1024)};
    mango_proc p = open_shell();
    int32_t closed = 0;
    struct mango_call call = mg_plugin_call(mg_now_ns() + 50 * MS_NS, NULL, &o.error);
    assert_int_equal(local_plugin->sandbox->proc_read(local_plugin->ctx, &call, p, outcome_collect, &o, &closed, &o.r),
                     MANGO_ETIMEOUT);
    struct mg_cancel *c = mg_cancel_new();
    mg_cancel_fire(c);
    call = mg_plugin_call(0, c, &o.error);
    assert_int_equal(local_plugin->sandbox->proc_read(local_plugin->ctx, &call, p, outcome_collect, &o, &closed, &o.r),
                     MANGO_ECANCELED);
    mg_cancel_unref(c);
    assert_int_equal(box_destroy(), MANGO_OK); /* under an open process */
    call = mg_plugin_call(mg_now_ns() + 5000 * MS_NS, NULL, &o.error);
    assert_int_equal(local_plugin->sandbox->proc_read(local_plugin->ctx, &call, p, outcome_collect, &o, &closed, &o.r),
                     MANGO_OK);
    assert_true(closed && o.r.unknown);
    close_shell(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX_TEST(case_54_a_timeout_kills_everything),
        BOX_TEST(a_cancel_ends_the_command_within_a_second),
        BOX_TEST(case_64_a_background_child_does_not_delay_the_result),
        BOX_TEST(a_background_child_can_go_on_writing),
        BOX_TEST(case_65_each_call_has_exactly_one_result),
        BOX_TEST(case_61_orphans_are_reaped),
        BOX_TEST(a_killed_runner_is_replaced_and_its_children_do_not_survive),
        BOX_TEST(a_command_whose_time_is_over_never_starts_late),
        BOX_TEST(a_shell_keeps_its_folder_and_its_children_until_it_is_closed),
        BOX_TEST(the_end_of_a_shell_is_seen_though_a_child_holds_its_pipes),
        BOX_TEST(reading_a_silent_process_ends_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, local_group_up, local_group_down);
}
