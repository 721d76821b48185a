/* The body of a request: its length or its chunks, its type, its limits. Field cases 25 and 26. */
#include "unit.h"

#include <stdlib.h>

#include "support/http-client.h"
#include "support/http-rig.h"

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
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    client_say(c, "expect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    assert_string_equal(client_until(c, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client_say(c, "[9]");
    client_expect(c, 200, "[9]");
    client_close(c);
    /* Refused at once: the body is never asked for. */
    client_refused(rig, "POST /small HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2000\r\n\r\n", 413,
                   "request_too_large", "1000", true);
    client_refused(rig, "POST /nowhere HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 20\r\n\r\n", 404,
                   "not_found_error", "", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\nexpect: magic\r\ncontent-length: 2\r\n\r\n[]", 417,
                   "invalid_request_error", "100-continue", true);
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
        client_refused(rig, req, 400, "invalid_request_error", "chunked encoding", true);
    }
}

static void case_25_bodies_over_the_limit_are_refused_before_they_are_kept(void **state)
{
    (void)state;
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 8388609\r\n\r\n", 413, "request_too_large",
                   "8388608", true);
    client_refused(rig, "POST /small HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n", 413,
                   "request_too_large", "1000", true);
    /* The whole of a large body arrives; the refusal is still read, not reset away. */
    char *req = filled("POST /small HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n", 'x', 3000000, "");
    client_refused(rig, req, 413, "request_too_large", "1000", true);
    free(req);
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
    client_expect(c, 200, "");
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(c, 200, "");
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n\xef\xbb\xbf{}");
    client_expect(c, 200, "\xef\xbb\xbf{}");
    client_close(c);
}

static void case_26_a_wrong_content_type_counts_only_with_a_body(void **state)
{
    (void)state;
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}",
                   415, "invalid_request_error", "application/json", false);
    client_refused(rig,
                   "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ntransfer-encoding: "
                   "chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
                   415, "invalid_request_error", "application/json", false);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}", 400,
                   "request_body_encoding_unsupported", "compressed", false);
    struct client *c = client_open(rig);
    client_say(c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: Application/JSON; charset=utf-8\r\ncontent-length: "
                  "2\r\n\r\n{}");
    client_expect(c, 200, "{}");
    client_say(c, "POST /any HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi");
    client_expect(c, 200, "hi");
    client_close(c);
}

static void a_refused_body_is_dropped_and_the_connection_goes_on(void **state)
{
    char *req = filled("POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 500000\r\n\r\n", 'x', 500000, "");
    (void)state;
    client_refused(rig, req, 404, "not_found_error", "", false);
    free(req);
}

static void all_bodies_together_have_a_limit(void **state)
{
    const struct mg_http_limits limits = {.bodies_max = 100000};
    (void)state;
    http_restart(&limits);
    struct client *first = client_open(rig);
    char *req = filled("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 90001\r\n\r\n", 'x', 90000, "");
    client_say(first, req);
    free(req);
    rig_wait_metric(rig, "mango_http_body_bytes 90000\n");
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
    client_expect(first, 200, "xxx");
    client_close(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(case_25_a_body_of_5_mib_in_one_write),
        HTTP_TEST(case_25_expect_100_continue),
        HTTP_TEST(case_25_malformed_chunks_are_refused_and_closed),
        HTTP_TEST(case_25_bodies_over_the_limit_are_refused_before_they_are_kept),
        HTTP_TEST(case_26_bodies_reach_the_handler_as_they_came),
        HTTP_TEST(case_26_a_wrong_content_type_counts_only_with_a_body),
        HTTP_TEST(a_refused_body_is_dropped_and_the_connection_goes_on),
        HTTP_TEST(all_bodies_together_have_a_limit),
    };
    return RUN(tests);
}
