/* The ends of sandboxes: losers of a race, specifications that changed, deletions that wait, orphans. Field cases 52 and 53. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "sandbox/orphans.h"
#include "support/sandbox-rig.h"
#include "unit/unit.h"

enum {
    RACERS = 4,
    MANY = 250, /* sessions in deletion: more than two batches of a scan */
};

static int ends_up(void **state)
{
    int rc = rig_group_up(state);
    return rc == 0 && plugin_build_liar(rig_plugins) ? 0 : -1;
}

/* ---- create ---- */

static void the_losers_of_a_race_are_destroyed(void **state)
{
    struct fixture *f = *state, other[RACERS];
    struct rig_racer r[RACERS];
    setenv("LIE_TWICE", "1", 1); /* each create makes a sandbox of its own */
    for (int i = 0; i < RACERS; i++) {
        other[i] = (struct fixture){.db = f->db, .name = "liar"};
        rig_open(&other[i]);
        r[i] = (struct rig_racer){.f = f, .m = other[i].m};
    }
    rig_race(r, RACERS);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes"), 1);
    assert_true(rig_folders_are(1));
    for (int i = 0; i < RACERS; i++) {
        mg_sandbox_release(r[i].got);
        rig_close(&other[i]);
    }
    unsetenv("LIE_TWICE");
}

static void a_changed_specification_is_never_mixed_in(void **state)
{
    struct fixture *f = *state;
    struct mg_sandbox *s = NULL;
    struct mg_err err = {0};
    char sql[512];
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO sandbox_intents (session_id, provider, label, spec, spec_hash, last_try) VALUES ('%s', 'local', "
        "'x', '{\"image\":\"older\",\"network\":{\"mode\":\"open\"}}', 'sha256:older', now())",
        f->session.s);
    pgtest_run(f->db, sql);
    assert_int_equal(rig_try_acquire(f, &s, &err), MG_EUNAVAIL);
    assert_non_null(strstr(err.text, "another specification"));
    assert_true(rig_folders_are(0));
    /* Whoever began it is dead: the reconciler ends it as it is stored, and then it is found. */
    pgtest_run(f->db, "UPDATE sandbox_intents SET last_try = now() - interval '1 hour', label = (SELECT label FROM "
                      "sandbox_intents)");
    mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandbox_intents"), 0);
    assert_int_equal(rig_count(f, "SELECT count(*) FROM sandboxes WHERE spec_hash = 'sha256:older'"), 1);
}

/* ---- deletion ---- */

static void note_gone(void *ctx, struct mg_sv session)
{
    (void)session;
    (*(int *)ctx)++;
}

static void case_53_many_that_fail_hold_back_no_other(void **state)
{
    struct fixture *f = *state;
    char sql[256];
    int gone = 0;
    mg_sandbox_release(rig_acquire(f));
    rig_mark_deleting(f);
    struct mg_id last = f->session;
    for (int i = 0; i < MANY; i++) {
        f->session = rig_session(f);
        snprintf(sql, sizeof(sql), "INSERT INTO sandboxes VALUES ('%s', 'elsewhere', 'x%d', 'l', 'h', 'g')",
                 f->session.s, i);
        pgtest_run(f->db, sql);
        rig_mark_deleting(f);
    }
    f->session = last;
    mg_sandboxes_reconcile(f->m, f->pg, note_gone, &gone);
    assert_int_equal(gone, 1);
    assert_true(rig_folders_are(0));
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(65536);
    mg_sandboxes_metrics(f->m, &out);
    assert_non_null(strstr(out.ptr, "mango_sessions_deleting 251\n"));
}

static void an_operator_ends_a_sandbox_and_the_session_says_so(void **state)
{
    struct fixture *f = *state, server = {.db = f->db, .pg = f->pg};
    struct mg_err err = {0};
    struct mg_file_stat st;
    struct mg_sandbox *s = rig_acquire(f);
    rig_put(s, "x", "y");
    rig_open(&server); /* the operator's process */
    assert_int_equal(mg_sandbox_end(server.m, f->pg, mg_id_sv(&f->session), &err), MG_OK);
    assert_true(rig_folders_are(0));
    mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL); /* the server finds out */
    assert_int_equal(mg_sandbox_ops(s)->stat(s, "x", &st, &err), MG_EGONE);
    mg_sandbox_release(s);
    s = NULL;
    assert_int_equal(rig_try_acquire(f, &s, &err), MG_EGONE);
    assert_string_equal(err.code, "workspace_lost");
    assert_true(rig_folders_are(0));
    rig_close(&server);
}

