/* The MCP client against a scripted server over real HTTP. */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "mcp/mcp.h"
#include "net/loop.h"
#include "support/endpoint.h"

#define INIT_AS(id)                                                                                                   \
    "header mcp-session-id: s-" id "\nbody application/json {\"jsonrpc\":\"2.0\",\"id\":" id                          \
    ",\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"x\"," \
    "\"version\":\"1\"}}}"
#define TAKEN "code 202\nbody text/plain "
#define JSON(id, result) "body application/json {\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":" result "}"
#define HELLO "{\"content\":[{\"type\":\"text\",\"text\":\"hello\"}]}"

enum { CALL_MS = 1000 /* where the limit is what is tested */, PATIENT_MS = 20000 /* where it must not matter */ };

struct fixture {
    struct endpoint *e;
    struct mg_net *net;
    struct mg_mcp_host *host;
    struct mg_mcp *m;
    struct mg_err err;
    char url[64];
};

static int setup_with(void **state, uint32_t call_ms)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->e = endpoint_start(&(struct endpoint_opts){.keep_bodies = true});
    assert_int_equal(mg_net_open(&(struct mg_net_opts){.name = "mcp"}, &f->net, &f->err), MG_OK);
    f->host = mg_mcp_host_new(&(struct mg_mcp_host_opts){.net = f->net, .call_ms = call_ms});
    (void)snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%d/mcp", endpoint_port(f->e));
    f->m = mg_mcp_new(f->host, mg_sv_of(f->url));
    *state = f;
    return 0;
}

static int setup(void **state)
{
    return setup_with(state, CALL_MS);
}

static int setup_patient(void **state)
{
    return setup_with(state, PATIENT_MS);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_mcp_free(f->m);
    mg_mcp_host_free(f->host);
    mg_net_close(f->net);
    endpoint_stop(f->e);
    free(f);
    return 0;
}

/* The link is open; the next request has the id 2. */
static void opened(struct fixture *f)
{
    endpoint_script(f->e, INIT_AS("1"));
    endpoint_script(f->e, TAKEN);
}

static mg_rc call(struct fixture *f, struct mg_mcp_answer *a, struct mg_cancel *cancel)
{
    f->err = (struct mg_err){0};
    return mg_mcp_call(f->m, MG_SV("echo"), MG_SV("{\"x\":0.10}"), cancel, a, &f->err);
}

/* The recorded request i as text. */
static char *request(struct fixture *f, const char *which)
{
    mg_auto(net_answer) struct mg_net_answer a;
    char url[64];
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/requests", endpoint_port(f->e));
    assert_int_equal(mg_net_call(f->net, &(struct mg_net_req){.url = mg_sv_of(url)}, 0, NULL, &a, &f->err), MG_OK);
    assert_contains(a.body.ptr, which);
    return mg_buf_steal(&a.body, NULL);
}

/* Waits until so many requests have come: what nobody waits for may be on its way. */
static void arrived(struct fixture *f, int n)
{
    uint64_t end = mg_now_ns() + 10 * 1000000000ull;
    while (endpoint_requests(f->e) < n && mg_now_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    assert_int_equal(endpoint_requests(f->e), n);
}

static void a_link_opens_lists_by_pages_and_calls(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
    opened(f);
    endpoint_script(
        f->e, JSON("2", "{\"tools\":[{\"name\":\"one\",\"description\":\"1\",\"inputSchema\":{\"type\":\"object\"}"
                        "}],\"nextCursor\":\"p\\u00e4ge\"}"));
    endpoint_script(f->e, JSON("3", "{\"tools\":[{\"name\":\"two\",\"inputSchema\":{\"type\":\"object\"}}]}"));
    endpoint_script(f->e, JSON("4", HELLO));
    assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_OK);
    assert_int_equal(l.n_tools, 2);
    assert_string_equal(l.tools.ptr,
                        "[{\"name\":\"one\",\"description\":\"1\",\"input_schema\":{\"type\":\"object\"}},{"
                        "\"name\":\"two\",\"description\":\"\",\"input_schema\":{\"type\":\"object\"}}]");
    assert_int_equal(call(f, &a, NULL), MG_OK);
    assert_contains(a.message.ptr, HELLO);
    static const char *const bodies[] = {"\"method\":\"initialize\"", "\"method\":\"notifications/initialized\"",
                                         "\"method\":\"tools/list\"", "\"params\":{\"cursor\":\"p\\u00e4ge\"}",
                                         "\"params\":{\"name\":\"echo\",\"arguments\":{\"x\":0.10}"};
    for (int i = 0; i < 5; i++) {
        mg_autofree char *body = endpoint_body(f->e, i);
        assert_contains(body, bodies[i]);
    }
    mg_autofree char *all = request(f, "\"mcp-session-id\":\"s-1\"");
    assert_contains(all, "\"mcp-protocol-version\":\"2025-06-18\"");
    assert_contains(all, "\"accept\":\"application/json, text/event-stream\"");
    mg_mcp_free(f->m);
    f->m = NULL;
    arrived(f, 6);
    mg_autofree char *with_end = request(f, "\"method\":\"DELETE\"");
}

