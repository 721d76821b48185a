/* What a worker's runner knows of a session: pure, events in, calls out. */
#include "unit.h"

#include "base/mem.h"
#include "worker/ledger.h"

enum { IDLE_MS = 60000 };
static const uint64_t MS = 1000000;

struct fixture {
    struct mg_ledger *l;
    struct mg_arena *a;
};

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->l = mg_ledger_new(IDLE_MS);
    f->a = mg_arena_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_ledger_free(f->l);
    mg_arena_free(f->a);
    free(f);
    return 0;
}

static struct mg_event event(struct fixture *f, const char *json)
{
    struct mg_json *v;
    struct mg_event e;
    struct mg_err err = {0};
    assert_int_equal(mg_json_parse(f->a, mg_sv_of(json), &mg_json_raw_limits, &v, &err), MG_OK);
    assert_true(mg_event_read(f->a, v, &e));
    return e;
}

static void list(struct fixture *f, const char *const *events, uint64_t now)
{
    mg_ledger_history_begin(f->l);
    for (; *events; events++) {
        struct mg_event e = event(f, *events);
        mg_ledger_history(f->l, &e);
    }
    mg_ledger_history_end(f->l, true, now);
}
#define LIST(f, now, ...) list(f, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL}, now)

static bool stream(struct fixture *f, const char *json, uint64_t now)
{
    struct mg_event e = event(f, json);
    return mg_ledger_stream(f->l, &e, now);
}

/* The next call must be that one; it ends so. */
static void runs(struct fixture *f, const char *id, enum mg_call_end how, uint64_t now)
{
    struct mg_call *c = mg_ledger_take(f->l, now);
    assert_non_null(c);
    assert_string_equal(c->id, id);
    mg_ledger_end(f->l, c, how, now);
}

static void nothing_runs(struct fixture *f)
{
    assert_null(mg_ledger_take(f->l, 0));
}

#define CALL(id) "{\"type\":\"agent.tool_use\",\"id\":\"" id "\",\"name\":\"bash\",\"input\":{\"command\":\"x\"}}"
#define ASK(id) \
    "{\"type\":\"agent.tool_use\",\"id\":\"" id "\",\"name\":\"bash\",\"input\":{},\"evaluated_permission\":\"ask\"}"
#define CUSTOM(id) "{\"type\":\"agent.custom_tool_use\",\"id\":\"" id "\",\"name\":\"w\",\"input\":{}}"
#define RESULT(id) "{\"type\":\"user.tool_result\",\"id\":\"r\",\"tool_use_id\":\"" id "\"}"
#define CUSTOM_RESULT(id) "{\"type\":\"user.custom_tool_result\",\"id\":\"r\",\"custom_tool_use_id\":\"" id "\"}"
#define ALLOW(id) "{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"" id "\",\"result\":\"allow\"}"
#define DENY(id) "{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"" id "\",\"result\":\"deny\"}"
#define END "{\"type\":\"session.status_idle\",\"stop_reason\":{\"type\":\"end_turn\"}}"
#define WAITS "{\"type\":\"session.status_idle\",\"stop_reason\":{\"type\":\"requires_action\",\"event_ids\":[]}}"
#define MESSAGE "{\"type\":\"user.message\",\"content\":[]}"
#define THREAD_ASK(id, thread)                  \
    "{\"type\":\"agent.tool_use\",\"id\":\"" id \
    "\",\"name\":\"bash\",\"input\":{},\"evaluated_permission\":\"ask\",\"session_thread_id\":\"" thread "\"}"
#define THREAD_END(thread) "{\"type\":\"session.thread_status_terminated\",\"session_thread_id\":\"" thread "\"}"

static void the_history_gives_what_has_no_result_in_order(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, CALL("a"), CALL("b"), RESULT("a"), CUSTOM("c"), CUSTOM("d"), CUSTOM_RESULT("c"));
    struct mg_call *c = mg_ledger_take(f->l, 0);
    assert_string_equal(c->id, "b");
    assert_string_equal(c->input, "{\"command\":\"x\"}");
    assert_false(c->custom);
    mg_ledger_end(f->l, c, MG_CALL_ANSWERED, 0);
    c = mg_ledger_take(f->l, 0);
    assert_string_equal(c->id, "d");
    assert_true(c->custom);
    mg_ledger_end(f->l, c, MG_CALL_ANSWERED, 0);
    nothing_runs(f);
}

