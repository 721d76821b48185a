/* SOCKS5 at the filtering proxy, and the credential that tells the sandboxes of one TCP address apart, in SOCKS and
 * in HTTP. */
#include "unit.h"

#include "base/mem.h"
#include "crypto/hash.h"
#include "support/egress-rig.h"

static void socks_takes_names_and_checks_them_alike(void **state)
{
    (void)state;
    net_needed();
    static const struct {
        const char *name;
        int port, command;
        unsigned char reply;
    } cases[] = {
        {"ok.test", NET_ECHO, 1, 0}, {"a.wild.test", 80, 1, 0},   {"other.test", 443, 1, 2},
        {"ok.test", 25, 1, 2},       {"meta.test", 80, 1, 2},     {"missing.test", 80, 1, 4},
        {"closed.test", 9, 1, 5},    {"ok.test", NET_ECHO, 2, 1}, {"127.0.0.1", NET_ECHO, 1, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned char request[300] = {5, (unsigned char)cases[i].command, 0, 3};
        char got[16] = {0};
        mg_autofd int fd = proxy_dial_unix(LABEL);
        size_t n = strlen(cases[i].name);
        net_send(fd, "\5\2\0\2", 4);
        assert_int_equal(net_read(fd, got, 2), 2);
        assert_memory_equal(got, "\5\0", 2);
        request[4] = (unsigned char)n;
        memcpy(request + 5, cases[i].name, n);
        request[5 + n] = (unsigned char)(cases[i].port >> 8);
        request[6 + n] = (unsigned char)cases[i].port;
        net_send(fd, (const char *)request, 7 + n);
        assert_int_equal(net_read(fd, got, 10), 10);
        if ((unsigned char)got[1] != cases[i].reply)
            fail_msg("%s:%d: reply %d", cases[i].name, cases[i].port, got[1]);
        if (cases[i].reply == 0 && cases[i].port == NET_ECHO) {
            mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
            net_say(fd, "hi");
            assert_string_equal(proxy_until(fd, "hi", &in), "hi");
        }
    }
}

static void ask_tcp(const char *credential, const char *to, struct mg_buf *answer)
{
    char request[512];
    mg_auto(buf) struct mg_buf basic = MG_BUF_INIT(512);
    mg_autofd int fd = proxy_dial_tcp("127.0.0.1", PROXY_TCP);
    (void)mg_base64_encode(&basic, mg_sv_of(credential));
    (void)snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\n%s%s%s\r\n", to,
                   credential[0] ? "Proxy-Authorization: Basic " : "", credential[0] ? basic.ptr : "",
                   credential[0] ? "\r\n" : "");
    *answer = MG_BUF_INIT(4096);
    net_say(fd, request);
    (void)proxy_until(fd, "\r\n\r\n", answer);
}

static void a_credential_tells_the_doors_of_one_address_apart(void **state)
{
    (void)state;
    net_needed();
    static const struct mango_sv other[] = {{"a.wild.test:9000", 16}};
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf one = {0}, two = {0};
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, 3, "127.0.0.1:3128", &one, &err), MG_OK);
    assert_int_equal(proxy_door(proxy, OTHER, other, 1, "127.0.0.1:3128", &two, &err), MG_OK);
    assert_contains(one.ptr, "http://" LABEL ":");
    assert_contains(one.ptr, "@127.0.0.1:3128");
    char mine[128], theirs[128], mixed[160];
    (void)snprintf(mine, sizeof(mine), "%.65s", one.ptr + 7);
    (void)snprintf(theirs, sizeof(theirs), "%.65s", two.ptr + 7);
    (void)snprintf(mixed, sizeof(mixed), "%.33s%s", mine, theirs + 33);
    const struct {
        const char *credential, *to, *status;
    } cases[] = {
        {mine, "ok.test:9000", "200"},      {theirs, "a.wild.test:9000", "200"}, {mine, "a.wild.test:9000", "403"},
        {theirs, "ok.test:9000", "403"},    {"", "ok.test:9000", "407"},         {mixed, "ok.test:9000", "407"},
        {LABEL ":", "ok.test:9000", "407"}, {"x", "ok.test:9000", "407"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        ask_tcp(cases[i].credential, cases[i].to, &answer);
        if (!strstr(answer.ptr, cases[i].status))
            fail_msg("case %zu: %s", i, answer.ptr);
        assert_int_equal(strstr(answer.ptr, "Proxy-Authenticate: Basic") != NULL, strcmp(cases[i].status, "407") == 0);
    }
    mg_egress_door_close(proxy, MG_SV(OTHER));
    mg_auto(buf) struct mg_buf answer = {0};
    ask_tcp(theirs, "a.wild.test:9000", &answer);
    assert_contains(answer.ptr, "407");
    assert_int_equal(proxy_log_count(mine + 33), 0);
}

static void socks_takes_the_credential_too(void **state)
{
    (void)state;
    net_needed();
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf url = {0};
    char hello[128] = "\1\40", got[16] = {0};
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, 3, "127.0.0.1:3128", &url, &err), MG_OK);
    memcpy(hello + 2, LABEL, 32);
    hello[34] = 32;
    memcpy(hello + 35, url.ptr + 7 + 33, 32);
    for (int wrong = 0; wrong < 2; wrong++) {
        mg_autofd int fd = proxy_dial_tcp("127.0.0.1", PROXY_TCP);
        hello[40] ^= (char)wrong;
        net_send(fd, "\5\2\0\2", 4);
        assert_int_equal(net_read(fd, got, 2), 2);
        assert_memory_equal(got, "\5\2", 2);
        net_send(fd, hello, 67);
        assert_int_equal(net_read(fd, got, 2), 2);
        assert_int_equal(got[1], wrong);
        if (wrong) {
            assert_int_equal(net_read(fd, got, 2), 0);
            continue;
        }
        net_send(fd, "\5\1\0\3\7ok.test\x23\x28", 14);
        assert_int_equal(net_read(fd, got, 10), 10);
        assert_int_equal(got[1], 0);
    }
    mg_autofd int fd = proxy_dial_tcp("127.0.0.1", PROXY_TCP); /* without a credential there is no way in */
    net_send(fd, "\5\1\0", 3);
    assert_int_equal(net_read(fd, got, 2), 2);
    assert_memory_equal(got, "\5\377", 2);
}

int main(void)
{
    proxy_begin();
    const struct CMUnitTest tests[] = {
        WITH_PROXY(socks_takes_names_and_checks_them_alike),
        WITH_PROXY(a_credential_tells_the_doors_of_one_address_apart),
        WITH_PROXY(socks_takes_the_credential_too),
    };
    return RUN(tests);
}
