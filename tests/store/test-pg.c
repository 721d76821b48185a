/* Connections and transactions against a real server, directly and through a proxy that misbehaves (field cases 27, 31, 33). */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/pg.h"
#include "support/pg-proxy.h"
#include "support/pgtest.h"

static struct mg_pgtest *db;
static struct mg_pg *pg;

#define ARGS(...) \
    (const struct mg_sv[]){__VA_ARGS__}, (int)(sizeof((const struct mg_sv[]){__VA_ARGS__}) / sizeof(struct mg_sv))

static const struct mg_stmt insert = {"insert", "INSERT INTO t (id, v) VALUES ($1::int, $2)"};
static const struct mg_stmt bump = {"bump", "UPDATE t SET epoch = epoch + 1 WHERE id = $1::int AND epoch = $2::int"};
static const struct mg_stmt count = {"count", "SELECT count(*) FROM t"};
static const struct mg_stmt echo = {"echo", "SELECT $1::text"};
static const struct mg_stmt sleep_s = {"sleep", "SELECT pg_sleep($1::float8)"};
static const struct mg_stmt backend = {"backend", "SELECT pg_backend_pid()"};
static const struct mg_stmt terminate = {"terminate", "SELECT pg_terminate_backend($1::int, 5000)"};
static const struct mg_stmt raise_state = {"raise_state", "SELECT raise_state($1)"};

static int setup(void **state)
{
    (void)state;
    db = pgtest_new();
    pgtest_run(db, "CREATE TABLE t (id int PRIMARY KEY, v text, epoch int NOT NULL DEFAULT 0);"
                   "CREATE FUNCTION raise_state(code text) RETURNS int LANGUAGE plpgsql AS"
                   " $$ BEGIN RAISE EXCEPTION 'secret-value' USING ERRCODE = code; END $$");
    pg = mg_pg_new(pgtest_conninfo(db));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mg_pg_free(pg);
    pgtest_free(db);
    return 0;
}

static void good(mg_rc rc, const struct mg_err *err)
{
    if (rc < 0)
        fail_msg("%s: %s", mg_rc_name(rc), err->text);
}

static int64_t one_int(struct mg_pg *on, const struct mg_stmt *st)
{
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    good(mg_pg_exec(on, st, NULL, 0, &r, &err), &err);
    int64_t n = mg_res_int(r, 0, 0);
    mg_res_free(r);
    return n;
}

static void kill_backend(int64_t pid)
{
    struct mg_pg *other = mg_pg_new(pgtest_conninfo(db));
    struct mg_err err = {0};
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)pid);
    good(mg_pg_exec(other, &terminate, ARGS(mg_sv_of(text)), NULL, &err), &err);
    mg_pg_free(other);
}

static void rows_come_back_as_they_went_in(void **state)
{
    (void)state;
    static const struct mg_stmt st = {
        "types", "SELECT $1::text, NULL::text, $2::bigint, $3::boolean, mg_us($4::timestamptz), NULL::bigint"};
    struct mg_arena *a = mg_arena_new();
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    struct mg_err err = {0};
    good(mg_pg_exec(pg, &st,
                    ARGS(MG_SV("a'b\"\\\n\xf0\x9f\x8d\x8c"), mg_p_int(a, INT64_MIN), mg_p_bool(true),
                         mg_p_time(a, 1796023561123456)),
                    &r, &err),
         &err);
    assert_int_equal(mg_res_rows(r), 1);
    assert_true(mg_sv_eqz(mg_res_sv(r, 0, 0), "a'b\"\\\n\xf0\x9f\x8d\x8c"));
    assert_null(mg_res_sv(r, 0, 1).ptr);
    assert_true(mg_res_int(r, 0, 2) == INT64_MIN);
    assert_true(mg_res_bool(r, 0, 3));
    assert_true(mg_res_time(r, 0, 4) == 1796023561123456);
    assert_true(mg_res_time(r, 0, 5) == INT64_MIN);
    mg_arena_free(a);
}

