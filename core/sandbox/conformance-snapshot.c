#include <pthread.h>
#include <unistd.h>

#include "sandbox/conformance-internal.h"

/* Snapshots: what they hold, and what else taking one does (field case 59). */

enum {
    END_AFTER_US = 20000, /* from the begin of a snapshot to the end of its sandbox */
    GO_MS = 60000,        /* for a command that waits beside a snapshot */
};

/* One snapshot, to be taken by a thread too. */
struct taking {
    struct cf *c;
    uint64_t deadline_ns; /* 0: long enough for any service */
    struct mg_cancel *cancel;
    /* out */
    struct mg_buf name;
    struct mg_err err;
    mango_status status;
};

static void *take(void *arg)
{
    struct taking *t = arg;
    struct mango_call call = mg_plugin_call(t->deadline_ns ? t->deadline_ns : cf_in_ms(CF_SLOW_MS), t->cancel, &t->err);
    mg_buf_done(&t->name);
    t->name = MG_BUF_INIT(CF_REF_MAX);
    t->status = t->c->p->sandbox->snapshot(t->c->p->ctx, &call, cf_id(t->c), (struct mango_buf *)&t->name);
    return NULL;
}

/* With its name, or failed and without one. */
static bool whole(struct cf *c, const struct taking *t)
{
    return cf_check(c, (t->status == MANGO_OK) == (t->name.len > 0) && t->status <= 0,
                    "snapshot: status %d, with a name of %zu bytes: %s", (int)t->status, t->name.len, t->err.text);
}

static bool took(struct cf *c, struct taking *t)
{
    (void)take(t);
    return whole(c, t) && cf_check(c, t->status == MANGO_OK, "snapshot: status %d: %s", (int)t->status, t->err.text);
}

/* What is paused or stopped goes on. */
static void wake(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = cf_slow_call(&err);
    if (mg_plugin_can(c->p, MANGO_CAP_PAUSE)) {
        mango_status s = c->p->sandbox->resume(c->p->ctx, &call, cf_id(c));
        (void)cf_check(c, s == MANGO_OK, "resume after a snapshot: status %d: %s", (int)s, err.text);
    } else {
        (void)cf_check(c, cf_attach(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK,
                       "attach after a snapshot failed");
    }
}

static bool snapshot(struct cf *c, struct mg_buf *ret)
{
    struct taking t = {.c = c};
    if (!took(c, &t))
        return false;
    *ret = t.name;
    if (mg_plugin_can(c->p, MANGO_TRAIT_SNAPSHOT_STOPS))
        wake(c);
    return true;
}

static mango_status snapshot_delete(struct cf *c, struct mg_sv snap)
{
    struct mg_err err;
    struct mango_call call = cf_slow_call(&err);
    return c->p->sandbox->snapshot_delete(c->p->ctx, &call, cf_abi(snap));
}

/* A sandbox that begins as the snapshot: by fork where there is one, else by a create whose image it is. */
static bool begin_from(struct cf *c, struct mg_sv snap)
{
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_OPEN};
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec), .network = &net, .image = cf_abi(snap)};
    if (!mg_plugin_can(c->p, MANGO_CAP_FORK))
        return cf_second(c, &spec);
    struct mg_err err;
    mg_auto(buf) struct mg_buf identity = MG_BUF_INIT(CF_REF_MAX);
    struct mg_buf id = MG_BUF_INIT(CF_REF_MAX), root = MG_BUF_INIT(CF_REF_MAX);
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)&id,
                                    .root = (struct mango_buf *)&root,
                                    .identity = (struct mango_buf *)&identity};
    struct mango_call call = cf_slow_call(&err);
    spec.label = (struct mango_sv){c->other_label, strlen(c->other_label)};
    spec.owner = (struct mango_sv){c->owner, strlen(c->owner)};
    mango_status s = c->p->sandbox->fork(c->p->ctx, &call, cf_abi(snap), &spec, &ref);
    bool ok = cf_check(c, s == MANGO_OK && id.len > 0, "fork: status %d: %s", (int)s, err.text) &&
              cf_check(c, !mg_sv_eq(mg_buf_view(&id), mg_buf_view(&c->id)), "fork gave the same sandbox");
    mg_buf_done(&id);
    mg_buf_done(&root);
    return ok && cf_second(c, NULL); /* create finds it by its label */
}

