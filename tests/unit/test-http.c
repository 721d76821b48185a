/* The HTTP server as a client on a socket sees it: field cases 17, 18, 22, 25, 26, and what surrounds them. */
#include "unit.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../support/http-rig.h"
#include "base/buf.h"
#include "base/clock.h"
#include "events/hub.h"

static struct rig *rig;

static int setup(void **state)
{
    (void)state;
    rig = rig_start(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_stop(rig);
    rig = NULL;
    return 0;
}

/* ---- helpers ---- */

static void expect(struct client *c, int status, const char *body_part)
{
    struct answer *a = client_answer(c);
    if (a->status != status || !strstr(a->body, body_part))
        fail_msg("expected %d with \"%s\", got %s%.500s", status, body_part, a->head, a->body);
    assert_non_null(answer_header(a, "request-id"));
    answer_free(a);
}

/* One request on a connection of its own that is refused: status, the error object, a reason, and (close) the end of
 * the connection. */
static void refused(const char *request, size_t n, int status, const char *type, const char *reason, bool closed)
{
    struct client *c = client_open(rig);
    client_send(c, request, n);
    struct answer *a = client_answer(c);
    if (a->status != status)
        fail_msg("expected %d for %.200s..., got %s%s", status, request, a->head, a->body);
    assert_contains(a->body, type);
    assert_contains(a->body, reason);
    assert_contains(a->body, answer_header(a, "request-id"));
    assert_string_equal(answer_header(a, "content-type"), "application/json");
    if (closed) {
        assert_string_equal(answer_header(a, "connection"), "close");
        assert_true(client_ended(c));
    } else { /* the connection is right for the next request */
        client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
        expect(c, 200, "ok");
    }
    answer_free(a);
    client_close(c);
}

#define REFUSED(request, status, type, reason, closed) \
    refused((request), strlen(request), (status), (type), (reason), (closed))

static char *filled(const char *before, char c, size_t n, const char *after)
{
    size_t b = strlen(before), a = strlen(after);
    char *s = malloc(b + n + a + 1);
    assert_non_null(s);
    memcpy(s, before, b);
    memset(s + b, c, n);
    memcpy(s + b + n, after, a + 1);
    return s;
}

static const char POST_ECHO[] = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";

/* The metric is the event that is waited for. */
static void wait_metric(const char *line)
{
    struct mg_buf m = MG_BUF_INIT(65536);
    uint64_t until = mg_now_ns() + RIG_WAIT_S * UINT64_C(1000000000);
    do {
        mg_buf_reset(&m);
        mg_http_metrics(rig_http(rig), &m);
        if (mg_now_ns() > until)
            fail_msg("%s never came: %s", line, m.ptr);
        (void)sched_yield();
    } while (!strstr(m.ptr, line));
    mg_buf_done(&m);
}

/* ---- plain requests ---- */

static void a_kept_connection_serves_request_after_request(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    for (int i = 0; i < 20; i++) {
        client_say(c, i % 2 ? "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n" : "GET /pong HTTP/1.1\r\nhost: x\r\n\r\n");
        expect(c, 200, "{\"ok\":true}");
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
    expect(c, 200, "ok");
    assert_true(client_ended(c));
    client_close(c);
}

static void head_has_the_length_and_no_body(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "HEAD /pong HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_contains(client_until(c, "\r\n\r\n"), "content-length: 11");
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(c, 200, "ok");
    client_close(c);
}

static void every_result_code_has_its_status_and_type(void **state)
{
    static const struct {
        mg_rc rc;
        int status;
        const char *type;
    } table[] = {
        {MG_EINVAL, 400, "invalid_request_error"}, {MG_EAUTH, 401, "authentication_error"},
        {MG_EDENIED, 403, "permission_error"},     {MG_ENOTFOUND, 404, "not_found_error"},
        {MG_ECONFLICT, 409, "conflict_error"},     {MG_EPRECOND, 412, "invalid_request_error"},
        {MG_ETOOBIG, 413, "request_too_large"},    {MG_ERATE, 429, "rate_limit_error"},
        {MG_EUNAVAIL, 503, "api_error"},           {MG_ETIMEOUT, 504, "timeout_error"},
        {MG_EINTERNAL, 500, "api_error"},          {MG_EMEDIA, 415, "invalid_request_error"},
    };
    struct client *c = client_open(rig);
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char req[128];
        (void)snprintf(req, sizeof(req), "GET /fail/%d HTTP/1.1\r\nhost: x\r\n\r\n", -table[i].rc);
        client_say(c, req);
        struct answer *a = client_answer(c);
        assert_int_equal(a->status, table[i].status);
        assert_contains(a->body, table[i].type);
        assert_contains(a->body, "\"message\":\"it \\\"failed\\\"\"");
        assert_contains(a->body, "\"details\":{\"error_code\":\"some_code\"}");
        const char *retry = answer_header(a, "x-should-retry");
        if (table[i].rc == MG_ECONFLICT || table[i].rc == MG_EINVAL)
            assert_string_equal(retry, "false");
        else
            assert_null(retry);
        answer_free(a);
    }
    client_close(c);
}

static void routes_queries_and_methods_are_checked(void **state)
{
    (void)state;
    REFUSED("GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found_error", "no endpoint", false);
    REFUSED("DELETE /ping HTTP/1.1\r\nhost: x\r\n\r\n", 405, "invalid_request_error", "GET, HEAD", false);
    REFUSED("BREW /ping HTTP/1.1\r\nhost: x\r\n\r\n", 405, "invalid_request_error", "GET, HEAD", false);
    REFUSED("GET /show/a?limt=1 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error",
            "limit, statuses, created_at[gte]", false);
    REFUSED("GET /private HTTP/1.1\r\nhost: x\r\n\r\n", 401, "authentication_error", "x-api-key", false);
    struct client *c = client_open(rig);
    client_say(c, "GET /show/a%2Fb?beta=true&statuses%5B%5D=x+y&limit=5 HTTP/1.1\r\nhost: x\r\nanthropic-beta: one\r\n"
                  "Anthropic-Beta: two,three\r\n\r\n");
    expect(c, 200, "param=a/b statuses[]=x y limit=5 beta=one,two,three");
    client_say(c, "GET http://other/private HTTP/1.1\r\nhost: x\r\nX-API-Key: k1\r\n\r\n");
    expect(c, 200, "ok");
    client_close(c);
}

static void a_large_answer_arrives_whole_and_a_slow_reader_gets_it_too(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "GET /large HTTP/1.1\r\nhost: x\r\n\r\nGET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    struct answer *a = client_answer(c);
    assert_int_equal(a->len, 4 * 1024 * 1024);
    for (size_t i = 0; i < a->len; i += 16)
        assert_memory_equal(a->body + i, "0123456789abcdef", 16);
    answer_free(a);
    expect(c, 200, "ok");
    client_close(c);
}

/* ---- case 25 ---- */

static void case_25_two_requests_glued_in_one_segment(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c,
               "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n[1,2]GET /pong HTTP/1.1\r\nhost: x\r\n\r\n"
               "GET /ping HTTP/1.1\r\nhost: x\r\n\r\nPOST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n7");
    expect(c, 200, "[1,2]");
    expect(c, 200, "ok");
    expect(c, 200, "ok");
    expect(c, 200, "7");
    client_close(c);
}

