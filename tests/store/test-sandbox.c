/* The sandbox manager over a real database and the backend `local`. Field cases 48, 50, 51, 53, 62. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/internal.h"
#include "sandbox/manager.h"
#include "support/sandbox-rig.h"
#include "unit/unit.h"

static bool collect(void *ctx, int stream, const char *p, size_t n)
{
    (void)stream;
    return mg_buf_append(ctx, p, n) == MG_OK;
}

static void label_is_what_the_design_says(void **state)
{
    (void)state;
    char label[MG_LABEL_LEN];
    mg_sandbox_label(MG_SV("dep1"), MG_SV("sesn_1"), label);
    assert_true(
        plugin_sh("test \"$(printf 'mango-sandbox-v1\\0dep1\\0sesn_1' | sha256sum | cut -c1-32)\" = %s", label));
}

static void spec_text_and_hash_never_change(void **state)
{
    (void)state;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_spec s;
    struct mg_err err = {0};
    const char *limited = "{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allowed_hosts\":[\"a.test\"]},"
                          "\"packages\":{\"pip\":[\"x\"],\"apt\":[\"jq\"]}}";
    assert_int_equal(mg_spec_from_config(a, mg_sv_of(limited), MG_SV("img"), &s, &err), MG_OK);
    assert_string_equal(s.text.ptr, "{\"image\":\"img\",\"network\":{\"mode\":\"limited\",\"hosts\":[\"a.test\"]},"
                                    "\"packages\":{\"apt\":[\"jq\"],\"pip\":[\"x\"]}}");
    assert_int_equal(s.network.n_hosts, 1);
    struct mg_spec again;
    assert_int_equal(mg_spec_from_text(a, s.text, &again, &err), MG_OK);
    assert_string_equal(again.hash.ptr, s.hash.ptr);
    assert_int_equal(mg_spec_from_config(a, mg_sv_of(rig_config), MG_SV(""), &s, &err), MG_OK);
    assert_string_equal(s.text.ptr, "{\"image\":\"\",\"network\":{\"mode\":\"open\"}}");
}

static void first_use_makes_and_binds_and_a_restart_finds_the_files(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "a/b.txt", "kept");
    struct mg_sandbox *same = rig_acquire(f);
    assert_ptr_equal(s, same);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 1);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandbox_intents"), 0);
    mg_sandbox_release(same);
    mg_sandbox_release(s);
    for (int i = 0; i < 3; i++) {
        rig_restart(f);
        s = rig_acquire(f);
        rig_holds(s, "a/b.txt", "kept");
        mg_sandbox_release(s);
    }
}

static void who_wants_an_existing_one_makes_none(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = NULL;
    struct mg_err err = {0};
    const struct mg_sv session = mg_id_sv(&f->session), config = mg_sv_of(rig_config);
    assert_int_equal(mg_sandbox_acquire_existing(f->m, f->pg, session, config, &s, &err), MG_ENOTFOUND);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 0);
    mg_sandbox_release(rig_acquire(f));
    assert_int_equal(mg_sandbox_acquire_existing(f->m, f->pg, session, config, &s, &err), MG_OK);
    mg_sandbox_release(s);
}

static void commands_run_through_the_table(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = rig_acquire(f);
    struct mg_err err = {0};
    struct mg_exec_status st;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
    const char *argv[] = {"/bin/sh", "-c", "cat; echo $V; exit 3", NULL}, *env[] = {"V=v", NULL};
    struct mg_exec_req req = {.argv = argv,
                              .env = env,
                              .stdin_data = MG_SV("in "),
                              .sink = collect,
                              .sink_ctx = &out,
                              .deadline_ns = mg_now_ns() + UINT64_C(10000000000)};
    assert_int_equal(mg_sandbox_ops(s)->exec(s, &req, &st, &err), MG_OK);
    assert_true(st.exited && st.exit_code == 3);
    assert_string_equal(out.ptr, "in v\n");
    struct mg_file_stat fs;
    rig_put(s, "f", "12345");
    assert_int_equal(mg_sandbox_ops(s)->stat(s, "f", &fs, &err), MG_OK);
    assert_int_equal(fs.size, 5);
    assert_int_equal(mg_sandbox_ops(s)->stat(s, "nothing", &fs, NULL), MG_ENOTFOUND);
    assert_string_equal(mg_sandbox_provider(s), "local");
    mg_sandbox_release(s);
}

static void lose(struct fixture *f, const char *command)
{
    struct mg_err err = {0};
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "work", "x");
    mg_sandbox_release(s);
    rig_restart(f);
    assert_true(plugin_sh("cd '%s'/session-* && %s", rig_base, command));
    for (int i = 0; i < 2; i++) { /* and it stays so */
        s = NULL;
        assert_int_equal(rig_try_acquire(f, &s, &err), MG_EGONE);
        assert_string_equal(err.code, "workspace_lost");
    }
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes WHERE lost_at IS NOT NULL"), 1);
}

