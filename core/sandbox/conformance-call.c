#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "crypto/hash.h"
#include "sandbox/conformance-internal.h"
#include "sandbox/helper.h"

/* Calls into the plugin as the suite's cases make them. */

enum {
    CASE_ARGS_MAX = 16, /* arguments of one command of a case */
    UNTIL_MS = 5000,    /* for something that a command does beside us */
    LOOK_US = 20000,
};

static void __attribute__((format(printf, 2, 0))) add_line(struct mg_buf *to, const char *fmt, va_list ap)
{
    char text[512];
    vsnprintf(text, sizeof(text), fmt, ap);
    (void)mg_buf_printf(to, "%s\n", text);
}

bool cf_check(struct cf *c, bool ok, const char *fmt, ...)
{
    va_list ap;
    if (ok)
        return true;
    va_start(ap, fmt);
    add_line(&c->why, fmt, ap);
    va_end(ap);
    c->failed = true;
    return false;
}

void cf_note(struct cf *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_line(&c->notes, fmt, ap);
    va_end(ap);
}

void cf_skip(struct cf *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->skip, sizeof(c->skip), fmt, ap);
    va_end(ap);
}

void cf_random_label(char out[CF_LABEL_LEN])
{
    uint8_t bytes[(CF_LABEL_LEN - 1) / 2];
    mg_rng_bytes(bytes, sizeof(bytes));
    mg_hex(bytes, sizeof(bytes), out);
}

mg_rc cf_open_plugin(struct cf *c, struct mg_err *err)
{
    const struct mg_plugin_load l = {.dir = c->opts->dir,
                                     .name = c->opts->name,
                                     .variable = "conformance",
                                     .kind = c->kind ? c->kind : MANGO_KIND_SANDBOX,
                                     .config = c->opts->config,
                                     .services = c->opts->services};
    return mg_plugin_open(&l, &c->p, err);
}

bool cf_restart(struct cf *c)
{
    struct mg_err err = {0};
    mg_plugin_close(mg_steal(&c->p));
    if (!cf_check(c, cf_open_plugin(c, &err) == MG_OK, "init after fini: %s", err.text))
        return false;
    return cf_check(c, cf_attach(c, c->p, c->label, mg_buf_view(&c->id)) == MANGO_OK, "attach after a restart failed");
}

/* ---- the sandbox ---- */

static mango_status bind_with(struct mg_plugin *p, const struct mango_call *call, struct mg_sv id,
                              const struct mango_sandbox_spec *spec, struct mango_sandbox_ref *ref)
{
    return id.ptr ? p->sandbox->attach(p->ctx, call, cf_abi(id), spec, ref)
                  : p->sandbox->create(p->ctx, call, spec, ref);
}

static mango_status open_call(struct cf *c, struct mg_plugin *p, const struct mango_sandbox_spec *base,
                              const char *label, struct mg_sv id, struct mg_buf *ret_id, struct mg_buf *ret_root)
{
    struct mg_err err;
    mg_auto(buf) struct mg_buf identity = MG_BUF_INIT(CF_REF_MAX);
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_OPEN};
    struct mango_sandbox_spec spec = {.struct_size = sizeof(spec), .network = &net};
    if (base)
        spec = *base;
    spec.struct_size = sizeof(spec);
    spec.label = (struct mango_sv){label, strlen(label)};
    spec.owner = (struct mango_sv){c->owner, strlen(c->owner)};
    struct mango_sandbox_ref ref = {.struct_size = sizeof(ref),
                                    .id = (struct mango_buf *)ret_id,
                                    .root = (struct mango_buf *)ret_root,
                                    .identity = (struct mango_buf *)&identity};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = bind_with(p, &call, id, &spec, &ref);
    /* A backend may have no network without a list; then its sandboxes are tried without one. */
    if (s == MANGO_EUNSUPPORTED && spec.network && spec.network->mode == MANGO_NET_OPEN &&
        mg_plugin_can(p, MANGO_CAP_NO_NETWORK)) {
        net.mode = MANGO_NET_NONE;
        spec.network = &net;
        s = bind_with(p, &call, id, &spec, &ref);
    }
    c->expires_s = ref.expires_s;
    if (s < 0 && s != MANGO_EGONE && s != MANGO_EDENIED)
        (void)mg_buf_printf(&c->why, "%s: status %d: %s\n", id.ptr ? "attach" : "create", (int)s, err.text);
    return s;
}

