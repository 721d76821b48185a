/* WebSockets as a client on a socket sees them: the upgrade, one session's form, mango.v1, field cases 20, 21, 23, 24. */
#include "unit.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/buf.h"
#include "events/hub.h"
#include "support/http-client.h"
#include "support/http-rig.h"

static const char KEY[] = "x-api-key: k1\r\n";
static const char MUX[] = "x-api-key: k1\r\nsec-websocket-protocol: mango.v1\r\n";

/* A multiplexed socket behind its hello. */
static struct client *mux(const char *headers)
{
    struct client *c = ws_open(rig, "/v1/stream", headers);
    const char *head = client_until(c, "\r\n\r\n");
    assert_contains(head, "HTTP/1.1 101 ");
    assert_contains(head, "sec-websocket-protocol: mango.v1\r\n");
    const char *hello = ws_expect_text(c);
    assert_contains(hello, "{\"op\":\"hello\",\"server\":\"mango\"");
    assert_contains(hello, "\"node\":\"node_test\"");
    return c;
}

static struct client *single(const char *query)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "/v1/sessions/s1/events/ws%s", query);
    struct client *c = ws_open(rig, path, KEY);
    assert_contains(client_until(c, "\r\n\r\n"), "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
    return c;
}

static void expect_text(struct client *c, const char *whole)
{
    assert_string_equal(ws_expect_text(c), whole);
}

/* ---- the upgrade ---- */

static void upgrade_refused(const char *path, const char *headers, int status, const char *reason)
{
    struct client *c = ws_open(rig, path, headers);
    struct answer *a = client_answer(c);
    if (a->status != status)
        fail_msg("expected %d, got %s%s", status, a->head, a->body);
    assert_contains(a->body, "\"type\":\"error\"");
    assert_contains(a->body, reason);
    assert_contains(a->body, answer_header(a, "request-id"));
    answer_free(a);
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n"); /* plain HTTP goes on */
    a = client_answer(c);
    assert_int_equal(a->status, 200);
    answer_free(a);
    client_close(c);
}

