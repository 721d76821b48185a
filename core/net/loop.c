/* Concurrency: lock guards inbox, wishes, last_id and closing; everything else belongs to the loop's thread. */
#include "net/loop.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/resolve.h"
#include "net/transfer.h"

enum {
    SWEEP_MS = 50,    /* deadlines are looked at so often while something runs */
    EVENTS_MAX = 256, /* of one epoll_wait */
};

/* What another thread asks of a request. */
struct wish {
    uint64_t id;
    bool resume; /* else cancel */
};

struct mg_net {
    struct mg_net_opts opts; /* its strings are copies */
    char *name, *ca_file, *proxy;
    CURLM *multi;
    struct mg_resolver *resolver;
    pthread_t thread;
    int epoll_fd, wake_fd;
    uint64_t timer_ns; /* curl's next timeout, monotonic; 0: none */
    uint64_t sweep_ns;
    unsigned n_running;
    struct mg_list active;  /* resolving and running */
    struct mg_list waiting; /* for a place among the running */
    struct mg_list later;   /* struct mg_net_later */

    pthread_mutex_t lock;
    struct mg_list inbox;
    struct wish *wishes;
    size_t n_wishes, cap_wishes;
    uint64_t last_id;
    bool closing;
};

static void wake(struct mg_net *n)
{
    const uint64_t one = 1;
    if (write(n->wake_fd, &one, sizeof(one)) < 0)
        return; /* the counter is full: the loop is awake anyway */
}

uint64_t mg_net_start(struct mg_net *n, const struct mg_net_req *req)
{
    struct mg_transfer *t = mg_transfer_new(req);
    pthread_mutex_lock(&n->lock);
    uint64_t id = t->id = ++n->last_id;
    bool first = mg_list_empty(&n->inbox);
    mg_list_add_tail(&n->inbox, &t->link);
    pthread_mutex_unlock(&n->lock);
    if (first)
        wake(n);
    return id;
}

static void wish(struct mg_net *n, struct wish w)
{
    pthread_mutex_lock(&n->lock);
    if (n->n_wishes == n->cap_wishes) {
        n->cap_wishes = n->cap_wishes ? 2 * n->cap_wishes : 16;
        n->wishes = mg_xrealloc(n->wishes, n->cap_wishes * sizeof(*n->wishes));
    }
    n->wishes[n->n_wishes++] = w;
    pthread_mutex_unlock(&n->lock);
    wake(n);
}

void mg_net_cancel(struct mg_net *n, uint64_t id)
{
    wish(n, (struct wish){.id = id});
}

void mg_net_resume(struct mg_net *n, uint64_t id)
{
    wish(n, (struct wish){.id = id, .resume = true});
}

const struct mg_net_opts *mg_net_opts(const struct mg_net *n)
{
    return &n->opts;
}

struct mg_resolver *mg_net_resolver(const struct mg_net *n)
{
    return n->resolver;
}

/* Takes t out of everything, tells its owner and frees it. */
static void finish(struct mg_net *n, struct mg_transfer *t, CURLcode code)
{
    mg_list_del(&t->link);
    if (t->state == MG_TRANSFER_RUNNING) {
        curl_multi_remove_handle(n->multi, t->easy);
        n->n_running--;
    }
    mg_transfer_tell(t, code);
    mg_transfer_free(t);
}

static void stop_cancelled(struct mg_net *n, struct mg_transfer *t)
{
    (void)mg_transfer_stop(t, MG_ECANCELED, "the request was cancelled");
    finish(n, t, CURLE_OK);
}

static void run_transfer(struct mg_net *n, struct mg_transfer *t, const char *addresses)
{
    if (mg_cancel_fired(t->req.cancel)) { /* a short answer could be faster than the cancel's own way here */
        stop_cancelled(n, t);
        return;
    }
    if (mg_transfer_prepare(t, &n->opts, addresses) < 0) {
        finish(n, t, CURLE_OK);
        return;
    }
    CURLMcode rc = curl_multi_add_handle(n->multi, t->easy);
    if (rc != CURLM_OK) {
        (void)mg_transfer_stop(t, MG_EIO, "%s", curl_multi_strerror(rc));
        finish(n, t, CURLE_OK);
        return;
    }
    t->state = MG_TRANSFER_RUNNING;
    n->n_running++;
}

