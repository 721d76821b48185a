/* Admission and the turn engine against a real database and the offline model: what a session's log, transcript and row say after each move. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "events/hub.h"
#include "events/notify.h"
#include "model/model.h"
#include "run/engine.h"
#include "run/step.h"
#include "service/admission.h"
#include "support/pgtest.h"
#include "unit/unit.h"

enum { WAIT_MS = 10000 /* for a turn of the offline model; far above what it takes */ };

struct fixture {
    struct mg_pgtest *db;
    struct mg_pg *pg;
    struct mg_hub *hub;
    struct mg_model *model;
    struct mg_engine *engine;
    struct mg_arena *arena;
    struct mg_principal who;
    struct mg_id session;
};

static void no_wakeup(void *ctx)
{
    (void)ctx;
}

static void no_load(void *ctx, const struct mg_id *session, int64_t after, int limit, size_t max_bytes, uint64_t token)
{
    (void)ctx, (void)session, (void)after, (void)limit, (void)max_bytes, (void)token;
}

static const char agent_json[] = "{\"id\":\"agent_1\",\"type\":\"agent\",\"version\":1,\"name\":\"a\",\"model\":{"
                                 "\"id\":\"offline\"},\"system\":null,\"tools\":["
                                 "{\"type\":\"agent_toolset_20260401\",\"default_config\":{\"enabled\":true,"
                                 "\"permission_policy\":{\"type\":\"%s\"}},\"configs\":[]}]}";

static struct mg_id session_make(struct fixture *f, const char *env_type, const char *policy)
{
    struct mg_id id = mg_id_new("sesn");
    char agent[1024], sql[4096];
    snprintf(agent, sizeof(agent), agent_json, policy);
    snprintf(sql, sizeof(sql),
             "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', "
             "'wrkspc_default', 'e', 'cloud', '{}') ON CONFLICT "
             "DO NOTHING; INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, "
             "env_type, env_config) VALUES ('%s', "
             "'wrkspc_default', 'agent_1', 1, '%s', 'env_1', '%s', '{}'); INSERT INTO session_state (session_id) "
             "VALUES ('%s')",
             id.s, agent, env_type, id.s);
    struct mg_err err = {0};
    if (mg_pg_script(f->pg, sql, &err) < 0)
        fail_msg("%s", err.text);
    return id;
}