static void case_25_one_byte_a_segment(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_drip(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"a\":123}"
                   "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: "
                   "chunked\r\n\r\n4;x=y\r\n[1,2\r\n1\r\n]\r\n0\r\nt: u\r\n\r\n"
                   "GET /show/q HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(c, 200, "{\"a\":123}");
    expect(c, 200, "[1,2]");
    expect(c, 200, "param=q");
    client_close(c);
}

static void case_25_many_requests_in_one_write(void **state)
{
    enum { N = 3000 };
    struct mg_buf b = MG_BUF_INIT(1024 * 1024);
    struct client *c = client_open(rig);
    (void)state;
    for (int i = 0; i < N; i++)
        (void)mg_buf_printf(&b, "GET /%s HTTP/1.1\r\nhost: x\r\n\r\n", i % 10 ? "ping" : "pong");
    client_send(c, b.ptr, b.len);
    for (int i = 0; i < N; i++)
        expect(c, 200, "ok");
    mg_buf_done(&b);
    client_close(c);
}

static void case_25_a_body_of_5_mib_in_one_write(void **state)
{
    char *req = filled("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5242880\r\n\r\n", 'x', 5242880, "");
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, req);
    struct answer *a = client_answer(c);
    assert_int_equal(a->status, 200);
    assert_int_equal(a->len, 5242880);
    assert_memory_equal(a->body, req + strlen(req) - 5242880, 5242880);
    answer_free(a);
    free(req);
    client_close(c);
}

