/* Routing and answers: which handler, what status, what comes back, in the clear and over TLS. */
#include "unit.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "support/http-client.h"
#include "support/http-rig.h"

static void head_has_the_length_and_no_body(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "HEAD /pong HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_contains(client_until(c, "\r\n\r\n"), "content-length: 11");
    client_say(c, "GET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    client_expect(c, 200, "ok");
    client_close(c);
}

static void every_result_code_has_its_status_and_type(void **state)
{
    static const struct {
        mg_rc rc;
        int status;
        const char *type;
    } table[] = {
        {MG_EINVAL, 400, "invalid_request_error"}, {MG_EAUTH, 401, "authentication_error"},
        {MG_EDENIED, 403, "permission_error"},     {MG_ENOTFOUND, 404, "not_found_error"},
        {MG_ECONFLICT, 409, "conflict_error"},     {MG_EPRECOND, 412, "invalid_request_error"},
        {MG_ETOOBIG, 413, "request_too_large"},    {MG_ERATE, 429, "rate_limit_error"},
        {MG_EUNAVAIL, 503, "api_error"},           {MG_ETIMEOUT, 504, "timeout_error"},
        {MG_EINTERNAL, 500, "api_error"},          {MG_EMEDIA, 415, "invalid_request_error"},
    };
    struct client *c = client_open(rig);
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        char req[128];
        (void)snprintf(req, sizeof(req), "GET /fail/%d HTTP/1.1\r\nhost: x\r\n\r\n", -table[i].rc);
        client_say(c, req);
        struct answer *a = client_answer(c);
        assert_int_equal(a->status, table[i].status);
        assert_contains(a->body, table[i].type);
        assert_contains(a->body, "\"message\":\"it \\\"failed\\\"\"");
        assert_contains(a->body, "\"details\":{\"error_code\":\"some_code\"}");
        const char *retry = answer_header(a, "x-should-retry");
        if (table[i].rc == MG_ECONFLICT || table[i].rc == MG_EINVAL)
            assert_string_equal(retry, "false");
        else
            assert_null(retry);
        answer_free(a);
    }
    client_close(c);
}

static void routes_queries_and_methods_are_checked(void **state)
{
    (void)state;
    client_refused(rig, "GET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not_found_error", "no endpoint", false);
    client_refused(rig, "DELETE /ping HTTP/1.1\r\nhost: x\r\n\r\n", 405, "invalid_request_error", "GET, HEAD", false);
    client_refused(rig, "BREW /ping HTTP/1.1\r\nhost: x\r\n\r\n", 405, "invalid_request_error", "GET, HEAD", false);
    client_refused(rig, "GET /show/a?limt=1 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "invalid_request_error",
                   "limit, statuses, created_at[gte]", false);
    client_refused(rig, "GET /private HTTP/1.1\r\nhost: x\r\n\r\n", 401, "authentication_error", "x-api-key", false);
    struct client *c = client_open(rig);
    client_say(c, "GET /show/a%2Fb?beta=true&statuses%5B%5D=x+y&limit=5 HTTP/1.1\r\nhost: x\r\nanthropic-beta: one\r\n"
                  "Anthropic-Beta: two,three\r\n\r\n");
    client_expect(c, 200, "param=a/b statuses[]=x y limit=5 beta=one,two,three");
    client_say(c, "GET http://other/private HTTP/1.1\r\nhost: x\r\nX-API-Key: k1\r\n\r\n");
    client_expect(c, 200, "ok");
    client_close(c);
}

static void a_large_answer_arrives_whole_and_a_slow_reader_gets_it_too(void **state)
{
    struct client *c = client_open(rig);
    (void)state;
    client_say(c, "GET /large HTTP/1.1\r\nhost: x\r\n\r\nGET /ping HTTP/1.1\r\nhost: x\r\n\r\n");
    struct answer *a = client_answer(c);
    assert_int_equal(a->len, 4 * 1024 * 1024);
    for (size_t i = 0; i < a->len; i += 16)
        assert_memory_equal(a->body + i, "0123456789abcdef", 16);
    answer_free(a);
    client_expect(c, 200, "ok");
    client_close(c);
}

static size_t collect(char *p, size_t size, size_t n, void *to)
{
    return mg_buf_append(to, p, size * n) < 0 ? 0 : size * n;
}

/* Two requests on one connection of a client that would rather have HTTP/2. */
static void https_request(CURL *curl, const char *path, const char *body, const char *want)
{
    mg_auto(buf) struct mg_buf got = MG_BUF_INIT(16 * 1024 * 1024);
    char url[128];
    long version = 0, status = 0;
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%d%s", rig_port(rig), path);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)RIG_WAIT_S);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &got);
    if (body) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    CURLcode rc = curl_easy_perform(curl);
    if (rc != CURLE_OK)
        fail_msg("%s: %s", url, curl_easy_strerror(rc));
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(curl, CURLINFO_HTTP_VERSION, &version);
    assert_int_equal(status, 200);
    assert_int_equal(version, CURL_HTTP_VERSION_1_1);
    assert_sv_equal(mg_buf_view(&got), want);
}

static void tls_serves_the_same_answers(void **state)
{
    char dir[] = "/tmp/mango-tls-XXXXXX", cert[64], key[64], cmd[512];
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(cert, sizeof(cert), "%s/c.pem", dir);
    (void)snprintf(key, sizeof(key), "%s/k.pem", dir);
    (void)snprintf(
        cmd, sizeof(cmd),
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s -out %s -days 2 -subj "
        "/CN=localhost >/dev/null 2>&1",
        key, cert);
    if (system(cmd) != 0)
        skip(); /* no openssl program to make a certificate with */
    rig_stop(rig);
    rig = rig_start_tls(cert, key);
    char *body = filled("\"", 'x', 3000000, "\"");
    CURL *curl = curl_easy_init();
    assert_non_null(curl);
    https_request(curl, "/pong", NULL, "{\"ok\":true}");
    struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/json");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    https_request(curl, "/echo", body, body);
    long connects = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &connects);
    assert_int_equal(connects, 0); /* the first one's connection was kept */
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(body);
    (void)unlink(cert);
    (void)unlink(key);
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(head_has_the_length_and_no_body),
        HTTP_TEST(every_result_code_has_its_status_and_type),
        HTTP_TEST(routes_queries_and_methods_are_checked),
        HTTP_TEST(a_large_answer_arrives_whole_and_a_slow_reader_gets_it_too),
        HTTP_TEST(tls_serves_the_same_answers),
    };
    return RUN(tests);
}