/* Goes on with a request whose name may be known by now. */
static void try_resolve(struct mg_net *n, struct mg_transfer *t)
{
    char text[MG_RESOLVE_TEXT_MAX];
    enum mg_resolve_state state = mg_resolver_get(n->resolver, t->lookup, text);
    if (state == MG_RESOLVE_WAIT)
        return;
    if (state == MG_RESOLVE_FOUND) {
        run_transfer(n, t, text);
        return;
    }
    (void)mg_transfer_stop(t, MG_EIO, "%s", text);
    finish(n, t, CURLE_OK);
}

static void begin(struct mg_net *n, struct mg_transfer *t)
{
    mg_list_add_tail(&n->active, &t->link);
    if (mg_transfer_check(t, &n->opts) < 0) {
        finish(n, t, CURLE_OK);
        return;
    }
    t->state = MG_TRANSFER_RESOLVING;
    if (t->lookup)
        try_resolve(n, t);
    else
        run_transfer(n, t, NULL);
}

/* Requests from the waiting line, as long as there is room. */
static void admit(struct mg_net *n)
{
    while (n->n_running < n->opts.max_running && !mg_list_empty(&n->waiting)) {
        struct mg_transfer *t = mg_container_of(n->waiting.next, struct mg_transfer, link);
        mg_list_del(&t->link);
        begin(n, t);
    }
}

static struct mg_transfer *by_id(struct mg_list *list, uint64_t id)
{
    mg_list_each (it, list) {
        struct mg_transfer *t = mg_container_of(it, struct mg_transfer, link);
        if (t->id == id)
            return t;
    }
    return NULL;
}

static void cancel_one(struct mg_net *n, uint64_t id)
{
    struct mg_transfer *t = by_id(&n->active, id);
    if (!t)
        t = by_id(&n->waiting, id);
    if (t)
        stop_cancelled(n, t);
}

static void resume_one(struct mg_net *n, uint64_t id)
{
    struct mg_transfer *t = by_id(&n->active, id);
    if (!t || t->state != MG_TRANSFER_RUNNING || !t->paused)
        return;
    t->paused = false;
    t->active_ns = mg_now_ns();
    CURLcode code = curl_easy_pause(t->easy, CURLPAUSE_CONT); /* may call the callbacks, which may pause again */
    if (code != CURLE_OK)
        finish(n, t, code);
}

static void cancel_all(struct mg_net *n, struct mg_list *list)
{
    while (!mg_list_empty(list)) {
        struct mg_transfer *t = mg_container_of(list->next, struct mg_transfer, link);
        (void)mg_transfer_stop(t, MG_ECANCELED, "the request was cancelled: the server stops");
        finish(n, t, CURLE_OK);
    }
}

/* Takes over what other threads left. Returns false when the loop closes. */
static bool take_inbox(struct mg_net *n)
{
    pthread_mutex_lock(&n->lock);
    while (!mg_list_empty(&n->inbox)) {
        struct mg_list *it = n->inbox.next;
        mg_list_del(it);
        mg_list_add_tail(&n->waiting, it);
    }
    mg_autofree struct wish *wishes = mg_steal(&n->wishes);
    size_t n_wishes = n->n_wishes;
    n->n_wishes = n->cap_wishes = 0;
    bool closing = n->closing;
    pthread_mutex_unlock(&n->lock);
    for (size_t i = 0; i < n_wishes; i++) {
        if (wishes[i].resume)
            resume_one(n, wishes[i].id);
        else
            cancel_one(n, wishes[i].id);
    }
    return !closing;
}

static void resolved(struct mg_net *n)
{
    mg_list_each (it, &n->active) {
        struct mg_transfer *t = mg_container_of(it, struct mg_transfer, link);
        if (t->state == MG_TRANSFER_RESOLVING)
            try_resolve(n, t);
    }
}