static void a_failed_upgrade_is_a_plain_answer(void **state)
{
    (void)state;
    upgrade_refused("/v1/stream", "sec-websocket-protocol: mango.v1\r\n", 401, "x-api-key");
    upgrade_refused("/v1/stream", KEY, 400, "mango.v1");
    upgrade_refused("/v1/stream", "x-api-key: k1\r\nsec-websocket-protocol: other\r\n", 400, "mango.v1");
    upgrade_refused("/v1/stream?x=1", MUX, 400, "ticket");
    upgrade_refused("/v1/sessions/missing1/events/ws", KEY, 404, "missing1");
    upgrade_refused("/v1/sessions/s1/events/ws?after=nonsense", KEY, 400, "after");
    upgrade_refused("/v1/sessions/s1/events/ws?event_deltas[]=x", KEY, 400, "event_deltas");
    upgrade_refused("/v1/sessions/s1/events/ws", "x-api-key: k1\r\norigin: https://evil.example\r\n", 403, "origin");
    upgrade_refused("/v1/sessions/s1/events/ws", "x-api-key: k1\r\norigin: null\r\n", 403, "origin");
    struct client *c = client_open(rig);
    client_say(c, "GET /v1/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    struct answer *a = client_answer(c);
    assert_int_equal(a->status, 426);
    assert_string_equal(answer_header(a, "upgrade"), "websocket");
    answer_free(a);
    client_close(c);
}

static void origins_and_tickets_that_are_right_are_let_in(void **state)
{
    (void)state;
    client_close(
        mux("x-api-key: k1\r\nsec-websocket-protocol: other, mango.v1\r\norigin: https://console.example\r\n"));
    client_close(mux(
        "x-api-key: k1\r\nsec-websocket-protocol: mango.v1\r\norigin: http://localhost\r\n")); /* same as the host */
    struct client *c = ws_open(rig, "/v1/stream?ticket=t", "sec-websocket-protocol: mango.v1\r\n");
    assert_contains(client_until(c, "\r\n\r\n"), " 101 ");
    client_close(c);
}

static void a_key_has_only_so_many_sockets(void **state)
{
    const struct mg_http_limits limits = {.key_sockets_max = 2};
    (void)state;
    http_restart(&limits);
    struct client *a = mux(MUX), *b = mux(MUX);
    upgrade_refused("/v1/stream", MUX, 429, "2 WebSockets");
    client_close(mux("x-api-key: k2\r\nsec-websocket-protocol: mango.v1\r\n"));
    ws_send_frame(a, 0x88, "\x03\xe8", 2);
    assert_int_equal(ws_expect_close(a), 1000);
    assert_true(client_ended(a));
    client_close(a);
    for (int status = 0; status != 101;) { /* until the server has seen that the first is gone */
        struct client *c = ws_open(rig, "/v1/stream", MUX);
        status = strstr(client_until(c, "\r\n\r\n"), " 101 ") ? 101 : 0;
        client_close(c);
    }
    client_close(b);
}

/* ---- one session ---- */

static void one_session_events_are_frames_and_messages_are_posts(void **state)
{
    (void)state;
    rig_event_quietly(rig, "s1", "user.message", "{\"n\":1}");
    rig_event_quietly(rig, "s1", "agent.message", "{\"n\":2,\n\"x\":0.10}");
    struct client *c = single("?after=start"), *live = single("");
    expect_text(c, "{\"n\":1}");
    expect_text(c, "{\"n\":2, \"x\":0.10}");
    ws_text(live, "{\"events\":[{\"n\":3},{\"n\":4}]}");
    /* The acknowledgement and the events themselves come in either order. */
    bool acked = false;
    int seen = 0;
    while (!acked || seen < 2) {
        const char *t = ws_expect_text(live);
        if (strstr(t, "mango.ack")) {
            assert_string_equal(t, "{\"type\":\"mango.ack\",\"event_ids\":[\"sevt_s1_3\",\"sevt_s1_4\"]}");
            acked = true;
        } else {
            assert_string_equal(t, seen++ == 0 ? "{\"n\":3}" : "{\"n\":4}");
        }
    }
    expect_text(c, "{\"n\":3}");
    ws_text(live, "nonsense");
    const char *e = ws_expect_text(live);
    assert_contains(e, "{\"type\":\"mango.error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"");
    client_close(c);
    client_close(live);
}

static void one_session_filters_and_ends_with_1000(void **state)
{
    (void)state;
    struct client *c = single("?types=agent.message,session.error");
    rig_event(rig, "s1", "user.message", "{\"n\":1}");
    rig_event(rig, "s1", "agent.message", "{\"n\":2}");
    rig_event(rig, "s1", "session.deleted", "{}");
    expect_text(c, "{\"n\":2}");
    assert_int_equal(ws_expect_close(c), 1000);
    assert_true(client_ended(c));
    client_close(c);
    c = ws_open(rig, "/v1/sessions/s2/events/ws", KEY);
    (void)client_until(c, "\r\n\r\n");
    rig_event(rig, "s2", "session.status_terminated", "{\"t\":1}");
    expect_text(c, "{\"t\":1}");
    assert_int_equal(ws_expect_close(c), 1000);
    client_close(c);
}

static void frames_right_behind_the_upgrade_are_heard(void **state)
{
    struct client *c = ws_open(rig, "/v1/stream", MUX);
    (void)state;
    ws_text(c, "{\"op\":\"ping\",\"ref\":1}"); /* before the answer was read */
    (void)client_until(c, "\r\n\r\n");
    assert_contains(ws_expect_text(c), "hello");
    expect_text(c, "{\"op\":\"pong\",\"ref\":1}");
    client_close(c);
}

/* ---- mango.v1 ---- */

static void many_sessions_on_one_socket_each_in_order(void **state)
{
    enum { SESSIONS = 20, HISTORY = 30, LIVE = 30 };
    char text[256], name[16];
    int next[SESSIONS] = {0};
    int lives = 0;
    (void)state;
    struct client *c = mux(MUX);
    for (int s = 0; s < SESSIONS; s++) {
        (void)snprintf(name, sizeof(name), "m%d", s);
        for (int i = 1; i <= HISTORY; i++) {
            (void)snprintf(text, sizeof(text), "{\"n\":%d}", i);
            rig_event_quietly(rig, name, "agent.message", text);
        }
        (void)snprintf(text, sizeof(text),
                       "{\"op\":\"subscribe\",\"sub\":%d,\"session_id\":\"m%d\",\"after\":\"sevt_m%d_2\"}", s, s, s);
        ws_text(c, text);
        next[s] = 3;
    }
    for (int i = HISTORY + 1; i <= HISTORY + LIVE; i++)
        for (int s = 0; s < SESSIONS; s++) {
            (void)snprintf(name, sizeof(name), "m%d", s);
            (void)snprintf(text, sizeof(text), "{\"n\":%d}", i);
            rig_event(rig, name, "agent.message", text);
        }
    for (int left = SESSIONS * (HISTORY + LIVE - 2); left > 0 || lives < SESSIONS;) {
        int sub, n;
        const char *t = ws_expect_text(c);
        if (sscanf(t, "{\"op\":\"event\",\"sub\":%d,\"event\":{\"n\":%d}}", &sub, &n) == 2) {
            assert_in_range(sub, 0, SESSIONS - 1);
            assert_int_equal(n, next[sub]++);
            left--;
        } else if (sscanf(t, "{\"op\":\"live\",\"sub\":%d}", &sub) == 1) {
            assert_true(next[sub] > HISTORY);
            lives++;
        } else {
            fail_msg("unexpected: %s", t);
        }
    }
    client_close(c);
}

static void credit_bounds_what_is_sent(void **state)
{
    char text[64];
    (void)state;
    struct client *c = mux(MUX);
    for (int i = 1; i <= 10; i++) {
        (void)snprintf(text, sizeof(text), "{\"n\":%d}", i);
        rig_event_quietly(rig, "s1", "agent.message", text);
    }
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":5,\"session_id\":\"s1\",\"after\":\"start\",\"credit\":2}");
    expect_text(c, "{\"op\":\"event\",\"sub\":5,\"event\":{\"n\":1}}");
    expect_text(c, "{\"op\":\"event\",\"sub\":5,\"event\":{\"n\":2}}");
    ws_text(c, "{\"op\":\"ping\",\"ref\":\"a\"}"); /* whatever was on its way comes before its answer */
    expect_text(c, "{\"op\":\"pong\",\"ref\":\"a\"}");
    ws_text(c, "{\"op\":\"credit\",\"sub\":5,\"n\":1}");
    expect_text(c, "{\"op\":\"event\",\"sub\":5,\"event\":{\"n\":3}}");
    ws_text(c, "{\"op\":\"ping\"}");
    expect_text(c, "{\"op\":\"pong\"}");
    ws_text(c, "{\"op\":\"credit\",\"sub\":5,\"n\":100}");
    for (int i = 4; i <= 10; i++) {
        (void)snprintf(text, sizeof(text), "{\"op\":\"event\",\"sub\":5,\"event\":{\"n\":%d}}", i);
        expect_text(c, text);
    }
    expect_text(c, "{\"op\":\"live\",\"sub\":5}");
    client_close(c);
}

static void no_event_follows_the_end_of_a_subscription(void **state)
{
    (void)state;
    struct client *c = mux(MUX);
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    ws_text(c, "{\"op\":\"unsubscribe\",\"sub\":1}");
    expect_text(c, "{\"op\":\"end\",\"sub\":1,\"reason\":\"unsubscribed\"}");
    rig_event(rig, "s1", "agent.message", "{\"n\":1}");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}"); /* the number is free again */
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    rig_event(rig, "s1", "session.deleted", "{\"d\":1}");
    expect_text(c, "{\"op\":\"event\",\"sub\":1,\"event\":{\"d\":1}}");
    expect_text(c, "{\"op\":\"end\",\"sub\":1,\"reason\":\"deleted\"}");
    /* Ended before its start was even looked up. */
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":2,\"session_id\":\"s2\"}");
    ws_text(c, "{\"op\":\"unsubscribe\",\"sub\":2}");
    const char *t = ws_expect_text(c);
    if (strstr(t, "live"))
        t = ws_expect_text(c);
    assert_string_equal(t, "{\"op\":\"end\",\"sub\":2,\"reason\":\"unsubscribed\"}");
    rig_event(rig, "s2", "agent.message", "{}");
    ws_text(c, "{\"op\":\"ping\"}");
    expect_text(c, "{\"op\":\"pong\"}");
    client_close(c);
}

