#include "domain/agent.h"

#include "domain.h"

static struct mg_agent created(struct mg_arena *a, const char *body)
{
    struct mg_agent x = {0};
    struct mg_err err = {0};
    if (mg_agent_parse_create(a, json_of(a, body), &x, &err) < 0)
        fail_msg("%s: %s", body, err.text);
    return x;
}

static mg_rc update(struct mg_arena *a, const char *body, const struct mg_agent *base, struct mg_agent *ret,
                    int64_t *version, struct mg_err *err)
{
    return mg_agent_parse_update(a, json_of(a, body), base, ret, version, err);
}

static void the_smallest_agent_has_every_member(void **state)
{
    struct mg_agent x = created(*state, "{\"name\":\"a\",\"model\":\"m\"}");
    assert_sv_equal(mg_agent_format(*state, &x), "{\"name\":\"a\",\"description\":null,\"system\":null,\"model\":{"
                                                 "\"id\":\"m\",\"speed\":\"standard\"},\"tools\":[],"
                                                 "\"mcp_servers\":[],\"skills\":[],\"multiagent\":null,\"execution_"
                                                 "identity\":{\"type\":\"service_account\"},\"metadata\":{}}");
}

static void a_toolset_is_resolved(void **state)
{
    struct mg_agent x =
        created(*state, "{\"name\":\"a\",\"model\":\"m\",\"tools\":[{\"type\":\"agent_toolset_20260401\"}]}");
    assert_sv_equal(
        x.tools,
        "[{\"type\":\"agent_toolset_20260401\",\"default_config\":{\"enabled\":true,\"permission_policy\":{\"type\":"
        "\"always_allow\"}},\"configs\":[]}]");
    x = created(*state,
                "{\"name\":\"a\",\"model\":\"m\",\"tools\":[{\"type\":\"agent_toolset_20260401\",\"default_config\":{"
                "\"enabled\":false,"
                "\"permission_policy\":{\"type\":\"always_ask\"}},\"configs\":[{\"name\":\"bash\",\"enabled\":true},"
                "{\"name\":\"web_fetch\"}]}]}");
    assert_contains(
        x.tools.ptr,
        "{\"type\":\"bash\",\"name\":\"bash\",\"enabled\":true,\"permission_policy\":{\"type\":\"always_ask\"}}");
    assert_contains(x.tools.ptr, "{\"type\":\"web_fetch\",\"name\":\"web_fetch\",\"enabled\":false");
    x = created(
        *state,
        "{\"name\":\"a\",\"model\":\"m\",\"tools\":[{\"type\":\"agent_toolset_20260401\",\"configs\":["
        "{\"name\":\"web_fetch\",\"max_content_tokens\":9,\"allowed_domains\":[\"a.b\"],\"blocked_domains\":null}]}]}");
    assert_contains(x.tools.ptr, "\"permission_policy\":{\"type\":\"always_allow\"},\"allowed_domains\":[\"a.b\"],"
                                 "\"max_content_tokens\":9}");
}

static void an_mcp_toolset_asks_unless_it_says_otherwise(void **state)
{
    struct mg_agent x = created(
        *state,
        "{\"name\":\"a\",\"model\":\"m\",\"mcp_servers\":[{\"type\":\"url\",\"name\":\"s\",\"url\":\"https://x/\"}],"
        "\"tools\":[{\"type\":\"mcp_toolset\",\"mcp_server_name\":\"s\"}]}");
    assert_contains(
        x.tools.ptr,
        "\"default_config\":{\"enabled\":true,\"permission_policy\":{\"type\":\"always_ask\"}},\"configs\":[]");
}

