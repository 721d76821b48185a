/* What the filtering proxy refuses, says in its log and counts, and how much of it one sandbox can have. Field case
 * 95. */
#include "unit.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "support/egress-rig.h"

static void case_95_each_refusal_has_its_answer_and_its_line(void **state)
{
    (void)state;
    net_needed();
    static const struct {
        const char *request, *status, *reason, *host;
    } cases[] = {
        {"CONNECT other.test:443 HTTP/1.1\r\n\r\n", "403", "host", "other.test"},
        {"CONNECT notok.test:443 HTTP/1.1\r\n\r\n", "403", "host", "notok.test"},
        {"CONNECT x.ok.test:443 HTTP/1.1\r\n\r\n", "403", "host", "x.ok.test"},
        {"CONNECT wild.test:443 HTTP/1.1\r\n\r\n", "403", "host", "wild.test"},
        {"CONNECT ok.test.evil.test:443 HTTP/1.1\r\n\r\n", "403", "host", "ok.test.evil.test"},
        {"CONNECT " PUBLIC ":443 HTTP/1.1\r\n\r\n", "403", "host", PUBLIC}, /* an address of an allowed name */
        {"CONNECT " METADATA ":80 HTTP/1.1\r\n\r\n", "403", "host", METADATA},
        {"CONNECT 127.0.0.1:9000 HTTP/1.1\r\n\r\n", "403", "host", "127.0.0.1"},
        {"CONNECT [::1]:9000 HTTP/1.1\r\n\r\n", "403", "host", "::1"},
        {"CONNECT [::ffff:10.1.2.3]:80 HTTP/1.1\r\n\r\n", "403", "host", "::ffff:10.1.2.3"},
        {"GET http://other.test/secret/path?token=t HTTP/1.1\r\nHost: ok.test\r\n\r\n", "403", "host", "other.test"},
        {"CONNECT ok.test:25 HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"CONNECT ok.test:8080 HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"GET http://ok.test:8080/ HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"GET http://ok.test:443/ HTTP/1.1\r\n\r\n", "400", "protocol", "ok.test"},
        {"CONNECT private.test:80 HTTP/1.1\r\n\r\n", "403", "address", "private.test"},
        {"GET http://meta.test/latest/meta-data HTTP/1.1\r\n\r\n", "403", "address", "meta.test"},
        {"CONNECT loop.test:80 HTTP/1.1\r\n\r\n", "403", "address", "loop.test"},
        {"CONNECT mapped.test:80 HTTP/1.1\r\n\r\n", "403", "address", "mapped.test"},
        {"CONNECT missing.test:443 HTTP/1.1\r\n\r\n", "502", "resolve", "missing.test"},
        {"CONNECT closed.test:9 HTTP/1.1\r\n\r\n", "502", "connect", "closed.test"},
        {"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "400", "protocol", ""},
        {"GET https://ok.test/ HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"GET http://u:p@ok.test/ HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test:0 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test:99999 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400", "protocol", ""},
        {"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400", "protocol",
         ""},
        {"POST http://ok.test/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/\x01 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/ HTTP/3\r\n\r\n", "400", "protocol", ""},
        {"nonsense\r\n\r\n", "400", "protocol", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char status[32], line[512];
        mg_auto(buf) struct mg_buf answer = {0};
        proxy_log_forget();
        proxy_ask(cases[i].request, strlen(cases[i].request), &answer);
        (void)snprintf(status, sizeof(status), "HTTP/1.1 %s ", cases[i].status);
        (void)snprintf(line, sizeof(line), " reason=%s", cases[i].reason);
        if (!answer.ptr || !strstr(answer.ptr, status) || proxy_log_count(line) != 1 ||
            proxy_log_count("egress refused") != 1)
            fail_msg("%s: %s; %s", cases[i].request, answer.ptr ? answer.ptr : "", proxy_log);
        assert_contains(answer.ptr, "X-Proxy-Error: blocked-by-mango");
        (void)snprintf(line, sizeof(line), "host=%s", cases[i].host);
        assert_int_equal(proxy_log_count("session=session_1") + (proxy_log_count(line) > 0), 2);
        assert_int_equal(proxy_log_count("secret"), 0); /* neither path nor query */
        assert_int_equal(proxy_log_count("latest"), 0);
    }
    assert_int_equal(atomic_load(&net_forbidden), 0);
}

static void a_flood_of_refusals_is_not_a_flood_of_lines(void **state)
{
    (void)state;
    net_needed();
    for (int i = 0; i < 300; i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        proxy_ask("CONNECT other.test:443 HTTP/1.1\r\n\r\n", 35, &answer);
    }
    assert_true(proxy_log_count("egress refused") >= 100);
    assert_true(proxy_log_count("egress refused") < 250);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(65536);
    mg_egress_metrics(proxy, &out);
    assert_contains(out.ptr, "mango_egress_refused_total{reason=\"host\"} 300\n");
    assert_contains(out.ptr, "mango_egress_doors 1\n");
}

static void a_sandbox_that_says_nothing_is_not_waited_for(void **state)
{
    (void)state;
    net_needed();
    char p[64];
    static const char *const starts[] = {"", "CONN", "\5", "CONNECT ok.test:443 HTTP/1.1\r\n\r\n",
                                         "CONNECT ok.test:80 HTTP/1.1\r\n\r\nGET "};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        uint64_t since = mg_now_ns();
        mg_autofd int fd = proxy_dial_unix(LABEL);
        net_say(fd, starts[i]);
        while (net_read(fd, p, sizeof(p)) > 0)
            continue;
        assert_true(mg_now_ns() - since < 10000000000u);
    }
}

static void a_sandbox_has_so_many_connections_at_a_time(void **state)
{
    (void)state;
    net_needed();
    int fds[MG_EGRESS_DOOR_CONNS + 8], refused = 0;
    char p[8];
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = i < MG_EGRESS_DOOR_CONNS ? proxy_tunnel("ok.test:9000") : proxy_dial_unix(LABEL);
    for (size_t i = MG_EGRESS_DOOR_CONNS; i < sizeof(fds) / sizeof(fds[0]); i++)
        refused += net_read(fds[i], p, sizeof(p)) <= 0;
    assert_int_equal(refused, 8);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    assert_true(proxy_log_count("reason=limit") > 0);
}

static void a_slow_sandbox_holds_a_flooding_host_back(void **state)
{
    (void)state;
    net_needed();
    mg_autofd int fd = proxy_tunnel("ok.test:9001");
    long last = -1, now = 0;
    const struct timespec step = {.tv_nsec = 50000000};
    for (int i = 0; i < 100 && now != last; i++) { /* until it is stuck */
        last = now;
        (void)nanosleep(&step, NULL);
        now = atomic_load(&net_flooded);
    }
    assert_true(now < 16L * 1024 * 1024);
}

int main(void)
{
    proxy_begin();
    const struct CMUnitTest tests[] = {
        WITH_PROXY(case_95_each_refusal_has_its_answer_and_its_line),
        WITH_PROXY(a_flood_of_refusals_is_not_a_flood_of_lines),
        WITH_PROXY(a_sandbox_that_says_nothing_is_not_waited_for),
        WITH_PROXY(a_sandbox_has_so_many_connections_at_a_time),
        WITH_PROXY(a_slow_sandbox_holds_a_flooding_host_back),
    };
    return RUN(tests);
}
