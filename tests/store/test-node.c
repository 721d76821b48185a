/* Node leases on the database's clock (field case 35), and the deployment row. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "store/deployment.h"
#include "store/node.h"
#include "support/pgtest.h"

enum { TTL = 60000, NS_PER_MS = 1000000 };

static struct mg_pgtest *db;
static struct mg_pg *pg;
static struct mg_id a, b;

static int setup(void **state)
{
    (void)state;
    db = pgtest_new();
    pg = mg_pg_new(pgtest_conninfo(db));
    a = mg_id_new("node");
    b = mg_id_new("node");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mg_pg_free(pg);
    pgtest_free(db);
    return 0;
}

static struct mg_node_lease enter(const struct mg_id *node)
{
    struct mg_node_lease l = {0};
    struct mg_err err = {0};
    if (mg_node_register(pg, node, "host", "0.1.0", TTL, &l, &err) < 0)
        fail_msg("%s", err.text);
    return l;
}

static void nodes_count_each_other_and_leave(void **state)
{
    (void)state;
    struct mg_node_lease l;
    assert_int_equal(enter(&a).others, 0);
    assert_int_equal(enter(&b).others, 1);
    assert_int_equal(enter(&b).others, 1); /* again: the same row */
    assert_int_equal(mg_node_renew(pg, &a, TTL, &l, NULL), MG_OK);
    assert_int_equal(l.others, 1);
    assert_int_equal(mg_node_delete(pg, &b, NULL), MG_OK);
    assert_int_equal(mg_node_delete(pg, &b, NULL), MG_OK);
    assert_int_equal(mg_node_renew(pg, &a, TTL, &l, NULL), MG_OK);
    assert_int_equal(l.others, 0);
    assert_int_equal(mg_node_renew(pg, &b, TTL, &l, NULL), MG_EFENCED);
}

static void case_35_a_lapsed_lease_is_never_renewed_and_no_host_clock_decides(void **state)
{
    (void)state;
    struct mg_node_lease l;
    enter(&a);
    enter(&b);
    pgtest_run(db, "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 microsecond'");
    assert_int_equal(mg_node_renew(pg, &a, TTL, &l, NULL), MG_EFENCED);
    assert_int_equal(enter(&a).others, 0); /* b has lapsed too */
    assert_int_equal(enter(&b).others, 1);
}

static void the_host_knows_an_end_that_is_never_later_than_the_databases(void **state)
{
    (void)state;
    uint64_t before = mg_now_ns();
    struct mg_node_lease l = enter(&a);
    uint64_t after = mg_now_ns();
    assert_true(l.until_ns >= before + (uint64_t)TTL * NS_PER_MS);
    assert_true(l.until_ns <= after + (uint64_t)TTL * NS_PER_MS);
    /* what the database still gives, asked later than the local mark was taken */
    struct mg_res *r = NULL;
    assert_int_equal(
        mg_pg_exec(
            pg,
            &(struct mg_stmt){
                "left", "SELECT (extract(epoch FROM lease_until - clock_timestamp()) * 1000000)::bigint FROM nodes"},
            NULL, 0, &r, NULL),
        MG_OK);
    int64_t left_us = mg_res_int(r, 0, 0);
    assert_true((int64_t)(l.until_ns - mg_now_ns()) / 1000 <= left_us);
    mg_res_free(r);
}

static void rows_of_dead_nodes_go_once_no_turn_names_them(void **state)
{
    (void)state;
    int n = -1;
    enter(&a);
    enter(&b);
    assert_int_equal(mg_node_expire(pg, 0, &n, NULL), MG_OK);
    assert_int_equal(n, 0);
    pgtest_run(db, "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 minute'");
    assert_int_equal(mg_node_expire(pg, 3600000, &n, NULL), MG_OK);
    assert_int_equal(n, 0);

    char sql[1024];
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO environments (id, workspace_id, name, config_type, config) VALUES ('env_1', 'wrkspc_default', "
        "'e', 'cloud', '{}');"
        "INSERT INTO sessions (id, workspace_id, agent_id, agent_version, agent, environment_id, env_type, env_config)"
        " VALUES ('sesn_1', 'wrkspc_default', 'agent_1', 1, '{}', 'env_1', 'cloud', '{}');"
        "INSERT INTO session_state (session_id, turn_node, turn_step) VALUES ('sesn_1', '%s', 'model')",
        a.s);
    pgtest_run(db, sql);
    assert_int_equal(mg_node_expire(pg, 0, &n, NULL), MG_OK);
    assert_int_equal(n, 1);
    struct mg_arena *arena = mg_arena_new();
    struct mg_node_row *rows = NULL;
    assert_int_equal(mg_node_list(pg, arena, &rows, &n, NULL), MG_OK);
    assert_int_equal(n, 1);
    assert_true(mg_sv_eqz(rows[0].id, a.s));
    assert_false(rows[0].live);
    mg_arena_free(arena);
}

static void the_deployment_has_one_id_for_good(void **state)
{
    (void)state;
    struct mg_id x, y;
    assert_int_equal(mg_deployment_id(pg, &x, NULL), MG_OK);
    assert_int_equal(mg_deployment_id(pg, &y, NULL), MG_OK);
    assert_string_equal(x.s, y.s);
    assert_int_equal(strlen(x.s), 32);
}

static void the_probe_proves_a_write_and_does_not_wait_long(void **state)
{
    (void)state;
    struct mg_err err = {0};
    assert_int_equal(mg_deployment_probe(pg, &err), MG_OK);
    assert_int_equal(mg_pg_script(pg, "SET default_transaction_read_only = on", &err), MG_OK);
    assert_int_equal(mg_deployment_probe(pg, &err), MG_EUNAVAIL); /* SELECT would have been answered */
    assert_int_equal(mg_deployment_probe(pg, &err), MG_OK);

    struct mg_pg *other = mg_pg_new(pgtest_conninfo(db));
    static const struct mg_stmt hold = {"hold", "SELECT 1 FROM deployment FOR UPDATE"};
    {
        mg_auto(txn) struct mg_txn t = mg_txn_on(other);
        assert_int_equal(mg_txn_query(&t, &hold, NULL, 0, NULL, &err), MG_OK);
        uint64_t start = mg_now_ns();
        assert_int_equal(mg_deployment_probe(pg, &err), MG_ETIMEOUT);
        assert_true(mg_now_ns() - start < (uint64_t)2 * MG_PROBE_MS * NS_PER_MS);
    }
    assert_int_equal(mg_deployment_probe(pg, &err), MG_OK);
    mg_pg_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_count_each_other_and_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(case_35_a_lapsed_lease_is_never_renewed_and_no_host_clock_decides, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_host_knows_an_end_that_is_never_later_than_the_databases, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_of_dead_nodes_go_once_no_turn_names_them, setup, teardown),
        cmocka_unit_test_setup_teardown(the_deployment_has_one_id_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(the_probe_proves_a_write_and_does_not_wait_long, setup, teardown),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