static void commands_that_fail_say_so(void **state)
{
    const struct mg_http_limits limits = {.subs_max = 1};
    (void)state;
    http_restart(&limits);
    struct client *c = mux(MUX);
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"missing\",\"ref\":9}");
    expect_text(c, "{\"op\":\"error\",\"ref\":9,\"sub\":1,\"error\":{\"type\":\"not_found_error\",\"message\":"
                   "\"session 'missing' does not "
                   "exist\"}}");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    assert_contains(ws_expect_text(c), "in use");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":2,\"session_id\":\"s1\"}");
    assert_contains(ws_expect_text(c), "1 subscriptions");
    ws_text(c, "{\"op\":\"unsubscribe\",\"sub\":4}");
    assert_contains(ws_expect_text(c), "\"sub\":4,\"error\":{\"type\":\"not_found_error\"");
    ws_text(c, "{\"op\":\"credit\",\"sub\":4,\"n\":1}");
    assert_contains(ws_expect_text(c), "no subscription 4");
    ws_text(c, "{\"op\":\"send\",\"ref\":\"r\",\"session_id\":\"s1\",\"events\":[]}");
    expect_text(c, "{\"op\":\"ack\",\"ref\":\"r\",\"event_ids\":[]}");
    client_close(c);
}

static void sends_keep_their_order_and_long_ones_are_parsed_elsewhere(void **state)
{
    enum { N = 60 };
    char *text = malloc(100000);
    char *pad = filled("", 'p', 50000, "");
    (void)state;
    struct client *c = mux(MUX);
    for (int i = 1; i <= N; i++) {
        (void)snprintf(text, 100000,
                       "{\"op\":\"send\",\"ref\":%d,\"session_id\":\"s1\",\"events\":[{\"n\":%d,\"p\":\"%s\"}]}", i, i,
                       i % 10 ? "" : pad);
        ws_text(c, text);
    }
    for (int i = 1; i <= N; i++) {
        (void)snprintf(text, 100000, "{\"op\":\"ack\",\"ref\":%d,\"event_ids\":[\"sevt_s1_%d\"]}", i, i);
        expect_text(c, text);
    }
    free(text);
    free(pad);
    client_close(c);
}

