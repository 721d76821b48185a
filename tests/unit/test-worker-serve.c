/* One item of a worker against a scripted peer: what is sent, in which order, and what is not. */
#include "unit.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/stub.h"
#include "worker/serve.h"
#include "worker/worker.h"

#define WORK "/v1/environments/env_1/work/work_1/"
#define BEAT "POST " WORK "heartbeat"
#define STOP "POST " WORK "stop"
#define SESSION "GET /v1/sessions/sesn_1"
#define STREAM SESSION "/events/stream"
#define LIST SESSION "/events?limit=1000"
#define SEND "POST /v1/sessions/sesn_1/events"
#define SECRET "eyJzZXNzaW9uc190b2tlbiI6InNrLXRva2VuIn0" /* {"sessions_token":"sk-token"} */
#define HEARTBEAT(stamp, ttl, state, extended)                                                                         \
    "{\"type\":\"work_heartbeat\",\"last_heartbeat\":\"" stamp "\",\"lease_extended\":" extended ",\"state\":\"" state \
    "\",\"ttl_seconds\":" ttl "}"
#define GOOD HEARTBEAT("t+1", "60", "active", "true")
#define ERROR(code)                                                                                        \
    "{\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"no\",\"details\":{\"error_code\":\"" code \
    "\"}},\"request_id\":\"r\"}"
#define EVENT(type, rest) "event: " type "\ndata: {\"type\":\"" type "\"," rest "}\n\n"
#define CALL(id, name) EVENT("agent.custom_tool_use", "\"id\":\"" id "\",\"name\":\"" name "\",\"input\":{\"n\":1.50}")
#define OVER \
    EVENT("session.status_idle", "\"id\":\"e9\",\"stop_reason\":{\"type\":\"end_turn\"}") /* and left 50 ms later */
#define PAGE(events) "{\"data\":[" events "],\"next_page\":null}"

struct fixture {
    struct stub *stub;
    struct mango_worker *worker;
    struct mango_work *work;
    atomic_int counted, cancelled;
    char err[512];
    int32_t rc;
    pthread_t thread;
};

static int32_t count(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    struct fixture *f = ctx;
    atomic_fetch_add(&f->counted, 1);
    return mango_reply_text(reply, call->input, call->input_len);
}

static int32_t wait_for_cancel(void *ctx, const struct mango_tool_call *call, struct mango_tool_reply *reply)
{
    struct fixture *f = ctx;
    struct pollfd p = {.fd = call->cancel_fd, .events = POLLIN};
    atomic_fetch_add(&f->counted, 1);
    assert_int_equal(poll(&p, 1, 20000), 1);
    atomic_fetch_add(&f->cancelled, 1);
    return mango_reply_text(reply, "too late", 8);
}

static void open_worker(struct fixture *f)
{
    const struct mango_tool tools[] = {
        {.struct_size = sizeof(tools[0]), .name = "count", .run = count, .ctx = f},
        {.struct_size = sizeof(tools[0]), .name = "wait", .run = wait_for_cancel, .ctx = f},
    };
    const struct mango_worker_options o = {
        .struct_size = sizeof(o),
        .base_url = stub_url(f->stub),
        .environment_id = "env_1",
        .environment_key = "env-key",
        .workdir = "/tmp",
        .tools = tools,
        .n_tools = 2,
        .max_idle_ms = 50,
    };
    assert_int_equal(mango_worker_open(&o, &f->worker, f->err, sizeof(f->err)), 0);
}

static int32_t no_session(void *ctx, const char *id, void **ret, char *err, size_t n)
{
    (void)ctx;
    (void)id;
    (void)ret;
    (void)snprintf(err, n, "no room");
    return -1;
}

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->stub = stub_start();
    f->work = mango_work_new("work_1", "env_1", "sesn_1", SECRET);
    open_worker(f);
    stub_json(f->stub, SESSION, 200, "", "{\"id\":\"sesn_1\",\"status\":\"running\"}");
    stub_json(f->stub, STOP, 200, "", "{}");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mango_work_free(f->work);
    mango_worker_close(f->worker);
    stub_stop(f->stub);
    free(f);
    return 0;
}