static void a_custom_tool_keeps_its_schema_byte_for_byte(void **state)
{
    struct mg_agent x = created(
        *state,
        "{\"name\":\"a\",\"model\":\"m\",\"tools\":[{\"type\":\"custom\",\"name\":\"t\",\"description\":\"d\\u00e9\","
        "\"input_schema\":{ \"type\":\"object\", \"x-n\": 1.10 }}]}");
    assert_contains(x.tools.ptr,
                    "\"description\":\"d\\u00e9\",\"input_schema\":{ \"type\":\"object\", \"x-n\": 1.10 }");
}

static void effort_is_a_word_or_an_object_and_shown_as_an_object(void **state)
{
    struct mg_agent x = created(
        *state,
        "{\"name\":\"a\",\"model\":{\"id\":\"m\",\"effort\":\"high\",\"speed\":\"fast\",\"inference_geo\":\"eu\"}}");
    assert_sv_equal(x.model,
                    "{\"id\":\"m\",\"effort\":{\"type\":\"high\"},\"speed\":\"fast\",\"inference_geo\":\"eu\"}");
    struct mg_agent y =
        created(*state, "{\"name\":\"a\",\"model\":{\"id\":\"m\",\"effort\":{\"type\":\"low\"},\"speed\":null}}");
    assert_sv_equal(y.model, "{\"id\":\"m\",\"effort\":{\"type\":\"low\"},\"speed\":\"standard\"}");
}

static void an_update_replaces_patches_and_clears(void **state)
{
    struct mg_agent x = created(
        *state, "{\"name\":\"a\",\"model\":{\"id\":\"m\",\"effort\":\"max\",\"inference_geo\":\"eu\"},\"system\":\"s\","
                "\"description\":\"d\",\"metadata\":{\"k\":\"v\",\"l\":\"w\"}}");
    struct mg_agent y;
    struct mg_err err = {0};
    int64_t version = -1;
    assert_int_equal(
        update(
            *state,
            "{\"version\":3,\"model\":\"n\",\"system\":\"\",\"description\":null,\"metadata\":{\"k\":null,\"z\":\"1\"},"
            "\"tools\":null}",
            &x, &y, &version, &err),
        0);
    assert_int_equal(version, 3);
    assert_sv_equal(y.model, "{\"id\":\"n\",\"effort\":{\"type\":\"max\"},\"speed\":\"standard\"}");
    assert_sv_equal(y.system, "null");
    assert_sv_equal(y.description, "null");
    assert_sv_equal(y.metadata, "{\"l\":\"w\",\"z\":\"1\"}");
    assert_false(mg_agent_same(*state, &x, &y));
    assert_int_equal(update(*state, "{\"name\":\"\\u0061\",\"metadata\":{\"l\":\"w\"}}", &x, &y, &version, &err), 0);
    assert_int_equal(version, 0);
    assert_true(mg_agent_same(*state, &x, &y));
}

static void stored_text_is_read_back(void **state)
{
    struct mg_agent x = created(*state, "{\"name\":\"a\",\"model\":\"m\",\"tools\":[{\"type\":\"agent_toolset_"
                                        "20260401\"}],\"metadata\":{\"k\":\"v\"}}"),
                    y;
    struct mg_err err = {0};
    assert_int_equal(mg_agent_load(*state, mg_agent_format(*state, &x), &y, &err), 0);
    assert_true(mg_agent_same(*state, &x, &y));
    struct mg_sv shown = mg_agent_session_format(*state, MG_SV("agent_1"), 2, &x);
    assert_contains(shown.ptr, "{\"id\":\"agent_1\",\"type\":\"agent\",\"version\":2,\"name\":\"a\"");
    assert_null(strstr(shown.ptr, "metadata"));
    assert_int_equal(mg_agent_load(*state, shown, &y, &err), 0);
    assert_sv_equal(y.metadata, "{}");
}

