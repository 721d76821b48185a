/* The loop thread: what libwebsockets calls, what other threads hand over, the timer wheel's clock.
 *
 * Concurrency: everything here runs on the loop thread, except the functions that say "any thread" in their headers. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>

#include "base/clock.h"
#include "base/mem.h"
#include "events/hub.h"
#include "http/listen.h"
#include "http/server.h"

enum { SCRATCH_KEEP = 128 * 1024 /* bytes of the scratch buffer that are kept between writes */ };

/* ---- tasks ---- */

struct job {
    struct mg_http *http;
    void (*fn)(void *arg, struct mg_pg *pg);
    void *arg;
};

/* The lock keeps the context alive meanwhile: the loop's end takes it before it frees. */
void mg_loop_signal(struct mg_http *h)
{
    if (atomic_exchange(&h->woken, true))
        return;
    pthread_mutex_lock(&h->lock);
    if (!h->ended)
        lws_cancel_service(h->lws);
    pthread_mutex_unlock(&h->lock);
}

void mg_http_wake(struct mg_http *h)
{
    mg_loop_signal(h);
}

static void task_thread(void *arg, void *thread)
{
    struct mg_task *t = arg;
    struct mg_http *h = t->http;
    t->run(t, thread);
    t->next = NULL;
    pthread_mutex_lock(&h->lock);
    *h->finished_tail = t;
    h->finished_tail = &t->next;
    pthread_mutex_unlock(&h->lock);
    mg_loop_signal(h);
}

mg_rc mg_task_submit(struct mg_http *h, struct mg_task *t, bool transfer)
{
    return mg_pool_submit(transfer ? h->transfers : h->pool, task_thread, t);
}

static void job_thread(void *arg, void *thread)
{
    struct job *j = arg;
    j->fn(j->arg, thread);
    free(j);
}

mg_rc mg_http_run(struct mg_http *h, void (*fn)(void *arg, struct mg_pg *pg), void *arg)
{
    struct job *j = mg_xmalloc(sizeof(*j));
    *j = (struct job){.http = h, .fn = fn, .arg = arg};
    mg_rc rc = mg_pool_submit(h->pool, job_thread, j);
    if (rc < 0)
        free(j);
    return rc;
}

void mg_loop_finish_tasks(struct mg_http *h)
{
    pthread_mutex_lock(&h->lock);
    struct mg_task *t = h->finished;
    h->finished = NULL;
    h->finished_tail = &h->finished;
    pthread_mutex_unlock(&h->lock);
    for (struct mg_task *next; t; t = next) {
        next = t->next;
        t->done(t);
    }
}

/* ---- revoked credentials ---- */

struct mg_revoked {
    struct mg_revoked *next;
    struct mg_id key;
};

void mg_http_revoke(struct mg_http *h, struct mg_sv key_id)
{
    struct mg_revoked *r = mg_xcalloc(1, sizeof(*r));
    if (!mg_id_from(key_id, &r->key)) {
        free(r);
        return;
    }
    pthread_mutex_lock(&h->lock);
    r->next = h->revoked;
    h->revoked = r;
    pthread_mutex_unlock(&h->lock);
    mg_loop_signal(h);
}

static struct mg_revoked *take_revoked(struct mg_http *h)
{
    pthread_mutex_lock(&h->lock);
    struct mg_revoked *all = h->revoked;
    h->revoked = NULL;
    pthread_mutex_unlock(&h->lock);
    return all;
}

static void free_revoked(struct mg_revoked *r)
{
    for (struct mg_revoked *next; r; r = next) {
        next = r->next;
        free(r);
    }
}

void mg_loop_free_revoked(struct mg_http *h)
{
    free_revoked(take_revoked(h));
}

static void revoke_sockets(struct mg_http *h)
{
    struct mg_revoked *all = take_revoked(h);
    for (const struct mg_revoked *r = all; r; r = r->next)
        mg_list_each (it, &h->conns) {
            struct mg_conn *c = mg_container_of(it, struct mg_conn, link);
            if (c->state == MG_CONN_WS)
                mg_ws_revoke(c, &r->key);
        }
    free_revoked(all);
}

/* ---- the loop ---- */

static void pump(struct mg_http *h)
{
    /* As many as there are now: a stream that is ready again waits for the others. */
    struct mg_list batch;
    mg_list_init(&batch);
    while (!mg_list_empty(&h->ready)) {
        struct mg_list *it = h->ready.next;
        mg_list_del(it);
        mg_list_add_tail(&batch, it);
    }
    while (!mg_list_empty(&batch)) {
        struct mg_conn *c = mg_container_of(batch.next, struct mg_conn, ready);
        mg_list_del(&c->ready);
        mg_conn_pump(c);
    }
    if (h->scratch.cap > SCRATCH_KEEP)
        mg_buf_done(&h->scratch);
}

