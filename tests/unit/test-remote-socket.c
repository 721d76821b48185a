/* WebSockets of services: what comes in pieces of any size, what a server may not send, what is answered. The host is a table that
 * plays bytes. */
#include "unit.h"
#undef fail /* of cmocka: adapters have a function of that name */

#include <stdlib.h>

#include "common/remote/websocket.h"

enum { GARBAGE_ROUNDS = 2000, GARBAGE_MAX = 400 };

static struct {
    const char *in;
    size_t len, at, piece;
    unsigned char out[1024];
    size_t n_out;
    int status, closed;
    const char *accept;
} fake;

static mango_status f_read(const struct mango_host *h, const struct mango_call *c, mango_conn id, char *p, uint64_t n,
                           uint64_t *ret_n)
{
    (void)h, (void)c, (void)id;
    size_t left = fake.len - fake.at, take = left < fake.piece ? left : fake.piece;
    *ret_n = take < n ? take : n;
    assert_true(n > 0);
    memcpy(p, fake.in + fake.at, *ret_n);
    fake.at += *ret_n;
    return MANGO_OK;
}
static mango_status f_write(const struct mango_host *h, const struct mango_call *c, mango_conn id, const char *p,
                            uint64_t n)
{
    (void)h, (void)c, (void)id;
    assert_true(n <= sizeof(fake.out) - fake.n_out);
    memcpy(fake.out + fake.n_out, p, n);
    fake.n_out += n;
    return MANGO_OK;
}
static mango_status f_open(const struct mango_host *h, const struct mango_call *c, const struct mango_http_req *req,
                           struct mango_http_res *res, mango_conn *ret)
{
    (void)h, (void)c, (void)req;
    res->status = fake.status;
    if (fake.accept)
        res->on_header(res->header_ctx, (struct mango_sv){"sec-websocket-accept", 20},
                       (struct mango_sv){fake.accept, strlen(fake.accept)});
    *ret = fake.status == 101;
    return MANGO_OK;
}
static void f_close(const struct mango_host *h, mango_conn c)
{
    (void)h, (void)c;
    fake.closed++;
}
static mango_status f_err(const struct mango_host *h, const struct mango_call *c, mango_status s, const char *text,
                          const char *id, uint32_t ms)
{
    (void)h, (void)c, (void)text, (void)id, (void)ms;
    return s;
}
static struct mango_buf *f_new(const struct mango_host *h, uint64_t max)
{
    (void)h, (void)max;
    return malloc(1);
}
static struct mango_sv f_view(const struct mango_host *h, const struct mango_buf *b)
{
    (void)h, (void)b;
    return (struct mango_sv){"", 0};
}
static void f_free(const struct mango_host *h, struct mango_buf *b)
{
    (void)h;
    free(b);
}

static const struct mango_host host = {.struct_size = sizeof(host),
                                       .err_set = f_err,
                                       .buf_new = f_new,
                                       .buf_view = f_view,
                                       .buf_free = f_free,
                                       .conn_open = f_open,
                                       .conn_read = f_read,
                                       .conn_write = f_write,
                                       .conn_close = f_close};
static const struct mango_call call = {.struct_size = sizeof(call)};

/* All that came until the end, which is never MANGO_OK. */
static size_t read_all(const char *in, size_t len, size_t piece, char *out, size_t size)
{
    struct websocket ws = {.host = &host, .conn = 1};
    struct mango_sv got;
    size_t n = 0;
    fake = (typeof(fake)){.in = in, .len = len, .piece = piece};
    while (websocket_read(&ws, &call, &got) == MANGO_OK) {
        assert_true(got.len > 0 && got.len <= size - n);
        memcpy(out + n, got.ptr, got.len);
        n += got.len;
    }
    return n;
}

