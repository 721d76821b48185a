/* Streams of sandbox services: the envelopes of the Connect protocol, the frames of mango-rbox, base64; each in pieces of any
 * size, and whole, cut, foreign and hostile ones. */
#include "unit.h"
#undef fail /* of cmocka: adapters have a function of that name */

#include <stdlib.h>

#include "common/envd/connect.h"
#include "common/remote/base64.h"
#include "common/remote/rbox.h"

#define SV(z) ((struct mango_sv){(z), strlen(z)})

/* ---- Connect ---- */

static bool note(void *ctx, struct mango_sv json)
{
    struct text *seen = ctx;
    text_sv(seen, json);
    text_add(seen, "|");
    return json.len < 40; /* a long one is enough */
}

static void add(struct text *t, unsigned char flags, const char *json)
{
    uint64_t at = t->len;
    connect_envelope(t, SV(json));
    t->ptr[at] = (char)flags;
}

/* The same in pieces of every size. */
static void each_way(const struct text *stream, const char *seen, bool ended, bool bad, const char *code)
{
    for (uint64_t size = 1; size <= stream->len; size++) {
        text_auto struct text got = {0};
        struct connect c = {.message = note, .ctx = &got};
        for (uint64_t at = 0; at < stream->len; at += size) {
            if (!connect_feed(&c, stream->ptr + at, stream->len - at < size ? stream->len - at : size))
                break;
        }
        assert_int_equal(c.ended, ended);
        assert_int_equal(c.bad, bad);
        assert_string_equal(got.ptr ? got.ptr : "", seen);
        assert_string_equal(c.code, code);
        connect_free(&c);
    }
}

static void messages_and_the_end_are_found_at_every_cut(void **state)
{
    (void)state;
    text_auto struct text t = {0};
    add(&t, 0, "{\"a\":1}");
    add(&t, 0, "{}");
    add(&t, 2, "{}");
    each_way(&t, "{\"a\":1}|{}|", true, false, "");
}

static void the_end_tells_its_error(void **state)
{
    (void)state;
    text_auto struct text t = {0};
    add(&t, 2, "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"late\"}}");
    each_way(&t, "", true, false, "deadline_exceeded");
    struct connect c = {.message = note};
    (void)connect_feed(&c, t.ptr, t.len);
    assert_true(c.error);
    assert_string_equal(c.words.ptr, "late");
    connect_free(&c);
}

static void a_stream_without_its_end_has_none(void **state)
{
    (void)state;
    text_auto struct text t = {0};
    add(&t, 0, "{\"a\":1}");
    add(&t, 2, "{}");
    t.len--;
    each_way(&t, "{\"a\":1}|", false, false, "");
}

static void what_is_no_stream_is_said_so(void **state)
{
    (void)state;
    static const char *const pages[] = {"<html><body>502 Bad Gateway</body></html>",
                                        "{\"code\":502,\"message\":\"x\"}"};
    for (size_t i = 0; i < 2; i++) {
        text_auto struct text t = {0};
        text_add(&t, pages[i]);
        each_way(&t, "", false, true, "");
        struct connect c = {.message = note};
        (void)connect_feed(&c, t.ptr, t.len);
        assert_memory_equal(c.words.ptr, pages[i], 20);
        connect_free(&c);
    }
    text_auto struct text packed = {0};
    add(&packed, 1, "{}");
    each_way(&packed, "", false, true, "");
    text_auto struct text broken = {0};
    add(&broken, 0, "{\"a\":");
    each_way(&broken, "", false, true, "");
    text_auto struct text behind = {0};
    add(&behind, 2, "{}");
    add(&behind, 0, "{}");
    each_way(&behind, "", true, true, "");
}

static void a_length_beyond_the_limit_is_refused_before_it_is_kept(void **state)
{
    (void)state;
    struct connect c = {.message = note};
    assert_false(connect_feed(&c,
                              "\0\x7F\xFF\xFF\xFF"
                              "abc",
                              8));
    assert_true(c.bad);
    connect_free(&c);
}

static void a_receiver_that_has_enough_stops_it(void **state)
{
    (void)state;
    text_auto struct text t = {0};
    add(&t, 0, "{\"long\":\"0123456789012345678901234567890123456789\"}");
    add(&t, 0, "{}");
    text_auto struct text got = {0};
    struct connect c = {.message = note, .ctx = &got};
    assert_false(connect_feed(&c, t.ptr, t.len));
    assert_true(c.stopped);
    assert_null(strstr(got.ptr, "{}"));
    connect_free(&c);
}

static void codes_are_texts_or_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *json, *code;
    } t[] = {{"{\"code\":\"not_found\",\"message\":\"x\"}", "not_found"},
             {"{\"code\":401}", "401"},
             {"{}", "unknown"},
             {"", "unknown"}};
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        char code[CONNECT_CODE_MAX];
        connect_code(SV(t[i].json), code);
        assert_string_equal(code, t[i].code);
    }
}

static void each_code_of_the_protocol_means_what_its_status_does(void **state)
{
    (void)state;
    static const struct {
        const char *code;
        int status;
        bool not_begun;
    } t[] = {{"canceled", 408, false},
             {"unknown", 500, false},
             {"invalid_argument", 400, true},
             {"deadline_exceeded", 504, false},
             {"not_found", 404, true},
             {"already_exists", 409, false},
             {"permission_denied", 403, true},
             {"resource_exhausted", 429, true},
             {"failed_precondition", 400, true},
             {"aborted", 409, false},
             {"out_of_range", 400, true},
             {"unimplemented", 501, true},
             {"internal", 500, false},
             {"unavailable", 503, false},
             {"data_loss", 500, false},
             {"unauthenticated", 401, true},
             {"401", 401, false},
             {"502", 502, false},
             {"strange", 500, false},
             {"200", 500, false}};
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        assert_int_equal(connect_status(t[i].code), t[i].status);
        assert_int_equal(connect_not_begun(t[i].code), t[i].not_begun);
    }
}