static int32_t serve(struct fixture *f)
{
    return f->rc = mango_worker_serve(f->worker, f->work, f->err, sizeof(f->err));
}

static void *serve_aside(void *arg)
{
    (void)serve(arg);
    return NULL;
}

static void begin(struct fixture *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, serve_aside, f), 0);
}

static void end(struct fixture *f)
{
    pthread_join(f->thread, NULL);
}

static void quiet_stream(struct fixture *f, const char *history)
{
    stub_stream(f->stub, STREAM, (const char *const[]){STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", history);
}

static void one_item_is_served_in_the_order_of_the_official_worker(void **state)
{
    struct fixture *f = *state;
    static const char *const order[] = {
        BEAT "?expected_last_heartbeat=NO_HEARTBEAT", SESSION, STREAM, LIST, SEND, STOP};
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM, (const char *const[]){": hello\n\n", CALL("c1", "count"), OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, SEND, 200, "", "{\"data\":[]}");
    assert_int_equal(serve(f), 0);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(stub_request(f->stub, i), order[i]);
        assert_contains(stub_head(f->stub, i), "\r\nauthorization: Bearer sk-token\r\n");
        assert_contains(stub_head(f->stub, i), "\r\nanthropic-beta: managed-agents-2026-04-01\r\n");
        assert_null(strstr(stub_head(f->stub, i), "env-key"));
    }
    assert_null(stub_request(f->stub, 6));
    assert_string_equal(
        stub_body(f->stub, 4),
        "{\"events\":[{\"type\":\"user.custom_tool_result\",\"custom_tool_use_id\":\"c1\",\"is_error\":false,"
        "\"content\":[{\"type\":\"text\",\"text\":\"{\\\"n\\\":1.50}\"}]}]}");
    assert_string_equal(stub_body(f->stub, 5), "{\"force\":true}");
    assert_contains(stub_head(f->stub, 4), "\r\nx-stainless-helper: environments-worker, session-tool-runner\r\n");
}

static void an_idle_session_is_left_after_its_time(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    quiet_stream(f, PAGE("{\"type\":\"session.status_idle\",\"stop_reason\":{\"type\":\"end_turn\"}}"));
    assert_int_equal(serve(f), 0);
    assert_int_equal(stub_count(f->stub, STOP), 1);
}

static void a_first_heartbeat_that_is_too_late_ends_without_another_word(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 412, "", ERROR("heartbeat_precondition_failed"));
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_int_equal(stub_count(f->stub, ""), 1);
}

static void an_item_that_was_stopped_before_it_began_is_not_served(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t", "60", "stopped", "false"));
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_int_equal(stub_count(f->stub, "GET"), 0);
    assert_int_equal(stub_count(f->stub, STOP), 1);
}

static void a_lease_that_is_lost_cancels_the_tool_and_nothing_more_is_sent(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("2026-01-01T00:00:00.000001Z", "2", "active", "true"));
    stub_json(f->stub, BEAT, 412, "", ERROR("heartbeat_precondition_failed"));
    quiet_stream(f, PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"wait\",\"input\":{}}"));
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_int_equal(atomic_load(&f->cancelled), 1);
    assert_int_equal(stub_count(f->stub, SEND), 0);
    assert_int_equal(stub_count(f->stub, STOP), 0);
    int second = stub_wait(f->stub, BEAT, 2);
    assert_string_equal(stub_request(f->stub, second), BEAT "?expected_last_heartbeat=2026-01-01T00%3A00%3A00.000001Z");
}

