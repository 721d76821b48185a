/* The host's conn_* services: connections that an answer turns into a stream of bytes, how their reads end, and the
 * parsers under them. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/upgrade.h"
#include "support/peer-rig.h"

static void an_answer_that_is_no_stream_is_given_whole(void **state)
{
    (void)state;
    static const struct {
        const char *url, *body;
        int status;
        uint32_t retry_ms;
        mango_status want;
    } cases[] = {
        {"http://peer/refuse", "{\"message\":\"not now\"}", 409, 2000, MANGO_OK},
        {"http://peer/refuse-chunked", "in pieces", 500, 0, MANGO_OK},
        {"http://peer/echo", "x", 200, 0, MANGO_OK}, /* 200 with a length is an answer */
        {"http://peer/half", "half of it", 200, 0, MANGO_ERETRY},
        {"http://peer/garbage", "", 0, 0, MANGO_ERETRY},
        {"http://peer/once", "", 0, 0, MANGO_ERETRY},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ANSWER(a);
        mango_conn c = 99;
        mango_status got = peer_open_conn(
            (struct mango_http_req){
                .method = z("POST"), .url = z(cases[i].url), .unix_socket = z(peer_sock), .body = z("x")},
            &a, &c);
        if (got != cases[i].want || a.res.status != cases[i].status || c != 0)
            fail_msg("%s: %d, status %d, %s", cases[i].url, got, a.res.status, a.err.text);
        assert_sv_equal(mg_buf_view(&a.body), cases[i].body);
        assert_int_equal(a.res.retry_after_ms, cases[i].retry_ms);
    }
}

struct reader {
    mango_conn c;
    struct mg_cancel *cancel;
    uint64_t deadline_ns, total;
    atomic_bool began;
    mango_status status;
};

/* Reads until it cannot any more. */
static void *read_on(void *arg)
{
    struct reader *r = arg;
    struct mg_err err = {0};
    char p[65536];
    uint64_t n = 1;
    struct mango_call k = mg_plugin_call(r->deadline_ns, r->cancel, &err);
    atomic_store(&r->began, true);
    while (n > 0 && (r->status = peer_host->conn_read(peer_host, &k, r->c, p, sizeof(p), &n)) == MANGO_OK)
        r->total += n;
    return NULL;
}

static void reads_end_by_cancel_deadline_and_close(void **state)
{
    (void)state;
    enum { BY_CANCEL, BY_DEADLINE, BY_CLOSE };
    for (int how = BY_CANCEL; how <= BY_CLOSE; how++) {
        ANSWER(a);
        pthread_t t;
        struct reader r = {.cancel = mg_cancel_new()};
        assert_int_equal(peer_open_conn((struct mango_http_req){.method = z("POST"),
                                                                .url = z("http://peer/hijack"),
                                                                .unix_socket = z(peer_sock)},
                                        &a, &r.c),
                         MANGO_OK);
        r.deadline_ns = how == BY_DEADLINE ? mg_now_ns() + PEER_SECOND_NS / 5 : 0;
        assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
        while (!atomic_load(&r.began))
            (void)sched_yield();
        if (how == BY_CANCEL)
            mg_cancel_fire(r.cancel);
        if (how == BY_CLOSE)
            peer_host->conn_close(peer_host, r.c);
        (void)pthread_join(t, NULL);
        if (how == BY_CLOSE && r.status == MANGO_EINVALID)
            r.status = MANGO_ECANCELED; /* it had not looked the connection up yet */
        assert_int_equal(r.status, how == BY_DEADLINE ? MANGO_ETIMEOUT : MANGO_ECANCELED);
        peer_host->conn_close(peer_host, r.c);
        mg_cancel_unref(r.cancel);
    }
}

static void a_stream_that_nobody_reads_holds_its_peer_back(void **state)
{
    (void)state;
    ANSWER(a);
    mango_conn c = 0;
    const struct timespec step = {.tv_nsec = 50000000};
    assert_int_equal(peer_open_conn((struct mango_http_req){.method = z("POST"),
                                                            .url = z("http://peer/stream-flood"),
                                                            .unix_socket = z(peer_sock)},
                                    &a, &c),
                     MANGO_OK);
    long last = -1, now = 0;
    for (int i = 0; i < 100 && now != last; i++) { /* until the peer is stuck */
        last = now;
        (void)nanosleep(&step, NULL);
        now = peer_fact("stream_flooded");
    }
    assert_true(now < 8 * 1024 * 1024);
    peer_host->conn_close(peer_host, c);
}

