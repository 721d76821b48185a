/* Bodies that plugins stream through the host's http_call, out of a source and into a sink: back-pressure, limits and
 * early ends. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "support/peer-rig.h"

struct source {
    uint64_t total, given;
    int64_t fail; /* returned at half of it, when not 0 */
    uint64_t delay_ns;
    atomic_uint_fast64_t calls;
};

static int64_t give(void *ctx, char *p, uint64_t n)
{
    struct source *s = ctx;
    atomic_fetch_add(&s->calls, 1);
    if (s->fail && s->given >= s->total / 2)
        return s->fail;
    uint64_t left = s->total - s->given;
    n = n < left ? n : left;
    memset(p, 'u', n);
    s->given += n;
    return (int64_t)n;
}

static void a_body_is_streamed_out_with_and_without_a_length(void **state)
{
    (void)state;
    enum { TOTAL = 5 * 1000 * 1000 + 7 };
    char hex[MG_SHA256_HEX], want[128];
    mg_autofree char *all = mg_xmalloc(TOTAL);
    memset(all, 'u', TOTAL);
    mg_sha256_hex(mg_sv_n(all, TOTAL), hex);
    (void)snprintf(want, sizeof(want), "%d %s", TOTAL, hex);
    for (int known = 0; known < 2; known++) {
        ANSWER(a);
        struct source s = {.total = TOTAL};
        assert_int_equal(peer_call((struct mango_http_req){.method = z("PUT"),
                                                           .url = z("http://peer/count"),
                                                           .unix_socket = z(peer_sock),
                                                           .source = give,
                                                           .source_ctx = &s,
                                                           .source_len = known ? TOTAL : -1},
                                   &a),
                         MANGO_OK);
        assert_sv_equal(mg_buf_view(&a.body), want);
    }
}

static void a_source_that_fails_or_lies_ends_the_request(void **state)
{
    (void)state;
    static const struct {
        struct source s;
        int64_t said;
        mango_status want;
    } cases[] = {
        {{.total = 300000, .fail = MANGO_EQUOTA}, -1, MANGO_EQUOTA},
        {{.total = 300000}, 300001, MANGO_EINVALID},
        {{.total = 300000}, 299999, MANGO_EINVALID},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ANSWER(a);
        struct source s = {.total = cases[i].s.total, .fail = cases[i].s.fail};
        mango_status got = peer_call((struct mango_http_req){.method = z("PUT"),
                                                             .url = z("http://peer/count"),
                                                             .unix_socket = z(peer_sock),
                                                             .source = give,
                                                             .source_ctx = &s,
                                                             .source_len = cases[i].said},
                                     &a);
        if (got != cases[i].want)
            fail_msg("case %zu: %d %s", i, got, a.err.text);
    }
}

struct cancelling {
    struct mg_cancel *cancel;
    struct source *source; /* until its number of calls does not change any more */
};

/* Fires once the peer has been holding the source back for a while. */
static void *cancel_when_stuck(void *arg)
{
    struct cancelling *c = arg;
    const struct timespec step = {.tv_nsec = 20000000};
    uint64_t last = 0, same = 0;
    for (int i = 0; i < 500 && same < 10; i++) {
        uint64_t now = atomic_load(&c->source->calls);
        same = now == last && now > 0 ? same + 1 : 0;
        last = now;
        (void)nanosleep(&step, NULL);
    }
    mg_cancel_fire(c->cancel);
    return NULL;
}

static void a_peer_that_reads_nothing_holds_the_source_back_and_a_cancel_ends_it(void **state)
{
    (void)state;
    ANSWER(a);
    pthread_t t;
    struct source s = {.total = UINT64_MAX / 2};
    struct cancelling c = {.cancel = mg_cancel_new(), .source = &s};
    assert_int_equal(pthread_create(&t, NULL, cancel_when_stuck, &c), 0);
    assert_int_equal(peer_call_for((struct mango_http_req){.method = z("PUT"),
                                                           .url = z("http://peer/deaf"),
                                                           .unix_socket = z(peer_sock),
                                                           .source = give,
                                                           .source_ctx = &s,
                                                           .source_len = -1},
                                   &a, 0, c.cancel),
                     MANGO_ECANCELED);
    (void)pthread_join(t, NULL);
    assert_true(s.given < 8 * 1024 * 1024); /* sockets' buffers and ours */
    mg_cancel_unref(c.cancel);
}