static void a_lease_that_another_process_began_goes_on_from_its_heartbeat(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mango_work_continue(f->work, "2026-01-01T00:00:00.000001Z"), 0);
    stub_json(f->stub, BEAT, 412, "", "{\"error\":{\"message\":\"lease\"}}");
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_int_equal(stub_count(f->stub, BEAT), 1);
    assert_int_equal(stub_count(f->stub, SESSION) + stub_count(f->stub, STREAM) + stub_count(f->stub, STOP), 0);
    assert_string_equal(stub_request(f->stub, 0), BEAT "?expected_last_heartbeat=2026-01-01T00%3A00%3A00.000001Z");
}

static void a_heartbeat_that_none_can_be_is_refused(void **state)
{
    struct fixture *f = *state;
    char text[200] = "";
    memset(text, 'x', sizeof(text) - 1);
    assert_true(mango_work_continue(f->work, text) < 0);
    assert_true(mango_work_continue(f->work, "") < 0);
}

static void a_lease_without_a_good_heartbeat_is_assumed_lost(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t1", "1", "active", "true"));
    stub_json(f->stub, BEAT, 500, "x-should-retry: false\r\n", ERROR(""));
    quiet_stream(f, PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"wait\",\"input\":{}}"));
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_int_equal(atomic_load(&f->cancelled), 1);
    assert_int_equal(stub_count(f->stub, SEND), 0);
    assert_int_equal(stub_count(f->stub, STOP), 0);
}

static void a_heartbeat_that_fails_once_changes_nothing(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t1", "4", "active", "true"));
    stub_answer(f->stub, BEAT, STUB_CUT);
    stub_json(f->stub, BEAT, 503, "x-should-retry: false\r\n", ERROR(""));
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t2", "4", "active", "true"));
    stub_stream(f->stub, STREAM, (const char *const[]){"", OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    begin(f);
    (void)stub_wait(f->stub, BEAT, 4);
    stub_go(f->stub);
    end(f);
    assert_int_equal(f->rc, 0);
    assert_int_equal(stub_count(f->stub, STOP), 1);
}

static void a_stop_that_the_server_asks_for_cancels_the_tool_and_says_so(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t1", "2", "active", "true"));
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t1", "2", "stopping", "false"));
    quiet_stream(f, PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"wait\",\"input\":{}}"));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->cancelled), 1);
    assert_contains(stub_body(f->stub, stub_wait(f->stub, SEND, 1)), "\"is_error\":true");
    assert_true(stub_wait(f->stub, STOP, 1) > stub_wait(f->stub, SEND, 1));
}

static void a_shutdown_sends_the_error_result_and_stops_the_item(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    quiet_stream(f, PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"wait\",\"input\":{}}"));
    stub_json(f->stub, SEND, 200, "", "{}");
    begin(f);
    while (!atomic_load(&f->counted))
        (void)poll(NULL, 0, 1);
    mango_worker_stop(f->worker);
    end(f);
    assert_int_equal(f->rc, MANGO_WORKER_STOPPED);
    assert_contains(stub_body(f->stub, stub_wait(f->stub, SEND, 1)), "the worker was shut down while wait ran");
    assert_true(stub_wait(f->stub, STOP, 1) > stub_wait(f->stub, SEND, 1));
}

static void case_04_a_result_whose_answer_is_lost_is_sent_again_and_the_tool_does_not_run_again(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM, (const char *const[]){CALL("c1", "count"), OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_answer(f->stub, SEND, STUB_CUT);
    stub_json(f->stub, SEND, 500, "retry-after-ms: 1\r\n", ERROR(""));
    stub_json(f->stub, SEND, 429, "retry-after-ms: 1\r\n", ERROR(""));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->counted), 1);
    int n = stub_count(f->stub, SEND);
    assert_true(n >= 4); /* core/net repeats a cut on a pooled connection by itself */
    for (int i = 2; i <= n; i++)
        assert_string_equal(stub_body(f->stub, stub_wait(f->stub, SEND, i)),
                            stub_body(f->stub, stub_wait(f->stub, SEND, 1)));
}