static void arrays_keep_quotes_backslashes_nulls_and_empty_text(void **state)
{
    (void)state;
    static const struct mg_stmt st = {"unnest", "SELECT x, x IS NULL FROM unnest($1::text[]) AS x"};
    const struct mg_sv in[] = {MG_SV("a\"b"), MG_SV("\\"), mg_p_null(), MG_SV(""), MG_SV("NULL"), MG_SV("{,} \n")};
    struct mg_arena *a = mg_arena_new();
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    struct mg_err err = {0};
    good(mg_pg_exec(pg, &st, ARGS(mg_p_array(a, in, 6)), &r, &err), &err);
    assert_int_equal(mg_res_rows(r), 6);
    for (int i = 0; i < 6; i++) {
        assert_true(mg_res_bool(r, i, 1) == (in[i].ptr == NULL));
        assert_true(mg_sv_eq(mg_res_sv(r, i, 0), in[i]));
    }
    mg_arena_free(a);
}

static void case_27_text_with_nul_is_refused_before_it_is_sent(void **state)
{
    (void)state;
    struct mg_err err = {0};
    assert_int_equal(mg_pg_exec(pg, &echo, ARGS(mg_sv_n("a\0b", 3)), NULL, &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "NUL"));
    assert_int_equal(mg_pg_exec(pg, &echo, ARGS(MG_SV("\xff")), NULL, &err), MG_EINVAL);
    assert_non_null(strstr(err.text, "UTF-8"));
}

static void a_commit_of_many_statements_is_one_round_trip(void **state)
{
    (void)state;
    struct pgproxy *p = pgproxy_new(pgtest_conninfo(db));
    struct mg_pg *via = mg_pg_new(pgproxy_conninfo(p));
    struct mg_err err = {0};
    for (int i = 0; i < 2; i++) { /* statements not yet prepared cost none more */
        char id[16];
        snprintf(id, sizeof(id), "%d", 100 + i);
        good(mg_pg_connect(via, &err), &err);
        unsigned before = pgproxy_round_trips(p);
        mg_auto(txn) struct mg_txn t = mg_txn_on(via);
        good(mg_txn_queue(&t, &insert, ARGS(mg_sv_of(id), MG_SV("x")), 1, &err), &err);
        good(mg_txn_queue(&t, &bump, ARGS(mg_sv_of(id), MG_SV("0")), 1, &err), &err);
        good(mg_txn_queue(&t, &bump, ARGS(mg_sv_of(id), MG_SV("1")), 1, &err), &err);
        good(mg_txn_commit(&t, &err), &err);
        assert_int_equal(pgproxy_round_trips(p) - before, 1);

        before = pgproxy_round_trips(p);
        struct mg_res *r = NULL;
        mg_auto(txn) struct mg_txn u = mg_txn_on(via);
        good(mg_txn_query(&u, &count, NULL, 0, &r, &err), &err);
        mg_res_free(r);
        good(mg_txn_queue(&u, &bump, ARGS(mg_sv_of(id), MG_SV("2")), 1, &err), &err);
        good(mg_txn_commit(&u, &err), &err);
        assert_int_equal(pgproxy_round_trips(p) - before, 2);
    }
    mg_pg_free(via);
    pgproxy_free(p);
}

