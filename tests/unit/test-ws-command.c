#include "unit.h"

#include "http/http.h"
#include "http/ws-command.h"
#include "http/ws-frame.h"

static struct mg_arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = mg_arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mg_arena_free(arena);
    return 0;
}

static struct mg_ws_command parse(const char *text)
{
    struct mg_ws_command c;
    struct mg_err err = {0};
    if (mg_ws_command_parse(arena, mg_sv_of(text), &c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return c;
}

static void bad(const char *text, const char *reason)
{
    struct mg_ws_command c;
    struct mg_err err = {0};
    if (mg_ws_command_parse(arena, mg_sv_of(text), &c, &err) != MG_EINVAL)
        fail_msg("%s was taken", text);
    assert_contains(err.text, reason);
}

static void each_command_has_its_fields(void **state)
{
    (void)state;
    struct mg_ws_command c =
        parse("{\"op\":\"subscribe\",\"sub\":7,\"session_id\":\"sesn_1\",\"after\":\"sevt_9\",\"types\":[\"a\",\"b\"],"
              "\"deltas\":[\"agent.message\"],\"thread_id\":\"sthr_1\",\"credit\":5}");
    assert_int_equal(c.op, MG_WS_OP_SUBSCRIBE);
    assert_int_equal(c.sub, 7);
    assert_sv_equal(c.session_id, "sesn_1");
    assert_sv_equal(c.after, "sevt_9");
    assert_sv_equal(c.types, "a,b");
    assert_sv_equal(c.thread_id, "sthr_1");
    assert_true(c.deltas_message && !c.deltas_thinking);
    assert_int_equal(c.credit, 5);
    c = parse("{\"session_id\":\"s\",\"sub\":0,\"op\":\"subscribe\",\"types\":\"x,y\",\"after\":null}");
    assert_int_equal(c.credit, MG_WS_CREDIT);
    assert_sv_equal(c.types, "x,y");
    assert_sv_equal(c.after, "");
    c = parse("{\"op\":\"unsubscribe\",\"sub\":3}");
    assert_int_equal(c.op, MG_WS_OP_UNSUBSCRIBE);
    c = parse("{\"op\":\"credit\",\"sub\":3,\"n\":100}");
    assert_int_equal(c.op, MG_WS_OP_CREDIT);
    assert_int_equal(c.credit, 100);
    c = parse(" {\"op\":\"send\",\"ref\":\"r1\",\"session_id\":\"s\",\"events\":[ {\"a\":0.1} "
              "],\"idempotency_key\":\"k\"}\n");
    assert_int_equal(c.op, MG_WS_OP_SEND);
    assert_sv_equal(c.ref, "\"r1\"");
    assert_sv_equal(c.events, "[ {\"a\":0.1} ]"); /* as it came */
    assert_sv_equal(c.idempotency_key, "k");
    c = parse("{\"op\":\"ping\",\"ref\":12}");
    assert_int_equal(c.op, MG_WS_OP_PING);
    assert_sv_equal(c.ref, "12");
    assert_sv_equal(parse("{\"op\":\"ping\"}").ref, "");
}

static void malformed_commands_name_the_field(void **state)
{
    (void)state;
    bad("", "");
    bad("{", "");
    bad("[]", "object");
    bad("{}", "op");
    bad("{\"op\":\"fly\"}", "subscribe, unsubscribe, credit, send, ping");
    bad("{\"op\":7}", "op");
    bad("{\"op\":\"ping\",\"op\":\"ping\"}", "op");
    bad("{\"op\":\"ping\",\"sub\":1}", "sub: not a field of 'ping'");
    bad("{\"op\":\"ping\",\"ref\":true}", "ref");
    bad("{\"op\":\"ping\",\"ref\":{}}", "ref");
    bad("{\"op\":\"subscribe\",\"sub\":1}", "session_id");
    bad("{\"op\":\"subscribe\",\"session_id\":\"s\"}", "sub");
    bad("{\"op\":\"subscribe\",\"sub\":-1,\"session_id\":\"s\"}", "sub");
    bad("{\"op\":\"subscribe\",\"sub\":1.5,\"session_id\":\"s\"}", "sub");
    bad("{\"op\":\"subscribe\",\"sub\":99999999999999999999,\"session_id\":\"s\"}", "sub");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":5}", "session_id");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"a\\u0000b\"}", "session_id");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s\",\"types\":[1]}", "types");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s\",\"types\":[\"a,b\"]}", "types");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s\",\"deltas\":[\"user.message\"]}", "deltas");
    bad("{\"op\":\"subscribe\",\"sub\":1,\"session_id\":\"s\",\"credit\":1000001}", "credit");
    bad("{\"op\":\"credit\",\"sub\":1}", "n");
    bad("{\"op\":\"credit\",\"sub\":1,\"n\":-5}", "n");
    bad("{\"op\":\"send\",\"session_id\":\"s\"}", "events");
    bad("{\"op\":\"send\",\"session_id\":\"s\",\"events\":{}}", "events");
    bad("{\"op\":\"send\",\"session_id\":\"s\",\"events\":[],\"extra\":1}", "extra");
}

static void the_ref_of_a_bad_command_is_known(void **state)
{
    struct mg_ws_command c;
    struct mg_err err;
    (void)state;
    assert_int_equal(mg_ws_command_parse(arena, MG_SV("{\"op\":\"fly\",\"ref\":\"x\"}"), &c, &err), MG_EINVAL);
    assert_sv_equal(c.ref, "\"x\"");
}

/* ---- frames ---- */