/* ---- orphans ---- */

/* A sandbox whose row the database has lost, and one of another deployment in the same place. */
static void make_orphans(struct fixture *f)
{
    struct fixture other = {.db = f->db, .pg = f->pg};
    mg_sandbox_release(rig_acquire(f));
    pgtest_run(f->db, "DELETE FROM sandboxes");
    rig_open(&other);
    mg_sandboxes_free(other.m);
    other.m = mg_sandboxes_new(&(struct mg_sandboxes_opts){
        .registry = other.registry, .backend = other.backend, .deployment_id = MG_SV("another")});
    other.session = rig_session(&other);
    mg_sandbox_release(rig_acquire(&other));
    rig_close(&other);
    pgtest_run(f->db, "DELETE FROM sandboxes"); /* of both */
    f->session = rig_session(f);
    mg_sandbox_release(rig_acquire(f)); /* one that is bound */
    assert_true(rig_folders_are(3));
}

static void case_52_an_orphan_goes_after_its_grace_and_no_other(void **state)
{
    struct fixture *f = *state;
    make_orphans(f);
    f->orphan_grace_ms = 60000;
    rig_restart(f);
    mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL);
    assert_true(rig_folders_are(3)); /* too young */
    f->orphan_grace_ms = 1;
    rig_restart(f);
    for (uint64_t end = mg_now_ns() + UINT64_C(20000000000); !rig_folders_are(2) && mg_now_ns() < end;)
        mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL);
    assert_true(rig_folders_are(2));
    mg_sandbox_release(rig_acquire(f)); /* the bound one is as it was */
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(65536);
    mg_sandboxes_metrics(f->m, &out);
    assert_non_null(strstr(out.ptr, "mango_sandbox_orphans 0\n"));
}

static void an_orphan_that_finds_an_owner_is_left_alone(void **state)
{
    struct fixture *f = *state;
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_orphan *o;
    struct mg_err err = {0};
    char owner[MG_LABEL_LEN];
    int n = 0;
    mg_sandbox_owner(MG_SV("dep1"), owner);
    mg_sandbox_release(rig_acquire(f));
    pgtest_run(f->db, "CREATE TABLE kept AS SELECT * FROM sandboxes; DELETE FROM sandboxes");
    assert_int_equal(mg_orphans_find(f->backend, f->pg, a, mg_sv_of(owner), &o, &n, &err), MG_OK);
    assert_int_equal(n, 1);
    pgtest_run(f->db, "INSERT INTO sandboxes SELECT * FROM kept");
    assert_int_equal(mg_orphan_destroy(f->backend, f->pg, &o[0], &err), MG_ECONFLICT);
    assert_true(rig_folders_are(1));
}

static void without_a_grace_time_orphans_stay(void **state)
{
    struct fixture *f = *state;
    make_orphans(f);
    mg_sandboxes_reconcile(f->m, f->pg, NULL, NULL);
    assert_true(rig_folders_are(3));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, rig_up, rig_down)

int main(void)
{
    if (pgtest_missing())
        return pgtest_missing();
    const struct CMUnitTest tests[] = {
        CASE(the_losers_of_a_race_are_destroyed),
        CASE(a_changed_specification_is_never_mixed_in),
        CASE(case_53_many_that_fail_hold_back_no_other),
        CASE(an_operator_ends_a_sandbox_and_the_session_says_so),
        CASE(case_52_an_orphan_goes_after_its_grace_and_no_other),
        CASE(an_orphan_that_finds_an_owner_is_left_alone),
        CASE(without_a_grace_time_orphans_stay),
    };
    return cmocka_run_group_tests(tests, ends_up, rig_group_down);
}