static void case_25_expect_100_continue(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, POST_ECHO);
    client_say(c, "expect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    assert_string_equal(client_until(c, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client_say(c, "[9]");
    expect(c, 200, "[9]");
    client_close(c);
    /* Refused at once: the body is never asked for. */
    REFUSED("POST /small HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2000\r\n\r\n", 413,
            "request_too_large", "1000", true);
    REFUSED("POST /nowhere HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 20\r\n\r\n", 404,
            "not_found_error", "", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\nexpect: magic\r\ncontent-length: 2\r\n\r\n[]", 417,
            "invalid_request_error", "100-continue", true);
}

static void case_25_ambiguous_framing_is_refused_and_closed(void **state)
{
    (void)state;
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400,
            "invalid_request_error", "both", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n[1]", 400,
            "invalid_request_error", "more than one content-length", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\n[1]", 400,
            "invalid_request_error", "more than one content-length", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3, 3\r\n\r\n[1]", 400, "invalid_request_error",
            "one decimal number", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400, "invalid_request_error",
            "content-length", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 0x10\r\n\r\n", 400, "invalid_request_error",
            "content-length", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 400, "invalid_request_error",
            "chunked", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n", 400, "invalid_request_error",
            "chunked", true);
    REFUSED("POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_request_error",
            "HTTP/1.0", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length : 3\r\n\r\n[1]", 400, "invalid_request_error",
            "NAME: VALUE", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\nx: y\r\n z\r\n\r\n", 400, "invalid_request_error", "folded", true);
    REFUSED("GET /ping HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400, "invalid_request_error", "one host", true);
    REFUSED("GET /ping HTTP/1.1\r\n\r\n", 400, "invalid_request_error", "one host", true);
    REFUSED("GET /ping HTTP/1.1\nhost: x\n\n", 400, "invalid_request_error", "CR LF", true);
    REFUSED("GET /ping HTTP/2.0\r\nhost: x\r\n\r\n", 505, "invalid_request_error", "HTTP/1.1", true);
    REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "invalid_request_error", "HTTP/1.1", true);
    REFUSED("GET  /ping HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "one space", true);
    REFUSED("\x16\x03\x01\x02", 400, "invalid_request_error", "not an HTTP request", true);
}

static void case_25_malformed_chunks_are_refused_and_closed(void **state)
{
    static const char *const bodies[] = {"x\r\n",
                                         "\r\n",
                                         "3\n[1]\r\n0\r\n\r\n",
                                         "3\r\n[1]x\r\n",
                                         "-3\r\n[1]\r\n",
                                         "1000000000000000\r\n",
                                         "3\r\n[1]\r\n0\r\nt\n\r\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        char req[256];
        (void)snprintf(req, sizeof(req), "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%s",
                       bodies[i]);
        REFUSED(req, 400, "invalid_request_error", "chunked encoding", true);
    }
}

static void case_25_bodies_over_the_limit_are_refused_before_they_are_kept(void **state)
{
    (void)state;
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 8388609\r\n\r\n", 413, "request_too_large", "8388608",
            true);
    REFUSED("POST /small HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n", 413, "request_too_large",
            "1000", true);
    /* The whole of a large body arrives; the refusal is still read, not reset away. */
    char *req = filled("POST /small HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n", 'x', 3000000, "");
    REFUSED(req, 413, "request_too_large", "1000", true);
    free(req);
}