static void a_call_on_the_stream_that_the_history_had_runs_once(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, CALL("a"));
    runs(f, "a", MG_CALL_ANSWERED, 0);
    stream(f, CALL("a"), 0);
    nothing_runs(f);
    stream(f, CALL("b"), 0);
    runs(f, "b", MG_CALL_ANSWERED, 0);
    stream(f, CALL("b"), 0);
    nothing_runs(f);
}

static void a_call_without_a_result_comes_again_with_the_next_history(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0);
    stream(f, CALL("a"), 0);
    runs(f, "a", MG_CALL_UNPOSTED, 0);
    nothing_runs(f);
    LIST(f, 0, CALL("a"));
    runs(f, "a", MG_CALL_UNPOSTED, 0);
    LIST(f, 0, CALL("a"), RESULT("a"));
    nothing_runs(f);
}

static void a_result_on_the_stream_takes_a_waiting_call_away(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, CALL("a"), CALL("b"));
    struct mg_call *c = mg_ledger_take(f->l, 0);
    stream(f, RESULT("b"), 0);
    mg_ledger_end(f->l, c, MG_CALL_ANSWERED, 0);
    nothing_runs(f);
}

static void a_call_that_must_be_confirmed_is_held(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, ASK("a"), ASK("b"), ASK("c"), ALLOW("b"), DENY("c"));
    runs(f, "b", MG_CALL_ANSWERED, 0);
    nothing_runs(f);
    assert_int_equal(mg_ledger_held(f->l), 1);
    stream(f, ALLOW("a"), 0);
    runs(f, "a", MG_CALL_ANSWERED, 0);
    nothing_runs(f); /* the server itself answered what was denied */
    assert_int_equal(mg_ledger_held(f->l), 0);
}

static void what_is_not_an_explicit_allow_does_not_run(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0,
         "{\"type\":\"agent.tool_use\",\"id\":\"a\",\"name\":\"bash\",\"input\":{},\"evaluated_permission\":\"auto\"}",
         "{\"type\":\"agent.tool_use\",\"id\":\"b\",\"name\":\"bash\",\"input\":{},\"evaluated_permission\":\"deny\"}",
         ALLOW("b"), ASK("c"), "{\"type\":\"user.tool_confirmation\",\"tool_use_id\":\"c\",\"result\":\"maybe\"}");
    nothing_runs(f);
    assert_int_equal(mg_ledger_held(f->l), 1);
    stream(f,
           "{\"type\":\"agent.custom_tool_use\",\"id\":\"d\",\"name\":\"w\",\"input\":{},\"evaluated_permission\":"
           "\"ask\"}",
           0);
    nothing_runs(f);
    assert_int_equal(mg_ledger_held(f->l), 2);
}

static void a_verdict_may_come_before_its_call(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0);
    stream(f, ALLOW("a"), 0);
    stream(f, ASK("a"), 0);
    runs(f, "a", MG_CALL_ANSWERED, 0);
}

static void a_held_call_survives_a_reconnect_and_is_held_once(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, ASK("a"));
    LIST(f, 0, ASK("a"));
    assert_int_equal(mg_ledger_held(f->l), 1);
    LIST(f, 0, ASK("a"), ALLOW("a"));
    runs(f, "a", MG_CALL_ANSWERED, 0);
    nothing_runs(f);
    assert_int_equal(mg_ledger_held(f->l), 0);
    LIST(f, 0, ASK("b"));
    LIST(f, 0, ASK("b"), RESULT("b"));
    assert_int_equal(mg_ledger_held(f->l), 0);
}

static void an_interrupt_frees_what_is_held(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, ASK("a"));
    stream(f, RESULT("a"), 0);
    assert_int_equal(mg_ledger_held(f->l), 0);
    stream(f, ALLOW("a"), 0);
    nothing_runs(f);
}

static void calls_of_a_thread_that_has_ended_do_not_run(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, THREAD_ASK("a", "t1"), THREAD_ASK("b", "t2"), THREAD_END("t1"));
    assert_int_equal(mg_ledger_held(f->l), 1);
    stream(f, THREAD_END("t2"), 0);
    assert_int_equal(mg_ledger_held(f->l), 0);
    stream(f, ALLOW("b"), 0);
    stream(f, "{\"type\":\"agent.tool_use\",\"id\":\"c\",\"name\":\"bash\",\"input\":{},\"session_thread_id\":\"t2\"}",
           0);
    nothing_runs(f);
}

