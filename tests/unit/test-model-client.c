/* The client of a Messages endpoint, against a scripted one over real HTTP. */
#include "unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "json/json.h"
#include "json/write.h"
#include "model/failure.h"
#include "model/model.h"
#include "net/retry-after.h"
#include "support/endpoint.h"

#define KEY "sk-ant-test-0123456789abcdef"

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int done;
    struct mg_model_result *last;
    struct mg_buf deltas; /* "index:kind:start:text|" */
};

static struct waiter waiter_new(void)
{
    return (struct waiter){
        .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER, .deltas = MG_BUF_INIT(1 << 24)};
}

static void on_delta(void *ctx, int index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct waiter *w = ctx;
    pthread_mutex_lock(&w->lock);
    mg_buf_printf(&w->deltas, "%d:%d:%d:%.*s|", index, (int)kind, start, MG_SV_ARG(text));
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void on_done(void *ctx, struct mg_model_result *r)
{
    struct waiter *w = ctx;
    pthread_mutex_lock(&w->lock);
    mg_model_result_free(w->last);
    w->last = r;
    w->done++;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static struct timespec in_seconds(int s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += s;
    return t;
}

static void wait_done(struct waiter *w, int n)
{
    struct timespec until = in_seconds(30);
    pthread_mutex_lock(&w->lock);
    while (w->done < n)
        assert_int_not_equal(pthread_cond_timedwait(&w->cond, &w->lock, &until), ETIMEDOUT);
    pthread_mutex_unlock(&w->lock);
}

static void wait_deltas(struct waiter *w)
{
    struct timespec until = in_seconds(30);
    pthread_mutex_lock(&w->lock);
    while (w->deltas.len == 0)
        assert_int_not_equal(pthread_cond_timedwait(&w->cond, &w->lock, &until), ETIMEDOUT);
    pthread_mutex_unlock(&w->lock);
}

static void waiter_done(struct waiter *w)
{
    mg_model_result_free(w->last);
    mg_buf_done(&w->deltas);
}

static struct mg_model *open_model(int port, const char *key, uint32_t idle_ms)
{
    char url[64];
    struct mg_model *m = NULL;
    struct mg_err err = {0};
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
    struct mg_model_opts o = {.base_url = url, .api_key = key, .idle_ms = idle_ms};
    assert_int_equal(mg_model_open(&o, &m, &err), MG_OK);
    assert_false(mg_model_is_offline(m));
    return m;
}

static char *body_of(const char *text)
{
    struct mg_buf b = MG_BUF_INIT(1 << 24);
    struct mg_jw w = mg_jw_to(&b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "model", "fake");
    mg_jw_kint(&w, "max_tokens", 4096);
    mg_jw_kbool(&w, "stream", true);
    mg_jw_key(&w, "messages");
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "role", "user");
    mg_jw_kstrz(&w, "content", text);
    mg_jw_obj_end(&w);
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    return mg_buf_steal(&b, NULL);
}

static uint64_t start(struct mg_model *m, struct waiter *w, const char *text)
{
    mg_autofree char *body = body_of(text);
    return mg_model_start(
        m, &(struct mg_model_call_opts){.body = mg_sv_of(body), .on_delta = on_delta, .on_done = on_done, .ctx = w});
}

/* One call with a script as the user's text. The result is the waiter's. */
static const struct mg_model_result *ask(struct mg_model *m, struct waiter *w, const char *script)
{
    char text[1024];
    int before = w->done;
    mg_buf_reset(&w->deltas);
    (void)snprintf(text, sizeof(text), "#fake\n%s", script);
    (void)start(m, w, text);
    wait_done(w, before + 1);
    return w->last;
}

struct fixture {
    struct endpoint *e;
    struct mg_model *m;
    struct waiter w;
};

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->e = endpoint_start(&(struct endpoint_opts){.keep_bodies = true, .key = KEY});
    f->m = open_model(endpoint_port(f->e), KEY, 0);
    f->w = waiter_new();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_model_close(f->m);
    endpoint_stop(f->e);
    waiter_done(&f->w);
    free(f);
    return 0;
}

