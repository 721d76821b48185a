/* Streamed bodies and answers: the queue between the two threads, and what handlers call. */
#include "http/feed.h"

#include "base/mem.h"
#include "http/response.h"
#include "http/server.h"

enum { PIECE = 64 * 1024 /* bytes that an answer's queue takes at once */ };

struct mg_feed *mg_feed_new(void)
{
    struct mg_feed *f = mg_xcalloc(1, sizeof(*f));
    (void)pthread_mutex_init(&f->lock, NULL);
    (void)pthread_cond_init(&f->changed, NULL);
    f->queue = MG_BUF_INIT(MG_FEED_MAX);
    return f;
}

void mg_feed_free(struct mg_feed *f)
{
    if (!f)
        return;
    mg_buf_done(&f->queue);
    (void)pthread_cond_destroy(&f->changed);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}

void mg_feed_end(struct mg_feed *f)
{
    pthread_mutex_lock(&f->lock);
    f->ended = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void mg_feed_break(struct mg_feed *f, int status, const struct mg_err *err)
{
    pthread_mutex_lock(&f->lock);
    if (!f->broken) {
        f->broken = true;
        f->status = status;
        if (err)
            f->err = *err;
        mg_buf_done(&f->queue);
    }
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

enum mg_body_result mg_feed_body(struct mg_feed *f, struct mg_body *b, struct mg_sv in, uint64_t max, size_t *ret_used,
                                 bool *ret_full)
{
    pthread_mutex_lock(&f->lock);
    enum mg_body_result r = mg_body_feed(b, in, max, f->broken ? NULL : &f->queue, ret_used);
    if (r == MG_BODY_DONE)
        f->ended = true;
    *ret_full = f->queue.len >= MG_FEED_HIGH;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return r;
}

/* With the lock held. */
static enum mg_feed_got take(struct mg_feed *f, struct mg_buf *to, bool *ret_was_full)
{
    *ret_was_full = f->queue.len >= MG_FEED_HIGH;
    if (f->queue.len == 0)
        return f->ended ? MG_FEED_END : MG_FEED_NONE;
    struct mg_buf empty = *to;
    *to = f->queue;
    f->queue = empty;
    f->queue.max = MG_FEED_MAX;
    return MG_FEED_SOME;
}

enum mg_feed_got mg_feed_take(struct mg_feed *f, struct mg_buf *to, bool *ret_was_full)
{
    pthread_mutex_lock(&f->lock);
    enum mg_feed_got got = take(f, to, ret_was_full);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return got;
}

bool mg_feed_fault(struct mg_feed *f, int *ret_status, struct mg_err *ret_err)
{
    pthread_mutex_lock(&f->lock);
    bool fault = f->broken && f->status;
    if (fault) {
        *ret_status = f->status;
        *ret_err = f->err;
    }
    pthread_mutex_unlock(&f->lock);
    return fault;
}

/* ---- the handler's side ---- */

static struct mg_call *call_of(struct mg_http_req *req)
{
    return mg_container_of(req, struct mg_call, req);
}

static mg_rc gone(struct mg_err *err)
{
    return mg_err_set(err, MG_ECANCELED, "the client went away");
}

mg_rc mg_http_body_next(struct mg_http_req *req, struct mg_sv *ret, struct mg_err *err)
{
    struct mg_call *call = call_of(req);
    struct mg_feed *f = call->in;
    bool was_full = false, first;
    *ret = mg_sv_n("", 0);
    if (!f)
        return MG_OK;
    mg_buf_reset(&call->taken);
    pthread_mutex_lock(&f->lock);
    first = !f->wanted;
    f->wanted = true;
    pthread_mutex_unlock(&f->lock);
    if (first)
        mg_call_ring(call); /* the loop says 100 Continue now */
    pthread_mutex_lock(&f->lock);
    while (!f->broken && take(f, &call->taken, &was_full) == MG_FEED_NONE)
        pthread_cond_wait(&f->changed, &f->lock);
    mg_rc rc = f->broken ? (f->status ? mg_err_set(err, f->err.rc, "%s", f->err.text) : gone(err)) : MG_OK;
    pthread_mutex_unlock(&f->lock);
    if (was_full)
        mg_call_ring(call);
    if (rc >= 0)
        *ret = mg_buf_view(&call->taken);
    return rc;
}

mg_rc mg_http_send_begin(struct mg_http_req *req, struct mg_http_res *res, uint64_t length, struct mg_err *err)
{
    struct mg_call *call = call_of(req);
    const struct mg_response_head head = {
        .status = res->status ? res->status : 200,
        .request_id = &req->request_id,
        .keep_alive = call->keep_alive,
        .http10 = req->http10,
        .no_body = true,
    };
    struct mg_feed *f = mg_feed_new();
    mg_response_write_head(&f->queue, &head, res, length);
    if (!mg_buf_ok(&f->queue)) {
        mg_feed_free(f);
        return mg_err_set(err, MG_EINTERNAL, "the answer's headers are too large");
    }
    call->left = req->method == MG_HEAD ? 0 : length;
    call->status = head.status;
    mg_call_begin(call, f);
    return MG_OK;
}

mg_rc mg_http_send(struct mg_http_req *req, const void *p, size_t n, struct mg_err *err)
{
    struct mg_call *call = call_of(req);
    struct mg_feed *f = call->out_feed;
    const char *at = p;
    if (req->method == MG_HEAD)
        return MG_OK;
    if (n > call->left)
        return mg_err_set(err, MG_EINTERNAL, "the answer is longer than it said");
    call->left -= n;
    while (n) {
        size_t k = n < PIECE ? n : PIECE;
        pthread_mutex_lock(&f->lock);
        while (!f->broken && f->queue.len >= MG_FEED_HIGH)
            pthread_cond_wait(&f->changed, &f->lock);
        bool broken = f->broken, empty = f->queue.len == 0;
        if (!broken)
            (void)mg_buf_append(&f->queue, at, k);
        pthread_mutex_unlock(&f->lock);
        if (broken)
            return gone(err);
        if (empty)
            mg_call_ring(call);
        at += k;
        n -= k;
    }
    return MG_OK;
}