static void case_04_a_result_that_could_not_be_sent_is_kept_and_sent_after_the_reconnect(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", HEARTBEAT("t1", "1", "active", "true")); /* a result is tried for one second */
    stub_stream(f->stub, STREAM, (const char *const[]){CALL("c1", "count"), NULL});
    stub_stream(f->stub, STREAM, (const char *const[]){OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, LIST, 200, "",
              PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"count\",\"input\":{\"n\":1.50}}"));
    for (int i = 0; i < 3; i++)
        stub_json(f->stub, SEND, 503, "retry-after-ms: 600\r\n", ERROR(""));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->counted), 1);
    assert_int_equal(stub_count(f->stub, STREAM), 2);
    assert_true(stub_wait(f->stub, SEND, 4) > stub_wait(f->stub, LIST, 2));
}

static void a_result_that_is_refused_for_its_content_is_replaced_by_an_error(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM, (const char *const[]){CALL("c1", "count"), OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, SEND, 400, "", ERROR(""));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(stub_count(f->stub, SEND), 2);
    assert_contains(stub_body(f->stub, stub_wait(f->stub, SEND, 2)), "the server refused its result");
}

static void a_result_that_somebody_else_gave_is_refused_once_and_no_more(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM, (const char *const[]){CALL("c1", "count"), NULL});
    stub_stream(f->stub, STREAM, (const char *const[]){OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, LIST, 200, "",
              PAGE("{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"count\",\"input\":{}}"));
    stub_json(f->stub, SEND, 409, "x-should-retry: false\r\n", ERROR(""));
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->counted), 1);
    assert_int_equal(stub_count(f->stub, SEND), 1);
}

static void a_result_that_an_interrupt_gives_ends_the_tool_and_is_not_contradicted(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM,
                (const char *const[]){CALL("c1", "wait"), "",
                                      EVENT("user.custom_tool_result", "\"id\":\"r\",\"custom_tool_use_id\":\"c1\""),
                                      "", OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    begin(f);
    while (!atomic_load(&f->counted))
        (void)poll(NULL, 0, 1);
    stub_go(f->stub);
    while (!atomic_load(&f->cancelled))
        (void)poll(NULL, 0, 1);
    stub_go(f->stub);
    end(f);
    assert_int_equal(f->rc, 0);
    assert_int_equal(stub_count(f->stub, SEND), 0);
}

static void a_stream_that_is_cut_is_opened_again_and_the_history_read_again(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_answer(f->stub, STREAM, STUB_CUT);
    stub_json(f->stub, STREAM, 503, "", ERROR(""));
    stub_stream(f->stub, STREAM,
                (const char *const[]){CALL("c1", "count"), "event: agent.message\ndata: {\"type\":\"agent.mes", NULL});
    stub_stream(f->stub, STREAM, (const char *const[]){"event: error\ndata: " ERROR("x") "\n\n", STUB_HANG, NULL});
    stub_stream(f->stub, STREAM, (const char *const[]){OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, LIST, 500, "x-should-retry: false\r\n", ERROR(""));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->counted), 1);
    assert_true(stub_count(f->stub, STREAM) >= 5);
    assert_int_equal(stub_count(f->stub, SEND), 1);
}

