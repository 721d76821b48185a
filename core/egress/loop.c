#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "egress/internal.h"

enum {
    SWEEP_MS = 250, /* deadlines are looked at so often while something is open */
    EVENTS_MAX = 128,
};

void mg_egress_watch(struct mg_egress *e, struct mg_egress_handle *h, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = h};
    if (h->fd < 0 || events == h->events)
        return;
    int op = h->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    (void)epoll_ctl(e->epoll_fd, op, h->fd, &ev);
    h->events = events;
}

static void bury(struct mg_egress *e)
{
    mg_list_each (it, &e->graveyard)
        mg_egress_conn_free(mg_container_of(it, struct mg_egress_conn, all));
    mg_list_init(&e->graveyard);
    mg_list_each (it2, &e->dead_listeners)
        free(mg_container_of(it2, struct mg_egress_listener, link));
    mg_list_init(&e->dead_listeners);
}

static void woken(struct mg_egress *e)
{
    uint64_t count;
    (void)!read(e->wake.fd, &count, sizeof(count));
    mg_list_each (it, &e->conns) {
        struct mg_egress_conn *c = mg_container_of(it, struct mg_egress_conn, all);
        if (c->state == MG_EGRESS_LOOKING)
            mg_egress_look(c);
    }
}

static void take_event(struct mg_egress *e, const struct epoll_event *ev)
{
    struct mg_egress_handle *h = ev->data.ptr;
    switch (h->kind) {
    case MG_EGRESS_WAKE:
        woken(e);
        break;
    case MG_EGRESS_LISTENER:
        if (!h->listener->dead)
            mg_egress_accept(e, h->listener);
        break;
    case MG_EGRESS_CLIENT:
    case MG_EGRESS_UPSTREAM:
        if (!h->conn->dead)
            mg_egress_conn_event(h->conn, h, ev->events);
        break;
    }
}

static void sweep(struct mg_egress *e)
{
    uint64_t now = mg_now_ns();
    mg_list_each (it, &e->conns)
        mg_egress_conn_expire(mg_container_of(it, struct mg_egress_conn, all), now);
    e->resting = false;
    mg_list_each (it2, &e->listeners)
        mg_egress_watch(e, &mg_container_of(it2, struct mg_egress_listener, link)->handle, EPOLLIN);
}

void *mg_egress_run(void *arg)
{
    struct mg_egress *e = arg;
    struct epoll_event events[EVENTS_MAX];
    uint64_t swept = 0;
    (void)pthread_setname_np(pthread_self(), "mg-egress");
    pthread_mutex_lock(&e->lock);
    while (!e->closing) {
        int wait_ms = mg_list_empty(&e->conns) && !e->resting ? -1 : SWEEP_MS;
        pthread_mutex_unlock(&e->lock);
        int n = epoll_wait(e->epoll_fd, events, EVENTS_MAX, wait_ms);
        pthread_mutex_lock(&e->lock);
        for (int i = 0; i < n; i++)
            take_event(e, &events[i]);
        if (mg_now_ns() >= swept + SWEEP_MS * 1000000ull) {
            sweep(e);
            swept = mg_now_ns();
        }
        bury(e);
    }
    mg_list_each (it, &e->conns)
        mg_egress_conn_kill(mg_container_of(it, struct mg_egress_conn, all));
    bury(e);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void free_egress(struct mg_egress *e)
{
    mg_resolver_close(e->resolver);
    mg_wipe(e->key, sizeof(e->key));
    mg_map_free(e->doors);
    pthread_mutex_destroy(&e->lock);
    if (e->epoll_fd >= 0)
        close(e->epoll_fd);
    if (e->wake.fd >= 0)
        close(e->wake.fd);
    if (e->dir_fd >= 0)
        close(e->dir_fd);
    free(e->state_dir);
    free(e);
}

static void init_lists(struct mg_egress *e)
{
    mg_list_init(&e->listeners);
    mg_list_init(&e->conns);
    mg_list_init(&e->waiting);
    mg_list_init(&e->graveyard);
    mg_list_init(&e->dead_listeners);
}

mg_rc mg_egress_open(const struct mg_egress_opts *o, struct mg_egress **ret, struct mg_err *err)
{
    struct mg_egress *e = mg_xcalloc(1, sizeof(*e));
    e->opts = *o;
    e->opts.head_ms = o->head_ms ? o->head_ms : MG_EGRESS_HEAD_MS;
    e->state_dir = o->state_dir ? mg_xstrdup(o->state_dir) : NULL;
    e->dir_fd = -1;
    pthread_mutex_init(&e->lock, NULL);
    e->doors = mg_map_new();
    init_lists(e);
    e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    e->wake = (struct mg_egress_handle){.kind = MG_EGRESS_WAKE, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (e->epoll_fd < 0 || e->wake.fd < 0) {
        mg_rc rc = mg_err_errno(err, errno, "start the filtering proxy");
        free_egress(e);
        return rc;
    }
    mg_egress_watch(e, &e->wake, EPOLLIN);
    e->resolver = mg_resolver_new(e->wake.fd, false);
    int rc = mg_thread_start(&e->thread, NULL, mg_egress_run, e);
    if (rc != 0) {
        free_egress(e);
        return mg_err_errno(err, rc, "start the thread of the filtering proxy");
    }
    *ret = e;
    return MG_OK;
}

static void forget_door(void *ctx, struct mg_sv key, void *value)
{
    struct mg_egress_door *d = value;
    (void)ctx;
    (void)key;
    mg_egress_door_farewell(d);
    mg_egress_policy_free(d->policy);
    mg_wipe(d->token, sizeof(d->token));
    free(d->session);
    free(d);
}

void mg_egress_close(struct mg_egress *e)
{
    const uint64_t one = 1;
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    (void)!write(e->wake.fd, &one, sizeof(one));
    pthread_mutex_unlock(&e->lock);
    (void)pthread_join(e->thread, NULL);
    mg_list_each (it, &e->listeners) {
        struct mg_egress_listener *l = mg_container_of(it, struct mg_egress_listener, link);
        close(l->handle.fd);
        free(l);
    }
    mg_map_each(e->doors, forget_door, NULL);
    free_egress(e);
}