/* ---- case 26 ---- */

static void case_26_headers_that_are_too_large_or_too_many(void **state)
{
    (void)state;
    char *req = filled("GET /ping HTTP/1.1\r\nhost: x\r\nbig: ", 'h', 65536, "\r\n\r\n");
    REFUSED(req, 431, "invalid_request_error", "32768", true);
    free(req);
    struct mg_buf b = MG_BUF_INIT(65536);
    (void)mg_buf_str(&b, "GET /ping HTTP/1.1\r\nhost: x\r\n");
    for (int i = 0; i < 300; i++)
        (void)mg_buf_printf(&b, "h%d: v\r\n", i);
    (void)mg_buf_str(&b, "\r\n");
    REFUSED(b.ptr, 431, "invalid_request_error", "128", true);
    mg_buf_done(&b);
    /* Without an end: refused as soon as the limit is passed. */
    req = filled("GET /ping HTTP/1.1\r\nhost: x\r\nbig: ", 'h', 40000, "");
    REFUSED(req, 431, "invalid_request_error", "32768", true);
    free(req);
}

static void case_26_a_url_of_64_kib(void **state)
{
    (void)state;
    char *req = filled("GET /", 'u', 65536, " HTTP/1.1\r\nhost: x\r\n\r\n");
    REFUSED(req, 414, "invalid_request_error", "8192", true);
    free(req);
    req = filled("GET /", 'u', 9000, " HTTP/1.1\r\nhost: x\r\n\r\n");
    REFUSED(req, 414, "invalid_request_error", "8192", true);
    free(req);
    req = filled("GET /", 'u', 65536, "");
    REFUSED(req, 414, "invalid_request_error", "8192", true);
    free(req);
}

static void case_26_nul_and_slash_in_a_segment(void **state)
{
    (void)state;
    REFUSED("GET /show/a%00b HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "NUL", false);
    REFUSED("GET /show/%zz HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "escape", false);
    REFUSED("GET /show/%ff HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "UTF-8", false);
    REFUSED("GET /show/a?limit=%00 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "NUL", false);
    static const char raw_nul[] = "GET /show/a\0b HTTP/1.1\r\nhost: x\r\n\r\n";
    refused(raw_nul, sizeof(raw_nul) - 1, 400, "invalid_request_error", "target", true);
    static const char header_nul[] = "GET /ping HTTP/1.1\r\nhost: x\r\nh: a\0b\r\n\r\n";
    refused(header_nul, sizeof(header_nul) - 1, 400, "invalid_request_error", "control character", true);
}

static void case_26_bodies_reach_the_handler_as_they_came(void **state)
{
    static const char nul_body[] = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\na\0b";
    struct client *c = client_open(rig);
    (void)state;
    client_send(c, nul_body, sizeof(nul_body) - 1);
    struct answer *a = client_answer(c);
    assert_int_equal(a->len, 3);
    assert_memory_equal(a->body, "a\0b", 3);
    answer_free(a);
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\ncontent-type: text/plain\r\n\r\n");
    expect(c, 200, "");
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(c, 200, "");
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n\xef\xbb\xbf{}");
    expect(c, 200, "\xef\xbb\xbf{}");
    client_close(c);
}

static void case_26_a_wrong_content_type_counts_only_with_a_body(void **state)
{
    (void)state;
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}", 415,
            "invalid_request_error", "application/json", false);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ntransfer-encoding: "
            "chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            415, "invalid_request_error", "application/json", false);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", 400,
            "request_body_encoding_unsupported", "compressed", false);
    struct client *c = client_open(rig);
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: Application/JSON; charset=utf-8\r\ncontent-length: "
                  "2\r\n\r\n{}");
    expect(c, 200, "{}");
    client_say(c, "POST /any HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi");
    expect(c, 200, "hi");
    client_close(c);
}

