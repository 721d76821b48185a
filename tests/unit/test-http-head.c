/* The head of a request as a client on a socket sends it: how requests follow each other, what is ambiguous, too large or not
 * text. Field cases 25 and 26. */
#include "unit.h"

#include <stdlib.h>

#include "base/buf.h"
#include "support/http-client.h"
#include "support/http-rig.h"

static void case_25_two_requests_glued_in_one_segment(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c,
               "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n[1,2]GET /pong HTTP/1.1\r\nhost: x\r\n\r\n"
               "GET /ping HTTP/1.1\r\nhost: x\r\n\r\nPOST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n7");
    client_expect(c, 200, "[1,2]");
    client_expect(c, 200, "ok");
    client_expect(c, 200, "ok");
    client_expect(c, 200, "7");
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
    client_expect(c, 200, "{\"a\":123}");
    client_expect(c, 200, "[1,2]");
    client_expect(c, 200, "param=q");
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
        client_expect(c, 200, "ok");
    mg_buf_done(&b);
    client_close(c);
}

static void case_25_ambiguous_framing_is_refused_and_closed(void **state)
{
    (void)state;
    client_refused(rig,
                   "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                   400, "invalid_request_error", "both", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n[1]", 400,
                   "invalid_request_error", "more than one content-length", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\n[1]", 400,
                   "invalid_request_error", "more than one content-length", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3, 3\r\n\r\n[1]", 400,
                   "invalid_request_error", "one decimal number", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400, "invalid_request_error",
                   "content-length", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 0x10\r\n\r\n", 400, "invalid_request_error",
                   "content-length", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 400,
                   "invalid_request_error", "chunked", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n", 400,
                   "invalid_request_error", "chunked", true);
    client_refused(rig, "POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400,
                   "invalid_request_error", "HTTP/1.0", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length : 3\r\n\r\n[1]", 400, "invalid_request_error",
                   "NAME: VALUE", true);
    client_refused(rig, "POST /echo HTTP/1.1\r\nhost: x\r\nx: y\r\n z\r\n\r\n", 400, "invalid_request_error", "folded",
                   true);
    client_refused(rig, "GET /ping HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", 400, "invalid_request_error", "one host",
                   true);
    client_refused(rig, "GET /ping HTTP/1.1\r\n\r\n", 400, "invalid_request_error", "one host", true);
    client_refused(rig, "GET /ping HTTP/1.1\nhost: x\n\n", 400, "invalid_request_error", "CR LF", true);
    client_refused(rig, "GET /ping HTTP/2.0\r\nhost: x\r\n\r\n", 505, "invalid_request_error", "HTTP/1.1", true);
    client_refused(rig, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "invalid_request_error", "HTTP/1.1", true);
    client_refused(rig, "GET  /ping HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "one space", true);
    client_refused(rig, "\x16\x03\x01\x02", 400, "invalid_request_error", "not an HTTP request", true);
}

static void case_26_headers_that_are_too_large_or_too_many(void **state)
{
    (void)state;
    char *req = filled("GET /ping HTTP/1.1\r\nhost: x\r\nbig: ", 'h', 65536, "\r\n\r\n");
    client_refused(rig, req, 431, "invalid_request_error", "32768", true);
    free(req);
    struct mg_buf b = MG_BUF_INIT(65536);
    (void)mg_buf_str(&b, "GET /ping HTTP/1.1\r\nhost: x\r\n");
    for (int i = 0; i < 300; i++)
        (void)mg_buf_printf(&b, "h%d: v\r\n", i);
    (void)mg_buf_str(&b, "\r\n");
    client_refused(rig, b.ptr, 431, "invalid_request_error", "128", true);
    mg_buf_done(&b);
    /* Without an end: refused as soon as the limit is passed. */
    req = filled("GET /ping HTTP/1.1\r\nhost: x\r\nbig: ", 'h', 40000, "");
    client_refused(rig, req, 431, "invalid_request_error", "32768", true);
    free(req);
}

static void case_26_a_url_of_64_kib(void **state)
{
    (void)state;
    char *req = filled("GET /", 'u', 65536, " HTTP/1.1\r\nhost: x\r\n\r\n");
    client_refused(rig, req, 414, "invalid_request_error", "8192", true);
    free(req);
    req = filled("GET /", 'u', 9000, " HTTP/1.1\r\nhost: x\r\n\r\n");
    client_refused(rig, req, 414, "invalid_request_error", "8192", true);
    free(req);
    req = filled("GET /", 'u', 65536, "");
    client_refused(rig, req, 414, "invalid_request_error", "8192", true);
    free(req);
}

static void case_26_nul_and_slash_in_a_segment(void **state)
{
    (void)state;
    client_refused(rig, "GET /show/a%00b HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "NUL", false);
    client_refused(rig, "GET /show/%zz HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "escape", false);
    client_refused(rig, "GET /show/%ff HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "UTF-8", false);
    client_refused(rig, "GET /show/a?limit=%00 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error", "NUL",
                   false);
    static const char raw_nul[] = "GET /show/a\0b HTTP/1.1\r\nhost: x\r\n\r\n";
    client_refused_bytes(rig, raw_nul, sizeof(raw_nul) - 1, 400, "invalid_request_error", "target", true);
    static const char header_nul[] = "GET /ping HTTP/1.1\r\nhost: x\r\nh: a\0b\r\n\r\n";
    client_refused_bytes(rig, header_nul, sizeof(header_nul) - 1, 400, "invalid_request_error", "control character",
                         true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(case_25_two_requests_glued_in_one_segment),
        HTTP_TEST(case_25_one_byte_a_segment),
        HTTP_TEST(case_25_many_requests_in_one_write),
        HTTP_TEST(case_25_ambiguous_framing_is_refused_and_closed),
        HTTP_TEST(case_26_headers_that_are_too_large_or_too_many),
        HTTP_TEST(case_26_a_url_of_64_kib),
        HTTP_TEST(case_26_nul_and_slash_in_a_segment),
    };
    return RUN(tests);
}
