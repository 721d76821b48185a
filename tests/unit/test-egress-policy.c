/* Which names, ports and addresses the filtering proxy lets a sandbox reach, and that a tunnel is for the name that
 * was allowed. */
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>

#include "base/mem.h"
#include "support/egress-rig.h"

static void names_outside_of_the_list_are_not_even_resolved(void **state)
{
    (void)state;
    net_needed();
    static const char *const requests[] = {"CONNECT data.attacker.test:443 HTTP/1.1\r\n\r\n",
                                           "GET http://data.attacker.test/ HTTP/1.1\r\n\r\n",
                                           "CONNECT ok.test:8080 HTTP/1.1\r\n\r\n"};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        proxy_ask(requests[i], strlen(requests[i]), &answer);
    }
    assert_int_equal(atomic_load(&net_lookups), 0);
}

/* A ClientHello with one name, or without; in records of `record` bytes. Returns its length. */
static size_t client_hello(const char *name, size_t record, unsigned char *out)
{
    unsigned char b[512] = {1, 0, 0, 0, 3, 3};
    size_t n = 6 + 32, host = strlen(name), at = 0;
    const unsigned char fixed[] = {0, 0, 2, 0x13, 1, 1, 0};
    memcpy(b + n, fixed, sizeof(fixed));
    n += sizeof(fixed);
    size_t ext = host > 0 ? host + 9 : 0;
    b[n++] = 0;
    b[n++] = (unsigned char)ext;
    if (host > 0) {
        const unsigned char head[] = {
            0, 0, 0, (unsigned char)(host + 5), 0, (unsigned char)(host + 3), 0, 0, (unsigned char)host};
        memcpy(b + n, head, sizeof(head));
        memcpy(b + n + sizeof(head), name, host);
        n += sizeof(head) + host;
    }
    b[3] = (unsigned char)(n - 4);
    size_t used = 0;
    while (at < n) {
        size_t part = n - at < record ? n - at : record;
        const unsigned char head[] = {22, 3, 1, 0, (unsigned char)part};
        memcpy(out + used, head, sizeof(head));
        memcpy(out + used + sizeof(head), b + at, part);
        used += sizeof(head) + part;
        at += part;
    }
    return used;
}

static void a_tunnel_is_for_the_name_that_was_asked_for(void **state)
{
    (void)state;
    net_needed();
    static const struct {
        const char *to, *name;
        bool through;
    } cases[] = {
        {"ok.test:443", "ok.test", true},          {"ok.test:443", "OK.TEST", true},
        {"ok.test:443", "other.test", false},      {"ok.test:443", "", false},
        {"ok.test:443", "8.8.8.8", false},         {"a.wild.test:443", "a.wild.test", true},
        {"a.wild.test:443", "b.wild.test", false}, {"ok.test:9000", "ok.test", true},
        {"ok.test:9000", "other.test", false},     {"ok.test:9000", "", true},
        {"ok.test:80", "other.test", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t record = 7; record < 200; record += 60) {
            unsigned char hello[2048];
            char got[2048];
            size_t n = client_hello(cases[i].name, record, hello), at = 0;
            mg_autofd int fd = proxy_tunnel(cases[i].to);
            proxy_log_forget();
            net_send(fd, (const char *)hello, 3);
            (void)sched_yield();
            net_send(fd, (const char *)hello + 3, n - 3);
            for (ssize_t r; at < n && (r = net_read(fd, got + at, sizeof(got) - at)) > 0;)
                at += (size_t)r;
            if (cases[i].through != (at == n && memcmp(got, hello, n) == 0))
                fail_msg("%s with %s: %zu of %zu bytes came back", cases[i].to, cases[i].name, at, n);
            assert_int_equal(proxy_log_count("reason=name"), !cases[i].through);
        }
    }
}

static void networks_of_the_operator_may_be_reached(void **state)
{
    (void)state;
    net_needed();
    mg_egress_close(proxy);
    proxy = proxy_open("10.1.2.0/24");
    proxy_usual_door();
    mg_auto(buf) struct mg_buf in = {0}, meta = {0};
    proxy_ask("GET http://private.test/ HTTP/1.1\r\n\r\n", 37, &in);
    assert_int_equal(atomic_load(&net_forbidden), 1);
    proxy_ask("GET http://meta.test/ HTTP/1.1\r\n\r\n", 34, &meta);
    assert_contains(meta.ptr, "403");
}

/* ---- pure ---- */

static void lists_of_networks_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *list, *address;
        mg_rc rc;
        bool ok;
    } cases[] = {
        {"", "10.0.0.1", MG_OK, false},
        {"10.0.0.0/8", "10.255.0.1", MG_OK, true},
        {"10.0.0.0/8, 192.168.1.1", "192.168.1.1", MG_OK, true},
        {"192.168.1.1", "192.168.1.2", MG_OK, false},
        {"10.0.0.0/9", "10.128.0.1", MG_OK, false},
        {"fd00::/8", "fd12::1", MG_OK, true},
        {"fd00::/8", "fe80::1", MG_OK, false},
        {"10.0.0.0/8", "::ffff:10.0.0.1", MG_OK, true},
        {"0.0.0.0/0", "169.254.169.254", MG_OK, true},
        {"", "8.8.8.8", MG_OK, true},
        {"10.0.0.0/33", "", MG_ECONFIG, false},
        {"10.0.0.0/x", "", MG_ECONFIG, false},
        {"example.org", "", MG_ECONFIG, false},
        {"fd00::/129", "", MG_ECONFIG, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_egress_networks n;
        struct mg_err err = {0};
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        if (mg_egress_networks_parse(mg_sv_of(cases[i].list), &n, &err) != cases[i].rc)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].rc < 0)
            continue;
        bool four = inet_pton(AF_INET, cases[i].address, &v4.sin_addr) == 1;
        assert_true(four || inet_pton(AF_INET6, cases[i].address, &v6.sin6_addr) == 1);
        if (mg_egress_address_ok(&n, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6) != cases[i].ok)
            fail_msg("case %zu", i);
    }
}

static void an_open_or_closed_network_needs_no_list(void **state)
{
    (void)state;
    struct mg_egress_policy *p = NULL;
    struct mg_err err = {0};
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_NONE, .hosts = proxy_usual, .n_hosts = 1};
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_OK);
    assert_int_equal(mg_egress_policy_match(p, MG_SV("ok.test"), 443), MG_EGRESS_NO_HOST);
    mg_egress_policy_free(p);
    net.mode = MANGO_NET_OPEN;
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_OK);
    assert_int_equal(mg_egress_policy_match(p, MG_SV("any.test"), 1), MG_EGRESS_ALL);
    mg_egress_policy_free(p);
    net.mode = 7;
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_EINVAL);
}

int main(void)
{
    proxy_begin();
    const struct CMUnitTest tests[] = {
        WITH_PROXY(names_outside_of_the_list_are_not_even_resolved),
        WITH_PROXY(a_tunnel_is_for_the_name_that_was_asked_for),
        WITH_PROXY(networks_of_the_operator_may_be_reached),
        cmocka_unit_test(lists_of_networks_are_checked),
        cmocka_unit_test(an_open_or_closed_network_needs_no_list),
    };
    return RUN(tests);
}