static void an_early_refusal_comes_through_while_the_body_is_sent(void **state)
{
    (void)state;
    ANSWER(a);
    struct source s = {.total = 64 * 1024 * 1024};
    mango_status got = peer_call((struct mango_http_req){.method = z("PUT"),
                                                         .url = z("http://peer/early"),
                                                         .unix_socket = z(peer_sock),
                                                         .source = give,
                                                         .source_ctx = &s,
                                                         .source_len = -1},
                                 &a);
    if (got == MANGO_OK) /* a reset may have overtaken the answer */
        assert_int_equal(a.res.status, 413);
    else
        assert_int_equal(got, MANGO_ERETRY);
    assert_true(s.given < s.total);
}

enum { PAUSE_MS = 3000 }; /* of the reader; half of it without a byte is what would end the call */

static int32_t slow_sink(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct peer_answer *a = ctx;
    (void)stream;
    (void)p;
    a->got += n;
    if (a->got == n) { /* the first time: so long that an endless peer would fill any memory */
        uint64_t until = mg_now_ns() + (uint64_t)PAUSE_MS * 1000000;
        while (mg_now_ns() < until) {
            const struct timespec step = {.tv_nsec = 50000000};
            (void)nanosleep(&step, NULL);
        }
        a->enough_at = (uint64_t)peer_fact("flooded");
    }
    return 0;
}

static void a_slow_reader_holds_a_flooding_peer_back(void **state)
{
    (void)state;
    enum { TOTAL = 64 * 1000 * 1000 };
    ANSWER(a);
    char path[64];
    (void)snprintf(path, sizeof(path), "http://peer/flood/%d", TOTAL);
    peer_sink_to(&a, slow_sink);
    assert_int_equal(peer_call((struct mango_http_req){.url = z(path),
                                                       .unix_socket = z(peer_sock),
                                                       .max_body = UINT64_MAX,
                                                       .idle_ms = PAUSE_MS / 2},
                               &a),
                     MANGO_OK);
    assert_int_equal(a.got, TOTAL); /* and the pause was no idle time */
    assert_true(a.enough_at < 8 * 1000 * 1000);
}

static void a_body_past_its_limit_is_refused(void **state)
{
    (void)state;
    ANSWER(a);
    peer_sink_to(&a, peer_count_sink);
    assert_int_equal(peer_call((struct mango_http_req){.url = z("http://peer/flood/3200000"),
                                                       .unix_socket = z(peer_sock),
                                                       .max_body = 100000},
                               &a),
                     MANGO_ETOOBIG);
    assert_true(a.got <= 100000);
    ANSWER(b);
    b.body.max = 1000;
    assert_int_equal(
        peer_call((struct mango_http_req){.url = z("http://peer/flood/3200000"), .unix_socket = z(peer_sock)}, &b),
        MANGO_ETOOBIG);
    ANSWER(c);
    peer_sink_to(&c, peer_count_sink);
    assert_int_equal(
        peer_call((struct mango_http_req){.url = z("http://peer/flood/48000000"), .unix_socket = z(peer_sock)}, &c),
        MANGO_ETOOBIG); /* the daemon's default of 32 MiB */
}

static void a_reader_that_has_enough_ends_the_exchange_well(void **state)
{
    (void)state;
    ANSWER(a);
    uint64_t since = mg_now_ns();
    peer_sink_to(&a, peer_count_sink);
    a.enough_at = 1;
    assert_int_equal(
        peer_call((struct mango_http_req){.url = z("http://peer/endless"), .unix_socket = z(peer_sock)}, &a), MANGO_OK);
    assert_int_equal(a.res.status, 200);
    assert_true(mg_now_ns() - since < 5ull * PEER_SECOND_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_streamed_out_with_and_without_a_length),
        cmocka_unit_test(a_source_that_fails_or_lies_ends_the_request),
        cmocka_unit_test(a_peer_that_reads_nothing_holds_the_source_back_and_a_cancel_ends_it),
        cmocka_unit_test(an_early_refusal_comes_through_while_the_body_is_sent),
        cmocka_unit_test(a_slow_reader_holds_a_flooding_peer_back),
        cmocka_unit_test(a_body_past_its_limit_is_refused),
        cmocka_unit_test(a_reader_that_has_enough_ends_the_exchange_well),
    };
    return cmocka_run_group_tests(tests, peer_group_up, peer_group_down);
}