static void case_48_a_workspace_that_is_gone_is_never_replaced(void **state)
{
    lose(*state, "rm -rf \"$PWD\"");
    assert_true(rig_folders_are(0));
}

static void case_48_an_older_state_is_noticed(void **state)
{
    struct fixture *f = *state;
    mg_sandbox_release(rig_acquire(f));
    assert_true(plugin_sh("cp -a '%s'/session-* '%s'/older", rig_base, rig_plugins));
    mg_sandbox_release(rig_acquire(f));
    lose(f, "rm -rf workspace && cp -a ../../older/workspace workspace");
    assert_true(plugin_sh("rm -rf '%s'/older", rig_plugins));
}

static void case_48_another_workspace_is_noticed(void **state)
{
    lose(*state, "echo 0000000000000000.9 >workspace/.mango-generation");
}

static void case_50_another_disk_under_the_same_name_is_noticed(void **state)
{
    lose(*state, "rm -rf workspace && mkdir -m 700 workspace && printf %032d 1 >identity");
}

static void a_command_that_removes_the_marker_loses_nothing(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "work", "x");
    mg_sandbox_release(s);
    assert_true(plugin_sh("rm '%s'/session-*/workspace/.mango-generation", rig_base));
    rig_restart(f);
    s = rig_acquire(f);
    rig_holds(s, "work", "x");
    mg_sandbox_release(s);
    rig_restart(f);
    mg_sandbox_release(rig_acquire(f));
}

static void a_crash_between_marker_and_row_is_no_loss(void **state)
{
    struct fixture *f = *state;
    mg_sandbox_release(rig_acquire(f));
    pgtest_run(f->db, "CREATE TABLE saved AS SELECT generation FROM sandboxes");
    mg_sandbox_release(rig_acquire(f));
    pgtest_run(f->db,
               "UPDATE sandboxes SET generation = (SELECT generation FROM saved)"); /* the workspace is one ahead */
    rig_restart(f);
    mg_sandbox_release(rig_acquire(f));
    rig_restart(f);
    mg_sandbox_release(rig_acquire(f));
}

static void case_51_an_intent_that_a_crash_left_is_settled(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "early", "x");
    mg_sandbox_release(s);
    /* as a crash between create and bind would have left it */
    pgtest_run(f->db,
               "INSERT INTO sandbox_intents (session_id, provider, label, spec, spec_hash, created_at, last_try)"
               " SELECT session_id, provider, label, '{\"image\":\"\",\"network\":{\"mode\":\"open\"}}', spec_hash,"
               " now() - interval '1 hour', now() - interval '1 hour' FROM sandboxes; DELETE FROM sandboxes");
    rig_restart(f);
    mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 1);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandbox_intents"), 0);
    assert_true(rig_folders_are(1));
    s = rig_acquire(f);
    rig_holds(s, "early", "x");
    mg_sandbox_release(s);
}

static void case_51_two_servers_make_one_sandbox(void **state)
{
    struct fixture *f = *state;
    struct fixture other = {.db = f->db};
    rig_open(&other);
    struct rig_racer r[4];
    for (int i = 0; i < 4; i++)
        r[i] = (struct rig_racer){.f = f, .m = i % 2 ? f->m : other.m};
    rig_race(r, 4);
    for (int i = 0; i < 4; i++)
        mg_sandbox_release(r[i].got);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 1);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandbox_intents"), 0);
    assert_true(rig_folders_are(1));
    rig_close(&other);
}

static void note_gone(void *ctx, struct mg_sv session)
{
    (void)session;
    (*(int *)ctx)++;
}