static void a_late_writer_of_an_old_epoch_is_fenced_and_leaves_nothing(void **state)
{
    (void)state;
    struct mg_pg *other = mg_pg_new(pgtest_conninfo(db));
    struct mg_err err = {0};
    pgtest_run(db, "INSERT INTO t VALUES (200, 'turn')");
    mg_auto(txn) struct mg_txn claim = mg_txn_on(other);
    good(mg_txn_queue(&claim, &bump, ARGS(MG_SV("200"), MG_SV("0")), 1, &err), &err);
    good(mg_txn_commit(&claim, &err), &err);

    mg_auto(txn) struct mg_txn late = mg_txn_on(pg);
    good(mg_txn_queue(&late, &insert, ARGS(MG_SV("201"), MG_SV("late")), 1, &err), &err);
    good(mg_txn_queue(&late, &bump, ARGS(MG_SV("200"), MG_SV("0")), 1, &err), &err);
    good(mg_txn_queue(&late, &insert, ARGS(MG_SV("202"), MG_SV("late")), 1, &err), &err);
    assert_int_equal(mg_txn_commit(&late, &err), MG_EFENCED);
    assert_int_equal(mg_txn_commit(&late, &err), MG_EINTERNAL);
    assert_int_equal(one_int(pg, &(struct mg_stmt){"late", "SELECT count(*) FROM t WHERE v = 'late'"}), 0);

    /* and by a query in the middle; SELECT … FOR UPDATE and a statement with its own RETURNING are guarded alike */
    static const struct mg_stmt lock = {"lock", "SELECT 1 FROM t WHERE id = $1::int AND epoch = $2::int FOR UPDATE"};
    static const struct mg_stmt ret = {"ret", "UPDATE t SET v = v WHERE id = $1::int RETURNING id"};
    static const struct mg_stmt with = {"with",
                                        "WITH x AS (SELECT $1::int AS n) UPDATE t SET v = v FROM x WHERE id = x.n"};
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    good(mg_txn_queue(&t, &ret, ARGS(MG_SV("200")), 1, &err), &err);
    good(mg_txn_queue(&t, &with, ARGS(MG_SV("200")), 1, &err), &err);
    good(mg_txn_queue(&t, &with, ARGS(MG_SV("999")), 0, &err), &err);
    good(mg_txn_queue(&t, &lock, ARGS(MG_SV("200"), MG_SV("1")), 1, &err), &err);
    good(mg_txn_query(&t, &count, NULL, 0, NULL, &err), &err);
    good(mg_txn_queue(&t, &lock, ARGS(MG_SV("200"), MG_SV("0")), 1, &err), &err);
    assert_int_equal(mg_txn_query(&t, &count, NULL, 0, NULL, &err), MG_EFENCED);
    mg_pg_free(other);
}

static void a_transaction_that_is_left_is_rolled_back(void **state)
{
    (void)state;
    struct mg_err err = {0};
    int64_t before = one_int(pg, &count);
    {
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        good(mg_txn_queue(&t, &insert, ARGS(MG_SV("300"), MG_SV("x")), -1, &err), &err);
        good(mg_txn_query(&t, &count, NULL, 0, NULL, &err), &err);
        good(mg_txn_queue(&t, &insert, ARGS(MG_SV("301"), MG_SV("x")), -1, &err), &err);
    }
    assert_int_equal(one_int(pg, &count), before);
    {
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        good(mg_txn_queue(&t, &insert, ARGS(MG_SV("302"), MG_SV("x")), -1, &err), &err);
        good(mg_txn_queue(&t, &insert, ARGS(MG_SV("302"), MG_SV("x")), -1, &err), &err); /* will fail once it is sent */
    }
    assert_int_equal(one_int(pg, &count), before);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    good(mg_txn_queue(&t, &insert, ARGS(MG_SV("303"), MG_SV("x")), -1, &err), &err);
    assert_int_equal(mg_pg_exec(pg, &count, NULL, 0, NULL, &err),
                     MG_EINTERNAL); /* not in the middle of a transaction */
}

static void a_second_key_is_a_conflict_and_the_connection_goes_on(void **state)
{
    (void)state;
    struct mg_err err = {0};
    pgtest_run(db, "INSERT INTO t VALUES (400, 'x')");
    unsigned opened = mg_pg_opened(pg);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    good(mg_txn_queue(&t, &insert, ARGS(MG_SV("400"), MG_SV("hush-value")), -1, &err), &err);
    assert_int_equal(mg_txn_commit(&t, &err), MG_ECONFLICT);
    assert_null(strstr(err.text, "hush-value"));
    assert_null(strstr(err.text, "INSERT"));
    one_int(pg, &count);
    assert_int_equal(mg_pg_opened(pg), opened);
}

