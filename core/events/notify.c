/* The notify thread: one connection that listens, pings itself and sends what other threads collected. */
#include "events/notify.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "store/pg.h"

enum {
    RETRY_MIN_MS = 50, /* between connects; mg_pg adds its own growing pause */
    RETRY_JITTER_MS = 200,
    ITEM_MAX = MG_ID_MAX + 24, /* bytes of one item: id, colon, number, space */
};

static const struct mg_stmt sql_listen = {"notify_listen", "LISTEN mango_events"};
static const struct mg_stmt sql_send = {"notify_send",
                                        "SELECT pg_notify('mango_events', p) FROM unnest($1::text[]) AS p"};
static const struct mg_stmt sql_ping = {"notify_ping",
                                        "SELECT pg_notify('mango_events', $1), pg_notification_queue_usage()"};

struct wake {
    struct mg_id session;
    int64_t seq;
};

struct mg_notify {
    struct mg_notify_opts opts;
    pthread_t thread;
    int wake_fd; /* eventfd: something is pending, or stop */
    atomic_bool stop;
    atomic_int others;

    pthread_mutex_t lock;
    struct mg_map *pending; /* session -> struct wake; guarded by lock */
    bool all;               /* "*" is pending; guarded by lock */

    /* of the thread alone */
    struct mg_pg *pg;
    unsigned listening;         /* mg_pg_opened() of the connection that listens; 0: none */
    uint64_t batch_ns, ping_ns; /* when the next may go out */
    uint64_t ping_seq, pong_seq;
    uint64_t n_items;

    atomic_ullong sent, batches, received, repairs, reconnects;
    atomic_uint usage_ppm;
    atomic_bool connected;
};

static void wake_thread(struct mg_notify *n)
{
    (void)!eventfd_write(n->wake_fd, 1);
}

static void free_wake(void *ctx, struct mg_sv key, void *value)
{
    (void)ctx;
    (void)key;
    free(value);
}

static void free_wakes(struct mg_map *m)
{
    mg_map_each(m, free_wake, NULL);
    mg_map_free(m);
}

void mg_notify_send(struct mg_notify *n, struct mg_sv session, int64_t seq)
{
    if (atomic_load_explicit(&n->others, memory_order_relaxed) <= 0)
        return;
    pthread_mutex_lock(&n->lock);
    bool first = mg_map_len(n->pending) == 0;
    struct wake *w = mg_map_get(n->pending, session);
    if (w) {
        w->seq = seq > w->seq ? seq : w->seq;
    } else if (mg_map_len(n->pending) >= MG_NOTIFY_PENDING_MAX) {
        free_wakes(n->pending);
        n->pending = mg_map_new();
        n->all = true;
    } else {
        w = mg_xcalloc(1, sizeof(*w));
        if (mg_id_from(session, &w->session)) {
            w->seq = seq;
            mg_map_put(n->pending, session, w);
        } else {
            free(w);
        }
    }
    pthread_mutex_unlock(&n->lock);
    if (first)
        wake_thread(n);
}

void mg_notify_others(struct mg_notify *n, int others)
{
    atomic_store(&n->others, others);
}

/* ---- what is sent ---- */

struct batch {
    struct mg_notify *n;
    struct mg_arena *arena;
    struct mg_buf text;
    struct mg_sv payloads[MG_NOTIFY_PENDING_MAX * ITEM_MAX / (MG_NOTIFY_PAYLOAD_MAX - 2 * ITEM_MAX) + 2];
    size_t n_payloads;
    uint64_t n_wakes;
};

static void end_payload(struct batch *b)
{
    if (b->text.len > 0)
        b->payloads[b->n_payloads++] = mg_arena_sv(b->arena, mg_buf_view(&b->text));
    mg_buf_reset(&b->text);
}

static void add_item(struct batch *b, const char *what, int64_t number)
{
    char item[ITEM_MAX + 1];
    int len =
        what ? snprintf(item, sizeof(item), " %s:%lld", what, (long long)number) : snprintf(item, sizeof(item), " *");
    if (b->text.len + (size_t)len > MG_NOTIFY_PAYLOAD_MAX)
        end_payload(b);
    if (b->text.len == 0)
        mg_buf_str(&b->text, b->n->opts.node.s);
    mg_buf_append(&b->text, item, (size_t)len);
    b->n_wakes++;
}

static void add_wake(void *ctx, struct mg_sv key, void *value)
{
    (void)key;
    struct batch *b = ctx;
    const struct wake *w = value;
    unsigned every = b->n->opts.drop_every;
    if (every == 0 || ++b->n->n_items % every != 0)
        add_item(b, w->session.s, w->seq);
}

