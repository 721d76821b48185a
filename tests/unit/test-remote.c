/* Calls of adapters to services: what is tried again and what is not, what a refusal means, what no text may show. The host is
 * a table that plays answers from a list. */
#include "unit.h"
#undef fail /* of cmocka: adapters have a function of that name */

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/brought.h"
#include "common/remote/remote.h"
#include "common/remote/when.h"

#define SV(z) ((struct mango_sv){(z), strlen(z)})

struct answer {
    mango_status s;
    int status;
    const char *body;
    uint32_t flags, retry_after_ms;
};

struct mango_buf {
    char *p;
    uint64_t len, max;
};

static struct {
    const struct answer *answers;
    int n, calls;
    bool cancelled;
    char text[1024];
    uint32_t retry_after_ms;
    const char *name, *value; /* the one setting */
    uint64_t now_ns;
    int ready; /* readable at once: a wait ends with its first look */
} fake;

static uint64_t f_now(const struct mango_host *h)
{
    (void)h;
    fake.now_ns += UINT64_C(10000000000); /* no wait takes its time here */
    return fake.now_ns;
}
static struct mango_buf *f_new(const struct mango_host *h, uint64_t max)
{
    (void)h;
    struct mango_buf *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->max = max;
    return b;
}
static mango_status f_append(const struct mango_host *h, struct mango_buf *b, const void *p, uint64_t n)
{
    (void)h;
    if (b->len + n > b->max)
        return MANGO_ETOOBIG;
    b->p = realloc(b->p, b->len + n + 1);
    assert_non_null(b->p);
    memcpy(b->p + b->len, p, n);
    b->len += n;
    b->p[b->len] = '\0';
    return MANGO_OK;
}
static struct mango_sv f_view(const struct mango_host *h, const struct mango_buf *b)
{
    (void)h;
    return (struct mango_sv){b->p ? b->p : "", b->len};
}
static void f_free(const struct mango_host *h, struct mango_buf *b)
{
    (void)h;
    if (b)
        free(b->p);
    free(b);
}
static int32_t f_cancelled(const struct mango_host *h, const struct mango_call *call)
{
    (void)h;
    return call->token && fake.cancelled;
}
static int32_t f_cancel_fd(const struct mango_host *h, const struct mango_call *call)
{
    (void)h, (void)call;
    return fake.ready;
}
static mango_status f_err(const struct mango_host *h, const struct mango_call *call, mango_status s, const char *text,
                          const char *id, uint32_t after)
{
    (void)h, (void)call, (void)id;
    snprintf(fake.text, sizeof(fake.text), "%s", text);
    fake.retry_after_ms = after;
    return s;
}
static mango_status f_setting(const struct mango_host *h, const char *name, struct mango_buf *ret)
{
    return fake.name && strcmp(name, fake.name) == 0 ? f_append(h, ret, fake.value, strlen(fake.value)) : MANGO_ENOENT;
}
static void f_metric(const struct mango_host *h, const char *name, int64_t n)
{
    (void)h, (void)name, (void)n;
}
static mango_status f_http(const struct mango_host *h, const struct mango_call *call, const struct mango_http_req *req,
                           struct mango_http_res *res)
{
    (void)h, (void)call, (void)req;
    assert_true(fake.calls < fake.n);
    const struct answer *a = &fake.answers[fake.calls++];
    res->status = a->status;
    if (a->body)
        (void)res->sink(res->sink_ctx, 0, a->body, strlen(a->body));
    res->flags = a->flags;
    res->retry_after_ms = a->retry_after_ms;
    return a->s;
}

static const struct mango_host host = {.struct_size = sizeof(host),
                                       .now_ns = f_now,
                                       .buf_append = f_append,
                                       .cancelled = f_cancelled,
                                       .cancel_fd = f_cancel_fd,
                                       .err_set = f_err,
                                       .secret_get = f_setting,
                                       .metric_add = f_metric,
                                       .buf_new = f_new,
                                       .buf_view = f_view,
                                       .buf_free = f_free,
                                       .http_call = f_http};
