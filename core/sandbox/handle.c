#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sandbox/direct.h"
#include "sandbox/helper.h"
#include "sandbox/internal.h"

/* The tools' table of operations over a backend plugin. Concurrency: any thread; calls are serialised here for backends
 * that take one at a time. */

enum {
    ARGS_MAX = 4096,
    CALL_SLACK_MS = 15000, /* a backend may answer that much later than a command's limit: killing takes its time */
    PROC_WRITE_MS = 30000,
    PROC_CLOSE_MS = 10000,
};

static uint64_t in_ms(uint64_t ms)
{
    return mg_now_ns() + ms * UINT64_C(1000000);
}

static mg_rc gone(struct mg_err *err)
{
    return mg_err_set(err, MG_EGONE, "the session's sandbox is gone");
}

/* One call into the plugin: lock, guard, status. */
struct visit {
    struct mg_sandbox *s;
    struct mg_guard guard;
    struct mg_err own, *err;
    struct mango_call call;
};

static bool visit_begin(struct visit *v, struct mg_sandbox *s, enum mg_plugin_op op, uint64_t deadline_ns,
                        struct mg_cancel *cancel, struct mg_err *err)
{
    v->s = s;
    v->err = err ? err : &v->own;
    if (atomic_load(&s->gone)) {
        (void)gone(v->err);
        return false;
    }
    v->call = mg_plugin_call(deadline_ns, cancel, v->err);
    if (s->serial)
        pthread_mutex_lock(&s->call_lock);
    v->guard = mg_guard_enter(s->plugin, op);
    return true;
}

static mg_rc visit_end(struct visit *v, mango_status status)
{
    status = mg_guard_leave(&v->guard, status);
    if (v->s->serial)
        pthread_mutex_unlock(&v->s->call_lock);
    if (status == MANGO_EGONE)
        atomic_store(&v->s->gone, true);
    mg_rc rc = mg_plugin_rc(v->s->plugin, v->guard.op, status, v->err);
    if (v->s->note)
        v->s->note(v->s->backend, status != MANGO_ERETRY, v->err->text);
    return rc;
}

/* ---- exec ---- */

struct sink {
    mg_exec_sink *fn;
    void *ctx;
};

static int32_t on_output(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    const struct sink *s = ctx;
    return s->fn && s->fn(s->ctx, stream, p, n) ? 0 : 1;
}

/* A NULL-terminated list as the ABI has it; malloc memory, NULL when it is too long. */
static struct mango_sv *list_of(const char *const *z, uint64_t *ret_n)
{
    uint64_t n = 0;
    while (z && z[n] && n <= ARGS_MAX)
        n++;
    if (n > ARGS_MAX)
        return NULL;
    struct mango_sv *l = mg_xcalloc(n + 1, sizeof(*l));
    for (uint64_t i = 0; i < n; i++)
        l[i] = (struct mango_sv){z[i], strlen(z[i])};
    *ret_n = n;
    return l;
}

static void status_of(const struct mango_exec_result *r, struct mg_exec_status *ret)
{
    *ret = (struct mg_exec_status){.exit_code = r->exit_code,
                                   .signal = r->signal,
                                   .exited = r->exited == 1,
                                   .timed_out = r->timed_out == 1,
                                   .cancelled = r->cancelled == 1,
                                   .oom = r->oom == 1,
                                   .unknown = r->unknown == 1};
    /* The end of a stream is never success. */
    if (!ret->exited && ret->signal == 0 && !ret->timed_out && !ret->cancelled)
        ret->unknown = true;
}

static mg_rc run_exec(struct mg_sandbox *s, const struct mg_exec_req *req, const struct mango_sv *argv, uint64_t n_argv,
                      const struct mango_sv *env, uint64_t n_env, struct mg_exec_status *ret, struct mg_err *err)
{
    struct visit v;
    struct sink out = {req->sink, req->sink_ctx};
    uint64_t slack = CALL_SLACK_MS * UINT64_C(1000000);
    if (!visit_begin(&v, s, MG_OP_EXEC, req->deadline_ns ? req->deadline_ns + slack : 0, req->cancel, err))
        return MG_EGONE;
    struct mango_exec_req r = {.struct_size = sizeof(r),
                               .argv = argv,
                               .n_argv = n_argv,
                               .env = env,
                               .n_env = n_env,
                               .cwd = {req->cwd ? req->cwd : "", req->cwd ? strlen(req->cwd) : 0},
                               .stdin_data = {req->stdin_data.ptr, req->stdin_data.len},
                               .sink = on_output,
                               .sink_ctx = &out,
                               .limit_ns = req->deadline_ns};
    struct mango_exec_result result = {.struct_size = sizeof(result)};
    mg_rc rc = visit_end(&v, mg_helper_exec(s->plugin, &v.call, mg_sandbox_id(s), s->root, &r, &result));
    status_of(&result, ret);
    if (rc == MG_ECANCELED) {
        ret->cancelled = true;
        ret->unknown = false;
    }
    return rc;
}

