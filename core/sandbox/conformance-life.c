#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "sandbox/conformance-internal.h"

/* Making, finding and ending sandboxes: what every backend must do. */

enum {
    CREATORS = 4,     /* clients of this process that create at once */
    BOXES = 8,        /* sandboxes at work at a time */
    BEGUN_MS = 10000, /* for a call in another thread to be under way */
    LOOK_US = 20000,
};

static void creates_one_sandbox_for_one_label(struct cf *c)
{
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(CF_REF_MAX);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(CF_REF_MAX);
    (void)cf_check(c, mg_buf_view(&c->root).len > 0 && c->root.ptr[0] == '/', "the root is no absolute path");
    (void)cf_check(c, cf_write(c, MG_SV("kept"), MG_SV("x")) == MANGO_OK, "write failed");
    (void)cf_check(c, cf_create(c, c->p, c->label, &id, &root) == MANGO_OK, "a second create failed");
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&id), mg_buf_view(&c->id)), "a second create gave another sandbox");
    (void)cf_holds(c, "kept", "x");
    (void)cf_check(c, strcmp(c->p->desc->name, c->opts->name) == 0, "the name is not stable");
}

/* ---- several at once ---- */

struct race {
    struct cf c;
    const char *label;
    struct mg_buf id, root;
    mango_status status;
};

static void race_begin(struct race *r, const struct cf *c, const char *label)
{
    *r = (struct race){.label = label, .id = MG_BUF_INIT(CF_REF_MAX), .root = MG_BUF_INIT(CF_REF_MAX)};
    r->c = (struct cf){.opts = c->opts, .p = c->p, .why = MG_BUF_INIT(CF_TEXT_MAX), .notes = MG_BUF_INIT(CF_TEXT_MAX)};
    memcpy(r->c.owner, c->owner, sizeof(r->c.owner));
    memcpy(r->c.mark, c->mark, sizeof(r->c.mark));
}

static void race_done(struct race *r)
{
    mg_buf_done(&r->c.why);
    mg_buf_done(&r->c.notes);
    mg_buf_done(&r->id);
    mg_buf_done(&r->root);
}

static void *race_create(void *arg)
{
    struct race *r = arg;
    r->status = cf_create(&r->c, r->c.p, r->label, &r->id, &r->root);
    return NULL;
}

static void two_creates_at_once_make_one(struct cf *c)
{
    struct race r[CREATORS];
    pthread_t t[CREATORS];
    for (int i = 0; i < CREATORS; i++) {
        race_begin(&r[i], c, c->other_label);
        cf_thread(&t[i], race_create, &r[i]);
    }
    for (int i = 0; i < CREATORS; i++) {
        pthread_join(t[i], NULL);
        (void)cf_check(c, r[i].status == MANGO_OK, "create %d: status %d", i, (int)r[i].status);
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&r[i].id), mg_buf_view(&r[0].id)), "create %d gave another sandbox", i);
    }
    (void)cf_check(c, cf_destroy(c, c->p, c->other_label, mg_buf_view(&r[0].id)) == MANGO_OK, "destroy failed");
    for (int i = 0; i < CREATORS; i++)
        race_done(&r[i]);
}