mango_status cf_create(struct cf *c, struct mg_plugin *p, const char *label, struct mg_buf *id, struct mg_buf *root)
{
    return open_call(c, p, NULL, label, mg_sv_n(NULL, 0), id, root);
}

mango_status cf_create_as(struct cf *c, const struct mango_sandbox_spec *base, const char *label, struct mg_buf *id,
                          struct mg_buf *root)
{
    return open_call(c, c->p, base, label, mg_sv_n(NULL, 0), id, root);
}

mango_status cf_attach(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id)
{
    mg_auto(buf) struct mg_buf ret_id = MG_BUF_INIT(CF_REF_MAX);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(CF_REF_MAX);
    mango_status s = open_call(c, p, NULL, label, id, &ret_id, &root);
    if (s == MANGO_OK && c->root.len == 0)
        (void)mg_buf_sv(&c->root, mg_buf_view(&root));
    return s;
}

mango_status cf_destroy(struct cf *c, struct mg_plugin *p, const char *label, struct mg_sv id)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    mango_status s = p->sandbox->destroy(p->ctx, &call, cf_abi(id), (struct mango_sv){label, strlen(label)});
    if (s < 0)
        (void)mg_buf_printf(&c->why, "destroy: status %d: %s\n", (int)s, err.text);
    return s;
}

void cf_detach(struct cf *c, struct mg_sv id)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    if (MANGO_HAS(c->p->sandbox, detach))
        (void)c->p->sandbox->detach(c->p->ctx, &call, cf_abi(id));
}

bool cf_second(struct cf *c, const struct mango_sandbox_spec *base)
{
    char label[CF_LABEL_LEN];
    mg_auto(buf) struct mg_buf id = MG_BUF_INIT(CF_REF_MAX);
    mg_auto(buf) struct mg_buf root = MG_BUF_INIT(CF_REF_MAX);
    c->second = true; /* from now on both labels are destroyed at the end */
    mango_status s = cf_create_as(c, base, c->other_label, &id, &root);
    if (!cf_check(c, s == MANGO_OK, "create of another sandbox: status %d", (int)s))
        return false;
    memcpy(label, c->label, sizeof(label));
    memcpy(c->label, c->other_label, sizeof(label));
    memcpy(c->other_label, label, sizeof(label));
    mg_buf_done(&c->id);
    mg_buf_done(&c->root);
    c->id = id;
    c->root = root;
    id = root = MG_BUF_INIT(CF_REF_MAX);
    return true;
}

/* ---- commands ---- */

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct cf_exec *x = ctx;
    x->cut |= !mg_utf8_valid(mg_sv_n(p, n), NULL);
    return mg_buf_append(stream == 2 ? &x->err : &x->out, p, n) == MG_OK ? 0 : 1;
}

void cf_exec(struct cf *c, struct cf_exec *x)
{
    struct mango_sv argv[CASE_ARGS_MAX] = {{"/bin/sh", 7}, {"-c", 2}, {x->script, strlen(x->script)}};
    char mark[CF_MARK_LEN + sizeof("MARK=")];
    uint64_t n = 3, start = mg_now_ns();
    for (; x->args && x->args[n - 3] && n < CASE_ARGS_MAX; n++)
        argv[n] = (struct mango_sv){x->args[n - 3], strlen(x->args[n - 3])};
    snprintf(mark, sizeof(mark), "MARK=%s", c->mark);
    const struct mango_sv env[] = {{mark, strlen(mark)}, {x->env, x->env ? strlen(x->env) : 0}};
    x->out = x->err = MG_BUF_INIT(CF_OUTPUT_MAX);
    x->cut = false;
    x->r = (struct mango_exec_result){.struct_size = sizeof(x->r)};
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), x->cancel, &x->error);
    struct mango_exec_req req = {.struct_size = sizeof(req),
                                 .argv = argv,
                                 .n_argv = n,
                                 .env = env,
                                 .n_env = x->env ? 2 : 1,
                                 .cwd = {x->cwd ? x->cwd : "", x->cwd ? strlen(x->cwd) : 0},
                                 .stdin_data = cf_abi(x->in),
                                 .stdin_source = x->source,
                                 .stdin_ctx = x->source_ctx,
                                 .sink = on_output,
                                 .sink_ctx = x,
                                 .max_output = x->max_output,
                                 .limit_ns = cf_in_ms(x->limit_ms ? x->limit_ms : CF_CALL_MS / 2)};
    x->status = mg_helper_exec(c->p, &call, cf_id(c), mg_buf_view(&c->root).ptr, &req, &x->r);
    x->ms = (mg_now_ns() - start) / 1000000;
}

