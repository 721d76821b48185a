/* The server: one libwebsockets context on the libev loop, one thread that owns it, the request pool, the way between
 * them.
 *
 * libwebsockets 4.1.6 lends the sockets, TLS, timers and the loop; connections are adopted in its raw role, and HTTP/1
 * and WebSocket framing are ours (head.c, body.c, ws-frame.c). Its own HTTP server was measured against the field cases
 * first: a chunked request is never answered, Content-Length beside Transfer-Encoding lets a second request be smuggled
 * in, two Content-Lengths are taken, Expect is never answered, large headers, long URLs and %00 are closed without an
 * answer, an inflated message cannot be bounded, and an idle stream costs 5.9 kB where the raw role costs 1.6. */
#include "http/http.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/thread.h"
#include "events/hub.h"
#include "http/listen.h"
#include "http/server.h"
#include "store/pg.h"

enum {
    MIN_THREADS = 4,                /* kept when idle; above it a thread and its connection end after a pause */
    QUEUE_MAX = 4096,               /* requests that wait for a thread: about two seconds of work; 503 above */
    TRANSFERS_MAX = 32,             /* uploads and downloads at once; they hold little memory, and a thread each */
    TRANSFER_QUEUE_MAX = 128,       /* that wait for one of those threads; 503 above */
    SCRATCH_MAX = 64 * 1024 * 1024, /* a single event with its framing */
};

static void *thread_start(void *ctx)
{
    const struct mg_http *h = ctx;
    return h->opts.conninfo ? mg_pg_new(h->opts.conninfo) : NULL;
}

static void thread_stop(void *ctx, void *thread)
{
    (void)ctx;
    mg_pg_free(thread);
}

