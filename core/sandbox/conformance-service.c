#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

#include "sandbox/conformance-internal.h"

/* What a service offers beyond the lifecycle: lists, pauses, timers, packages, archives. */

enum {
    PAUSE_MS = 1500, /* long against the ticks of the command that is paused */
    TICK_MS = 100,   /* at least, from one of its ticks to the next */
    TICK_SLACK = 2,  /* ticks that begin and end what is counted */
    TIMER_S = 600,
    TAR_BLOCK = 512,
};

/* ---- list_owned ---- */

struct listing {
    const struct cf *c;
    int mine, others, wrong_label;
};

static int32_t on_owned(void *ctx, const struct mango_owned *item)
{
    struct listing *l = ctx;
    bool mine = mg_sv_eq(mg_sv_n(item->id.ptr, item->id.len), mg_buf_view(&l->c->id));
    *(mine ? &l->mine : &l->others) += 1;
    l->wrong_label += mine && item->label.len > 0 && !mg_sv_eqz(mg_sv_n(item->label.ptr, item->label.len), l->c->label);
    return 0;
}

static void list(struct cf *c, const char *owner, int mine)
{
    struct mg_err err;
    struct listing l = {.c = c};
    struct mango_call call = cf_slow_call(&err);
    mango_status s = c->p->sandbox->list_owned(c->p->ctx, &call, (struct mango_sv){owner, strlen(owner)}, on_owned, &l);
    (void)cf_check(c, s == MANGO_OK && l.mine == mine && l.others == 0 && l.wrong_label == 0,
                   "status %d: found %d of %d, %d others, %d with another label", (int)s, l.mine, mine, l.others,
                   l.wrong_label);
}

static void case_52_lists_what_this_deployment_owns(struct cf *c)
{
    list(c, c->owner, 1);
    list(c, c->other_label, 0); /* another deployment sees nothing of it */
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy failed");
    list(c, c->owner, 0);
}

/* ---- pause ---- */

static void a_pause_stops_commands_and_keeps_files(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = cf_slow_call(&err);
    (void)cf_check(c, cf_write(c, MG_SV("kept"), MG_SV("x")) == MANGO_OK, "write failed");
    (void)cf_says(c, "(while :; do echo >>ticks; sleep 0.1; done) >/dev/null 2>&1 & sleep 0.5", 0, "");
    uint64_t begun = mg_now_ns();
    (void)cf_says(c, "wc -l <ticks >before", 0, "");
    mango_status s = c->p->sandbox->pause(c->p->ctx, &call, cf_id(c));
    (void)cf_check(c, s == MANGO_OK, "pause: status %d: %s", (int)s, err.text);
    uint64_t paused = mg_now_ns();
    (void)poll(NULL, 0, PAUSE_MS);
    uint64_t resumed = mg_now_ns();
    call = cf_slow_call(&err);
    s = c->p->sandbox->resume(c->p->ctx, &call, cf_id(c));
    (void)cf_check(c, s == MANGO_OK, "resume: status %d: %s", (int)s, err.text);
    (void)cf_says(c, "cat kept; wc -l <ticks >after", 0, "x");
    /* It may have run while the calls were under way, however long they took, and not in between. */
    uint64_t ran_ms = (mg_now_ns() - resumed + paused - begun) / 1000000;
    char script[128];
    snprintf(script, sizeof(script), "test $(cat after) -le $(($(cat before) + %" PRIu64 ")) && echo stopped",
             ran_ms / TICK_MS + TICK_SLACK);
    (void)cf_says(c, script, 0, "stopped\n");
    call = cf_slow_call(&err);
    s = c->p->sandbox->resume(c->p->ctx, &call, cf_id(c));
    (void)cf_check(c, s == MANGO_OK, "resume of one that runs: status %d: %s", (int)s, err.text);
}

/* ---- timers ---- */

static void the_timer_can_be_moved(struct cf *c)
{
    struct mg_err err;
    for (int i = 1; i <= 2; i++) {
        struct mango_call call = cf_slow_call(&err);
        uint64_t want = (uint64_t)i * TIMER_S;
        mango_status s = c->p->sandbox->keep_alive(c->p->ctx, &call, cf_id(c), want);
        (void)cf_check(c, s == MANGO_OK, "keep_alive: status %d: %s", (int)s, err.text);
        s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
        (void)cf_check(c, s == MANGO_OK && (c->expires_s == 0 || c->expires_s + TIMER_S / 2 >= want),
                       "moved to %llu s, and attach says that it expires in %llu s", (unsigned long long)want,
                       (unsigned long long)c->expires_s);
    }
}

/* ---- packages ---- */

static mango_status packages(struct cf *c, const char *json)
{
    struct mg_err err;
    struct mango_call call = cf_slow_call(&err);
    return c->p->sandbox->packages(c->p->ctx, &call, cf_id(c), (struct mango_sv){json, strlen(json)}, NULL, NULL);
}

static void packages_that_do_not_exist_are_an_error(struct cf *c)
{
    mango_status s = packages(c, "{}");
    (void)cf_check(c, s == MANGO_OK, "no packages at all: status %d", (int)s);
    s = packages(c, "{\"apt\":[\"mango-conformance-no-such-package\"]}");
    (void)cf_check(c, s < 0, "a package that does not exist was installed");
    s = packages(c, "{\"pip\":[\"; touch pwned\"]}");
    (void)cf_check(c, s < 0, "a name that is no package's was accepted");
    (void)cf_says(c, "test -e pwned || echo no", 0, "no\n");
}

/* ---- archives ---- */

