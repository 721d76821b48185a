/* The offline model behind model.h: one thread answers one call after the other, through the same stream parser and
 * fold as a real endpoint's answers.
 *
 * Concurrency: lock guards the queue and the ids; callbacks run on the thread without it, so they may start further
 * calls. */
#include <pthread.h>

#include "base/list.h"
#include "base/thread.h"
#include "model/backend.h"
#include "model/offline.h"

enum { ANSWER_MAX = MG_MODEL_RESPONSE_MAX };

struct offline {
    struct mg_model base;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct mg_list queue; /* struct call, guarded by lock */
    uint64_t last_id;     /* guarded by lock */
    uint64_t running;     /* guarded by lock; 0: none */
    bool cancel_running;  /* guarded by lock */
    bool closing;         /* guarded by lock */
};

struct call {
    struct mg_list link;
    struct offline *m;
    uint64_t id;
    char *body;
    size_t body_len;
    bool canceled;
    struct mg_message *message;
    struct mg_model_call_opts opts; /* body and beta are not used */
};

static bool is_canceled(struct call *c)
{
    pthread_mutex_lock(&c->m->lock);
    bool canceled = c->canceled || c->m->cancel_running;
    pthread_mutex_unlock(&c->m->lock);
    return canceled;
}

static bool on_event(void *ctx, struct mg_sv name, struct mg_sv data)
{
    (void)name;
    struct call *c = ctx;
    return !is_canceled(c) && mg_message_event(c->message, data) != MG_MESSAGE_END;
}

static void on_delta(void *ctx, int block_index, enum mg_block_kind kind, bool start, struct mg_sv text)
{
    struct call *c = ctx;
    if (c->opts.on_delta)
        c->opts.on_delta(c->opts.ctx, block_index, kind, start, text);
}

static void answer(struct call *c)
{
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(ANSWER_MAX);
    struct mg_sse sse;
    c->message = mg_message_new(on_delta, c);
    mg_sse_init(&sse, MG_MODEL_LINE_MAX, on_event, c);
    if (is_canceled(c))
        mg_message_fail(c->message, MG_MODEL_CANCELED, "the model call was cancelled");
    else if (mg_offline_answer(mg_sv_n(c->body, c->body_len), &out) < 0)
        mg_message_fail(c->message, MG_MODEL_PERMANENT, "the offline model's answer is over %d bytes", ANSWER_MAX);
    else if (mg_sse_feed(&sse, out.ptr, out.len, NULL) < 0 && !mg_message_ended(c->message))
        mg_message_fail(c->message, MG_MODEL_CANCELED, "the model call was cancelled");
    mg_sse_done(&sse);
    c->opts.on_done(c->opts.ctx, mg_message_finish(c->message));
}

/* The next call, or NULL when the model closes and none is left. */
static struct call *next_call(struct offline *m)
{
    pthread_mutex_lock(&m->lock);
    m->running = 0;
    while (mg_list_empty(&m->queue) && !m->closing)
        pthread_cond_wait(&m->wake, &m->lock);
    struct call *c = NULL;
    if (!mg_list_empty(&m->queue)) {
        c = mg_container_of(m->queue.next, struct call, link);
        mg_list_del(&c->link);
        m->running = c->id;
        m->cancel_running = m->closing;
    }
    pthread_mutex_unlock(&m->lock);
    return c;
}

static void *run(void *arg)
{
    struct offline *m = arg;
    for (struct call *c = next_call(m); c; c = next_call(m)) {
        answer(c);
        free(c->body);
        free(c);
    }
    return NULL;
}

static uint64_t offline_start(struct mg_model *base, const struct mg_model_call_opts *o)
{
    struct offline *m = mg_container_of(base, struct offline, base);
    struct call *c = mg_xcalloc(1, sizeof(*c));
    c->m = m;
    c->opts = *o;
    c->body = mg_xstrndup(o->body.ptr, o->body.len);
    c->body_len = o->body.len;
    pthread_mutex_lock(&m->lock);
    uint64_t id = c->id = ++m->last_id;
    mg_list_add_tail(&m->queue, &c->link);
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    return id;
}

static void offline_cancel(struct mg_model *base, uint64_t id)
{
    struct offline *m = mg_container_of(base, struct offline, base);
    pthread_mutex_lock(&m->lock);
    if (m->running == id)
        m->cancel_running = true;
    mg_list_each (it, &m->queue) {
        struct call *c = mg_container_of(it, struct call, link);
        if (c->id == id)
            c->canceled = true;
    }
    pthread_mutex_unlock(&m->lock);
}

static void offline_close(struct mg_model *base)
{
    struct offline *m = mg_container_of(base, struct offline, base);
    pthread_mutex_lock(&m->lock);
    m->closing = m->cancel_running = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static const struct mg_model_ops offline_ops = {
    .close = offline_close,
    .start = offline_start,
    .cancel = offline_cancel,
    .offline = true,
};

struct mg_model *mg_model_offline_open(void)
{
    struct offline *m = mg_xcalloc(1, sizeof(*m));
    m->base.ops = &offline_ops;
    mg_list_init(&m->queue);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    if (mg_thread_start(&m->thread, NULL, run, m) == 0)
        return &m->base;
    free(m);
    return NULL;
}
