/* What an agent that a coordinator defines itself may be: never more than the coordinator. */
#include "unit.h"

#include "base/mem.h"
#include "domain/agent.h"
#include "json/json.h"
#include "run/inline-agent.h"
#include "run/tool-config.h"

/* As a request sees it: resolved, and with the tools of its MCP servers. Apostrophes stand for quotes. */
static const char LEAD[] =
    "{'id':'agent_1','type':'agent','version':3,'name':'lead','description':'leads','system':'s',"
    "'model':{'id':'big','speed':'fast'},'tools':["
    "{'type':'agent_toolset_20260401','default_config':{'enabled':true,'permission_policy':{'type':'always_allow'}},"
    "'configs':[{'type':'bash','name':'bash','enabled':true,'permission_policy':{'type':'always_ask'}},"
    "{'type':'write','name':'write','enabled':false,'permission_policy':{'type':'always_allow'}},"
    "{'type':'web_search','name':'web_search','enabled':true,'permission_policy':{'type':'always_allow'}}]},"
    "{'type':'custom','name':'lookup','description':'d','input_schema':{'type':'object'}},"
    "{'type':'custom','name':'other','description':'d','input_schema':{'type':'object'}},"
    "{'type':'mcp_toolset','mcp_server_name':'one',"
    "'default_config':{'enabled':true,'permission_policy':{'type':'always_ask'}},'configs':[]},"
    "{'type':'mcp_toolset','mcp_server_name':'two',"
    "'default_config':{'enabled':true,'permission_policy':{'type':'always_allow'}},'configs':[]}],"
    "'mcp_servers':[{'type':'url','name':'one','url':'http://one'},{'type':'url','name':'two','url':'http://two'}],"
    "'skills':[{'type':'custom','skill_id':'skill_1','version':'1'}],"
    "'multiagent':{'type':'multiagent_20261001','subagents':{'type':'enabled','inline_agents':{'type':'enabled'},"
    "'predefined_agents':[{'id':'agent_2','name':'saved','model':{'id':'small'}}]}},"
    "'execution_identity':{'type':'service_account'},"
    "'mcp_tools':[{'server':'one','tools':[{'name':'say','description':'d','input_schema':{'type':'object'}},"
    "{'name':'shout','description':'d','input_schema':{'type':'object'}}]},"
    "{'server':'two','tools':[{'name':'say','description':'d','input_schema':{'type':'object'}}]}]}";

struct made {
    mg_rc rc;
    struct mg_err err;
    struct mg_sv name;
    const struct mg_json *agent;
};

static struct mg_json *parse(struct mg_arena *a, struct mg_sv text)
{
    struct mg_json *v = NULL;
    struct mg_err err = {0};
    if (mg_json_parse(a, text, &mg_json_raw_limits, &v, &err) < 0)
        fail_msg("%s: %.*s", err.text, MG_SV_ARG(text));
    return v;
}

