#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docker/run.h"

/* ---- input ---- */

enum { SOURCE_BYTES = 32 * 1024 };

/* What is still to be given to the command. */
struct input {
    struct mango_sv data;
    mango_source_fn *source;
    void *ctx;
    char *piece; /* of the source */
    bool done;
    mango_status status; /* of the source, when it gave up */
};

static bool refill(struct input *in)
{
    if (!in->source || in->data.len > 0)
        return in->data.len > 0;
    int64_t n = in->source(in->ctx, in->piece, SOURCE_BYTES);
    if (n < 0)
        in->status = (mango_status)n;
    if (n <= 0)
        in->source = NULL;
    else
        in->data = (struct mango_sv){in->piece, (uint64_t)n};
    return n > 0;
}

static void feed(struct run *r, const struct mango_call *call, struct input *in)
{
    while (!in->done && !r->ended && !r->lost) {
        uint64_t n;
        if (!refill(in)) {
            in->done = true;
            if (in->status == MANGO_OK)
                run_eof(r, call);
            return;
        }
        if (!run_input(r, call, in->data, &n) || n == 0)
            return;
        in->data = (struct mango_sv){in->data.ptr + n, in->data.len - n};
    }
}

/* ---- the end ---- */

/* The command could not be started: told as a shell would, so that it is a result and not a broken sandbox. */
static mango_status not_started(struct run *r, const struct mango_call *call, const struct mango_exec_req *req,
                                struct mango_exec_result *ret)
{
    char name[SHOWN_MAX + 1], text[SHOWN_MAX + 128];
    int e = r->end.error;
    shown(req->argv[0], name);
    if (strcmp(r->words, "cwd") == 0)
        return fail_path(r->docker->host, call, e, req->cwd);
    if (e == E2BIG)
        return fail(r->docker->host, call, MANGO_ETOOBIG,
                    "the arguments are larger than the kernel takes; pass content through stdin or a file");
    if (e == EAGAIN || e == ENOMEM)
        return fail(r->docker->host, call, MANGO_ERETRY, "the sandbox has no room for another process: %s",
                    strerror(e));
    if (e == EPROTO)
        return fail(r->docker->host, call, MANGO_EINTERNAL, "mango-box did not understand the command");
    int n = snprintf(text, sizeof(text), "mango: %s: %s\n", name, e == ENOENT ? "not found" : strerror(e));
    chunk_feed(&r->err, text, (uint64_t)n);
    run_result(r, ret);
    ret->unknown = 0;
    ret->exited = 1;
    ret->exit_code = e == ENOENT || e == ENOTDIR ? 127 : 126;
    ret->stderr_bytes = (uint64_t)n;
    return MANGO_OK;
}

/* Everything dead, then told apart: the command's own limit is a result, the token and the call's deadline are not. */
static mango_status stopped(struct run *r, const struct mango_call *call, int why, bool own_limit,
                            struct mango_exec_result *ret)
{
    run_kill(r, call);
    run_result(r, ret);
    ret->exited = ret->unknown = 0;
    ret->exit_code = ret->signal = 0;
    ret->cancelled = why == RUN_CANCEL;
    ret->timed_out = why == RUN_TIME;
    if (why == RUN_CANCEL)
        return fail(r->docker->host, call, MANGO_ECANCELED, "cancelled; the command and what it started were killed");
    if (own_limit)
        return MANGO_OK;
    return fail(r->docker->host, call, MANGO_ETIMEOUT,
                "the deadline passed; the command and what it started were killed");
}

static mango_status wait_end(struct run *r, const struct mango_call *call, const struct mango_exec_req *req,
                             struct input *in, struct mango_exec_result *ret)
{
    bool own = req->limit_ns && (!call->deadline_ns || req->limit_ns <= call->deadline_ns);
    uint64_t until = own ? req->limit_ns : call->deadline_ns;
    int what;
    do {
        feed(r, call, in);
        if (in->status < 0) {
            run_kill(r, call);
            run_result(r, ret);
            return in->status;
        }
        what = run_wait(r, call, until, !in->done);
        if ((what == RUN_OUTPUT || what == RUN_ROOM) && until && now_ns(r->docker->host) >= until)
            what = RUN_TIME; /* output that never pauses */
    } while (what == RUN_OUTPUT || what == RUN_ROOM);
    if (what != RUN_END)
        return stopped(r, call, what, own, ret);
    if (r->ended && r->end.error)
        return not_started(r, call, req, ret);
    run_result(r, ret);
    return MANGO_OK;
}

static mango_status run_once(struct box *b, const struct mango_call *call, const struct mango_exec_req *req,
                             struct mango_exec_result *ret, bool *ret_unsent)
{
    struct run r = {.out = chunk_to(req->sink, req->sink_ctx, 1, req->max_output),
                    .err = chunk_to(req->sink, req->sink_ctx, 2, req->max_output)};
    struct input in = {.data = req->stdin_data, .source = req->stdin_source, .ctx = req->stdin_ctx};
    bool has_input = in.source || in.data.len > 0;
    in.done = !has_input;
    if (in.source) {
        in.data = no_text();
        if (!(in.piece = malloc(SOURCE_BYTES)))
            return fail(b->docker->host, call, MANGO_ERETRY, "out of memory");
    }
    mango_status s = run_start(b, call, req, has_input ? RUN_STDIN : RUN_NO_STDIN, &r, ret_unsent);
    if (s == MANGO_OK)
        s = wait_end(&r, call, req, &in, ret);
    run_close(&r, call);
    free(in.piece);
    return s;
}

mango_status docker_exec(void *ctx, const struct mango_call *call, struct mango_sv id, const struct mango_exec_req *req,
                         struct mango_exec_result *ret)
{
    struct docker *d = ctx;
    struct box *b;
    bool unsent = false;
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    if (d->host->cancelled(d->host, call)) {
        ret->cancelled = 1;
        s = fail(d->host, call, MANGO_ECANCELED, "cancelled before the command was started");
    } else {
        s = run_once(b, call, req, ret, &unsent);
        if (s < 0 && unsent) /* the Engine was restarted since the last command */
            s = run_once(b, call, req, ret, &unsent);
        if (s == MANGO_OK && ret->unknown && live_is_dying(&b->live))
            s = fail(d->host, call, MANGO_EGONE, "the sandbox was removed while the command ran");
    }
    live_leave(&b->live);
    return s;
}