static bool take_pending(struct mg_notify *n, struct mg_map **ret_wakes, bool *ret_all)
{
    pthread_mutex_lock(&n->lock);
    bool any = n->all || mg_map_len(n->pending) > 0;
    if (any) {
        *ret_wakes = n->pending;
        *ret_all = n->all;
        n->pending = mg_map_new();
        n->all = false;
    }
    pthread_mutex_unlock(&n->lock);
    return any;
}

static bool has_pending(struct mg_notify *n)
{
    pthread_mutex_lock(&n->lock);
    bool any = n->all || mg_map_len(n->pending) > 0;
    pthread_mutex_unlock(&n->lock);
    return any;
}

static void send_batch(struct mg_notify *n)
{
    struct mg_map *wakes = NULL;
    bool all = false;
    if (!take_pending(n, &wakes, &all))
        return;
    struct mg_arena *arena __attribute__((cleanup(mg_arena_cleanup))) = mg_arena_new();
    struct batch *b = mg_arena_alloc(arena, sizeof(*b));
    b->n = n;
    b->arena = arena;
    b->text = MG_BUF_INIT(MG_NOTIFY_PAYLOAD_MAX + ITEM_MAX);
    if (all)
        add_item(b, NULL, 0);
    mg_map_each(wakes, add_wake, b);
    end_payload(b);
    mg_buf_done(&b->text);
    free_wakes(wakes);

    n->batch_ns = mg_now_ns() + (uint64_t)MG_NOTIFY_BATCH_MS * 1000000;
    if (b->n_payloads == 0)
        return;
    struct mg_sv list = mg_p_array(arena, b->payloads, b->n_payloads);
    if (mg_pg_exec(n->pg, &sql_send, &list, 1, NULL, NULL) < 0) {
        pthread_mutex_lock(&n->lock);
        n->all = true; /* said once the connection is back */
        pthread_mutex_unlock(&n->lock);
        return;
    }
    atomic_fetch_add(&n->batches, 1);
    atomic_fetch_add(&n->sent, b->n_wakes);
}

static void ping(struct mg_notify *n)
{
    bool alone = atomic_load(&n->others) <= 0;
    n->ping_ns = mg_now_ns() + (uint64_t)(alone ? MG_NOTIFY_PING_ALONE_MS : MG_NOTIFY_PING_MS) * 1000000;
    if (n->ping_seq != n->pong_seq) { /* the last one never came back: this connection hears nothing */
        mg_pg_close(n->pg);
        return;
    }
    char text[MG_ID_MAX + 32];
    snprintf(text, sizeof(text), "%s ping:%llu", n->opts.node.s, (unsigned long long)++n->ping_seq);
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    if (mg_pg_exec(n->pg, &sql_ping, (const struct mg_sv[]){mg_sv_of(text)}, 1, &r, NULL) == 0)
        atomic_store(&n->usage_ppm, (unsigned)(strtod(mg_res_sv(r, 0, 1).ptr, NULL) * 1e6));
}

/* ---- what comes ---- */

static void gap(struct mg_notify *n)
{
    if (n->opts.on_gap)
        n->opts.on_gap(n->opts.ctx);
}

static void take_item(struct mg_notify *n, struct mg_sv item, bool own)
{
    struct mg_sv value = item, name = mg_sv_split(&value, ':');
    int64_t number = 0;
    if (mg_sv_eqz(name, "key")) {
        if (n->opts.on_key)
            n->opts.on_key(n->opts.ctx, value);
    } else if (mg_sv_eqz(name, "webhook")) {
        if (n->opts.on_webhook)
            n->opts.on_webhook(n->opts.ctx);
    } else if (own) {
        if (mg_sv_eqz(name, "ping") && mg_sv_to_i64(value, &number) && (uint64_t)number == n->ping_seq)
            n->pong_seq = n->ping_seq;
    } else if (mg_sv_eqz(item, "*")) {
        atomic_fetch_add(&n->received, 1);
        atomic_fetch_add(&n->repairs, 1);
        gap(n);
    } else if (mg_sv_starts(name, "sesn_") && mg_sv_to_i64(value, &number)) {
        atomic_fetch_add(&n->received, 1);
        if (n->opts.on_event)
            n->opts.on_event(n->opts.ctx, name, number);
    } else if (mg_sv_starts(name, "env_")) {
        if (n->opts.on_work)
            n->opts.on_work(n->opts.ctx, name);
    } else if (mg_sv_starts(name, "work_")) {
        if (n->opts.on_key)
            n->opts.on_key(n->opts.ctx, name);
    }
}

static void take_payload(void *ctx, struct mg_sv channel, struct mg_sv payload, int backend_pid)
{
    (void)channel;
    (void)backend_pid;
    struct mg_notify *n = ctx;
    struct mg_sv sender = mg_sv_split(&payload, ' ');
    bool own = mg_sv_eqz(sender, n->opts.node.s);
    if (!own && !mg_sv_eqz(sender, "-")) {
        int none = 0; /* a node that the lease renewal has not counted yet */
        atomic_compare_exchange_strong(&n->others, &none, 1);
    }
    while (payload.len > 0)
        take_item(n, mg_sv_split(&payload, ' '), own);
}

