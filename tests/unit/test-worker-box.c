/* One box of the supervisor, with a launcher that fails and lies. */
#include "unit.h"

#include "base/clock.h"
#include "support/stub.h"
#include "worker/box.h"

#define STOP "POST /v1/environments/env_1/work/work_1/stop"

enum { STEPS_MAX = 16 };

/* What the launcher does, step by step; what it was asked. */
struct liar {
    bool no_id;
    mango_status launch;
    struct {
        mango_status status;
        uint32_t state; /* 0: as it was */
        int exit_code;  /* -1: unknown */
    } watch[STEPS_MAX];
    int stop_fails; /* so many times */
    /* seen */
    int n_watch, n_stop;
    uint64_t last_grace_ms;
    char argv[256], env[1024];
};

struct fixture {
    struct stub *stub;
    struct mg_net *net;
    struct liar liar;
    struct mango_launcher_ops ops;
    struct mango_plugin desc;
    struct mg_plugin plugin;
    struct mg_box_kind kind;
    struct mg_work_item item;
};

static void note(char *to, size_t size, const struct mango_sv *v, uint64_t n)
{
    size_t at = 0;
    for (uint64_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(to + at, size - at, "%.*s ", (int)v[i].len, v[i].ptr);
}

static mango_status launch(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                           struct mango_buf *ret_id)
{
    struct liar *l = ctx;
    (void)call;
    note(l->argv, sizeof(l->argv), spec->argv, spec->n_argv);
    note(l->env, sizeof(l->env), spec->env, spec->n_env);
    if (l->launch == MANGO_OK && !l->no_id)
        assert_int_equal(mg_buf_str((struct mg_buf *)ret_id, "box"), MG_OK);
    return l->launch;
}

static mango_status watch(void *ctx, const struct mango_call *call, struct mango_sv id,
                          struct mango_launch_state *state)
{
    struct liar *l = ctx;
    (void)call;
    (void)id;
    int i = l->n_watch < STEPS_MAX ? l->n_watch : STEPS_MAX - 1;
    l->n_watch++;
    if (l->watch[i].state)
        state->state = l->watch[i].state;
    state->result.exited = l->watch[i].exit_code >= 0;
    state->result.exit_code = l->watch[i].exit_code;
    state->result.unknown = l->watch[i].exit_code < 0;
    return l->watch[i].status;
}

static mango_status stop(void *ctx, const struct mango_call *call, struct mango_sv id, uint64_t grace_ms)
{
    struct liar *l = ctx;
    (void)call;
    (void)id;
    l->n_stop++;
    l->last_grace_ms = grace_ms;
    return l->n_stop <= l->stop_fails ? MANGO_ERETRY : MANGO_OK;
}

static mango_status persists(void *ctx, const struct mango_call *call, const struct mango_launch_spec *spec,
                             struct mango_persists *ret)
{
    (void)ctx;
    (void)call;
    (void)spec;
    ret->what = 0;
    return MANGO_OK;
}

static int setup(void **state)
{
    struct fixture *f = mg_xcalloc(1, sizeof(*f));
    struct mg_err err = {0};
    f->stub = stub_start();
    assert_int_equal(mg_net_open(&(struct mg_net_opts){.name = "worker"}, &f->net, &err), MG_OK);
    f->ops = (struct mango_launcher_ops){
        .struct_size = sizeof(f->ops), .launch = launch, .watch = watch, .stop = stop, .persists = persists};
    f->plugin = (struct mg_plugin){.desc = &f->desc, .ctx = &f->liar, .launcher = &f->ops, .name = "liar"};
    f->kind = (struct mg_box_kind){.launcher = &f->plugin,
                                   .net = f->net,
                                   .stop = mg_cancel_new(),
                                   .base_url = mg_xstrdup(stub_url(f->stub)),
                                   .box_base_url = mg_xstrdup("http://inside:8080"),
                                   .environment_id = mg_xstrdup("env_1"),
                                   .grace_ms = 1234};
    mg_work_item_set(&f->item, "work_1", "env_1", "sesn_1", "eyJzZXNzaW9uc190b2tlbiI6InNrLXRva2VuIn0");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mg_work_item_done(&f->item);
    mg_net_close(f->net);
    stub_stop(f->stub);
    mg_cancel_unref(f->kind.stop);
    free(f->kind.base_url);
    free(f->kind.box_base_url);
    free(f->kind.environment_id);
    free(f);
    return 0;
}

static void ends_with(struct fixture *f, int at, uint32_t state, int exit_code)
{
    f->liar.watch[at].state = state;
    f->liar.watch[at].exit_code = exit_code;
}

static void a_box_gets_its_item_and_no_key(void **state)
{
    struct fixture *f = *state;
    f->kind.args[f->kind.n_args++] = "--max-idle=1s";
    ends_with(f, 0, MANGO_LAUNCH_ENDED, 0);
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    f->kind.n_args = 0;
    assert_string_equal(f->liar.argv, "mango-worker run --max-idle=1s ");
    assert_contains(f->liar.env,
                    "ANTHROPIC_WORK_ID=work_1 ANTHROPIC_SESSION_ID=sesn_1 ANTHROPIC_ENVIRONMENT_ID=env_1 ");
    assert_contains(f->liar.env, "ANTHROPIC_WORK_SECRET=eyJz");
    assert_contains(f->liar.env, "ANTHROPIC_BASE_URL=http://inside:8080 ");
    assert_null(strstr(f->liar.env, "KEY"));
    assert_null(stub_request(f->stub, 0)); /* the worker saw to its item itself */
    assert_int_equal(f->liar.n_stop, 1);
    assert_int_equal(f->liar.last_grace_ms, 0);
}

static void an_item_whose_box_cannot_be_launched_is_given_back(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        f->liar.launch = i == 0 ? MANGO_EINVALID : MANGO_OK;
        f->liar.no_id = i == 1;
        stub_json(f->stub, STOP, 200, "", "{}");
        assert_true(mg_box_serve(&f->kind, &f->item) < 0);
        assert_string_equal(stub_request(f->stub, i), STOP);
        assert_contains(stub_head(f->stub, i), "Bearer sk-token\r\n");
    }
    assert_int_equal(f->liar.n_stop, 0);
}

