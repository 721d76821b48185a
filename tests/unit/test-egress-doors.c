/* The life of a sandbox's door to the filtering proxy: opened, given another policy, found again after a restart,
 * refused, closed. */
#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "egress/service.h"
#include "plugin/plugin.h"
#include "support/egress-rig.h"

static void what_the_new_policy_forbids_is_cut(void **state)
{
    (void)state;
    net_needed();
    static const struct mango_sv less[] = {{"ok.test:22", 10}};
    struct mg_err err = {0};
    char p[64];
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096), dir = {0}, answer = {0};
    mg_autofd int cut = proxy_tunnel("ok.test:9000");
    mg_autofd int kept = proxy_tunnel("ok.test:22");
    (void)proxy_until(kept, "\n", &in);
    assert_int_equal(proxy_door(proxy, LABEL, less, 1, "", &dir, &err), MG_OK);
    assert_int_equal(net_read(cut, p, sizeof(p)), 0);
    net_say(kept, "still");
    assert_contains(proxy_until(kept, "still", &in), "still");
    proxy_ask("CONNECT ok.test:9000 HTTP/1.1\r\n\r\n", 34, &answer);
    assert_contains(answer.ptr, "403");
}

static void a_closed_door_leaves_nothing(void **state)
{
    (void)state;
    net_needed();
    char p[64], path[PLUGIN_PATH_MAX + 64];
    struct stat st;
    mg_autofd int fd = proxy_tunnel("ok.test:9000");
    (void)snprintf(path, sizeof(path), "%s/egress/%s", proxy_state_dir, LABEL);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    mg_egress_door_close(proxy, MG_SV(LABEL));
    assert_int_equal(net_read(fd, p, sizeof(p)), 0);
    assert_int_equal(proxy_dial_unix(LABEL), -1);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(proxy_log_count("egress closed"), 1);
    mg_egress_door_close(proxy, MG_SV(LABEL));
    mg_egress_door_close(proxy, MG_SV("../../etc"));
}

static void doors_are_where_they_were_after_a_restart(void **state)
{
    (void)state;
    net_needed();
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf url = {0}, again = {0}, dir = {0};
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, 3, "127.0.0.1:3128", &url, &err), MG_OK);
    mg_egress_close(proxy);
    proxy = proxy_open("");
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, 3, "127.0.0.1:3128", &again, &err), MG_OK);
    assert_string_equal(url.ptr, again.ptr);
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, 3, "", &dir, &err),
                     MG_OK); /* over the socket that the first one left */
    mg_autofd int fd = proxy_tunnel("ok.test:9000");
    mg_egress_close(proxy);
    proxy = proxy_open("");
    mg_egress_door_close(proxy, MG_SV(LABEL)); /* of an earlier process */
    assert_int_equal(proxy_dial_unix(LABEL), -1);
    assert_true(access(dir.ptr, F_OK) < 0);
}

static void bad_doors_are_refused_by_name(void **state)
{
    (void)state;
    net_needed();
    static const struct {
        const char *host, *listen, *says;
    } cases[] = {
        {"*", "", "allowed host \"*\""},
        {"", "", "allowed host"},
        {"http://x", "", "\"http://x\""},
        {"a b", "", "\"a b\""},
        {"x:0", "", "\"x:0\""},
        {"x:y", "", "\"x:y\""},
        {"*.*.x", "", "\"*.*.x\""},
        {"x..y", "", "\"x..y\""},
        {"x..", "", "\"x..\""},
        {"ok.test", "0.0.0.0:3128", "wildcard"},
        {"ok.test", "[::]:3128", "wildcard"},
        {"ok.test", "localhost:3128", "wildcard"},
        {"ok.test", "127.0.0.1", "wildcard"},
        {"ok.test", "9.9.9.9:3128", "9.9.9.9:3128"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_err err = {0};
        mg_auto(buf) struct mg_buf out = {0};
        const struct mango_sv hosts[] = {{cases[i].host, strlen(cases[i].host)}};
        if (proxy_door(proxy, OTHER, hosts, 1, cases[i].listen, &out, &err) == MG_OK ||
            !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %s", i, err.text);
    }
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf out = {0};
    assert_int_equal(proxy_door(proxy, "../x", proxy_usual, 1, "", &out, &err), MG_EINVAL);
    assert_true(plugin_sh("ln -s /tmp '%s/egress/%s'", proxy_state_dir, OTHER)); /* a planted link is not followed */
    assert_true(proxy_door(proxy, OTHER, proxy_usual, 1, "", &out, &err) < 0);
    assert_true(plugin_sh("test ! -e /tmp/proxy.sock"));
}

static void plugins_get_a_door_through_the_hosts_service(void **state)
{
    (void)state;
    net_needed();
    struct mg_err err = {0};
    struct mg_buf dir = MG_BUF_INIT(1024);
    const struct mango_network net = {
        .struct_size = sizeof(net), .mode = MANGO_NET_LIMITED, .hosts = proxy_usual, .n_hosts = 2};
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_egress_req req = {.struct_size = sizeof(req), .label = {OTHER, 32}, .network = &net};
    struct mango_egress ret = {.struct_size = sizeof(ret), .dir = (struct mango_buf *)&dir};
    assert_int_equal(mg_egress_service_open(proxy, MG_SV("session_2"), &call, &req, &ret), MANGO_OK);
    mg_autofd int fd = proxy_dial_unix(OTHER);
    assert_true(fd >= 0);
    req.listen = (struct mango_sv){"127.0.0.1:0", 11};
    assert_int_equal(mg_egress_service_open(proxy, MG_SV("session_2"), &call, &req, &ret),
                     MANGO_EINVALID); /* no buffer for it */
    req.network = NULL;
    assert_int_equal(mg_egress_service_open(proxy, MG_SV("session_2"), &call, &req, &ret), MANGO_EINVALID);
    mg_buf_done(&dir);
}

int main(void)
{
    proxy_begin();
    const struct CMUnitTest tests[] = {
        WITH_PROXY(what_the_new_policy_forbids_is_cut),           WITH_PROXY(a_closed_door_leaves_nothing),
        WITH_PROXY(doors_are_where_they_were_after_a_restart),    WITH_PROXY(bad_doors_are_refused_by_name),
        WITH_PROXY(plugins_get_a_door_through_the_hosts_service),
    };
    return RUN(tests);
}
