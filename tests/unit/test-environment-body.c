#include "domain/environment.h"

#include "domain.h"

static struct mg_environment created(struct mg_arena *a, const char *body, bool default_cloud)
{
    struct mg_environment x = {0};
    struct mg_err err = {0};
    if (mg_environment_parse_create(a, json_of(a, body), default_cloud, &x, &err) < 0)
        fail_msg("%s: %s", body, err.text);
    return x;
}

static void an_omitted_config_is_what_the_server_was_told(void **state)
{
    struct mg_environment x = created(*state, "{\"name\":\"e\"}", false);
    assert_false(x.cloud);
    assert_sv_equal(x.config, "{\"type\":\"self_hosted\"}");
    x = created(*state, "{\"name\":\"e\",\"config\":null}", true);
    assert_true(x.cloud);
    assert_sv_equal(
        x.config,
        "{\"type\":\"cloud\",\"networking\":{\"type\":\"unrestricted\"},\"packages\":{\"type\":\"packages\",\"apt\":[],"
        "\"cargo\":[],\"gem\":[],\"go\":[],\"npm\":[],\"pip\":[]}}");
}

static void a_limited_network_shows_all_its_members(void **state)
{
    struct mg_environment x =
        created(*state,
                "{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\","
                "\"allowed_hosts\":[\"*.example.com\",\"10.0.0.1\"]}}}",
                false);
    assert_contains(
        x.config.ptr,
        "{\"type\":\"limited\",\"allowed_hosts\":[\"*.example.com\",\"10.0.0.1\"],\"allow_mcp_servers\":false,"
        "\"allow_package_managers\":false}");
}

static void an_update_keeps_what_it_does_not_name(void **state)
{
    struct mg_environment
        x = created(*state,
                    "{\"name\":\"e\",\"description\":\"d\",\"metadata\":{\"k\":\"v\",\"l\":\"w\"},\"config\":{\"type\":"
                    "\"cloud\","
                    "\"networking\":{\"type\":\"limited\",\"allowed_hosts\":[\"a.b\"],\"allow_package_managers\":true},"
                    "\"packages\":{\"pip\":[\"requests==2\"]}}}",
                    false),
        y;
    struct mg_err err = {0};
    const char *body = "{\"metadata\":{\"k\":\"\",\"l\":null,\"m\":\"1\"},\"config\":{\"type\":\"cloud\",\"packages\":{"
                       "\"apt\":[\"jq\"]}}}";
    if (mg_environment_parse_update(*state, json_of(*state, body), &x, &y, &err) < 0)
        fail_msg("%s", err.text);
    assert_sv_equal(y.metadata, "{\"m\":\"1\"}");
    assert_sv_equal(y.description, "d");
    assert_contains(y.config.ptr, "\"allowed_hosts\":[\"a.b\"]");
    assert_contains(y.config.ptr, "\"apt\":[\"jq\"]");
    assert_contains(y.config.ptr, "\"pip\":[\"requests==2\"]");
    assert_int_equal(
        mg_environment_parse_update(*state, json_of(*state, "{\"config\":{\"type\":\"self_hosted\"}}"), &x, &y, &err),
        MG_EINVAL);
    assert_string_equal(err.code, "invalid_config_type_change");
    const char *closing =
        "{\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allow_package_managers\":false}}}";
    assert_int_equal(mg_environment_parse_update(*state, json_of(*state, closing), &x, &y, &err), MG_EINVAL);
    assert_contains(err.text, "allow_package_managers: must be true");
}

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    static const struct refusal CASES[] = {
        {"{}", "name: is required"},
        {"{\"name\":\"e\",\"confg\":{}}", "confg: unknown field"},
        {"{\"name\":\"e\",\"config\":\"cloud\"}", "config: must be an object or null"},
        {"{\"name\":\"e\",\"config\":{}}", "config.type: is required"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"vm\"}}", "config.type: must be one of cloud, self_hosted"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"self_hosted\",\"networking\":{}}}",
         "config.networking: unknown field"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"open\"}}}",
         "config.networking.type: must be one of"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"unrestricted\",\"allowed_hosts\":[]"
         "}}}",
         "config.networking.allowed_hosts: unknown field"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allowed_hosts\":["
         "\"https://x\"]}}}",
         "config.networking.allowed_hosts[0]: must be a bare host"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allowed_hosts\":["
         "\"a.example.com\",\"a.example.com:8443\"]}}}",
         "config.networking.allowed_hosts[1]: must be a bare host name, an IPv4 address, or \"*.\" and a host name, "
         "each "
         "without a port"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\",\"allowed_hosts\":[\"a.."
         "b\"]}}}",
         "must be a bare host"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"packages\":{\"brew\":[]}}}",
         "config.packages.brew: unknown field"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"packages\":{\"apt\":[\"\"]}}}",
         "config.packages.apt[0]: must not be empty"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"packages\":{\"apt\":[\"--x\"]}}}",
         "must not begin with '-'"},
        {"{\"name\":\"e\",\"config\":{\"type\":\"cloud\",\"networking\":{\"type\":\"limited\"},\"packages\":{\"apt\":["
         "\"jq\"]}}}",
         "allow_package_managers: must be true"},
        {"{\"name\":\"e\",\"scope\":\"account\"}", "scope: this server has no accounts"},
        {"{\"name\":\"e\",\"scope\":\"world\"}", "scope: must be one of organization, account"},
        {"{\"name\":\"e\",\"metadata\":{\"k\":null}}", "metadata.k: must be a string, not null"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_environment x;
        struct mg_err err = {0};
        if (mg_environment_parse_create(*state, json_of(*state, CASES[i].body), false, &x, &err) != MG_EINVAL)
            fail_msg("accepted: %s", CASES[i].body);
        assert_contains(err.text, CASES[i].text);
    }
}

static void bad_metadata_has_its_error_code(void **state)
{
    struct mg_environment x;
    struct mg_err err = {0};
    assert_int_equal(mg_environment_parse_create(*state, json_of(*state, "{\"name\":\"e\",\"metadata\":{\"k\":1}}"),
                                                 false, &x, &err),
                     MG_EINVAL);
    assert_string_equal(err.code, "invalid_metadata");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_omitted_config_is_what_the_server_was_told),
        cmocka_unit_test(a_limited_network_shows_all_its_members),
        cmocka_unit_test(an_update_keeps_what_it_does_not_name),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(bad_metadata_has_its_error_code),
    };
    return RUN_WITH_ARENA(tests);
}
