#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "sandbox/conformance-internal.h"

/* What every backend must do. */

static void creates_one_sandbox_for_one_label(struct cf *c)
{
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(1024);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(1024);
    (void)cf_check(c, mg_buf_view(&c->root).len > 0 && c->root.ptr[0] == '/', "the root is no absolute path");
    (void)cf_check(c, cf_create(c, c->p, c->label, &id, &root) == MANGO_OK, "a second create failed");
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&id), mg_buf_view(&c->id)), "a second create gave another sandbox");
    (void)cf_check(c, strcmp(c->p->desc->name, c->opts->name) == 0, "the name is not stable");
}

struct race {
    struct cf *c;
    struct mg_buf id, root;
    mango_status status;
};

static void *race_create(void *arg)
{
    struct race *r = arg;
    struct cf own = {.opts = r->c->opts, .why = MG_BUF_INIT(CF_TEXT_MAX)};
    memcpy(own.owner, r->c->owner, sizeof(own.owner));
    r->status = cf_create(&own, r->c->p, r->c->other_label, &r->id, &r->root);
    mg_buf_done(&own.why);
    return NULL;
}

static void two_creates_at_once_make_one(struct cf *c)
{
    struct race r[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        r[i] = (struct race){.c = c, .id = MG_BUF_INIT(1024), .root = MG_BUF_INIT(1024)};
        if (pthread_create(&t[i], NULL, race_create, &r[i]) != 0)
            abort();
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        (void)cf_check(c, r[i].status == MANGO_OK, "create %d: status %d", i, (int)r[i].status);
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&r[i].id), mg_buf_view(&r[0].id)), "create %d gave another sandbox", i);
    }
    (void)cf_check(c, cf_destroy(c, c->p, c->other_label, mg_buf_view(&r[0].id)) == MANGO_OK, "destroy failed");
    for (int i = 0; i < 4; i++) {
        mg_buf_done(&r[i].id);
        mg_buf_done(&r[i].root);
    }
}

static void files_survive_a_restart(struct cf *c)
{
    (void)cf_check(c, cf_write(c, MG_SV("nested/state.bin"), MG_SV("a\0b\n")) == MANGO_OK, "write failed");
    if (!cf_restart(c))
        return;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
    int32_t eof = 0;
    (void)cf_check(c, cf_read(c, MG_SV("nested/state.bin"), 0, 64, &out, &eof) == MANGO_OK && eof == 1, "read failed");
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&out), MG_SV("a\0b\n")), "the content is another");
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

static void destroy_is_idempotent_and_final(struct cf *c)
{
    (void)cf_write(c, MG_SV("x"), MG_SV("y"));
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "first destroy failed");
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "second destroy failed");
    (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_sv_n("", 0)) == MANGO_OK, "destroy by label alone failed");
    mango_status s = cf_attach(c, c->p, c->label, mg_buf_view(&c->id));
    (void)cf_check(c, s == MANGO_EGONE, "attach after destroy: status %d, wanted MANGO_EGONE", (int)s);
}

static void exit_codes_and_signals(struct cf *c)
{
    static const int codes[] = {0, 1, 2, 7, 124, 126, 127, 128, 137, 143, 255};
    char script[64];
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        snprintf(script, sizeof(script), "exit %d", codes[i]);
        (void)cf_says(c, script, codes[i], "");
    }
    struct cf_exec x = {.script = "kill -9 $$"};
    cf_exec(c, &x);
    (void)cf_check(c, x.status == MANGO_OK && x.r.signal == 9 && !x.r.exited && !x.r.timed_out,
                   "death by SIGKILL: status %d, signal %d, exited %d", (int)x.status, (int)x.r.signal, x.r.exited);
    cf_exec_done(&x);
}

static void both_streams_and_their_bytes(struct cf *c)
{
    struct cf_exec x = {.script = "printf 'out\\377\\000'; printf 'err' >&2"};
    cf_exec(c, &x);
    (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.out), MG_SV("out\377\0")), "standard output is not byte-exact");
    if (!mg_plugin_can(c->p, MANGO_TRAIT_NO_STREAMS))
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&x.err), MG_SV("err")), "standard error is not byte-exact");
    cf_exec_done(&x);
}

static void stdin_arrives_unchanged(struct cf *c)
{
    enum { SIZE = 1 << 20 };
    char *in = malloc(SIZE);
    for (size_t i = 0; in && i < SIZE; i++)
        in[i] = (char)(i * 7 >> 2);
    struct cf_exec x = {.script = "cat", .in = {in, in ? SIZE : 0}};
    cf_exec(c, &x);
    (void)cf_check(c, in && mg_sv_eq(mg_buf_view(&x.out), x.in), "1 MiB of input came back as %zu bytes or others",
                   x.out.len);
    cf_exec_done(&x);
    free(in);
    (void)cf_says(c, "cat; read x; echo \"[$x]\"", 0, "[]\n");
}