static void a_streamed_answer_is_folded(void **state)
{
    struct fixture *f = *state;
    const struct mg_model_result *r = ask(f->m, &f->w,
                                          "usage 7 9 3 2\nthink I wonder\ntext Hello \xc3\xa9 \"you\"\\nthere\ntool "
                                          "bash {\"command\":\"ls -la\", \"n\": 1.0}\n");
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_string_equal(r->stop_reason, "tool_use");
    assert_int_equal(r->n_blocks, 3);
    assert_int_equal(r->blocks[0].kind, MG_BLOCK_THINKING);
    assert_non_null(strstr(r->blocks[0].raw.ptr, "\"signature\":\"sig/"));
    assert_string_equal(r->blocks[1].text.ptr, "\"Hello \xc3\xa9 \\\"you\\\"\\nthere\"");
    assert_string_equal(r->blocks[2].tool_name.ptr, "bash");
    assert_string_equal(r->blocks[2].tool_input.ptr, "{\"command\":\"ls -la\", \"n\": 1.0}");
    assert_int_equal(r->usage.input_tokens, 7);
    assert_int_equal(r->usage.output_tokens, 9);
    assert_int_equal(r->usage.cache_read_input_tokens, 3);
    assert_int_equal(r->usage.cache_creation_input_tokens, 2);
    assert_non_null(strstr(f->w.deltas.ptr, "1:0:1:|"));
    assert_non_null(strstr(f->w.deltas.ptr, "2:2:1:|"));
}

static void an_answer_that_is_not_streamed_is_understood(void **state)
{
    struct fixture *f = *state;
    const struct mg_model_result *r =
        ask(f->m, &f->w, "whole\ntext hello\nblock {\"type\":\"server_tool_use\",\"id\":\"x\"}\n");
    assert_int_equal(r->fail, MG_MODEL_OK);
    assert_int_equal(r->n_blocks, 2);
    assert_string_equal(r->blocks[0].raw.ptr, "{\"type\":\"text\",\"text\":\"hello\"}");
    assert_string_equal(r->blocks[1].raw.ptr, "{\"type\":\"server_tool_use\",\"id\":\"x\"}");
    assert_string_equal(r->stop_reason, "end_turn");
}