static void error_classes_map_to_codes_and_bad_connections_are_dropped(void **state)
{
    (void)state;
    static const struct {
        const char *sqlstate;
        mg_rc rc;
        bool dropped;
    } cases[] = {
        {"40001", MG_EUNAVAIL, false},  {"40P01", MG_EUNAVAIL, false},  {"55P03", MG_EUNAVAIL, false},
        {"53100", MG_EUNAVAIL, false},  {"57P01", MG_EUNAVAIL, true},   {"57P02", MG_EUNAVAIL, true},
        {"57P03", MG_EUNAVAIL, true},   {"53300", MG_EUNAVAIL, true},   {"08006", MG_EUNAVAIL, true},
        {"08P01", MG_EUNAVAIL, true},   {"25006", MG_EUNAVAIL, true},   {"26000", MG_EUNAVAIL, true},
        {"57014", MG_ETIMEOUT, false},  {"23505", MG_ECONFLICT, false}, {"MG001", MG_EFENCED, false},
        {"22012", MG_EINTERNAL, false}, {"42P01", MG_EINTERNAL, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_err err = {0};
        one_int(pg, &count);
        unsigned opened = mg_pg_opened(pg);
        mg_rc rc = mg_pg_exec(pg, &raise_state, ARGS(mg_sv_of(cases[i].sqlstate)), NULL, &err);
        if (rc != cases[i].rc)
            fail_msg("%s gave %s", cases[i].sqlstate, mg_rc_name(rc));
        assert_null(strstr(err.text, "secret-value"));
        assert_int_equal(err.retry_after_s > 0, rc == MG_EUNAVAIL);
        one_int(pg, &count);
        assert_int_equal(mg_pg_opened(pg) - opened, cases[i].dropped);
    }
}

static void an_idle_connection_that_died_is_replaced_unseen(void **state)
{
    (void)state;
    struct mg_err err = {0};
    for (int i = 0; i < 3; i++) {
        int64_t pid = one_int(pg, &backend);
        kill_backend(pid);
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        good(mg_txn_queue(&t, &sleep_s, ARGS(MG_SV("0")), -1, &err), &err);
        good(mg_txn_commit(&t, &err), &err);
        assert_int_not_equal(one_int(pg, &backend), pid);
    }
}

struct killer {
    int64_t pid;
};

/* Waits until the other connection is in its pg_sleep, then ends it. */
static void *kill_sleeper(void *arg)
{
    struct killer *k = arg;
    struct mg_pg *other = mg_pg_new(pgtest_conninfo(db));
    static const struct mg_stmt asleep = {
        "asleep",
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid = $1::int AND wait_event = 'PgSleep'"};
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)k->pid);
    for (uint64_t end = mg_now_ns() + 10000000000; mg_now_ns() < end;) {
        struct mg_res *r = NULL;
        struct mg_err err = {0};
        if (mg_pg_exec(other, &asleep, ARGS(mg_sv_of(text)), &r, &err) < 0)
            break;
        int n = mg_res_rows(r);
        mg_res_free(r);
        if (n > 0)
            break;
    }
    mg_pg_free(other);
    return NULL;
}

static void a_backend_ended_before_the_commit_has_a_known_outcome(void **state)
{
    (void)state;
    struct mg_err err = {0};
    struct killer k = {.pid = one_int(pg, &backend)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, kill_sleeper, &k), 0);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    good(mg_txn_queue(&t, &insert, ARGS(MG_SV("500"), MG_SV("x")), 1, &err), &err);
    good(mg_txn_queue(&t, &sleep_s, ARGS(MG_SV("10")), -1, &err), &err);
    assert_int_equal(mg_txn_commit(&t, &err), MG_EUNAVAIL);
    pthread_join(thread, NULL);
    assert_string_equal(err.code, "");
    assert_int_equal(one_int(pg, &(struct mg_stmt){"c500", "SELECT count(*) FROM t WHERE id = 500"}), 0);
}

