#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/hostbox/pump.h"

enum { SHELL_SIGNAL = 128 /* what a shell adds to the signal that ended a command */ };

/* The command could not be started: told as a shell would, so that it is a result and not a broken sandbox. */
static mango_status not_started(struct pump *p, const struct mango_call *call, const struct mango_exec_req *req,
                                struct mango_exec_result *ret)
{
    char name[SHOWN_MAX + 1], text[SHOWN_MAX + 128];
    int e = p->end.status;
    shown(req->argv[0], name);
    if (e == E2BIG)
        return fail(p->all->host, call, MANGO_ETOOBIG,
                    "the arguments are larger than the kernel takes; pass content through stdin or a file");
    if (e == EAGAIN || e == ENOMEM)
        return fail(p->all->host, call, MANGO_ERETRY, "the host has no room for another process: %s", strerror(e));
    int n = snprintf(text, sizeof(text), "mango: %s: %s\n", name, e == ENOENT ? "not found" : strerror(e));
    chunk_feed(&p->err, text, (uint64_t)n);
    chunk_end(&p->err);
    pump_result(p, ret);
    ret->unknown = 0;
    ret->exited = 1;
    ret->exit_code = e == ENOENT || e == ENOTDIR ? 127 : 126;
    return MANGO_OK;
}

/* Everything dead, then told apart: the command's own limit is a result, the token and the call's deadline are not. */
static mango_status stopped(struct pump *p, const struct mango_call *call, int why, bool own_limit,
                            struct mango_exec_result *ret)
{
    pump_kill(p);
    pump_drain(p);
    pump_result(p, ret);
    ret->exited = ret->unknown = 0;
    ret->exit_code = ret->signal = 0;
    ret->cancelled = why == PUMP_CANCEL;
    ret->timed_out = why == PUMP_TIME;
    if (why == PUMP_CANCEL)
        return fail(p->all->host, call, MANGO_ECANCELED, "cancelled; the command and what it started were killed");
    if (own_limit)
        return MANGO_OK;
    return fail(p->all->host, call, MANGO_ETIMEOUT, "the deadline passed; the command and what it started were killed");
}

static mango_status wait_end(struct pump *p, const struct mango_call *call, const struct mango_exec_req *req,
                             bool *ret_again, struct mango_exec_result *ret)
{
    bool own = req->limit_ns && (!call->deadline_ns || req->limit_ns <= call->deadline_ns);
    uint64_t until = own ? req->limit_ns : call->deadline_ns;
    int what;
    while ((what = pump_wait(p, call, until)) == PUMP_OUTPUT) {
        if (until && now_ns(p->all->host) >= until) { /* output that never pauses */
            what = PUMP_TIME;
            break;
        }
    }
    if (what != PUMP_END)
        return stopped(p, call, what, own, ret);
    if (p->end.kind == WIRE_FAILED)
        return not_started(p, call, req, ret);
    *ret_again = p->lost && !p->started;
    pump_drain(p);
    pump_result(p, ret);
    if (p->end.kind == WIRE_ENDED && !p->end.alone)
        run_release(&p->run);
    return MANGO_OK;
}

static uint64_t oom_kills(const struct box *b)
{
    return b->all->kind->oom_kills ? b->all->kind->oom_kills(b) : 0;
}

/* A command that was killed, or whose shell says so of its last one, while the box lost a process to want of memory. */
static bool killed(const struct mango_exec_result *r)
{
    return r->signal == SIGKILL || (r->exited && r->exit_code == SHELL_SIGNAL + SIGKILL);
}

static mango_status run_once(struct box *b, const struct mango_call *call, const struct mango_exec_req *req,
                             bool *ret_again, struct mango_exec_result *ret)
{
    struct pump p = {.all = b->all,
                     .out = chunk_to(req->sink, req->sink_ctx, 1, req->max_output),
                     .err = chunk_to(req->sink, req->sink_ctx, 2, req->max_output)};
    *ret_again = false;
    uint64_t kills = oom_kills(b);
    mango_status s = run_start(b, call, req, DATA_STDIN, &p.run);
    if (s == MANGO_OK)
        s = wait_end(&p, call, req, ret_again, ret);
    if (s == MANGO_OK && killed(ret) && oom_kills(b) > kills)
        ret->oom = 1;
    run_close(&p.run);
    return s;
}

mango_status hostbox_exec(void *ctx, const struct mango_call *call, struct mango_sv id,
                          const struct mango_exec_req *req, struct mango_exec_result *ret)
{
    struct boxes *all = ctx;
    struct box *b;
    bool again;
    mango_status s = box_enter(all, call, id, &b);
    if (s < 0)
        return s;
    if (all->host->cancelled(all->host, call)) {
        ret->cancelled = 1;
        s = fail(all->host, call, MANGO_ECANCELED, "cancelled before the command was started");
    } else {
        s = run_once(b, call, req, &again, ret);
        /* The runner was killed while the request lay in its socket: the reaper says STARTED first, so nothing has run.
         */
        if (s == MANGO_OK && again && !req->stdin_source)
            s = run_once(b, call, req, &again, ret);
        if (s == MANGO_OK && ret->unknown && live_is_dying(&b->live))
            s = fail(all->host, call, MANGO_EGONE, "the workspace was removed while the command ran");
    }
    live_leave(&b->live);
    return s;
}