static void engine_start(struct fixture *f)
{
    struct mg_err err = {0};
    const struct mg_engine_opts o = {
        .conninfo = pgtest_conninfo(f->db),
        .hub = f->hub,
        .model = f->model,
        .node = mg_id_new("node"),
        .threads = 2,
        .tool_threads = 4,
        .node_ttl_ms = 3000,
        .max_tokens = 1024,
    };
    if (mg_engine_start(&o, &f->engine, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct mg_err err = {0};
    f->db = pgtest_new();
    f->pg = mg_pg_new(pgtest_conninfo(f->db));
    f->hub = mg_hub_new(&(struct mg_hub_opts){.wakeup = no_wakeup, .load = no_load});
    f->arena = mg_arena_new();
    if (mg_model_open(&(struct mg_model_opts){0}, &f->model, &err) < 0)
        fail_msg("%s", err.text);
    (void)mg_id_from(MG_SV("wrkspc_default"), &f->who.workspace);
    engine_start(f);
    f->session = session_make(f, "self_hosted", "always_allow");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_engine_stop(f->engine);
    mg_engine_free(f->engine);
    mg_model_close(f->model);
    mg_hub_free(f->hub);
    mg_pg_free(f->pg);
    pgtest_free(f->db);
    mg_arena_free(f->arena);
    free(f);
    return 0;
}

/* ---- looking ---- */

static char *query(struct fixture *f, const char *sql)
{
    struct mg_stmt st = {.name = "", .sql = sql};
    struct mg_err err = {0};
    mg_auto(res) struct mg_res *r = NULL;
    char name[64];
    snprintf(name, sizeof(name), "t%p_%zu", (const void *)sql, strlen(sql));
    st.name = mg_arena_strdup(f->arena, mg_sv_of(name));
    struct mg_stmt *kept = mg_arena_new_of(f->arena, struct mg_stmt);
    *kept = (struct mg_stmt){.name = st.name, .sql = mg_arena_strdup(f->arena, mg_sv_of(sql))};
    if (mg_pg_exec(f->pg, kept, (const struct mg_sv[]){mg_id_sv(&f->session)}, 1, &r, &err) < 0)
        fail_msg("%s: %s", sql, err.text);
    return mg_arena_strdup(f->arena, mg_res_rows(r) ? mg_res_sv(r, 0, 0) : MG_SV(""));
}

static char *types(struct fixture *f)
{
    return query(f, "SELECT string_agg(type, ' ' ORDER BY seq) FROM events WHERE session_id = $1");
}

static char *status(struct fixture *f)
{
    return query(f, "SELECT status || ' ' || turn_step FROM session_state WHERE session_id = $1");
}

/* Waits until the row says so: the engine's own commits are the events that end the wait. */
static void wait_status(struct fixture *f, const char *want)
{
    uint64_t end = mg_now_ns() + (uint64_t)WAIT_MS * 1000000;
    while (strcmp(status(f), want) != 0) {
        if (mg_now_ns() > end)
            fail_msg("still \"%s\" instead of \"%s\": %s", status(f), want, types(f));
        poll(NULL, 0, 5);
    }
}

/* ---- sending ---- */

static mg_rc try_send(struct fixture *f, const char *events, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1024 * 1024);
    struct mg_json *v;
    struct mg_draft *drafts;
    int n;
    char *text = mg_arena_strdup(f->arena, mg_sv_of(events));
    mg_rc rc = mg_json_parse(f->arena, mg_sv_of(text), &mg_json_api_limits, &v, err);
    if (rc == MG_OK)
        rc = mg_drafts_parse(f->arena, v, "events", false, &drafts, &n, err);
    if (rc == MG_OK)
        rc = mg_admit(f->engine, f->pg, f->arena, &f->who, mg_id_sv(&f->session), drafts, n, &out, NULL, err);
    return rc;
}

static void send(struct fixture *f, const char *events)
{
    struct mg_err err = {0};
    if (try_send(f, events, &err) < 0)
        fail_msg("%s: %s", events, err.text);
}

static void send_result(struct fixture *f, const char *type, const char *call, const char *rest)
{
    char text[1024];
    snprintf(text, sizeof(text), "[{\"type\":\"%s\",\"tool_use_id\":\"%s\"%s}]", type, call, rest);
    send(f, text);
}

static const char message[] = "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}]";
static const char list_files[] =
    "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"run: echo hi\"}]}]";

static char *open_call(struct fixture *f)
{
    return query(f, "SELECT event_id FROM tool_calls WHERE session_id = $1 AND waits_for <> 'none' ORDER BY ordinal");
}

/* ---- tests ---- */

static void a_turn_without_tools_is_two_commits(void **state)
{
    struct fixture *f = *state;
    send(f, message);
    wait_status(f, "idle none");
    assert_string_equal(types(f), "user.message session.status_running span.model_request_start agent.message "
                                  "span.model_request_end session.status_idle");
    assert_string_equal(query(f, "SELECT count(DISTINCT xmin::text)::text FROM events WHERE session_id = $1"), "2");
    assert_string_equal(query(f, "SELECT string_agg(role, ' ' ORDER BY ordinal) FROM transcript WHERE session_id = $1"),
                        "user assistant");
    assert_string_equal(query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND processed_at IS NULL"),
                        "0");
    assert_string_equal(
        query(f, "SELECT (input_tokens > 0 AND output_tokens > 0)::text FROM session_state WHERE session_id = $1"),
        "true");
}

static void queued_messages_run_one_after_another_with_one_idle(void **state)
{
    struct fixture *f = *state;
    send(f, "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},"
            "{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"two\"}]}]");
    wait_status(f, "idle none");
    assert_string_equal(
        query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND type = 'session.status_idle'"), "1");
    assert_string_equal(query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND type = 'agent.message'"),
                        "2");
    assert_string_equal(query(f, "SELECT string_agg(role, ' ' ORDER BY ordinal) FROM transcript WHERE session_id = $1"),
                        "user assistant user assistant");
}

static void a_worker_s_call_opens_a_barrier_and_its_result_ends_it(void **state)
{
    struct fixture *f = *state;
    send(f, list_files);
    wait_status(f, "running action");
    char *call = open_call(f);
    send(f, message); /* waits behind the barrier */
    assert_string_equal(status(f), "running action");
    send_result(f, "user.tool_result", call, ",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]");
    wait_status(f, "idle none");
    assert_string_equal(query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND type = 'agent.message' "
                                 "AND seq > (SELECT seq FROM events "
                                 "WHERE session_id = $1 AND type = 'user.tool_result')"),
                        "2");
    assert_string_equal(query(f, "SELECT open_actions::text FROM session_state WHERE session_id = $1"), "0");
}

static void case_1_a_refused_tool_result_wedges_no_session(void **state)
{
    static const char *const rests[] = {
        ",\"content\":[{\"type\":\"text\",\"text\":\"\"}]",
        ",\"content\":[]",
        "",
        (",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_"
         "type\":\"image/png\",\"data\":"
         "\"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==\"}}]"),
    };
    struct fixture *f = *state;
    for (int i = 0; i < 4; i++) {
        f->session = session_make(f, "self_hosted", "always_allow");
        send(f, list_files);
        wait_status(f, "running action");
        send_result(f, "user.tool_result", open_call(f), rests[i]);
        wait_status(f, "idle none");
        const char *block = query(f, "SELECT content FROM transcript WHERE session_id = $1 AND ordinal = 3");
        assert_contains(block, "tool_result");
        assert_null(strstr(block, "\"text\":\"\""));
        if (i < 3)
            assert_contains(block, "(no output)");
    }
}

static void case_2_a_result_before_its_confirmation_is_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char text[512];
    f->session = session_make(f, "self_hosted", "always_ask");
    send(f, list_files);
    wait_status(f, "idle action");
    char *call = open_call(f);
    char *before = types(f);
    snprintf(text, sizeof(text), "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"%s\",\"content\":[]}]", call);
    assert_int_equal(try_send(f, text, &err), MG_EINVAL);
    assert_contains(err.text, "user.tool_confirmation");
    assert_contains(err.text, call);
    assert_string_equal(types(f), before);
    send_result(f, "user.tool_confirmation", call, ",\"result\":\"allow\"");
    assert_string_equal(status(f), "running action");
    send_result(f, "user.tool_result", call, ",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]");
    wait_status(f, "idle none");
}