static void case_53_delete_ends_what_runs_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    struct mg_file_stat st;
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "x", "y");
    rig_mark_deleting(f);
    int gone = 0;
    mg_sandboxes_reconcile(f->m, f->pg, note_gone, &gone);
    assert_int_equal(gone, 1);
    assert_int_equal(mg_sandbox_ops(s)->stat(s, "x", &st, &err), MG_EGONE);
    mg_sandbox_release(s);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 0);
    assert_true(plugin_sh("test -z \"$(ls -A '%s')\"", rig_base));
    assert_int_equal(mg_sandbox_destroy(f->m, f->pg, mg_id_sv(&f->session), &err), MG_OK);
    s = NULL;
    assert_int_equal(rig_try_acquire(f, &s, &err), MG_ECONFLICT); /* nothing is made for it any more */
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandbox_intents"), 0);
}

static void case_53_a_failed_destroy_keeps_the_row_and_is_tried_again(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    mg_sandbox_release(rig_acquire(f));
    rig_mark_deleting(f);
    pgtest_run(f->db, "UPDATE sandboxes SET provider = 'elsewhere'"); /* a backend that is not installed now */
    assert_int_equal(mg_sandbox_destroy(f->m, f->pg, mg_id_sv(&f->session), &err), MG_ECONFLICT);
    assert_non_null(strstr(err.text, "elsewhere"));
    int gone = 0;
    mg_sandboxes_reconcile(f->m, f->pg, note_gone, &gone);
    assert_int_equal(gone, 0);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 1);
    pgtest_run(f->db, "UPDATE sandboxes SET provider = 'local'");
    rig_restart(f); /* also forgets the time of the next try */
    mg_sandboxes_reconcile(f->m, f->pg, note_gone, &gone);
    assert_int_equal(gone, 1);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 0);
}

static void case_62_two_sessions_never_share(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *a = rig_acquire(f);
    struct mg_id first = f->session;
    f->session = rig_session(f);
    struct mg_sandbox *b = rig_acquire(f);
    rig_put(a, "who", "a");
    rig_put(b, "who", "b");
    rig_holds(a, "who", "a");
    assert_string_not_equal(mg_sandbox_ops(a)->root(a), mg_sandbox_ops(b)->root(b));
    mg_sandbox_release(a);
    mg_sandbox_release(b);
    assert_int_equal(rig_count(f, "SELECT count(DISTINCT label) FROM sandboxes"), 2);
    f->session = first;
}

static void what_the_backend_cannot_do_is_refused_with_its_field(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    assert_int_equal(mg_sandbox_check(f->m, mg_sv_of(rig_config), &err), MG_OK);
    assert_int_equal(
        mg_sandbox_check(f->m, MG_SV("{\"networking\":{\"type\":\"limited\",\"allowed_hosts\":[]}}"), &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "config.networking"));
    assert_int_equal(mg_sandbox_check(f->m, MG_SV("{\"packages\":{\"pip\":[\"x\"]}}"), &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "config.packages"));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_up, rig_down)

int main(void)
{
    if (pgtest_missing())
        return pgtest_missing();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(label_is_what_the_design_says),
        cmocka_unit_test(spec_text_and_hash_never_change),
        CASE(first_use_makes_and_binds_and_a_restart_finds_the_files),
        CASE(who_wants_an_existing_one_makes_none),
        CASE(commands_run_through_the_table),
        CASE(case_48_a_workspace_that_is_gone_is_never_replaced),
        CASE(case_48_an_older_state_is_noticed),
        CASE(case_48_another_workspace_is_noticed),
        CASE(case_50_another_disk_under_the_same_name_is_noticed),
        CASE(a_command_that_removes_the_marker_loses_nothing),
        CASE(a_crash_between_marker_and_row_is_no_loss),
        CASE(case_51_an_intent_that_a_crash_left_is_settled),
        CASE(case_51_two_servers_make_one_sandbox),
        CASE(case_53_delete_ends_what_runs_and_leaves_nothing),
        CASE(case_53_a_failed_destroy_keeps_the_row_and_is_tried_again),
        CASE(case_62_two_sessions_never_share),
        CASE(what_the_backend_cannot_do_is_refused_with_its_field),
    };
    return cmocka_run_group_tests(tests, rig_group_up, rig_group_down);
}