static void an_event_of_2_mib_is_one_frame_and_answers_wait_for_it(void **state)
{
    size_t n = 2 * 1024 * 1024;
    char *json = filled("{\"t\":\"", 'z', n - 8, "\"}");
    int opcode;
    size_t len;
    (void)state;
    assert_int_equal(strlen(json), n);
    struct client *c = mux(MUX);
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    rig_event(rig, "s1", "agent.message", json);
    for (int i = 0; i < 5; i++)
        ws_text(c, "{\"op\":\"ping\"}");
    int pongs = 0, events = 0;
    while (pongs < 5 || events < 1) {
        const char *t = ws_frame(c, &opcode, &len, false);
        assert_int_equal(opcode, 1);
        if (strcmp(t, "{\"op\":\"pong\"}") == 0) {
            pongs++;
            continue;
        }
        events++;
        assert_int_equal(len, n + strlen("{\"op\":\"event\",\"sub\":1,\"event\":}"));
        assert_contains(t, json);
    }
    free(json);
    client_close(c);
}

static void previews_are_deltas_and_cost_no_credit(void **state)
{
    struct mg_id s1;
    (void)state;
    (void)mg_id_from(MG_SV("s1"), &s1);
    struct client *c = mux(MUX);
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\",\"deltas\":[\"agent.message\"],\"credit\":1}");
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    struct mg_event *e = mg_event_new(0, MG_SV("sevt_s1_1"), MG_SV("event_start"), MG_SV(""), MG_SV("{\"p\":1}"));
    e->preview = 1;
    mg_hub_preview(rig_hub(rig), &s1, e);
    expect_text(c, "{\"op\":\"delta\",\"sub\":1,\"event\":{\"p\":1}}");
    rig_event(rig, "s1", "agent.message", "{\"f\":1}");
    expect_text(c, "{\"op\":\"event\",\"sub\":1,\"event\":{\"f\":1}}");
    client_close(c);
}

