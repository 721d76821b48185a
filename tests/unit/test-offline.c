/* The offline model: the rules, and the thread behind model.h. */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "json/json.h"
#include "json/write.h"
#include "model/message.h"
#include "model/model.h"
#include "model/offline.h"
#include "net/sse-parse.h"

#define TOOL(name) "{\"name\":\"" name "\",\"description\":\"x\",\"input_schema\":{\"type\":\"object\"}}"
#define ALL_TOOLS                                                                                                    \
    "[" TOOL("bash") "," TOOL("read") "," TOOL("write") "," TOOL("edit") "," TOOL("glob") "," TOOL("grep") "," TOOL( \
        "weather") "]"

static bool feed(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    return mg_message_event(ctx, data) != MG_MESSAGE_END;
}

static struct mg_model_result *ask_raw(const char *body)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1 << 20);
    struct mg_message *m = mg_message_new(NULL, NULL);
    struct mg_sse sse;
    assert_int_equal(mg_offline_answer(mg_sv_of(body), &out), MG_OK);
    mg_sse_init(&sse, 1 << 20, feed, m);
    mg_rc rc = mg_sse_feed(&sse, out.ptr, out.len, NULL);
    assert_true(rc == MG_OK || mg_message_ended(m));
    mg_sse_done(&sse);
    return mg_message_finish(m);
}

/* A request with one user text and the outputs of the calls made so far. */
static void make_body(struct mg_buf *b, const char *text, const char *tools, const char *const *outputs)
{
    struct mg_jw w = mg_jw_to(b);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "model", "offline");
    mg_jw_kint(&w, "max_tokens", 4096);
    mg_jw_kraw(&w, "tools", mg_sv_of(tools));
    mg_jw_key(&w, "messages");
    mg_jw_arr(&w);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "role", "user");
    mg_jw_kstrz(&w, "content", text);
    mg_jw_obj_end(&w);
    for (int i = 0; outputs && outputs[i]; i++) {
        char id[24];
        (void)snprintf(id, sizeof(id), "toolu_%d", i);
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "role", "user");
        mg_jw_key(&w, "content");
        mg_jw_arr(&w);
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "tool_result");
        mg_jw_kstrz(&w, "tool_use_id", id);
        mg_jw_key(&w, "content");
        mg_jw_arr(&w);
        mg_jw_obj(&w);
        mg_jw_kstrz(&w, "type", "text");
        mg_jw_kstrz(&w, "text", outputs[i]);
        mg_jw_obj_end(&w);
        mg_jw_arr_end(&w);
        mg_jw_obj_end(&w);
        mg_jw_arr_end(&w);
        mg_jw_obj_end(&w);
    }
    mg_jw_arr_end(&w);
    mg_jw_obj_end(&w);
    assert_true(mg_buf_ok(b));
}

static struct mg_model_result *ask(const char *text, const char *tools, const char *const *outputs)
{
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1 << 20);
    make_body(&b, text, tools, outputs);
    return ask_raw(b.ptr);
}

static bool text_has(const struct mg_model_result *r, const char *part)
{
    for (int i = 0; i < r->n_blocks; i++) {
        struct mg_sv t = r->blocks[i].text;
        if (t.len > 0 && memmem(t.ptr, t.len, part, strlen(part)))
            return true;
    }
    return false;
}

static void words_become_tool_calls(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tool, *input;
    } cases[] = {
        {"list the files here and count them", "bash", "{\"command\":\"ls -la\"}"},
        {"How many files are there?", "bash", "{\"command\":\"ls -1 | wc -l\"}"},
        {"run: uname -a", "bash", "{\"command\":\"uname -a\"}"},
        {"Run `make check` please", "bash", "{\"command\":\"make check\"}"},
        {"$ echo \"hi\"", "bash", "{\"command\":\"echo \\\"hi\\\"\"}"},
        {"write a.txt: hello", "write", "{\"file_path\":\"a.txt\",\"content\":\"hello\\n\"}"},
        {"read a.txt", "read", "{\"file_path\":\"a.txt\"}"},
        {"edit a.txt: hello -> bye", "edit",
         "{\"file_path\":\"a.txt\",\"old_string\":\"hello\",\"new_string\":\"bye\"}"},
        {"glob **/*.c", "glob", "{\"pattern\":\"**/*.c\"}"},
        {"grep main in core", "grep", "{\"pattern\":\"main\",\"path\":\"core\"}"},
        {"use weather {\"city\": \"Oslo\", \"n\":1.0}", "weather", "{\"city\": \"Oslo\", \"n\":1.0}"},
        {"please run the usual things", "bash", "{\"command\":\"pwd; uname -sr; date -u +%Y\"}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_model_result *r = ask(cases[i].text, ALL_TOOLS, NULL);
        assert_int_equal(r->fail, MG_MODEL_OK);
        assert_string_equal(r->stop_reason, "tool_use");
        assert_int_equal(r->n_blocks, 2);
        assert_int_equal(r->blocks[0].kind, MG_BLOCK_TEXT);
        assert_int_equal(r->blocks[1].kind, MG_BLOCK_TOOL_USE);
        assert_string_equal(r->blocks[1].tool_name.ptr, cases[i].tool);
        assert_string_equal(r->blocks[1].tool_input.ptr, cases[i].input);
        assert_true(r->usage.input_tokens > 0 && r->usage.output_tokens > 0);
        mg_model_result_free(r);
    }
}