static void a_refused_body_is_dropped_and_the_connection_goes_on(void **state)
{
    char *req = filled("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n", 'x', 500000, "");
    (void)state;
    REFUSED(req, 404, "not_found_error", "", false);
    free(req);
}

/* ---- slow and half-closed peers ---- */

static void slow_headers_and_bodies_get_408_and_a_close(void **state)
{
    const struct mg_http_limits limits = {.header_ms = 600, .body_idle_ms = 600, .idle_ms = 600};
    (void)state;
    rig_stop(rig);
    rig = rig_start(&limits);
    REFUSED("GET /ping HTTP/1.1\r\nhost: x\r\n", 408, "timeout_error", "headers", true);
    REFUSED("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n123", 408, "timeout_error", "body", true);
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
    expect(c, 200, "ok");
    expect(c, 200, "1");
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
    expect(c, 200, "ok");
    client_close(c);
}

static void all_bodies_together_have_a_limit(void **state)
{
    const struct mg_http_limits limits = {.bodies_max = 100000};
    (void)state;
    rig_stop(rig);
    rig = rig_start(&limits);
    struct client *first = client_open(rig);
    char *req = filled("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 90001\r\n\r\n", 'x', 90000, "");
    client_say(first, req);
    free(req);
    wait_metric("mango_http_body_bytes 90000\n");
    struct client *c = client_open(rig);
    req = filled("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n", 'x', 60000, "");
    client_say(c, req);
    free(req);
    struct answer *a = client_answer(c);
    assert_int_equal(a->status, 503);
    assert_string_equal(answer_header(a, "retry-after"), "1");
    answer_free(a);
    client_close(c);
    client_say(first, "x");
    expect(first, 200, "xxx");
    client_close(first);
}

/* ---- event streams ---- */

static struct client *stream_open(const char *query, const char *headers)
{
    char req[512];
    struct client *c = client_open(rig);
    (void)snprintf(req, sizeof(req), "GET /v1/sessions/s1/events/stream%s HTTP/1.1\r\nhost: x\r\n%s\r\n", query,
                   headers);
    client_say(c, req);
    return c;
}

static void case_17_the_head_of_a_stream_comes_at_once_and_forbids_buffering(void **state)
{
    struct client *c = stream_open("", "");
    (void)state;
    const char *head = client_until(c, "\r\n\r\n"); /* no event has happened */
    assert_contains(head, "HTTP/1.1 200 OK\r\n");
    assert_contains(head, "content-type: text/event-stream\r\n");
    assert_contains(head, "cache-control: no-cache, no-transform\r\n");
    assert_contains(head, "x-accel-buffering: no\r\n");
    assert_null(strstr(head, "content-length"));
    assert_contains(head, "content-encoding: identity\r\n"); /* so that no proxy compresses it */
    rig_event(rig, "s1", "agent.message", "{\"id\":\"a\",\n \"type\":\"agent.message\"}");
    assert_contains(client_until(c, "\n\n"),
                    "event: agent.message\nid: sevt_s1_1\ndata: {\"id\":\"a\",  \"type\":\"agent.message\"}\n\n");
    client_close(c);
}

