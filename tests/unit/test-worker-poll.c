/* The worker's poller against a scripted peer. */
#include "unit.h"

#include <pthread.h>

#include "base/clock.h"
#include "support/stub.h"
#include "worker/poll.h"
#include "worker/retry.h"

#define POLL "GET /v1/environments/env_1/work/poll"
#define ITEM                                                                                                          \
    "{\"id\":\"work_1\",\"type\":\"work\",\"environment_id\":\"env_1\",\"data\":{\"type\":\"session\",\"id\":\"sesn_" \
    "1\"},"                                                                                                           \
    "\"state\":\"queued\",\"secret\":\"eyJzZXNzaW9uc190b2tlbiI6InNrLXRva2VuIn0\"}"
#define ERROR(text) \
    "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" text "\"},\"request_id\":\"req_1\"}"

struct fixture {
    struct stub *stub;
    struct mg_net *net;
    struct mg_remote *remote;
    struct mg_poller *poller;
    struct mg_work_item item;
    struct mg_err err;
};

static void open_poller(struct fixture *f, bool drain)
{
    const struct mg_poller_opts o = {
        .environment_id = "env_1", .worker_id = "w1", .drain = drain, .reclaim_older_than_ms = -1, .gap_max_ms = 1};
    assert_int_equal(mg_poller_open(f->remote, &o, &f->poller, &f->err), MG_OK);
}

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->stub = stub_start();
    assert_int_equal(mg_net_open(&(struct mg_net_opts){.name = "worker"}, &f->net, &f->err), MG_OK);
    f->remote = mg_remote_new(f->net, stub_url(f->stub), "env-key", "environments-work-poller");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_work_item_done(&f->item);
    mg_poller_close(f->poller);
    mg_remote_free(f->remote);
    mg_net_close(f->net);
    stub_stop(f->stub);
    free(f);
    return 0;
}

static void an_item_is_claimed_and_acknowledged(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 200, "", "null");
    stub_json(f->stub, POLL, 200, "", ITEM);
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 200, "", ITEM);
    open_poller(f, false);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_OK);
    assert_string_equal(f->item.id, "work_1");
    assert_string_equal(f->item.session_id, "sesn_1");
    assert_string_equal(f->item.type, "session");
    mg_autofree char *token = mg_work_item_token(&f->item);
    assert_string_equal(token, "sk-token");
    assert_string_equal(stub_request(f->stub, 0), POLL "?block_ms=999");
    assert_string_equal(stub_request(f->stub, 2), "POST /v1/environments/env_1/work/work_1/ack");
    assert_null(stub_request(f->stub, 3));
    assert_contains(stub_head(f->stub, 0), "\r\nAnthropic-Worker-ID: w1\r\n");
    assert_contains(stub_head(f->stub, 0), "\r\nauthorization: Bearer env-key\r\n");
    assert_contains(stub_head(f->stub, 0), "\r\nanthropic-beta: managed-agents-2026-04-01\r\n");
    assert_contains(stub_head(f->stub, 2), "Content-Length: 0\r\n");
    assert_null(strcasestr(stub_head(f->stub, 2), "content-type"));
    assert_null(strcasestr(stub_head(f->stub, 2), "worker-id"));
}

static void a_draining_poller_ends_at_an_empty_queue_however_it_is_said(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 200, "", "null");
    stub_json(f->stub, POLL, 200, "", "{}");
    stub_answer(f->stub, POLL, "204 No Content\r\n\r\n");
    stub_answer(f->stub, POLL, "200 OK\r\ncontent-length: 0\r\n\r\n");
    open_poller(f, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_EGONE);
    assert_int_equal(stub_count(f->stub, ""), 4);
}

static void what_may_pass_is_tried_again(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 500, "retry-after-ms: 1\r\n", ERROR("down"));
    stub_json(f->stub, POLL, 429, "retry-after-ms: 1\r\n", ERROR("slow down"));
    stub_answer(f->stub, POLL, STUB_CUT);
    stub_json(f->stub, POLL, 200, "", ITEM);
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 200, "", ITEM);
    open_poller(f, false);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_OK);
    assert_true(stub_count(f->stub, POLL) >= 4);
}