static void a_history_of_many_pages_is_read_to_its_end(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_stream(f->stub, STREAM, (const char *const[]){OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "",
              "{\"data\":[{\"type\":\"agent.custom_tool_use\",\"id\":\"c1\",\"name\":\"count\",\"input\":{}},{\"type\":"
              "\"agent.custom_tool_use\","
              "\"id\":\"c2\",\"name\":\"count\",\"input\":{}}],\"next_page\":\"p/2=\"}");
    stub_json(f->stub, LIST "&page=p%2F2%3D", 200, "", "{\"data\":[],\"next_page\":\"p3\"}");
    stub_json(f->stub, LIST "&page=p3", 200, "",
              PAGE("{\"type\":\"user.custom_tool_result\",\"id\":\"r\",\"custom_tool_use_id\":\"c1\"}"));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(serve(f), 0);
    assert_int_equal(atomic_load(&f->counted), 1);
    assert_contains(stub_body(f->stub, stub_wait(f->stub, SEND, 1)), "\"c2\"");
}

static void a_stream_that_is_refused_ends_the_item_with_the_reason(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_json(f->stub, STREAM, 403, "", ERROR("x"));
    assert_true(serve(f) < 0);
    assert_contains(f->err, "403");
    assert_int_equal(stub_count(f->stub, STREAM), 1);
    assert_int_equal(stub_count(f->stub, STOP), 1);
}

static void a_terminated_session_and_a_health_check_are_stopped_at_once(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 200, "", GOOD);
    stub_json(f->stub, SESSION "2", 200, "", "{\"status\":\"terminated\"}");
    mango_work_free(f->work);
    f->work = mango_work_new("work_1", "env_1", "sesn_12", SECRET);
    assert_int_equal(serve(f), 0);
    assert_int_equal(stub_count(f->stub, ""), 3);
    assert_string_equal(stub_request(f->stub, 2), STOP);

    struct mg_tether t;
    struct mg_work_item item = {0};
    struct mg_err err = {0};
    struct mg_net *net;
    bool abandoned;
    assert_int_equal(mg_net_open(&(struct mg_net_opts){.name = "x"}, &net, &err), MG_OK);
    const struct mg_serve_opts o = {.net = net, .base_url = stub_url(f->stub)};
    mg_work_item_set(&item, "work_1", "env_1", "hc_1", SECRET);
    free(item.type);
    item.type = mg_xstrdup("healthcheck");
    mg_tether_init(&t);
    assert_int_equal(mg_serve(&o, &item, &t, &abandoned, &err), MG_OK);
    mg_tether_done(&t);
    mg_work_item_done(&item);
    mg_net_close(net);
    assert_int_equal(stub_count(f->stub, ""), 5);
    assert_string_equal(stub_request(f->stub, 4), STOP);
}

static void the_environment_key_is_used_where_the_secret_has_no_token(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, BEAT, 412, "", ERROR("x"));
    mango_work_free(f->work);
    f->work = mango_work_new("work_1", "env_1", "sesn_1", "bm8gSlNPTg"); /* "no JSON" */
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_contains(stub_head(f->stub, 0), "authorization: Bearer env-key\r\n");
    mango_work_free(f->work);
    f->work = mango_work_new("work_1", "env_1", "sesn_1", NULL);
    assert_int_equal(serve(f), MANGO_WORKER_LEASE_LOST);
    assert_contains(stub_head(f->stub, 1), "authorization: Bearer env-key\r\n");
}

static void an_executor_that_cannot_open_fails_the_item_and_stops_it(void **state)
{
    struct fixture *f = *state;
    const struct mango_executor x = {
        .struct_size = sizeof(x),
        .open = no_session,
        .has = (int32_t(*)(void *, const char *))abort,
        .call = (int32_t(*)(void *, const struct mango_tool_call *, struct mango_tool_reply *))abort,
        .close = free};
    const struct mango_worker_options o = {.struct_size = sizeof(o), .base_url = stub_url(f->stub), .executor = &x};
    mango_worker_close(f->worker);
    assert_int_equal(mango_worker_open(&o, &f->worker, f->err, sizeof(f->err)), 0);
    stub_json(f->stub, BEAT, 200, "", GOOD);
    assert_true(serve(f) < 0);
    assert_contains(f->err, "no room");
    assert_int_equal(stub_count(f->stub, STOP), 1);
}