static mg_rc box_exec(void *box, const struct mg_exec_req *req, struct mg_exec_status *ret, struct mg_err *err)
{
    uint64_t n_argv = 0, n_env = 0;
    mg_autofree struct mango_sv *argv = list_of(req->argv, &n_argv);
    mg_autofree struct mango_sv *env = list_of(req->env, &n_env);
    if (!argv || !env)
        return mg_err_set(err, MG_ETOOBIG, "a command has at most %d arguments and variables", ARGS_MAX);
    return run_exec(box, req, argv, n_argv, env, n_env, ret, err);
}

/* ---- files ---- */

/* Folders of the workspace that have another name too: a path in them becomes one relative to the root. */
static const struct {
    const char *name, *place;
} FOLDERS[] = {{"/mnt/session", ".session"}, {"/mnt/memory", ".session/memory"}};

static struct mango_sv mapped(const char *path, char out[PATH_MAX])
{
    for (size_t i = 0; i < sizeof(FOLDERS) / sizeof(FOLDERS[0]); i++) {
        size_t n = strlen(FOLDERS[i].name);
        if (strncmp(path, FOLDERS[i].name, n) != 0 || (path[n] != '/' && path[n] != '\0'))
            continue;
        int len = snprintf(out, PATH_MAX, "%s%s", FOLDERS[i].place, path + n);
        if (len > 0 && len < PATH_MAX)
            return (struct mango_sv){out, (size_t)len};
    }
    return (struct mango_sv){path, strlen(path)};
}

/* ---- folders that tools must not write ---- */

void mg_sandbox_protect(struct mg_sandbox *s, const char *folders)
{
    char *none = NULL, *copy = mg_xstrdup(folders);
    if (!atomic_compare_exchange_strong(&s->protected, &none, copy))
        free(copy);
}

/* The path without . and .. and doubled slashes, relative to the root. Links are not followed: what is written through one is found by whoever
 * looks at the folder. */
static struct mg_sv cleaned(const struct mg_sandbox *s, struct mango_sv path, char out[PATH_MAX])
{
    struct mg_sv rest = mg_sv_n(path.ptr, path.len);
    size_t n = 0, root = strlen(s->root);
    if (mg_sv_starts(rest, s->root) && rest.len > root && rest.ptr[root] == '/')
        rest = mg_sv_from(rest, root + 1);
    while (rest.len) {
        struct mg_sv part = mg_sv_split(&rest, '/');
        if (part.len == 0 || mg_sv_eqz(part, "."))
            continue;
        if (mg_sv_eqz(part, "..")) {
            while (n > 0 && out[--n] != '/')
                ;
            continue;
        }
        if (n + part.len + 1 >= PATH_MAX)
            break;
        if (n)
            out[n++] = '/';
        memcpy(out + n, part.ptr, part.len);
        n += part.len;
    }
    return mg_sv_n(out, n);
}

static bool is_protected(struct mg_sandbox *s, struct mango_sv path)
{
    const char *folders = atomic_load(&s->protected);
    char clean[PATH_MAX];
    if (!folders)
        return false;
    struct mg_sv p = cleaned(s, path, clean), all = mg_sv_of(folders);
    while (all.len) {
        struct mg_sv folder = mg_sv_split(&all, '\n');
        if (p.len >= folder.len && mg_sv_eq(mg_sv_n(p.ptr, folder.len), folder) &&
            (p.len == folder.len || p.ptr[folder.len] == '/'))
            return true;
    }
    return false;
}

struct reader {
    struct mg_buf *out;
    size_t room; /* a plugin that gives more than was asked for is cut here */
};

static int32_t on_bytes(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)stream;
    struct reader *r = ctx;
    size_t take = n < r->room ? (size_t)n : r->room;
    r->room -= take;
    return mg_buf_append(r->out, p, take) == MG_OK && take == n ? 0 : 1;
}

