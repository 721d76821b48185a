#include "sandbox/helper.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "crypto/hash.h"

enum {
    RUN_BYTES = 8, /* of a command's number */
    RUN_LEN = 2 * RUN_BYTES + 1,
    OWN_ARGS = 6, /* sh -c SCRIPT NAME FOLDER NUMBER */
    PATH_LEN = 64,
};

/* $1 folder, $2 number, then the command. Process numbers of commands that are over are swept by the next one. */
#define NOTE                                                                                                        \
    "d=$1 n=$2; shift 2; mkdir -p \"$d\" && for f in \"$d\"/*.pid; do [ -e \"$f\" ] && { kill -0 \"$(cat \"$f\")\"" \
    " 2>/dev/null || rm -f \"$f\"; }; done; echo $$ >\"$d/$n.pid\"; "
static const char launch[] = NOTE "exec \"$@\"";
static const char launch_to_files[] = NOTE "exec \"$@\" >\"$d/$n.out\" 2>\"$d/$n.err\"";
/* The group first, then all that carries the mark, wherever it has gone; a few rounds, since processes are born meanwhile. */
static const char kill_script[] =
    "d=$1 n=$2; p=$(cat \"$d/$n.pid\" 2>/dev/null); [ -n \"$p\" ] && kill -KILL -- \"-$p\" \"$p\" 2>/dev/null; i=0; "
    "while [ $i -lt 20 ]; do l=; for e in /proc/[0-9]*/environ; do grep -q \"MANGO_RUN=$n\" \"$e\" 2>/dev/null && "
    "{ q=${e%/environ}; q=${q#/proc/}; kill -KILL \"$q\" 2>/dev/null && l=1; }; done; [ -z \"$l\" ] && break; "
    "i=$((i+1)); done; rm -f \"$d/$n.pid\"";
static const char remove_script[] = "rm -f \"$1/$2.pid\" \"$1/$2.out\" \"$1/$2.err\"; rmdir \"$1\" 2>/dev/null; true";

/* One command under the helper. */
struct run {
    struct mg_plugin *p;
    struct mango_sv id;
    char *folder; /* absolute, in the sandbox */
    char number[RUN_LEN];
};

static struct mango_sv z(const char *text)
{
    return (struct mango_sv){text, strlen(text)};
}

static int32_t drop(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)ctx, (void)stream, (void)p, (void)n;
    return 0;
}

/* A command of our own beside it; what it says does not matter. */
static void run_script(const struct run *r, const char *script)
{
    struct mg_err err;
    struct mango_sv argv[] = {z("/bin/sh"), z("-c"), z(script), z("mango-helper"), z(r->folder), z(r->number)};
    uint64_t until = mg_now_ns() + MG_HELPER_CALL_MS * UINT64_C(1000000);
    struct mango_exec_result own = {.struct_size = sizeof(own)};
    struct mango_call call = mg_plugin_call(until, NULL, &err);
    struct mango_exec_req req = {
        .struct_size = sizeof(req), .argv = argv, .n_argv = 6, .sink = drop, .limit_ns = until};
    (void)r->p->sandbox->exec(r->p->ctx, &call, r->id, &req, &own);
}

static int32_t keep(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    struct mg_buf *b = ctx;
    (void)stream;
    size_t room = b->max - b->len, take = n < room ? (size_t)n : room;
    return mg_buf_append(b, p, take) == MG_OK && take == n ? 0 : 1;
}

