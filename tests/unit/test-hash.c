#include "unit.h"

#include "base/rng.h"
#include "crypto/hash.h"

static void sha256_matches_the_standards_vectors(void **state)
{
    static const struct {
        const char *text, *hex;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char hex[MG_SHA256_HEX];
        mg_sha256_hex(mg_sv_of(rows[i].text), hex);
        assert_string_equal(hex, rows[i].hex);
        struct mg_sha256 *h = mg_sha256_new();
        for (const char *c = rows[i].text; *c; c++)
            mg_sha256_update(h, c, 1);
        mg_sha256_final_hex(h, hex);
        assert_string_equal(hex, rows[i].hex);
    }
}

static void secrets_are_compared_whole(void **state)
{
    (void)state;
    assert_true(mg_secret_eq(MG_SV("abc"), MG_SV("abc")));
    assert_false(mg_secret_eq(MG_SV("abc"), MG_SV("abd")));
    assert_false(mg_secret_eq(MG_SV("abc"), MG_SV("ab")));
    assert_true(mg_secret_eq(MG_SV(""), mg_sv_n(NULL, 0)));
}

static void base64_matches_rfc_4648(void **state)
{
    static const struct {
        const char *plain, *text;
    } rows[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xff\xef\xbe", "/+++"},
        {"\xfb\xff", "+/8="},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);
        mg_auto(buf) struct mg_buf back = MG_BUF_INIT(100);
        assert_int_equal(mg_base64_encode(&b, mg_sv_of(rows[i].plain)), MG_OK);
        assert_sv_equal(mg_buf_view(&b), rows[i].text);
        assert_int_equal(mg_base64_decode(&back, mg_buf_view(&b)), MG_OK);
        assert_sv_equal(mg_buf_view(&back), rows[i].plain);
    }
}

static void base64_of_random_bytes_comes_back_in_both_alphabets(void **state)
{
    char data[100];

    (void)state;
    for (size_t n = 0; n <= sizeof(data); n++) {
        mg_auto(buf) struct mg_buf url = MG_BUF_INIT(1000);
        mg_auto(buf) struct mg_buf back = MG_BUF_INIT(1000);
        mg_rng_bytes(data, n);
        assert_int_equal(mg_base64url_encode(&url, mg_sv_n(data, n)), MG_OK);
        assert_int_equal(mg_sv_find(mg_buf_view(&url), '='), url.len);
        assert_int_equal(mg_sv_find(mg_buf_view(&url), '+'), url.len);
        assert_int_equal(mg_buf_str(&back, "kept:"), MG_OK);
        assert_int_equal(mg_base64_decode(&back, mg_buf_view(&url)), MG_OK);
        assert_int_equal(back.len, n + 5);
        assert_memory_equal(back.ptr + 5, data, n);
    }
}

static void malformed_base64_is_refused_and_leaves_the_buffer(void **state)
{
    static const char *const rows[] = {"Z",    "Zg=",  "Zg===", "=",          "==",      "Zm9=v",
                                       "Zm 9", "Zh==", "Zm9",   "Z\xc3\xa4g", "Zg==Zg=="};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        mg_auto(buf) struct mg_buf b = MG_BUF_INIT(100);
        assert_int_equal(mg_buf_str(&b, "kept"), MG_OK);
        if (mg_base64_decode(&b, mg_sv_of(rows[i])) != MG_EINVAL)
            fail_msg("%s was accepted", rows[i]);
        assert_string_equal(b.ptr, "kept");
    }
}

static void hex_is_lower_case(void **state)
{
    char out[7];

    (void)state;
    mg_hex((const uint8_t *)"\x00\xaf\xff", 3, out);
    assert_string_equal(out, "00afff");
}

static void random_numbers_stay_below_their_bound(void **state)
{
    bool seen[7] = {false};

    (void)state;
    for (int i = 0; i < 2000; i++)
        seen[mg_rng_below(7)] = true;
    for (int i = 0; i < 7; i++)
        assert_true(seen[i]);
    assert_int_equal(mg_rng_below(1), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_matches_the_standards_vectors),
        cmocka_unit_test(secrets_are_compared_whole),
        cmocka_unit_test(base64_matches_rfc_4648),
        cmocka_unit_test(base64_of_random_bytes_comes_back_in_both_alphabets),
        cmocka_unit_test(malformed_base64_is_refused_and_leaves_the_buffer),
        cmocka_unit_test(hex_is_lower_case),
        cmocka_unit_test(random_numbers_stay_below_their_bound),
    };

    return RUN(tests);
}
