#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/hostbox/pump.h"

/* Long-lived processes with piped input: the persistent shell. Calls on one process come one at a time. */

struct proc {
    struct box *box; /* a reference, so that the memory outlives a destroy */
    struct pump pump;
};

static struct proc *proc_of(mango_proc number)
{
    return (struct proc *)(uintptr_t)number; /* NOLINT(performance-no-int-to-ptr): it was a pointer of ours */
}

mango_status hostbox_proc_open(void *ctx, const struct mango_call *call, struct mango_sv id,
                               const struct mango_exec_req *req, mango_proc *ret)
{
    struct boxes *all = ctx;
    struct box *b;
    if (req->flags & MANGO_PROC_PTY)
        return fail(all->host, call, MANGO_EUNSUPPORTED, "the %s backend has no terminals", all->kind->name);
    mango_status s = box_enter(all, call, id, &b);
    if (s < 0)
        return s;
    struct proc *p = calloc(1, sizeof(*p));
    if (!p) {
        s = fail(all->host, call, MANGO_ERETRY, "out of memory");
    } else {
        p->box = b;
        p->pump = (struct pump){.all = all, .out = {.stream = 1}, .err = {.stream = 2}};
        s = run_start(b, call, req, PIPE_STDIN, &p->pump.run);
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

/* write(2) to a pipe whose reader has gone raises SIGPIPE in this thread; the process's handler is not ours to change.
 */
static ssize_t write_quietly(int fd, const char *p, uint64_t n)
{
    sigset_t pipe_set, old, pending;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    ssize_t w = write(fd, p, n);
    int e = errno;
    if (w < 0 && e == EPIPE && !was_pending) {
        while (sigtimedwait(&pipe_set, NULL, &(struct timespec){0}) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = e;
    return w;
}

mango_status hostbox_proc_write(void *ctx, const struct mango_call *call, mango_proc number, struct mango_sv data)
{
    struct boxes *all = ctx;
    struct proc *p = proc_of(number);
    while (data.len > 0) {
        ssize_t w = p->pump.run.in < 0 ? -1 : write_quietly(p->pump.run.in, data.ptr, data.len);
        if (w >= 0) {
            data = (struct mango_sv){data.ptr + w, data.len - (uint64_t)w};
            continue;
        }
        if (p->pump.run.in < 0 || errno == EPIPE)
            return fail(all->host, call, MANGO_ENOENT, "the process has ended or closed its input");
        if (errno != EAGAIN && errno != EINTR)
            return fail(all->host, call, MANGO_EINTERNAL, "cannot write to the process: %s", strerror(errno));
        struct pollfd fds[2] = {{.fd = p->pump.run.in, .events = POLLOUT},
                                {.fd = all->host->cancel_fd(all->host, call), .events = POLLIN}};
        uint64_t now = now_ns(all->host), left = call->deadline_ns > now ? call->deadline_ns - now : 0;
        struct timespec ts = {.tv_sec = (time_t)(left / 1000000000), .tv_nsec = (long)(left % 1000000000)};
        int n = ppoll(fds, 2, call->deadline_ns ? &ts : NULL, NULL);
        if (n > 0 && fds[1].revents)
            return MANGO_ECANCELED;
        if (n == 0)
            return fail(all->host, call, MANGO_ETIMEOUT, "the process does not read its input");
    }
    return MANGO_OK;
}

mango_status hostbox_proc_read(void *ctx, const struct mango_call *call, mango_proc number, mango_sink_fn *sink,
                               void *sink_ctx, int32_t *ret_closed, struct mango_exec_result *ret)
{
    struct boxes *all = ctx;
    struct proc *p = proc_of(number);
    struct chunk *chunks[] = {&p->pump.out, &p->pump.err};
    for (int i = 0; i < 2; i++) {
        chunks[i]->sink = sink;
        chunks[i]->ctx = sink_ctx;
        chunks[i]->stopped = false;
    }
    *ret_closed = 0;
    switch (pump_wait(&p->pump, call, call->deadline_ns)) {
    case PUMP_OUTPUT:
        return MANGO_OK;
    case PUMP_TIME:
        return MANGO_ETIMEOUT;
    case PUMP_CANCEL:
        return MANGO_ECANCELED;
    default:
        break;
    }
    pump_drain(&p->pump);
    pump_result(&p->pump, ret);
    *ret_closed = 1;
    if (p->pump.end.kind == WIRE_FAILED) /* never began */
        return fail(all->host, call, MANGO_ENOENT, "the process could not be started: %s",
                    strerror(p->pump.end.status));
    return MANGO_OK;
}

mango_status hostbox_proc_close(void *ctx, const struct mango_call *call, mango_proc number)
{
    (void)ctx;
    (void)call;
    struct proc *p = proc_of(number);
    if (!p)
        return MANGO_OK;
    /* What still comes has no reader: the sink of the last read is gone with that call. */
    p->pump.out.stopped = p->pump.err.stopped = true;
    if (!p->pump.lost && !(p->pump.end.kind == WIRE_ENDED && p->pump.end.alone))
        pump_kill(&p->pump);
    run_close(&p->pump.run);
    live_unref(&p->box->live);
    free(p);
    return MANGO_OK;
}
