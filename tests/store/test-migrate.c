/* Migrations: order, checksums, two at once, killed half-way (field case 100). */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/migrate.h"
#include "support/pgtest.h"

enum { PROCESSES = 4 };

struct fixture {
    struct mg_pgtest *db;
    struct mg_pg *pg;
    char dir[64];
};

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    f->db = pgtest_new_empty();
    f->pg = mg_pg_new(pgtest_conninfo(f->db));
    snprintf(f->dir, sizeof(f->dir), "/tmp/mango-migrate.XXXXXX");
    *state = f;
    return mkdtemp(f->dir) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char cmd[128];
    mg_pg_free(f->pg);
    pgtest_free(f->db);
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", f->dir);
    int k = system(cmd);
    free(f);
    return k;
}

static void put(const struct fixture *f, const char *name, const char *sql)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(sql, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int64_t select_int(struct fixture *f, const char *sql)
{
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    if (mg_pg_exec(f->pg, &(struct mg_stmt){"q", sql}, NULL, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    int64_t n = mg_res_int(r, 0, 0);
    mg_res_free(r);
    return n;
}

static struct mg_migrate_report migrate(struct fixture *f)
{
    struct mg_migrate_report rep;
    struct mg_err err = {0};
    if (mg_migrate(f->pg, f->dir, &rep, &err) < 0)
        fail_msg("%s", err.text);
    return rep;
}

static void refused(struct fixture *f, mg_rc rc, const char *part, const char *part2)
{
    struct mg_migrate_report rep;
    struct mg_err err = {0};
    assert_int_equal(mg_migrate(f->pg, f->dir, &rep, &err), rc);
    if (!strstr(err.text, part) || !strstr(err.text, part2))
        fail_msg("'%s' or '%s' is not in '%s'", part, part2, err.text);
}

static void migrations_run_in_order_and_once(void **state)
{
    struct fixture *f = *state;
    put(f, "0002_two.sql", "INSERT INTO a VALUES (2); CREATE TABLE b (n int);");
    put(f, "0001_one.sql", "CREATE TABLE a (n int); INSERT INTO a VALUES (1);");
    put(f, "README", "not SQL");
    struct mg_migrate_report rep;
    assert_int_equal(mg_migrate_check(f->pg, f->dir, &rep, NULL), MG_OK);
    assert_int_equal(rep.now, 0);
    assert_int_equal(rep.newest, 2);
    rep = migrate(f);
    assert_int_equal(rep.was, 0);
    assert_int_equal(rep.now, 2);
    rep = migrate(f);
    assert_int_equal(rep.was, 2);
    assert_int_equal(select_int(f, "SELECT count(*) FROM a"), 2);
    put(f, "0003_three.sql", "INSERT INTO b VALUES (3);");
    rep = migrate(f);
    assert_int_equal(rep.was, 2);
    assert_int_equal(rep.now, 3);
    assert_int_equal(
        select_int(f, "SELECT count(*) FROM schema_migrations WHERE length(sha256) = 64 AND name LIKE '000%.sql'"), 3);
}

static void a_migration_that_fails_leaves_the_version_before(void **state)
{
    struct fixture *f = *state;
    put(f, "0001_one.sql", "CREATE TABLE a (n int);");
    put(f, "0002_bad.sql", "CREATE TABLE b (n int); SELECT 1/0;");
    refused(f, MG_EINTERNAL, "0002_bad.sql", "22012");
    assert_int_equal(select_int(f, "SELECT max(version) FROM schema_migrations"), 1);
    assert_int_equal(select_int(f, "SELECT count(*) FROM pg_class WHERE relname = 'b'"), 0);
    put(f, "0002_bad.sql", "CREATE TABLE b (n int); COMMIT; CREATE TABLE c (n int);");
    refused(f, MG_EINTERNAL, "0002_bad.sql", "must not hold");
    put(f, "0002_bad.sql", "CREATE TABLE IF NOT EXISTS b (n int);");
    assert_int_equal(migrate(f).now, 2);
}

static void a_changed_file_is_refused_with_both_checksums(void **state)
{
    struct fixture *f = *state;
    put(f, "0001_one.sql", "CREATE TABLE a (n int);");
    migrate(f);
    put(f, "0001_one.sql", "CREATE TABLE a (n bigint);");
    refused(f, MG_ECONFIG, "0001_one.sql (version 1 of 1) was changed", "then");
}

static void a_newer_database_is_refused_with_both_versions(void **state)
{
    struct fixture *f = *state;
    put(f, "0001_one.sql", "CREATE TABLE a (n int);");
    put(f, "0002_two.sql", "SELECT 1;");
    migrate(f);
    char path[128];
    snprintf(path, sizeof(path), "%s/0002_two.sql", f->dir);
    assert_int_equal(unlink(path), 0);
    refused(f, MG_ECONFIG, "schema version 2", "newer than version 1");
}

static void gaps_twins_and_empty_folders_are_refused(void **state)
{
    struct fixture *f = *state;
    refused(f, MG_ECONFIG, "holds no NNNN_name.sql", f->dir);
    struct mg_migrate_report rep;
    assert_int_equal(mg_migrate(f->pg, "/nonexistent", &rep, NULL), MG_ECONFIG);
    put(f, "0001_one.sql", "SELECT 1;");
    put(f, "0003_three.sql", "SELECT 1;");
    refused(f, MG_ECONFIG, "0002 is missing", "0003");
    put(f, "0002_two.sql", "SELECT 1;");
    put(f, "0002_too.sql", "SELECT 1;");
    refused(f, MG_ECONFIG, "0002_t", "same number");
}

static int in_child(const struct fixture *f)
{
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(f->db));
    struct mg_migrate_report rep;
    struct mg_err err = {0};
    mg_rc rc = mg_migrate(pg, f->dir, &rep, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    mg_pg_free(pg);
    return rc == 0 && rep.now == 3 ? 0 : 1;
}

static void several_servers_that_start_at_once_migrate_once(void **state)
{
    struct fixture *f = *state;
    put(f, "0001_one.sql", "CREATE TABLE a (n int); SELECT pg_sleep(0.2);");
    put(f, "0002_two.sql", "INSERT INTO a VALUES (1); SELECT pg_sleep(0.2);");
    put(f, "0003_three.sql", "INSERT INTO a VALUES (2);");
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(in_child(f));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(select_int(f, "SELECT count(*) FROM a"), 2);
}

static void case_100_a_migration_that_is_killed_leaves_the_old_state_and_goes_on_later(void **state)
{
    struct fixture *f = *state;
    put(f, "0001_one.sql", "CREATE TABLE a (n int);");
    migrate(f);
    put(f, "0002_two.sql", "INSERT INTO a VALUES (1); SELECT pg_sleep(60); INSERT INTO a VALUES (2);");
    pid_t pid = fork();
    if (pid == 0)
        _exit(in_child(f));
    static const char asleep[] =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    for (uint64_t end = mg_now_ns() + 20000000000; select_int(f, asleep) == 0;)
        assert_true(mg_now_ns() < end);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(select_int(f, "SELECT count(*) FROM a"), 0);
    assert_int_equal(select_int(f, "SELECT max(version) FROM schema_migrations"), 1);

    /* the server ends what it lost when it notices; the next start waits for its lock */
    select_int(f, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
                  "AND pid <> pg_backend_pid()");
    put(f, "0002_two.sql", "INSERT INTO a VALUES (1), (2);");
    assert_int_equal(migrate(f).now, 2);
    assert_int_equal(select_int(f, "SELECT count(*) FROM a"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(migrations_run_in_order_and_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_migration_that_fails_leaves_the_version_before, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_file_is_refused_with_both_checksums, setup, teardown),
        cmocka_unit_test_setup_teardown(a_newer_database_is_refused_with_both_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(gaps_twins_and_empty_folders_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(several_servers_that_start_at_once_migrate_once, setup, teardown),
        cmocka_unit_test_setup_teardown(case_100_a_migration_that_is_killed_leaves_the_old_state_and_goes_on_later,
                                        setup, teardown),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