static void a_denied_call_is_answered_by_the_server_and_takes_no_late_result(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char text[512];
    f->session = session_make(f, "self_hosted", "always_ask");
    send(f, list_files);
    wait_status(f, "idle action");
    char *call = open_call(f);
    send_result(f, "user.tool_confirmation", call, ",\"result\":\"deny\",\"deny_message\":\"not today\"");
    wait_status(f, "idle none");
    assert_contains(query(f, "SELECT body FROM events WHERE session_id = $1 AND type = 'agent.tool_result'"),
                    "not today");
    snprintf(text, sizeof(text), "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"%s\",\"content\":[]}]", call);
    assert_int_equal(try_send(f, text, &err), MG_EINVAL);
}

static void case_4_the_same_result_again_is_harmless_and_another_is_refused(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char text[512];
    send(f, list_files);
    wait_status(f, "running action");
    char *call = open_call(f);
    send_result(f, "user.tool_result", call, ",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}],\"is_error\":false");
    send_result(f, "user.tool_result", call, ",\"is_error\":false,\"content\":[{\"text\":\"hi\",\"type\":\"text\"}]");
    assert_string_equal(
        query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND type = 'user.tool_result'"), "1");
    snprintf(
        text, sizeof(text),
        "[{\"type\":\"user.tool_result\",\"tool_use_id\":\"%s\",\"content\":[{\"type\":\"text\",\"text\":\"no\"}]}]",
        call);
    assert_int_equal(try_send(f, text, &err), MG_ECONFLICT);
    wait_status(f, "idle none");
}

static void case_3_an_interrupt_answers_the_calls_it_kills(void **state)
{
    struct fixture *f = *state;
    send(f, list_files);
    wait_status(f, "running action");
    char *call = open_call(f);
    send(f, "[{\"type\":\"user.interrupt\"},{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"hello again\"}]}]");
    wait_status(f, "idle none");
    assert_contains(query(f, "SELECT body FROM events WHERE session_id = $1 AND type = 'user.tool_result'"), call);
    assert_string_equal(
        query(f, "SELECT count(*)::text FROM events WHERE session_id = $1 AND type = 'session.status_idle'"), "2");
    assert_string_equal(query(f, "SELECT string_agg(role, ' ' ORDER BY ordinal) FROM transcript WHERE session_id = $1"),
                        "user assistant user user assistant");
}

static void a_batch_with_one_bad_event_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    assert_int_equal(try_send(f,
                              "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]},"
                              "{\"type\":\"user.tool_result\",\"tool_use_id\":\"sevt_none\",\"content\":[]}]",
                              &err),
                     MG_EINVAL);
    assert_contains(err.text, "events[1]");
    assert_string_equal(types(f), "");
    assert_string_equal(status(f), "idle none");
}