/* The last of the case: what was made from it may have to go first. */
static void drop(struct cf *c, struct mg_sv snap)
{
    mango_status s = snapshot_delete(c, snap);
    if (s == MANGO_ERETRY) { /* a service may refuse while what was made from it lives */
        (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy failed");
        s = snapshot_delete(c, snap);
    }
    (void)cf_check(c, s == MANGO_OK, "snapshot_delete: status %d", (int)s);
}

static void a_snapshot_holds_the_files_of_its_moment(struct cf *c)
{
    mg_auto(buf) struct mg_buf snap = MG_BUF_INIT(CF_REF_MAX);
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("then")) == MANGO_OK, "write failed");
    if (!snapshot(c, &snap))
        return;
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("now")) == MANGO_OK, "write after the snapshot failed");
    (void)cf_says(c, "cat f; touch new", 0, "now");
    if (begin_from(c, mg_buf_view(&snap)))
        (void)cf_says(c, "cat f; ls", 0, "thenf\n");
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("apart")) == MANGO_OK, "write in what was made from it failed");
    drop(c, mg_buf_view(&snap));
}

static void a_snapshot_that_never_was_is_named_so(struct cf *c)
{
    mg_auto(buf) struct mg_buf snap = MG_BUF_INIT(CF_REF_MAX);
    if (!snapshot(c, &snap))
        return;
    mango_status s = snapshot_delete(c, mg_buf_view(&snap));
    (void)cf_check(c, s == MANGO_OK, "snapshot_delete: status %d", (int)s);
    s = snapshot_delete(c, mg_buf_view(&snap));
    (void)cf_check(c, s == MANGO_OK || s == MANGO_ENOENT, "a second snapshot_delete: status %d", (int)s);
    bool failed = c->failed;
    size_t len = c->why.len;
    if (begin_from(c, mg_buf_view(&snap))) {
        (void)cf_check(c, false, "a sandbox was made from a snapshot that was deleted");
        return;
    }
    c->failed = failed; /* refused, as it must be */
    c->why.len = len;
}

static void a_fork_begins_as_its_snapshot(struct cf *c)
{
    if (cf_check(c, mg_plugin_can(c->p, MANGO_CAP_SNAPSHOT), "fork without snapshot: there is nothing to begin from"))
        a_snapshot_holds_the_files_of_its_moment(c);
}

/* ---- what else it does ---- */

/* A child that counts goes on with no call in between, unless the trait says otherwise; then the next use, an attach as
 * after a restart, finds a sandbox that runs. */