static void a_session_whose_turn_ended_is_left_after_its_time(void **state)
{
    struct fixture *f = *state;
    LIST(f, 1 * MS, MESSAGE, END);
    assert_int_equal(mg_ledger_idle_at(f->l), (1 + IDLE_MS) * MS);
    stream(f, MESSAGE, 2 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    stream(f, WAITS, 3 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    stream(f, "{\"type\":\"session.status_idle\",\"stop_reason\":{\"type\":\"of a later release\"}}", 4 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), (4 + IDLE_MS) * MS);
    assert_false(stream(f, "{\"type\":\"session.status_running\"}", 5 * MS));
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    assert_true(stream(f, "{\"type\":\"session.status_terminated\"}", 6 * MS));
    assert_true(stream(f, "{\"type\":\"session.deleted\"}", 6 * MS));
}

static void held_and_allowed_calls_put_the_end_off(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, ASK("a"), END);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    stream(f, ALLOW("a"), 1 * MS);
    struct mg_call *c = mg_ledger_take(f->l, 1 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    mg_ledger_end(f->l, c, MG_CALL_ANSWERED, 2 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), (2 + IDLE_MS) * MS);
}

static void a_denial_starts_the_time_anew(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, ASK("a"), END);
    stream(f, DENY("a"), 7 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), (7 + IDLE_MS) * MS);
}

static void an_outstanding_call_of_another_client_keeps_the_session(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, CUSTOM("a"), END);
    runs(f, "a", MG_CALL_NOT_OURS, 1 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
    LIST(f, 0, CALL("b"), END);
    runs(f, "b", MG_CALL_ANSWERED, 3 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), (3 + IDLE_MS) * MS);
}

static void a_history_that_breaks_off_runs_nothing_and_loses_nothing(void **state)
{
    struct fixture *f = *state;
    mg_ledger_history_begin(f->l);
    struct mg_event call = event(f, CALL("a")), result = event(f, RESULT("b"));
    mg_ledger_history(f->l, &call);
    mg_ledger_history(f->l, &result);
    mg_ledger_history_end(f->l, false, 0);
    nothing_runs(f);
    stream(f, CALL("b"), 0);
    nothing_runs(f);
    stream(f, CALL("a"), 0);
    runs(f, "a", MG_CALL_ANSWERED, 0);
}

static void a_stale_idle_does_not_outlive_the_end_of_a_thread(void **state)
{
    struct fixture *f = *state;
    LIST(f, 0, END);
    assert_true(mg_ledger_idle_at(f->l) > 0);
    mg_ledger_history_begin(f->l);
    mg_ledger_history_end(f->l, false, 1 * MS);
    assert_true(mg_ledger_idle_at(f->l) > 0);
    stream(f, THREAD_END("t"), 2 * MS);
    assert_int_equal(mg_ledger_idle_at(f->l), 0);
}

static void events_that_name_nothing_are_skipped(void **state)
{
    struct fixture *f = *state;
    struct mg_event e = event(f, "{\"type\":\"agent.tool_use\",\"name\":\"bash\"}");
    assert_int_equal(e.kind, MG_EVENT_OTHER);
    e = event(f, "{\"type\":\"user.tool_result\",\"id\":\"x\"}");
    assert_int_equal(e.kind, MG_EVENT_OTHER);
    e = event(f, "{\"type\":\"span.model_request_start\"}");
    assert_int_equal(e.kind, MG_EVENT_OTHER);
    struct mg_json *v;
    assert_int_equal(mg_json_parse(f->a, MG_SV("[1]"), &mg_json_raw_limits, &v, NULL), MG_OK);
    assert_false(mg_event_read(f->a, v, &e));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_history_gives_what_has_no_result_in_order),
        T(a_call_on_the_stream_that_the_history_had_runs_once),
        T(a_call_without_a_result_comes_again_with_the_next_history),
        T(a_result_on_the_stream_takes_a_waiting_call_away),
        T(a_call_that_must_be_confirmed_is_held),
        T(what_is_not_an_explicit_allow_does_not_run),
        T(a_verdict_may_come_before_its_call),
        T(a_held_call_survives_a_reconnect_and_is_held_once),
        T(an_interrupt_frees_what_is_held),
        T(calls_of_a_thread_that_has_ended_do_not_run),
        T(a_session_whose_turn_ended_is_left_after_its_time),
        T(held_and_allowed_calls_put_the_end_off),
        T(a_denial_starts_the_time_anew),
        T(an_outstanding_call_of_another_client_keeps_the_session),
        T(a_history_that_breaks_off_runs_nothing_and_loses_nothing),
        T(a_stale_idle_does_not_outlive_the_end_of_a_thread),
        T(events_that_name_nothing_are_skipped),
    };
    return RUN(tests);
}
