#include "support/pgtest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/pg.h"

static int64_t count(const struct mg_pgtest *t, const struct mg_stmt *st)
{
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(t));
    struct mg_err err = {0};
    struct mg_res *r = NULL;
    if (mg_pg_exec(pg, st, NULL, 0, &r, &err) < 0)
        fail_msg("%s", err.text);
    int64_t n = mg_res_int(r, 0, 0);
    mg_res_free(r);
    mg_pg_free(pg);
    return n;
}

static const struct mg_stmt TABLES = {
    "tables",
    "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public' AND table_name = 'sessions'"};
static const struct mg_stmt WORKSPACES = {"workspaces", "SELECT count(*) FROM workspaces"};

static void a_test_database_has_the_schema(void **state)
{
    (void)state;
    struct mg_pgtest *t = pgtest_new();
    assert_int_equal(count(t, &TABLES), 1);
    pgtest_free(t);
}

static void an_empty_database_has_none(void **state)
{
    (void)state;
    struct mg_pgtest *t = pgtest_new_empty();
    assert_int_equal(count(t, &TABLES), 0);
    pgtest_free(t);
}

static void databases_do_not_see_each_other(void **state)
{
    (void)state;
    struct mg_pgtest *one = pgtest_new(), *two = pgtest_new();
    int64_t before = count(two, &WORKSPACES);
    pgtest_run(one, "INSERT INTO workspaces (id, name) VALUES ('wrkspc_x', 'x')");
    assert_int_equal(count(two, &WORKSPACES), before);
    assert_int_equal(count(one, &WORKSPACES), before + 1);
    pgtest_free(one);
    pgtest_free(two);
}

int main(void)
{
    if (pgtest_missing())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_test_database_has_the_schema),
        cmocka_unit_test(an_empty_database_has_none),
        cmocka_unit_test(databases_do_not_see_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