static const struct mango_call call = {.struct_size = sizeof(call)};
enum { SENT = MANGO_HTTP_RES_SENT };

static mango_status run(const struct answer *answers, int n, uint32_t flags, int calls, int status)
{
    struct remote r = {.host = &host, .service = "Example"};
    struct remote_res res;
    const struct remote_req req = {.method = "POST", .url = "http://example.test/x", .what = "make it", .flags = flags};
    fake.answers = answers;
    fake.n = n;
    fake.calls = 0;
    assert_true(remote_secret(&r, "sesame"));
    mango_status s = remote_call(&r, &call, &req, &res);
    assert_int_equal(fake.calls, calls);
    assert_int_equal(res.status, status);
    if (s == MANGO_OK && !remote_good(&res))
        s = remote_fail(&r, &call, &req, &res, MANGO_EGONE);
    remote_free(&r, &res);
    remote_close(&r);
    return s;
}

/* ---- tries ---- */

static void what_did_not_go_out_is_tried_again(void **state)
{
    (void)state;
    static const struct answer a[] = {{MANGO_ERETRY, 0, NULL, 0, 0}, {MANGO_OK, 201, "{}", SENT, 0}};
    assert_int_equal(run(a, 2, 0, 2, 201), MANGO_OK);
}

static void what_may_have_happened_is_tried_again_only_when_it_is_safe(void **state)
{
    (void)state;
    static const struct answer cut[] = {{MANGO_ERETRY, 0, NULL, SENT, 0}, {MANGO_OK, 200, "{}", SENT, 0}};
    static const struct answer bad[] = {{MANGO_OK, 502, "<html>", SENT, 0}, {MANGO_OK, 200, "{}", SENT, 0}};
    assert_int_equal(run(cut, 2, 0, 1, 0), MANGO_ERETRY);
    assert_int_equal(run(cut, 2, REMOTE_SAFE, 2, 200), MANGO_OK);
    assert_int_equal(run(bad, 2, 0, 1, 502), MANGO_ERETRY);
    assert_non_null(strstr(fake.text, "proxy"));
    assert_int_equal(run(bad, 2, REMOTE_SAFE, 2, 200), MANGO_OK);
    assert_int_equal(run(bad, 2, REMOTE_SAFE | REMOTE_SINGLE, 1, 502), MANGO_ERETRY);
}

static void a_refusal_for_the_moment_is_tried_again_always(void **state)
{
    (void)state;
    static const struct answer a[] = {{MANGO_OK, 429, "{\"message\":\"slow down\"}", SENT, 5},
                                      {MANGO_OK, 503, "{}", SENT, 5},
                                      {MANGO_OK, 201, "{}", SENT, 0}};
    assert_int_equal(run(a, 3, 0, 3, 201), MANGO_OK);
}

static void a_long_retry_after_is_told_instead(void **state)
{
    (void)state;
    static const struct answer a[] = {{MANGO_OK, 429, "{\"message\":\"later\"}", SENT, 60000}};
    assert_int_equal(run(a, 1, REMOTE_SAFE, 1, 429), MANGO_ERETRY);
    assert_int_equal(fake.retry_after_ms, 60000);
}

static void tries_come_to_an_end(void **state)
{
    (void)state;
    struct answer a[REMOTE_TRIES];
    for (int i = 0; i < REMOTE_TRIES; i++)
        a[i] = (struct answer){MANGO_OK, 503, "{}", SENT, 1};
    assert_int_equal(run(a, REMOTE_TRIES, REMOTE_SAFE, REMOTE_TRIES, 503), MANGO_ERETRY);
}

static void half_an_answer_is_none(void **state)
{
    (void)state;
    static const struct answer a[] = {{MANGO_OK, 200, "{\"sandboxID\":\"i", SENT, 0}, {MANGO_OK, 200, "{}", SENT, 0}};
    assert_int_equal(run(a, 2, REMOTE_JSON, 1, 200), MANGO_ERETRY);
    assert_int_equal(run(a, 2, REMOTE_JSON | REMOTE_SAFE, 2, 200), MANGO_OK);
}

