/* The circuit breaker of a sandbox backend, driven by a backend that answers as it is told. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "mango/plugin.h"
#include "sandbox/health.h"
#include "sandbox/internal.h"

enum {
    DEADLINE_MS = 60000,
    HELD_MS = 10000, /* after that a check answers though it is held: a second one would wait for itself */
    LOOK_US = 5000,
};

static atomic_bool well;    /* what a check hears */
static atomic_bool held;    /* checks wait while it is set */
static atomic_uint n_begun; /* checks */

static mango_status health(void *ctx, const struct mango_call *call)
{
    (void)ctx;
    (void)call;
    atomic_fetch_add(&n_begun, 1);
    for (int i = 0; atomic_load(&held) && i < HELD_MS * 1000 / LOOK_US; i++)
        usleep(LOOK_US);
    return atomic_load(&well) ? MANGO_OK : MANGO_ERETRY;
}

static const struct mango_sandbox_ops ops = {.struct_size = sizeof(ops), .health = health};
static const struct mango_plugin desc = {.struct_size = sizeof(desc), .name = "told", .sandbox = &ops};

struct fixture {
    struct mg_plugin plugin;
    struct mg_sandboxes *m;
    struct mg_backend *b;
};

static int up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->plugin = (struct mg_plugin){.desc = &desc, .sandbox = &ops, .name = "told"};
    f->m = mg_sandboxes_new(&(struct mg_sandboxes_opts){.deployment_id = MG_SV("d")});
    f->b = mg_backend_of(f->m, &f->plugin);
    atomic_store(&well, true);
    atomic_store(&held, false);
    atomic_store(&n_begun, 0);
    *state = f;
    return 0;
}

static int down(void **state)
{
    struct fixture *f = *state;
    mg_sandboxes_free(f->m);
    free(f);
    return 0;
}

static bool refused(struct fixture *f)
{
    struct mg_err err = {0};
    mg_rc rc = mg_backend_gate(f->b, &err);
    if (rc == MG_OK)
        return false;
    assert_int_equal(rc, MG_EUNAVAIL);
    assert_string_equal(err.code, "backend_down");
    assert_non_null(strstr(err.text, "'told'"));
    return true;
}

static void fail_calls(struct fixture *f, int n)
{
    for (int i = 0; i < n; i++)
        mg_backend_note(f->b, false, "no answer");
}

/* Asks until one more check has begun. */
static void next_check(struct fixture *f)
{
    unsigned before = atomic_load(&n_begun);
    uint64_t deadline = mg_now_ns() + DEADLINE_MS * UINT64_C(1000000);
    while (atomic_load(&n_begun) == before) {
        assert_true(mg_now_ns() < deadline);
        (void)refused(f);
        usleep(LOOK_US);
    }
}

/* That there were no more checks; says nothing where this process was held up for so long that one was due. */
static void checks_were(unsigned n, uint64_t since, uint64_t due_ms)
{
    unsigned seen = atomic_load(&n_begun);
    if (mg_now_ns() - since < due_ms * UINT64_C(1000000))
        assert_int_equal(seen, n);
}

static void a_young_answer_needs_no_check(void **state)
{
    struct fixture *f = *state;
    assert_false(refused(f));
    assert_int_equal(atomic_load(&n_begun), 1);
    uint64_t since = mg_now_ns();
    mg_backend_note(f->b, true, NULL);
    assert_false(refused(f));
    checks_were(1, since, MG_HEALTH_FRESH_MS);
}

static void calls_without_an_answer_open_the_circuit(void **state)
{
    struct fixture *f = *state;
    assert_false(refused(f));
    fail_calls(f, MG_HEALTH_FAILURES_MAX - 1);
    assert_false(refused(f)); /* it is asked, and answers: that counts from the beginning */
    assert_int_equal(atomic_load(&n_begun), 2);
    atomic_store(&well, false);
    uint64_t since = mg_now_ns();
    fail_calls(f, MG_HEALTH_FAILURES_MAX);
    assert_true(refused(f));
    mg_backend_note(f->b, true, NULL); /* of a call that was on its way */
    assert_true(refused(f));
    checks_were(2, since, MG_HEALTH_BACKOFF_MS / 2); /* nothing goes to the backend */
}

static void *ask(void *arg)
{
    next_check(arg);
    return NULL;
}

static void one_caller_tries_for_all(void **state)
{
    struct fixture *f = *state;
    pthread_t trying;
    fail_calls(f, MG_HEALTH_FAILURES_MAX);
    atomic_store(&held, true);
    assert_int_equal(pthread_create(&trying, NULL, ask, f), 0);
    for (uint64_t deadline = mg_now_ns() + DEADLINE_MS * UINT64_C(1000000); atomic_load(&n_begun) == 0;) {
        assert_true(mg_now_ns() < deadline);
        usleep(LOOK_US);
    }
    for (int i = 0; i < 10; i++)
        assert_true(refused(f)); /* at once, while the check is under way */
    assert_int_equal(atomic_load(&n_begun), 1);
    atomic_store(&held, false);
    pthread_join(trying, NULL);
    assert_int_equal(atomic_load(&n_begun), 1);
    assert_false(refused(f));
}

static void each_check_that_fails_lengthens_the_pause(void **state)
{
    struct fixture *f = *state;
    atomic_store(&well, false);
    fail_calls(f, MG_HEALTH_FAILURES_MAX);
    next_check(f);
    uint64_t first = mg_now_ns();
    next_check(f);
    assert_true(mg_now_ns() - first >= MG_HEALTH_BACKOFF_MS * UINT64_C(1000000)); /* half of the double, at least */
    assert_true(refused(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_young_answer_needs_no_check, up, down),
        cmocka_unit_test_setup_teardown(calls_without_an_answer_open_the_circuit, up, down),
        cmocka_unit_test_setup_teardown(one_caller_tries_for_all, up, down),
        cmocka_unit_test_setup_teardown(each_check_that_fails_lengthens_the_pause, up, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
