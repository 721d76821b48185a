#include "unit.h"

#include "base/utf8.h"

/* The definition, written down as slowly as possible: the reference for the real one. */
static bool slowly_valid(const unsigned char *p, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint32_t u = p[i];
        size_t len = u < 0x80 ? 1 : (u & 0xe0) == 0xc0 ? 2 : (u & 0xf0) == 0xe0 ? 3 : (u & 0xf8) == 0xf0 ? 4 : 0;
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (!len || i + len > n)
            return false;
        if (len > 1)
            u &= 0xffU >> (len + 1);
        for (size_t k = 1; k < len; k++) {
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
            u = u << 6 | (p[i + k] & 0x3f);
        }
        if (u < least[len] || u > 0x10ffff || (u >= 0xd800 && u <= 0xdfff))
            return false;
        i += len;
    }
    return true;
}

static void every_sequence_of_up_to_three_bytes_is_judged_rightly(void **state)
{
    unsigned char p[3];

    (void)state;
    for (uint32_t v = 0; v < 1 << 24; v += v < 1 << 16 ? 1 : 7) {
        for (int k = 0; k < 3; k++)
            p[k] = (unsigned char)(v >> (16 - 8 * k));
        for (size_t n = 1; n <= 3; n++)
            if (mg_utf8_valid(mg_sv_n((char *)p, n), NULL) != slowly_valid(p, n))
                fail_msg("%02x %02x %02x, %zu bytes", p[0], p[1], p[2], n);
    }
}

static void four_byte_sequences_at_the_edges(void **state)
{
    static const unsigned char bytes[10] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    unsigned char p[4];

    (void)state;
    for (int first = 0xee; first <= 0xff; first++)
        for (size_t x = 0; x < 1000; x++) {
            p[0] = (unsigned char)first;
            p[1] = bytes[x % 10];
            p[2] = bytes[x / 10 % 10];
            p[3] = bytes[x / 100];
            assert_int_equal(mg_utf8_valid(mg_sv_n((char *)p, 4), NULL), slowly_valid(p, 4));
        }
}

static void the_first_bad_byte_is_named(void **state)
{
    size_t off = 0;

    (void)state;
    assert_true(mg_utf8_valid(MG_SV("plain ascii text that is longer than a word"), &off));
    assert_false(mg_utf8_valid(MG_SV("0123456789abcdef\xc3\xa4\xff"), &off));
    assert_int_equal(off, 18);
    assert_false(mg_utf8_valid(MG_SV("ab\xe2\x82"), &off));
    assert_int_equal(off, 2);
}

static size_t count_replacements(struct mg_sv s)
{
    size_t n = 0;

    for (size_t i = 0; i + 3 <= s.len; i++)
        n += memcmp(s.ptr + i, "\xef\xbf\xbd", 3) == 0;
    return n;
}

/* Outputs of 1-, 2-, 3- and 4-byte characters, the cut at each possible byte of a character. */
static void case_67_cut_inside_a_character(void **state)
{
    static const char *const chars[] = {"a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                        "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"};

    (void)state;
    for (size_t c = 0; c < sizeof(chars) / sizeof(chars[0]); c++)
        for (size_t lead = 0; lead < 4; lead++) {
            mg_auto(buf) struct mg_buf b = MG_BUF_INIT(1000);
            (void)mg_buf_append(&b, "xxxx", lead);
            while (b.len < 100)
                (void)mg_buf_str(&b, chars[c]);
            struct mg_sv all = mg_buf_view(&b);
            for (size_t cap = 0; cap <= all.len + 2; cap++) {
                size_t head = mg_utf8_floor(all, cap), tail = mg_utf8_ceil(all, cap);
                assert_true(head <= cap && (head + 4 > cap || head == all.len));
                assert_true(mg_utf8_valid(mg_sv_n(all.ptr, head), NULL));
                assert_true(tail >= cap || tail == all.len);
                assert_true(tail < cap + 4);
                assert_true(mg_utf8_valid(mg_sv_from(all, tail), NULL));
                assert_int_equal(count_replacements(mg_sv_n(all.ptr, head)), 0);
            }
        }
}

static void cuts_of_bytes_that_are_no_text_stay_where_they_are(void **state)
{
    struct mg_sv junk = MG_SV("\x80\x80\x80\x80\x80\x80\xff\xff\x80\xe2");

    (void)state;
    for (size_t cap = 0; cap <= junk.len; cap++) {
        assert_int_equal(mg_utf8_floor(junk, cap), cap);
        assert_int_equal(mg_utf8_ceil(junk, cap), cap);
    }
    /* An ASCII character followed by stray tails is whole after one byte. */
    assert_int_equal(mg_utf8_floor(MG_SV("a\x80\x80"), 2), 2);
    assert_int_equal(mg_utf8_ceil(MG_SV("a\x80\x80"), 1), 1);
}

static void whole_drops_only_what_the_end_cuts_off(void **state)
{
    struct mg_sv s = MG_SV("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");

    (void)state;
    for (size_t n = 0; n <= s.len; n++)
        assert_int_equal(mg_utf8_whole(mg_sv_n(s.ptr, n)), n < 2 ? 0 : n < 5 ? 2 : n < 9 ? 5 : 9);
    assert_int_equal(mg_utf8_whole(MG_SV("a\xff")), 2);
    assert_int_equal(mg_utf8_whole(MG_SV("a\xe2\x28")), 3);
    assert_int_equal(mg_utf8_whole(MG_SV("a\xed\xa0")), 3);
    assert_int_equal(mg_utf8_whole(MG_SV("\x80\x80\x80\x80")), 4);
}

static void clean_replaces_each_bad_byte_and_nothing_else(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"", ""},
        {"abc", "abc"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);
        assert_int_equal(mg_utf8_clean(&b, mg_sv_of(rows[i].in)), MG_OK);
        assert_sv_equal(mg_buf_view(&b), rows[i].out);
        assert_true(mg_utf8_valid(mg_buf_view(&b), NULL));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sequence_of_up_to_three_bytes_is_judged_rightly),
        cmocka_unit_test(four_byte_sequences_at_the_edges),
        cmocka_unit_test(the_first_bad_byte_is_named),
        cmocka_unit_test(case_67_cut_inside_a_character),
        cmocka_unit_test(cuts_of_bytes_that_are_no_text_stay_where_they_are),
        cmocka_unit_test(whole_drops_only_what_the_end_cuts_off),
        cmocka_unit_test(clean_replaces_each_bad_byte_and_nothing_else),
    };

    return RUN(tests);
}