static void a_box_that_fails_has_its_item_given_back(void **state)
{
    struct fixture *f = *state;
    static const int exits[] = {-1, 1, 137};
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); i++) {
        f->liar = (struct liar){.launch = MANGO_OK};
        ends_with(f, 0, MANGO_LAUNCH_ENDED, exits[i]);
        stub_json(f->stub, STOP, 409, "",
                  "{\"type\":\"error\",\"error\":{\"type\":\"conflict_error\",\"message\":\"over\"}}");
        assert_true(mg_box_serve(&f->kind, &f->item) < 0); /* at once: the next claim waits */
        assert_string_equal(stub_request(f->stub, (int)i), STOP);
    }
}

static void a_lost_lease_is_nobodys_failure(void **state)
{
    struct fixture *f = *state;
    ends_with(f, 0, MANGO_LAUNCH_ENDED, 3);
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    assert_null(stub_request(f->stub, 0));
}

static void what_is_no_state_is_no_end_and_no_busy_loop(void **state)
{
    struct fixture *f = *state;
    uint64_t since = mg_now_ns();
    ends_with(f, 0, 42, -1);
    ends_with(f, 1, 42, -1);
    ends_with(f, 2, MANGO_LAUNCH_ENDED, 0);
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    assert_int_equal(f->liar.n_watch, 3);
    assert_true(mg_now_ns() - since > UINT64_C(500000000)); /* the same again at once is waited out */
}

static void a_watch_that_fails_is_made_again(void **state)
{
    struct fixture *f = *state;
    f->liar.watch[0].status = MANGO_ERETRY;
    f->liar.watch[0].state = MANGO_LAUNCH_RUNNING;
    ends_with(f, 1, MANGO_LAUNCH_ENDED, 0);
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    assert_int_equal(f->liar.n_watch, 2);
}

static void a_box_is_removed_until_it_is_gone(void **state)
{
    struct fixture *f = *state;
    f->liar.stop_fails = 2;
    ends_with(f, 0, MANGO_LAUNCH_ENDED, 0);
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    assert_int_equal(f->liar.n_stop, 3);
}

static void a_stop_asks_the_box_to_end_and_removes_it(void **state)
{
    struct fixture *f = *state;
    mg_cancel_fire(f->kind.stop);
    stub_json(f->stub, STOP, 200, "", "{}");
    assert_int_equal(mg_box_serve(&f->kind, &f->item), MG_OK);
    assert_int_equal(f->liar.n_watch, 0);
    assert_int_equal(f->liar.n_stop, 2); /* with its grace, then the removal */
}

static void a_box_that_was_found_is_watched_and_removed(void **state)
{
    struct fixture *f = *state;
    ends_with(f, 0, MANGO_LAUNCH_RUNNING, -1);
    ends_with(f, 1, MANGO_LAUNCH_GONE, -1);
    (void)!mg_box_adopt(&f->kind, "box");
    assert_int_equal(f->liar.n_watch, 2);
    assert_int_equal(f->liar.n_stop, 1);
    assert_null(stub_request(f->stub, 0)); /* its token is not known */
}

static void labels_tell_sessions_and_servers_apart(void **state)
{
    (void)state;
    char a[MG_SUPERVISE_KEY], b[MG_SUPERVISE_KEY], c[MG_SUPERVISE_KEY], again[MG_SUPERVISE_KEY];
    mg_supervisor_label("http://x", "sesn_1", a);
    mg_supervisor_label("http://x", "sesn_2", b);
    mg_supervisor_label("http://xs", "esn_1", c);
    mg_supervisor_label("http://x", "sesn_1", again);
    assert_int_equal(strlen(a), 32);
    assert_string_equal(a, again);
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, c);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_box_gets_its_item_and_no_key),
        CASE(an_item_whose_box_cannot_be_launched_is_given_back),
        CASE(a_box_that_fails_has_its_item_given_back),
        CASE(a_lost_lease_is_nobodys_failure),
        CASE(what_is_no_state_is_no_end_and_no_busy_loop),
        CASE(a_watch_that_fails_is_made_again),
        CASE(a_box_is_removed_until_it_is_gone),
        CASE(a_stop_asks_the_box_to_end_and_removes_it),
        CASE(a_box_that_was_found_is_watched_and_removed),
        cmocka_unit_test(labels_tell_sessions_and_servers_apart),
    };

    return RUN(tests);
}
