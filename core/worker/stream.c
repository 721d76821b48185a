#include "worker/stream.h"

#include <stdio.h>

#include "base/clock.h"
#include "net/sse-parse.h"

enum { WHY_MAX = MG_ERR_TEXT_MAX + 32, REFUSAL_MAX = 64 * 1024 };

struct mg_stream {
    struct mg_tether *tether;
    struct mg_net *net;
    uint64_t id;
    struct mg_sse sse; /* the loop's */
    /* below: the tether's lock */
    struct mg_list queue;
    size_t queued; /* bytes */
    bool opened, done, paused, failed;
    int status;
    struct mg_buf refusal; /* the loop's until done */
    char why[WHY_MAX];
};

/* An error event ends the stream with the server's words. */
static bool is_error(struct mg_sv name)
{
    return mg_sv_eqz(name, "error");
}

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    struct mg_stream *s = ctx;
    if (mg_sv_eqz(name, "ping") || data.len == 0)
        return true;
    if (is_error(name)) {
        char code[MG_REMOTE_CODE_MAX];
        struct mg_err err = {0};
        (void)!mg_remote_refused(500, data, code, &err);
        pthread_mutex_lock(&s->tether->lock);
        (void)snprintf(s->why, sizeof(s->why), "an error event: %s", err.text);
        s->failed = true;
        pthread_mutex_unlock(&s->tether->lock);
        return false;
    }
    struct mg_stream_text *t = mg_xmalloc(sizeof(*t) + data.len + 1);
    t->len = data.len;
    t->looked = false;
    memcpy(t->text, data.ptr, data.len);
    t->text[data.len] = '\0';
    pthread_mutex_lock(&s->tether->lock);
    mg_list_add_tail(&s->queue, &t->link);
    s->queued += t->len;
    pthread_cond_broadcast(&s->tether->changed);
    pthread_mutex_unlock(&s->tether->lock);
    return true;
}

static void on_header(void *ctx, int status, struct mg_sv name, struct mg_sv value)
{
    struct mg_stream *s = ctx;
    (void)name;
    (void)value;
    pthread_mutex_lock(&s->tether->lock);
    s->status = status;
    if (status == 200 && !s->opened) {
        s->opened = true;
        pthread_cond_broadcast(&s->tether->changed);
    }
    pthread_mutex_unlock(&s->tether->lock);
}

static enum mg_net_go on_body(void *ctx, const char *p, size_t n)
{
    struct mg_stream *s = ctx;
    struct mg_err err = {0};
    pthread_mutex_lock(&s->tether->lock);
    bool ours = s->status == 200, full = s->queued > MG_STREAM_QUEUE_MAX;
    s->paused = ours && full;
    pthread_mutex_unlock(&s->tether->lock);
    if (!ours)
        return mg_buf_append(&s->refusal, p, n) == MG_OK ? MG_NET_GO : MG_NET_STOP;
    if (full)
        return MG_NET_PAUSE;
    if (mg_sse_feed(&s->sse, p, n, &err) == MG_OK)
        return MG_NET_GO;
    pthread_mutex_lock(&s->tether->lock);
    if (!s->failed)
        (void)snprintf(s->why, sizeof(s->why), "%s", err.text);
    s->failed = true;
    pthread_mutex_unlock(&s->tether->lock);
    return MG_NET_STOP;
}

static void on_done(void *ctx, const struct mg_net_result *r)
{
    struct mg_stream *s = ctx;
    pthread_mutex_lock(&s->tether->lock);
    s->done = true;
    if (!s->failed)
        (void)snprintf(s->why, sizeof(s->why), "%s", r->rc == MG_OK ? "the server ended the stream" : r->text);
    pthread_cond_broadcast(&s->tether->changed);
    pthread_mutex_unlock(&s->tether->lock);
}

