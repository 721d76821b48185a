/* PgBouncer between mangod and PostgreSQL (field case 32). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "events/notify.h"
#include "store/child.h"
#include "store/pg.h"
#include "support/pgtest.h"

static const char program[] = "/usr/sbin/pgbouncer";

static struct mg_pgtest *db;

struct bouncer {
    char dir[64];
    char *conninfo;
    pid_t pid;
};

static void ask(const char *sql, char *out, size_t cap)
{
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(db));
    struct mg_res *r = NULL;
    assert_int_equal(mg_pg_exec(pg, &(struct mg_stmt){"ask", sql}, NULL, 0, &r, NULL), MG_OK);
    snprintf(out, cap, "%s", mg_res_sv(r, 0, 0).ptr);
    mg_res_free(r);
    mg_pg_free(pg);
}

static struct bouncer *bounce(const char *mode, const char *more)
{
    struct bouncer *b = mg_xcalloc(1, sizeof(*b));
    char host[108], port[16], user[64], name[64], path[108], log[108];
    ask("SELECT current_setting('unix_socket_directories')", host, sizeof(host));
    ask("SELECT current_setting('port')", port, sizeof(port));
    ask("SELECT current_user", user, sizeof(user));
    ask("SELECT current_database()", name, sizeof(name));
    snprintf(b->dir, sizeof(b->dir), "/tmp/mango-bouncer.XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    assert_int_equal(chmod(b->dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", b->dir);
    snprintf(log, sizeof(log), "%s/log", b->dir);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fprintf(f,
            "[databases]\n* = host=%s port=%s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = "
            "6432\n"
            "auth_type = any\npool_mode = %s\ndefault_pool_size = 10\n%s\n",
            host, port, user, b->dir, mode, more);
    assert_int_equal(fclose(f), 0);
    FILE *out = fopen(log, "we");
    assert_non_null(out);
    const char *const argv[] = {program, path, NULL};
    struct mg_err err = {0};
    if (mg_child_spawn(
            &(struct mg_child_spec){.argv = argv, .user = geteuid() == 0 ? "postgres" : NULL, .out_fd = fileno(out)},
            &b->pid, &err) < 0)
        fail_msg("%s", err.text);
    fclose(out);
    assert_true(asprintf(&b->conninfo, "host=%s port=6432 dbname=%s user=%s", b->dir, name, user) > 0);
    struct mg_pg *pg = mg_pg_new(b->conninfo);
    for (uint64_t end = mg_now_ns() + 10000000000; mg_pg_connect(pg, &err) < 0;)
        if (mg_now_ns() > end)
            fail_msg("pgbouncer: %s %s", err.text, mg_pg_diag(pg));
    mg_pg_free(pg);
    return b;
}

static void end(struct bouncer *b)
{
    char cmd[100];
    int status = 0;
    kill(b->pid, SIGTERM);
    assert_int_equal(mg_child_wait(b->pid, 10000, &status, NULL), MG_OK);
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", b->dir);
    assert_int_equal(system(cmd), 0);
    free(b->conninfo);
    free(b);
}

static int setup(void **state)
{
    (void)state;
    db = pgtest_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pgtest_free(db);
    return 0;
}

static void refused(const char *mode, const char *more)
{
    struct bouncer *b = bounce(mode, more);
    struct mg_err err = {0};
    char named[64];
    snprintf(named, sizeof(named), "in %s mode", mode);
    assert_int_equal(mg_pg_check_pooler(b->conninfo, &err), MG_ECONFIG);
    if (!strstr(err.text, named) || !strstr(err.text, "pool_mode = session"))
        fail_msg("%s", err.text);
    end(b);
}

static void case_32_transaction_mode_is_refused_at_the_start(void **state)
{
    (void)state;
    refused("transaction", "");
    refused("transaction", "server_round_robin = 1");
}

static void case_32_statement_mode_is_refused_at_the_start(void **state)
{
    (void)state;
    refused("statement", "");
}

static void case_32_session_mode_works(void **state)
{
    (void)state;
    static const struct mg_stmt probe = {"probe", "SELECT $1::int + 1"};
    struct bouncer *b = bounce("session", "");
    struct mg_err err = {0};
    if (mg_pg_check_pooler(b->conninfo, &err) < 0)
        fail_msg("%s", err.text);
    struct mg_pg *pg = mg_pg_new(b->conninfo);
    const struct mg_sv one = MG_SV("1");
    for (int i = 0; i < 3; i++) {
        struct mg_res *r = NULL;
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        if (mg_txn_query(&t, &probe, &one, 1, &r, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(mg_res_int(r, 0, 0), 2);
        mg_res_free(r);
        assert_int_equal(mg_txn_queue(&t, &probe, &one, 1, 1, &err), MG_OK);
        assert_int_equal(mg_txn_commit(&t, &err), MG_OK);
    }
    mg_pg_free(pg);
    end(b);
}

static void the_server_itself_is_no_pooler(void **state)
{
    (void)state;
    struct mg_err err = {0};
    assert_int_equal(mg_pg_check_pooler(pgtest_conninfo(db), &err), MG_OK);
    assert_int_equal(mg_pg_check_pooler("host=/nonexistent", &err), MG_EUNAVAIL);
    assert_non_null(strstr(err.text, "/nonexistent")); /* for the one who starts the server */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_itself_is_no_pooler),
        cmocka_unit_test(case_32_transaction_mode_is_refused_at_the_start),
        cmocka_unit_test(case_32_statement_mode_is_refused_at_the_start),
        cmocka_unit_test(case_32_session_mode_works),
    };
    int skipped = pgtest_missing();
    if (skipped)
        return skipped;
    if (access(program, X_OK) != 0) {
        puts("skipped: /usr/sbin/pgbouncer is not installed (Debian: apt-get install pgbouncer)");
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
