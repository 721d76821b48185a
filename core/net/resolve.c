/* Concurrency: lock guards everything in struct mg_resolver; getaddrinfo runs without it. Threads are detached and
 * hold a reference each. */
#include "net/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "net/address.h"

enum {
    LOOK_MS = 50,             /* a waiting thread looks at its cancel so often */
    IDLE_MS = 10000,          /* a thread without work ends after this */
    STACK_BYTES = 256 * 1024, /* getaddrinfo's modules need far less */
};

struct name {
    struct mg_list all, queue; /* queue: waits for a thread */
    enum mg_resolve_state state;
    uint64_t until_ns; /* monotonic; of a finished answer */
    char text[MG_RESOLVE_TEXT_MAX];
    char host[]; /* NUL-terminated */
};

struct mg_resolver {
    pthread_mutex_t lock;
    pthread_cond_t work, found; /* found: a lookup has ended */
    int refs, threads, idle;
    int wake_fd;
    bool public_only, closing;
    struct mg_map *by_host;
    struct mg_list names, queue;
};

static void unref(struct mg_resolver *r)
{
    pthread_mutex_lock(&r->lock);
    bool last = --r->refs == 0;
    pthread_mutex_unlock(&r->lock);
    if (!last)
        return;
    mg_list_each (it, &r->names)
        free(mg_container_of(it, struct name, all));
    mg_map_free(r->by_host);
    close(r->wake_fd);
    pthread_cond_destroy(&r->work);
    pthread_cond_destroy(&r->found);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

struct mg_resolver *mg_resolver_new(int wake_fd, bool public_only)
{
    struct mg_resolver *r = mg_xcalloc(1, sizeof(*r));
    mg_cond_init(&r->work);
    mg_cond_init(&r->found);
    pthread_mutex_init(&r->lock, NULL);
    r->refs = 1;
    r->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
    r->public_only = public_only;
    r->by_host = mg_map_new();
    mg_list_init(&r->names);
    mg_list_init(&r->queue);
    return r;
}

void mg_resolver_close(struct mg_resolver *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    unref(r);
}

/* Appends one address; IPv6 in brackets as CURLOPT_RESOLVE wants it. */
static void add_address(char *text, size_t size, const struct sockaddr *sa, socklen_t len)
{
    char one[NI_MAXHOST];
    size_t used = strlen(text);
    if (getnameinfo(sa, len, one, sizeof(one), NULL, 0, NI_NUMERICHOST) != 0)
        return;
    bool v6 = sa->sa_family == AF_INET6;
    int n = snprintf(text + used, size - used, "%s%s%s%s", used ? "," : "", v6 ? "[" : "", one, v6 ? "]" : "");
    if (n < 0 || (size_t)n >= size - used)
        text[used] = '\0';
}

static enum mg_resolve_state lookup(const char *host, bool public_only, char text[MG_RESOLVE_TEXT_MAX])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    if (rc != 0) {
        (void)snprintf(text, MG_RESOLVE_TEXT_MAX, "the name %.200s cannot be resolved: %s", host, gai_strerror(rc));
        return MG_RESOLVE_FAILED;
    }
    int n = 0;
    text[0] = '\0';
    for (const struct addrinfo *ai = found; ai && n < MG_RESOLVE_ADDRS_MAX; ai = ai->ai_next) {
        if (public_only && !mg_address_is_public(ai->ai_addr))
            continue;
        add_address(text, MG_RESOLVE_TEXT_MAX, ai->ai_addr, ai->ai_addrlen);
        n++;
    }
    freeaddrinfo(found);
    if (text[0] != '\0')
        return MG_RESOLVE_FOUND;
    (void)snprintf(text, MG_RESOLVE_TEXT_MAX, "the name %.200s has no %saddress", host, public_only ? "public " : "");
    return MG_RESOLVE_FAILED;
}

static uint64_t after_ms(int ms)
{
    return mg_now_ns() + (uint64_t)ms * 1000000u;
}

/* The next name to look up, or NULL when this thread shall end. Called and left with the lock held. */
static struct name *next_name(struct mg_resolver *r)
{
    uint64_t until_ns = after_ms(IDLE_MS);
    r->idle++;
    while (mg_list_empty(&r->queue) && !r->closing && mg_cond_wait_until(&r->work, &r->lock, until_ns))
        ;
    r->idle--;
    if (mg_list_empty(&r->queue) || r->closing)
        return NULL;
    struct name *n = mg_container_of(r->queue.next, struct name, queue);
    mg_list_del(&n->queue);
    return n;
}

