/* Signatures for S3-compatible stores, against those of botocore 1.44.8 (S3SigV4Auth, its query written anew from the parsed one). */
#include "unit.h"

#include "object/sigv4.h"

static void signatures_are_those_of_another_implementation(void **state)
{
    static const struct {
        const char *method, *url, *region, *access, *secret, *sha256;
        int64_t at_s;
        const char *host, *date, *signature;
    } rows[] = {
        {"PUT", "http://127.0.0.1:9000/mango/m/0f1e", "us-east-1", "AKIDEXAMPLE",
         "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
         1796061961, "127.0.0.1:9000", "20261130T180601Z",
         "fc41e745fd3bf2da293849083b002913a7bcb3001cea57712c92afe2eda81ce2"},
        {"GET", "https://b.s3.eu-central-1.amazonaws.com/m/0f1e", "eu-central-1", "AKIDEXAMPLE",
         "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
         0, "b.s3.eu-central-1.amazonaws.com", "19700101T000000Z",
         "8a297132fa959377abaec9328e7731a1349204c86e5ed549d096b7a35a6507a9"},
        {"POST", "https://s3.example.com:443/mango/m/0f1e?uploads=", "us-east-1", "S3RVER", "a:b c=d&e",
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 1709164799, "s3.example.com",
         "20240228T235959Z", "d083839c872d24a35de875865d3eddd3db0b1ccf769d345264d740ae5d6b005d"},
        {"PUT", "http://s3.example.com:80/mango/a%20b/%C3%BC%2B~?partNumber=10000&uploadId=A%2FB%3D%3D", "x", "k", "s",
         "06eb7d6a69ee19e5fbdf749018d3d2abfa04bcbd1365db312eb86dc7169389b8", 1709164800, "s3.example.com",
         "20240229T000000Z", "35f0cfe947948ba312862c7981e0627e29e9eb87281696cfb94a63ae4527dc5e"},
        {"GET", "https://[2001:db8::1]:8443/mango/?prefix=m%2Fdeep%2F0f1e&uploads=", "us-east-1", "k", "s",
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 4102444799, "[2001:db8::1]:8443",
         "20991231T235959Z", "5d775b354749354a0562ca214a1ced3f64be69624ca6276b7e172ce18d5a9bab"},
        {"DELETE", "http://h/m/0f1e?uploadId=-._~%20", "us-east-1", "k", "s",
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 1796061961, "h", "20261130T180601Z",
         "48828a9bd0af36c245056b45d401b83f3d1b423a33c5680cdadc782e7c9ed778"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct mg_sigv4_key key = {.region = rows[i].region, .access = rows[i].access, .secret = rows[i].secret};
        const struct mg_sigv4_request r = {.method = mg_sv_of(rows[i].method),
                                           .url = mg_sv_of(rows[i].url),
                                           .payload_sha256 = mg_sv_of(rows[i].sha256),
                                           .at_s = rows[i].at_s};
        struct mg_sigv4 got;
        char want[512];
        assert_int_equal(mg_sigv4_sign(&key, &r, &got, NULL), MG_OK);
        assert_string_equal(got.host, rows[i].host);
        assert_string_equal(got.date, rows[i].date);
        (void)snprintf(want, sizeof(want),
                       "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/aws4_request, "
                       "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s",
                       rows[i].access, rows[i].date, rows[i].region, rows[i].signature);
        assert_string_equal(got.authorization, want);
    }
}

static void what_has_no_host_or_path_is_refused(void **state)
{
    static const char *const urls[] = {"", "/m/x", "http://host", "http://host?x=/", "host/path"};
    const struct mg_sigv4_key key = {.region = "r", .access = "a", .secret = "s"};
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        const struct mg_sigv4_request r = {
            .method = MG_SV("GET"), .url = mg_sv_of(urls[i]), .payload_sha256 = MG_SV("")};
        struct mg_sigv4 got;
        struct mg_err err = {0};
        assert_int_equal(mg_sigv4_sign(&key, &r, &got, &err), MG_EINVAL);
        assert_non_null(strstr(err.text, "host"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_those_of_another_implementation),
        cmocka_unit_test(what_has_no_host_or_path_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