static mg_rc box_read(void *box, const char *path, int64_t offset, size_t max, struct mg_buf *out, bool *ret_eof,
                      struct mg_err *err)
{
    struct mg_sandbox *s = box;
    struct visit v;
    char place[PATH_MAX];
    int32_t eof = 0;
    if (offset < 0)
        return mg_err_set(err, MG_EINVAL, "offset must not be negative");
    if (!visit_begin(&v, s, MG_OP_READ, in_ms(MG_SANDBOX_FILE_MS), NULL, err))
        return MG_EGONE;
    struct reader r = {out, max};
    struct mango_read_req req = {.struct_size = sizeof(req),
                                 .path = mapped(path, place),
                                 .offset = (uint64_t)offset,
                                 .max = max,
                                 .sink = on_bytes,
                                 .sink_ctx = &r};
    mg_rc rc = visit_end(&v, s->plugin->sandbox->read(s->plugin->ctx, &v.call, mg_sandbox_id(s), &req, &eof));
    if (rc == MG_OK && !mg_buf_ok(out))
        return mg_err_set(err, MG_ETOOBIG, "'%s' is larger than the buffer for it", path);
    *ret_eof = eof != 0;
    return rc;
}

static mg_rc box_write(void *box, const char *path, struct mg_sv content, struct mg_err *err)
{
    struct mg_sandbox *s = box;
    struct visit v;
    char buffer[PATH_MAX];
    struct mango_sv place = mapped(path, buffer);
    if (is_protected(s, place))
        return mg_err_set(err, MG_EDENIED, "it is in a memory store that this session may only read");
    if (!visit_begin(&v, s, MG_OP_WRITE, in_ms(MG_SANDBOX_FILE_MS), NULL, err))
        return MG_EGONE;
    struct mango_write_req req = {
        .struct_size = sizeof(req), .path = place, .content = {content.ptr, content.len}, .source_len = -1};
    return visit_end(&v, s->plugin->sandbox->write(s->plugin->ctx, &v.call, mg_sandbox_id(s), &req));
}

mg_rc mg_sandbox_put(struct mg_sandbox *s, const char *path, uint32_t mode, mango_source_fn *source, void *ctx,
                     int64_t len, struct mg_err *err)
{
    struct visit v;
    if (!visit_begin(&v, s, MG_OP_WRITE, in_ms(MG_SANDBOX_PUT_MS), NULL, err))
        return MG_EGONE;
    struct mango_write_req req = {.struct_size = sizeof(req),
                                  .mode = mode,
                                  .path = {path, strlen(path)},
                                  .source = source,
                                  .source_ctx = ctx,
                                  .source_len = len};
    return visit_end(&v, s->plugin->sandbox->write(s->plugin->ctx, &v.call, mg_sandbox_id(s), &req));
}

static mg_rc box_stat(void *box, const char *path, struct mg_file_stat *ret, struct mg_err *err)
{
    struct mg_sandbox *s = box;
    struct visit v;
    char place[PATH_MAX];
    if (!visit_begin(&v, s, MG_OP_STAT, in_ms(MG_SANDBOX_FILE_MS), NULL, err))
        return MG_EGONE;
    struct mango_stat st = {.struct_size = sizeof(st)};
    struct mango_sv p = mapped(path, place);
    mg_rc rc = visit_end(&v, s->plugin->sandbox->stat(s->plugin->ctx, &v.call, mg_sandbox_id(s), p, 0, &st));
    if (rc < 0)
        return rc;
    *ret = (struct mg_file_stat){
        .size = (int64_t)st.size, .mtime_us = st.mtime_us, .mode = st.mode, .kind = (char)st.kind};
    return MG_OK;
}

static const char *box_root(void *box)
{
    return ((const struct mg_sandbox *)box)->root;
}

/* ---- long-lived processes ---- */

struct process {
    struct mg_sandbox *s; /* borrowed: the tools close their shell before the handle is released */
    mango_proc number;
};