static void case_80_each_failure_has_its_class_and_names_its_cause(void **state)
{
    struct fixture *f = *state;
    struct mg_model *impatient = open_model(endpoint_port(f->e), KEY, 400);
    static const struct {
        const char *script;
        enum mg_model_fail fail;
        const char *says;
        uint32_t retry_ms;
    } cases[] = {
        {"text hello\ncut", MG_MODEL_RETRY_SERVER, "without a message_stop", 0},
        {"raw {\"type\":\"message_start\",\"message\":{}}\nraw {\"type\":\"message_stop\"}\ncut", MG_MODEL_RETRY_SERVER,
         "without a stop reason", 0},
        {"text hello\ndelay 20\nreset", MG_MODEL_RETRY_SERVER, "in the middle of the answer", 0},
        {"text hello\ndelay 20\nclose", MG_MODEL_RETRY_SERVER, "in the middle of the answer", 0},
        {"text hello\nping 200 20", MG_MODEL_RETRY_SERVER, "nothing came for 400 ms", 0},
        {"silence", MG_MODEL_RETRY_SERVER, "nothing came for 400 ms", 0},
        {"body text/html <html><body>Please log in</body></html>", MG_MODEL_RETRY_SERVER, "text/html", 0},
        {"no-type\nbody x/y <html>", MG_MODEL_RETRY_SERVER, "instead of an event stream", 0},
        {"status 529 Overloaded", MG_MODEL_RETRY_OVERLOADED, "529 overloaded_error: Overloaded", 0},
        {"header retry-after: 2\nstatus 429 slow down", MG_MODEL_RETRY_RATE, "429 rate_limit_error: slow down", 2000},
        {"header retry-after: 86400\nstatus 429 slow down", MG_MODEL_RETRY_RATE, "slow down", 60000},
        {"header Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\nstatus 429 x", MG_MODEL_RETRY_RATE, "429", 0},
        {"header Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\nstatus 429 x", MG_MODEL_RETRY_RATE, "429", 60000},
        {"header Date: Sun, 06 Nov 1994 08:49:30 GMT\nheader Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\nstatus 429 x",
         MG_MODEL_RETRY_RATE, "429", 7000}, /* by the endpoint's own clock */
        {"header Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\nheader Date: Fri, 31 Dec 2100 23:59:50 GMT\nstatus 429 x",
         MG_MODEL_RETRY_RATE, "429", 9000},
        {"status 400 bad thing", MG_MODEL_PERMANENT, "400 invalid_request_error: bad thing", 0},
        {"status 401 no", MG_MODEL_PERMANENT, "check the API key", 0},
        {"status 403 no", MG_MODEL_PERMANENT, "403 permission_error", 0},
        {"status 404 no", MG_MODEL_PERMANENT, "404 not_found_error", 0},
        {"status 402 pay", MG_MODEL_BILLING, "402", 0},
        {"status 400 Your credit balance is too low to use this", MG_MODEL_BILLING, "credit balance", 0},
        {"status 408 late", MG_MODEL_RETRY_SERVER, "408", 0},
        {"status 409 again", MG_MODEL_RETRY_SERVER, "409", 0},
        {"status 500 oops", MG_MODEL_RETRY_SERVER, "500 api_error: oops", 0},
        {"code 502\nbody text/html <html>Bad Gateway</html>", MG_MODEL_RETRY_SERVER, "502: <html>Bad Gateway", 0},
        {"code 302\nheader location: /x\nbody text/html moved", MG_MODEL_PERMANENT, "redirects are not followed", 0},
        {"status 413 big", MG_MODEL_TOO_LARGE, "413", 0},
        {"too-long", MG_MODEL_TOO_LARGE, "prompt is too long", 0},
        {"empty", MG_MODEL_RETRY_SERVER, "empty body", 0},
        {"text a\nerror overloaded_error Overloaded", MG_MODEL_RETRY_OVERLOADED,
         "overloaded_error in mid-answer: Overloaded", 0},
        {"text a\nerror api_error Internal", MG_MODEL_RETRY_SERVER, "api_error in mid-answer: Internal", 0},
        {"text a\nerror strange_error Hm", MG_MODEL_RETRY_SERVER, "strange_error", 0},
        {"error invalid_request_error prompt is too long: 9 > 8", MG_MODEL_TOO_LARGE, "prompt is too long", 0},
        {"raw nonsense", MG_MODEL_RETRY_SERVER, "not a JSON object", 0},
        {"body application/json nonsense", MG_MODEL_RETRY_SERVER, "not a JSON object", 0},
        {"body application/json {\"type\":\"other\"}", MG_MODEL_RETRY_SERVER, "not a message", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool silent = strstr(cases[i].says, "400 ms");
        const struct mg_model_result *r = ask(silent ? impatient : f->m, &f->w, cases[i].script);
        if (r->fail != cases[i].fail || !strstr(r->message, cases[i].says) || r->retry_after_ms != cases[i].retry_ms)
            fail_msg("case %zu (%s): class %d, \"%s\", retry after %u ms", i, cases[i].script, (int)r->fail, r->message,
                     r->retry_after_ms);
    }
    mg_model_close(impatient);
}

static void an_endpoint_that_is_not_there_can_be_tried_again(void **state)
{
    (void)state;
    struct waiter w = waiter_new();
    struct mg_model *m = open_model(1, NULL, 0);
    const struct mg_model_result *r = ask(m, &w, "text x");
    assert_int_equal(r->fail, MG_MODEL_RETRY_SERVER);
    assert_non_null(strstr(r->message, "127.0.0.1"));
    mg_model_close(m);
    waiter_done(&w);
}

static void a_base_url_that_cannot_work_is_refused_at_once(void **state)
{
    (void)state;
    static const char *const urls[] = {"nonsense url", "ftp://host", "http://user:pw@host", "http://", "https://a b"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct mg_model *m = NULL;
        struct mg_err err = {0};
        assert_true(mg_model_open(&(struct mg_model_opts){.base_url = urls[i]}, &m, &err) < 0);
        assert_contains(err.text, "the model endpoint's base URL: ");
    }
}

static void an_answer_over_the_limit_is_permanent(void **state)
{
    struct fixture *f = *state;
    const struct mg_model_result *r = ask(f->m, &f->w, "chunk 65536\nbig 6000000");
    assert_int_equal(r->fail, MG_MODEL_PERMANENT);
    assert_non_null(strstr(r->message, "too large"));
    assert_non_null(strstr(r->message, "4194304"));
}

static void messages_never_hold_the_key(void **state)
{
    struct fixture *f = *state;
    const struct mg_model_result *r =
        ask(f->m, &f->w, "status 400 the key " KEY " and Bearer abcdefghijklmnop are bad");
    assert_null(strstr(r->message, "0123456789abcdef"));
    assert_null(strstr(r->message, "abcdefghijklmnop"));
    assert_non_null(strstr(r->message, "*** and Bearer ***"));
    r = ask(f->m, &f->w, "text a\nerror api_error the key " KEY);
    assert_null(strstr(r->message, "0123456789abcdef"));
}

static void a_wrong_key_is_permanent(void **state)
{
    struct fixture *f = *state;
    struct waiter w = waiter_new();
    struct mg_model *m = open_model(endpoint_port(f->e), "sk-ant-other-key-000000", 0);
    const struct mg_model_result *r = ask(m, &w, "text x");
    assert_int_equal(r->fail, MG_MODEL_PERMANENT);
    assert_non_null(strstr(r->message, "authentication_error"));
    mg_model_close(m);
    waiter_done(&w);
}

static void a_bearer_token_is_sent_where_it_is_asked_for(void **state)
{
    struct fixture *f = *state;
    char url[64];
    struct waiter w = waiter_new();
    struct mg_model *m = NULL;
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/v1/", endpoint_port(f->e));
    struct mg_model_opts o = {.base_url = url, .api_key = KEY, .bearer = true};
    assert_int_equal(mg_model_open(&o, &m, NULL), MG_OK);
    assert_int_equal(ask(m, &w, "text x")->fail, MG_MODEL_OK);
    mg_model_close(m);
    waiter_done(&w);
}

static void a_running_call_can_be_cancelled(void **state)
{
    struct fixture *f = *state;
    uint64_t began = mg_now_ns();
    uint64_t id = start(f->m, &f->w, "#fake\ntext hello\ndelay 20000\ntext more");
    wait_deltas(&f->w);
    mg_model_cancel(f->m, id);
    wait_done(&f->w, 1);
    assert_int_equal(f->w.last->fail, MG_MODEL_CANCELED);
    assert_true(mg_now_ns() - began < 10000000000u);
    mg_model_cancel(f->m, id); /* too late: harmless */
    assert_int_equal(ask(f->m, &f->w, "text x")->fail, MG_MODEL_OK);
}

static void closing_ends_every_call_exactly_once(void **state)
{
    struct fixture *f = *state;
    enum { CALLS = 50 };
    for (int i = 0; i < CALLS; i++)
        (void)start(f->m, &f->w, i % 2 ? "#fake\ntext hello\ndelay 20000" : "hello");
    mg_model_close(f->m);
    assert_int_equal(f->w.done, CALLS);
    f->m = open_model(endpoint_port(f->e), KEY, 0);
}

static void on_done_again(void *ctx, struct mg_model_result *r)
{
    struct fixture *f = ctx;
    mg_model_result_free(r);
    if (f->w.done++ == 0)
        (void)mg_model_start(f->m,
                             &(struct mg_model_call_opts){.body = MG_SV("{}"), .on_done = on_done_again, .ctx = f});
}

static void a_call_that_starts_while_the_model_closes_ends_too(void **state)
{
    struct fixture *f = *state;
    mg_autofree char *body = body_of("#fake\nsilence");
    (void)mg_model_start(f->m,
                         &(struct mg_model_call_opts){.body = mg_sv_of(body), .on_done = on_done_again, .ctx = f});
    mg_model_close(f->m);
    assert_int_equal(f->w.done, 2);
    f->m = open_model(endpoint_port(f->e), KEY, 0);
}

static void a_trailing_silence_does_not_hold_the_answer_up(void **state)
{
    struct fixture *f = *state;
    const struct mg_model_result *r = ask(f->m, &f->w,
                                          "raw {\"type\":\"message_start\",\"message\":{}}\nraw "
                                          "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n"
                                          "raw {\"type\":\"message_stop\"}\ndelay 20000\ncut");
    assert_int_equal(r->fail, MG_MODEL_OK);
}

static void many_calls_share_few_connections(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask(f->m, &f->w, "text hello")->fail, MG_MODEL_OK);
    assert_int_equal(endpoint_connections(f->e), 1);
    for (int i = 0; i < 200; i++)
        (void)start(f->m, &f->w, "hello");
    wait_done(&f->w, 220);
    assert_int_equal(f->w.last->fail, MG_MODEL_OK);
    assert_int_equal(endpoint_requests(f->e), 220);
}

