/* MCP servers and environments with limited networking. */
#include "unit.h"

#include "domain/egress.h"

#define LIMITED(hosts, mcp)                                                                                           \
    "{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allowed_hosts\":" hosts ",\"allow_mcp_servers\":" mcp \
    ",\"allow_package_managers\":false}}"

static void a_host_is_what_stands_between_scheme_and_path(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host;
    } cases[] = {
        {"https://a.example/mcp", "a.example"},
        {"https://a.example:8443", "a.example"},
        {"http://a.example?x=1", "a.example"},
        {"http://a.example#x", "a.example"},
        {"http://[::1]:80/x", "::1"},
        {"http://10.0.0.1/", "10.0.0.1"},
        {"http://", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_sv_equal(mg_egress_host(mg_sv_of(cases[i].url)), cases[i].host);
}

static void patterns_match_hosts_and_what_is_below_them(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *host;
        bool match;
    } cases[] = {
        {"a.example", "a.example", true},       {"A.Example", "a.eXAMPLE", true},
        {"a.example", "b.a.example", false},    {"*.example", "a.example", true},
        {"*.example", "b.a.example", true},     {"*.example", "example", false},
        {"*.example", "notexample", false},     {"*.a.example", "xa.example", false},
        {"a.example", "a.example.evil", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(mg_egress_match(mg_sv_of(cases[i].pattern), mg_sv_of(cases[i].host)), cases[i].match);
}

static void servers_are_reached_where_the_environment_says_so(void **state)
{
    (void)state;
    static const char SERVERS[] = "[{\"type\":\"url\",\"name\":\"s\",\"url\":\"https://mcp.example:8443/x\"}]";
    static const struct {
        const char *config;
        mg_rc rc;
    } cases[] = {
        {"{\"type\":\"self_hosted\"}", MG_OK},
        {"{\"type\":\"cloud\",\"networking\":{\"type\":\"unrestricted\"}}", MG_OK},
        {LIMITED("[]", "true"), MG_OK},
        {LIMITED("[\"mcp.example\"]", "false"), MG_OK},
        {LIMITED("[\"*.example\"]", "false"), MG_OK},
        {LIMITED("[]", "false"), MG_EINVAL},
        {LIMITED("[\"other.example\"]", "false"), MG_EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct mg_err err = {0};
        assert_int_equal(mg_egress_check_servers(a, mg_sv_of(cases[i].config), mg_sv_of(SERVERS), &err), cases[i].rc);
        assert_int_equal(mg_egress_check_servers(a, mg_sv_of(cases[i].config), MG_SV("[]"), &err), MG_OK);
        if (cases[i].rc < 0) {
            assert_contains(err.text, "mcp.example");
            assert_string_equal(err.code, "mcp_egress_blocked_error");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_is_what_stands_between_scheme_and_path),
        cmocka_unit_test(patterns_match_hosts_and_what_is_below_them),
        cmocka_unit_test(servers_are_reached_where_the_environment_says_so),
    };
    return RUN(tests);
}