static mg_rc proc_open(void *box, const char *const *argv, const char *const *env, void **ret_proc, struct mg_err *err)
{
    struct mg_sandbox *s = box;
    struct visit v;
    mango_proc number = 0;
    uint64_t n_argv = 0, n_env = 0;
    mg_autofree struct mango_sv *args = list_of(argv, &n_argv);
    mg_autofree struct mango_sv *vars = list_of(env, &n_env);
    if (!args || !vars)
        return mg_err_set(err, MG_ETOOBIG, "a command has at most %d arguments and variables", ARGS_MAX);
    if (!visit_begin(&v, s, MG_OP_PROC, in_ms(MG_SANDBOX_FILE_MS), NULL, err))
        return MG_EGONE;
    struct mango_exec_req req = {
        .struct_size = sizeof(req), .argv = args, .n_argv = n_argv, .env = vars, .n_env = n_env};
    mg_rc rc = visit_end(&v, s->plugin->sandbox->proc_open(s->plugin->ctx, &v.call, mg_sandbox_id(s), &req, &number));
    if (rc < 0)
        return rc;
    struct process *p = mg_xmalloc(sizeof(*p));
    *p = (struct process){s, number};
    *ret_proc = p;
    return MG_OK;
}

static mg_rc proc_write(void *proc, struct mg_sv data, struct mg_err *err)
{
    struct process *p = proc;
    struct visit v;
    if (!visit_begin(&v, p->s, MG_OP_PROC, in_ms(PROC_WRITE_MS), NULL, err))
        return MG_EGONE;
    struct mango_sv d = {data.ptr, data.len};
    return visit_end(&v, p->s->plugin->sandbox->proc_write(p->s->plugin->ctx, &v.call, p->number, d));
}

static mg_rc proc_read(void *proc, uint64_t deadline_ns, struct mg_cancel *cancel, mg_exec_sink *sink, void *sink_ctx,
                       bool *ret_closed, struct mg_err *err)
{
    struct process *p = proc;
    struct visit v;
    struct sink out = {sink, sink_ctx};
    int32_t closed = 0;
    struct mango_exec_result result = {.struct_size = sizeof(result)};
    if (!visit_begin(&v, p->s, MG_OP_PROC, deadline_ns, cancel, err))
        return MG_EGONE;
    const struct mango_sandbox_ops *ops = p->s->plugin->sandbox;
    mg_rc rc = visit_end(&v, ops->proc_read(p->s->plugin->ctx, &v.call, p->number, on_output, &out, &closed, &result));
    *ret_closed = closed != 0;
    return rc;
}

static void proc_close(void *proc)
{
    struct process *p = proc;
    struct mg_err err;
    if (!p)
        return;
    /* Also in a sandbox that is gone: the plugin holds memory for it. */
    struct mango_call call = mg_plugin_call(in_ms(PROC_CLOSE_MS), NULL, &err);
    struct mg_guard g = mg_guard_enter(p->s->plugin, MG_OP_PROC);
    (void)mg_guard_leave(&g, p->s->plugin->sandbox->proc_close(p->s->plugin->ctx, &call, p->number));
    free(p);
}

static const struct mg_tool_ops plain_ops = {
    .exec = box_exec,
    .read = box_read,
    .write = box_write,
    .stat = box_stat,
    .root = box_root,
};
static const struct mg_tool_ops proc_ops = {
    .exec = box_exec,
    .read = box_read,
    .write = box_write,
    .stat = box_stat,
    .root = box_root,
    .proc_open = proc_open,
    .proc_write = proc_write,
    .proc_read = proc_read,
    .proc_close = proc_close,
};

const struct mg_tool_ops *mg_sandbox_ops(const struct mg_sandbox *s)
{
    return mg_plugin_can(s->plugin, MANGO_CAP_PROC) ? &proc_ops : &plain_ops;
}

const char *mg_sandbox_provider(const struct mg_sandbox *s)
{
    return s->plugin->name;
}

bool mg_sandbox_isolated(const struct mg_sandbox *s)
{
    return mg_plugin_isolated(s->plugin);
}

struct mg_sandbox *mg_sandbox_direct(struct mg_plugin *p, const char *id, const char *root)
{
    struct mg_sandbox *s = mg_xcalloc(1, sizeof(*s));
    *s = (struct mg_sandbox){.plugin = p,
                             .refs = 1,
                             .external_id = mg_xstrdup(id),
                             .root = mg_xstrdup(root),
                             .serial = !mg_plugin_can(p, MANGO_CAP_CONCURRENT_EXEC)};
    pthread_mutex_init(&s->call_lock, NULL);
    return s;
}

void mg_sandbox_direct_free(struct mg_sandbox *s)
{
    mg_sandbox_free(s);
}

void mg_sandbox_free(struct mg_sandbox *s)
{
    pthread_mutex_destroy(&s->call_lock);
    free(s->external_id);
    free(s->root);
    free(s->identity);
    free(atomic_load(&s->protected));
    free(s);
}