static void revoking_a_key_ends_its_subscriptions_and_its_socket(void **state)
{
    (void)state;
    struct client *c = mux(MUX), *other = mux("x-api-key: k2\r\nsec-websocket-protocol: mango.v1\r\n"),
                  *one = single("");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":2,\"session_id\":\"s2\",\"credit\":0}");
    ws_text(other, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\"}");
    expect_text(c, "{\"op\":\"live\",\"sub\":1}");
    ws_text(c, "{\"op\":\"ping\"}");
    expect_text(c, "{\"op\":\"pong\"}");
    expect_text(other, "{\"op\":\"live\",\"sub\":1}");
    struct client *unused = mux(MUX);
    mg_hub_revoke(rig_hub(rig), MG_SV("k1"));
    mg_http_revoke(rig_http(rig), MG_SV("k1"));
    assert_int_equal(ws_expect_close(unused), 1008);
    client_close(unused);
    for (int i = 0; i < 2; i++) {
        const char *t = ws_expect_text(c);
        assert_contains(t, "\"reason\":\"revoked\"");
    }
    assert_int_equal(ws_expect_close(c), 1008);
    assert_int_equal(ws_expect_close(one), 1008);
    rig_event(rig, "s1", "agent.message", "{\"n\":1}");
    expect_text(other, "{\"op\":\"event\",\"sub\":1,\"event\":{\"n\":1}}");
    client_close(c);
    client_close(other);
    client_close(one);
}

/* ---- what the protocol forbids, and what takes too long ---- */

static void ten_malformed_commands_end_the_socket(void **state)
{
    (void)state;
    struct client *c = mux(MUX);
    for (int i = 0; i < 10; i++) {
        ws_text(c, i % 2 ? "nonsense" : "{\"op\":\"fly\"}");
        assert_contains(ws_expect_text(c), "{\"op\":\"error\",\"error\":{\"type\":\"invalid_request_error\"");
    }
    assert_int_equal(ws_expect_close(c), 1008);
    assert_true(client_ended(c));
    client_close(c);
}

static void bad_frame(int first, const char *content, size_t n, int code)
{
    struct client *c = mux(MUX);
    ws_send_frame(c, first, content, n);
    assert_int_equal(ws_expect_close(c), code);
    assert_true(client_ended(c));
    client_close(c);
}

static void frames_that_the_protocol_forbids_close_with_their_code(void **state)
{
    (void)state;
    bad_frame(0x82, "x", 1, 1003);
    bad_frame(0x81, "\xff\xfe", 2, 1007);
    bad_frame(0x80, "x", 1, 1002);
    bad_frame(0xc1, "x", 1, 1002);
    bad_frame(0x88, "\x03", 1, 1002);
    bad_frame(0x88, "", 0, 1005);
    bad_frame(0x88, "\x03\xe9gone", 6, 1001);
}

static void case_23_fragments_over_1_mib_get_1009_and_pings_between_are_answered(void **state)
{
    char *part = malloc(65536);
    int opcode;
    size_t n;
    (void)state;
    memset(part, ' ', 65536);
    struct client *c = mux(MUX);
    ws_send_frame(c, 0x01, "{\"op\":", 6);
    ws_send_frame(c, 0x89, "between", 7);
    const char *pong = ws_frame(c, &opcode, &n, false);
    assert_int_equal(opcode, 10);
    assert_string_equal(pong, "between");
    ws_send_frame(c, 0x00, "\"pi", 3);
    ws_send_frame(c, 0x80, "ng\"}", 4);
    expect_text(c, "{\"op\":\"pong\"}");
    ws_send_frame(c, 0x01, "{", 1);
    for (int i = 0; i < 17; i++)
        ws_send_frame(c, 0x00, part, 65536);
    assert_int_equal(ws_expect_close(c), 1009);
    assert_true(client_ended(c));
    client_close(c);
    /* A message that is announced as too large is refused by its length alone. */
    c = mux(MUX);
    client_send(c, "\x81\xff\0\0\0\0\x00\x10\x00\x01\1\2\3\4", 14);
    assert_int_equal(ws_expect_close(c), 1009);
    client_close(c);
    free(part);
}

