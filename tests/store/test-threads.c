/* The rows of child threads: what a step loads and saves of them, who takes them over, and that they keep what a turn keeps. */
#include <stdio.h>

#include "store/session-state.h"
#include "store/thread-state.h"
#include "store/tool-call.h"
#include "support/pgtest-rig.h"
#include "unit/unit.h"

static const struct mg_id node = {.s = "node_1"}, stranger = {.s = "node_2"};

static struct mg_id id_of(const char *s)
{
    struct mg_id id = {0};
    assert_true(mg_id_from(mg_sv_of(s), &id));
    return id;
}

static int setup(void **state)
{
    (void)state;
    return pgtest_up(
        "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', "
        "'wrkspc_default', 'e', 'cloud', '{}');"
        "INSERT INTO nodes (id, host, version, lease_until) VALUES ('node_1', 'h', 'v', now() + interval '1 "
        "hour')");
}

static void session_make(const char *id)
{
    char sql[1024];
    snprintf(sql, sizeof(sql),
             "INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, "
             "env_config) VALUES ('%s', 'wrkspc_default', 'agent_1', 1, '{}', 'env_1', 'cloud', '{}'); INSERT INTO "
             "session_state (session_id, roster, agent_name) VALUES ('%s', true, 'lead')",
             id, id);
    pgtest_run(db, sql);
}

static struct mg_thread_state child_of(const char *session, const char *thread, int64_t ordinal)
{
    struct mg_thread_state x = {.ordinal = ordinal, .agent_name = MG_SV("worker")};
    x.st.session = id_of(session);
    x.st.thread = id_of(thread);
    return x;
}

static void child_make(const struct mg_thread_state *x)
{
    struct mg_err err = {0};
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    assert_int_equal(mg_thread_insert(arena, &t, x, MG_SV("{\"name\":\"worker\"}"), &err), MG_OK);
    assert_int_equal(mg_thread_save(arena, &t, x, &err), MG_OK);
    assert_int_equal(mg_txn_commit(&t, &err), MG_OK);
}

static struct mg_thread_state *load(const char *session, int *ret_n, int64_t *ret_next)
{
    struct mg_err err = {0};
    struct mg_session_state st;
    struct mg_thread_state *all = NULL;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    assert_int_equal(mg_session_lock(&t, mg_sv_of(session), MG_SV(""), &st, &err), MG_OK);
    assert_true(st.roster);
    assert_int_equal(mg_threads_load(arena, &t, &st, &all, ret_n, ret_next, &err), MG_OK);
    return all;
}

static void a_session_without_children_has_its_primary_thread(void **state)
{
    (void)state;
    int n;
    int64_t next;
    session_make("sesn_alone");
    const struct mg_thread_state *all = load("sesn_alone", &n, &next);
    assert_int_equal(n, 1);
    assert_int_equal(next, 1);
    assert_sv_equal(all[0].agent_name, "lead");
    assert_string_equal(all[0].st.thread.s, "");
}

static void what_is_saved_of_a_turn_is_loaded(void **state)
{
    (void)state;
    int n;
    int64_t next;
    session_make("sesn_saved");
    struct mg_thread_state x = child_of("sesn_saved", "sthr_saved", 1);
    x.stop_reason = MG_SV("end_turn");
    x.st.transcript_len = 3;
    x.st.queued_inputs = 2;
    x.st.open_actions = 1;
    x.st.turn_epoch = 7;
    x.st.turn_step = MG_TURN_MODEL;
    x.st.turn_trigger = 11;
    x.st.turn_upto = 12;
    x.st.turn_round = 4;
    x.st.turn_attempt = 1;
    x.st.turn_continues = 2;
    x.st.request_id = id_of("sevt_request");
    child_make(&x);
    const struct mg_thread_state *all = load("sesn_saved", &n, &next);
    assert_int_equal(n, 2);
    assert_int_equal(next, 2);
    const struct mg_session_state *got = &all[1].st;
    assert_string_equal(got->thread.s, "sthr_saved");
    assert_sv_equal(all[1].agent_name, "worker");
    assert_sv_equal(all[1].stop_reason, "end_turn");
    assert_int_equal(got->transcript_len, 3);
    assert_int_equal(got->queued_inputs, 2);
    assert_int_equal(got->open_actions, 1);
    assert_int_equal(got->turn_epoch, 7);
    assert_int_equal(got->turn_step, MG_TURN_MODEL);
    assert_int_equal(got->turn_trigger, 11);
    assert_int_equal(got->turn_upto, 12);
    assert_int_equal(got->turn_round, 4);
    assert_int_equal(got->turn_attempt, 1);
    assert_int_equal(got->turn_continues, 2);
    assert_string_equal(got->request_id.s, "sevt_request");
}