static void the_last_answer_quotes_what_the_calls_gave(void **state)
{
    (void)state;
    const char *first[] = {"total 0\na.txt", NULL};
    const char *both[] = {"total 0\na.txt", "1\n", NULL};
    struct mg_model_result *r = ask("list the files here and count them", ALL_TOOLS, first);
    assert_string_equal(r->blocks[1].tool_input.ptr, "{\"command\":\"ls -1 | wc -l\"}");
    mg_model_result_free(r);
    r = ask("list the files here and count them", ALL_TOOLS, both);
    assert_string_equal(r->stop_reason, "end_turn");
    assert_true(text_has(r, "a.txt"));
    assert_true(text_has(r, "there is 1 entry here"));
    mg_model_result_free(r);
}

static void lines_are_done_one_after_the_other(void **state)
{
    (void)state;
    const char *text = "write a.txt: hello\nread a.txt\nrun: wc -c a.txt";
    const char *outputs[] = {"wrote 6 bytes", "hello", "6 a.txt", NULL};
    const char *names[] = {"write", "read", "bash"};
    for (int done = 0; done < 3; done++) {
        const char *some[4] = {NULL};
        for (int i = 0; i < done; i++)
            some[i] = outputs[i];
        struct mg_model_result *r = ask(text, ALL_TOOLS, some);
        assert_string_equal(r->blocks[1].tool_name.ptr, names[done]);
        mg_model_result_free(r);
    }
    struct mg_model_result *r = ask(text, ALL_TOOLS, outputs);
    assert_string_equal(r->stop_reason, "end_turn");
    assert_true(text_has(r, "6 a.txt"));
    mg_model_result_free(r);
}

static void tools_that_the_request_does_not_offer_are_never_called(void **state)
{
    (void)state;
    struct mg_model_result *r = ask("list the files here", "[" TOOL("weather") "]", NULL);
    assert_string_equal(r->stop_reason, "end_turn");
    assert_true(text_has(r, "list the files here"));
    mg_model_result_free(r);
}

static void the_same_request_gets_the_same_answer(void **state)
{
    (void)state;
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(1 << 20);
    mg_auto(buf) struct mg_buf a = MG_BUF_INIT(1 << 20);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1 << 20);
    make_body(&body, "list things", ALL_TOOLS, NULL);
    assert_int_equal(mg_offline_answer(mg_buf_view(&body), &a), MG_OK);
    assert_int_equal(mg_offline_answer(mg_buf_view(&body), &b), MG_OK);
    assert_string_equal(a.ptr, b.ptr);
}

static void a_body_that_no_endpoint_would_take_is_refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {"", "{", "[]", "{\"messages\":[]}", "{\"messages\":7}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct mg_model_result *r = ask_raw(bodies[i]);
        assert_int_equal(r->fail, MG_MODEL_PERMANENT);
        assert_true(r->message[0] != '\0');
        mg_model_result_free(r);
    }
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int done, deltas, canceled;
};

static void on_delta(void *ctx, int index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    (void)index;
    (void)kind;
    (void)text;
    struct waiter *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->deltas += !start;
    pthread_mutex_unlock(&w->lock);
}

static void on_done(void *ctx, struct mg_model_result *r)
{
    struct waiter *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->done++;
    w->canceled += r->fail == MG_MODEL_CANCELED;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
    mg_model_result_free(r);
}

static void wait_done(struct waiter *w, int n)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&w->lock);
    while (w->done < n)
        assert_int_not_equal(pthread_cond_timedwait(&w->cond, &w->lock, &until), ETIMEDOUT);
    pthread_mutex_unlock(&w->lock);
}

static void calls_through_the_model_end_exactly_once(void **state)
{
    (void)state;
    enum { CALLS = 200 };
    struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct mg_model_opts opts = {0};
    struct mg_model *m = NULL;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf body = MG_BUF_INIT(1 << 20);
    make_body(&body, "hello", ALL_TOOLS, NULL);
    assert_int_equal(mg_model_open(&opts, &m, &err), MG_OK);
    assert_true(mg_model_is_offline(m));
    uint64_t last = 0;
    for (int i = 0; i < CALLS; i++) {
        uint64_t id =
            mg_model_start(m, &(struct mg_model_call_opts){
                                  .body = mg_buf_view(&body), .on_delta = on_delta, .on_done = on_done, .ctx = &w});
        assert_true(id > last);
        last = id;
        if (i % 10 == 0)
            mg_model_cancel(m, id);
    }
    wait_done(&w, CALLS);
    mg_model_cancel(m, last);
    mg_model_close(m);
    assert_int_equal(w.done, CALLS);
    assert_true(w.deltas > 2 * (CALLS - CALLS / 10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_tool_calls),
        cmocka_unit_test(the_last_answer_quotes_what_the_calls_gave),
        cmocka_unit_test(lines_are_done_one_after_the_other),
        cmocka_unit_test(tools_that_the_request_does_not_offer_are_never_called),
        cmocka_unit_test(the_same_request_gets_the_same_answer),
        cmocka_unit_test(a_body_that_no_endpoint_would_take_is_refused),
        cmocka_unit_test(calls_through_the_model_end_exactly_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
