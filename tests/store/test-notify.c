/* Wake-ups between nodes: two notify threads on one database (field cases 14, 28, 29). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "events/notify.h"
#include "store/api-key.h"
#include "store/pg.h"
#include "support/pg-proxy.h"
#include "support/pgtest.h"

enum { SESSIONS = 12000, WAIT_S = 20, WRITERS = 8, WRITES = 150 };

/* What one node heard. */
struct ear {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int64_t seq[SESSIONS];
    int n_events, n_gaps, n_keys;
    char key[64];
    struct mg_notify *n;
};

static struct mg_pgtest *db;
static struct ear ear_a, ear_b;

static void on_event(void *ctx, struct mg_sv session, int64_t seq)
{
    struct ear *e = ctx;
    int64_t i = -1;
    pthread_mutex_lock(&e->lock);
    if (mg_sv_to_i64(mg_sv_from(session, 5), &i) && i >= 0 && i < SESSIONS && seq > e->seq[i])
        e->seq[i] = seq;
    e->n_events++;
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
}

static void on_key(void *ctx, struct mg_sv id)
{
    struct ear *e = ctx;
    pthread_mutex_lock(&e->lock);
    e->n_keys++;
    snprintf(e->key, sizeof(e->key), "%.*s", MG_SV_ARG(id));
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
}

static void on_gap(void *ctx)
{
    struct ear *e = ctx;
    pthread_mutex_lock(&e->lock);
    e->n_gaps++;
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
}

static void wait_for(struct ear *e, const int *counter, int least, const char *what)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    pthread_mutex_lock(&e->lock);
    int k = 0;
    while (*counter < least && k == 0)
        k = pthread_cond_timedwait(&e->news, &e->lock, &end);
    pthread_mutex_unlock(&e->lock);
    if (k != 0)
        fail_msg("no %s within %d s", what, WAIT_S);
}

static void wait_for_seq(struct ear *e, int session, int64_t least)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    pthread_mutex_lock(&e->lock);
    int k = 0;
    while (e->seq[session] < least && k == 0)
        k = pthread_cond_timedwait(&e->news, &e->lock, &end);
    pthread_mutex_unlock(&e->lock);
    if (k != 0)
        fail_msg("session %d did not get to %lld", session, (long long)least);
}

static void start(struct ear *e, const char *conninfo, unsigned drop_every)
{
    memset(e, 0, sizeof(*e));
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->news, NULL);
    e->n = mg_notify_new(&(struct mg_notify_opts){.conninfo = conninfo,
                                                  .node = mg_id_new("node"),
                                                  .on_event = on_event,
                                                  .on_key = on_key,
                                                  .on_gap = on_gap,
                                                  .ctx = e,
                                                  .drop_every = drop_every});
    wait_for(e, &e->n_gaps, 1, "first LISTEN");
}

static void stop(struct ear *e)
{
    mg_notify_free(e->n);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->news);
}

static void send_wake(struct ear *e, int session, int64_t seq)
{
    char id[32];
    snprintf(id, sizeof(id), "sesn_%d", session);
    mg_notify_send(e->n, mg_sv_of(id), seq);
}