static void a_cloud_call_without_a_sandbox_ends_the_turn_with_an_error(void **state)
{
    struct fixture *f = *state;
    f->session = session_make(f, "cloud", "always_allow");
    send(f, list_files);
    wait_status(f, "idle none");
    assert_contains(query(f, "SELECT body FROM events WHERE session_id = $1 AND type = 'session.error'"),
                    "MANGO_SANDBOX");
    assert_contains(query(f, "SELECT body FROM events WHERE session_id = $1 AND type = 'session.status_idle'"),
                    "retries_exhausted");
    send(f, message); /* the session stays usable */
    wait_status(f, "idle none");
}

static void a_step_that_can_never_succeed_ends_the_turn_with_an_error(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char sql[256];
    snprintf(sql, sizeof(sql), "UPDATE sessions SET agent = 'not json' WHERE id = '%s'", f->session.s);
    assert_int_equal(mg_pg_script(f->pg, sql, &err), MG_OK);
    send(f, message);
    wait_status(f, "idle none");
    assert_contains(query(f, "SELECT body FROM events WHERE session_id = $1 AND type = 'session.error'"), "exhausted");
    assert_string_equal(query(f, "SELECT string_agg(role, ' ' ORDER BY ordinal) FROM transcript WHERE session_id = $1"),
                        "user");
}

static void another_workspace_sees_no_such_session(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    f->who.workspace = mg_id_new("wrkspc");
    assert_int_equal(try_send(f, message, &err), MG_ENOTFOUND);
}

/* A dead node's turn: its row is there, nobody runs it. */
static void a_turn_of_a_dead_node_is_taken_over_at_its_step(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char sql[1024];
    snprintf(sql, sizeof(sql),
             "INSERT INTO events (session_id, seq, id, type, body) VALUES ('%s', 1, 'sevt_a', 'user.message', "
             "'{\"id\":\"sevt_a\",\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}'); "
             "UPDATE session_state SET status = "
             "'running', last_seq = 1, turn_epoch = 7, turn_node = 'node_dead', turn_step = 'model', turn_trigger = 1, "
             "turn_round = 1, turn_request_id = "
             "'sevt_b' WHERE session_id = '%s'",
             f->session.s, f->session.s);
    assert_int_equal(mg_pg_script(f->pg, sql, &err), MG_OK);
    wait_status(f, "idle none");
    assert_string_equal(query(f, "SELECT turn_epoch::text FROM session_state WHERE session_id = $1"), "8");
    assert_contains(types(f), "agent.message");
}