static void a_session_names_its_agent_in_three_ways(void **state)
{
    struct mg_agent_ref r;
    struct mg_err err = {0};
    assert_int_equal(mg_agent_ref_parse(*state, json_of(*state, "\"agent_1\""), "agent", &r, &err), 0);
    assert_sv_equal(r.id, "agent_1");
    assert_int_equal(r.version, 0);
    assert_int_equal(mg_agent_ref_parse(*state,
                                        json_of(*state, "{\"type\":\"agent\",\"id\":\"agent_1\",\"version\":4}"),
                                        "agent", &r, &err),
                     0);
    assert_int_equal(r.version, 4);
    assert_null(r.overrides);
    const char *over =
        "{\"type\":\"agent_with_overrides\",\"id\":\"agent_1\",\"model\":\"other\",\"system\":null,\"tools\":[]}";
    assert_int_equal(mg_agent_ref_parse(*state, json_of(*state, over), "agent", &r, &err), 0);
    struct mg_agent
        x = created(
            *state,
            "{\"name\":\"a\",\"model\":\"m\",\"system\":\"s\",\"tools\":[{\"type\":\"agent_toolset_20260401\"}]}"),
        y;
    assert_int_equal(mg_agent_override(*state, r.overrides, &x, &y, &err), 0);
    assert_sv_equal(y.model, "{\"id\":\"other\",\"speed\":\"standard\"}");
    assert_sv_equal(y.system, "null");
    assert_sv_equal(y.tools, "[]");
    assert_sv_equal(y.name, "\"a\"");
    over = "{\"type\":\"agent_with_overrides\",\"id\":\"agent_1\",\"skills\":[{}]}";
    assert_int_equal(mg_agent_override(*state, json_of(*state, over), &x, &y, &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "agent.skills[0].type: is required"));
}

#define AGENT(more) "{\"name\":\"a\",\"model\":\"m\"," more "}"
#define CUSTOM(name) \
    "{\"type\":\"custom\",\"name\":\"" name "\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"}}"