static struct mg_notify_stats stats(struct ear *e)
{
    struct mg_notify_stats s;
    mg_notify_stats(e->n, &s);
    return s;
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

static void a_wake_up_reaches_the_other_node_and_not_its_sender(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    mg_notify_others(ear_b.n, 1);
    send_wake(&ear_a, 1, 7);
    wait_for_seq(&ear_b, 1, 7);
    send_wake(&ear_b, 2, 9);
    wait_for_seq(&ear_a, 2, 9);
    assert_int_equal(ear_a.seq[1], 0);
    assert_int_equal(stats(&ear_a).sent, 1);
    assert_int_equal(stats(&ear_a).received, 1);
    assert_int_equal(stats(&ear_a).reconnects, 0);
    stop(&ear_b);
    stop(&ear_a);
}

static void a_node_alone_sends_nothing_until_another_says_hello(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    send_wake(&ear_a, 1, 1);
    start(&ear_b, pgtest_conninfo(db), 0); /* its hello comes before any lease renewal */
    for (int64_t seq = 2; stats(&ear_b).received == 0 && seq < 4000; seq++) {
        send_wake(&ear_a, 3, seq);
        struct timespec ts = {.tv_nsec = 5000000};
        nanosleep(&ts, NULL);
    }
    wait_for(&ear_b, &ear_b.n_events, 1, "wake-up after the hello");
    assert_int_equal(ear_b.seq[1], 0);
    stop(&ear_b);
    stop(&ear_a);
}

static void wake_ups_are_coalesced_and_the_newest_number_wins(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    uint64_t begin = mg_now_ns();
    for (int64_t seq = 1; seq <= 4000; seq++) {
        for (int s = 0; s < 50; s++)
            send_wake(&ear_a, s, s == 0 ? 4001 - seq : seq); /* one of them backwards */
    }
    for (int s = 0; s < 50; s++)
        wait_for_seq(&ear_b, s, 4000);
    uint64_t ms = (mg_now_ns() - begin) / 1000000;
    assert_true(stats(&ear_a).batches <= ms / MG_NOTIFY_BATCH_MS + 2);
    assert_true(stats(&ear_a).sent <= stats(&ear_a).batches * 50);
    print_message("200000 sends: %d batches in %d ms\n", (int)stats(&ear_a).batches, (int)ms);
    stop(&ear_b);
    stop(&ear_a);
}

static void many_sessions_at_once_need_several_payloads(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    for (int s = 0; s < 3000; s++)
        send_wake(&ear_a, s, 1000000000000 + s);
    for (int s = 0; s < 3000; s++)
        wait_for_seq(&ear_b, s, 1000000000000 + s);
    stop(&ear_b);
    stop(&ear_a);
}

static void what_is_pending_goes_out_before_the_end(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    send_wake(&ear_a, 5, 55);
    stop(&ear_a);
    wait_for_seq(&ear_b, 5, 55);
    stop(&ear_b);
}

static void case_14_a_terminated_listener_comes_back_and_reports_the_gap(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    mg_notify_others(ear_b.n, 1);
    for (int i = 1; i <= 3; i++) {
        pgtest_run(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
                       "pid <> pg_backend_pid()"
                       " AND backend_type = 'client backend'");
        wait_for(&ear_a, &ear_a.n_gaps, 1 + i, "gap of a");
        wait_for(&ear_b, &ear_b.n_gaps, 1 + i, "gap of b");
        send_wake(&ear_a, i, 100);
        wait_for_seq(&ear_b, i, 100);
        assert_true(stats(&ear_b).reconnects >= (uint64_t)i);
        assert_true(stats(&ear_b).repairs >= (uint64_t)i);
    }
    stop(&ear_b);
    stop(&ear_a);
}

static void case_14_a_black_holed_listener_is_found_by_its_own_ping(void **state)
{
    (void)state;
    struct pgproxy *p = pgproxy_new(pgtest_conninfo(db));
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgproxy_conninfo(p), 0);
    mg_notify_others(ear_a.n, 1);
    mg_notify_others(ear_b.n, 1);
    unsigned before = pgproxy_connections(p);
    pgproxy_mode(p, PGPROXY_FREEZE);
    send_wake(&ear_a, 1, 1); /* never arrives */
    uint64_t start_ns = mg_now_ns();
    while (stats(&ear_b).connected && mg_now_ns() - start_ns < (uint64_t)WAIT_S * 1000000000)
        sched_yield();
    assert_false(stats(&ear_b).connected);
    print_message("found after %d ms\n", (int)((mg_now_ns() - start_ns) / 1000000));
    pgproxy_mode(p, PGPROXY_PASS);
    wait_for(&ear_b, &ear_b.n_gaps, 2, "gap");
    assert_true(pgproxy_connections(p) > before);
    send_wake(&ear_a, 2, 2);
    wait_for_seq(&ear_b, 2, 2);
    stop(&ear_b);
    stop(&ear_a);
    pgproxy_free(p);
}

static void case_14_dropped_wake_ups_are_not_sent_and_later_ones_cover_them(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 2);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    send_wake(&ear_a, 1, 1);
    wait_for_seq(&ear_b, 1, 1);
    send_wake(&ear_a, 1, 2); /* dropped: a topic's repair must find it */
    while (stats(&ear_a).connected && stats(&ear_a).sent < 2) {
        send_wake(&ear_a, 1, 3);
        sched_yield();
    }
    wait_for_seq(&ear_b, 1, 3);
    stop(&ear_b);
    stop(&ear_a);
}

static void what_was_collected_while_the_database_was_away_becomes_one_gap(void **state)
{
    (void)state;
    struct pgproxy *p = pgproxy_new(pgtest_conninfo(db));
    start(&ear_a, pgproxy_conninfo(p), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    pgproxy_mode(p, PGPROXY_FREEZE);
    for (int s = 0; s < MG_NOTIFY_PENDING_MAX + 1000; s++)
        send_wake(&ear_a, s, 1);
    uint64_t start_ns = mg_now_ns();
    while (stats(&ear_a).connected && mg_now_ns() - start_ns < (uint64_t)WAIT_S * 1000000000)
        sched_yield();
    for (int s = 0; s < MG_NOTIFY_PENDING_MAX + 1000; s++)
        send_wake(&ear_a, s, 2);
    pgproxy_mode(p, PGPROXY_PASS);
    wait_for(&ear_b, &ear_b.n_gaps, 2, "gap that stands for all");
    stop(&ear_b);
    stop(&ear_a);
    pgproxy_free(p);
}

static void a_revoked_key_is_heard_of_on_every_node(void **state)
{
    (void)state;
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(db));
    struct mg_id id;
    char key[MG_API_KEY_TEXT];
    assert_int_equal(mg_api_key_issue(pg, MG_SV("wrkspc_default"), MG_SV(""), MG_SV("x"), &id, key, NULL), MG_OK);
    uint64_t begin = mg_now_ns();
    assert_int_equal(mg_api_key_revoke(pg, MG_SV(""), mg_id_sv(&id), NULL), MG_OK);
    wait_for(&ear_a, &ear_a.n_keys, 1, "revocation at a");
    wait_for(&ear_b, &ear_b.n_keys, 1, "revocation at b");
    assert_true(mg_now_ns() - begin < 1000000000);
    assert_string_equal(ear_a.key, id.s);
    assert_string_equal(ear_b.key, id.s);
    mg_pg_free(pg);
    stop(&ear_b);
    stop(&ear_a);
}