static void a_stream_brings_progress_pings_and_the_answer(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
    opened(f);
    endpoint_script(
        f->e,
        "line : hello\nraw {\"jsonrpc\":\"2.0\",\"id\":\"p1\",\"method\":\"ping\"}\n"
        "raw {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"sampling/createMessage\",\"params\":{}}\n"
        "raw {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\"}}\ndelay 400\n"
        "raw {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":2,"
        "\"progress\":1}}\ndelay 400\n"
        "raw {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":2,"
        "\"progress\":2}}\ndelay 400\n"
        "raw {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n"
        "raw {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":" HELLO "}\nend");
    endpoint_script(f->e, TAKEN);
    endpoint_script(f->e, TAKEN);
    assert_int_equal(call(f, &a, NULL), MG_OK); /* 1,200 ms with progress, where 1,000 without it are the limit */
    assert_contains(a.message.ptr, HELLO);
    arrived(f, 5);
    mg_autofree char *all = request(f, "{\"jsonrpc\":\"2.0\",\"id\":\"p1\",\"result\":{}}");
    assert_contains(all, "\"id\":7,\"error\":{\"code\":-32601");
}

static void a_cut_stream_is_resumed_behind_its_last_event(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0}, b = {0};
    opened(f);
    endpoint_script(f->e, "line id: e-1\nline retry: 20\nline data:\nline \ndrop");
    endpoint_script(f->e,
                    "line id: e-2\nraw {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\nend");
    endpoint_script(f->e, "line id: e-3\nraw {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":" HELLO "}\nend");
    assert_int_equal(call(f, &a, NULL), MG_OK);
    assert_contains(a.message.ptr, HELLO);
    mg_autofree char *all = request(f, "\"last-event-id\":\"e-1\"");
    assert_contains(all, "\"last-event-id\":\"e-2\"");
    assert_int_equal(endpoint_requests(f->e), 5);
    /* A server that does not keep it: the answer is lost. */
    endpoint_script(f->e, "line id: e-1\nline retry: 20\nline data:\nline \ndrop");
    endpoint_script(f->e, "code 405\nbody text/plain no");
    assert_int_equal(call(f, &b, NULL), MG_EINVAL);
    assert_true(b.may_have_run);
    assert_contains(f->err.text, "rest of its answer (status 405)");
}

static void an_expired_session_is_opened_again_and_the_call_made_once_more(void **state)
{
    static const char *const expired[] = {
        "code 404\nbody text/plain gone",
        "code 400\nbody application/json {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32000,"
        "\"message\":\"Bad Request: No valid session ID provided\"},\"id\":null}"};
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
        mg_mcp_free(f->m);
        f->m = mg_mcp_new(f->host, mg_sv_of(f->url));
        arrived(f, i ? 7 : 0); /* the goodbye of the one before */
        opened(f);
        endpoint_script(f->e, expired[i]);
        endpoint_script(f->e, INIT_AS("3"));
        endpoint_script(f->e, TAKEN);
        endpoint_script(f->e, JSON("4", HELLO));
        assert_int_equal(call(f, &a, NULL), MG_OK);
        assert_contains(a.message.ptr, HELLO);
        mg_autofree char *all = request(f, "\"mcp-session-id\":\"s-3\"");
    }
}