#define TOOLSET(more) AGENT("\"tools\":[{\"type\":\"agent_toolset_20260401\"," more "}]")

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    static const struct refusal CASES[] = {
        {"{}", "name: is required"},
        {"{\"name\":\"a\"}", "model: is required"},
        {"{\"name\":\"\",\"model\":\"m\"}", "name: must not be empty"},
        {"{\"name\":null,\"model\":\"m\"}", "name: must be a string, not null"},
        {"{\"name\":\"a\\u0000\",\"model\":\"m\"}", "name: must not hold NUL"},
        {"{\"name\":\"a\",\"model\":\"\"}", "model: must not be empty"},
        {"{\"name\":\"a\",\"model\":7}", "model: must be a string or an object; got a number"},
        {"{\"name\":\"a\",\"model\":{}}", "model.id: is required"},
        {"{\"name\":\"a\",\"model\":{\"id\":\"m\",\"effort\":\"huge\"}}", "model.effort: must be one of low"},
        {"{\"name\":\"a\",\"model\":{\"id\":\"m\",\"effort\":{\"type\":\"huge\"}}}",
         "model.effort.type: must be one of low"},
        {"{\"name\":\"a\",\"model\":{\"id\":\"m\",\"speed\":\"slow\"}}", "model.speed: must be one of standard, fast"},
        {"{\"name\":\"a\",\"model\":{\"id\":\"m\",\"temperature\":1}}", "model.temperature: unknown field"},
        {AGENT("\"nmae\":\"x\""), "nmae: unknown field; the fields that are known here are name, model"},
        {AGENT("\"version\":1"), "version: unknown field"},
        {AGENT("\"system\":[]"), "system: must be a string or null; got an array"},
        {AGENT("\"skills\":[{\"type\":\"anthropic\",\"skill_id\":\"skill_1\"}]"),
         "skills[0].skill_id: is that of a custom skill"},
        {AGENT("\"skills\":[{\"type\":\"custom\",\"skill_id\":\"xlsx\"}]"), "skills[0].skill_id: is no custom skill's"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[]}"), "multiagent.agents: must not be empty"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\"}"), "multiagent.agents: is required"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[1]}"), "multiagent.agents[0]"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[{\"type\":\"advisor\"}]}"),
         "multiagent.agents[0].model: is required"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[{\"type\":\"advisor\",\"model\":\"m\"},"
               "{\"type\":\"advisor\",\"model\":\"m\"}]}"),
         "multiagent.agents[1]: a second advisor"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[{\"type\":\"self\",\"id\":\"x\"}]}"),
         "multiagent.agents[0].id: unknown field"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\"}"),
         "multiagent.workflows: workflow runs are not part"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\",\"workflows\":{\"type\":\"enabled\","
               "\"predefined_agents\":[\"agent_1\"]}}"),
         "multiagent.workflows: workflow runs are not part"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\",\"workflows\":{\"type\":\"disabled\"},\"subagents\":{"
               "\"type\":\"enabled\",\"inline_agents\":{\"type\":\"enabled\",\"max\":3}}}"),
         "multiagent.subagents.inline_agents.max: unknown field"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\",\"workflows\":{\"type\":\"disabled\"},\"subagents\":{"
               "\"type\":\"enabled\",\"inline_agents\":{\"type\":\"disabled\"}}}"),
         "multiagent.subagents.predefined_agents: must name at least one agent"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\",\"advisor\":{\"type\":\"enabled\"}}"),
         "multiagent.advisor.model: is required"},
        {AGENT("\"multiagent\":{\"type\":\"multiagent_20261001\",\"advisor\":{\"type\":\"disabled\",\"model\":\"m\"}}"),
         "multiagent.advisor.model: unknown field"},
        {AGENT("\"multiagent\":{\"type\":\"coordinator\",\"agents\":[\"agent_1\"]},\"tools\":[" CUSTOM(
             "send_to_agent") "]"),
         "a custom tool may not be called 'send_to_agent'"},
        {AGENT("\"multiagent\":{\"type\":\"x\"}"), "multiagent.type: must be one of"},
        {AGENT("\"execution_identity\":{\"type\":\"aws_role\",\"role_arn\":\"x\"}"), "execution_identity: only"},
        {AGENT("\"metadata\":{\"\":\"v\"}"), "metadata: a key has 1 to 64 characters"},
        {AGENT("\"metadata\":{\"k\":1}"), "metadata.k: must be a string; got a number"},
        {AGENT("\"metadata\":{\"k\":null}"), "metadata.k: must be a string, not null"},
        {AGENT("\"metadata\":{\"k\":\"\\u0000\"}"), "metadata.k: must not hold NUL"},
        {AGENT("\"metadata\":[]"), "metadata: must be an object"},
        {AGENT("\"tools\":{}"), "tools: must be an array"},
        {AGENT("\"tools\":[{}]"), "tools[0].type: is required"},
        {AGENT("\"tools\":[{\"type\":\"agent_toolset_20270101\"}]"), "tools[0].type: must be one of"},
        {AGENT("\"tools\":[{\"type\":\"agent_toolset_20260401\"},{\"type\":\"agent_toolset_20260401\"}]"),
         "tools[1]: agent_toolset_20260401 may appear only once"},
        {TOOLSET("\"configs\":[{\"name\":\"sh\"}]"), "tools[0].configs[0].name: must be one of bash"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\"},{\"name\":\"bash\"}]"), "configured twice"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\",\"type\":\"read\"}]"), "must be equal to name"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\",\"enabled\":1}]"), "enabled: must be a boolean"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\",\"permission_policy\":{\"type\":\"auto\"}}]"),
         "auto is not part of this build"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\",\"permission_policy\":\"always_ask\"}]"),
         "permission_policy: must be an object"},
        {TOOLSET("\"configs\":[{\"name\":\"web_search\",\"permission_policy\":{\"type\":\"always_ask\"}}]"),
         "runs web_search itself and asks nobody"},
        {TOOLSET("\"configs\":[{\"name\":\"bash\",\"allowed_domains\":[\"x\"]}]"),
         "allowed_domains: belongs to web_fetch and web_search, not to bash"},
        {TOOLSET("\"configs\":[{\"name\":\"web_search\",\"max_content_tokens\":5}]"),
         "max_content_tokens: belongs to web_fetch, not to web_search"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"user_location\":{\"type\":\"approximate\"}}]"),
         "user_location: belongs to web_search"},
        {TOOLSET("\"configs\":[{\"name\":\"web_search\",\"url_sources\":{\"user_input\":\"all\"}}]"),
         "url_sources: belongs to web_fetch"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"url_sources\":{\"user_input\":\"some\"}}]"),
         "url_sources.user_input: must be \"all\", \"none\" or an object"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"url_sources\":{\"user_input\":{\"type\":\"only\"}}}]"),
         "url_sources.user_input.type: must be"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"url_sources\":{\"client_tool_results\":{\"type\":\"only\","
                 "\"tools\":[]}}}]"),
         "url_sources.client_tool_results.tools: must"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"url_sources\":{\"client_tool_results\":{\"type\":\"except\","
                 "\"tools\":[{\"type\":\"tool_reference\",\"name\":\"t\"},{\"type\":\"tool_reference\",\"name\":\"t\"}]"
                 "}}}]"),
         "url_sources.client_tool_results.tools[1].name: is named twice"},
        {TOOLSET(
             "\"configs\":[{\"name\":\"web_fetch\",\"url_sources\":{\"user_input\":\"none\",\"client_tool_results\":"
             "\"none\",\"server_tool_results\":{\"type\":\"none\"}}}]"),
         "url_sources: no source is left"},
        {TOOLSET("\"configs\":[{\"name\":\"web_fetch\",\"allowed_domains\":[\"a\"],\"blocked_domains\":[\"b\"]}]"),
         "exclude each other"},
        {TOOLSET("\"configs\":[{\"name\":\"web_search\",\"allowed_domains\":[1]}]"),
         "allowed_domains[0]: must be a string"},
        {TOOLSET("\"configs\":[{\"name\":\"web_search\",\"user_location\":{\"type\":\"exact\"}}]"),
         "user_location.type: must be one of approximate"},
        {TOOLSET("\"default_config\":{\"policy\":1}"), "tools[0].default_config.policy: unknown field"},
        {AGENT("\"tools\":[" CUSTOM("a b") "]"), "tools[0].name: may hold only"},
        {AGENT("\"tools\":[" CUSTOM("t") "," CUSTOM("t") "]"), "tools[1].name: t is the name of two tools"},
        {AGENT("\"tools\":[{\"type\":\"agent_toolset_20260401\"}," CUSTOM("bash") "]"), "may not be named bash"},
        {AGENT("\"tools\":[{\"type\":\"custom\",\"name\":\"t\",\"description\":\"d\",\"input_schema\":{}}]"),
         "input_schema.type: is required"},
        {AGENT("\"tools\":[{\"type\":\"custom\",\"name\":\"t\",\"description\":\"d\",\"input_schema\":{\"type\":"
               "\"array\"}}]"),
         "input_schema.type: must be one of object"},
        {AGENT("\"tools\":[{\"type\":\"custom\",\"name\":\"t\",\"description\":\"d\",\"input_schema\":{\"type\":"
               "\"object\",\"required\":[1]}}]"),
         "required[0]: must be a string"},
        {AGENT("\"mcp_servers\":[{\"type\":\"url\",\"name\":\"s\",\"url\":\"https://x\"}]"),
         "no mcp_toolset in tools names the server \"s\""},
        {AGENT("\"tools\":[{\"type\":\"mcp_toolset\",\"mcp_server_name\":\"s\"}]"), "mcp_servers has no server \"s\""},
        {AGENT("\"mcp_servers\":[{\"type\":\"stdio\",\"name\":\"s\",\"url\":\"x\"}]"),
         "mcp_servers[0].type: must be one of url"},
        {AGENT("\"mcp_servers\":[{\"type\":\"url\",\"name\":\"s\",\"url\":\"x\"}]"),
         "mcp_servers[0].url: must begin with"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct mg_agent x;
        struct mg_err err = {0};
        if (mg_agent_parse_create(*state, json_of(*state, CASES[i].body), &x, &err) != MG_EINVAL)
            fail_msg("accepted: %s", CASES[i].body);
        assert_contains(err.text, CASES[i].text);
    }
}