static void case_46_a_stale_connection_is_replaced_without_a_failure(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(f->m, &f->w, "text first\nstop end_turn\nstale")->fail, MG_MODEL_OK);
        assert_int_equal(ask(f->m, &f->w, "text second")->fail, MG_MODEL_OK);
    }
    assert_int_equal(endpoint_requests(f->e), 10);
}

static void case_46_any_byte_of_an_answer_forbids_the_repeat(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ask(f->m, &f->w, "text first")->fail, MG_MODEL_OK);
    assert_int_equal(ask(f->m, &f->w, "text half\ndelay 20\nreset")->fail, MG_MODEL_RETRY_SERVER);
    assert_int_equal(endpoint_requests(f->e), 2);
}

static void case_46_connections_that_the_peer_closes_are_not_used_again(void **state)
{
    (void)state;
    struct waiter w = waiter_new();
    struct endpoint *e = endpoint_start(&(struct endpoint_opts){.idle_ms = 30});
    struct mg_model *m = open_model(endpoint_port(e), NULL, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(m, &w, "text hello")->fail, MG_MODEL_OK);
        const struct timespec pause = {.tv_nsec = 60 * 1000000};
        nanosleep(&pause, NULL); /* lets the idle time pass; nothing is asserted by it */
    }
    mg_model_close(m);
    endpoint_stop(e);
    waiter_done(&w);
}