/* Each is one call whose answer is lost: never sent again, and said so. */
static void a_call_whose_answer_is_lost_is_never_repeated(void **state)
{
    static const struct {
        const char *script, *says;
    } cases[] = {
        {"drop", "without an answer"},
        {"line : x\ndrop", "in the middle"},
        {"raw {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\nend", "without the response"},
        {"empty", "without the response"},
        {"code 202\nbody text/plain ", "without the response"},
        {"code 502\nbody text/html <h1>Bad Gateway</h1>", "status 502"},
        {"body text/html <h1>Welcome</h1>", "neither JSON nor an event stream"},
        {"body application/json {\"jsonrpc\":\"2.0\",\"id\":2", "no JSON"},
        {"body application/json {\"id\":2,\"result\":{}}", "jsonrpc"},
        {"body application/json {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":5}", "not an object"},
        {"body application/json []", "array"},
        {"raw nonsense\nend", "no JSON"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
        int before;
        mg_mcp_free(f->m);
        f->m = mg_mcp_new(f->host, mg_sv_of(f->url));
        if (i > 0)
            arrived(f, (int)i * 4); /* its goodbye */
        before = endpoint_requests(f->e);
        opened(f);
        endpoint_script(f->e, cases[i].script);
        mg_rc rc = call(f, &a, NULL);
        if (rc == MG_OK || !a.may_have_run || !strstr(f->err.text, cases[i].says))
            fail_msg("case %zu: %d, %d, \"%s\"", i, rc, a.may_have_run, f->err.text);
        assert_int_equal(endpoint_requests(f->e), before + 3);
    }
}

static void a_call_that_did_not_run_says_so(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0}, b = {0}, c = {0};
    opened(f);
    endpoint_script(f->e, "code 429\nbody text/plain slow down");
    assert_int_equal(call(f, &a, NULL), MG_EUNAVAIL);
    assert_false(a.may_have_run);
    endpoint_script(f->e, "code 422\nbody application/json {\"message\":\"no such thing\"}");
    assert_int_equal(call(f, &b, NULL), MG_EINVAL);
    assert_false(b.may_have_run);
    assert_contains(f->err.text, "status 422: no such thing");
    struct mg_mcp *nobody = mg_mcp_new(f->host, MG_SV("http://127.0.0.1:1/mcp"));
    assert_int_equal(mg_mcp_call(nobody, MG_SV("t"), MG_SV("{}"), NULL, &c, &f->err), MG_EIO);
    assert_false(c.may_have_run);
    mg_mcp_free(nobody);
}

static void credentials_that_are_wanted_are_told_apart(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    static const char *const scripts[] = {"code 401\nheader www-authenticate: Bearer\nbody application/json "
                                          "{\"error\":\"invalid_token\",\"error_description\":"
                                          "\"missing\"}",
                                          "code 403\nbody text/plain no"};
    for (int i = 0; i < 2; i++) {
        endpoint_script(f->e, scripts[i]);
        assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_EAUTH);
        assert_contains(f->err.text, i ? "status 403" : "status 401): missing");
    }
}

static void a_server_that_hangs_is_given_up_and_told(void **state)
{
    static const char *const scripts[] = {
        "silence", "line : x\nsilence", "raw {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\nsilence",
        ("repeat 1 : x\ndelay 400\nline : x\ndelay 400\nline : x\ndelay 400\nline : x\n"
         "delay 400\nline : x\nsilence")};
    struct fixture *f = *state;
    opened(f);
    for (int i = 0; i < 4; i++) {
        mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
        endpoint_script(f->e, scripts[i]);
        uint64_t began = mg_now_ns();
        assert_int_equal(call(f, &a, NULL), MG_ETIMEOUT);
        assert_true(a.may_have_run);
        assert_true(mg_now_ns() - began < 5000 * 1000000ull);
        arrived(f, 2 + 2 * (i + 1));
    }
    mg_autofree char *all = request(f, "\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":2,");
}

static void *fire(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000000}, NULL);
    mg_cancel_fire(arg);
    return NULL;
}

static void a_cancelled_call_ends_at_once_and_the_server_is_told(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0}, b = {0};
    struct mg_cancel *c = mg_cancel_new();
    pthread_t t;
    opened(f);
    endpoint_script(f->e, "silence");
    assert_int_equal(pthread_create(&t, NULL, fire, c), 0);
    assert_int_equal(call(f, &a, c), MG_ECANCELED);
    pthread_join(t, NULL);
    arrived(f, 4);
    mg_autofree char *all = request(f, "\"reason\":\"interrupted by the user\"");
    assert_int_equal(call(f, &b, c), MG_ECANCELED); /* fired before */
    mg_cancel_unref(c);
}

static void floods_are_cut(void **state)
{
    static const struct {
        const char *script, *says;
    } cases[] = {
        {"repeat 20000 data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\nline \nend",
         "no JSON"}, /* one event of many lines */
        {"", "over 16777216 bytes"},
    };
    struct fixture *f = *state;
    opened(f);
    for (int i = 0; i < 2; i++) {
        mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
        mg_auto(buf) struct mg_buf s = MG_BUF_INIT(64 * 1024 * 1024);
        mg_buf_str(&s, cases[i].script);
        if (i == 1) {
            mg_buf_str(&s, "body application/json ");
            for (int k = 0; k < 17 * 1024; k++)
                mg_buf_printf(&s, "%01024d", 0);
        }
        endpoint_script(f->e, s.ptr);
        assert_true(call(f, &a, NULL) < 0);
        assert_true(a.may_have_run);
        assert_contains(f->err.text, cases[i].says);
    }
    mg_auto(buf) struct mg_buf many = MG_BUF_INIT(64 * 1024 * 1024);
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
    for (int i = 0; i <= MG_MCP_EVENTS_MAX; i++)
        mg_buf_str(&many, "raw {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
    mg_buf_str(&many, "end");
    endpoint_script(f->e, many.ptr);
    assert_int_equal(call(f, &a, NULL), MG_EINVAL);
    assert_contains(f->err.text, "more messages");
}

static void an_endless_list_is_cut(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    char script[256];
    opened(f);
    for (int i = 0; i <= MG_MCP_PAGES_MAX; i++) {
        (void)snprintf(script, sizeof(script), JSON("%d", "{\"tools\":[],\"nextCursor\":\"again\"}"), i + 2);
        endpoint_script(f->e, script);
    }
    assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_ETOOBIG);
    assert_contains(f->err.text, "64 pages");
}