struct writer {
    pthread_t thread;
    int i;
    atomic_int pid;
    atomic_bool *done;
};

static void *write_events(void *arg)
{
    static const struct mg_stmt backend = {"backend", "SELECT pg_backend_pid()"};
    static const struct mg_stmt write = {"write",
                                         "INSERT INTO log (w, n) SELECT $1::int, g FROM generate_series(1, 2) g"};
    struct writer *w = arg;
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(db));
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    char i[16];
    snprintf(i, sizeof(i), "%d", w->i);
    const struct mg_sv p = mg_sv_of(i);
    assert_int_equal(mg_pg_exec(pg, &backend, NULL, 0, &r, &err), MG_OK);
    atomic_store(&w->pid, (int)mg_res_int(r, 0, 0));
    mg_res_free(r);
    for (int k = 1; k <= WRITES; k++) {
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        assert_int_equal(mg_txn_queue(&t, &write, &p, 1, -1, &err), MG_OK);
        assert_int_equal(mg_txn_commit(&t, &err), MG_OK);
        send_wake(&ear_a, w->i, k);
    }
    mg_pg_free(pg);
    return NULL;
}

/* The lock that NOTIFY takes for the whole server until its commit is done: database 0 as a shared object. */
static void case_28_no_event_transaction_touches_the_notification_lock(void **state)
{
    (void)state;
    static const struct mg_stmt holders = {
        "holders",
        "SELECT pid FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass AND objid = 0"};
    static struct writer w[WRITERS];
    pgtest_run(db, "CREATE TABLE log (w int, n int)");
    start(&ear_a, pgtest_conninfo(db), 0);
    start(&ear_b, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    for (int i = 0; i < WRITERS; i++) {
        w[i] = (struct writer){.i = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, write_events, &w[i]), 0);
    }
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(db));
    int samples = 0, seen = 0;
    for (int i = 0; i < 300; i++, samples++) {
        struct mg_res *r = NULL;
        assert_int_equal(mg_pg_exec(pg, &holders, NULL, 0, &r, NULL), MG_OK);
        for (int k = 0; k < mg_res_rows(r); k++, seen++) {
            for (int x = 0; x < WRITERS; x++)
                assert_int_not_equal(mg_res_int(r, k, 0), atomic_load(&w[x].pid));
        }
        mg_res_free(r);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(w[i].thread, NULL);
    for (int i = 0; i < WRITERS; i++)
        wait_for_seq(&ear_b, i, WRITES);
    print_message("%d samples; the notifier was seen with the lock %d times; %d batches for %d commits\n", samples,
                  seen, (int)stats(&ear_a).batches, WRITERS * WRITES);
    mg_pg_free(pg);
    stop(&ear_b);
    stop(&ear_a);
}

static void case_29_a_listening_connection_is_never_in_a_transaction(void **state)
{
    (void)state;
    static const struct mg_stmt open = {
        "open", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND state LIKE 'idle in transaction%'"};
    start(&ear_a, pgtest_conninfo(db), 0);
    mg_notify_others(ear_a.n, 1);
    struct mg_pg *pg = mg_pg_new(pgtest_conninfo(db));
    for (int i = 0; i < 200; i++) {
        struct mg_res *r = NULL;
        send_wake(&ear_a, 1, i);
        assert_int_equal(mg_pg_exec(pg, &open, NULL, 0, &r, NULL), MG_OK);
        assert_int_equal(mg_res_int(r, 0, 0), 0);
        mg_res_free(r);
    }
    assert_true(stats(&ear_a).queue_usage >= 0 && stats(&ear_a).queue_usage <= 1);
    mg_pg_free(pg);
    stop(&ear_a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wake_up_reaches_the_other_node_and_not_its_sender, setup, teardown),
        cmocka_unit_test_setup_teardown(a_node_alone_sends_nothing_until_another_says_hello, setup, teardown),
        cmocka_unit_test_setup_teardown(wake_ups_are_coalesced_and_the_newest_number_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(many_sessions_at_once_need_several_payloads, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_pending_goes_out_before_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(case_14_a_terminated_listener_comes_back_and_reports_the_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(case_14_a_black_holed_listener_is_found_by_its_own_ping, setup, teardown),
        cmocka_unit_test_setup_teardown(case_14_dropped_wake_ups_are_not_sent_and_later_ones_cover_them, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_collected_while_the_database_was_away_becomes_one_gap, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_revoked_key_is_heard_of_on_every_node, setup, teardown),
        cmocka_unit_test_setup_teardown(case_28_no_event_transaction_touches_the_notification_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(case_29_a_listening_connection_is_never_in_a_transaction, setup, teardown),
    };
    int skipped = pgtest_missing();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
