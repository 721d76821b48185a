/* Event streams (SSE) as a client on a socket sees them: field cases 16, 17, 18, 21. */
#include "unit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "events/hub.h"
#include "support/http-client.h"
#include "support/http-rig.h"

static void case_17_the_head_of_a_stream_comes_at_once_and_forbids_buffering(void **state)
{
    struct client *c = stream_open(rig, "", "");
    (void)state;
    const char *head = client_until(c, "\r\n\r\n"); /* no event has happened */
    assert_contains(head, "HTTP/1.1 200 OK\r\n");
    assert_contains(head, "content-type: text/event-stream\r\n");
    assert_contains(head, "cache-control: no-cache, no-transform\r\n");
    assert_contains(head, "x-accel-buffering: no\r\n");
    assert_null(strstr(head, "content-length"));
    assert_contains(head, "content-encoding: identity\r\n"); /* so that no proxy compresses it */
    rig_event(rig, "s1", "agent.message", "{\"id\":\"a\",\n \"type\":\"agent.message\"}");
    assert_contains(client_until(c, "\n\n"),
                    "event: agent.message\nid: sevt_s1_1\ndata: {\"id\":\"a\",  \"type\":\"agent.message\"}\n\n");
    client_close(c);
}

static void case_17_http_1_0_and_head_are_refused_clearly(void **state)
{
    (void)state;
    client_refused(rig, "GET /v1/sessions/s1/events/stream HTTP/1.0\r\n\r\n", 400, "invalid_request_error", "HTTP/1.1",
                   true);
    struct client *c = client_open(rig);
    client_say(c, "HEAD /v1/sessions/s1/events/stream HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_contains(client_until(c, "\r\n\r\n"), "405");
    client_close(c);
}

static void a_stream_resumes_behind_the_last_id_and_goes_on_live(void **state)
{
    char json[64], want[128];
    (void)state;
    for (int i = 1; i <= 700; i++) {
        (void)snprintf(json, sizeof(json), "{\"n\":%d}", i);
        rig_event_quietly(rig, "s1", "agent.message", json);
    }
    struct client *c = stream_open(rig, "", "last-event-id: sevt_s1_3\r\n");
    (void)client_until(c, "\r\n\r\n");
    for (int i = 4; i <= 900; i++) {
        if (i >= 700 && i < 900) {
            (void)snprintf(json, sizeof(json), "{\"n\":%d}", i + 1);
            rig_event(rig, "s1", "agent.message", json);
        }
        (void)snprintf(want, sizeof(want), "event: agent.message\nid: sevt_s1_%d\ndata: {\"n\":%d}\n\n", i, i);
        assert_contains(client_until(c, "\n\n"), want);
    }
    client_close(c);
}

static void case_16_a_resume_id_that_cannot_be_honoured_is_an_error(void **state)
{
    (void)state;
    client_refused(rig, "GET /v1/sessions/s1/events/stream?after=sevt_s2_1 HTTP/1.1\r\nhost: x\r\n\r\n", 400,
                   "invalid_request_error", "after", false);
    client_refused(rig, "GET /v1/sessions/missing/events/stream HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found_error",
                   "missing", false);
}

static void the_end_of_a_session_ends_its_streams(void **state)
{
    (void)state;
    struct client *c = stream_open(rig, "", "");
    (void)client_until(c, "\r\n\r\n");
    rig_event(rig, "s1", "session.deleted", "{}");
    rig_event(rig, "s1", "agent.message", "{}");
    assert_contains(client_until(c, "\r\n0\r\n\r\n"), "event: session.deleted\n");
    assert_true(client_ended(c));
    client_close(c);
    c = client_open(rig);
    client_say(c, "GET /v1/sessions/s2/events/stream?types=agent.message HTTP/1.1\r\nhost: x\r\n\r\n");
    (void)client_until(c, "\r\n\r\n");
    rig_event(rig, "s2", "user.message", "{\"no\":1}");
    rig_event(rig, "s2", "agent.message", "{\"yes\":1}");
    rig_event(rig, "s2", "session.status_terminated", "{}");
    const char *all = client_until(c, "0\r\n\r\n");
    assert_contains(all, "{\"yes\":1}");
    assert_null(strstr(all, "{\"no\":1}"));
    assert_true(client_ended(c));
    client_close(c);
}

static void previews_have_no_id_and_come_only_when_asked_for(void **state)
{
    struct mg_id s1;
    (void)state;
    (void)mg_id_from(MG_SV("s1"), &s1);
    struct client *with = stream_open(rig, "?event_deltas%5B%5D=agent.message", ""),
                  *without = stream_open(rig, "", "");
    (void)client_until(with, "\r\n\r\n");
    (void)client_until(without, "\r\n\r\n");
    rig_event(rig, "s1", "user.message", "{\"first\":1}"); /* both are certainly subscribed when it has come */
    (void)client_until(with, "\"first\":1}\n\n");
    struct mg_event *e =
        mg_event_new(0, MG_SV("sevt_s1_2"), MG_SV("event_start"), MG_SV(""), MG_SV("{\"type\":\"event_start\"}"));
    e->preview = 1;
    mg_hub_preview(rig_hub(rig), &s1, e);
    assert_contains(client_until(with, "\n\n"), "event: event_start\ndata: {\"type\":\"event_start\"}\n\n");
    rig_event(rig, "s1", "agent.message", "{\"final\":1}");
    assert_contains(client_until(with, "\n\n"), "\"final\":1");
    assert_null(strstr(client_until(without, "\"final\":1}\n\n"), "event_start"));
    client_close(with);
    client_close(without);
}

static void an_event_of_3_mib_arrives_whole(void **state)
{
    char *json = filled("{\"t\":\"", 'z', 3 * 1024 * 1024, "\"}");
    (void)state;
    struct client *first = stream_open(rig, "", ""), *c = stream_open(rig, "?after=start", "");
    (void)client_until(first, "\r\n\r\n");
    rig_event(rig, "s1", "agent.message", json);
    rig_event(rig, "s1", "session.deleted", "{}");
    struct answer *a = client_answer(c); /* chunks joined, up to the last one */
    assert_contains(a->body, json);
    assert_contains(a->body, "\"}\n\nevent: session.deleted");
    answer_free(a);
    client_close(first);
    free(json);
    client_close(c);
}

static void case_18_something_is_sent_on_an_idle_stream(void **state)
{
    const struct mg_http_limits limits = {.keepalive_ms = 1000};
    (void)state;
    http_restart(&limits);
    struct client *c = stream_open(rig, "", "");
    (void)client_until(c, "\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        uint64_t before = mg_now_ns();
        assert_contains(client_until(c, "\n\n"), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        assert_true(mg_now_ns() - before < UINT64_C(1900000000)); /* an interval and what a busy machine may add */
    }
    client_close(c);
}

static void case_21_a_reader_that_takes_nothing_is_closed(void **state)
{
    const struct mg_http_limits limits = {.send_ms = 1000};
    char *json = filled("{\"t\":\"", 'z', 100000, "\"}");
    (void)state;
    http_restart(&limits);
    struct client *slow = stream_open(rig, "", ""), *fast = stream_open(rig, "", "");
    (void)client_until(slow, "\r\n\r\n");
    (void)client_until(fast, "\r\n\r\n");
    for (int i = 0; i < 200; i++) { /* 20 MB: more than the socket buffers take */
        rig_event(rig, "s1", "agent.message", json);
        char id[64];
        (void)snprintf(id, sizeof(id), "id: sevt_s1_%d\n", i + 1);
        (void)client_until(fast, id);
        (void)client_until(fast, "\n\n");
    }
    rig_wait_metric(rig, "mango_stream_slow_closed_total 1\n");
    rig_wait_metric(rig, "mango_sse_streams 1\n");
    free(json);
    client_close(slow);
    client_close(fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(case_17_the_head_of_a_stream_comes_at_once_and_forbids_buffering),
        HTTP_TEST(case_17_http_1_0_and_head_are_refused_clearly),
        HTTP_TEST(a_stream_resumes_behind_the_last_id_and_goes_on_live),
        HTTP_TEST(case_16_a_resume_id_that_cannot_be_honoured_is_an_error),
        HTTP_TEST(the_end_of_a_session_ends_its_streams),
        HTTP_TEST(previews_have_no_id_and_come_only_when_asked_for),
        HTTP_TEST(an_event_of_3_mib_arrives_whole),
        HTTP_TEST(case_18_something_is_sent_on_an_idle_stream),
        HTTP_TEST(case_21_a_reader_that_takes_nothing_is_closed),
    };
    return RUN(tests);
}
