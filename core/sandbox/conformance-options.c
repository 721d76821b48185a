#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "sandbox/conformance-internal.h"

/* What a capability bit promises. Run when it is set: a plugin that cannot keep it fails. */

enum { AT_A_TIME = 32 };

static struct mango_sv id_of(const struct cf *c)
{
    return (struct mango_sv){c->id.ptr, c->id.len};
}

static uint64_t in_s(uint64_t s)
{
    return mg_now_ns() + s * UINT64_C(1000000000);
}

/* ---- list_owned ---- */

struct listing {
    const struct cf *c;
    int mine, others;
};

static int32_t on_owned(void *ctx, const struct mango_owned *item)
{
    struct listing *l = ctx;
    bool mine = mg_sv_eq(mg_sv_n(item->id.ptr, item->id.len), mg_buf_view(&l->c->id));
    *(mine ? &l->mine : &l->others) += 1;
    return 0;
}

static void lists_what_this_deployment_owns(struct cf *c)
{
    struct mg_err err;
    struct listing l = {.c = c};
    struct mango_call call = mg_plugin_call(in_s(60), NULL, &err);
    struct mango_sv owner = {c->owner, strlen(c->owner)}, nobody = {c->other_label, strlen(c->other_label)};
    mango_status s = c->p->sandbox->list_owned(c->p->ctx, &call, owner, on_owned, &l);
    (void)cf_check(c, s == MANGO_OK && l.mine == 1 && l.others == 0, "status %d, found %d, and %d others", (int)s,
                   l.mine, l.others);
    l = (struct listing){.c = c};
    s = c->p->sandbox->list_owned(c->p->ctx, &call, nobody, on_owned, &l);
    (void)cf_check(c, s == MANGO_OK && l.mine + l.others == 0, "another deployment was shown %d", l.mine + l.others);
}

/* ---- proc ---- */

struct hearing {
    struct mg_buf out;
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    struct hearing *h = ctx;
    return mg_buf_append(&h->out, p, n) == MG_OK ? 0 : 1;
}

static bool hear(struct cf *c, mango_proc proc, const char *text)
{
    struct mg_err err;
    struct hearing h = {MG_BUF_INIT(CF_OUTPUT_MAX)};
    struct mango_call call = mg_plugin_call(in_s(20), NULL, &err);
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    int32_t closed = 0;
    mango_status s = MANGO_OK;
    bool found = false;
    while (s == MANGO_OK && !closed && !found) {
        s = c->p->sandbox->proc_read(c->p->ctx, &call, proc, on_output, &h, &closed, &r);
        found = h.out.len > 0 && strstr(h.out.ptr, text) != NULL;
    }
    mg_buf_done(&h.out);
    return found;
}

static bool tell(struct cf *c, mango_proc proc, const char *text)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_s(20), NULL, &err);
    return c->p->sandbox->proc_write(c->p->ctx, &call, proc, (struct mango_sv){text, strlen(text)}) == MANGO_OK;
}

static void a_process_keeps_its_state_until_it_is_closed(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_s(60), NULL, &err);
    struct mango_sv argv[] = {{"/bin/sh", 7}};
    struct mango_exec_req req = {.struct_size = sizeof(req), .argv = argv, .n_argv = 1};
    mango_proc proc = 0;
    mango_status s = c->p->sandbox->proc_open(c->p->ctx, &call, id_of(c), &req, &proc);
    if (!cf_check(c, s == MANGO_OK && proc != 0, "proc_open: status %d: %s", (int)s, err.text))
        return;
    (void)cf_check(c, tell(c, proc, "X=5; mkdir d; cd d\n") && tell(c, proc, "echo value-$X-${PWD##*/}\n"),
                   "proc_write failed");
    (void)cf_check(c, hear(c, proc, "value-5-d\n"), "the shell did not keep variable and folder");
    struct mango_exec_result r = {.struct_size = sizeof(r)};
    struct hearing h = {MG_BUF_INIT(1024)};
    int32_t closed = 0;
    call = mg_plugin_call(mg_now_ns() + 200000000, NULL, &err);
    s = c->p->sandbox->proc_read(c->p->ctx, &call, proc, on_output, &h, &closed, &r);
    (void)cf_check(c, s == MANGO_ETIMEOUT, "reading a silent process: status %d, wanted MANGO_ETIMEOUT", (int)s);
    mg_buf_done(&h.out);
    (void)cf_check(c, tell(c, proc, "sleep 6104.5 & echo started\n") && hear(c, proc, "started\n"),
                   "no background child");
    call = mg_plugin_call(in_s(60), NULL, &err);
    (void)cf_check(c, c->p->sandbox->proc_close(c->p->ctx, &call, proc) == MANGO_OK, "proc_close failed");
    (void)cf_says(
        c,
        "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done | grep -c '[s]leep 6104.5'; true",
        0, "0\n");
}

