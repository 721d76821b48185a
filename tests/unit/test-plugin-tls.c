/* The way to a peer of a plugin: TLS with material from memory, proxies of a request and of the daemon, and raw TLS. */
#include "unit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "support/peer-rig.h"

static void tls_material_in_memory_is_used(void **state)
{
    (void)state;
    char u[128];
    mg_autofree struct peer_pem *ca = peer_pem("ca.pem"), *cert = peer_pem("client.pem"), *key = peer_pem("client.key"),
                                *other = peer_pem("client.pem");
    const struct mango_http_req good = {.method = z("POST"),
                                        .url = peer_url(u, "https", peer_port_tls, "/echo"),
                                        .body = z("secret"),
                                        .ca_pem = ca->sv,
                                        .cert_pem = cert->sv,
                                        .key_pem = key->sv};
    ANSWER(a);
    if (peer_call(good, &a) != MANGO_OK)
        fail_msg("%s", a.err.text);
    assert_sv_equal(mg_buf_view(&a.body), "secret");
    peer_fact_is("\"client\": \"client\"");
    struct mango_http_req bad = good;
    bad.ca_pem = (struct mango_sv){0}; /* the system's authorities do not know it */
    ANSWER(b);
    assert_int_equal(peer_call(bad, &b), MANGO_ERETRY);
    assert_contains(b.err.text, "certificate");
    assert_null(strstr(b.err.text, "PRIVATE"));
    bad = good;
    bad.cert_pem = bad.key_pem = (struct mango_sv){0};
    ANSWER(c);
    assert_int_equal(peer_call(bad, &c), MANGO_ERETRY);
    bad = good;
    bad.ca_pem = other->sv;
    ANSWER(d);
    assert_int_equal(peer_call(bad, &d), MANGO_ERETRY);
    bad = good;
    bad.ca_pem = z("not a certificate");
    ANSWER(e);
    assert_int_equal(peer_call(bad, &e), MANGO_ERETRY);
    /* the certificate's name is checked, and connect_to keeps it */
    char to[64];
    (void)snprintf(to, sizeof(to), "127.0.0.1:%d", peer_port_tls);
    bad = good;
    bad.url = z("https://localhost/echo");
    bad.connect_to = z(to);
    ANSWER(f);
    assert_int_equal(peer_call(bad, &f), MANGO_OK);
    bad.url = z("https://other.test/echo");
    ANSWER(g);
    assert_int_equal(peer_call(bad, &g), MANGO_ERETRY);
    assert_contains(g.err.text, "other.test");
}

static void proxies_carry_requests_and_connections(void **state)
{
    (void)state;
    char proxies[2][64];
    (void)snprintf(proxies[0], 64, "http://127.0.0.1:%d", peer_port_proxy);
    (void)snprintf(proxies[1], 64, "socks5://127.0.0.1:%d", peer_port_socks);
    for (int i = 0; i < 2; i++) {
        ANSWER(a);
        assert_int_equal(
            peer_call(
                (struct mango_http_req){.method = z("GET"), .url = z("http://far.test/echo"), .proxy = z(proxies[i])},
                &a),
            MANGO_OK);
        assert_int_equal(a.res.status, 200);
        peer_fact_is(i ? "\"socks\": \"far.test:80\"" : "\"proxy\": \"GET http://far.test/echo\"");
        ANSWER(b);
        mango_conn c = 0;
        char p[64];
        uint64_t n = 0;
        assert_int_equal(peer_open_conn((struct mango_http_req){.method = z("POST"),
                                                                .url = z("http://far.test/hijack"),
                                                                .proxy = z(proxies[i])},
                                        &b, &c),
                         MANGO_OK);
        assert_true(c != 0);
        struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL, &b.err);
        assert_int_equal(peer_host->conn_write(peer_host, &k, c, "ping", 4), MANGO_OK);
        assert_int_equal(peer_host->conn_read(peer_host, &k, c, p, sizeof(p), &n), MANGO_OK);
        assert_int_equal(n, 4);
        peer_host->conn_close(peer_host, c);
        peer_fact_is(i ? "\"socks\": \"far.test:80\"" : "\"proxy\": \"CONNECT far.test:80\"");
    }
    mg_autofree struct peer_pem *ca = peer_pem("ca.pem"), *cert = peer_pem("client.pem"), *key = peer_pem("client.key");
    ANSWER(s);
    if (peer_call((struct mango_http_req){.url = z("https://localhost/echo"),
                                          .proxy = z(proxies[0]),
                                          .ca_pem = ca->sv,
                                          .cert_pem = cert->sv,
                                          .key_pem = key->sv},
                  &s) != MANGO_OK)
        fail_msg("%s", s.err.text);
    peer_fact_is("\"proxy\": \"CONNECT localhost:443\"");
}