static void case_23_a_message_that_never_ends_is_closed(void **state)
{
    const struct mg_http_limits limits = {.message_ms = 600, .keepalive_ms = 1000};
    (void)state;
    http_restart(&limits);
    struct client *c = mux(MUX);
    ws_send_frame(c, 0x01, "{", 1);
    assert_int_equal(ws_expect_close(c), 1008);
    client_close(c);
}

static void case_20_a_peer_without_pongs_is_closed(void **state)
{
    const struct mg_http_limits limits = {.pong_ms = 800, .keepalive_ms = 800};
    int opcode = 0;
    size_t n;
    (void)state;
    http_restart(&limits);
    struct client *alive = mux(MUX), *silent = mux(MUX);
    for (int pings = 0; opcode != 8; pings++) {
        const char *t = ws_frame(silent, &opcode, &n, true);
        if (opcode == 8)
            assert_int_equal((unsigned char)t[0] << 8 | (unsigned char)t[1], 1011);
        else
            assert_int_equal(opcode, 9);
        assert_true(pings < 5);
        if (opcode == 9) { /* the other one answers each of its own */
            (void)ws_frame(alive, &opcode, &n, true);
            assert_int_equal(opcode, 9);
            ws_send_frame(alive, 0x8a, "", 0);
        }
    }
    assert_true(client_ended(silent));
    ws_text(alive, "{\"op\":\"ping\"}");
    expect_text(alive, "{\"op\":\"pong\"}");
    client_close(alive);
    client_close(silent);
}

static void case_21_a_full_buffer_gets_1013_and_resumes_without_loss(void **state)
{
    const struct mg_http_limits limits = {.send_ms = 800};
    char text[4096], want[128];
    (void)state;
    http_restart(&limits);
    struct client *c = mux(MUX);
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (int i = 1; i <= 6000; i++) { /* 24 MB */
        (void)snprintf(text, sizeof(text), "{\"n\":%d,\"t\":\"%03500d\"}", i, 0);
        rig_event_quietly(rig, "s1", "agent.message", text);
    }
    ws_text(c, "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\",\"after\":\"start\",\"credit\":1000000}");
    rig_wait_metric(rig, "mango_stream_slow_closed_total 1\n");
    int last = 0, code = 0;
    while (code == 0) {
        int opcode;
        size_t n;
        const char *t = ws_frame(c, &opcode, &n, false);
        if (opcode == 8) {
            code = (unsigned char)t[0] << 8 | (unsigned char)t[1];
        } else if (opcode == 1) {
            (void)snprintf(want, sizeof(want), "{\"op\":\"event\",\"sub\":1,\"event\":{\"n\":%d,", last + 1);
            if (strncmp(t, want, strlen(want)) != 0)
                fail_msg("after %d came %.80s", last, t);
            last++;
        }
    }
    assert_int_equal(code, 1013);
    assert_true(last > 0 && last < 6000);
    client_close(c);
    c = mux(MUX);
    (void)snprintf(text, sizeof(text),
                   "{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s1\",\"after\":\"sevt_s1_%d\",\"credit\":1000000}",
                   last);
    ws_text(c, text);
    while (last < 6000) {
        (void)snprintf(want, sizeof(want), "{\"op\":\"event\",\"sub\":1,\"event\":{\"n\":%d,", ++last);
        assert_contains(ws_expect_text(c), want);
    }
    client_close(c);
}

static void a_flood_of_pings_is_answered_only_as_far_as_the_peer_reads(void **state)
{
    enum { N = 100000 };
    (void)state;
    struct client *c = mux(MUX);
    struct mg_buf b = MG_BUF_INIT(8 * 1024 * 1024);
    for (int i = 0; i < N; i++)
        (void)mg_buf_append(&b, "\x89\x84\0\0\0\0ping", 10);
    /* In slices, so that neither side waits for the other for ever. */
    int got = 0, opcode;
    size_t n;
    for (int i = 0; i < N; i += 1000) {
        client_send(c, b.ptr + (size_t)i * 10, 10000);
        if (i > 20000)
            for (int k = 0; k < 1000; k++, got++) {
                assert_string_equal(ws_frame(c, &opcode, &n, false), "ping");
                assert_int_equal(opcode, 10);
            }
    }
    for (; got < N; got++)
        assert_string_equal(ws_frame(c, &opcode, &n, false), "ping");
    mg_buf_done(&b);
    client_close(c);
}