static void case_45_tool_inputs_keep_every_byte(void **state)
{
    struct fixture *f = *state;
    static const char *const inputs[] = {
        "{\"a\":0.1,\"b\":1.0,\"c\":1e-7,\"d\":-0,\"e\":9007199254740993,\"f\":18446744073709551615,\"g\":1e400}",
        "{\"z\":1,\"a\":2,\"z\":3}",
        "{\"\":\"empty key\",\"nul\":\"\\u0000\",\"pair\":\"\\ud83d\\ude00\",\"half\":\"\\ud83d\"}",
        "{ \"spaced\" :\t[ 1 , 2 ] }",
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        char script[512];
        for (int chunk = 1; chunk < 40; chunk += 6) {
            (void)snprintf(script, sizeof(script), "chunk %d\ntool t %s", chunk, inputs[i]);
            const struct mg_model_result *r = ask(f->m, &f->w, script);
            assert_int_equal(r->fail, MG_MODEL_OK);
            assert_string_equal(r->blocks[0].tool_input.ptr, inputs[i]);
            assert_non_null(strstr(r->blocks[0].raw.ptr, inputs[i]));
        }
    }
}

static void the_right_headers_are_sent(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ask(f->m, &f->w, "text x")->fail, MG_MODEL_OK);
    mg_autofree char *body = endpoint_body(f->e, 0);
    mg_autofree char *sent = body_of("#fake\ntext x");
    assert_string_equal(body, sent);
    assert_int_equal(endpoint_refused(f->e), 0);
}