static void a_time_to_come_again_counts_by_the_servers_own_clock(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *headers;
        uint32_t ms;
    } cases[] = {
        {"date: Sun, 06 Nov 1994 08:49:30 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 7000},
        {"retry-after: Fri, 31 Dec 2100 23:59:59 GMT\r\ndate: Fri, 31 Dec 2100 23:59:50 GMT\r\n", 9000},
        {"retry-after: Fri, 31 Dec 2100 23:59:59 GMT\r\n",
         60000}, /* without one by ours, as much as may be asked for */
        {"date: Sun, 06 Nov 1994 08:49:30 GMT\r\nretry-after: 3\r\n", 3000},
        {"date: Sun, 06 Nov 1994 08:49:30 GMT\r\n", 0},
    };
    const struct mg_remote_req q = {.method = "GET", .path = "/v1/x", .retries = -1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        stub_json(f->stub, "GET /v1/x", 503, cases[i].headers, ERROR("down"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(remote_answer) struct mg_remote_answer a = {.status = 0};
        assert_int_equal(mg_remote_call(f->remote, &q, &a, &f->err), MG_EUNAVAIL);
        assert_int_equal(a.wait_ms, cases[i].ms);
    }
}

static void a_refused_key_ends_the_poller_with_the_servers_words(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 401, "",
              "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"no such "
              "key\\u001b[0m\"},\"request_id\":\"req_7\"}");
    open_poller(f, false);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_EAUTH);
    assert_contains(f->err.text, "polling env_1: 401 authentication_error: no such key [0m (request req_7)");
    assert_int_equal(stub_count(f->stub, ""), 1);
}

static void an_item_whose_ack_is_refused_is_left_and_never_stopped(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 200, "", ITEM);
    stub_json(f->stub, POLL, 200, "", "null");
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 409, "x-should-retry: false\r\n",
              ERROR("another's"));
    open_poller(f, true);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_EGONE);
    assert_int_equal(stub_count(f->stub, "POST"), 1);
}

static void a_409_without_a_word_about_it_is_repeated_as_the_official_clients_do(void **state)
{
    struct fixture *f = *state;
    stub_json(f->stub, POLL, 200, "", ITEM);
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 409, "retry-after-ms: 1\r\n", ERROR("busy"));
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 409, "retry-after-ms: 1\r\n", ERROR("busy"));
    stub_json(f->stub, "POST /v1/environments/env_1/work/work_1/ack", 200, "", ITEM);
    open_poller(f, false);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_OK);
    assert_int_equal(stub_count(f->stub, "POST"), 3);
}

static void *cancel_it(void *arg)
{
    struct fixture *f = arg;
    (void)stub_wait(f->stub, POLL, 1);
    mg_poller_cancel(f->poller);
    return NULL;
}

static void a_poll_that_hangs_ends_with_the_cancel(void **state)
{
    struct fixture *f = *state;
    pthread_t t;
    stub_answer(f->stub, POLL, STUB_HANG);
    open_poller(f, false);
    assert_int_equal(pthread_create(&t, NULL, cancel_it, f), 0);
    uint64_t from = mg_now_ns();
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_ECANCELED);
    assert_true(mg_now_ns() - from < 10000000000u);
    pthread_join(t, NULL);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_ECANCELED);
}

static void ids_and_options_are_part_of_the_request(void **state)
{
    struct fixture *f = *state;
    const struct mg_poller_opts o = {
        .environment_id = "env/ä?", .drain = true, .no_block = true, .reclaim_older_than_ms = 0, .gap_max_ms = 1};
    stub_json(f->stub, "GET", 200, "", "null");
    assert_int_equal(mg_poller_open(f->remote, &o, &f->poller, &f->err), MG_OK);
    assert_int_equal(mg_poller_next(f->poller, &f->item, &f->err), MG_EGONE);
    assert_string_equal(stub_request(f->stub, 0),
                        "GET /v1/environments/env%2F%C3%A4%3F/work/poll?reclaim_older_than_ms=0");
    assert_contains(stub_head(f->stub, 0), mg_poller_worker_id(f->poller));
}

static void delays_double_up_to_their_cap_less_a_random_part(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        uint32_t first = mg_retry_delay_ms(0, 1000, 60000), tenth = mg_retry_delay_ms(10, 1000, 60000);
        assert_in_range(first, 750, 1000);
        assert_in_range(tenth, 45000, 60000);
    }
    assert_true(mg_retry_fatal(400) && mg_retry_fatal(404) && mg_retry_fatal(412) && mg_retry_fatal(401));
    assert_false(mg_retry_fatal(408) || mg_retry_fatal(409) || mg_retry_fatal(429) || mg_retry_fatal(500) ||
                 mg_retry_fatal(0));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_item_is_claimed_and_acknowledged),
        T(a_draining_poller_ends_at_an_empty_queue_however_it_is_said),
        T(what_may_pass_is_tried_again),
        T(a_time_to_come_again_counts_by_the_servers_own_clock),
        T(a_refused_key_ends_the_poller_with_the_servers_words),
        T(an_item_whose_ack_is_refused_is_left_and_never_stopped),
        T(a_409_without_a_word_about_it_is_repeated_as_the_official_clients_do),
        T(a_poll_that_hangs_ends_with_the_cancel),
        T(ids_and_options_are_part_of_the_request),
        cmocka_unit_test(delays_double_up_to_their_cap_less_a_random_part),
    };
    return RUN(tests);
}