static void waits_grow_and_have_a_bound(void **state)
{
    (void)state;
    for (unsigned n = 1; n < 40; n++) {
        uint64_t ms = remote_back_off_ms(n);
        assert_true(ms >= REMOTE_WAIT_MIN_MS / 2 && ms <= REMOTE_WAIT_MAX_MS);
        assert_true(n < 8 || ms >= REMOTE_WAIT_MAX_MS / 2);
    }
}

/* ---- classes and words ---- */

static void a_status_has_its_class(void **state)
{
    (void)state;
    static const struct {
        int status;
        mango_status s;
    } t[] = {{400, MANGO_EINVALID},     {401, MANGO_EDENIED}, {403, MANGO_EDENIED},  {404, MANGO_EGONE},
             {405, MANGO_EUNSUPPORTED}, {408, MANGO_ERETRY},  {409, MANGO_ERETRY},   {413, MANGO_ETOOBIG},
             {422, MANGO_EINVALID},     {429, MANGO_ERETRY},  {500, MANGO_ERETRY},   {501, MANGO_EUNSUPPORTED},
             {502, MANGO_ERETRY},       {507, MANGO_EQUOTA},  {302, MANGO_EINTERNAL}};
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        assert_int_equal(remote_class(t[i].status, MANGO_EGONE), t[i].s);
}

static void no_text_shows_a_secret(void **state)
{
    (void)state;
    static const struct answer a[] = {{MANGO_OK, 401, "{\"code\":401,\"message\":\"key sesame\\nis bad\"}", SENT, 0}};
    assert_int_equal(run(a, 1, 0, 1, 401), MANGO_EDENIED);
    assert_string_equal(fake.text, "Example could not make it (HTTP 401): key *** is bad");
}

/* Also what is no setting: the token of one sandbox. */
static void no_text_shows_what_a_request_proved_itself_with(void **state)
{
    (void)state;
    static const struct answer a[] = {
        {MANGO_OK, 403, "{\"message\":\"X-Access-Token: 0123456789 and Bearer abcdefghij, of box-1234567\"}", SENT, 0}};
    struct mango_http_header headers[] = {{SV("X-Access-Token"), SV("0123456789")},
                                          {SV("Authorization"), SV("Bearer abcdefghij")},
                                          {SV("X-Box"), SV("box-1234567")},
                                          {SV("X-Key"), SV("of")}};
    const struct remote r = {.host = &host, .service = "Example"};
    const struct remote_req req = {
        .method = "GET", .url = "http://x/", .what = "make it", .headers = headers, .n_headers = 4};
    struct remote_res res;
    fake.answers = a;
    fake.n = 1;
    fake.calls = 0;
    assert_int_equal(remote_call(&r, &call, &req, &res), MANGO_OK);
    assert_int_equal(remote_fail(&r, &call, &req, &res, MANGO_ENOENT), MANGO_EDENIED);
    assert_string_equal(fake.text, "Example could not make it (HTTP 403): X-Access-Token: ********** and Bearer "
                                   "**********, of box-1234567");
    remote_free(&r, &res);
}