static void one_that_has_ended_is_not_loaded_and_keeps_its_number(void **state)
{
    (void)state;
    int n;
    int64_t next;
    session_make("sesn_ended");
    struct mg_thread_state x = child_of("sesn_ended", "sthr_ended", 1);
    x.ended = x.archived = true;
    child_make(&x);
    load("sesn_ended", &n, &next);
    assert_int_equal(n, 1);
    assert_int_equal(next, 2);
    bool known = false;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    const struct mg_id session = id_of("sesn_ended");
    assert_int_equal(mg_thread_known(&t, &session, MG_SV("sthr_ended"), &known, NULL), MG_OK);
    assert_true(known);
    assert_int_equal(mg_thread_known(&t, &session, MG_SV("sthr_other"), &known, NULL), MG_OK);
    assert_false(known);
}

static const struct mg_session_state *find(const struct mg_session_state *all, int n, const char *session,
                                           const char *thread)
{
    for (int i = 0; i < n; i++)
        if (strcmp(all[i].session.s, session) == 0 && strcmp(all[i].thread.s, thread) == 0)
            return &all[i];
    return NULL;
}

/* The primary thread is idle: its running child alone makes the session one to be taken over. */
static void a_dead_nodes_session_is_taken_with_its_running_threads(void **state)
{
    (void)state;
    struct mg_session_state *got;
    struct mg_err err = {0};
    int n;
    session_make("sesn_dead");
    struct mg_thread_state runs = child_of("sesn_dead", "sthr_runs", 1), rests = child_of("sesn_dead", "sthr_rests", 2);
    runs.st.turn_step = MG_TURN_TOOLS;
    runs.st.turn_epoch = 3;
    child_make(&runs);
    child_make(&rests);
    pgtest_run(db, "UPDATE session_state SET busy_threads = 1, turn_node = 'node_gone' WHERE session_id = 'sesn_dead'");
    assert_int_equal(mg_turn_claim_dead(arena, pg, &node, 100, &got, &n, &err), MG_OK);
    const struct mg_session_state *child = find(got, n, "sesn_dead", "sthr_runs");
    assert_non_null(child);
    assert_int_equal(child->turn_epoch, 4);
    assert_int_equal(child->turn_step, MG_TURN_TOOLS);
    assert_true(child->roster);
    assert_null(find(got, n, "sesn_dead", "sthr_rests"));
    assert_null(find(got, n, "sesn_dead", ""));
    assert_int_equal(mg_turn_claim_dead(arena, pg, &stranger, 100, &got, &n, &err), MG_OK);
    assert_null(find(got, n, "sesn_dead", "sthr_runs"));

    assert_int_equal(mg_turns_own(arena, pg, &node, MG_SV(""), &got, &n, &err), MG_OK);
    assert_non_null(find(got, n, "sesn_dead", "sthr_runs"));
    assert_int_equal(mg_turns_own(arena, pg, &stranger, MG_SV(""), &got, &n, &err), MG_OK);
    assert_null(find(got, n, "sesn_dead", "sthr_runs"));

    assert_int_equal(mg_turn_release(pg, &node, &err), MG_OK);
    assert_int_equal(mg_turn_claim_dead(arena, pg, &node, 100, &got, &n, &err), MG_OK);
    child = find(got, n, "sesn_dead", "sthr_runs");
    assert_non_null(child);
    assert_int_equal(child->turn_epoch, 6); /* the release has fenced it too */
}