static void name_and_model_cannot_be_cleared(void **state)
{
    struct mg_agent x = created(*state, "{\"name\":\"a\",\"model\":\"m\"}"), y;
    struct mg_err err = {0};
    int64_t version;
    assert_int_equal(update(*state, "{\"name\":null}", &x, &y, &version, &err), MG_EINVAL);
    assert_int_equal(update(*state, "{\"name\":\"\"}", &x, &y, &version, &err), MG_EINVAL);
    assert_int_equal(update(*state, "{\"model\":null}", &x, &y, &version, &err), MG_EINVAL);
    assert_int_equal(update(*state, "{\"version\":0}", &x, &y, &version, &err), MG_EINVAL);
    assert_contains(err.text, "version: must be at least 1");
}

static void limits_are_counted_in_characters(void **state)
{
    struct mg_sv name = MG_SV("");
    for (int i = 0; i < MG_AGENT_NAME_MAX; i++)
        name = mg_arena_printf(*state, "%.*s\xC3\xA9", MG_SV_ARG(name));
    (void)created(*state, mg_arena_printf(*state, "{\"name\":\"%.*s\",\"model\":\"m\"}", MG_SV_ARG(name)).ptr);
    struct mg_agent x;
    struct mg_err err = {0};
    const char *longer = mg_arena_printf(*state, "{\"name\":\"x%.*s\",\"model\":\"m\"}", MG_SV_ARG(name)).ptr;
    assert_int_equal(mg_agent_parse_create(*state, json_of(*state, longer), &x, &err), MG_EINVAL);
    assert_contains(err.text, "name: at most 256 characters are allowed, got 257");
}

