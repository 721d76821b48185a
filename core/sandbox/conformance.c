#include "sandbox/conformance.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "plugin/elf.h"
#include "plugin/process-state.h"
#include "sandbox/conformance-internal.h"

static struct mango_sv abi(struct mg_sv s)
{
    return (struct mango_sv){s.ptr, s.len};
}

static uint64_t in_ms(uint64_t ms)
{
    return mg_now_ns() + ms * UINT64_C(1000000);
}

bool cf_check(struct cf *c, bool ok, const char *fmt, ...)
{
    if (ok)
        return true;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)mg_buf_printf(&c->why, "%s\n", text);
    c->failed = true;
    return false;
}

/* ---- calls ---- */

static mango_status open_call(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id,
                              struct mg_buf *ret_id, struct mg_buf *ret_root)
{
    struct mg_err err;
    mg_auto(buf) struct mg_buf identity = MG_BUF_INIT(1024);
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_OPEN};
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec),
                                      .label = {label, strlen(label)},
                                      .owner = {c->owner, strlen(c->owner)},
                                      .network = &net};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)ret_id,
                                    .root = (struct mango_buf *)ret_root,
                                    .identity = (struct mango_buf *)&identity};
    struct mango_call call = mg_plugin_call(in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = id.ptr ? p->sandbox->attach(p->ctx, &call, abi(id), &spec, &ref)
                            : p->sandbox->create(p->ctx, &call, &spec, &ref);
    if (s < 0 && s != MANGO_EGONE && s != MANGO_EDENIED)
        (void)mg_buf_printf(&c->why, "%s: status %d: %s\n", id.ptr ? "attach" : "create", (int)s, err.text);
    return s;
}

mango_status cf_create(struct cf *c, struct mg_plugin *p, const char *label, struct mg_buf *id, struct mg_buf *root)
{
    return open_call(c, p, label, mg_sv_n(NULL, 0), id, root);
}

mango_status cf_attach(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id)
{
    mg_auto(buf) struct mg_buf ret_id = MG_BUF_INIT(1024);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(1024);
    return open_call(c, p, label, id, &ret_id, &root);
}

mango_status cf_destroy(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = p->sandbox->destroy(p->ctx, &call, abi(id), (struct mango_sv){label, strlen(label)});
    if (s < 0)
        (void)mg_buf_printf(&c->why, "destroy: status %d: %s\n", (int)s, err.text);
    return s;
}

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct cf_exec *x = ctx;
    return mg_buf_append(stream == 2 ? &x->err : &x->out, p, n) == MG_OK ? 0 : 1;
}

void cf_exec(struct cf *c, struct cf_exec *x)
{
    struct mango_sv argv[] = {{"/bin/sh", 7}, {"-c", 2}, {x->script, strlen(x->script)}};
    uint64_t start = mg_now_ns();
    x->out = x->err = MG_BUF_INIT(CF_OUTPUT_MAX);
    x->r = (struct mango_exec_result){.struct_size = sizeof(x->r)};
    struct mango_call call = mg_plugin_call(in_ms(CF_CALL_MS), x->cancel, &x->error);
    struct mango_exec_req req = {.struct_size = sizeof(req),
                                 .argv = argv,
                                 .n_argv = 3,
                                 .stdin_data = abi(x->in),
                                 .sink = on_output,
                                 .sink_ctx = x,
                                 .max_output = x->max_output,
                                 .limit_ns = in_ms(x->limit_ms ? x->limit_ms : CF_CALL_MS / 2)};
    x->status = c->p->sandbox->exec(c->p->ctx, &call, abi(mg_buf_view(&c->id)), &req, &x->r);
    x->ms = (mg_now_ns() - start) / 1000000;
}

void cf_exec_done(struct cf_exec *x)
{
    mg_buf_done(&x->out);
    mg_buf_done(&x->err);
}

bool cf_says(struct cf *c, const char *script, int exit_code, const char *out)
{
    struct cf_exec x = {.script = script};
    cf_exec(c, &x);
    struct mg_sv got = mg_buf_view(&x.out);
    bool ok = cf_check(c, x.status == MANGO_OK, "`%.80s`: status %d: %s", script, (int)x.status, x.error.text) &&
              cf_check(c, x.r.exited == 1 && x.r.exit_code == exit_code, "`%.80s`: exited %d, code %d, wanted %d",
                       script, x.r.exited, (int)x.r.exit_code, exit_code) &&
              cf_check(c, mg_sv_eqz(got, out), "`%.80s`: printed '%.*s', wanted '%.80s'", script,
                       (int)(got.len < 80 ? got.len : 80), got.ptr, out);
    cf_exec_done(&x);
    return ok;
}

mango_status cf_write(struct cf *c, struct mg_sv path, struct mg_sv content)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_ms(CF_CALL_MS), NULL, &err);
    struct mango_write_req req = {
        .struct_size = sizeof(req), .path = abi(path), .content = abi(content), .source_len = -1};
    return c->p->sandbox->write(c->p->ctx, &call, abi(mg_buf_view(&c->id)), &req);
}

static int32_t on_bytes(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    return mg_buf_append(ctx, p, n) == MG_OK ? 0 : 1;
}

mango_status cf_read(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, struct mg_buf *out, int32_t *eof)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(in_ms(CF_CALL_MS), NULL, &err);
    struct mango_read_req req = {
        .struct_size = sizeof(req), .path = abi(path), .offset = offset, .max = max, .sink = on_bytes, .sink_ctx = out};
    return c->p->sandbox->read(c->p->ctx, &call, abi(mg_buf_view(&c->id)), &req, eof);
}