static void case_59_the_capability_says_whether_a_snapshot_stops_the_sandbox(struct cf *c)
{
    struct taking t = {.c = c};
    (void)cf_says(c, "(while :; do echo >>ticks; sleep 0.1; done) >/dev/null 2>&1 & echo $! >pid", 0, "");
    (void)cf_until(c, "test -s ticks && echo ticks", "ticks\n");
    if (!took(c, &t))
        return;
    if (mg_plugin_can(c->p, MANGO_TRAIT_SNAPSHOT_STOPS)) {
        cf_detach(c, mg_buf_view(&c->id));
        (void)cf_check(c, cf_attach(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "the next attach failed");
        (void)cf_says(c, "test -s ticks && echo kept", 0, "kept\n");
    } else {
        (void)cf_says(c, "kill -0 $(cat pid) && wc -l <ticks >before", 0, "");
        (void)cf_until(c, "test $(wc -l <ticks) -gt $(cat before) && echo on", "on\n");
    }
    drop(c, mg_buf_view(&t.name));
    mg_buf_done(&t.name);
}

static void case_59_a_command_beside_a_snapshot_tells_how_it_ended(struct cf *c)
{
    struct cf_beside w = {.c = c,
                          .x = {.script = "mkfifo go; echo begun >begun; cat go; echo whole", .limit_ms = GO_MS}};
    struct taking t = {.c = c};
    pthread_t thread;
    cf_thread(&thread, cf_exec_beside, &w);
    (void)cf_until(c, "cat begun", "begun\n");
    bool ok = took(c, &t);
    if (mg_plugin_can(c->p, MANGO_TRAIT_SNAPSHOT_STOPS))
        wake(c);
    (void)cf_says(c, "echo on 1<>go", 0, ""); /* waits for no reader */
    pthread_join(thread, NULL);
    bool to_its_end = w.x.status == MANGO_OK && w.x.r.exited && w.x.r.exit_code == 0;
    bool all = mg_sv_eqz(mg_buf_view(&w.x.out), "on\nwhole\n");
    (void)cf_check(c, to_its_end ? all : mg_plugin_can(c->p, MANGO_TRAIT_SNAPSHOT_STOPS),
                   "the command: status %d, exited %d, code %d, '%.*s'", (int)w.x.status, w.x.r.exited,
                   (int)w.x.r.exit_code, (int)(w.x.out.len < 40 ? w.x.out.len : 40), mg_buf_view(&w.x.out).ptr);
    cf_exec_done(&w.x);
    if (ok && begin_from(c, mg_buf_view(&t.name)))
        (void)cf_says(c, "cat begun", 0, "begun\n");
    if (ok)
        drop(c, mg_buf_view(&t.name));
    mg_buf_done(&t.name);
}

/* The first is asked for as soon as the sandbox is there; those that fail run out of time at several points. */
static void case_59_a_snapshot_that_fails_leaves_the_one_before(struct cf *c)
{
    static const unsigned limits_ms[] = {1, 20, 150};
    struct taking first = {.c = c}, t = {.c = c};
    bool ok = took(c, &first);
    wake(c);
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("now")) == MANGO_OK, "write failed");
    for (size_t i = 0; i <= sizeof(limits_ms) / sizeof(limits_ms[0]); i++) {
        bool cancelled = i == sizeof(limits_ms) / sizeof(limits_ms[0]);
        t.deadline_ns = cancelled ? 0 : cf_in_ms(limits_ms[i]);
        t.cancel = cancelled ? mg_cancel_new() : NULL;
        if (cancelled)
            mg_cancel_fire(t.cancel);
        (void)take(&t);
        (void)whole(c, &t);
        (void)cf_check(c, !cancelled || t.status < 0, "a snapshot was taken though it was cancelled before");
        if (t.status == MANGO_OK)
            (void)cf_check(c, snapshot_delete(c, mg_buf_view(&t.name)) == MANGO_OK, "snapshot_delete failed");
        mg_cancel_unref(t.cancel);
        wake(c);
        (void)cf_says(c, "cat f", 0, "now");
    }
    if (ok && begin_from(c, mg_buf_view(&first.name)))
        (void)cf_says(c, "ls", 0, "");
    if (ok)
        drop(c, mg_buf_view(&first.name));
    mg_buf_done(&t.name);
    mg_buf_done(&first.name);
}

static void case_59_a_sandbox_that_ends_during_a_snapshot(struct cf *c)
{
    mg_auto(buf) struct mg_buf snap = MG_BUF_INIT(CF_REF_MAX);
    struct taking t = {.c = c};
    pthread_t thread;
    (void)cf_check(c, cf_write(c, MG_SV("f"), MG_SV("then")) == MANGO_OK, "write failed");
    if (!snapshot(c, &snap))
        return;
    cf_thread(&thread, take, &t);
    (void)usleep(END_AFTER_US);
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy beside it failed");
    pthread_join(thread, NULL);
    (void)whole(c, &t);
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    (void)cf_check(c, s == MANGO_EGONE, "attach afterwards: status %d, wanted MANGO_EGONE", (int)s);
    if (t.status == MANGO_OK)
        (void)cf_check(c, snapshot_delete(c, mg_buf_view(&t.name)) == MANGO_OK, "snapshot_delete failed");
    if (begin_from(c, mg_buf_view(&snap)))
        (void)cf_says(c, "cat f", 0, "then");
    drop(c, mg_buf_view(&snap));
    mg_buf_done(&t.name);
}

const struct cf_case cf_snapshot_cases[] = {
    CF_CASE(MANGO_CAP_SNAPSHOT, a_snapshot_holds_the_files_of_its_moment),
    CF_CASE(MANGO_CAP_SNAPSHOT, a_snapshot_that_never_was_is_named_so),
    CF_CASE(MANGO_CAP_FORK, a_fork_begins_as_its_snapshot),
    CF_CASE(MANGO_CAP_SNAPSHOT, case_59_the_capability_says_whether_a_snapshot_stops_the_sandbox),
    CF_CASE(MANGO_CAP_SNAPSHOT | MANGO_CAP_CONCURRENT_EXEC, case_59_a_command_beside_a_snapshot_tells_how_it_ended),
    CF_CASE(MANGO_CAP_SNAPSHOT, case_59_a_snapshot_that_fails_leaves_the_one_before),
    CF_CASE(MANGO_CAP_SNAPSHOT, case_59_a_sandbox_that_ends_during_a_snapshot),
    {NULL, 0, NULL},
};
