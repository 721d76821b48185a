/* A blocking call over a loop. The state lives on the caller's stack: the call returns only after on_done. */
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "net/loop.h"

struct waiter {
    const struct mg_net_req *req;
    struct mg_net_answer *answer;
    struct mg_err *err;
    mg_rc rc;
    int done_fd;
};

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct waiter *w = ctx;
    struct mg_buf *b = &w->answer->headers;
    (void)status;
    for (size_t i = 0; i < name.len; i++)
        mg_buf_char(b, name.ptr[i] >= 'A' && name.ptr[i] <= 'Z' ? (char)(name.ptr[i] + 32) : name.ptr[i]);
    mg_buf_printf(b, ": %.*s\n", MG_SV_ARG(value));
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct waiter *w = ctx;
    if (w->req->on_body)
        return w->req->on_body(w->req->ctx, p, n);
    return mg_buf_append(&w->answer->body, p, n) == MG_OK ? MG_NET_GO : MG_NET_STOP;
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct waiter *w = ctx;
    const uint64_t one = 1;
    w->answer->status = r->status;
    w->rc = r->rc == MG_OK ? MG_OK : mg_err_set(w->err, r->rc, "%s", r->text);
    while (write(w->done_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

/* MG_OK: done; MG_ECANCELED or MG_ETIMEOUT: not yet, and the caller has lost patience. */
static mg_rc wait_done(int done_fd, uint64_t deadline_ns, struct mg_cancel *cancel)
{
    struct pollfd fds[2] = {{.fd = done_fd, .events = POLLIN},
                            {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN}};
    for (;;) {
        uint64_t now = mg_now_ns();
        if (deadline_ns && now >= deadline_ns)
            return MG_ETIMEOUT;
        uint64_t left_ms = deadline_ns ? (deadline_ns - now) / 1000000u + 1 : 60000;
        int n = poll(fds, 2, (int)(left_ms < 60000 ? left_ms : 60000));
        uint64_t count;
        if (n > 0 && fds[0].revents && read(done_fd, &count, sizeof(count)) > 0)
            return MG_OK;
        if (n > 0 && fds[1].revents)
            return MG_ECANCELED;
    }
}

mg_rc mg_net_call(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                  struct mg_net_answer *ret, struct mg_err *err)
{
    size_t max = req->max_bytes ? req->max_bytes : MG_NET_BODY_MAX;
    *ret = (struct mg_net_answer){.headers = MG_BUF_INIT(2 * MG_NET_HEAD_MAX), .body = MG_BUF_INIT(max)};
    mg_autofd int done_fd = eventfd(0, EFD_CLOEXEC);
    if (done_fd < 0)
        return mg_err_errno(err, errno, "wait for an outgoing request");
    struct waiter w = {.req = req, .answer = ret, .err = err, .done_fd = done_fd};
    struct mg_net_req copy = *req;
    copy.on_header = on_header;
    copy.on_body = on_body;
    copy.on_done = on_done;
    copy.cancel = cancel;
    copy.ctx = &w;
    uint64_t id = mg_net_start(n, &copy);
    mg_rc rc = wait_done(done_fd, deadline_ns, cancel);
    if (rc == MG_OK)
        return w.rc;
    mg_net_cancel(n, id);
    (void)wait_done(done_fd, 0, NULL);
    if (w.rc != MG_ECANCELED)
        return w.rc; /* it ended by itself in the meantime */
    return mg_err_set(err, rc, rc == MG_ETIMEOUT ? "no answer before the deadline" : "the request was cancelled");
}
