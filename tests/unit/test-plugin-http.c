/* The host's http_call against a real peer, and the counters of a plugin: what goes out, how often, and how a request
 * ends that gets no good answer. */
#include "unit.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "plugin/counters.h"
#include "support/peer-rig.h"

static int32_t collect(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    (void)mg_buf_append(ctx, p, n);
    return 0;
}

static void a_plugin_that_needs_http_loads_and_uses_it(void **state)
{
    (void)state;
    static const struct {
        const char *what, *url, *want;
    } cases[] = {
        {"http", "http://peer/echo", "hello"},
        {"hijack", "http://peer/upgrade", "early hellofarewell"},
        {"hijack", "http://peer/hijack", "hellofarewell"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_err err = {0};
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
        struct mango_call c = mg_plugin_call(mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL, &err);
        const struct mango_sv argv[] = {z(cases[i].what), z(cases[i].url), z(peer_sock), z("hello")};
        struct mango_exec_req req = {
            .struct_size = sizeof(req), .argv = argv, .n_argv = 4, .sink = collect, .sink_ctx = &out};
        struct mango_exec_result ret = {.struct_size = sizeof(ret)};
        assert_int_equal(peer_plugin->sandbox->exec(peer_plugin->ctx, &c, z("x"), &req, &ret), MANGO_OK);
        assert_sv_equal(mg_buf_view(&out), cases[i].want);
    }
    peer_fact_is("\"upgrade\": \"tcp\"");
    peer_fact_is("\"body\": \"{\\\"Tty\\\":false}\"");
    peer_fact_is("\"content-length\": \"13\"");
}

static void unix_sockets_carry_requests_and_are_reused(void **state)
{
    (void)state;
    const struct mango_http_header h[] = {{z("X-One"), z("a: b")}, {z("Host"), z("docker")}};
    for (int i = 0; i < 3; i++) {
        ANSWER(a);
        assert_int_equal(peer_call((struct mango_http_req){.method = z("PUT"),
                                                           .url = z("http://peer/echo"),
                                                           .unix_socket = z(peer_sock),
                                                           .headers = h,
                                                           .n_headers = 2,
                                                           .body = z("content")},
                                   &a),
                         MANGO_OK);
        assert_int_equal(a.res.status, 200);
        assert_sv_equal(mg_buf_view(&a.body), "content");
        assert_contains(a.headers.ptr, "X-Answer=yes\n");
        assert_true(a.res.flags & MANGO_HTTP_RES_SENT);
        assert_true(i == 0 || (a.res.flags & MANGO_HTTP_RES_REUSED));
    }
    peer_fact_is("\"method\": \"PUT\", \"headers\": {\"host\": \"docker\"");
    peer_fact_is("\"x-one\": \"a: b\"");
}

static void a_missing_socket_is_told_from_a_request_that_went_out(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(
        peer_call((struct mango_http_req){.url = z("http://peer/"), .unix_socket = z("/nonexistent/x.sock")}, &a),
        MANGO_ERETRY);
    assert_int_equal(a.res.flags & MANGO_HTTP_RES_SENT, 0);
    ANSWER(b);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/once"), .unix_socket = z(peer_sock)}, &b),
                     MANGO_ERETRY);
    assert_true(b.res.flags & MANGO_HTTP_RES_SENT);
}

static void what_must_happen_once_is_sent_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* with an idle connection in the pool each time */
        ANSWER(warm);
        ANSWER(a);
        assert_int_equal(
            peer_call((struct mango_http_req){.url = z("http://peer/echo"), .unix_socket = z(peer_sock)}, &warm),
            MANGO_OK);
        long before = peer_fact("once");
        assert_int_equal(peer_call((struct mango_http_req){.method = z("POST"),
                                                           .url = z("http://peer/once"),
                                                           .unix_socket = z(peer_sock),
                                                           .flags = MANGO_HTTP_ONCE},
                                   &a),
                         MANGO_ERETRY);
        assert_int_equal(peer_fact("once") - before, 1);
    }
}

