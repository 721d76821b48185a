/* The life of connections and of the server: kept, slow, half closed, left; drain, metrics, many threads (field case 22). */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "support/http-client.h"
#include "support/http-rig.h"

static void a_kept_connection_serves_request_after_request(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    for (int i = 0; i < 20; i++) {
        client_say(c, i % 2 ? "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n" : "GET /pong HTTP/1.1\r\nhost: x\r\n\r\n");
        client_expect(c, 200, "{\"ok\":true}");
    }
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    struct answer *a = client_answer(c);
    assert_string_equal(answer_header(a, "connection"), "close");
    answer_free(a);
    assert_true(client_ended(c));
    client_close(c);
}

static void http_1_0_closes_unless_asked_to_keep(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "GET /ping HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
    struct answer *a = client_answer(c);
    assert_string_equal(answer_header(a, "connection"), "keep-alive");
    answer_free(a);
    client_say(c, "GET /ping HTTP/1.0\r\n\r\n");
    client_expect(c, 200, "ok");
    assert_true(client_ended(c));
    client_close(c);
}

static void slow_headers_and_bodies_get_408_and_a_close(void **state)
{
    const struct mg_http_limits limits = {.header_ms = 600, .body_idle_ms = 600, .idle_ms = 600};
    (void)state;
    http_restart(&limits);
    client_refused(rig, "GET /ping HTTP/1.1\r\nhost: x\r\n", 408, "timeout_error", "headers", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n123", 408, "timeout_error", "body",
                   true);
    struct client *idle = client_open(rig);
    assert_true(client_ended(idle)); /* nothing was asked: nothing is answered */
    client_close(idle);
}

static void a_half_closed_socket_still_gets_its_answers(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "GET /pong HTTP/1.1\r\nhost: x\r\n\r\nPOST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n1");
    assert_int_equal(shutdown(c->fd, SHUT_WR), 0);
    client_expect(c, 200, "ok");
    client_expect(c, 200, "1");
    assert_true(client_ended(c));
    client_close(c);
}

static void a_client_that_leaves_in_the_middle_costs_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct client *c = client_open(rig);
        client_say(c, i % 3 == 0   ? "GET /pong HTTP/1.1\r\nho"
                      : i % 3 == 1 ? "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n1"
                                   : "GET /large HTTP/1.1\r\nhost: x\r\n\r\n");
        client_close(c);
    }
    struct client *c = client_open(rig);
    client_say(c, "GET /pong HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(c, 200, "ok");
    client_close(c);
}

static void draining_tells_streams_and_lets_handlers_end(void **state)
{
    pthread_t t;
    (void)state;
    struct client *held = client_open(rig), *idle = client_open(rig), *stream = stream_open(rig, "", "");
    client_say(held, "GET /hold HTTP/1.1\r\nhost: x\r\n\r\n");
    client_say(idle, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(idle, 200, "ok");
    (void)client_until(stream, "\r\n\r\n");
    rig_held(rig, 1);
    assert_int_equal(pthread_create(&t, NULL, rig_drain, rig), 0);
    assert_contains(client_until(stream, "0\r\n\r\n"), ": the server is restarting");
    assert_true(client_ended(stream));
    assert_true(client_ended(idle));
    rig_release(rig);
    client_expect(held, 200, "held");
    assert_true(client_ended(held));
    (void)pthread_join(t, NULL);
    client_close(held);
    client_close(idle);
    client_close(stream);
}

static void metrics_count_requests_and_streams(void **state)
{
    struct mg_buf m = MG_BUF_INIT(65536);
    (void)state;
    struct client *c = client_open(rig), *s = stream_open(rig, "", "");
    (void)client_until(s, "\r\n\r\n");
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(c, 200, "ok");
    client_expect(c, 404, "");
    mg_http_metrics(rig_http(rig), &m);
    assert_contains(m.ptr, "mango_http_requests_total{class=\"2xx\"} 2\n");
    assert_contains(m.ptr, "mango_http_requests_total{class=\"4xx\"} 1\n");
    assert_contains(m.ptr, "mango_sse_streams 1\n");
    assert_contains(m.ptr, "mango_http_request_seconds_count 3\n");
    mg_buf_done(&m);
    client_close(c);
    client_close(s);
}

struct storm {
    struct rig *r;
    int n;
};

static void *publisher(void *arg)
{
    const struct storm *s = arg;
    char name[16];
    for (int i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof(name), "t%d", (s->n + i) % 8);
        rig_event(s->r, name, "agent.message", "{\"x\":1}");
    }
    return NULL;
}