static void close_listener(struct mg_http *h)
{
    if (h->listener)
        lws_set_timeout(h->listener, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
    h->listener = NULL;
}

static void drain_all(struct mg_http *h)
{
    h->drained = true;
    close_listener(h);
    mg_list_each (it, &h->conns)
        mg_conn_drain(mg_container_of(it, struct mg_conn, link));
}

static void stop_all(struct mg_http *h)
{
    close_listener(h);
    lws_sul_schedule(h->lws, 0, &h->tick, NULL, LWS_SET_TIMER_USEC_CANCEL);
    while (!mg_list_empty(&h->conns))
        mg_io_close(mg_container_of(h->conns.next, struct mg_conn, link));
    pthread_mutex_lock(&h->lock);
    h->ended = true;
    pthread_mutex_unlock(&h->lock);
    lws_context_destroy(h->lws); /* ends the loop; the rest is freed by a second call outside of it */
}

static void on_wake(struct mg_http *h)
{
    atomic_store(&h->woken, false);
    if (h->stopped)
        return;
    if (atomic_load(&h->stopping)) {
        h->stopped = true;
        stop_all(h);
        return;
    }
    if (atomic_load(&h->draining) && !h->drained)
        drain_all(h);
    mg_call_rung(h);
    mg_loop_finish_tasks(h);
    if (h->opts.hub)
        mg_hub_run(h->opts.hub);
    revoke_sockets(h);
    mg_park_news(h);
    pump(h);
}

uint64_t mg_http_age_ms(const struct mg_http *h)
{
    return (mg_now_ns() - h->start_ns) / 1000000;
}

static void fire(void *ctx, struct mg_timer *t)
{
    (void)ctx;
    mg_conn_timer(mg_container_of(t, struct mg_conn, timer));
}

static void on_tick(lws_sorted_usec_list_t *sul)
{
    struct mg_http *h = mg_container_of(sul, struct mg_http, tick);
    mg_wheel_advance(&h->wheel, (uint32_t)(mg_http_age_ms(h) / MG_WHEEL_TICK_MS), fire, h);
    pump(h);
    lws_sul_schedule(h->lws, 0, &h->tick, on_tick, MG_WHEEL_TICK_MS * 1000);
}

void mg_loop_arm(struct mg_http *h)
{
    lws_sul_schedule(h->lws, 0, &h->tick, on_tick, MG_WHEEL_TICK_MS * 1000);
}

static void adopt(void *ctx, int fd, const struct mg_peer *peer)
{
    struct mg_http *h = ctx;
    int one = 1;
    if (fd >= h->max_fd) { /* libwebsockets indexes a table of that size by descriptor */
        (void)close(fd);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    struct mg_conn *c = mg_conn_new(h);
    c->family = peer->family;
    memcpy(c->addr, peer->addr, sizeof(c->addr));
    h->adopting = c;
    lws_adopt_desc_t info = {
        .vh = h->vhost,
        .type = LWS_ADOPT_SOCKET | LWS_ADOPT_ALLOW_SSL,
        .fd.sockfd = fd,
        .vh_prot_name = "mango",
        .opaque = c,
    };
    struct lws *wsi = lws_adopt_descriptor_vhost_via_info(&info);
    if (!wsi && h->adopting == c)
        mg_conn_free(c);
    else if (wsi)
        mg_conn_start(c);
    h->adopting = NULL;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct mg_conn *c = lws_get_opaque_user_data(wsi);
    struct mg_http *h;
    (void)user;
    switch ((int)reason) {
    case LWS_CALLBACK_RAW_ADOPT:
        if (c)
            c->wsi = wsi;
        return 0;
    case LWS_CALLBACK_RAW_RX:
        return mg_conn_rx(c, in, len);
    case LWS_CALLBACK_RAW_WRITEABLE:
        return mg_conn_writable(c);
    case LWS_CALLBACK_RAW_CLOSE:
        if (!c)
            return 0;
        if (c->http->adopting == c)
            c->http->adopting = NULL;
        lws_set_opaque_user_data(wsi, NULL);
        mg_conn_free(c);
        return 0;
    case LWS_CALLBACK_RAW_RX_FILE:
        h = lws_context_user(lws_get_context(wsi));
        mg_listen_accept(lws_get_socket_fd(wsi), &h->spare_fd, adopt, h);
        return 0;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        on_wake(lws_context_user(lws_get_context(wsi)));
        return 0;
    default:
        return 0;
    }
}

const struct lws_protocols mg_loop_protocols[] = {
    {.name = "mango", .callback = on_event},
    {.name = NULL},
};

void *mg_loop_thread(void *arg)
{
    struct mg_http *h = arg;
    struct sigaction sigint;
    h->thread = pthread_self();
    (void)pthread_setname_np(pthread_self(), "mango-http");
    while (!h->stopped)
        (void)lws_service(h->lws, 0);
    /* libev's end of its SIGINT watcher would reset the process's handler. */
    (void)sigaction(SIGINT, NULL, &sigint);
    lws_context_destroy(h->lws);
    (void)sigaction(SIGINT, &sigint, NULL);
    return NULL;
}