static void the_daemons_proxy_applies_unless_a_request_names_another(void **state)
{
    (void)state;
    char proxy[64], u[128];
    struct mg_plugin_net *own = NULL;
    struct mg_err err = {0};
    (void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", peer_port_proxy);
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){.proxy = "::::"}, &own, &err), MG_ECONFIG);
    assert_contains(err.text, "MANGO_PLUGIN_PROXY");
    assert_int_equal(mg_plugin_net_open(&(struct mg_plugin_net_opts){.proxy = proxy}, &own, &err), MG_OK);
    struct mango_call k = mg_plugin_call(0, NULL, &err);
    long before = peer_fact("proxied");
    struct mango_http_req reqs[] = {
        {.struct_size = sizeof(reqs[0]), .url = z("http://far.test/echo")},
        {.struct_size = sizeof(reqs[0]), .url = peer_url(u, "http", peer_port_tcp, "/echo"), .proxy = z("none")},
        {.struct_size = sizeof(reqs[0]), .url = z("http://peer/echo"), .unix_socket = z(peer_sock)},
    };
    for (int i = 0; i < 3; i++) {
        ANSWER(a);
        assert_int_equal(mg_plugin_http_call(own, &k, &reqs[i], &a.res), MANGO_OK);
        assert_int_equal(a.res.status, 200);
        assert_int_equal(peer_fact("proxied") - before, 1); /* the first one alone */
    }
    mg_plugin_net_close(own);
}

static void raw_tls_is_a_stream_without_http(void **state)
{
    (void)state;
    char u[128], p[64];
    uint64_t n = 0;
    mango_conn c = 0;
    mg_autofree struct peer_pem *ca = peer_pem("ca.pem"), *cert = peer_pem("client.pem"), *key = peer_pem("client.key");
    struct mg_err err = {0};
    struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL, &err);
    const struct mango_http_req req = {.struct_size = sizeof(req),
                                       .url = peer_url(u, "https", peer_port_tls, "/"),
                                       .flags = MANGO_HTTP_RAW,
                                       .ca_pem = ca->sv,
                                       .cert_pem = cert->sv,
                                       .key_pem = key->sv};
    if (peer_host->conn_open(peer_host, &k, &req, NULL, &c) != MANGO_OK)
        fail_msg("%s", err.text);
    assert_int_equal(peer_host->conn_write(peer_host, &k, c, "RAW\nhi", 6), MANGO_OK);
    assert_int_equal(peer_host->conn_read(peer_host, &k, c, p, sizeof(p), &n), MANGO_OK);
    assert_sv_equal(mg_sv_n(p, n), "raw:hi");
    peer_host->conn_close(peer_host, c);
    assert_int_equal(peer_host->conn_read(peer_host, &k, c, p, sizeof(p), &n), MANGO_EINVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tls_material_in_memory_is_used),
        cmocka_unit_test(proxies_carry_requests_and_connections),
        cmocka_unit_test(the_daemons_proxy_applies_unless_a_request_names_another),
        cmocka_unit_test(raw_tls_is_a_stream_without_http),
    };
    return cmocka_run_group_tests(tests, peer_group_up, peer_group_down);
}