/* One sandbox of many: makes it, works in it, ends it. */
static void *race_work(void *arg)
{
    struct race *r = arg;
    struct cf *c = &r->c;
    r->status = cf_create(c, c->p, r->label, &c->id, &c->root);
    if (cf_check(c, r->status == MANGO_OK, "create: status %d", (int)r->status)) {
        (void)cf_check(c, cf_write(c, MG_SV("own"), mg_sv_of(r->label)) == MANGO_OK, "write failed");
        (void)cf_says(c, "ls; exit 4", 4, "own\n");
        (void)cf_holds(c, "own", r->label);
    }
    (void)cf_check(c, cf_destroy(c, c->p, r->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy failed");
    mg_buf_done(&c->id);
    mg_buf_done(&c->root);
    return NULL;
}

static void many_sandboxes_at_a_time_do_not_meet(struct cf *c)
{
    struct race r[BOXES];
    pthread_t t[BOXES];
    char labels[BOXES][CF_LABEL_LEN];
    for (int i = 0; i < BOXES; i++) {
        cf_random_label(labels[i]);
        race_begin(&r[i], c, labels[i]);
        r[i].c.id = r[i].c.root = MG_BUF_INIT(CF_REF_MAX);
        cf_thread(&t[i], race_work, &r[i]);
    }
    for (int i = 0; i < BOXES; i++) {
        pthread_join(t[i], NULL);
        (void)cf_check(c, !r[i].c.failed, "sandbox %d of %d: %s", i, BOXES, mg_buf_view(&r[i].c.why).ptr);
        race_done(&r[i]);
    }
}

/* ---- finding it again ---- */

static void files_survive_a_restart(struct cf *c)
{
    (void)cf_check(c, cf_write(c, MG_SV("nested/state.bin"), MG_SV("a\0b\n")) == MANGO_OK, "write failed");
    (void)cf_says(c, "echo shell >by-shell", 0, "");
    if (!cf_restart(c))
        return;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
    int32_t eof = 0;
    (void)cf_check(c, cf_read(c, MG_SV("nested/state.bin"), 0, 64, &out, &eof) == MANGO_OK && eof == 1, "read failed");
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&out), MG_SV("a\0b\n")), "the content is another");
    (void)cf_holds(c, "by-shell", "shell\n");
    (void)cf_says(c, "echo again", 0, "again\n");
}

static void foreign_labels_are_refused(struct cf *c)
{
    mango_status s = cf_attach(c, c->p, c->other_label, mg_buf_view(&c->id));
    (void)cf_check(c, s == MANGO_EDENIED, "attach with another label: status %d, wanted MANGO_EDENIED", (int)s);
    mg_buf_reset(&c->why);
    s = cf_destroy(c, c->p, c->other_label, mg_buf_view(&c->id));
    (void)cf_check(c, s < 0, "destroy with another label succeeded");
    (void)cf_says(c, "echo alive", 0, "alive\n");
}

static void a_reference_to_nothing_makes_nothing(struct cf *c)
{
    mg_auto(buf) struct mg_buf other = MG_BUF_INIT(CF_REF_MAX);
    (void)mg_buf_sv(&other, mg_buf_view(&c->id));
    for (size_t i = 0; i < other.len; i++) { /* the same form, another sandbox */
        if (other.ptr[i] >= '0' && other.ptr[i] <= '8')
            other.ptr[i]++;
    }
    (void)mg_buf_char(&other, 'z');
    mango_status s = cf_attach(c, c->p, c->other_label, mg_buf_view(&other));
    (void)cf_check(c, s == MANGO_EGONE || s == MANGO_EDENIED,
                   "attach to an id that never was: status %d, wanted MANGO_EGONE or MANGO_EDENIED", (int)s);
    s = cf_destroy(c, c->p, c->other_label, mg_sv_n("", 0));
    (void)cf_check(c, s == MANGO_OK, "destroy by a label that never was: status %d, wanted MANGO_OK", (int)s);
}

/* ---- the end ---- */

static void destroy_is_idempotent_and_final(struct cf *c)
{
    (void)cf_write(c, MG_SV("x"), MG_SV("y"));
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "first destroy failed");
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "second destroy failed");
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_sv_n("", 0)) == MANGO_OK, "destroy by label alone failed");
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    (void)cf_check(c, s == MANGO_EGONE, "attach after destroy: status %d, wanted MANGO_EGONE", (int)s);
}

static void a_new_sandbox_under_an_old_label_is_empty(struct cf *c)
{
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(CF_REF_MAX);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(CF_REF_MAX);
    (void)cf_write(c, MG_SV("old"), MG_SV("y"));
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_sv_n("", 0)) == MANGO_OK, "destroy by the label failed");
    if (!cf_check(c, cf_create(c, c->p, c->label, &id, &root) == MANGO_OK, "create after destroy failed"))
        return;
    mg_buf_reset(&c->id);
    (void)mg_buf_sv(&c->id, mg_buf_view(&id));
    (void)cf_says(c, "ls", 0, "");
}

/* A process that a command left behind must not outlive the sandbox: looked for from another one, which sees it where
 * the backend shows the host's processes. */