static void redirects_stay_on_the_host(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    endpoint_script(f->e, "code 307\nheader location: /mcp/\nbody text/plain x");
    opened(f);
    endpoint_script(f->e, JSON("2", "{\"tools\":[]}"));
    assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_OK);
    mg_autofree char *all = request(f, "\"path\":\"/mcp/\"");
    assert_sv_equal(mg_mcp_url(f->m), f->url);
    static const char *const elsewhere[] = {"http://127.0.0.2/mcp", "//127.0.0.2/mcp", "https://127.0.0.1/mcp",
                                            "ftp:x"};
    for (int i = 0; i < 4; i++) {
        (void)snprintf(all, 128, "code 308\nheader location: %s\nbody text/plain x", elsewhere[i]);
        endpoint_script(f->e, all);
        assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_EINVAL);
        assert_contains(f->err.text, "redirect (status 308)");
    }
}

static void versions_are_negotiated(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    endpoint_script(f->e, JSON("1", "{\"protocolVersion\":\"1999-01-01\",\"capabilities\":{}}"));
    assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_EINVAL);
    assert_contains(f->err.text, "version \"1999-01-01\"");
    endpoint_script(f->e, JSON("2", "{\"protocolVersion\":\"2025-03-26\",\"capabilities\":{}}"));
    endpoint_script(f->e, TAKEN);
    assert_int_equal(mg_mcp_list(f->m, NULL, &l, &f->err), MG_OK); /* it has no tools, and was not asked */
    assert_string_equal(l.tools.ptr, "[]");
    assert_int_equal(endpoint_requests(f->e), 3);
}

static void a_refusal_of_the_server_is_an_answer(void **state)
{
    struct fixture *f = *state;
    mg_auto(mcp_answer) struct mg_mcp_answer a = {0};
    opened(f);
    endpoint_script(f->e, "body application/json {\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32602,\"message\":"
                          "\"Tool nope not found\"}}");
    assert_int_equal(call(f, &a, NULL), MG_OK);
    assert_contains(a.message.ptr, "Tool nope not found");
}

static void private_addresses_are_refused_unless_the_operator_allows_them(void **state)
{
    struct fixture *f = *state;
    struct mg_net *guarded = NULL;
    mg_auto(mcp_tool_list) struct mg_mcp_tool_list l = {0};
    assert_int_equal(mg_net_open(&(struct mg_net_opts){.name = "users", .public_only = true}, &guarded, &f->err),
                     MG_OK);
    struct mg_mcp_host *h = mg_mcp_host_new(&(struct mg_mcp_host_opts){.net = guarded});
    static const char *const hosts[] = {"127.0.0.1", "10.0.0.1", "[::1]", "169.254.169.254", "localhost"};
    for (int i = 0; i < 5; i++) {
        char url[64];
        (void)snprintf(url, sizeof(url), "http://%s:%d/mcp", hosts[i], endpoint_port(f->e));
        struct mg_mcp *m = mg_mcp_new(h, mg_sv_of(url));
        assert_int_not_equal(mg_mcp_list(m, NULL, &l, &f->err), MG_OK);
        assert_contains(f->err.text, "public");
        mg_mcp_free(m);
    }
    assert_int_equal(endpoint_requests(f->e), 0);
    mg_mcp_host_free(h);
    mg_net_close(guarded);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup_patient, teardown)
#define WITH_LIMIT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_link_opens_lists_by_pages_and_calls),
        WITH_LIMIT(a_stream_brings_progress_pings_and_the_answer),
        WITH(a_cut_stream_is_resumed_behind_its_last_event),
        WITH(an_expired_session_is_opened_again_and_the_call_made_once_more),
        WITH(a_call_whose_answer_is_lost_is_never_repeated),
        WITH(a_call_that_did_not_run_says_so),
        WITH(credentials_that_are_wanted_are_told_apart),
        WITH_LIMIT(a_server_that_hangs_is_given_up_and_told),
        WITH(a_cancelled_call_ends_at_once_and_the_server_is_told),
        WITH(floods_are_cut),
        WITH(an_endless_list_is_cut),
        WITH(redirects_stay_on_the_host),
        WITH(versions_are_negotiated),
        WITH(a_refusal_of_the_server_is_an_answer),
        WITH(private_addresses_are_refused_unless_the_operator_allows_them),
    };
    return RUN(tests);
}