static void expire(struct mg_net *n, struct mg_transfer *t, uint64_t now)
{
    uint64_t idle_ns = t->active_ns + (t->draining ? MG_NET_DRAIN_MS : t->req.idle_ms) * 1000000ull;
    if (t->draining && now >= t->active_ns + MG_NET_WHOLE_MS * 1000000ull)
        mg_transfer_tell(t, CURLE_OK);
    if (now >= t->total_ns)
        (void)mg_transfer_stop(t, MG_ETIMEOUT, "no whole answer within %u ms", t->req.total_ms);
    else if (t->state == MG_TRANSFER_RESOLVING && now >= t->connect_ns)
        (void)mg_transfer_stop(t, MG_ETIMEOUT, "looking the name %.200s up took longer than %u ms", t->lookup,
                               t->req.connect_ms);
    else if (t->state == MG_TRANSFER_RUNNING && !t->paused && now >= idle_ns)
        (void)mg_transfer_stop(t, MG_ETIMEOUT, "nothing came for %u ms", t->req.idle_ms);
    else
        return;
    finish(n, t, CURLE_OK);
}

static void sweep(struct mg_net *n)
{
    uint64_t now = mg_now_ns();
    if (now < n->sweep_ns)
        return;
    n->sweep_ns = now + SWEEP_MS * 1000000ull;
    mg_list_each (it, &n->active)
        expire(n, mg_container_of(it, struct mg_transfer, link), now);
    mg_list_each (it2, &n->waiting)
        expire(n, mg_container_of(it2, struct mg_transfer, link), now);
}

