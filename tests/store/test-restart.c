/* A pool of connections while its server is restarted and killed (field case 34). */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "store/child.h"
#include "store/embedded.h"
#include "store/pg.h"

enum { THREADS = 8, IDS = 200000, BACK_S = 15, RESTARTS = 4 };

enum fate { NEVER, REFUSED, UNKNOWN, ACKED };

static char top[64];
static struct mg_state_dir dir;
static struct mg_embedded *server;
static _Atomic(uint8_t) fates[IDS];
static atomic_int next_id, wrong;
static atomic_uint successes[THREADS];
static atomic_bool over;

static int setup(void **state)
{
    (void)state;
    struct mg_err err = {0};
    snprintf(top, sizeof(top), "/tmp/mango-restart.XXXXXX");
    if (!mkdtemp(top) || chmod(top, 0755) != 0)
        return -1;
    char path[80];
    snprintf(path, sizeof(path), "%s/state", top);
    if (mg_state_dir_open(path, &dir, &err) < 0 || mg_embedded_start(&dir, NULL, &server, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[128];
    int k = mg_embedded_stop(server, NULL);
    mg_embedded_free(server);
    mg_state_dir_close(&dir);
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
    return k < 0 ? -1 : system(cmd);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void *work(void *arg)
{
    static const struct mg_stmt insert = {"insert", "INSERT INTO accepted (id) VALUES ($1::int)"};
    atomic_uint *mine = arg;
    struct mg_pg *pg = mg_pg_new(mg_embedded_conninfo(server));
    while (!atomic_load(&over)) {
        char text[16];
        int id = atomic_fetch_add(&next_id, 1);
        if (id >= IDS)
            break;
        snprintf(text, sizeof(text), "%d", id);
        const struct mg_sv p = mg_sv_of(text);
        struct mg_err err = {0};
        mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
        mg_rc rc = mg_txn_queue(&t, &insert, &p, 1, -1, &err);
        if (rc == 0)
            rc = mg_txn_commit(&t, &err);
        bool unknown = rc < 0 && strcmp(err.code, "commit_unknown") == 0;
        fates[id] = rc == 0 ? ACKED : unknown ? UNKNOWN : REFUSED;
        if (rc == 0) {
            atomic_fetch_add(mine, 1);
        } else {
            if (rc != MG_EUNAVAIL || err.retry_after_s == 0) {
                fprintf(stderr, "unexpected: %s %s\n", mg_rc_name(rc), err.text);
                if (!unknown)
                    atomic_fetch_add(&wrong, 1);
            }
            pause_ms(5); /* a client that tries again */
        }
    }
    mg_pg_free(pg);
    return NULL;
}

static int64_t select_int(const char *sql)
{
    struct mg_pg *pg = mg_pg_new(mg_embedded_conninfo(server));
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    if (mg_pg_exec(pg, &(struct mg_stmt){"q", sql}, NULL, 0, &r, &err) < 0)
        fail_msg("%s %s", err.text, mg_pg_diag(pg));
    int64_t n = mg_res_int(r, 0, 0);
    mg_res_free(r);
    mg_pg_free(pg);
    return n;
}

/* Every thread gets a commit through again. */
static void all_work_again(void)
{
    unsigned before[THREADS];
    for (int i = 0; i < THREADS; i++)
        before[i] = atomic_load(&successes[i]);
    uint64_t end = mg_now_ns() + (uint64_t)BACK_S * 1000000000;
    for (int i = 0; i < THREADS; i++) {
        while (atomic_load(&successes[i]) == before[i]) {
            assert_true(mg_now_ns() < end);
            pause_ms(2);
        }
    }
}

static void restart(bool kill_it)
{
    struct mg_err err = {0};
    if (kill_it) {
        pid_t pid = (pid_t)mg_embedded_pid(server);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_true(mg_process_ends(pid, 10000));
    } else {
        assert_int_equal(mg_embedded_stop(server, &err), MG_OK);
    }
    pause_ms(300); /* the pool meets a server that is away */
    if (mg_embedded_revive(server, &err) < 0)
        fail_msg("%s", err.text);
}

static void case_34_a_pool_survives_restarts_and_nothing_accepted_is_lost(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    struct mg_pg *pg = mg_pg_new(mg_embedded_conninfo(server));
    assert_int_equal(mg_pg_script(pg, "CREATE TABLE accepted (id int PRIMARY KEY)", NULL), MG_OK);
    mg_pg_free(pg);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &successes[i]), 0);
    all_work_again();
    for (int i = 0; i < RESTARTS; i++) {
        restart(i % 2 == 1);
        all_work_again();
        assert_true(select_int("SELECT count(*) FROM pg_stat_activity WHERE datname = 'mango'") <= THREADS + 1);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);

    int n[4] = {0}, lost = 0, ghosts = 0;
    pg = mg_pg_new(mg_embedded_conninfo(server));
    struct mg_res *r = NULL;
    assert_int_equal(mg_pg_exec(pg, &(struct mg_stmt){"ids", "SELECT id FROM accepted"}, NULL, 0, &r, NULL), MG_OK);
    uint8_t *there = mg_xcalloc(IDS, 1);
    for (int i = 0; i < mg_res_rows(r); i++)
        there[mg_res_int(r, i, 0)] = 1;
    for (int i = 0; i < IDS; i++) {
        n[fates[i]]++;
        lost += fates[i] == ACKED && !there[i];
        ghosts += fates[i] == REFUSED && there[i];
    }
    print_message("acknowledged %d, refused %d, unknown %d\n", n[ACKED], n[REFUSED], n[UNKNOWN]);
    assert_int_equal(lost, 0);
    assert_int_equal(ghosts, 0);
    assert_int_equal(atomic_load(&wrong), 0);
    free(there);
    mg_res_free(r);
    mg_pg_free(pg);
}

static void too_many_connections_is_an_answer_to_try_again(void **state)
{
    (void)state;
    struct mg_pg *admin = mg_pg_new(mg_embedded_conninfo(server));
    assert_int_equal(mg_pg_script(admin, "CREATE ROLE one LOGIN CONNECTION LIMIT 1", NULL), MG_OK);
    char *conninfo = NULL;
    assert_true(asprintf(&conninfo, "%s user=one", mg_embedded_conninfo(server)) > 0);
    struct mg_pg *first = mg_pg_new(conninfo), *second = mg_pg_new(conninfo);
    struct mg_err err = {0};
    assert_int_equal(mg_pg_connect(first, &err), MG_OK);
    assert_int_equal(mg_pg_connect(second, &err), MG_EUNAVAIL);
    assert_true(err.retry_after_s > 0);
    assert_non_null(strstr(mg_pg_diag(second), "too many connections"));
    mg_pg_close(first);
    uint64_t end = mg_now_ns() + 10000000000;
    while (mg_pg_connect(second, &err) < 0) {
        assert_true(mg_now_ns() < end);
        pause_ms(5);
    }
    mg_pg_free(first);
    mg_pg_free(second);
    mg_pg_free(admin);
    free(conninfo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_34_a_pool_survives_restarts_and_nothing_accepted_is_lost),
        cmocka_unit_test(too_many_connections_is_an_answer_to_try_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