static struct mg_buf frame(int first, const char *content, size_t n)
{
    static const unsigned char mask[4] = {1, 2, 3, 4};
    struct mg_buf b = MG_BUF_INIT(4 * 1024 * 1024);
    mg_frame_begin(&b, MG_WS_TEXT, n);
    b.ptr[0] = (char)first;
    b.ptr[1] = (char)(b.ptr[1] | 0x80);
    (void)mg_buf_append(&b, mask, 4);
    for (size_t i = 0; i < n; i++)
        (void)mg_buf_char(&b, (char)(content[i] ^ mask[i & 3]));
    return b;
}

/* Feeds byte by byte; gives the last result. */
static enum mg_frame_result drip(struct mg_frame *f, struct mg_buf b)
{
    enum mg_frame_result r = MG_FRAME_MORE;
    for (size_t i = 0; i < b.len && r == MG_FRAME_MORE; i++) {
        size_t used;
        r = mg_frame_feed(f, mg_sv_n(b.ptr + i, 1), &used);
        assert_int_equal(used, 1);
    }
    mg_buf_done(&b);
    return r;
}

static void messages_come_whole_however_they_are_cut(void **state)
{
    static char text[70000];
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 70000};
    (void)state;
    memset(text, 'a', sizeof(text));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct mg_frame f;
        mg_frame_init(&f, 1024 * 1024);
        assert_int_equal(drip(&f, frame(0x81, text, sizes[i])), MG_FRAME_MESSAGE);
        assert_int_equal(f.message.len, sizes[i]);
        if (sizes[i])
            assert_memory_equal(f.message.ptr, text, sizes[i]);
        mg_frame_done(&f);
    }
}

static void control_frames_come_between_fragments(void **state)
{
    struct mg_frame f;
    (void)state;
    mg_frame_init(&f, 100);
    assert_int_equal(drip(&f, frame(0x01, "one", 3)), MG_FRAME_MORE);
    assert_int_equal(drip(&f, frame(0x89, "ping", 4)), MG_FRAME_CONTROL);
    assert_sv_equal(mg_sv_n(f.control, f.control_len), "ping");
    assert_int_equal(drip(&f, frame(0x00, "two", 3)), MG_FRAME_MORE);
    assert_int_equal(drip(&f, frame(0x80, "three", 5)), MG_FRAME_MESSAGE);
    assert_sv_equal(mg_buf_view(&f.message), "onetwothree");
    mg_frame_done(&f);
}

static void a_bad_frame(int first, const char *content, size_t n, uint16_t code)
{
    struct mg_frame f;
    mg_frame_init(&f, 100);
    assert_int_equal(drip(&f, frame(first, content, n)), MG_FRAME_BAD);
    assert_int_equal(f.close_code, code);
    assert_non_null(f.why);
    mg_frame_done(&f);
}

static void frames_that_the_protocol_forbids_have_their_close_codes(void **state)
{
    static char text[200];
    struct mg_frame f;
    size_t used;
    (void)state;
    memset(text, 'a', sizeof(text));
    a_bad_frame(0xc1, "x", 1, MG_WS_CLOSE_PROTOCOL); /* compressed, though nothing was agreed */
    a_bad_frame(0x82, "x", 1, MG_WS_CLOSE_KIND);
    a_bad_frame(0x80, "x", 1, MG_WS_CLOSE_PROTOCOL);
    a_bad_frame(0x83, "x", 1, MG_WS_CLOSE_PROTOCOL);
    a_bad_frame(0x8b, "x", 1, MG_WS_CLOSE_PROTOCOL);
    a_bad_frame(0x09, "x", 1, MG_WS_CLOSE_PROTOCOL);
    a_bad_frame(0x89, text, 126, MG_WS_CLOSE_PROTOCOL);
    a_bad_frame(0x81, text, 101, MG_WS_CLOSE_TOO_BIG);
    a_bad_frame(0x81, "\xff", 1, MG_WS_CLOSE_UTF8);
    mg_frame_init(&f, 100);
    assert_int_equal(mg_frame_feed(&f, MG_SV("\x81\x01"), &used), MG_FRAME_BAD); /* not masked */
    mg_frame_done(&f);
    mg_frame_init(&f, 100);
    assert_int_equal(drip(&f, frame(0x01, text, 60)), MG_FRAME_MORE);
    assert_int_equal(drip(&f, frame(0x00, text, 60)), MG_FRAME_BAD);
    assert_int_equal(f.close_code, MG_WS_CLOSE_TOO_BIG);
    mg_frame_done(&f);
    mg_frame_init(&f, 100);
    assert_int_equal(mg_frame_feed(&f, MG_SV("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x03\x04"), &used),
                     MG_FRAME_BAD);
    assert_int_equal(f.close_code, MG_WS_CLOSE_TOO_BIG);
    mg_frame_done(&f);
}

static void close_codes_are_checked(void **state)
{
    static const struct {
        const char *content;
        size_t n;
        uint16_t code;
    } table[] = {
        {"", 0, 1005},
        {"\x03\xe8", 2, 1000},
        {"\x03\xe9"
         "bye",
         5, 1001},
        {"\x03", 1, 1002},
        {"\x03\xed", 2, 1002},
        {"\x0b\xb8", 2, 3000},
        {"\x00\x00", 2, 1002},
        {"\x03\xe8\xff", 3, 1002},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct mg_frame f;
        mg_frame_init(&f, 100);
        assert_int_equal(drip(&f, frame(0x88, table[i].content, table[i].n)), MG_FRAME_CONTROL);
        assert_int_equal(mg_frame_close_code(&f), table[i].code);
        mg_frame_done(&f);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(each_command_has_its_fields),
        T(malformed_commands_name_the_field),
        T(the_ref_of_a_bad_command_is_known),
        T(messages_come_whole_however_they_are_cut),
        T(control_frames_come_between_fragments),
        T(frames_that_the_protocol_forbids_have_their_close_codes),
        T(close_codes_are_checked),
    };
    return RUN(tests);
}
