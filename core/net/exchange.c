/* Concurrency: lock guards what both threads touch, in struct exchange. The state lives on the caller's stack: the call
 * returns only after on_done, and the loop's thread lets go of it with the lock. */
#include "net/exchange.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"

enum {
    WAIT_MAX_MS = 60000,
    HEADERS_MAX = 2 * MG_NET_HEAD_MAX, /* bytes of header lines as they are kept here */
};

struct exchange {
    const struct mg_net_req *req;
    struct mg_net *net;
    uint64_t id;
    int fd; /* eventfd: something changed for the caller */
    pthread_mutex_t lock;
    struct mg_buf headers; /* "STATUS name: value\n" lines */
    struct mg_buf down, up;
    bool down_paused, done;
    size_t up_at;  /* bytes of up that curl has taken */
    bool up_asked; /* curl has begun with the body: before that its source is not touched, the request may not go out */
    bool up_paused; /* curl waits for more of it */
    bool up_full;   /* the caller waits for room */
    bool up_ended, up_failed;
    bool enough;               /* the reader wants nothing more */
    struct mg_net_later later; /* the loop's: the caller is to be woken; linked with waking */
    bool waking;
    struct mg_net_result result;
    char text[MG_NET_TEXT_MAX];
};

/* ---- the loop's side ---- */

static void wake(struct exchange *x)
{
    const uint64_t one = 1;
    (void)!write(x->fd, &one, sizeof(one));
}

static void wake_now(struct mg_net_later *l)
{
    struct exchange *x = mg_container_of(l, struct exchange, later);
    x->waking = false;
    wake(x);
}

/* The end of a short answer comes with its body: one waking does for both. */
static void wake_later(struct exchange *x)
{
    if (x->waking)
        return;
    x->waking = true;
    x->later.fn = wake_now;
    mg_net_later(x->net, &x->later);
}

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct exchange *x = ctx;
    pthread_mutex_lock(&x->lock);
    mg_buf_printf(&x->headers, "%d %.*s:%.*s\n", status, MG_SV_ARG(name), MG_SV_ARG(value));
    pthread_mutex_unlock(&x->lock);
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct exchange *x = ctx;
    enum mg_net_go go = MG_NET_GO;
    pthread_mutex_lock(&x->lock);
    if (x->enough)
        go = MG_NET_DRAIN;
    else if (x->down.len > 0 && x->down.len + n > MG_EXCHANGE_HELD)
        go = MG_NET_PAUSE;
    else if (mg_buf_append(&x->down, p, n) < 0)
        go = MG_NET_STOP;
    x->down_paused = go == MG_NET_PAUSE;
    wake_later(x);
    pthread_mutex_unlock(&x->lock);
    return go;
}

/* For another piece of the body. */
static bool room(const struct exchange *x)
{
    return x->up.len - x->up_at + MG_EXCHANGE_PIECE <= MG_EXCHANGE_HELD;
}