static void retry_after_is_read_in_every_spelling(void **state)
{
    (void)state;
    const int64_t now = 784111777000000; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *text;
        uint32_t ms;
    } cases[] = {
        {"0", 0},
        {"2", 2000},
        {"2.5", 2500},
        {"  7 ", 7000},
        {"60", 60000},
        {"61", 60000},
        {"86400", 60000},
        {"99999999999999999999999", 60000},
        {"-1", 0},
        {"", 0},
        {"soon", 0},
        {"1 2", 0},
        {"1x", 0},
        {"Sun, 06 Nov 1994 08:49:47 GMT", 10000},
        {"Sun, 06 Nov 1994 08:49:27 GMT", 0},
        {"Sun, 06 Xxx 1994 08:49:47 GMT", 0},
        {"Sun, 06 Nov 2094 08:49:47 GMT", 60000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(mg_retry_after_ms(mg_sv_of(cases[i].text), now, MG_MODEL_RETRY_AFTER_MAX_S * 1000u),
                         cases[i].ms);
}

static void messages_are_cut_at_a_character(void **state)
{
    (void)state;
    char out[8];
    mg_model_clean(out, sizeof(out), MG_SV("abcdef\xc3\xa9z"), MG_SV(""));
    assert_string_equal(out, "abcdef");
    mg_model_clean(out, sizeof(out), MG_SV("a\r\n\tb\x7f"), MG_SV(""));
    assert_string_equal(out, "a   b");
    mg_model_clean(out, sizeof(out), MG_SV("a\xff"), MG_SV(""));
    assert_string_equal(out, "a\xef\xbf\xbd");
    mg_model_clean(out, sizeof(out), MG_SV("x=pw!"), MG_SV("pw!"));
    assert_string_equal(out, "x=***");
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_streamed_answer_is_folded),
        WITH(an_answer_that_is_not_streamed_is_understood),
        WITH(case_80_each_failure_has_its_class_and_names_its_cause),
        cmocka_unit_test(an_endpoint_that_is_not_there_can_be_tried_again),
        cmocka_unit_test(a_base_url_that_cannot_work_is_refused_at_once),
        WITH(an_answer_over_the_limit_is_permanent),
        WITH(messages_never_hold_the_key),
        WITH(a_wrong_key_is_permanent),
        WITH(a_bearer_token_is_sent_where_it_is_asked_for),
        WITH(a_running_call_can_be_cancelled),
        WITH(closing_ends_every_call_exactly_once),
        WITH(a_call_that_starts_while_the_model_closes_ends_too),
        WITH(a_trailing_silence_does_not_hold_the_answer_up),
        WITH(many_calls_share_few_connections),
        WITH(case_46_a_stale_connection_is_replaced_without_a_failure),
        WITH(case_46_any_byte_of_an_answer_forbids_the_repeat),
        cmocka_unit_test(case_46_connections_that_the_peer_closes_are_not_used_again),
        WITH(case_45_tool_inputs_keep_every_byte),
        WITH(the_right_headers_are_sent),
        cmocka_unit_test(retry_after_is_read_in_every_spelling),
        cmocka_unit_test(messages_are_cut_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