static void output_is_bounded_and_drained(struct cf *c)
{
    struct cf_exec x = {.script = "head -c 5000000 /dev/zero | tr '\\0' x; exit 3", .max_output = 65536};
    cf_exec(c, &x);
    (void)cf_check(c, x.status == MANGO_OK && x.r.exit_code == 3, "status %d, code %d, wanted 3", (int)x.status,
                   (int)x.r.exit_code);
    (void)cf_check(c, x.out.len == 65536, "the sink got %zu bytes, wanted 65536", x.out.len);
    cf_exec_done(&x);
    struct cf_exec y = {.script = "for i in 1 2 3 4 5; do printf '\\342\\202\\254'; done", .max_output = 7};
    cf_exec(c, &y);
    (void)cf_check(c, y.out.len <= 7 && mg_utf8_valid(mg_buf_view(&y.out), NULL), "a character was cut");
    cf_exec_done(&y);
}

/* No process of the sandbox has the marker in its command line. */
static bool nothing_left(struct cf *c, const char *marker)
{
    char script[256];
    snprintf(script, sizeof(script),
             "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done | grep -c '[s]leep %s'; true",
             marker);
    return cf_says(c, script, 0, "0\n");
}

static void a_time_limit_kills_everything(struct cf *c)
{
    struct cf_exec x = {.script = "trap '' TERM; (setsid sleep 6101.5 &); sleep 6101.5 | sleep 6101.5",
                        .limit_ms = 1000};
    cf_exec(c, &x);
    (void)cf_check(c, x.status == MANGO_OK && x.r.timed_out && !x.r.exited, "status %d, timed_out %d, exited %d",
                   (int)x.status, x.r.timed_out, x.r.exited);
    (void)cf_check(c, x.ms < 10000, "it took %llu ms", (unsigned long long)x.ms);
    cf_exec_done(&x);
    (void)nothing_left(c, "6101.5");
}

static void *fire_soon(void *arg)
{
    usleep(300000); /* the command has to be running */
    mg_cancel_fire(arg);
    return NULL;
}

static void a_cancel_kills_everything(struct cf *c)
{
    pthread_t t;
    struct mg_cancel *cancel = mg_cancel_new();
    if (pthread_create(&t, NULL, fire_soon, cancel) != 0)
        abort();
    struct cf_exec x = {.script = "(setsid sleep 6102.5 &); sleep 6102.5", .cancel = cancel};
    cf_exec(c, &x);
    pthread_join(t, NULL);
    (void)cf_check(c, x.status == MANGO_ECANCELED, "status %d, wanted MANGO_ECANCELED", (int)x.status);
    (void)cf_check(c, x.ms < 8000, "it took %llu ms", (unsigned long long)x.ms);
    cf_exec_done(&x);
    (void)nothing_left(c, "6102.5");
    struct cf_exec y = {.script = "touch started", .cancel = cancel};
    cf_exec(c, &y);
    (void)cf_check(c, y.status == MANGO_ECANCELED, "cancelled before the start: status %d", (int)y.status);
    cf_exec_done(&y);
    mg_cancel_unref(cancel);
    (void)cf_says(c, "test -e started || echo never", 0, "never\n");
}

static void a_background_child_does_not_delay(struct cf *c)
{
    struct cf_exec x = {.script = "sleep 6103.5 & echo done"};
    cf_exec(c, &x);
    (void)cf_check(c, x.status == MANGO_OK && x.r.exited && mg_sv_eq(mg_buf_view(&x.out), MG_SV("done\n")),
                   "status %d, exited %d, output '%.*s'", (int)x.status, x.r.exited, (int)x.out.len, x.out.ptr);
    (void)cf_check(c, x.ms < 10000, "it took %llu ms", (unsigned long long)x.ms);
    cf_exec_done(&x);
}

static void files_of_many_sizes(struct cf *c)
{
    static const size_t sizes[] = {0, 1, 95 * 1024, 200 * 1024, 8 * 1024 * 1024};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(CF_OUTPUT_MAX);
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CF_OUTPUT_MAX);
        int32_t eof = 0;
        for (size_t n = 0; n < sizes[i]; n++)
            (void)mg_buf_char(&in, (char)(n * 31 >> 3));
        (void)cf_check(c, cf_write(c, MG_SV("deep/er/f"), mg_buf_view(&in)) == MANGO_OK, "write of %zu bytes failed",
                       sizes[i]);
        (void)cf_check(c, cf_read(c, MG_SV("deep/er/f"), 0, CF_OUTPUT_MAX - 1, &out, &eof) == MANGO_OK && eof == 1,
                       "read of %zu bytes failed", sizes[i]);
        (void)cf_check(c, mg_sv_eq(mg_buf_view(&in), mg_buf_view(&out)), "%zu bytes came back as %zu, or others",
                       sizes[i], out.len);
    }
}