/* ---- the run ---- */

static mg_rc open_plugin(struct cf *c, struct mg_err *err)
{
    const struct mg_plugin_load l = {.dir = c->opts->dir,
                                     .name = c->opts->name,
                                     .variable = "conformance",
                                     .kind = MANGO_KIND_SANDBOX,
                                     .config = c->opts->config,
                                     .services = c->opts->services};
    return mg_plugin_open(&l, &c->p, err);
}

bool cf_restart(struct cf *c)
{
    struct mg_err err = {0};
    mg_plugin_close(mg_steal(&c->p));
    if (!cf_check(c, open_plugin(c, &err) == MG_OK, "init after fini: %s", err.text))
        return false;
    return cf_check(c, cf_attach(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "attach after a restart failed");
}

static void random_label(char out[CF_LABEL_LEN])
{
    uint8_t bytes[(CF_LABEL_LEN - 1) / 2];
    mg_rng_bytes(bytes, sizeof(bytes));
    mg_hex(bytes, sizeof(bytes), out);
}

struct report {
    void (*line)(void *ctx, const char *text);
    void *ctx;
    int n, failed;
};

static void say(const struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct report *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->line(r->ctx, text);
}

/* The reasons as TAP diagnostics, a line each. */
static void say_why(const struct report *r, const struct mg_buf *why)
{
    for (struct mg_sv s = mg_buf_view(why); s.len > 0;) {
        const char *end = memchr(s.ptr, '\n', s.len);
        size_t n = end ? (size_t)(end - s.ptr) : s.len;
        say(r, "# %.*s", (int)n, s.ptr);
        size_t skip = n + (end ? 1 : 0);
        s = mg_sv_n(s.ptr + skip, s.len - skip);
    }
}

/* A fresh sandbox for each case, so that none depends on another. */
static void run_case(struct cf *c, const struct cf_case *t)
{
    struct mg_process_state before;
    c->failed = false;
    mg_buf_reset(&c->why);
    random_label(c->label);
    random_label(c->other_label);
    c->id = c->root = MG_BUF_INIT(1024);
    mg_process_state_save(&before);
    if (cf_check(c, cf_create(c, c->p, c->label, &c->id, &c->root) == MANGO_OK, "create failed"))
        t->run(c);
    if (c->p) {
        (void)cf_check(c, cf_destroy(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "destroy at the end failed");
        (void)cf_check(c, mg_process_state_diff(&before, &c->why) == 0, "the plugin changed the state of the process");
    }
    mg_buf_done(&c->id);
    mg_buf_done(&c->root);
}

static void run_cases(struct cf *c, struct report *r, const struct cf_case *cases, const char *group)
{
    for (const struct cf_case *t = cases; t->name && c->p; t++) {
        if (c->opts->only && !strstr(t->name, c->opts->only))
            continue;
        r->n++;
        if (!mg_plugin_can(c->p, t->caps)) {
            say(r, "ok %d - %s/%s # SKIP the capability is not claimed", r->n, group, t->name);
            continue;
        }
        run_case(c, t);
        say(r, "%sok %d - %s/%s", c->failed ? "not " : "", r->n, group, t->name);
        if (c->failed)
            say_why(r, &c->why);
        r->failed += c->failed;
    }
}

static void note_export(void *ctx, const char *name)
{
    static const char *const known[] = {"mango_plugin_entry", "_init", "_fini", "__bss_start", "_edata", "_end"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return;
    }
    (void)mg_buf_printf(ctx, "%s\n", name);
}

/* Names beyond the one entry do no harm (RTLD_LOCAL), but their author should know. */
static void say_exports(const struct cf *c, const struct report *r)
{
    mg_auto(buf) struct mg_buf names = MG_BUF_INIT(CF_TEXT_MAX);
    mg_autofd int fd = open(c->p->path, O_RDONLY | O_CLOEXEC);
    struct mg_err err;
    if (fd < 0 || mg_elf_exports(fd, note_export, &names, &err) < 0 || names.len == 0)
        return;
    say(r, "# exported beside the entry point (build with -fvisibility=hidden):");
    say_why(r, &names);
}

int mg_conformance_run(const struct mg_conformance_opts *opts, void (*line)(void *ctx, const char *text), void *ctx)
{
    struct cf c = {.opts = opts, .why = MG_BUF_INIT(CF_TEXT_MAX)};
    struct report r = {.line = line, .ctx = ctx};
    struct mg_err err = {0};
    say(&r, "TAP version 13");
    if (open_plugin(&c, &err) < 0) {
        say(&r, "Bail out! %s", err.text);
        return -1;
    }
    random_label(c.owner);
    say(&r, "# %s %s, %s: %s", c.p->name, c.p->desc->version, c.p->desc->license, c.p->desc->summary);
    run_cases(&c, &r, cf_core_cases, "core");
    run_cases(&c, &r, cf_option_cases, "option");
    say(&r, "1..%d", r.n);
    if (c.p) {
        for (const struct mg_plugin_cap *cap = mg_plugin_caps; cap->name; cap++) {
            if (c.p->desc->caps & cap->bit)
                say(&r, "# capability: %s", cap->name);
        }
        say_exports(&c, &r);
    }
    mg_plugin_close(c.p);
    mg_buf_done(&c.why);
    return r.failed;
}