/* ---- drain ---- */

static void case_24_draining_says_bye_with_spread_delays_and_closes_1001(void **state)
{
    enum { N = 20 };
    struct client *c[N], *one = single("");
    pthread_t t;
    int delay, different = 0, first = -1;
    (void)state;
    for (int i = 0; i < N; i++)
        c[i] = mux(MUX);
    assert_int_equal(pthread_create(&t, NULL, rig_drain, rig), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(sscanf(ws_expect_text(c[i]), "{\"op\":\"bye\",\"reconnect_in_ms\":%d}", &delay), 1);
        assert_in_range(delay, 0, 4999);
        first = first < 0 ? delay : first;
        different += delay != first;
        assert_int_equal(ws_expect_close(c[i]), 1001);
        assert_true(client_ended(c[i]));
        client_close(c[i]);
    }
    assert_true(different > 0);
    assert_int_equal(ws_expect_close(one), 1001);
    client_close(one);
    (void)pthread_join(t, NULL);
}

static void sockets_that_leave_while_the_database_works_cost_nothing(void **state)
{
    char text[128];
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct client *c = mux(MUX);
        for (int s = 0; s < 10; s++) {
            (void)snprintf(text, sizeof(text),
                           "{\"op\":\"subscribe\",\"sub\":%d,\"session_id\":\"s%d\",\"after\":\"start\"}", s, s);
            ws_text(c, text);
            ws_text(c, "{\"op\":\"send\",\"session_id\":\"s1\",\"events\":[{}]}");
        }
        client_close(c);
    }
    struct client *c = mux(MUX);
    ws_text(c, "{\"op\":\"ping\"}");
    expect_text(c, "{\"op\":\"pong\"}");
    client_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(a_failed_upgrade_is_a_plain_answer),
        HTTP_TEST(origins_and_tickets_that_are_right_are_let_in),
        HTTP_TEST(a_key_has_only_so_many_sockets),
        HTTP_TEST(one_session_events_are_frames_and_messages_are_posts),
        HTTP_TEST(one_session_filters_and_ends_with_1000),
        HTTP_TEST(frames_right_behind_the_upgrade_are_heard),
        HTTP_TEST(many_sessions_on_one_socket_each_in_order),
        HTTP_TEST(credit_bounds_what_is_sent),
        HTTP_TEST(no_event_follows_the_end_of_a_subscription),
        HTTP_TEST(commands_that_fail_say_so),
        HTTP_TEST(sends_keep_their_order_and_long_ones_are_parsed_elsewhere),
        HTTP_TEST(an_event_of_2_mib_is_one_frame_and_answers_wait_for_it),
        HTTP_TEST(previews_are_deltas_and_cost_no_credit),
        HTTP_TEST(revoking_a_key_ends_its_subscriptions_and_its_socket),
        HTTP_TEST(ten_malformed_commands_end_the_socket),
        HTTP_TEST(frames_that_the_protocol_forbids_close_with_their_code),
        HTTP_TEST(case_23_fragments_over_1_mib_get_1009_and_pings_between_are_answered),
        HTTP_TEST(case_23_a_message_that_never_ends_is_closed),
        HTTP_TEST(case_20_a_peer_without_pongs_is_closed),
        HTTP_TEST(case_21_a_full_buffer_gets_1013_and_resumes_without_loss),
        HTTP_TEST(a_flood_of_pings_is_answered_only_as_far_as_the_peer_reads),
        HTTP_TEST(case_24_draining_says_bye_with_spread_delays_and_closes_1001),
        HTTP_TEST(sockets_that_leave_while_the_database_works_cost_nothing),
    };
    return RUN(tests);
}