/* ---- concurrency ---- */

struct worker {
    struct cf *c;
    bool ok;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct cf_exec x = {.script = "echo $((6*7)); exit 5"};
    cf_exec(w->c, &x);
    w->ok = x.status == MANGO_OK && x.r.exited && x.r.exit_code == 5 && mg_sv_eq(mg_buf_view(&x.out), MG_SV("42\n"));
    cf_exec_done(&x);
    return NULL;
}

static void many_commands_at_a_time(struct cf *c)
{
    struct worker w[AT_A_TIME];
    pthread_t t[AT_A_TIME];
    for (int i = 0; i < AT_A_TIME; i++) {
        w[i] = (struct worker){.c = c};
        if (pthread_create(&t[i], NULL, work, &w[i]) != 0)
            abort();
    }
    for (int i = 0; i < AT_A_TIME; i++) {
        pthread_join(t[i], NULL);
        (void)cf_check(c, w[i].ok, "command %d of %d at a time gave another result", i, AT_A_TIME);
    }
}

/* ---- pause, snapshots, timers ---- */

static void a_pause_keeps_the_files(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_s(120), NULL, &err);
    (void)cf_check(c, cf_write(c, MG_SV("kept"), MG_SV("x")) == MANGO_OK, "write failed");
    mango_status s = c->p->sandbox->pause(c->p->ctx, &call, id_of(c));
    (void)cf_check(c, s == MANGO_OK, "pause: status %d: %s", (int)s, err.text);
    s = c->p->sandbox->resume(c->p->ctx, &call, id_of(c));
    (void)cf_check(c, s == MANGO_OK, "resume: status %d: %s", (int)s, err.text);
    (void)cf_says(c, "cat kept", 0, "x");
}

static void a_snapshot_can_be_made_and_deleted(struct cf *c)
{
    struct mg_err err;
    mg_auto(buf) struct mg_buf snap = MG_BUF_INIT(1024);
    struct mango_call call = mg_plugin_call(in_s(600), NULL, &err);
    mango_status s = c->p->sandbox->snapshot(c->p->ctx, &call, id_of(c), (struct mango_buf *)&snap);
    if (!cf_check(c, s == MANGO_OK && snap.len > 0, "snapshot: status %d: %s", (int)s, err.text))
        return;
    if (mg_plugin_can(c->p, MANGO_TRAIT_SNAPSHOT_STOPS | MANGO_CAP_PAUSE))
        (void)c->p->sandbox->resume(c->p->ctx, &call, id_of(c));
    (void)cf_says(c, "echo alive", 0, "alive\n");
    s = c->p->sandbox->snapshot_delete(c->p->ctx, &call, (struct mango_sv){snap.ptr, snap.len});
    (void)cf_check(c, s == MANGO_OK, "snapshot_delete: status %d: %s", (int)s, err.text);
}

static void the_timer_can_be_moved(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_s(60), NULL, &err);
    mango_status s = c->p->sandbox->keep_alive(c->p->ctx, &call, id_of(c), 600);
    (void)cf_check(c, s == MANGO_OK, "keep_alive: status %d: %s", (int)s, err.text);
}

#define CASE(caps, f) \
    {                 \
#f, caps, f   \
    }
const struct cf_case cf_option_cases[] = {
    CASE(MANGO_CAP_LIST_OWNED, lists_what_this_deployment_owns),
    CASE(MANGO_CAP_PROC, a_process_keeps_its_state_until_it_is_closed),
    CASE(MANGO_CAP_CONCURRENT_EXEC, many_commands_at_a_time),
    CASE(MANGO_CAP_PAUSE, a_pause_keeps_the_files),
    CASE(MANGO_CAP_SNAPSHOT, a_snapshot_can_be_made_and_deleted),
    CASE(MANGO_CAP_KEEP_ALIVE, the_timer_can_be_moved),
    {NULL, 0, NULL},
};