static void binary_messages_come_whole_in_pieces_of_any_size(void **state)
{
    (void)state;
    char in[1024], out[1024], *p = in;
    static const char text[] = "\x81\x04text", ping[] = "\x89\x02hi", first[] = "\x02\x03one", second[] = "\x80\x03two",
                      empty[] = "\x82\x00", large[] = "\x82\x7E\x01\x00", late[] = "\x82\x02no";
    const struct {
        const char *p;
        size_t n;
    } parts[] = {{text, 6}, {first, 5}, {ping, 4}, {second, 5}, {empty, 2}, {large, 4}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        memcpy(p, parts[i].p, parts[i].n);
        p += parts[i].n;
    }
    memset(p, 'x', 256);
    p += 256;
    memcpy(p, "\x88\x00", 2);
    memcpy(p + 2, late, 4);
    p += 6;
    for (size_t piece = 1; piece < sizeof(in); piece++) {
        assert_int_equal(read_all(in, (size_t)(p - in), piece, out, sizeof(out)), 6 + 256);
        assert_memory_equal(out, "onetwoxx", 8);
        assert_int_equal(fake.n_out, 2 + 4 + 2); /* the pong: head, mask, content */
        assert_int_equal(fake.out[0], 0x8A);
        assert_int_equal(fake.out[1], 0x82);
        assert_int_equal(fake.out[6] ^ fake.out[2], 'h');
        assert_int_equal(fake.out[7] ^ fake.out[3], 'i');
    }
}

static void what_no_server_may_send_ends_it(void **state)
{
    (void)state;
    char out[64];
    static const struct {
        const char *p;
        size_t n;
    } cases[] = {{"\x82\x81mask!", 7},     {"\xC2\x01x", 3}, {"\x09\x01x", 3},
                 {"\x89\x7E\x00\x80x", 5}, {"\x82", 1},      {"", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_all(cases[i].p, cases[i].n, 1, out, sizeof(out)), 0);
        assert_int_equal(fake.n_out, 0);
    }
    static char garbage[GARBAGE_MAX], all[GARBAGE_MAX];
    unsigned seed = 1;
    for (int round = 0; round < GARBAGE_ROUNDS; round++) {
        for (size_t i = 0; i < sizeof(garbage); i++)
            garbage[i] = (char)((seed = seed * 1103515245U + 12345U) >> 16);
        garbage[0] = round % 2 ? garbage[0] : (char)0x82;
        fake.n_out = 0;
        assert_true(read_all(garbage, sizeof(garbage), 1 + seed % 50, all, sizeof(all)) < sizeof(all));
    }
}

static void messages_of_ours_are_masked_and_have_their_length(void **state)
{
    (void)state;
    char data[600];
    memset(data, 'd', sizeof(data));
    struct websocket ws = {.host = &host, .conn = 1};
    fake = (typeof(fake)){0};
    assert_int_equal(websocket_send(&ws, &call, (struct mango_sv){data, 125}), MANGO_OK);
    assert_int_equal(fake.n_out, 2 + 4 + 125);
    assert_memory_equal(fake.out, "\x82\xFD", 2);
    fake.n_out = 0;
    assert_int_equal(websocket_send(&ws, &call, (struct mango_sv){data, sizeof(data)}), MANGO_OK);
    assert_int_equal(fake.n_out, 4 + 4 + sizeof(data));
    assert_memory_equal(fake.out, "\x82\xFE\x02\x58", 4);
    for (size_t i = 0; i < sizeof(data); i++)
        assert_int_equal(fake.out[8 + i] ^ fake.out[4 + i % 4], 'd');
}

static void another_protocol_does_not_pass_for_one(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *accept;
    } cases[] = {{101, NULL}, {101, ""}, {101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, {200, NULL}, {404, NULL}};
    const struct remote r = {.host = &host, .service = "a service"};
    const struct remote_req req = {.url = "http://service/", .what = "talk"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct websocket ws;
        struct remote_res res;
        fake = (typeof(fake)){.status = cases[i].status, .accept = cases[i].accept};
        assert_true(websocket_open(&r, &call, &req, &ws, &res) < 0);
        assert_int_equal(fake.closed, cases[i].status == 101);
        assert_int_equal(ws.conn, 0);
        remote_free(&r, &res);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_messages_come_whole_in_pieces_of_any_size),
        cmocka_unit_test(what_no_server_may_send_ends_it),
        cmocka_unit_test(messages_of_ours_are_masked_and_have_their_length),
        cmocka_unit_test(another_protocol_does_not_pass_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