/* ---- the thread ---- */

static void wait_wake(struct mg_notify *n, int ms)
{
    struct pollfd p = {.fd = n->wake_fd, .events = POLLIN};
    (void)!poll(&p, 1, ms);
}

/* LISTEN on a connection that is new. Before it nothing was heard: everybody looks at the tables. */
static bool listen_again(struct mg_notify *n)
{
    char hello[MG_ID_MAX + 8];
    snprintf(hello, sizeof(hello), "%s hi:1", n->opts.node.s);
    atomic_store(&n->connected, false);
    if (mg_pg_exec(n->pg, &sql_listen, NULL, 0, NULL, NULL) < 0)
        return false;
    unsigned opened = mg_pg_opened(n->pg);
    n->ping_seq = n->pong_seq;
    n->ping_ns = 0;
    /* others learn at once that this node lives */
    if (mg_pg_exec(n->pg, &sql_ping, (const struct mg_sv[]){mg_sv_of(hello)}, 1, NULL, NULL) < 0 ||
        mg_pg_opened(n->pg) != opened)
        return false;
    bool again = n->listening != 0;
    n->listening = opened;
    if (again) {
        atomic_fetch_add(&n->reconnects, 1);
        atomic_fetch_add(&n->repairs, 1);
    }
    atomic_store(&n->connected, true);
    gap(n);
    return true;
}

static int wait_ms(struct mg_notify *n)
{
    uint64_t now = mg_now_ns(), soon = now + (uint64_t)MG_NOTIFY_PING_MS * 1000000;
    if (n->ping_ns > soon && atomic_load(&n->others) > 0) /* not alone any more */
        n->ping_ns = soon;
    uint64_t next = has_pending(n) && n->batch_ns < n->ping_ns ? n->batch_ns : n->ping_ns;
    return next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

static void *notify_main(void *arg)
{
    struct mg_notify *n = arg;
    pthread_setname_np(pthread_self(), "mg-notify");
    while (!atomic_load(&n->stop)) {
        bool open = mg_pg_socket(n->pg) >= 0 && mg_pg_opened(n->pg) == n->listening;
        if (!open && !listen_again(n)) {
            wait_wake(n, RETRY_MIN_MS + (int)mg_rng_below(RETRY_JITTER_MS));
            if (!atomic_load(&n->stop)) {
                eventfd_t seen;
                (void)!eventfd_read(n->wake_fd, &seen);
            }
            continue;
        }
        if (mg_pg_wait_notify(n->pg, n->wake_fd, wait_ms(n), take_payload, n, NULL) < 0)
            continue;
        eventfd_t seen;
        (void)!eventfd_read(n->wake_fd, &seen);
        if (mg_now_ns() >= n->batch_ns)
            send_batch(n);
        if (mg_now_ns() >= n->ping_ns)
            ping(n);
    }
    if (mg_pg_socket(n->pg) >= 0)
        send_batch(n);
    return NULL;
}

struct mg_notify *mg_notify_new(const struct mg_notify_opts *o)
{
    struct mg_notify *n = mg_xcalloc(1, sizeof(*n));
    n->opts = *o;
    n->opts.conninfo = NULL;
    n->pg = mg_pg_new(o->conninfo);
    mg_pg_set_timeout(n->pg, MG_NOTIFY_STATEMENT_MS);
    n->pending = mg_map_new();
    pthread_mutex_init(&n->lock, NULL);
    n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->wake_fd < 0 || mg_thread_start(&n->thread, NULL, notify_main, n) != 0)
        abort(); /* the machine has no descriptor or thread left at the start */
    return n;
}

void mg_notify_free(struct mg_notify *n)
{
    if (!n)
        return;
    atomic_store(&n->stop, true);
    wake_thread(n);
    pthread_join(n->thread, NULL);
    mg_pg_free(n->pg);
    free_wakes(n->pending);
    pthread_mutex_destroy(&n->lock);
    close(n->wake_fd);
    free(n);
}

void mg_notify_stats(struct mg_notify *n, struct mg_notify_stats *ret)
{
    *ret = (struct mg_notify_stats){.sent = atomic_load(&n->sent),
                                    .batches = atomic_load(&n->batches),
                                    .received = atomic_load(&n->received),
                                    .repairs = atomic_load(&n->repairs),
                                    .reconnects = atomic_load(&n->reconnects),
                                    .queue_usage = atomic_load(&n->usage_ppm) / 1e6,
                                    .connected = atomic_load(&n->connected)};
}
