#include <stdio.h>
#include <string.h>

#include "common/envd/envd.h"

/* Commands. */

struct exec {
    struct box *b;
    const struct mango_exec_req *req;
    char id[RBOX_ID_MAX + 1];
    bool in;
    bool told; /* by envd_start */
    struct chunk out, err;
    struct start run;
};

static void run_args(void *ctx, struct rbox_args *a, const struct rbox_frames *f)
{
    const struct exec *x = ctx;
    uint64_t now = now_ns(x->b->e->host), ms = 0;
    if (x->req->limit_ns)
        ms = x->req->limit_ns > now ? (x->req->limit_ns - now + 999999) / 1000000 : 1;
    rbox_run_args(a, x->b->root, x->id, x->req, x->b->env, f->bytes, ms, x->in);
}

static void kill_args(void *ctx, struct rbox_args *a, const struct rbox_frames *f)
{
    const struct exec *x = ctx;
    (void)f;
    rbox_argz(a, "kill");
    rbox_argz(a, x->b->root);
    rbox_argz(a, x->id);
}

/* The caller's name of this start, where it is one that we can use; a second start of it finds the first. */
static void name_it(struct exec *x)
{
    bool ok = x->req->exec_id.len > 0 && x->req->exec_id.len <= RBOX_ID_MAX;
    for (uint64_t i = 0; i < x->req->exec_id.len && ok; i++) {
        char c = x->req->exec_id.ptr[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c == '-' && i > 0);
    }
    if (ok)
        snprintf(x->id, sizeof(x->id), "%.*s", (int)x->req->exec_id.len, x->req->exec_id.ptr);
    else
        rbox_new_id(x->id);
}

/* The input goes ahead as a file of its own, which the command opens and nobody else sees. */
static mango_status send_input(struct exec *x, const struct mango_call *call)
{
    text_auto struct text path = {0};
    x->in = x->req->stdin_source || x->req->stdin_data.len > 0;
    if (!x->in)
        return MANGO_OK;
    text_printf(&path, "%s/" RBOX_DIR "/%s.in", x->b->root, x->id);
    if (path.bad)
        return envd_no_memory(x->b->e, call);
    return data_upload(x->b, call, path.ptr, x->req->stdin_data, x->req->stdin_source, x->req->stdin_ctx, -1);
}

/* Kills all of it, and asks how it ended: it may have been faster. False when nobody answers. */
static bool stop(struct exec *x, const struct mango_call *call, struct mango_exec_result *ret)
{
    struct envd *e = x->b->e;
    struct mango_call own = remote_anyway(e->host, call, ENVD_KILL_MS);
    struct start k = {.args = kill_args, .ctx = x, .what = "end the command"};
    if (live_is_dying(&x->b->live) || envd_start(x->b, &own, &k) < 0)
        return false;
    bool over = rbox_is(&k.f, RBOX_EXITED) || rbox_is(&k.f, RBOX_SIGNAL) || rbox_is(&k.f, RBOX_TIMEOUT);
    if (over) { /* the rest of its output */
        own = remote_anyway(e->host, call, ENVD_KILL_MS);
        over = envd_start(x->b, &own, &x->run) == MANGO_OK;
        return over && rbox_exec_result(e->host, &own, &x->run.f, x->req, ret) == MANGO_OK;
    }
    return rbox_exec_result(e->host, &own, &k.f, x->req, ret) == MANGO_OK;
}

/* The call ended before the command did. */
static mango_status cut_short(struct exec *x, const struct mango_call *call, mango_status s, bool own_limit,
                              struct mango_exec_result *ret)
{
    struct envd *e = x->b->e;
    bool known = stop(x, call, ret);
    if (known && (ret->exited || ret->signal || ret->timed_out))
        return MANGO_OK;
    rbox_unknown(ret, &x->run.f);
    if (known) {
        ret->unknown = 0;
        ret->timed_out = s == MANGO_ETIMEOUT;
        ret->cancelled = s == MANGO_ECANCELED;
    }
    if (own_limit)
        return MANGO_OK;
    return fail(e->host, call, s, s == MANGO_ECANCELED ? "cancelled" : "the call's time is over");
}

static mango_status run(struct exec *x, const struct mango_call *call, struct mango_exec_result *ret)
{
    struct envd *e = x->b->e;
    struct mango_call own = *call;
    uint64_t last = x->req->limit_ns ? x->req->limit_ns + ENVD_GRACE_MS * UINT64_C(1000000) : 0;
    bool own_limit = last && (!call->deadline_ns || last < call->deadline_ns);
    if (own_limit)
        own.deadline_ns = last;
    mango_status s = send_input(x, &own);
    if (s < 0)
        return s;
    s = envd_start(x->b, &own, &x->run);
    if (s == MANGO_ECANCELED || s == MANGO_ETIMEOUT)
        return cut_short(x, call, s, own_limit && s == MANGO_ETIMEOUT, ret);
    if (s == MANGO_OK)
        return rbox_exec_result(e->host, call, &x->run.f, x->req, ret);
    if (s == MANGO_ERETRY && x->run.sent) { /* nobody tells any more */
        rbox_unknown(ret, &x->run.f);
        return MANGO_OK;
    }
    return s;
}

mango_status envd_exec(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                       struct mango_exec_result *ret)
{
    struct envd *e = ctx;
    struct exec x = {.req = req};
    if (req->n_argv == 0)
        return fail(e->host, call, MANGO_EINVALID, "a command has at least one argument");
    mango_status s = box_enter(e, call, id, &x.b);
    if (s < 0)
        return s;
    x.out = chunk_to(req->sink, req->sink_ctx, 1, req->max_output);
    x.err = chunk_to(req->sink, req->sink_ctx, 2, req->max_output);
    name_it(&x);
    x.run = (struct start){
        .args = run_args, .ctx = &x, .id = x.id, .what = "run the command", .f = {.out = &x.out, .err = &x.err}};
    if (e->host->cancelled(e->host, call))
        s = fail(e->host, call, MANGO_ECANCELED, "cancelled before the start");
    if (s == MANGO_OK)
        s = box_touch(x.b, call);
    if (s == MANGO_OK)
        s = run(&x, call, ret);
    chunk_end(&x.out);
    chunk_end(&x.err);
    box_leave(x.b);
    return s;
}