static void ids_of_a_service_are_looked_at(void **state)
{
    (void)state;
    char big[130];
    memset(big, 'a', sizeof(big));
    static const char *const good[] = {"i", "ixq7-ab_c.d", "9"}, *const bad[] = {"",    ".",   "..",  "-a",
                                                                                 "a/b", "a b", "a%2f"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(remote_id_ok(SV(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(remote_id_ok(SV(bad[i])));
    assert_false(remote_id_ok((struct mango_sv){big, 129}));
}

/* ---- settings ---- */

static void a_services_clock_is_known_by_its_date(void **state)
{
    (void)state;
    const int64_t hour_us = INT64_C(3600000000), slack_us = 120000000;
    char date[64];
    _Atomic int64_t skew = 0;
    time_t then = (time_t)(when_now_us() / 1000000) - 3600;
    struct tm tm;
    assert_int_not_equal(strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&then, &tm)), 0);
    when_on_header(&skew, sv_z("Last-Modified"), sv_z(date));
    when_on_header(&skew, sv_z("Date"), sv_z("yesterday"));
    assert_int_equal(atomic_load(&skew), 0);
    when_on_header(&skew, sv_z("date"), sv_z(date));
    assert_in_range(-atomic_load(&skew), hour_us - slack_us, hour_us + slack_us);
}

static void times_and_urls_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds; /* -1: refused */
    } times[] = {{"300", 300},
                 {"45s", 45},
                 {"5m", 300},
                 {"1h", 3600},
                 {"", 77},
                 {"0", -1},
                 {"25h", -1},
                 {"5x", -1},
                 {"-5", -1},
                 {"5 m", -1},
                 {"99999999999999999999", -1}};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t v = 0;
        fake.name = "X_TIME";
        fake.value = times[i].text;
        mango_status s = remote_seconds(&host, &call, "X_TIME", 77, 1, 86400, &v);
        assert_int_equal(s, times[i].seconds < 0 ? MANGO_EINVALID : MANGO_OK);
        if (s == MANGO_OK)
            assert_int_equal(v, times[i].seconds);
        else
            assert_non_null(strstr(fake.text, "X_TIME"));
    }
    static const char *const bad[] = {"example.org", "ftp://x", "http://", "https:///x", "http://u@h", "http://h?x"};
    char *url = NULL;
    fake.name = "X_URL";
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fake.value = bad[i];
        assert_int_equal(remote_url(&host, &call, "X_URL", NULL, &url), MANGO_EINVALID);
    }
    fake.value = "http://[::1]:3000/api//";
    assert_int_equal(remote_url(&host, &call, "X_URL", NULL, &url), MANGO_OK);
    assert_string_equal(url, "http://[::1]:3000/api");
    free(url);
}

/* ---- what is put into sandboxes ---- */

static void a_program_that_cannot_be_brought_along_is_named_with_the_reason(void **state)
{
    (void)state;
    const struct brought_file f = {.name = "program", .title = "the ", .remedy = "set X_RBOX", .max = 100000};
    struct brought b;
    assert_int_equal(brought_load(&host, &call, &f, strdup("/dev/zero"), &b), MANGO_EINVALID);
    assert_string_equal(fake.text, "the /dev/zero has more than 100000 bytes; set X_RBOX");
    assert_null(b.bytes);
    assert_int_equal(brought_load(&host, &call, &f, strdup("/no/such"), &b), MANGO_EINVALID);
    assert_string_equal(fake.text, "the /no/such cannot be read: No such file or directory; set X_RBOX");
    assert_int_equal(brought_load(&host, &call, &f, strdup("/dev/null"), &b), MANGO_OK);
    f_free(&host, b.bytes);
}

int main(void)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    (void)close(pipe_fds[1]);
    fake.ready = pipe_fds[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_did_not_go_out_is_tried_again),
        cmocka_unit_test(what_may_have_happened_is_tried_again_only_when_it_is_safe),
        cmocka_unit_test(a_refusal_for_the_moment_is_tried_again_always),
        cmocka_unit_test(a_long_retry_after_is_told_instead),
        cmocka_unit_test(tries_come_to_an_end),
        cmocka_unit_test(half_an_answer_is_none),
        cmocka_unit_test(waits_grow_and_have_a_bound),
        cmocka_unit_test(a_status_has_its_class),
        cmocka_unit_test(no_text_shows_a_secret),
        cmocka_unit_test(no_text_shows_what_a_request_proved_itself_with),
        cmocka_unit_test(ids_of_a_service_are_looked_at),
        cmocka_unit_test(a_services_clock_is_known_by_its_date),
        cmocka_unit_test(times_and_urls_are_read),
        cmocka_unit_test(a_program_that_cannot_be_brought_along_is_named_with_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