static int64_t on_read(void *ctx, char *p, size_t n)
{
    struct exchange *x = ctx;
    pthread_mutex_lock(&x->lock);
    size_t left = x->up.len - x->up_at;
    int64_t got = (int64_t)(n < left ? n : left);
    if (got > 0) {
        memcpy(p, x->up.ptr + x->up_at, (size_t)got);
        x->up_at += (size_t)got;
        if (x->up_full && room(x))
            wake(x);
    } else if (x->up_failed) {
        got = MG_NET_READ_ABORT;
    } else if (!x->up_ended) {
        got = MG_NET_READ_PAUSE;
        x->up_paused = x->up_asked = true;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
    return got;
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct exchange *x = ctx;
    pthread_mutex_lock(&x->lock);
    x->result = *r;
    x->result.text = NULL;
    (void)snprintf(x->text, sizeof(x->text), "%s", r->text);
    x->done = true;
    if (x->waking)
        mg_list_del(&x->later.link);
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the caller's side ---- */

static void tell_headers(struct exchange *x, struct mg_sv lines)
{
    while (lines.len > 0) {
        struct mg_sv value = mg_sv_split(&lines, '\n');
        struct mg_sv status = mg_sv_split(&value, ' '), name = mg_sv_split(&value, ':');
        int64_t code = 0;
        (void)mg_sv_to_i64(status, &code);
        if (x->req->on_header)
            x->req->on_header(x->req->ctx, (int)code, name, value);
    }
}

/* Whether the body's source gave more or less than it was said to. */
static bool wrong_length(const struct exchange *x, uint64_t total, bool ended)
{
    if (x->req->body_len < 0)
        return false;
    return ended ? total != (uint64_t)x->req->body_len : total > (uint64_t)x->req->body_len;
}

/* Asks the source for the next piece and hands it to the loop. */
static mg_rc feed(struct exchange *x, char *piece, uint64_t *total, struct mg_err *err)
{
    int64_t n = x->req->on_read(x->req->ctx, piece, MG_EXCHANGE_PIECE);
    mg_rc rc = MG_OK;
    if (n < 0 || n > MG_EXCHANGE_PIECE)
        rc = mg_err_set(err, MG_ECANCELED, "the request was stopped by the source of its body");
    else if (wrong_length(x, *total += (uint64_t)n, n == 0))
        rc = mg_err_set(err, MG_EINVAL, "the source of the body gave %llu bytes, %lld were announced",
                        (unsigned long long)*total, (long long)x->req->body_len);
    pthread_mutex_lock(&x->lock);
    if (x->up.len + MG_EXCHANGE_PIECE > MG_EXCHANGE_HELD) {
        mg_buf_consume(&x->up, x->up_at);
        x->up_at = 0;
    }
    if (rc < 0)
        x->up_failed = true;
    else if (n == 0)
        x->up_ended = true;
    else
        (void)mg_buf_append(&x->up, piece, (size_t)n);
    bool waits = x->up_paused;
    x->up_paused = false;
    pthread_mutex_unlock(&x->lock);
    if (waits)
        mg_net_resume(x->net, x->id);
    return rc;
}

static mg_rc still_wanted(uint64_t deadline_ns, const struct mg_cancel *cancel, struct mg_err *err)
{
    if (mg_cancel_fired(cancel))
        return mg_err_set(err, MG_ECANCELED, "the request was cancelled");
    if (deadline_ns && mg_now_ns() >= deadline_ns)
        return mg_err_set(err, MG_ETIMEOUT, "no answer before the deadline");
    return MG_OK;
}

/* Look again then. */
static void wait_change(struct exchange *x, uint64_t deadline_ns, struct mg_cancel *cancel)
{
    struct pollfd fds[2] = {{.fd = x->fd, .events = POLLIN},
                            {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN}};
    uint64_t now = mg_now_ns(), count;
    if (deadline_ns && now >= deadline_ns)
        return;
    uint64_t left_ms = deadline_ns ? (deadline_ns - now) / 1000000u + 1 : WAIT_MAX_MS;
    if (poll(fds, 2, (int)(left_ms < WAIT_MAX_MS ? left_ms : WAIT_MAX_MS)) > 0 && fds[0].revents)
        (void)!read(x->fd, &count, sizeof(count));
}

/* What there is to do, taken out under the lock. */
struct turn {
    struct mg_buf headers, body;
    bool done, feed, resume;
};

static void turn_cleanup(struct turn *t)
{
    mg_buf_done(&t->headers);
    mg_buf_done(&t->body);
}

static void take_turn(struct exchange *x, struct turn *t)
{
    pthread_mutex_lock(&x->lock);
    *t = (struct turn){.headers = x->headers,
                       .body = x->down,
                       .done = x->done,
                       .feed = x->up_asked && !x->up_ended && !x->done && room(x),
                       .resume = x->down_paused && !x->done};
    x->headers = MG_BUF_INIT(HEADERS_MAX);
    x->down = MG_BUF_INIT(MG_EXCHANGE_HELD);
    x->down_paused = false;
    x->up_full = x->up_asked && !x->up_ended && !t->feed;
    pthread_mutex_unlock(&x->lock);
}

/* 1: the answer is whole for its reader. */
static int give(struct exchange *x, const struct turn *t, struct mg_err *err)
{
    tell_headers(x, mg_buf_view(&t->headers));
    if (t->body.len == 0)
        return 0;
    switch (x->req->on_body ? x->req->on_body(x->req->ctx, t->body.ptr, t->body.len) : MG_NET_GO) {
    case MG_NET_DRAIN:
        return 1;
    case MG_NET_STOP:
        return mg_err_set(err, MG_ECANCELED, "the request was stopped by its reader");
    case MG_NET_GO:
    case MG_NET_GO_IDLE:
    case MG_NET_PAUSE:
        break;
    }
    return 0;
}

/* Until the end: 0 the request has ended by itself, 1 its reader has enough, or why we give up. */
static int run(struct exchange *x, uint64_t deadline_ns, struct mg_cancel *cancel, struct mg_err *err)
{
    mg_autofree char *piece = x->req->on_read ? mg_xmalloc(MG_EXCHANGE_PIECE) : NULL;
    uint64_t total = 0;
    for (;;) {
        __attribute__((cleanup(turn_cleanup))) struct turn t;
        take_turn(x, &t);
        int rc = give(x, &t, err);
        if (rc != 0 || t.done)
            return rc;
        if (t.resume)
            mg_net_resume(x->net, x->id);
        rc = still_wanted(deadline_ns, cancel, err);
        if (rc == MG_OK && t.feed)
            rc = feed(x, piece, &total, err);
        else if (rc == MG_OK)
            wait_change(x, deadline_ns, cancel);
        if (rc < 0)
            return rc;
    }
}

/* Behind it the loop knows the exchange no more. False: not yet, and wait_ms (-1: for ever) is over. */
static bool wait_end(struct exchange *x, int wait_ms)
{
    uint64_t until_ns = mg_now_ns() + (uint64_t)(wait_ms < 0 ? 0 : wait_ms) * 1000000u;
    for (;;) {
        struct pollfd fd = {.fd = x->fd, .events = POLLIN};
        uint64_t count, now = mg_now_ns();
        pthread_mutex_lock(&x->lock);
        bool done = x->done;
        pthread_mutex_unlock(&x->lock);
        if (done || (wait_ms >= 0 && now >= until_ns))
            return done;
        if (poll(&fd, 1, wait_ms < 0 ? WAIT_MAX_MS : (int)((until_ns - now) / 1000000u + 1)) > 0)
            (void)!read(x->fd, &count, sizeof(count));
    }
}

/* A reader that has enough leaves the connection a short while to come to its end, so that it can be used again. */
static void let_go(struct exchange *x, int rc)
{
    pthread_mutex_lock(&x->lock);
    bool done = x->done;
    x->enough = rc == 1;
    pthread_mutex_unlock(&x->lock);
    if (done)
        return;
    if (rc == 1)
        mg_net_resume(x->net, x->id);
    if (rc == 1 && wait_end(x, MG_NET_WHOLE_MS))
        return;
    mg_net_cancel(x->net, x->id);
    (void)wait_end(x, -1);
}

static mg_rc finish(struct exchange *x, int rc, struct mg_net_result *ret, struct mg_err *err)
{
    let_go(x, rc);
    *ret = x->result;
    if (rc < 0)
        return rc;
    if (rc == 1)
        return MG_OK;
    return x->result.rc == MG_OK ? MG_OK : mg_err_set(err, x->result.rc, "%s", x->text);
}

mg_rc mg_net_exchange(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                      struct mg_net_result *ret, struct mg_err *err)
{
    struct exchange x = {.req = req,
                         .net = n,
                         .lock = PTHREAD_MUTEX_INITIALIZER,
                         .headers = MG_BUF_INIT(HEADERS_MAX),
                         .down = MG_BUF_INIT(MG_EXCHANGE_HELD),
                         .up = MG_BUF_INIT(MG_EXCHANGE_HELD)};
    *ret = (struct mg_net_result){0};
    mg_autofd int fd = x.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return mg_err_errno(err, errno, "wait for an outgoing request");
    struct mg_net_req copy = *req;
    copy.on_header = on_header;
    copy.on_body = on_body;
    copy.on_read = req->on_read ? on_read : NULL;
    copy.on_done = on_done;
    copy.cancel = cancel;
    copy.ctx = &x;
    x.id = mg_net_start(n, &copy);
    int rc = run(&x, deadline_ns, cancel, err);
    rc = finish(&x, rc, ret, err);
    mg_buf_done(&x.headers);
    mg_buf_done(&x.down);
    mg_buf_done(&x.up);
    pthread_mutex_destroy(&x.lock);
    return rc;
}