struct tape {
    struct mg_buf buf;
    size_t at;
};

static int32_t on_tape(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct tape *t = ctx;
    (void)stream;
    return mg_buf_append(&t->buf, p, n) == MG_OK ? 0 : 1;
}

static int64_t from_tape(void *ctx, char *p, uint64_t n)
{
    struct tape *t = ctx;
    size_t left = t->buf.len - t->at, take = left < n ? left : (size_t)n;
    memcpy(p, mg_buf_view(&t->buf).ptr + t->at, take);
    t->at += take;
    return (int64_t)take;
}

static mango_status archive_in(struct cf *c, const char *path, struct tape *t)
{
    struct mg_err err;
    struct mango_call call = cf_slow_call(&err);
    t->at = 0;
    return c->p->sandbox->archive_in(c->p->ctx, &call, cf_id(c), (struct mango_sv){path, strlen(path)}, from_tape, t);
}

static void archives_go_out_and_in(struct cf *c)
{
    struct mg_err err;
    struct tape t = {.buf = MG_BUF_INIT(CF_OUTPUT_MAX)};
    struct mango_call call = cf_slow_call(&err);
    (void)cf_says(
        c,
        "mkdir -p from/sub; printf one >'from/a b'; printf '\\000\\377' >from/sub/bin; chmod 755 from/sub/bin;"
        " : >from/empty",
        0, "");
    mango_status s = c->p->sandbox->archive_out(c->p->ctx, &call, cf_id(c), (struct mango_sv){"from", 4}, on_tape, &t);
    (void)cf_check(c, s == MANGO_OK && t.buf.len >= 4 * (size_t)TAR_BLOCK, "archive_out: status %d, %zu bytes: %s",
                   (int)s, t.buf.len, err.text);
    s = archive_in(c, "to", &t);
    (void)cf_check(c, s == MANGO_OK, "archive_in: status %d", (int)s);
    (void)cf_says(c,
                  "cd to && find . ! -name . | sort | tr '\\n' '|'; cksum <sub/bin | cut -d' ' -f2; test -x sub/bin && "
                  "cat 'a b'",
                  0, "./a b|./empty|./sub|./sub/bin|2\none");
    mg_buf_done(&t.buf);
}

/* A ustar header with one short file in it. */
static void add_member(struct mg_buf *tar, const char *name, char type, const char *link)
{
    char h[TAR_BLOCK] = {0}, body[TAR_BLOCK] = "x";
    unsigned sum = 0;
    snprintf(h, 100, "%s", name);
    snprintf(h + 100, 8, "0000644");
    snprintf(h + 108, 8, "0000000");
    snprintf(h + 116, 8, "0000000");
    snprintf(h + 124, 12, "%011o", type == '0' ? 1U : 0U);
    snprintf(h + 136, 12, "%011o", 0U);
    memset(h + 148, ' ', 8);
    h[156] = type;
    snprintf(h + 157, 100, "%s", link);
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    (void)mg_buf_append(tar, h, sizeof(h));
    if (type == '0')
        (void)mg_buf_append(tar, body, sizeof(body));
}

static void case_89_an_archive_does_not_leave_its_folder(struct cf *c)
{
    static const struct {
        const char *name, *through;
    } bad[] = {{"../escape", NULL}, {"/escape", NULL}, {"a/../../escape", NULL}, {"l/escape", "/tmp"}};
    char zeros[2 * TAR_BLOCK] = {0};
    (void)cf_says(c, "mkdir to; rm -f /tmp/escape /escape", 0, "");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct tape t = {.buf = MG_BUF_INIT(CF_TEXT_MAX)};
        if (bad[i].through)
            add_member(&t.buf, "l", '2', bad[i].through);
        add_member(&t.buf, bad[i].name, '0', "");
        (void)mg_buf_append(&t.buf, zeros, sizeof(zeros));
        (void)archive_in(c, "to", &t); /* refused, or the member left out: what counts is where nothing appears */
        mg_buf_done(&t.buf);
        (void)cf_says(c, "ls -d escape ../escape /escape /tmp/escape 2>/dev/null; true", 0, "");
    }
}

/* ---- what survives ---- */

static void a_durable_workspace_survives_everything(struct cf *c)
{
    (void)cf_check(c, cf_write(c, MG_SV("a/file"), MG_SV("kept")) == MANGO_OK, "write failed");
    (void)cf_says(c, "echo more >a/other; ln -s file a/link; chmod 700 a/other", 0, "");
    cf_detach(c, mg_buf_view(&c->id));
    for (int i = 0; i < 2; i++) {
        if (!cf_restart(c))
            return;
        (void)cf_says(c, "cat a/link; cat a/other; test -x a/other && echo mode", 0, "keptmore\nmode\n");
    }
}

const struct cf_case cf_service_cases[] = {
    CF_CASE(MANGO_CAP_LIST_OWNED, case_52_lists_what_this_deployment_owns),
    CF_CASE(MANGO_CAP_PAUSE, a_pause_stops_commands_and_keeps_files),
    CF_CASE(MANGO_CAP_KEEP_ALIVE, the_timer_can_be_moved),
    CF_CASE(MANGO_CAP_PACKAGES, packages_that_do_not_exist_are_an_error),
    CF_CASE(MANGO_CAP_ARCHIVES, archives_go_out_and_in),
    CF_CASE(MANGO_CAP_ARCHIVES, case_89_an_archive_does_not_leave_its_folder),
    CF_CASE(MANGO_CAP_DURABLE_WORKSPACE, a_durable_workspace_survives_everything),
    {NULL, 0, NULL},
};