static void a_connection_cut_during_the_commit_has_an_unknown_outcome(void **state)
{
    (void)state;
    struct pgproxy *p = pgproxy_new(pgtest_conninfo(db));
    struct mg_pg *via = mg_pg_new(pgproxy_conninfo(p));
    struct mg_err err = {0};
    mg_auto(txn) struct mg_txn t = mg_txn_on(via);
    good(mg_txn_query(&t, &count, NULL, 0, NULL, &err), &err);
    good(mg_txn_queue(&t, &insert, ARGS(MG_SV("510"), MG_SV("x")), 1, &err), &err);
    pgproxy_mode(p, PGPROXY_CUT);
    assert_int_equal(mg_txn_commit(&t, &err), MG_EUNAVAIL);
    assert_string_equal(err.code, "commit_unknown");
    assert_int_equal(one_int(pg, &(struct mg_stmt){"c510", "SELECT count(*) FROM t WHERE id = 510"}),
                     1); /* it did take effect */
    pgproxy_mode(p, PGPROXY_PASS);
    one_int(via, &count);
    mg_pg_free(via);
    pgproxy_free(p);
}

static void a_statement_over_its_time_ends_and_keeps_the_connection(void **state)
{
    (void)state;
    struct mg_pg *quick = mg_pg_new(pgtest_conninfo(db));
    struct mg_err err = {0};
    mg_pg_set_timeout(quick, 100);
    int64_t pid = one_int(quick, &backend);
    assert_int_equal(mg_pg_exec(quick, &sleep_s, ARGS(MG_SV("10")), NULL, &err), MG_ETIMEOUT);
    assert_int_equal(one_int(quick, &backend), pid);
    mg_pg_free(quick);
}

static void case_31_a_server_that_became_read_only_is_left_for_a_new_connection(void **state)
{
    (void)state;
    struct mg_err err = {0};
    good(mg_pg_script(pg, "SET default_transaction_read_only = on", &err), &err);
    int64_t pid = one_int(pg, &backend);
    assert_int_equal(mg_pg_exec(pg, &insert, ARGS(MG_SV("600"), MG_SV("x")), NULL, &err), MG_EUNAVAIL);
    good(mg_pg_exec(pg, &insert, ARGS(MG_SV("600"), MG_SV("x")), NULL, &err), &err);
    assert_int_not_equal(one_int(pg, &backend), pid);

    char name[64], sql[200];
    struct mg_res *r = NULL;
    good(mg_pg_exec(pg, &(struct mg_stmt){"dbname", "SELECT current_database()"}, NULL, 0, &r, &err), &err);
    snprintf(name, sizeof(name), "%s", mg_res_sv(r, 0, 0).ptr);
    mg_res_free(r);
    snprintf(sql, sizeof(sql), "ALTER DATABASE %s SET default_transaction_read_only = on", name);
    pgtest_run(db, sql);
    struct mg_pg *fresh = mg_pg_new(pgtest_conninfo(db));
    assert_int_equal(mg_pg_connect(fresh, &err),
                     MG_EUNAVAIL); /* a new connection asks for a server that takes writes */
    assert_true(err.retry_after_s > 0);
    assert_non_null(strstr(mg_pg_diag(fresh), "read-only"));
    assert_null(strstr(err.text, "/"));
    snprintf(sql, sizeof(sql),
             "SET default_transaction_read_only = off; ALTER DATABASE %s RESET default_transaction_read_only", name);
    good(mg_pg_script(pg, sql, &err), &err);
    uint64_t end = mg_now_ns() + 10000000000;
    while (mg_pg_connect(fresh, &err) < 0) {
        assert_true(mg_now_ns() < end);
        (void)!poll(NULL, 0, 10);
    }
    mg_pg_free(fresh);
}