/* ---- frames ---- */

static int32_t keep(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    text_bytes(ctx, p, n);
    return 0;
}

static void frame(struct text *t, char kind, const char *p, uint32_t n)
{
    const char head[RBOX_HEAD] = {kind, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
    text_bytes(t, head, sizeof(head));
    text_bytes(t, p, n);
}

static void frames_are_found_at_every_cut(void **state)
{
    (void)state;
    static const char result[] = "{\"how\":\"exited\",\"code\":3,\"out\":4,\"err\":1}";
    text_auto struct text t = {0};
    frame(&t, RBOX_BEGAN, "", 0);
    frame(&t, RBOX_STDOUT, "a\0b", 3);
    frame(&t, RBOX_STDERR, "e", 1);
    frame(&t, RBOX_STDOUT, "c", 1);
    uint64_t before = t.len;
    frame(&t, RBOX_RESULT, result, sizeof(result) - 1);
    for (uint64_t size = 1; size <= t.len; size++) {
        text_auto struct text out = {0}, err = {0};
        struct chunk co = chunk_to(keep, &out, 1, 0), ce = chunk_to(keep, &err, 2, 0);
        struct rbox_frames f = {.out = &co, .err = &ce};
        for (uint64_t at = 0; at < before; at += size) {
            assert_true(rbox_feed(&f, t.ptr + at, before - at < size ? before - at : size));
            assert_false(f.ended);
        }
        assert_int_equal(f.bytes, before);
        assert_true(rbox_feed(&f, t.ptr + before, t.len - before));
        assert_true(f.began && f.ended && rbox_is(&f, RBOX_EXITED));
        assert_int_equal(out.len, 4);
        assert_memory_equal(out.ptr, "a\0bc", 4);
        assert_int_equal(err.len, 1);
        text_free(&out);
        text_free(&err);
    }
}

static void foreign_frames_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"sh: box: not found\n", "1\xFF\xFF\xFF\xFF", "r\0\0\x10\0", "b\0\0\0\1x"};
    static const uint64_t len[] = {19, 5, 5, 6};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rbox_frames f = {0};
        assert_false(rbox_feed(&f, bad[i], len[i]));
        assert_true(f.bad);
    }
    text_auto struct text t = {0};
    frame(&t, RBOX_RESULT, "{\"how\":", 7);
    struct rbox_frames f = {0};
    assert_false(rbox_feed(&f, t.ptr, t.len));
    assert_false(rbox_is(&f, RBOX_EXITED));
}

/* ---- arguments ---- */

static void arguments_that_are_no_text_are_encoded(void **state)
{
    (void)state;
    struct rbox_args a = {0};
    text_auto struct text arg = {0};
    static const char *const plain[] = {"run", "a b", "", "\303\251"}, *const odd[] = {"-x", "stat", "50%25",
                                                                                       "bad%FFx"};
    uint64_t pos = 0;
    for (int i = 0; i < 4; i++)
        rbox_argz(&a, plain[i]);
    for (int i = 0; i < 4; i++) {
        assert_true(rbox_args_next(&a, &pos, &arg));
        assert_string_equal(arg.ptr, plain[i]);
    }
    assert_false(rbox_args_next(&a, &pos, &arg));
    rbox_args_free(&a);
    rbox_argz(&a, "stat");
    rbox_argz(&a, "50%");
    rbox_argz(&a, "bad\377x");
    pos = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(rbox_args_next(&a, &pos, &arg));
        assert_string_equal(arg.ptr, odd[i]);
    }
    assert_false(rbox_args_next(&a, &pos, &arg));
    assert_false(a.too_big);
    rbox_arg(&a, (struct mango_sv){"a\0b", 3});
    assert_true(a.too_big);
    rbox_args_free(&a);
}

/* ---- base64 ---- */

static void base64_comes_back(void **state)
{
    (void)state;
    char bytes[64], out[128];
    for (uint64_t n = 0; n < sizeof(bytes); n++) {
        text_auto struct text t = {0};
        uint64_t got = 0;
        for (uint64_t i = 0; i < n; i++)
            bytes[i] = (char)(i * 37 + n);
        text_base64(&t, (struct mango_sv){bytes, n}, false);
        assert_true(base64_decode(text_view(&t), out, &got));
        assert_int_equal(got, n);
        assert_memory_equal(out, bytes, n);
    }
    static const char *const bad[] = {"a", "ab", "abc", "ab=c", "a===", "ab-_", "ab c", "===="};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t got;
        assert_false(base64_decode(SV(bad[i]), out, &got));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_and_the_end_are_found_at_every_cut),
        cmocka_unit_test(the_end_tells_its_error),
        cmocka_unit_test(a_stream_without_its_end_has_none),
        cmocka_unit_test(what_is_no_stream_is_said_so),
        cmocka_unit_test(a_length_beyond_the_limit_is_refused_before_it_is_kept),
        cmocka_unit_test(a_receiver_that_has_enough_stops_it),
        cmocka_unit_test(codes_are_texts_or_numbers),
        cmocka_unit_test(each_code_of_the_protocol_means_what_its_status_does),
        cmocka_unit_test(frames_are_found_at_every_cut),
        cmocka_unit_test(foreign_frames_are_refused),
        cmocka_unit_test(arguments_that_are_no_text_are_encoded),
        cmocka_unit_test(base64_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