void *cf_exec_beside(void *arg)
{
    struct cf_beside *b = arg;
    cf_exec(b->c, &b->x);
    return NULL;
}

void cf_thread(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    if (pthread_create(ret, NULL, fn, arg) != 0)
        abort();
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

bool cf_nothing_left(struct cf *c)
{
    char script[512];
    snprintf(script, sizeof(script),
             "n=0; while :; do left=$(for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p 2>/dev/null; echo; done |"
             " grep -c \"[s]leep $MARK\"); n=$((n+1)); [ \"$left\" = 0 ] && break; [ $n -ge %d ] && break; sleep 0.3;"
             " done; echo \"$left\"",
             CF_GONE_TRIES);
    return cf_says(c, script, 0, "0\n");
}

bool cf_until(struct cf *c, const char *script, const char *out)
{
    uint64_t end = cf_in_ms(UNTIL_MS);
    for (; mg_now_ns() < end; (void)usleep(LOOK_US)) {
        struct cf_exec x = {.script = script};
        cf_exec(c, &x);
        bool yes = x.status == MANGO_OK && mg_sv_eqz(mg_buf_view(&x.out), out);
        cf_exec_done(&x);
        if (yes)
            return true;
    }
    return cf_check(c, false, "`%.80s` did not print '%.80s' within %d ms", script, out, UNTIL_MS);
}

/* ---- files ---- */

static mango_status write_call(struct cf *c, struct mango_write_req *req)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    return c->p->sandbox->write(c->p->ctx, &call, cf_id(c), req);
}

mango_status cf_write(struct cf *c, struct mg_sv path, struct mg_sv content)
{
    struct mango_write_req req = {
        .struct_size = sizeof(req), .path = cf_abi(path), .content = cf_abi(content), .source_len = -1};
    return write_call(c, &req);
}

mango_status cf_write_from(struct cf *c, struct mg_sv path, mango_source_fn *source, void *ctx, int64_t len)
{
    struct mango_write_req req = {
        .struct_size = sizeof(req), .path = cf_abi(path), .source = source, .source_ctx = ctx, .source_len = len};
    return write_call(c, &req);
}

mango_status cf_read_to(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, mango_sink_fn *sink, void *ctx,
                        int32_t *eof)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    struct mango_read_req req = {
        .struct_size = sizeof(req), .path = cf_abi(path), .offset = offset, .max = max, .sink = sink, .sink_ctx = ctx};
    return c->p->sandbox->read(c->p->ctx, &call, cf_id(c), &req, eof);
}

static int32_t on_bytes(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    return mg_buf_append(ctx, p, n) == MG_OK ? 0 : 1;
}

mango_status cf_read(struct cf *c, struct mg_sv path, uint64_t offset, uint64_t max, struct mg_buf *out, int32_t *eof)
{
    return cf_read_to(c, path, offset, max, on_bytes, out, eof);
}

mango_status cf_stat(struct cf *c, struct mg_sv path, uint32_t flags, struct mango_stat *ret)
{
    struct mg_err err;
    struct mango_call call = mg_plugin_call(cf_in_ms(CF_CALL_MS), NULL, &err);
    *ret = (struct mango_stat){.struct_size = sizeof(*ret)};
    return c->p->sandbox->stat(c->p->ctx, &call, cf_id(c), cf_abi(path), flags, ret);
}

bool cf_holds(struct cf *c, const char *path, const char *content)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(CF_TEXT_MAX);
    int32_t eof = 0;
    mango_status s = cf_read(c, mg_sv_of(path), 0, CF_TEXT_MAX - 1, &out, &eof);
    return cf_check(c, s == MANGO_OK && eof == 1 && mg_sv_eqz(mg_buf_view(&out), content),
                    "%s: status %d, end %d, holds '%.*s', wanted '%.80s'", path, (int)s, (int)eof,
                    (int)(out.len < 80 ? out.len : 80), mg_buf_view(&out).ptr, content);
}