/* One stream back from its file, whole characters within the bound. */
static void give_back(const struct run *r, const struct mango_exec_req *req, int32_t stream, uint64_t *ret_bytes)
{
    struct mg_err err;
    char path[PATH_LEN];
    int32_t eof;
    uint64_t max = req->max_output && req->max_output < MG_HELPER_OUTPUT_MAX ? req->max_output : MG_HELPER_OUTPUT_MAX;
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT((size_t)max + 1);
    struct mango_stat st = {.struct_size = sizeof(st)};
    struct mango_call call = mg_plugin_call(mg_now_ns() + MG_HELPER_CALL_MS * UINT64_C(1000000), NULL, &err);
    snprintf(path, sizeof(path), MG_HELPER_DIR "/%s.%s", r->number, stream == 2 ? "err" : "out");
    struct mango_read_req read = {
        .struct_size = sizeof(read), .path = z(path), .max = max, .sink = keep, .sink_ctx = &out};
    if (r->p->sandbox->stat(r->p->ctx, &call, r->id, z(path), 0, &st) == MANGO_OK)
        *ret_bytes = st.size;
    if (r->p->sandbox->read(r->p->ctx, &call, r->id, &read, &eof) < 0 || out.len == 0)
        return;
    size_t n = out.len;
    size_t whole = mg_utf8_whole(mg_buf_view(&out));
    if (st.size > out.len)
        n = whole;
    if (n > 0 && req->sink)
        (void)req->sink(req->sink_ctx, stream, out.ptr, n);
}

static mango_status run_wrapped(const struct run *r, const struct mango_call *call, const struct mango_exec_req *req,
                                struct mango_exec_result *ret, bool files)
{
    char mark[RUN_LEN + sizeof("MANGO_RUN=")];
    snprintf(mark, sizeof(mark), "MANGO_RUN=%s", r->number);
    mg_autofree struct mango_sv *argv = mg_xcalloc(req->n_argv + OWN_ARGS, sizeof(*argv));
    mg_autofree struct mango_sv *env = mg_xcalloc(req->n_env + 1, sizeof(*env));
    const struct mango_sv own[OWN_ARGS] = {z("/bin/sh"),   z("-c"),      z(files ? launch_to_files : launch),
                                           z("mango-run"), z(r->folder), z(r->number)};
    memcpy(argv, own, sizeof(own));
    if (req->n_argv)
        memcpy(argv + OWN_ARGS, req->argv, req->n_argv * sizeof(*argv));
    if (req->n_env)
        memcpy(env, req->env, req->n_env * sizeof(*env));
    env[req->n_env] = z(mark);
    struct mango_exec_req wrapped = *req;
    wrapped.argv = argv;
    wrapped.n_argv = req->n_argv + OWN_ARGS;
    wrapped.env = env;
    wrapped.n_env = req->n_env + 1;
    if (files)
        wrapped.sink = drop;
    return r->p->sandbox->exec(r->p->ctx, call, r->id, &wrapped, ret);
}

mango_status mg_helper_exec(struct mg_plugin *p, const struct mango_call *call, struct mango_sv id, const char *root,
                            const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    bool no_kill = mg_plugin_can(p, MANGO_TRAIT_NO_KILL), files = mg_plugin_can(p, MANGO_TRAIT_TEXT_OUTPUT);
    if (!no_kill && !files)
        return p->sandbox->exec(p->ctx, call, id, req, ret);
    uint8_t bytes[RUN_BYTES];
    struct run r = {.p = p, .id = id};
    size_t n = strlen(root) + sizeof("/" MG_HELPER_DIR);
    mg_rng_bytes(bytes, sizeof(bytes));
    mg_hex(bytes, sizeof(bytes), r.number);
    mg_autofree char *folder = mg_xmalloc(n);
    snprintf(folder, n, "%s/" MG_HELPER_DIR, root);
    r.folder = folder;
    mango_status s = run_wrapped(&r, call, req, ret, files);
    if (no_kill && (s == MANGO_ECANCELED || s == MANGO_ETIMEOUT || ret->timed_out || ret->cancelled))
        run_script(&r, kill_script);
    if (files && s == MANGO_OK) {
        give_back(&r, req, 1, &ret->stdout_bytes);
        give_back(&r, req, 2, &ret->stderr_bytes);
    }
    if (s != MANGO_EGONE)
        run_script(&r, remove_script);
    return s;
}