static void both_directions_go_at_once_and_a_second_reader_is_refused(void **state)
{
    (void)state;
    enum { TOTAL = 16 * 1024 * 1024, PIECE = 100 * 1000 };
    ANSWER(a);
    pthread_t t;
    struct reader r = {0};
    mg_autofree char *piece = mg_xcalloc(1, PIECE);
    assert_int_equal(
        peer_open_conn(
            (struct mango_http_req){.method = z("POST"), .url = z("http://peer/upgrade"), .unix_socket = z(peer_sock)},
            &a, &r.c),
        MANGO_OK);
    struct mango_call k = mg_plugin_call(mg_now_ns() + (uint64_t)PEER_PATIENCE_S * PEER_SECOND_NS, NULL, &a.err);
    assert_int_equal(pthread_create(&t, NULL, read_on, &r), 0);
    uint64_t sent = 0;
    for (; sent < TOTAL; sent += PIECE)
        assert_int_equal(peer_host->conn_write(peer_host, &k, r.c, piece, PIECE), MANGO_OK);
    struct reader second = {.c = r.c, .deadline_ns = mg_now_ns() + PEER_SECOND_NS};
    (void)read_on(&second);
    assert_true(second.status == MANGO_EINVALID || second.total > 0); /* the first may be between two reads */
    assert_int_equal(peer_host->conn_shutdown(peer_host, &k, r.c), MANGO_OK);
    (void)pthread_join(t, NULL);
    struct reader rest = {.c = r.c, .status = MANGO_OK};
    if (r.status == MANGO_EINVALID) /* it was the first that came second */
        (void)read_on(&rest);
    assert_true(r.status == MANGO_OK || (second.total > 0 && rest.status == MANGO_OK));
    assert_int_equal(r.total + second.total + rest.total, sent + strlen("early ") + strlen("farewell"));
    peer_host->conn_close(peer_host, r.c);
}

static void what_a_plugin_left_open_is_closed_behind_it(void **state)
{
    (void)state;
    ANSWER(a);
    mango_conn c = 0;
    assert_int_equal(
        peer_open_conn(
            (struct mango_http_req){.method = z("POST"), .url = z("http://peer/hijack"), .unix_socket = z(peer_sock)},
            &a, &c),
        MANGO_OK);
    assert_true(c != 0); /* the sanitizer sees it when close_all leaks it */
}

/* ---- parsers ---- */

static void heads_are_parsed_at_any_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mg_rc rc;
        int status;
        int64_t length;
        bool chunked;
    } cases[] = {
        {"HTTP/1.1 101 UPGRADED\r\nA: b\r\n\r\nrest", MG_OK, 101, -1, false},
        {"HTTP/1.1 200 OK\nContent-Length: 5\n\n", MG_OK, 200, 5, false},
        {"HTTP/1.0 200\r\nTransfer-Encoding: Chunked\r\n\r\n", MG_OK, 200, -1, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\n folded\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 20 OK\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/2 200\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"\r\n\r\n", MG_EINVAL, 0, 0, false},
        {"HTTP/1.1 200 OK\r\nA: b\r\n", MG_EUNAVAIL, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_http_head h;
        mg_rc rc = mg_http_head_parse(mg_sv_of(cases[i].text), &h, NULL, NULL);
        if (rc != cases[i].rc)
            fail_msg("case %zu: %d", i, rc);
        if (rc == MG_OK)
            assert_true(h.status == cases[i].status && h.length == cases[i].length && h.chunked == cases[i].chunked);
    }
}

static int unchunk(const char *text, size_t step, struct mg_buf *out)
{
    struct mg_chunks c = {0};
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += step) {
        struct mg_sv in = mg_sv_n(text + at, len - at < step ? len - at : step), piece;
        while (in.len > 0) {
            int rc = mg_chunks_next(&c, &in, &piece);
            (void)mg_buf_sv(out, piece);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

static void chunks_are_parsed_at_any_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        int rc;
    } cases[] = {
        {"3\r\nabc\r\n0\r\n\r\n", "abc", 1},
        {"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\nU: 2\r\n\r\n", "abc0123456789", 1},
        {"3\r\nab", "ab", 0},
        {"\r\n", "", -1},
        {"x\r\n", "", -1},
        {"3\r\nabcX", "abc", -1},
        {"ffffffffffffffffff\r\n", "", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t step = 1; step < 20; step++) {
            mg_auto(buf) struct mg_buf out = MG_BUF_INIT(1000);
            int rc = unchunk(cases[i].text, step, &out);
            if (rc != cases[i].rc)
                fail_msg("case %zu in steps of %zu: %d", i, step, rc);
            assert_sv_equal(mg_buf_view(&out), cases[i].want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_that_is_no_stream_is_given_whole),
        cmocka_unit_test(reads_end_by_cancel_deadline_and_close),
        cmocka_unit_test(a_stream_that_nobody_reads_holds_its_peer_back),
        cmocka_unit_test(both_directions_go_at_once_and_a_second_reader_is_refused),
        cmocka_unit_test(what_a_plugin_left_open_is_closed_behind_it),
        cmocka_unit_test(heads_are_parsed_at_any_cut),
        cmocka_unit_test(chunks_are_parsed_at_any_cut),
    };
    return cmocka_run_group_tests(tests, peer_group_up, peer_group_down);
}
