/* The filtering proxy as an HTTP proxy: tunnels, plain requests in their right form, and what the two well-known
 * ports carry. */
#include "unit.h"

#include <sched.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "support/egress-rig.h"

static void a_tunnel_carries_bytes_both_ways_to_its_ends(void **state)
{
    (void)state;
    net_needed();
    static const char *const to[] = {"ok.test:9000", "OK.Test.:9000", "mixed.test:9000", "rebind.test:9000"};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
        int before = atomic_load(&net_lookups);
        mg_autofd int fd = proxy_tunnel(to[i]);
        net_say(fd, "hello");
        assert_string_equal(proxy_until(fd, "hello", &in), "hello");
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        assert_string_equal(proxy_until(fd, NULL, &in), "hellobye");
        assert_int_equal(atomic_load(&net_lookups) - before, 1); /* what was checked is what was connected to */
    }
    assert_int_equal(atomic_load(&net_forbidden), 0);
}

static void bytes_sent_with_the_request_are_not_lost(void **state)
{
    (void)state;
    net_needed();
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    mg_autofd int fd = proxy_dial_unix(LABEL);
    net_say(fd, "CONNECT ok.test:9000 HTTP/1.1\r\n\r\nat once");
    (void)shutdown(fd, SHUT_WR);
    assert_contains(proxy_until(fd, NULL, &in), "\r\n\r\nat oncebye");
}

static void a_server_that_speaks_first_is_heard(void **state)
{
    (void)state;
    net_needed();
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    mg_autofd int fd = proxy_tunnel("ok.test:22");
    assert_string_equal(proxy_until(fd, "\n", &in), "SSH-2.0-test\r\n");
    net_say(fd, "SSH-2.0-client\r\n");
    assert_contains(proxy_until(fd, "client", &in), "SSH-2.0-client");
}

static void a_plain_request_goes_on_alone_and_in_its_right_form(void **state)
{
    (void)state;
    net_needed();
    static const char request[] =
        "POST http://ok.test/path?q=1 HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: Basic eDp5\r\n"
        "Authorization: Bearer of-the-sandbox\r\nConnection: keep-alive, X-Drop\r\nX-Drop: 1\r\nX-Keep: 2\r\n"
        "Content-Length: 4\r\n\r\nbodyGET http://ok.test/smuggled HTTP/1.1\r\nHost: other.test\r\n\r\n";
    mg_auto(buf) struct mg_buf answer = {0};
    proxy_ask(request, sizeof(request) - 1, &answer);
    assert_contains(answer.ptr, "\r\n\r\nanswer");
    assert_null(strstr(answer.ptr, "vault-secret"));
    assert_string_equal(
        net_seen(),
        "POST /path?q=1 HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\nX-Keep: 2\r\nContent-Length: 4\r\n"
        "Authorization: Bearer vault-secret\r\n\r\nbody");
    assert_int_equal(proxy_log_count("vault-secret"), 0);
}

static void a_chunked_body_ends_where_it_says(void **state)
{
    (void)state;
    net_needed();
    static const char request[] =
        "PUT http://ok.test HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"
        "GET http://ok.test/smuggled HTTP/1.1\r\n\r\n";
    for (size_t first = 1; first < sizeof(request) - 1; first += 13) {
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
        mg_autofd int fd = proxy_dial_unix(LABEL);
        net_send(fd, request, first);
        (void)sched_yield();
        net_send(fd, request + first, sizeof(request) - 1 - first);
        assert_contains(proxy_until(fd, NULL, &in), "answer");
        const char *seen = net_seen();
        assert_contains(seen, "PUT / HTTP/1.1\r\nHost: ok.test\r\n");
        assert_contains(seen, "3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n");
        assert_null(strstr(seen, "smuggled"));
    }
}

static void port_443_carries_tls_and_port_80_the_hosts_own_http(void **state)
{
    (void)state;
    net_needed();
    static const struct {
        const char *to, *bytes, *answer, *reason;
    } cases[] = {
        {"ok.test:443", "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "", "protocol"},
        {"ok.test:443", "\x16\x02junk", "", "protocol"},
        {"ok.test:443", "\x16\x03\x01\x00\x05\x02zzzz", "", "protocol"},
        {"ok.test:80", "GET /x HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", "answer", NULL},
        {"ok.test:80", "GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 403 ", "name"},
        {"ok.test:80", "GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
        {"ok.test:80", "GET http://other.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
        {"ok.test:80", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[64];
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(8192);
        mg_autofd int fd = proxy_tunnel(cases[i].to);
        proxy_log_forget();
        size_t n = i == 2 ? 10 : strlen(cases[i].bytes);
        net_send(fd, cases[i].bytes, n);
        (void)shutdown(fd, SHUT_WR);
        const char *got = proxy_until(fd, NULL, &in);
        (void)snprintf(line, sizeof(line), "reason=%s", cases[i].reason ? cases[i].reason : "");
        if (!strstr(got, cases[i].answer) || (cases[i].reason && proxy_log_count(line) != 1) || strstr(got, "smuggled"))
            fail_msg("case %zu: %s; %s", i, got, proxy_log);
    }
}

static void a_request_without_end_is_refused(void **state)
{
    (void)state;
    net_needed();
    mg_auto(buf) struct mg_buf answer = {0};
    mg_autofree char *endless = mg_xmalloc(100000);
    memset(endless, 'A', 100000);
    proxy_ask(endless, 100000, &answer);
    assert_contains(answer.ptr ? answer.ptr : "", "400 Bad Request");
}

int main(void)
{
    proxy_begin();
    const struct CMUnitTest tests[] = {
        WITH_PROXY(a_tunnel_carries_bytes_both_ways_to_its_ends),
        WITH_PROXY(bytes_sent_with_the_request_are_not_lost),
        WITH_PROXY(a_server_that_speaks_first_is_heard),
        WITH_PROXY(a_plain_request_goes_on_alone_and_in_its_right_form),
        WITH_PROXY(a_chunked_body_ends_where_it_says),
        WITH_PROXY(port_443_carries_tls_and_port_80_the_hosts_own_http),
        WITH_PROXY(a_request_without_end_is_refused),
    };
    return RUN(tests);
}