static void nothing_outlives_destroy(struct cf *c)
{
    (void)cf_says(c, "sleep $MARK >/dev/null 2>&1 & echo $(( $! > 1 ))", 0, "1\n");
    if (!cf_second(c, NULL))
        return;
    (void)cf_check(c, cf_destroy(c, c->p, c->other_label, mg_sv_n("", 0)) == MANGO_OK, "destroy failed");
    (void)cf_nothing_left(c);
}

struct ender {
    struct cf *c;
    mango_status exec, write;
    _Atomic bool stop;
    unsigned writes;
};

static void *run_forever(void *arg)
{
    struct ender *e = arg;
    struct cf_exec x = {.script = "echo begun >begun; sleep $MARK"};
    cf_exec(e->c, &x);
    e->exec = x.r.exited && x.r.exit_code == 0 ? MANGO_OK : x.status < 0 ? x.status : MANGO_ERETRY;
    cf_exec_done(&x);
    return NULL;
}

static void *write_forever(void *arg)
{
    struct ender *e = arg;
    while (!atomic_load(&e->stop) && e->write == MANGO_OK) {
        e->write = cf_write(e->c, MG_SV("deep/er/f"), MG_SV("some content"));
        e->writes++;
    }
    return NULL;
}

/* destroy may come at any moment: what runs ends, and nothing brings the workspace back. */
static void destroy_ends_a_command_and_a_write(struct cf *c)
{
    struct mg_err err;
    pthread_t t;
    struct ender e = {.c = c};
    void *(*const bodies[])(void *) = {run_forever, write_forever};
    for (int i = 0; i < 2; i++) {
        mg_buf_reset(&c->id);
        mg_buf_reset(&c->root);
        atomic_store(&e.stop, false);
        if (!cf_check(c, cf_create(c, c->p, c->label, &c->id, &c->root) == MANGO_OK, "create %d failed", i))
            return;
        cf_thread(&t, bodies[i], &e);
        struct mango_stat st = {.struct_size = sizeof(st)};
        struct mango_sv path = i == 0 ? (struct mango_sv){"begun", 5} : (struct mango_sv){"deep/er/f", 9};
        /* it is under way */
        for (uint64_t end = cf_in_ms(BEGUN_MS); mg_now_ns() < end; (void)usleep(LOOK_US)) {
            struct mango_call call = mg_plugin_call(end, NULL, &err);
            if (!mg_plugin_can(c->p, MANGO_CAP_CONCURRENT_EXEC) && i == 0)
                break; /* nothing else may be called beside a command */
            if (c->p->sandbox->stat(c->p->ctx, &call, cf_id(c), path, 0, &st) == MANGO_OK)
                break;
        }
        uint64_t before = mg_now_ns();
        mango_status s = cf_destroy(c, c->p, c->label, mg_buf_view(&c->id));
        (void)cf_check(c, s == MANGO_OK, "destroy beside a call: status %d", (int)s);
        atomic_store(&e.stop, true);
        pthread_join(t, NULL);
        (void)cf_check(c, mg_now_ns() - before < UINT64_C(40000000000), "it took more than 40 s until both had ended");
        s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
        (void)cf_check(c, s == MANGO_EGONE, "attach afterwards: status %d, wanted MANGO_EGONE", (int)s);
    }
    (void)cf_check(c, e.exec < 0, "the command of the destroyed sandbox ended as if it had succeeded");
}

static void health_answers(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(10000), NULL, &err);
    mango_status s = c->p->sandbox->health(c->p->ctx, &call);
    (void)cf_check(c, s == MANGO_OK, "status %d: %s", (int)s, err.text);
}

const struct cf_case cf_life_cases[] = {
    CF_CASE(0, health_answers),
    CF_CASE(0, creates_one_sandbox_for_one_label),
    CF_CASE(0, two_creates_at_once_make_one),
    CF_CASE(0, many_sandboxes_at_a_time_do_not_meet),
    CF_CASE(0, files_survive_a_restart),
    CF_CASE(0, foreign_labels_are_refused),
    CF_CASE(0, a_reference_to_nothing_makes_nothing),
    CF_CASE(0, destroy_is_idempotent_and_final),
    CF_CASE(0, a_new_sandbox_under_an_old_label_is_empty),
    CF_CASE(0, nothing_outlives_destroy),
    CF_CASE(0, destroy_ends_a_command_and_a_write),
    {NULL, 0, NULL},
};
