/* The event stream parser. */
#include "unit.h"

#include "base/mem.h"
#include "net/sse-parse.h"

static bool collect(void *ctx, struct mg_sv name, struct mg_sv data)
{
    mg_buf_char(ctx, '[');
    mg_buf_sv(ctx, name);
    mg_buf_char(ctx, '|');
    mg_buf_sv(ctx, data);
    mg_buf_char(ctx, ']');
    return true;
}

/* Parses text in pieces of n bytes. */
static char *parse(const char *text, size_t len, size_t n)
{
    struct mg_buf got = MG_BUF_INIT(1 << 20);
    struct mg_sse s;
    mg_sse_init(&s, 4096, collect, &got);
    for (size_t i = 0; i < len; i += n)
        assert_int_equal(mg_sse_feed(&s, text + i, len - i < n ? len - i : n, NULL), MG_OK);
    mg_sse_done(&s);
    return mg_buf_steal(&got, NULL);
}

static void events_are_the_same_however_the_bytes_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text, *events;
    } cases[] = {
        {"event: a\ndata: 1\n\ndata: 2\n\n", "[a|1][|2]"},
        {"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", "[a|1][|2]"},
        {"event: a\rdata: 1\r\rdata: 2\r\r", "[a|1][|2]"},
        {"data: a\ndata: b\ndata:\ndata\n\n", "[|a\nb\n\n]"},
        {"data:x\ndata:  y\n\n", "[|x\n y]"},
        {": comment\n:\ndata: 1\n: more\n\n", "[|1]"},
        {"event: lost\n\ndata: 1\n\n", "[|1]"},
        {"event: a\nevent: b\ndata: 1\n\n", "[b|1]"},
        {"id: 7\nretry: 10\nunknown: x\ndata: 1\n\n", "[|1]"},
        {"\xef\xbb\xbf"
         "data: 1\n\n",
         "[|1]"},
        {"data: 1\n\n\n\n\ndata: 2\n\n", "[|1][|2]"},
        {"data: cut", ""},
        {"data: cut\n", ""},
        {"data: 1\n\ndata: cut\r", "[|1]"},
        {"", ""},
        {"data: \xc3\xa9\xf0\x9f\x98\x80\n\n", "[|\xc3\xa9\xf0\x9f\x98\x80]"},
        {"\r\ndata: 1\r\n\n", "[|1]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i].text);
        for (size_t n = 1; n <= len + 1; n++) {
            mg_autofree char *got = parse(cases[i].text, len, n);
            assert_string_equal(got, cases[i].events);
        }
    }
}

static void a_nul_byte_is_data_like_any_other(void **state)
{
    (void)state;
    mg_autofree char *got = parse("data: a\0b\n\n", 11, 3);
    assert_memory_equal(got, "[|a\0b]", 6);
}

static void lines_and_events_over_the_limit_are_refused(void **state)
{
    (void)state;
    char line[5000];
    struct mg_err err;
    mg_auto(buf) struct mg_buf got = MG_BUF_INIT(1 << 20);
    memset(line, 'x', sizeof(line));
    for (size_t n = 1; n <= sizeof(line); n *= 7) {
        struct mg_sse s;
        mg_rc rc = MG_OK;
        mg_sse_init(&s, 4096, collect, &got);
        for (size_t i = 0; i < sizeof(line) && rc == MG_OK; i += n)
            rc = mg_sse_feed(&s, line + i, sizeof(line) - i < n ? sizeof(line) - i : n, &err);
        assert_int_equal(rc, MG_ETOOBIG);
        assert_contains(err.text, "4096 bytes");
        mg_sse_done(&s);
    }
    struct mg_sse s;
    mg_rc rc = MG_OK;
    mg_sse_init(&s, 4096, collect, &got);
    for (int i = 0; i < 50 && rc == MG_OK; i++)
        rc = mg_sse_feed(
            &s,
            "data: "
            "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\n",
            107, &err);
    assert_int_equal(rc, MG_ETOOBIG);
    mg_sse_done(&s);
    assert_int_equal(got.len, 0);
}

static bool stop(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    (void)data;
    return ++*(int *)ctx < 2;
}

static void a_reader_can_stop_the_stream(void **state)
{
    (void)state;
    struct mg_sse s;
    int n = 0;
    mg_sse_init(&s, 4096, stop, &n);
    assert_int_equal(mg_sse_feed(&s, "data: 1\n\ndata: 2\n\ndata: 3\n\n", 27, NULL), MG_ECANCELED);
    assert_int_equal(n, 2);
    mg_sse_done(&s);
}

static void a_cut_event_is_noticed(void **state)
{
    (void)state;
    struct mg_sse s;
    int n = 0;
    mg_sse_init(&s, 4096, stop, &n);
    assert_int_equal(mg_sse_feed(&s, "data: 1\n\n", 9, NULL), MG_OK);
    assert_false(mg_sse_pending(&s));
    assert_int_equal(mg_sse_feed(&s, "data: 2\n", 8, NULL), MG_OK);
    assert_true(mg_sse_pending(&s));
    mg_sse_done(&s);
}

static void ids_and_retries_are_kept_for_readers_that_resume(void **state)
{
    (void)state;
    char line[MG_SSE_ID_MAX + 8];
    struct mg_sse s;
    mg_auto(buf) struct mg_buf got = MG_BUF_INIT(1 << 20);
    mg_sse_init(&s, 4096, collect, &got);
    assert_int_equal(s.retry_ms, -1);
    assert_int_equal(mg_sse_feed(&s, "id: a-1\nretry: 250\ndata: \n\nretry: soon\nretry: -4\n\n", 50, NULL), MG_OK);
    assert_true(mg_sv_eqz(mg_sv_n(s.id, s.id_len), "a-1"));
    assert_int_equal(s.retry_ms, 250);
    assert_int_equal(mg_sse_feed(&s, "id: b\x01\n", 7, NULL), MG_OK); /* could not be sent back as a header */
    assert_int_equal(s.id_len, 0);
    memset(line, 'x', sizeof(line));
    memcpy(line, "id:", 3);
    line[sizeof(line) - 1] = '\n';
    assert_int_equal(mg_sse_feed(&s, "id: c\n", 6, NULL), MG_OK);
    assert_int_equal(mg_sse_feed(&s, line, sizeof(line), NULL), MG_OK);
    assert_int_equal(s.id_len, 0);
    mg_sse_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_however_the_bytes_are_cut),
        cmocka_unit_test(a_nul_byte_is_data_like_any_other),
        cmocka_unit_test(lines_and_events_over_the_limit_are_refused),
        cmocka_unit_test(a_reader_can_stop_the_stream),
        cmocka_unit_test(a_cut_event_is_noticed),
        cmocka_unit_test(ids_and_retries_are_kept_for_readers_that_resume),
    };
    return RUN(tests);
}