static void a_started_call_of_a_dead_node_is_ambiguous_and_not_run_again(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    f->session = session_make(f, "cloud", "always_allow");
    char sql[2048];
    snprintf(sql, sizeof(sql),
             "INSERT INTO transcript (session_id, ordinal, role, content) VALUES ('%s', 1, 'user', "
             "'[{\"type\":\"text\",\"text\":\"hello\"}]'), ('%s', 2, "
             "'assistant', '[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"bash\",\"input\":{\"command\":\"rm "
             "x\"}}]'); INSERT INTO tool_calls (session_id, "
             "event_id, ordinal, round, kind, name, model_id, input, state, epoch) VALUES ('%s', 'sevt_c', 0, 2, "
             "'builtin', 'bash', 't1', "
             "'{\"command\":\"rm x\"}', 'started', 3); UPDATE session_state SET status = 'running', transcript_len = "
             "2, turn_epoch = 3, turn_node = "
             "'node_dead', turn_step = 'tools', turn_round = 1 WHERE session_id = '%s'",
             f->session.s, f->session.s, f->session.s, f->session.s);
    assert_int_equal(mg_pg_script(f->pg, sql, &err), MG_OK);
    wait_status(f, "idle none");
    assert_string_equal(query(f, "SELECT state FROM tool_calls WHERE session_id = $1"), "ambiguous");
    assert_contains(query(f, "SELECT content FROM transcript WHERE session_id = $1 AND ordinal = 3"), "not run again");
}

static void a_late_write_of_an_old_epoch_is_fenced(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    mg_auto(step) struct mg_step s;
    assert_int_equal(mg_step_begin(&s, f->engine, f->pg, f->arena, mg_id_sv(&f->session), MG_SV(""), 41, &err),
                     MG_EFENCED);
}

static void a_clean_stop_hands_turns_on(void **state)
{
    struct fixture *f = *state;
    struct mg_err err = {0};
    char sql[512];
    snprintf(sql, sizeof(sql),
             "UPDATE session_state SET status = 'rescheduling', turn_epoch = 1, turn_node = '%s', turn_step = "
             "'backoff', turn_due_at = now() + interval '1 "
             "hour' WHERE session_id = '%s'",
             mg_engine_node(f->engine)->s, f->session.s);
    assert_int_equal(mg_pg_script(f->pg, sql, &err), MG_OK);
    mg_engine_stop(f->engine);
    mg_engine_free(f->engine);
    assert_string_equal(query(f, "SELECT coalesce(turn_node, 'none') FROM session_state WHERE session_id = $1"),
                        "none");
    engine_start(f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_turn_without_tools_is_two_commits),
        T(queued_messages_run_one_after_another_with_one_idle),
        T(a_worker_s_call_opens_a_barrier_and_its_result_ends_it),
        T(case_1_a_refused_tool_result_wedges_no_session),
        T(case_2_a_result_before_its_confirmation_is_refused_by_name),
        T(a_denied_call_is_answered_by_the_server_and_takes_no_late_result),
        T(case_4_the_same_result_again_is_harmless_and_another_is_refused),
        T(case_3_an_interrupt_answers_the_calls_it_kills),
        T(a_batch_with_one_bad_event_leaves_nothing),
        T(a_cloud_call_without_a_sandbox_ends_the_turn_with_an_error),
        T(a_step_that_can_never_succeed_ends_the_turn_with_an_error),
        T(another_workspace_sees_no_such_session),
        T(a_turn_of_a_dead_node_is_taken_over_at_its_step),
        T(a_started_call_of_a_dead_node_is_ambiguous_and_not_run_again),
        T(a_late_write_of_an_old_epoch_is_fenced),
        T(a_clean_stop_hands_turns_on),
    };
    int missing = pgtest_missing();
    return missing ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
