#include <stdlib.h>
#include <string.h>

#include "docker/run.h"

/* Long-lived processes with piped input: the persistent shell. Calls on one process come one at a time. */

struct proc {
    struct box *box; /* a reference, so that the memory outlives a destroy */
    struct run run;
};

static struct proc *proc_of(mango_proc number)
{
    return (struct proc *)(uintptr_t)number; /* NOLINT(performance-no-int-to-ptr): it was a pointer of ours */
}

mango_status docker_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                              const struct mango_exec_req *req, mango_proc *ret)
{
    struct docker *d = ctx;
    struct box *b;
    bool unsent;
    if (req->flags & MANGO_PROC_PTY)
        return fail(d->host, call, MANGO_EUNSUPPORTED, "the docker backend has no terminals");
    mango_status s = box_enter(d, call, id, &b);
    if (s < 0)
        return s;
    struct proc *p = calloc(1, sizeof(*p));
    if (!p) {
        s = fail(d->host, call, MANGO_ERETRY, "out of memory");
    } else {
        struct mango_exec_req plain = *req;
        plain.max_output = 0;
        p->box = b;
        p->run = (struct run){.out = {.stream = 1}, .err = {.stream = 2}};
        s = run_start(b, call, &plain, RUN_PROC, &p->run, &unsent);
        if (s < 0 && unsent)
            s = run_start(b, call, &plain, RUN_PROC, &p->run, &unsent);
    }
    if (s == MANGO_OK) {
        live_ref(&b->live);
        *ret = (mango_proc)(uintptr_t)p;
    } else {
        free(p);
    }
    live_leave(&b->live);
    return s;
}

/* Output that comes while input waits for room is kept by the channel: its credit bounds it. */
mango_status docker_proc_write(void *ctx, const struct mango_call *call, mango_proc number, struct mango_sv data)
{
    struct docker *d = ctx;
    struct proc *p = proc_of(number);
    while (data.len > 0) {
        uint64_t n = 0;
        if (p->run.ended || p->run.lost || !run_input(&p->run, call, data, &n))
            return fail(d->host, call, MANGO_ENOENT, "the process has ended or closed its input");
        data = (struct mango_sv){data.ptr + n, data.len - n};
        if (data.len == 0)
            break;
        switch (run_room(&p->run, call, call->deadline_ns)) {
        case RUN_CANCEL:
            return MANGO_ECANCELED;
        case RUN_TIME:
            return fail(d->host, call, MANGO_ETIMEOUT, "the process does not read its input");
        case RUN_END:
            return fail(d->host, call, MANGO_ENOENT, "the process has ended or closed its input");
        default:
            break;
        }
    }
    return MANGO_OK;
}

mango_status docker_proc_read(void *ctx, const struct mango_call *call, mango_proc number, mango_sink_fn *sink,
                              void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret)
{
    struct docker *d = ctx;
    struct proc *p = proc_of(number);
    struct chunk *chunks[] = {&p->run.out, &p->run.err};
    for (int i = 0; i < 2; i++) {
        chunks[i]->sink = sink;
        chunks[i]->ctx = sink_ctx;
        chunks[i]->stopped = false;
    }
    *ret_closed = 0;
    switch (run_wait(&p->run, call, call->deadline_ns, false)) {
    case RUN_OUTPUT:
        return MANGO_OK;
    case RUN_TIME:
        return MANGO_ETIMEOUT;
    case RUN_CANCEL:
        return MANGO_ECANCELED;
    default:
        break;
    }
    run_result(&p->run, ret);
    *ret_closed = 1;
    if (p->run.ended && p->run.end.error) /* never began */
        return fail(d->host, call, MANGO_ENOENT, "the process could not be started: %s", strerror(p->run.end.error));
    return MANGO_OK;
}

mango_status docker_proc_close(void *ctx, const struct mango_call *call, mango_proc number)
{
    (void)ctx;
    struct proc *p = proc_of(number);
    if (!p)
        return MANGO_OK;
    /* What still comes has no reader: the sink of the last read is gone with that call. */
    p->run.out.stopped = p->run.err.stopped = true;
    run_kill(&p->run, call);
    run_close(&p->run, call);
    live_unref(&p->box->live);
    free(p);
    return MANGO_OK;
}