static void case_33_a_half_open_connection_holds_no_thread(void **state)
{
    (void)state;
    struct pgproxy *p = pgproxy_new(pgtest_conninfo(db));
    struct mg_pg *via = mg_pg_new(pgproxy_conninfo(p));
    struct mg_err err = {0};
    mg_pg_set_timeout(via, 400);
    one_int(via, &count);

    pgproxy_mode(p, PGPROXY_FREEZE); /* while it idles */
    uint64_t start = mg_now_ns();
    assert_int_equal(mg_pg_exec(via, &count, NULL, 0, NULL, &err), MG_EUNAVAIL);
    assert_true(mg_now_ns() - start < 5000000000);
    pgproxy_mode(p, PGPROXY_PASS);
    one_int(via, &count); /* goes on without a restart */

    {
        mg_auto(txn) struct mg_txn t = mg_txn_on(via); /* in the middle of a transaction */
        good(mg_txn_query(&t, &count, NULL, 0, NULL, &err), &err);
        good(mg_txn_queue(&t, &insert, ARGS(MG_SV("700"), MG_SV("x")), 1, &err), &err);
        pgproxy_mode(p, PGPROXY_FREEZE);
        start = mg_now_ns();
        assert_int_equal(mg_txn_commit(&t, &err), MG_EUNAVAIL);
        assert_string_equal(err.code, "commit_unknown");
        assert_true(mg_now_ns() - start < 5000000000);
    }
    pgproxy_mode(p, PGPROXY_PASS);
    one_int(via, &count);

    { /* and when it is left there: the rollback waits no longer either */
        mg_auto(txn) struct mg_txn t = mg_txn_on(via);
        good(mg_txn_query(&t, &count, NULL, 0, NULL, &err), &err);
        pgproxy_mode(p, PGPROXY_FREEZE);
        start = mg_now_ns();
        mg_txn_cleanup(&t);
        assert_true(mg_now_ns() - start < 8000000000);
    }
    pgproxy_mode(p, PGPROXY_PASS);
    one_int(via, &count);
    mg_pg_free(via);
    pgproxy_free(p);
}

static void large_statements_both_ways_do_not_lock_up_the_pipeline(void **state)
{
    (void)state;
    enum { BIG = 3 * 1024 * 1024 };
    struct mg_err err = {0};
    char *text = mg_xmalloc(BIG);
    memset(text, 'x', BIG);
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    for (int i = 0; i < 4; i++) /* answers of the same size come while the rest is sent */
        good(mg_txn_queue(&t, &echo, ARGS(mg_sv_n(text, BIG)), -1, &err), &err);
    struct mg_res *r = NULL;
    good(mg_txn_query(&t, &echo, ARGS(mg_sv_n(text, BIG)), &r, &err), &err);
    assert_int_equal(mg_res_sv(r, 0, 0).len, BIG);
    mg_res_free(r);
    good(mg_txn_commit(&t, &err), &err);
    free(text);
}

static void a_plan_that_a_migration_made_stale_is_made_anew(void **state)
{
    (void)state;
    static const struct mg_stmt star = {"star", "SELECT * FROM shape"};
    struct mg_err err = {0};
    pgtest_run(db, "CREATE TABLE shape (a int)");
    good(mg_pg_exec(pg, &star, NULL, 0, NULL, &err), &err);
    pgtest_run(db, "ALTER TABLE shape ADD b text");
    assert_int_equal(mg_pg_exec(pg, &star, NULL, 0, NULL, &err), MG_EUNAVAIL);
    good(mg_pg_exec(pg, &star, NULL, 0, NULL, &err), &err);
}

static void a_statement_that_fails_to_prepare_is_prepared_again(void **state)
{
    (void)state;
    static const struct mg_stmt later = {"later", "SELECT count(*) FROM later_table"};
    struct mg_err err = {0};
    assert_int_equal(mg_pg_exec(pg, &later, NULL, 0, NULL, &err), MG_EINTERNAL);
    pgtest_run(db, "CREATE TABLE later_table (a int)");
    good(mg_pg_exec(pg, &later, NULL, 0, NULL, &err), &err);

    static const struct mg_stmt skipped = {"skipped", "SELECT 42"}; /* its Parse stands behind a failure */
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    good(mg_txn_queue(&t, &raise_state, ARGS(MG_SV("22012")), -1, &err), &err);
    assert_int_equal(mg_txn_query(&t, &skipped, NULL, 0, NULL, &err), MG_EINTERNAL);
    assert_int_equal(one_int(pg, &skipped), 42);
}