static void take_finished(struct mg_net *n)
{
    int left;
    for (CURLMsg *msg; (msg = curl_multi_info_read(n->multi, &left));) {
        struct mg_transfer *t = NULL;
        if (msg->msg != CURLMSG_DONE)
            continue;
        CURLcode code = msg->data.result; /* msg is gone once the handle is removed */
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
        if (!mg_transfer_resend(t, code)) {
            finish(n, t, code);
            continue;
        }
        curl_multi_remove_handle(n->multi, t->easy);
        if (curl_multi_add_handle(n->multi, t->easy) == CURLM_OK)
            continue;
        n->n_running--;
        t->state = MG_TRANSFER_RESOLVING;
        finish(n, t, code);
    }
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
    struct mg_net *n = ctx;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(n->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) | (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (epoll_ctl(n->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev) < 0 && errno == EEXIST)
        (void)epoll_ctl(n->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
    if (!known)
        curl_multi_assign(n->multi, fd, n);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *ctx)
{
    struct mg_net *n = ctx;
    (void)multi;
    n->timer_ns = ms < 0 ? 0 : mg_now_ns() + (uint64_t)ms * 1000000u;
    return 0;
}

static void take_socket(struct mg_net *n, const struct epoll_event *ev)
{
    int running, bits = 0;
    bool failed = ev->events & (EPOLLERR | EPOLLHUP);
    if (ev->events & EPOLLIN || failed)
        bits |= CURL_CSELECT_IN;
    if (ev->events & EPOLLOUT || failed)
        bits |= CURL_CSELECT_OUT;
    curl_multi_socket_action(n->multi, ev->data.fd, bits, &running);
}

static int wait_ms(const struct mg_net *n)
{
    bool busy = !mg_list_empty(&n->active) || !mg_list_empty(&n->waiting);
    int ms = busy ? SWEEP_MS : -1;
    if (n->timer_ns == 0)
        return ms;
    uint64_t now = mg_now_ns();
    uint64_t left = n->timer_ns > now ? (n->timer_ns - now + 999999u) / 1000000u : 0;
    return ms >= 0 && left > (uint64_t)ms ? ms : (int)left;
}

void mg_net_later(struct mg_net *n, struct mg_net_later *l)
{
    mg_list_add_tail(&n->later, &l->link);
}

static void do_later(struct mg_net *n)
{
    while (!mg_list_empty(&n->later)) {
        struct mg_net_later *l = mg_container_of(n->later.next, struct mg_net_later, link);
        mg_list_del(&l->link);
        l->fn(l);
    }
}

static void take_timer(struct mg_net *n)
{
    int running;
    if (n->timer_ns == 0 || n->timer_ns > mg_now_ns())
        return;
    n->timer_ns = 0;
    curl_multi_socket_action(n->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

static void turn(struct mg_net *n)
{
    struct epoll_event events[EVENTS_MAX];
    take_timer(n); /* a request that was just admitted goes out now, not after a look at the sockets */
    take_finished(n);
    do_later(n);
    int got = epoll_wait(n->epoll_fd, events, EVENTS_MAX, wait_ms(n));
    for (int i = 0; i < got; i++) {
        uint64_t count;
        if (events[i].data.fd != n->wake_fd)
            take_socket(n, &events[i]);
        else if (read(n->wake_fd, &count, sizeof(count)) > 0)
            resolved(n);
    }
    take_timer(n);
    take_finished(n);
    sweep(n);
    do_later(n);
}

static void *run(void *arg)
{
    struct mg_net *n = arg;
    pthread_setname_np(pthread_self(), n->name);
    while (take_inbox(n)) {
        admit(n);
        turn(n);
    }
    do { /* again, for what the callbacks of the cancelled ones started */
        cancel_all(n, &n->active);
        cancel_all(n, &n->waiting);
        (void)take_inbox(n);
    } while (!mg_list_empty(&n->waiting));
    return NULL;
}

/* What curl frees held headers and bodies, and with them credentials: it is overwritten, so that no memory image shows
 * them after their request. */
static void wiping_free(void *p)
{
    if (p)
        mg_wipe(p, malloc_usable_size(p));
    free(p);
}

static void *wiping_realloc(void *p, size_t n)
{
    void *q = malloc(n);
    if (!q)
        return NULL;
    size_t had = p ? malloc_usable_size(p) : 0;
    if (had)
        memcpy(q, p, had < n ? had : n);
    wiping_free(p);
    return q;
}

static void curl_start(void)
{
    curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc);
}

static void free_net(struct mg_net *n)
{
    mg_resolver_close(n->resolver);
    if (n->multi)
        curl_multi_cleanup(n->multi);
    if (n->epoll_fd >= 0)
        close(n->epoll_fd);
    if (n->wake_fd >= 0)
        close(n->wake_fd);
    pthread_mutex_destroy(&n->lock);
    free(n->wishes);
    free(n->name);
    free(n->ca_file);
    free(n->proxy);
    free(n);
}

static void copy_opts(struct mg_net *n, const struct mg_net_opts *o)
{
    n->opts = *o;
    n->name = mg_xstrndup(o->name ? o->name : "mg-net", o->name ? strnlen(o->name, 15) : 6);
    n->ca_file = o->ca_file && o->ca_file[0] ? mg_xstrdup(o->ca_file) : NULL;
    n->proxy = o->proxy && o->proxy[0] ? mg_xstrdup(o->proxy) : NULL;
    n->opts.ca_file = n->ca_file;
    n->opts.proxy = n->proxy;
    if (n->opts.max_running == 0)
        n->opts.max_running = MG_NET_RUNNING_MAX;
}

static void set_multi(struct mg_net *n)
{
    curl_multi_setopt(n->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(n->multi, CURLMOPT_SOCKETDATA, n);
    curl_multi_setopt(n->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(n->multi, CURLMOPT_TIMERDATA, n);
    /* curl counts the busy ones too: a smaller number would close a connection behind each answer. */
    curl_multi_setopt(n->multi, CURLMOPT_MAXCONNECTS, (long)n->opts.max_running);
}

mg_rc mg_net_open(const struct mg_net_opts *o, struct mg_net **ret, struct mg_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct epoll_event ev = {.events = EPOLLIN};
    pthread_once(&once, curl_start);
    struct mg_net *n = mg_xcalloc(1, sizeof(*n));
    copy_opts(n, o);
    pthread_mutex_init(&n->lock, NULL);
    mg_list_init(&n->active);
    mg_list_init(&n->waiting);
    mg_list_init(&n->inbox);
    mg_list_init(&n->later);
    n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->multi = curl_multi_init();
    ev.data.fd = n->wake_fd;
    if (!n->multi || n->epoll_fd < 0 || n->wake_fd < 0 || epoll_ctl(n->epoll_fd, EPOLL_CTL_ADD, n->wake_fd, &ev) < 0) {
        mg_rc rc = mg_err_errno(err, errno, "start the loop for outgoing requests");
        free_net(n);
        return rc;
    }
    set_multi(n);
    n->resolver = mg_resolver_new(n->wake_fd, n->opts.public_only && !n->proxy);
    int rc = mg_thread_start(&n->thread, NULL, run, n);
    if (rc != 0) {
        free_net(n);
        return mg_err_errno(err, rc, "start the thread for outgoing requests");
    }
    *ret = n;
    return MG_OK;
}

void mg_net_close(struct mg_net *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    n->closing = true;
    pthread_mutex_unlock(&n->lock);
    wake(n);
    pthread_join(n->thread, NULL);
    free_net(n);
}