static void *run(void *arg)
{
    struct mg_resolver *r = arg;
    (void)pthread_setname_np(pthread_self(), "mg-lookup"); /* else it bears the loop's name */
    pthread_mutex_lock(&r->lock);
    for (struct name *n = next_name(r); n; n = next_name(r)) {
        char text[MG_RESOLVE_TEXT_MAX];
        pthread_mutex_unlock(&r->lock); /* n stays: only finished names are dropped */
        enum mg_resolve_state state = lookup(n->host, r->public_only, text);
        pthread_mutex_lock(&r->lock);
        memcpy(n->text, text, sizeof(text));
        n->state = state;
        n->until_ns = mg_now_ns() +
                      (uint64_t)(state == MG_RESOLVE_FOUND ? MG_RESOLVE_KEEP_MS : MG_RESOLVE_KEEP_BAD_MS) * 1000000u;
        pthread_cond_broadcast(&r->found);
        const uint64_t one = 1;
        if (write(r->wake_fd, &one, sizeof(one)) < 0)
            continue; /* the counter is full: the reader is awake anyway */
    }
    r->threads--;
    pthread_mutex_unlock(&r->lock);
    unref(r);
    return NULL;
}

/* With the lock held. */
static void need_thread(struct mg_resolver *r)
{
    pthread_attr_t attr;
    pthread_t t;
    pthread_cond_signal(&r->work);
    if (r->idle > 0 || r->threads >= MG_RESOLVE_THREADS_MAX)
        return;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (mg_thread_start(&t, &attr, run, r) == 0) {
        r->threads++;
        r->refs++;
    }
    pthread_attr_destroy(&attr);
}

/* Drops finished answers: the old ones, or all of them. With the lock held. */
static void drop_names(struct mg_resolver *r, bool all)
{
    uint64_t now = mg_now_ns();
    mg_list_each (it, &r->names) {
        struct name *n = mg_container_of(it, struct name, all);
        if (n->state == MG_RESOLVE_WAIT || (!all && n->until_ns > now))
            continue;
        mg_map_del(r->by_host, mg_sv_of(n->host));
        mg_list_del(&n->all);
        free(n);
    }
}

static struct name *add_name(struct mg_resolver *r, const char *host)
{
    if (mg_map_len(r->by_host) >= MG_RESOLVE_NAMES_MAX)
        drop_names(r, false);
    if (mg_map_len(r->by_host) >= MG_RESOLVE_NAMES_MAX)
        drop_names(r, true);
    if (mg_map_len(r->by_host) >= MG_RESOLVE_NAMES_MAX)
        return NULL;
    size_t len = strlen(host) + 1;
    struct name *n = mg_xcalloc(1, sizeof(*n) + len);
    memcpy(n->host, host, len);
    mg_list_init(&n->queue);
    mg_list_add_tail(&r->names, &n->all);
    mg_map_put(r->by_host, mg_sv_of(host), n);
    return n;
}

/* With the lock held. */
static enum mg_resolve_state look(struct mg_resolver *r, const char *host, char text[MG_RESOLVE_TEXT_MAX])
{
    struct name *n = mg_map_get(r->by_host, mg_sv_of(host));
    bool ask = !n || (n->state != MG_RESOLVE_WAIT && n->until_ns <= mg_now_ns());
    if (!n)
        n = add_name(r, host);
    if (n && ask) {
        n->state = MG_RESOLVE_WAIT;
        mg_list_add_tail(&r->queue, &n->queue);
        need_thread(r);
    }
    enum mg_resolve_state state = n ? n->state : MG_RESOLVE_FAILED;
    if (!n)
        (void)snprintf(text, MG_RESOLVE_TEXT_MAX, "more than %d names are being resolved", MG_RESOLVE_NAMES_MAX);
    else if (state != MG_RESOLVE_WAIT)
        memcpy(text, n->text, MG_RESOLVE_TEXT_MAX);
    return state;
}

enum mg_resolve_state mg_resolver_get(struct mg_resolver *r, const char *host, char text[MG_RESOLVE_TEXT_MAX])
{
    pthread_mutex_lock(&r->lock);
    enum mg_resolve_state state = look(r, host, text);
    pthread_mutex_unlock(&r->lock);
    return state;
}

enum mg_resolve_state mg_resolver_wait(struct mg_resolver *r, const char *host, uint64_t deadline_ns,
                                       const struct mg_cancel *cancel, char text[MG_RESOLVE_TEXT_MAX])
{
    pthread_mutex_lock(&r->lock);
    enum mg_resolve_state state = look(r, host, text);
    while (state == MG_RESOLVE_WAIT && !mg_cancel_fired(cancel) && (!deadline_ns || mg_now_ns() < deadline_ns)) {
        (void)mg_cond_wait_until(&r->found, &r->lock, after_ms(LOOK_MS));
        state = look(r, host, text);
    }
    pthread_mutex_unlock(&r->lock);
    return state;
}