static void scripts_run_whole_or_not_at_all(void **state)
{
    (void)state;
    struct mg_err err = {0};
    assert_int_equal(mg_pg_script(pg, "CREATE TABLE s1 (a int); SELECT 1/0", &err), MG_EINTERNAL);
    assert_int_equal(one_int(pg, &(struct mg_stmt){"s1", "SELECT count(*) FROM pg_class WHERE relname = 's1'"}), 0);
    good(mg_pg_script(pg, "CREATE TABLE s1 (a int); DROP TABLE s1", &err), &err);
    {
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        assert_int_equal(mg_txn_script(&t, "COMMIT", &err), MG_EINTERNAL);
        assert_non_null(strstr(err.text, "must not hold BEGIN, COMMIT"));
    }
    assert_int_equal(mg_pg_script(pg, "COPY t TO STDOUT", &err), MG_EUNAVAIL);
    one_int(pg, &count);
}

static void a_server_that_is_down_is_not_hammered(void **state)
{
    (void)state;
    struct mg_pg *down = mg_pg_new("host=/nonexistent dbname=x");
    struct mg_err err = {0};
    uint64_t start = mg_now_ns();
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mg_pg_connect(down, &err), MG_EUNAVAIL);
        assert_true(err.retry_after_s > 0);
        assert_null(strstr(err.text, "nonexistent"));
    }
    assert_true(mg_now_ns() - start < 2000000000); /* nearly all were refused without a try */
    assert_non_null(strstr(mg_pg_diag(down), "nonexistent"));
    mg_pg_free(down);
}

static void the_socket_is_not_inherited_and_the_session_is_named(void **state)
{
    (void)state;
    struct mg_err err = {0};
    good(mg_pg_connect(pg, &err), &err);
    assert_true(fcntl(mg_pg_socket(pg), F_GETFD) & FD_CLOEXEC);
    assert_int_equal(
        one_int(
            pg,
            &(struct mg_stmt){
                "name",
                "SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid() AND application_name = 'mangod'"}),
        1);
    assert_int_equal(
        one_int(pg, &(struct mg_stmt){"limit", "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'"}),
        MG_PG_STATEMENT_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_back_as_they_went_in),
        cmocka_unit_test(arrays_keep_quotes_backslashes_nulls_and_empty_text),
        cmocka_unit_test(case_27_text_with_nul_is_refused_before_it_is_sent),
        cmocka_unit_test(a_commit_of_many_statements_is_one_round_trip),
        cmocka_unit_test(a_late_writer_of_an_old_epoch_is_fenced_and_leaves_nothing),
        cmocka_unit_test(a_transaction_that_is_left_is_rolled_back),
        cmocka_unit_test(a_second_key_is_a_conflict_and_the_connection_goes_on),
        cmocka_unit_test(error_classes_map_to_codes_and_bad_connections_are_dropped),
        cmocka_unit_test(an_idle_connection_that_died_is_replaced_unseen),
        cmocka_unit_test(a_backend_ended_before_the_commit_has_a_known_outcome),
        cmocka_unit_test(a_connection_cut_during_the_commit_has_an_unknown_outcome),
        cmocka_unit_test(a_statement_over_its_time_ends_and_keeps_the_connection),
        cmocka_unit_test(case_31_a_server_that_became_read_only_is_left_for_a_new_connection),
        cmocka_unit_test(case_33_a_half_open_connection_holds_no_thread),
        cmocka_unit_test(large_statements_both_ways_do_not_lock_up_the_pipeline),
        cmocka_unit_test(a_plan_that_a_migration_made_stale_is_made_anew),
        cmocka_unit_test(a_statement_that_fails_to_prepare_is_prepared_again),
        cmocka_unit_test(scripts_run_whole_or_not_at_all),
        cmocka_unit_test(a_server_that_is_down_is_not_hammered),
        cmocka_unit_test(the_socket_is_not_inherited_and_the_session_is_named),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : cmocka_run_group_tests(tests, setup, teardown);
}