/* A claim that another node made on this one's behalf: the primary thread of a session whose child runs here. */
static void a_node_finds_what_was_claimed_for_it(void **state)
{
    (void)state;
    struct mg_session_state *got;
    int n;
    session_make("sesn_claimed");
    struct mg_thread_state x = child_of("sesn_claimed", "sthr_claimed", 1);
    x.st.turn_step = MG_TURN_MODEL;
    child_make(&x);
    pgtest_run(db,
               "UPDATE session_state SET busy_threads = 1, turn_node = 'node_1', turn_step = 'model', turn_epoch = 5 "
               "WHERE session_id = 'sesn_claimed'");
    assert_int_equal(mg_turns_own(arena, pg, &node, MG_SV("sesn_claimed"), &got, &n, NULL), MG_OK);
    assert_int_equal(n, 2);
    const struct mg_session_state *primary = find(got, n, "sesn_claimed", "");
    assert_non_null(primary);
    assert_int_equal(primary->turn_epoch, 5);
    assert_string_equal(primary->turn_node.s, node.s);
}

/* A column of the turn that only session_state had would be forgotten by every child. */
static void a_thread_keeps_all_that_a_turn_keeps(void **state)
{
    (void)state;
    static const struct mg_stmt missing = {
        "turn_columns",
        "SELECT coalesce(string_agg(column_name, ' '), '') FROM information_schema.columns c WHERE table_name = "
        "'session_state' AND column_name LIKE 'turn\\_%' AND column_name <> 'turn_node' AND NOT EXISTS (SELECT FROM "
        "information_schema.columns t WHERE t.table_name = 'thread_state' AND t.column_name = c.column_name)"};
    mg_auto(res) struct mg_res *r = NULL;
    assert_int_equal(mg_pg_exec(pg, &missing, NULL, 0, &r, NULL), MG_OK);
    assert_sv_equal(mg_res_sv(r, 0, 0), "");
}

static void the_waiting_calls_of_all_threads_are_known_by_their_public_ids(void **state)
{
    (void)state;
    struct mg_sv *ids;
    int n;
    session_make("sesn_calls");
    pgtest_run(db, "INSERT INTO tool_calls (session_id, event_id, ordinal, round, kind, name, model_id, input, state, "
                   "waits_for, epoch, thread_id, public_id) VALUES"
                   " ('sesn_calls', 'sevt_own', 0, 1, 'custom', 't', 'm', '{}', 'prepared', 'result', 1, '', NULL),"
                   " ('sesn_calls', 'sevt_child', 0, 1, 'custom', 't', 'm', '{}', 'prepared', 'result', 1, 'sthr_c', "
                   "'sevt_shown'),"
                   " ('sesn_calls', 'sevt_done', 1, 1, 'custom', 't', 'm', '{}', 'completed', 'none', 1, '', NULL)");
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    const struct mg_id session = id_of("sesn_calls"), thread = id_of("sthr_c");
    assert_int_equal(mg_calls_waiting(arena, &t, &session, NULL, &ids, &n, NULL), MG_OK);
    assert_int_equal(n, 2);
    assert_int_equal(mg_calls_waiting(arena, &t, &session, &thread, &ids, &n, NULL), MG_OK);
    assert_int_equal(n, 1);
    assert_sv_equal(ids[0], "sevt_shown");
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_tool_call c;
    assert_int_equal(mg_call_by_event(arena, &t, &session, MG_SV("sevt_shown"), &r, &c, NULL), MG_OK);
    assert_string_equal(c.event_id.s, "sevt_child");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_without_children_has_its_primary_thread),
        cmocka_unit_test(what_is_saved_of_a_turn_is_loaded),
        cmocka_unit_test(one_that_has_ended_is_not_loaded_and_keeps_its_number),
        cmocka_unit_test(a_dead_nodes_session_is_taken_with_its_running_threads),
        cmocka_unit_test(a_node_finds_what_was_claimed_for_it),
        cmocka_unit_test(a_thread_keeps_all_that_a_turn_keeps),
        cmocka_unit_test(the_waiting_calls_of_all_threads_are_known_by_their_public_ids),
    };
    return cmocka_run_group_tests(tests, setup, pgtest_down);
}