static void case_17_http_1_0_and_head_are_refused_clearly(void **state)
{
    (void)state;
    REFUSED("GET /v1/sessions/s1/events/stream HTTP/1.0\r\n\r\n", 400, "invalid_request_error", "HTTP/1.1", true);
    struct client *c = client_open(rig);
    client_say(c, "HEAD /v1/sessions/s1/events/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_contains(client_until(c, "\r\n\r\n"), "405");
    client_close(c);
}

static void a_stream_resumes_behind_the_last_id_and_goes_on_live(void **state)
{
    char json[64], want[128];
    (void)state;
    for (int i = 1; i <= 700; i++) {
        (void)snprintf(json, sizeof(json), "{\"n\":%d}", i);
        rig_event_quietly(rig, "s1", "agent.message", json);
    }
    struct client *c = stream_open("", "last-event-id: sevt_s1_3\r\n");
    (void)client_until(c, "\r\n\r\n");
    for (int i = 4; i <= 900; i++) {
        if (i >= 700 && i < 900) {
            (void)snprintf(json, sizeof(json), "{\"n\":%d}", i + 1);
            rig_event(rig, "s1", "agent.message", json);
        }
        (void)snprintf(want, sizeof(want), "event: agent.message\nid: sevt_s1_%d\ndata: {\"n\":%d}\n\n", i, i);
        assert_contains(client_until(c, "\n\n"), want);
    }
    client_close(c);
}

static void case_16_a_resume_id_that_cannot_be_honoured_is_an_error(void **state)
{
    (void)state;
    REFUSED("GET /v1/sessions/s1/events/stream?after=sevt_s2_1 HTTP/1.1\r\nhost: x\r\n\r\n", 400,
            "invalid_request_error", "after", false);
    REFUSED("GET /v1/sessions/missing/events/stream HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found_error", "missing",
            false);
}

static void the_end_of_a_session_ends_its_streams(void **state)
{
    (void)state;
    struct client *c = stream_open("", "");
    (void)client_until(c, "\r\n\r\n");
    rig_event(rig, "s1", "session.deleted", "{}");
    rig_event(rig, "s1", "agent.message", "{}");
    assert_contains(client_until(c, "\r\n0\r\n\r\n"), "event: session.deleted\n");
    assert_true(client_ended(c));
    client_close(c);
    c = client_open(rig);
    client_say(c, "GET /v1/sessions/s2/events/stream?types=agent.message HTTP/1.1\r\nhost: x\r\n\r\n");
    (void)client_until(c, "\r\n\r\n");
    rig_event(rig, "s2", "user.message", "{\"no\":1}");
    rig_event(rig, "s2", "agent.message", "{\"yes\":1}");
    rig_event(rig, "s2", "session.status_terminated", "{}");
    const char *all = client_until(c, "0\r\n\r\n");
    assert_contains(all, "{\"yes\":1}");
    assert_null(strstr(all, "{\"no\":1}"));
    assert_true(client_ended(c));
    client_close(c);
}

static void previews_have_no_id_and_come_only_when_asked_for(void **state)
{
    struct mg_id s1;
    (void)state;
    (void)mg_id_from(MG_SV("s1"), &s1);
    struct client *with = stream_open("?event_deltas%5B%5D=agent.message", ""), *without = stream_open("", "");
    (void)client_until(with, "\r\n\r\n");
    (void)client_until(without, "\r\n\r\n");
    rig_event(rig, "s1", "user.message", "{\"first\":1}"); /* both are certainly subscribed when it has come */
    (void)client_until(with, "\"first\":1}\n\n");
    struct mg_event *e =
        mg_event_new(0, MG_SV("sevt_s1_2"), MG_SV("event_start"), MG_SV(""), MG_SV("{\"type\":\"event_start\"}"));
    e->preview = 1;
    mg_hub_preview(rig_hub(rig), &s1, e);
    assert_contains(client_until(with, "\n\n"), "event: event_start\ndata: {\"type\":\"event_start\"}\n\n");
    rig_event(rig, "s1", "agent.message", "{\"final\":1}");
    assert_contains(client_until(with, "\n\n"), "\"final\":1");
    assert_null(strstr(client_until(without, "\"final\":1}\n\n"), "event_start"));
    client_close(with);
    client_close(without);
}

static void an_event_of_3_mib_arrives_whole(void **state)
{
    char *json = filled("{\"t\":\"", 'z', 3 * 1024 * 1024, "\"}");
    (void)state;
    struct client *first = stream_open("", ""), *c = stream_open("?after=start", "");
    (void)client_until(first, "\r\n\r\n");
    rig_event(rig, "s1", "agent.message", json);
    rig_event(rig, "s1", "session.deleted", "{}");
    struct answer *a = client_answer(c); /* chunks joined, up to the last one */
    assert_contains(a->body, json);
    assert_contains(a->body, "\"}\n\nevent: session.deleted");
    answer_free(a);
    client_close(first);
    free(json);
    client_close(c);
}

static void case_18_something_is_sent_on_an_idle_stream(void **state)
{
    const struct mg_http_limits limits = {.keepalive_ms = 1000};
    (void)state;
    rig_stop(rig);
    rig = rig_start(&limits);
    struct client *c = stream_open("", "");
    (void)client_until(c, "\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        uint64_t before = mg_now_ns();
        assert_contains(client_until(c, "\n\n"), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        assert_true(mg_now_ns() - before < UINT64_C(1900000000)); /* an interval and what a busy machine may add */
    }
    client_close(c);
}

static void case_21_a_reader_that_takes_nothing_is_closed(void **state)
{
    const struct mg_http_limits limits = {.send_ms = 1000};
    char *json = filled("{\"t\":\"", 'z', 100000, "\"}");
    (void)state;
    rig_stop(rig);
    rig = rig_start(&limits);
    struct client *slow = stream_open("", ""), *fast = stream_open("", "");
    (void)client_until(slow, "\r\n\r\n");
    (void)client_until(fast, "\r\n\r\n");
    for (int i = 0; i < 200; i++) { /* 20 MB: more than the socket buffers take */
        rig_event(rig, "s1", "agent.message", json);
        char id[64];
        (void)snprintf(id, sizeof(id), "id: sevt_s1_%d\n", i + 1);
        (void)client_until(fast, id);
        (void)client_until(fast, "\n\n");
    }
    wait_metric("mango_stream_slow_closed_total 1\n");
    wait_metric("mango_sse_streams 1\n");
    free(json);
    client_close(slow);
    client_close(fast);
}

/* ---- drain, metrics, threads ---- */

static void *drain_thread(void *arg)
{
    mg_http_drain(rig_http(arg), 10000);
    return NULL;
}

static void draining_tells_streams_and_lets_handlers_end(void **state)
{
    pthread_t t;
    (void)state;
    struct client *held = client_open(rig), *idle = client_open(rig), *stream = stream_open("", "");
    client_say(held, "GET /hold HTTP/1.1\r\nhost: x\r\n\r\n");
    client_say(idle, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(idle, 200, "ok");
    (void)client_until(stream, "\r\n\r\n");
    rig_held(rig, 1);
    assert_int_equal(pthread_create(&t, NULL, drain_thread, rig), 0);
    assert_contains(client_until(stream, "0\r\n\r\n"), ": the server is restarting");
    assert_true(client_ended(stream));
    assert_true(client_ended(idle));
    rig_release(rig);
    expect(held, 200, "held");
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
    struct client *c = client_open(rig), *s = stream_open("", "");
    (void)client_until(s, "\r\n\r\n");
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(c, 200, "ok");
    expect(c, 404, "");
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
    expect(c, 200, "ok");
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

/* ---- TLS ---- */

static size_t collect(char *p, size_t size, size_t n, void *to)
{
    return mg_buf_append(to, p, size * n) < 0 ? 0 : size * n;
}

/* Two requests on one connection of a client that would rather have HTTP/2. */
static void https_request(CURL *curl, const char *path, const char *body, const char *want)
{
    mg_auto(buf) struct mg_buf got = MG_BUF_INIT(16 * 1024 * 1024);
    char url[128];
    long version = 0, status = 0;
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%d%s", rig_port(rig), path);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)RIG_WAIT_S);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &got);
    if (body) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    CURLcode rc = curl_easy_perform(curl);
    if (rc != CURLE_OK)
        fail_msg("%s: %s", url, curl_easy_strerror(rc));
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(curl, CURLINFO_HTTP_VERSION, &version);
    assert_int_equal(status, 200);
    assert_int_equal(version, CURL_HTTP_VERSION_1_1);
    assert_sv_equal(mg_buf_view(&got), want);
}

static void tls_serves_the_same_answers(void **state)
{
    char dir[] = "/tmp/mango-tls-XXXXXX", cert[64], key[64], cmd[512];
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(cert, sizeof(cert), "%s/c.pem", dir);
    (void)snprintf(key, sizeof(key), "%s/k.pem", dir);
    (void)snprintf(
        cmd, sizeof(cmd),
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s -out %s -days 2 -subj "
        "/CN=localhost >/dev/null 2>&1",
        key, cert);
    if (system(cmd) != 0)
        skip(); /* no openssl program to make a certificate with */
    rig_stop(rig);
    rig = rig_start_tls(cert, key);
    char *body = filled("\"", 'x', 3000000, "\"");
    CURL *curl = curl_easy_init();
    assert_non_null(curl);
    https_request(curl, "/pong", NULL, "{\"ok\":true}");
    struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/json");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    https_request(curl, "/echo", body, body);
    long connects = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &connects);
    assert_int_equal(connects, 0); /* the first one's connection was kept */
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(body);
    (void)unlink(cert);
    (void)unlink(key);
    (void)rmdir(dir);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_kept_connection_serves_request_after_request),
        T(http_1_0_closes_unless_asked_to_keep),
        T(head_has_the_length_and_no_body),
        T(every_result_code_has_its_status_and_type),
        T(routes_queries_and_methods_are_checked),
        T(a_large_answer_arrives_whole_and_a_slow_reader_gets_it_too),
        T(case_25_two_requests_glued_in_one_segment),
        T(case_25_one_byte_a_segment),
        T(case_25_many_requests_in_one_write),
        T(case_25_a_body_of_5_mib_in_one_write),
        T(case_25_expect_100_continue),
        T(case_25_ambiguous_framing_is_refused_and_closed),
        T(case_25_malformed_chunks_are_refused_and_closed),
        T(case_25_bodies_over_the_limit_are_refused_before_they_are_kept),
        T(case_26_headers_that_are_too_large_or_too_many),
        T(case_26_a_url_of_64_kib),
        T(case_26_nul_and_slash_in_a_segment),
        T(case_26_bodies_reach_the_handler_as_they_came),
        T(case_26_a_wrong_content_type_counts_only_with_a_body),
        T(a_refused_body_is_dropped_and_the_connection_goes_on),
        T(slow_headers_and_bodies_get_408_and_a_close),
        T(a_half_closed_socket_still_gets_its_answers),
        T(a_client_that_leaves_in_the_middle_costs_nothing),
        T(all_bodies_together_have_a_limit),
        T(case_17_the_head_of_a_stream_comes_at_once_and_forbids_buffering),
        T(case_17_http_1_0_and_head_are_refused_clearly),
        T(a_stream_resumes_behind_the_last_id_and_goes_on_live),
        T(case_16_a_resume_id_that_cannot_be_honoured_is_an_error),
        T(the_end_of_a_session_ends_its_streams),
        T(previews_have_no_id_and_come_only_when_asked_for),
        T(an_event_of_3_mib_arrives_whole),
        T(case_18_something_is_sent_on_an_idle_stream),
        T(case_21_a_reader_that_takes_nothing_is_closed),
        T(draining_tells_streams_and_lets_handlers_end),
        T(metrics_count_requests_and_streams),
        T(case_22_threads_publish_while_sockets_come_and_go),
        T(starting_says_what_is_wrong),
        T(tls_serves_the_same_answers),
    };
    return RUN(tests);
}