static void at_most_sixteen_pairs_of_metadata(void **state)
{
    struct mg_sv pairs = MG_SV("\"k0\":\"v\"");
    for (int i = 1; i < 16; i++)
        pairs = mg_arena_printf(*state, "%.*s,\"k%d\":\"v\"", MG_SV_ARG(pairs), i);
    struct mg_agent x = created(*state, mg_arena_printf(*state, "{\"name\":\"a\",\"model\":\"m\",\"metadata\":{%.*s}}",
                                                        MG_SV_ARG(pairs))
                                            .ptr),
                    y;
    struct mg_err err = {0};
    int64_t version;
    assert_int_equal(update(*state, "{\"metadata\":{\"new\":\"v\"}}", &x, &y, &version, &err), MG_EINVAL);
    assert_contains(err.text, "metadata: at most 16 pairs");
    assert_int_equal(update(*state, "{\"metadata\":{\"new\":\"v\",\"k3\":null}}", &x, &y, &version, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_agent_has_every_member),
        cmocka_unit_test(a_toolset_is_resolved),
        cmocka_unit_test(an_mcp_toolset_asks_unless_it_says_otherwise),
        cmocka_unit_test(a_custom_tool_keeps_its_schema_byte_for_byte),
        cmocka_unit_test(effort_is_a_word_or_an_object_and_shown_as_an_object),
        cmocka_unit_test(an_update_replaces_patches_and_clears),
        cmocka_unit_test(stored_text_is_read_back),
        cmocka_unit_test(a_session_names_its_agent_in_three_ways),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(name_and_model_cannot_be_cleared),
        cmocka_unit_test(limits_are_counted_in_characters),
        cmocka_unit_test(at_most_sixteen_pairs_of_metadata),
    };
    return RUN_WITH_ARENA(tests);
}
