/* libmango as another program uses it: its public header, and nothing but what it exports. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "lib/mango.h"
#include "support/pgtest.h"

static char migrations[4096], database[4096];

static void count_lines(void *ctx, int32_t level, const char *line, size_t len)
{
    (void)level;
    (void)line;
    if (len > 0)
        __atomic_add_fetch((int *)ctx, 1, __ATOMIC_RELAXED);
}

static const struct mango_options *options(const char *listen, int *lines)
{
    static const char *settings[5];
    static struct mango_options o;
    settings[0] = listen;
    settings[1] = database;
    settings[2] = "api_key=embedded-test-key-0123456789abcdef";
    settings[3] = "request_threads=2";
    o = (struct mango_options){.struct_size = sizeof(o),
                               .settings = settings,
                               .migrations_dir = migrations,
                               .log = count_lines,
                               .log_ctx = lines};
    return &o;
}

static int http_status(int port, const char *path)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    dprintf(fd, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    char answer[4096] = "";
    size_t n = 0;
    for (ssize_t r; n < sizeof(answer) - 1 && (r = read(fd, answer + n, sizeof(answer) - 1 - n)) > 0;)
        n += (size_t)r;
    close(fd);
    int status = 0;
    assert_int_equal(sscanf(answer, "HTTP/1.1 %d", &status), 1);
    return status;
}

static void a_program_opens_uses_and_closes_a_server(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct mango *m = NULL, *second = NULL;
        char err[512] = "";
        int lines = 0;
        if (mango_open(options("listen=127.0.0.1:0", &lines), &m, err, sizeof(err)) != 0)
            fail_msg("%s", err);
        assert_int_equal(http_status(mango_port(m), "/healthz"), 200);
        assert_int_equal(http_status(mango_port(m), "/readyz"), 200);
        assert_int_equal(http_status(mango_port(m), "/v1/agents"), 401);
        assert_true(mango_open(options("listen=127.0.0.1:0", &lines), &second, err, sizeof(err)) < 0);
        assert_non_null(strstr(err, "already"));
        mango_close(m);
    }
}

static void a_wrong_setting_is_refused_with_its_name(void **state)
{
    (void)state;
    struct mango *m = NULL;
    char err[512] = "";
    int lines = 0;
    assert_true(mango_open(options("lissten=127.0.0.1:0", &lines), &m, err, sizeof(err)) < 0);
    assert_non_null(strstr(err, "lissten"));
    assert_null(m);
}

static void a_caller_of_another_size_is_refused(void **state)
{
    (void)state;
    struct mango *m = NULL;
    struct mango_options o = {.struct_size = 8};
    assert_true(mango_open(&o, &m, NULL, 0) < 0);
    assert_true(strlen(mango_version()) >= 5);
}

int main(void)
{
    const char *src = getenv("MANGO_TEST_SRCDIR");
    if (pgtest_missing())
        return 77;
    signal(SIGPIPE, SIG_IGN);
    struct mg_pgtest *db = pgtest_new_empty();
    snprintf(migrations, sizeof(migrations), "%s/migrations", src ? src : ".");
    snprintf(database, sizeof(database), "database_url=%s", pgtest_conninfo(db));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_opens_uses_and_closes_a_server),
        cmocka_unit_test(a_wrong_setting_is_refused_with_its_name),
        cmocka_unit_test(a_caller_of_another_size_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pgtest_free(db);
    return failed;
}