static void case_22_threads_publish_while_sockets_come_and_go(void **state)
{
    enum { THREADS = 24, ROUNDS = 60 };
    pthread_t t[THREADS];
    struct storm s[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++) {
        s[i] = (struct storm){rig, i};
        assert_int_equal(pthread_create(&t[i], NULL, publisher, &s[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        char req[128];
        struct client *c = client_open(rig),
                      *w = ws_open(rig, "/v1/stream", "x-api-key: k1\r\nsec-websocket-protocol: mango.v1\r\n");
        (void)snprintf(req, sizeof(req), "GET /v1/sessions/t%d/events/stream?after=start HTTP/1.1\r\nhost: x\r\n\r\n",
                       i % 8);
        client_say(c, req);
        (void)client_until(c, "\r\n\r\n");
        (void)client_until(w, "\r\n\r\n");
        (void)snprintf(req, sizeof(req), "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"t%d\",\"after\":\"start\"}",
                       i % 8);
        ws_text(w, req);
        if (i % 2)
            (void)ws_expect_text(w);
        client_close(c);
        client_close(w);
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(t[i], NULL);
    struct client *c = client_open(rig);
    client_say(c, "GET /pong HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(c, 200, "ok");
    client_close(c);
}

static void starting_says_what_is_wrong(void **state)
{
    struct mg_http *h = NULL;
    struct mg_err err = {0};
    struct mg_http_opts o = {.listen = "127.0.0.1:0", .threads = 1};
    char taken[32];
    (void)state;
    assert_int_equal(mg_http_start(&o, &h, &err), MG_ECONFIG);
    assert_contains(err.text, "already");
    rig_stop(rig);
    rig = NULL;

    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(any);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, len), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &len), 0);
    (void)snprintf(taken, sizeof(taken), "127.0.0.1:%d", ntohs(any.sin_port));
    o.listen = taken;
    assert_int_equal(mg_http_start(&o, &h, &err), MG_ECONFIG);
    assert_contains(err.text, "another program has the port");
    (void)close(fd);
    o.listen = "nonsense";
    assert_int_equal(mg_http_start(&o, &h, &err), MG_ECONFIG);
    assert_contains(err.text, "HOST:PORT");
    o = (struct mg_http_opts){.listen = "127.0.0.1:0", .tls_cert = "/nonexistent.pem", .tls_key = "/nonexistent.pem"};
    assert_int_equal(mg_http_start(&o, &h, &err), MG_ECONFIG);
    assert_contains(err.text, "/nonexistent.pem");
    rig = rig_start(NULL); /* none of the failures left anything behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(a_kept_connection_serves_request_after_request),
        HTTP_TEST(http_1_0_closes_unless_asked_to_keep),
        HTTP_TEST(slow_headers_and_bodies_get_408_and_a_close),
        HTTP_TEST(a_half_closed_socket_still_gets_its_answers),
        HTTP_TEST(a_client_that_leaves_in_the_middle_costs_nothing),
        HTTP_TEST(draining_tells_streams_and_lets_handlers_end),
        HTTP_TEST(metrics_count_requests_and_streams),
        HTTP_TEST(case_22_threads_publish_while_sockets_come_and_go),
        HTTP_TEST(starting_says_what_is_wrong),
    };
    return RUN(tests);
}