static void strange_names(struct cf *c)
{
    static const char *const names[] = {"a b", "new\nline",      "qu'o\"te", "back\\slash", "-rf",
                                        "*",   "$(touch pwned)", "\303\251", "e\314\201",   "\360\237\245\255"};
    enum { N = sizeof(names) / sizeof(names[0]) };
    char text[16];
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof(text), "%d", i);
        (void)cf_check(c, cf_write(c, mg_sv_of(names[i]), mg_sv_of(text)) == MANGO_OK, "write of name %d failed", i);
    }
    for (int i = 0; i < N; i++) {
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
        int32_t eof;
        snprintf(text, sizeof(text), "%d", i);
        (void)cf_check(
            c, cf_read(c, mg_sv_of(names[i]), 0, 63, &out, &eof) == MANGO_OK && mg_sv_eqz(mg_buf_view(&out), text),
            "name %d does not hold its own content", i);
    }
    (void)cf_says(c, "test -e pwned && echo pwned; true", 0, "");
}

static void no_path_leads_out(struct cf *c)
{
    static const char *const paths[] = {"../escape", "a/../../escape", "/etc/passwd", "link/passwd", "up/../../escape"};
    (void)cf_says(c, "ln -s /etc link && ln -s .. up && echo ok", 0, "ok\n");
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        const struct mg_sv path = mg_sv_n(paths[i], strlen(paths[i]));
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
        int32_t eof;
        (void)cf_check(c, cf_read(c, path, 0, 4000, &out, &eof) < 0, "read of %s succeeded", paths[i]);
        (void)cf_check(c, cf_write(c, path, MG_SV("x")) < 0, "write of %s succeeded", paths[i]);
    }
}

static void special_files_are_refused_at_once(struct cf *c)
{
    (void)cf_says(c, "mkfifo fifo && mkdir dir && ln -s /dev/zero zero && echo ok", 0, "ok\n");
    static const char *const paths[] = {"fifo", "dir", "zero"};
    for (size_t i = 0; i < 3; i++) {
        const struct mg_sv path = mg_sv_n(paths[i], strlen(paths[i]));
        mg_auto(buf) struct mg_buf out = MG_BUF_INIT(4096);
        int32_t eof;
        uint64_t start = mg_now_ns();
        (void)cf_check(c, cf_read(c, path, 0, 4000, &out, &eof) < 0, "read of %s succeeded", paths[i]);
        (void)cf_check(c, cf_write(c, path, MG_SV("x")) < 0, "write of %s succeeded", paths[i]);
        (void)cf_check(c, mg_now_ns() - start < UINT64_C(10000000000), "%s took longer than 10 s", paths[i]);
    }
}

static void a_write_keeps_the_mode_and_says_what_is_missing(struct cf *c)
{
    struct mg_err err;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(64);
    int32_t eof;
    (void)cf_check(c, cf_write(c, MG_SV("tool"), MG_SV("#!/bin/sh\n")) == MANGO_OK, "write failed");
    (void)cf_says(c, "chmod 755 tool", 0, "");
    (void)cf_check(c, cf_write(c, MG_SV("tool"), MG_SV("#!/bin/sh\necho ran\n")) == MANGO_OK, "second write failed");
    (void)cf_says(c, "./tool", 0, "ran\n");
    (void)cf_check(c, cf_write(c, MG_SV("tool/below"), MG_SV("x")) < 0, "a file served as a folder");
    mango_status s = cf_read(c, MG_SV("missing"), 0, 10, &out, &eof);
    (void)cf_check(c, s == MANGO_ENOENT, "read of a missing file: status %d, wanted MANGO_ENOENT", (int)s);
    struct mango_stat st = {.struct_size = sizeof(st)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + UINT64_C(30000000000), NULL, &err);
    struct mg_sv id = mg_buf_view(&c->id);
    s = c->p->sandbox->stat(c->p->ctx, &call, (struct mango_sv){id.ptr, id.len}, (struct mango_sv){"tool", 4}, 0, &st);
    (void)cf_check(c, s == MANGO_OK && st.kind == 'f' && st.size == 19 && (st.mode & 0100),
                   "stat: status %d, kind %c, size %llu, mode %o", (int)s, (int)st.kind, (unsigned long long)st.size,
                   st.mode);
}

static void health_answers(struct cf *c)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(mg_now_ns() + UINT64_C(10000000000), NULL, &err);
    mango_status s = c->p->sandbox->health(c->p->ctx, &call);
    (void)cf_check(c, s == MANGO_OK, "status %d: %s", (int)s, err.text);
}

#define CASE(f)  \
    {            \
#f, 0, f \
    }
const struct cf_case cf_core_cases[] = {
    CASE(creates_one_sandbox_for_one_label),
    CASE(two_creates_at_once_make_one),
    CASE(files_survive_a_restart),
    CASE(foreign_labels_are_refused),
    CASE(destroy_is_idempotent_and_final),
    CASE(exit_codes_and_signals),
    CASE(both_streams_and_their_bytes),
    CASE(stdin_arrives_unchanged),
    CASE(output_is_bounded_and_drained),
    CASE(a_time_limit_kills_everything),
    CASE(a_cancel_kills_everything),
    CASE(a_background_child_does_not_delay),
    CASE(files_of_many_sizes),
    CASE(strange_names),
    CASE(no_path_leads_out),
    CASE(special_files_are_refused_at_once),
    CASE(a_write_keeps_the_mode_and_says_what_is_missing),
    CASE(health_answers),
    {NULL, 0, NULL},
};