static void a_runner_alone_needs_no_item(void **state)
{
    struct fixture *f = *state;
    stub_stream(f->stub, STREAM, (const char *const[]){CALL("c1", "count"), OVER, STUB_HANG, NULL});
    stub_json(f->stub, LIST, 200, "", PAGE(""));
    stub_json(f->stub, SEND, 200, "", "{}");
    assert_int_equal(mango_worker_attach(f->worker, "sesn_1", "sk-key", f->err, sizeof(f->err)), 0);
    assert_int_equal(stub_count(f->stub, ""), 3);
    assert_contains(stub_head(f->stub, 0), "Bearer sk-key");
}

static void options_that_cannot_work_are_named(void **state)
{
    struct fixture *f = *state;
    struct mango_worker *w;
    struct mango_worker_options o = {.struct_size = sizeof(o) - 8};
    char err[256] = "";
    assert_true(mango_worker_open(&o, &w, err, sizeof(err)) < 0);
    assert_contains(err, "struct_size");
    o = (struct mango_worker_options){.struct_size = sizeof(o), .base_url = "ftp://x"};
    assert_true(mango_worker_open(&o, &w, err, sizeof(err)) < 0);
    assert_contains(err, "base URL");
    o = (struct mango_worker_options){.struct_size = sizeof(o), .workdir = "/nonexistent"};
    assert_true(mango_worker_open(&o, &w, err, sizeof(err)) < 0);
    assert_contains(err, "/nonexistent");
    o = (struct mango_worker_options){.struct_size = sizeof(o), .base_url = stub_url(f->stub)};
    assert_int_equal(mango_worker_open(&o, &w, err, sizeof(err)), 0);
    assert_true(mango_worker_run(w, err, sizeof(err)) < 0);
    assert_contains(err, "ANTHROPIC_ENVIRONMENT_ID");
    mango_worker_close(w);
}

int main(void)
{
    const char *build = getenv("MANGO_TEST_BUILDDIR");
    char runner[512];
    (void)snprintf(runner, sizeof(runner), "%s/plugins/loadable/mango-local-runner", build ? build : ".");
    setenv("MANGO_WORKER_RUNNER", runner, 1);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(one_item_is_served_in_the_order_of_the_official_worker),
        T(an_idle_session_is_left_after_its_time),
        T(a_first_heartbeat_that_is_too_late_ends_without_another_word),
        T(an_item_that_was_stopped_before_it_began_is_not_served),
        T(a_lease_that_is_lost_cancels_the_tool_and_nothing_more_is_sent),
        T(a_lease_that_another_process_began_goes_on_from_its_heartbeat),
        T(a_heartbeat_that_none_can_be_is_refused),
        T(a_lease_without_a_good_heartbeat_is_assumed_lost),
        T(a_heartbeat_that_fails_once_changes_nothing),
        T(a_stop_that_the_server_asks_for_cancels_the_tool_and_says_so),
        T(a_shutdown_sends_the_error_result_and_stops_the_item),
        T(case_04_a_result_whose_answer_is_lost_is_sent_again_and_the_tool_does_not_run_again),
        T(case_04_a_result_that_could_not_be_sent_is_kept_and_sent_after_the_reconnect),
        T(a_result_that_is_refused_for_its_content_is_replaced_by_an_error),
        T(a_result_that_somebody_else_gave_is_refused_once_and_no_more),
        T(a_result_that_an_interrupt_gives_ends_the_tool_and_is_not_contradicted),
        T(a_stream_that_is_cut_is_opened_again_and_the_history_read_again),
        T(a_history_of_many_pages_is_read_to_its_end),
        T(a_stream_that_is_refused_ends_the_item_with_the_reason),
        T(a_terminated_session_and_a_health_check_are_stopped_at_once),
        T(the_environment_key_is_used_where_the_secret_has_no_token),
        T(an_executor_that_cannot_open_fails_the_item_and_stops_it),
        T(a_runner_alone_needs_no_item),
        T(options_that_cannot_work_are_named),
    };
    return RUN(tests);
}