static void start(struct mg_stream *s, const struct mg_remote *r, const char *session_id)
{
    struct mg_net_header h[MG_REMOTE_HEADERS_MAX];
    mg_auto(buf) struct mg_buf bearer = MG_BUF_INIT(16384);
    mg_auto(buf) struct mg_buf url = MG_BUF_INIT(16384);
    const struct mg_remote_req q = {.method = "GET"};
    (void)mg_buf_printf(&url, "%s/v1/sessions/", r->base);
    (void)mg_buf_percent(&url, mg_sv_of(session_id));
    (void)mg_buf_str(&url, "/events/stream");
    const struct mg_net_req req = {
        .method = MG_SV("GET"),
        .url = mg_buf_view(&url),
        .headers = h,
        .n_headers = mg_remote_headers(r, &q, &bearer, h),
        .idle_ms = MG_STREAM_IDLE_MS,
        .total_ms = MG_NET_FOREVER,
        .max_bytes = SIZE_MAX,
        .on_header = on_header,
        .on_body = on_body,
        .on_done = on_done,
        .ctx = s,
    };
    s->id = mg_net_start(r->net, &req);
    if (bearer.ptr)
        mg_wipe(bearer.ptr, bearer.len);
}

mg_rc mg_stream_open(const struct mg_remote *r, const char *session_id, struct mg_tether *t, struct mg_stream **ret,
                     int *ret_status, struct mg_err *err)
{
    struct mg_stream *s = mg_xcalloc(1, sizeof(*s));
    uint64_t until = mg_now_ns() + MG_STREAM_OPEN_MS * 1000000ull;
    s->tether = t;
    s->net = r->net;
    s->refusal = MG_BUF_INIT(REFUSAL_MAX);
    mg_list_init(&s->queue);
    mg_sse_init(&s->sse, MG_STREAM_EVENT_MAX, on_event, s);
    start(s, r, session_id);
    pthread_mutex_lock(&t->lock);
    while (!s->opened && !s->done && t->end == MG_TETHER_RUNS && mg_now_ns() < until)
        (void)mg_tether_wait(t, until);
    bool opened = s->opened && t->end == MG_TETHER_RUNS, done = s->done;
    *ret_status = s->done ? s->status : 0;
    pthread_mutex_unlock(&t->lock);
    if (opened) {
        *ret = s;
        return MG_OK;
    }
    char code[MG_REMOTE_CODE_MAX];
    mg_rc rc = mg_tether_ended(t) != MG_TETHER_RUNS ? mg_err_set(err, MG_ECANCELED, "cancelled")
               : !done            ? mg_err_set(err, MG_ETIMEOUT, "no answer within %d s", MG_STREAM_OPEN_MS / 1000)
               : *ret_status == 0 ? mg_err_set(err, MG_EIO, "%s", s->why)
                                  : mg_remote_refused(*ret_status, mg_buf_view(&s->refusal), code, err);
    mg_stream_close(s);
    return rc;
}

void mg_stream_close(struct mg_stream *s)
{
    if (!s)
        return;
    mg_net_cancel(s->net, s->id);
    pthread_mutex_lock(&s->tether->lock);
    while (!s->done)
        (void)mg_tether_wait(s->tether, 0);
    pthread_mutex_unlock(&s->tether->lock);
    mg_list_each (it, &s->queue)
        free(mg_container_of(it, struct mg_stream_text, link));
    mg_sse_done(&s->sse);
    mg_buf_done(&s->refusal);
    free(s);
}

struct mg_stream_text *mg_stream_take(struct mg_stream *s)
{
    if (mg_list_empty(&s->queue))
        return NULL;
    struct mg_stream_text *t = mg_container_of(s->queue.next, struct mg_stream_text, link);
    mg_list_del(&t->link);
    s->queued -= t->len;
    if (s->paused && s->queued <= MG_STREAM_QUEUE_MAX / 2) {
        s->paused = false;
        mg_net_resume(s->net, s->id);
    }
    return t;
}

void mg_stream_look(struct mg_stream *s, void (*fn)(void *ctx, struct mg_sv event), void *ctx)
{
    mg_list_each (it, &s->queue) {
        struct mg_stream_text *t = mg_container_of(it, struct mg_stream_text, link);
        if (!t->looked)
            fn(ctx, mg_sv_n(t->text, t->len));
        t->looked = true;
    }
}

bool mg_stream_ended(const struct mg_stream *s)
{
    return s->done && mg_list_empty(&s->queue);
}

const char *mg_stream_why(const struct mg_stream *s)
{
    return s->why;
}