static void lws_line(int level, const char *line)
{
    size_t n = strlen(line);
    while (n && (line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    mg_log(level & LLL_ERR ? MG_WARN : MG_DEBUG, "libwebsockets", MG_F_SV("text", mg_sv_n(line, n)));
}

static void fill_limits(struct mg_http_limits *l)
{
    const struct mg_http_limits d = {
        MG_HTTP_HEADER_MS, MG_HTTP_BODY_IDLE_MS, MG_HTTP_IDLE_MS, MG_HTTP_KEEPALIVE_MS,  MG_HTTP_SEND_MS,
        MG_WS_PONG_MS,     MG_WS_MESSAGE_MS,     MG_WS_SUBS_MAX,  MG_WS_KEY_SOCKETS_MAX, MG_HTTP_BODIES_MAX,
    };
    unsigned *to[] = {&l->header_ms, &l->body_idle_ms, &l->idle_ms,  &l->keepalive_ms,   &l->send_ms,
                      &l->pong_ms,   &l->message_ms,   &l->subs_max, &l->key_sockets_max};
    const unsigned from[] = {d.header_ms, d.body_idle_ms, d.idle_ms,  d.keepalive_ms,   d.send_ms,
                             d.pong_ms,   d.message_ms,   d.subs_max, d.key_sockets_max};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (*to[i] == 0)
            *to[i] = from[i];
    if (l->bodies_max == 0)
        l->bodies_max = d.bodies_max;
}

/* libwebsockets makes tables for every descriptor that the process may have: a limit of a million would cost 16 MB of
 * them. */
static void lower_descriptor_limit(struct mg_http *h)
{
    struct rlimit r;
    h->max_fd = MG_HTTP_FD_MAX;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return;
    if (r.rlim_cur > MG_HTTP_FD_MAX) {
        r.rlim_cur = MG_HTTP_FD_MAX;
        (void)setrlimit(RLIMIT_NOFILE, &r);
    }
    h->max_fd = (int)r.rlim_cur;
}

static mg_rc check_file(const char *what, const char *path, struct mg_err *err)
{
    if (access(path, R_OK) == 0)
        return MG_OK;
    return mg_err_set(err, MG_ECONFIG, "%s: cannot read '%s': %m", what, path);
}

static mg_rc make_context(struct mg_http *h, struct mg_err *err)
{
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = mg_loop_protocols,
        .user = h,
        .options = LWS_SERVER_OPTION_LIBEV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .pt_serv_buf_size = MG_HTTP_READ + LWS_PRE,
        .alpn = "http/1.1",
        .vhost_name = "mango",
    };
    struct sigaction sigint;
    if (h->tls) {
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = h->opts.tls_cert;
        info.ssl_private_key_filepath = h->opts.tls_key;
        if (check_file("TLS certificate", h->opts.tls_cert, err) < 0 || check_file("TLS key", h->opts.tls_key, err) < 0)
            return MG_ECONFIG;
    }
    lws_set_log_level(LLL_ERR | LLL_WARN, lws_line);
    /* libev takes SIGINT for its own loops: the handler of the program is put back. */
    (void)sigaction(SIGINT, NULL, &sigint);
    h->lws = lws_create_context(&info);
    (void)sigaction(SIGINT, &sigint, NULL);
    if (!h->lws)
        return mg_err_set(
            err, MG_ECONFIG,
            "libwebsockets cannot start its libev event loop, without which thousands of idle streams stall "
            "the server: install the Debian package libwebsockets-evlib-ev (apt-get install "
            "libwebsockets-evlib-ev)");
    h->vhost = lws_create_vhost(h->lws, &info);
    if (!h->vhost)
        return mg_err_set(err, MG_ECONFIG,
                          h->tls ? "TLS: the certificate and the key do not work together (both must be PEM, the key "
                                   "without a passphrase, and belong to each other)"
                                 : "libwebsockets cannot make its virtual host");
    return MG_OK;
}

static mg_rc start_listener(struct mg_http *h, struct mg_err *err)
{
    int fd = -1;
    mg_rc rc = mg_listen_open(h->opts.listen, &fd, &h->port, err);
    if (rc < 0)
        return rc;
    h->listener = lws_adopt_descriptor_vhost(h->vhost, LWS_ADOPT_RAW_FILE_DESC, (lws_sock_file_fd_type){.filefd = fd},
                                             "mango", NULL);
    if (h->listener)
        return MG_OK;
    (void)close(fd);
    return mg_err_set(err, MG_EINTERNAL, "libwebsockets did not take the listening socket");
}

static mg_rc start_threads(struct mg_http *h, struct mg_err *err)
{
    unsigned most = h->opts.threads ? h->opts.threads : MIN_THREADS;
    const struct mg_pool_opts po = {
        .name = "mango-req",
        .min = most < MIN_THREADS ? most : MIN_THREADS,
        .max = most,
        .queue_max = QUEUE_MAX,
        .thread_start = thread_start,
        .thread_stop = thread_stop,
        .ctx = h,
    };
    h->pool = mg_pool_new(&po);
    const struct mg_pool_opts transfers = {
        .name = "mango-xfer",
        .max = TRANSFERS_MAX,
        .queue_max = TRANSFER_QUEUE_MAX,
        .thread_start = thread_start,
        .thread_stop = thread_stop,
        .ctx = h,
    };
    h->transfers = mg_pool_new(&transfers);
    mg_loop_arm(h);
    int e = mg_thread_start(&h->joinable, NULL, mg_loop_thread, h);
    if (e)
        return mg_err_errno(err, e, "cannot start the HTTP thread");
    return MG_OK;
}

/* libev lets only one loop of a process watch SIGINT, and libwebsockets' loops all do: a second one would abort. */
static atomic_bool server_exists;

static struct mg_http *server_alloc(const struct mg_http_opts *o)
{
    struct mg_http *h = mg_xcalloc(1, sizeof(*h));
    h->opts = *o;
    h->limits = o->limits;
    fill_limits(&h->limits);
    h->tls = o->tls_cert && o->tls_cert[0];
    h->start_ns = mg_now_ns();
    h->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    h->scratch = MG_BUF_INIT(SCRATCH_MAX);
    h->finished_tail = &h->finished;
    h->unparks_tail = &h->unparks;
    h->parking = mg_parking_new();
    h->thread = pthread_self();
    mg_list_init(&h->conns);
    mg_list_init(&h->ready);
    mg_list_init(&h->rung);
    mg_wheel_init(&h->wheel);
    h->key_sockets = mg_map_new();
    h->router = mg_router_new(o->routes);
    (void)pthread_mutex_init(&h->lock, NULL);
    mg_cond_init(&h->changed);
    return h;
}

static void server_free(struct mg_http *h)
{
    mg_router_free(h->router);
    mg_map_free(h->key_sockets);
    mg_parking_free(h->parking);
    mg_buf_done(&h->scratch);
    if (h->spare_fd >= 0)
        (void)close(h->spare_fd);
    (void)pthread_mutex_destroy(&h->lock);
    (void)pthread_cond_destroy(&h->changed);
    free(h);
    atomic_store(&server_exists, false);
}

mg_rc mg_http_start(const struct mg_http_opts *o, struct mg_http **ret, struct mg_err *err)
{
    if (atomic_exchange(&server_exists, true))
        return mg_err_set(err, MG_ECONFIG, "this process has an HTTP server already: a process can have one at a time");
    struct mg_http *h = server_alloc(o);
    lower_descriptor_limit(h);
    mg_rc rc = make_context(h, err);
    if (rc >= 0)
        rc = start_listener(h, err);
    if (rc >= 0)
        rc = start_threads(h, err);
    if (rc < 0) {
        if (h->lws)
            lws_context_destroy(h->lws);
        mg_pool_free(h->pool);
        mg_pool_free(h->transfers);
        server_free(h);
        return rc;
    }
    *ret = h;
    return MG_OK;
}

int mg_http_port(const struct mg_http *h)
{
    return h->port;
}

void mg_http_drain(struct mg_http *h, unsigned grace_ms)
{
    uint64_t until_ns = mg_now_ns() + (uint64_t)grace_ms * 1000000;
    atomic_store(&h->draining, true);
    mg_loop_signal(h);
    pthread_mutex_lock(&h->lock);
    while (h->n_conns && mg_cond_wait_until(&h->changed, &h->lock, until_ns))
        ;
    pthread_mutex_unlock(&h->lock);
}

void mg_http_stop(struct mg_http *h)
{
    if (!h)
        return;
    atomic_store(&h->stopping, true);
    /* Also when a wake-up is under way: the flag must be seen. */
    pthread_mutex_lock(&h->lock);
    if (!h->ended)
        lws_cancel_service(h->lws);
    pthread_mutex_unlock(&h->lock);
    (void)pthread_join(h->joinable, NULL);
    mg_pool_free(h->transfers);
    mg_pool_free(h->pool);
    h->thread = pthread_self();
    mg_loop_finish_tasks(h);
    mg_loop_free_revoked(h);
    mg_park_free_news(h);
    server_free(h);
}

void mg_http_metrics(struct mg_http *h, struct mg_buf *out)
{
    mg_metrics_write(&h->metrics, out);
}
