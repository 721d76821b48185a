#include "domain/session.h"

#include "domain.h"

#define SESSION(more) "{\"agent\":\"agent_1\",\"environment_id\":\"env_1\"" more "}"

static void every_field_of_a_create_takes_effect(void **state)
{
    struct mg_session_create c;
    struct mg_err err = {0};
    const char *body = SESSION(",\"title\":\"t\",\"metadata\":{\"k\":\"v\"},\"resources\":[],\"vault_ids\":[],"
                               "\"budget\":null,\"initial_events\":"
                               "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]");
    if (mg_session_parse_create(*state, json_of(*state, body), &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_sv_equal(c.agent.id, "agent_1");
    assert_sv_equal(c.environment_id, "env_1");
    assert_sv_equal(c.title, "t");
    assert_sv_equal(c.metadata, "{\"k\":\"v\"}");
    assert_int_equal(c.n_events, 1);
}

/* Field case 11: each documented field takes effect or is refused by its name. */
static void case_11_nothing_is_accepted_and_forgotten(void **state)
{
    static const struct refusal CASES[] = {
        {"{}", "agent: is required"},
        {"{\"agent\":\"agent_1\"}", "environment_id: is required"},
        {"{\"agent\":1,\"environment_id\":\"env_1\"}", "agent: must be a string or an object"},
        {"{\"agent\":\"a b\",\"environment_id\":\"env_1\"}", "agent: must be an id"},
        {"{\"agent\":{\"id\":\"x\"},\"environment_id\":\"env_1\"}", "agent.type: is required"},
        {"{\"agent\":{\"type\":\"agent\"},\"environment_id\":\"env_1\"}", "agent.id: is required"},
        {"{\"agent\":{\"type\":\"agent\",\"id\":\"x\",\"version\":0},\"environment_id\":\"env_1\"}",
         "agent.version: must be at least 1"},
        {"{\"agent\":{\"type\":\"agent\",\"id\":\"x\",\"system\":\"s\"},\"environment_id\":\"env_1\"}",
         "agent.system: unknown field"},
        {"{\"agent\":{\"type\":\"agent_with_overrides\",\"id\":\"x\",\"name\":\"s\"},\"environment_id\":\"env_1\"}",
         "agent.name: unknown field"},
        {"{\"agent\":{\"type\":\"agent_with_overrides\",\"id\":\"x\",\"skills\":{}},\"environment_id\":\"env_1\"}",
         "agent.skills: must be an array"},
        {SESSION(",\"environment\":\"x\""), "environment: unknown field"},
        {SESSION(",\"title\":1"), "title: must be a string or null"},
        {SESSION(",\"title\":\"a\\u0000\""), "title: must not hold NUL"},
        {SESSION(",\"metadata\":{\"k\":7}"), "metadata.k: must be a string"},
        {SESSION(",\"resources\":[{\"type\":\"file\",\"file_id\":\"f\"},{\"type\":\"file\",\"file_id\":\"f\"}]"),
         "resources[1].mount_path: meets that of resources[0]"},
        {SESSION(",\"resources\":[{\"type\":\"memory_store\",\"memory_store_id\":\"m\",\"access\":\"all\"}]"),
         "resources[0].access"},
        {SESSION(",\"resources\":[{\"type\":\"memory_store\",\"memory_store_id\":\"m\"},{\"type\":\"memory_store\","
                 "\"memory_store_id\":\"m\"}]"),
         "resources[1].memory_store_id"},
        {SESSION(",\"resources\":{}"), "resources: must be an array"},
        {SESSION(",\"vault_ids\":[\"vlt_1\",\"vlt_1\"]"), "vault_ids[1]: the same vault is named twice"},
        {SESSION(",\"vault_ids\":\"vlt_1\""), "vault_ids: must be an array"},
        {SESSION(",\"budget\":{\"type\":\"limit\",\"max_list_cost\":{\"amount\":\"01\",\"currency\":\"USD\"}}"),
         "budget.max_list_cost.amount"},
        {SESSION(",\"budget\":5"), "budget: must be an object"},
        {SESSION(",\"initial_events\":{}"), "initial_events: must be an array"},
        {SESSION(",\"initial_events\":[{\"type\":\"user.define_outcome\"}]"), "initial_events[0].description"},
        {SESSION(",\"deployment_id\":\"x\""), "deployment_id: unknown field"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_session_create c;
        struct mg_err err = {0};
        if (mg_session_parse_create(*state, json_of(*state, CASES[i].body), &c, &err) != MG_EINVAL)
            fail_msg("accepted: %s", CASES[i].body);
        assert_contains(err.text, CASES[i].text);
    }
}

static void an_update_tells_absent_from_null(void **state)
{
    struct mg_session_update u;
    struct mg_err err = {0};
    assert_int_equal(mg_session_parse_update(*state, json_of(*state, "{}"), &u, &err), 0);
    assert_false(u.has_title);
    assert_null(u.agent);
    assert_int_equal(mg_session_parse_update(
                         *state, json_of(*state, "{\"title\":null,\"metadata\":null,\"budget\":null}"), &u, &err),
                     0);
    assert_true(u.has_title);
    assert_null(u.title.ptr);
    assert_true(u.has_budget);
    assert_int_equal(u.budget_nano, MG_BUDGET_NONE);
    assert_int_equal(mg_session_parse_update(*state, json_of(*state, "{\"vault_ids\":[]}"), &u, &err), MG_EINVAL);
    assert_contains(err.text, "vault_ids: cannot be changed");
    assert_int_equal(mg_session_parse_update(*state, json_of(*state, "{\"budget\":{\"type\":\"limit\"}}"), &u, &err),
                     MG_EINVAL);
    assert_contains(err.text, "budget.max_list_cost: is required");
    assert_int_equal(mg_session_parse_update(*state, json_of(*state, "{\"agent\":null}"), &u, &err), MG_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_create_takes_effect),
        cmocka_unit_test(case_11_nothing_is_accepted_and_forgotten),
        cmocka_unit_test(an_update_tells_absent_from_null),
    };
    return RUN_WITH_ARENA(tests);
}