static void bad_requests_never_leave(void **state)
{
    (void)state;
    static const struct mango_http_header crlf[] = {{{"X", 1}, {"a\r\nB: c", 7}}};
    char long_path[200];
    memset(long_path, 'x', sizeof(long_path));
    const struct mango_http_req bad[] = {
        {.url = z("ftp://x/")},
        {.url = z("http://user:pw@x/")},
        {.url = z("http://peer/"), .unix_socket = {long_path, sizeof(long_path)}},
        {.url = z("http://peer/"), .unix_socket = z("a\nb")},
        {.url = z("http://peer/"), .connect_to = z("nowhere")},
        {.url = z("http://peer/"), .connect_to = z("host:0")},
        {.url = z("http://peer/"), .proxy = z("::::")},
        {.url = z("http://peer/"), .headers = crlf, .n_headers = 1},
        {.url = z("http://peer/"), .headers = crlf, .n_headers = 1000},
        {.url = z("http://peer/"), .method = z("G T")},
        {.url = z("http://peer/"), .flags = 1u << 20},
        {.url = z("http://peer/"), .flags = MANGO_HTTP_RAW},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ANSWER(a);
        if (peer_call(bad[i], &a) != MANGO_EINVALID)
            fail_msg("case %zu: %s", i, a.err.text);
        assert_int_equal(a.res.flags, 0);
    }
    ANSWER(a);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("https://peer/"), .flags = MANGO_HTTP_INSECURE}, &a),
                     MANGO_EDENIED);
    assert_contains(a.err.text, "MANGO_PLUGIN_INSECURE_TLS");
}

static void deadlines_and_silence_end_a_request(void **state)
{
    (void)state;
    ANSWER(a);
    uint64_t since = mg_now_ns();
    assert_int_equal(peer_call_for((struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(peer_sock)},
                                   &a, since + PEER_SECOND_NS / 5, NULL),
                     MANGO_ETIMEOUT);
    ANSWER(b);
    assert_int_equal(
        peer_call_for(
            (struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(peer_sock), .idle_ms = 200}, &b, 0,
            NULL),
        MANGO_ETIMEOUT);
    assert_contains(b.err.text, "nothing came for 200 ms");
    assert_true(mg_now_ns() - since < 5ull * PEER_SECOND_NS);
    ANSWER(c);
    struct mg_cancel *fired = mg_cancel_new();
    mg_cancel_fire(fired);
    assert_int_equal(
        peer_call_for((struct mango_http_req){.url = z("http://peer/hang"), .unix_socket = z(peer_sock)}, &c, 0, fired),
        MANGO_ECANCELED);
    mg_cancel_unref(fired);
}

static void a_cut_answer_is_no_answer(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/half"), .unix_socket = z(peer_sock)}, &a),
                     MANGO_ERETRY);
    assert_contains(a.err.text, "in the middle of the answer, after 10 bytes");
    assert_int_equal(a.res.status, 200);
}

static void retry_after_is_told(void **state)
{
    (void)state;
    ANSWER(a);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/busy"), .unix_socket = z(peer_sock)}, &a),
                     MANGO_OK);
    assert_int_equal(a.res.status, 429);
    assert_int_equal(a.res.retry_after_ms, 7000);
    assert_sv_equal(mg_buf_view(&a.body), "slow down");
}

static void counters_are_checked_and_bounded(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(256 * 1024);
    char name[64];
    peer_host->metric_add(peer_host, "bytes_sent", 40);
    peer_host->metric_add(peer_host, "bytes_sent", 2);
    static const char *const bad[] = {
        "",        "Upper",  "two words", "a\"} 1\nx",
        "digits9", "_first", NULL,        "much_too_long_for_the_name_of_a_counter_of_a_plugin"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        peer_host->metric_add(peer_host, bad[i], 1);
    peer_host->metric_add(peer_host, "never", 0);
    peer_host->metric_add(peer_host, "never", -5);
    for (int i = 0; i < 2 * MG_COUNTERS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "flood_%c%c", 'a' + i / 26, 'a' + i % 26);
        peer_host->metric_add(peer_host, name, 1);
    }
    mg_registry_metrics(peer_registry, &out);
    assert_contains(
        out.ptr,
        "# TYPE mango_plugin_bytes_sent_total counter\nmango_plugin_bytes_sent_total{plugin=\"network\"} 42\n");
    assert_contains(out.ptr, "mango_plugin_execs_total{plugin=\"network\"} ");
    assert_null(strstr(out.ptr, "never"));
    assert_null(strstr(out.ptr, "Upper"));
    int series = 0;
    for (const char *at = out.ptr; (at = strstr(at, "_total{plugin=\"network\"}")); at++)
        series++;
    assert_int_equal(series, MG_COUNTERS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_that_needs_http_loads_and_uses_it),
        cmocka_unit_test(unix_sockets_carry_requests_and_are_reused),
        cmocka_unit_test(a_missing_socket_is_told_from_a_request_that_went_out),
        cmocka_unit_test(what_must_happen_once_is_sent_once),
        cmocka_unit_test(bad_requests_never_leave),
        cmocka_unit_test(deadlines_and_silence_end_a_request),
        cmocka_unit_test(a_cut_answer_is_no_answer),
        cmocka_unit_test(retry_after_is_told),
        cmocka_unit_test(counters_are_checked_and_bounded),
    };
    return cmocka_run_group_tests(tests, peer_group_up, peer_group_down);
}