/* The same with apostrophes for quotes. */
static struct mg_json *parse_easy(struct mg_arena *a, const char *text)
{
    char *copy = mg_arena_strdup(a, mg_sv_of(text));
    for (char *c = copy; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return parse(a, mg_sv_of(copy));
}

static struct made define_in(struct mg_arena *a, enum mg_web_mode mode, const char *definition)
{
    struct made m = {.name = MG_SV("inline-7")};
    struct mg_sv text = MG_SV("");
    m.rc = mg_inline_agent(a, parse_easy(a, LEAD), mode, parse_easy(a, definition), &m.name, &text, &m.err);
    m.agent = m.rc < 0 ? NULL : parse(a, text);
    return m;
}

static struct made define(struct mg_arena *a, const char *definition)
{
    struct made m = define_in(a, MG_WEB_NAMED, definition);
    if (m.rc < 0)
        fail_msg("%s", m.err.text);
    return m;
}

static void what_it_leaves_out_is_its_coordinators(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    const struct mg_json *lead = parse_easy(a, LEAD);
    struct made m = define(a, "{'system':'You dig.'}");
    static const char *const SAME[] = {"model", "tools", "mcp_servers", "skills", "execution_identity"};
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_true(mg_sv_eq(mg_json_get_raw(m.agent, SAME[i]), mg_json_get_raw(lead, SAME[i])));
    assert_sv_equal(m.name, "inline-7");
    assert_sv_equal(mg_json_get_str(a, m.agent, "type"), "inline");
    assert_sv_equal(mg_json_get_str(a, m.agent, "name"), "inline-7");
    assert_sv_equal(mg_json_get_str(a, m.agent, "system"), "You dig.");
    assert_sv_equal(mg_json_get_raw(m.agent, "description"), "null");
    static const char *const NONE[] = {"id", "version", "multiagent", "mcp_tools"};
    for (int i = 0; i < 4; i++)
        assert_null(mg_json_get(m.agent, NONE[i]));
}

static void it_says_who_it_is_and_takes_a_model_of_the_session(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct made m = define(a, "{'name':'d\\u00edgger','description':'digs','system':'s','model':'small','tools':null}");
    (void)state;
    assert_sv_equal(m.name, "d\u00edgger");
    assert_sv_equal(mg_json_get_str(a, m.agent, "description"), "digs");
    assert_sv_equal(mg_json_get_raw(m.agent, "model"), "{\"id\":\"small\"}");
    m = define(a, "{'system':'s','model':'big'}");
    assert_sv_equal(mg_json_get_raw(m.agent, "model"), "{\"id\":\"big\",\"speed\":\"fast\"}");
}

static enum mg_permission permission(struct mg_arena *a, const struct mg_json *agent, const char *name)
{
    struct mg_tool_rule rule = mg_tool_rule_of(a, agent, mg_sv_of(name));
    return rule.known ? rule.permission : MG_PERM_DENY;
}

static void some_of_its_tools_keep_their_policies_and_the_rest_is_off(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    (void)state;
    struct made m = define(a, "{'system':'s','tools':['lookup','bash','read','web_search']}");
    assert_int_equal(permission(a, m.agent, "bash"), MG_PERM_ASK);
    assert_int_equal(permission(a, m.agent, "read"), MG_PERM_ALLOW);
    assert_int_equal(permission(a, m.agent, "lookup"), MG_PERM_ALLOW);
    static const char *const OFF[] = {"edit", "glob", "write", "other"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(permission(a, m.agent, OFF[i]), MG_PERM_DENY);
    const struct mg_json *toolset = mg_json_get(m.agent, "tools")->child;
    assert_true(mg_web_tool_on(a, toolset, MG_WEB_NAMED, MG_SV("web_search")));
    assert_false(mg_web_tool_on(a, toolset, MG_WEB_ALL, MG_SV("web_fetch")));
    assert_sv_equal(mg_json_get_raw(m.agent, "mcp_servers"), "[]");
    assert_int_equal(mg_json_get(m.agent, "skills")->n, 1);
    m = define(a, "{'system':'s','tools':['web_search']}");
    assert_int_equal(mg_json_get(m.agent, "skills")->n, 0); /* nothing that it has could read them */
    m = define(a, "{'system':'s','tools':[]}");
    assert_sv_equal(mg_json_get_raw(m.agent, "tools"), "[]");
}

static void an_mcp_tool_brings_its_server_and_no_other_tool_of_it(void **state)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    (void)state;
    struct made m = define(a, "{'system':'s','tools':['mcp__one__say']}");
    const struct mg_json *servers = mg_json_get(m.agent, "mcp_servers"), *tools = mg_json_get(m.agent, "tools");
    assert_int_equal(servers->n, 1);
    assert_sv_equal(mg_json_get_str(a, servers->child, "url"), "http://one");
    assert_int_equal(tools->n, 1);
    assert_int_equal(mg_toolset_permission(a, tools->child, MG_SV("say"), MG_PERM_DENY), MG_PERM_ASK);
    assert_int_equal(mg_toolset_permission(a, tools->child, MG_SV("shout"), MG_PERM_ALLOW), MG_PERM_DENY);
}

static void a_bad_definition_is_told_what_to_change(void **state)
{
    static const struct {
        const char *definition, *says;
    } CASES[] = {
        {"7", "inline_agent: must be an object; got a number"},
        {"{}", "inline_agent.system: is required"},
        {"{'system':''}", "inline_agent.system: must not be empty"},
        {"{'system':null}", "inline_agent.system: must be a string, not null"},
        {"{'system':'s','system':'s'}", "inline_agent: "},
        {"{'system':'\\ud800'}", "unpaired surrogate"},
        {"{'system':'s','skills':[]}", "inline_agent.skills: unknown field; the fields that are known here are"},
        {"{'system':'s','name':''}", "inline_agent.name: must not be empty"},
        {"{'system':'s','name':'a\\u0000'}", "inline_agent.name: must not hold NUL"},
        {"{'system':'s','name':'saved'}", "inline_agent.name: 'saved' is the name of another agent; choose"},
        {"{'system':'s','name':'anthropic.advisor'}", "inline_agent.name: 'anthropic.advisor' is the name"},
        {"{'system':'s','model':'huge'}",
         "inline_agent.model: 'huge' is no model of this session, which are: big, small; name one of them, or leave"},
        {"{'system':'s','model':{'id':'big'}}", "inline_agent.model: must be a string"},
        {"{'system':'s','tools':'bash'}", "inline_agent.tools: must be an array"},
        {"{'system':'s','tools':[7]}", "inline_agent.tools[0]: must be a string"},
        {"{'system':'s','tools':['read','write']}", "inline_agent.tools[1]: 'write' is none of your tools"},
        {"{'system':'s','tools':['web_fetch']}", "inline_agent.tools[0]: 'web_fetch' is none of your tools"},
        {"{'system':'s','tools':['mcp__two__shout']}", "is none of your tools; name tools that you have"},
        {"{'system':'s','tools':['send_to_agent']}", "'send_to_agent' is a coordinator's alone; leave it out"},
        {"{'system':'s','tools':['read','read']}", "inline_agent.tools[1]: 'read' is named twice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        struct made m = define_in(a, MG_WEB_NAMED, CASES[i].definition);
        assert_int_equal(m.rc, MG_EINVAL);
        assert_contains(m.err.text, CASES[i].says);
    }
}

static void its_texts_have_the_limits_of_a_saved_agents(void **state)
{
    static const struct {
        const char *field;
        size_t max;
    } TEXTS[] = {
        {"name", MG_AGENT_NAME_MAX},
        {"description", MG_AGENT_DESCRIPTION_MAX},
        {"system", MG_AGENT_SYSTEM_MAX},
    };
    (void)state;
    for (int i = 0; i < 3; i++)
        for (size_t over = 0; over < 2; over++) {
            mg_auto(arena) struct mg_arena *a = mg_arena_new();
            size_t n = TEXTS[i].max + over;
            char *text = mg_arena_alloc(a, n + 1);
            memset(text, 'x', n);
            text[n] = '\0';
            struct mg_sv d = mg_arena_printf(a, "{'%s':'%s'%s}", TEXTS[i].field, text, i == 2 ? "" : ",'system':'s'");
            struct made m = define_in(a, MG_WEB_NAMED, mg_arena_strdup(a, d));
            assert_int_equal(m.rc, over ? MG_EINVAL : MG_OK);
            if (over)
                assert_contains(m.err.text, TEXTS[i].field);
        }
}

static void only_who_is_told_so_defines_agents(void **state)
{
    static const struct {
        const char *agent;
        bool may;
    } CASES[] = {
        {"{'multiagent':null}", false},
        {"{'multiagent':{'type':'multiagent_20261001','subagents':{'type':'enabled','inline_agents':{'type':'enabled'}}"
         "}}",
         true},
        {"{'multiagent':{'type':'multiagent_20261001','subagents':{'type':'enabled','inline_agents':{'type':'disabled'}"
         "}}}",
         false},
        {"{'multiagent':{'type':'multiagent_20261001','subagents':{'type':'disabled'}}}", false},
        {"{'multiagent':{'type':'coordinator','agents':[]}}", false},
    };
    (void)state;
    for (int i = 0; i < 5; i++) {
        mg_auto(arena) struct mg_arena *a = mg_arena_new();
        assert_int_equal(mg_inline_allowed(a, parse_easy(a, CASES[i].agent)), CASES[i].may);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_leaves_out_is_its_coordinators),
        cmocka_unit_test(it_says_who_it_is_and_takes_a_model_of_the_session),
        cmocka_unit_test(some_of_its_tools_keep_their_policies_and_the_rest_is_off),
        cmocka_unit_test(an_mcp_tool_brings_its_server_and_no_other_tool_of_it),
        cmocka_unit_test(a_bad_definition_is_told_what_to_change),
        cmocka_unit_test(its_texts_have_the_limits_of_a_saved_agents),
        cmocka_unit_test(only_who_is_told_so_defines_agents),
    };
    return RUN(tests);
}
