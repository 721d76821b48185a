#include "egress-rig.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "unit/unit.h"

/* ---- the log ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
char proxy_log[PROXY_LOG_MAX]; /* guarded by log_lock */
static size_t log_len;

static void keep_log(void *ctx, enum mg_log_level level, struct mg_sv line)
{
    (void)ctx;
    (void)level;
    pthread_mutex_lock(&log_lock);
    if (log_len + line.len + 2 < sizeof(proxy_log))
        log_len += (size_t)snprintf(proxy_log + log_len, sizeof(proxy_log) - log_len, "%.*s\n", MG_SV_ARG(line));
    pthread_mutex_unlock(&log_lock);
}

void proxy_log_forget(void)
{
    pthread_mutex_lock(&log_lock);
    log_len = 0;
    proxy_log[0] = '\0';
    pthread_mutex_unlock(&log_lock);
}

int proxy_log_count(const char *part)
{
    int n = 0;
    pthread_mutex_lock(&log_lock);
    for (const char *at = proxy_log; (at = strstr(at, part)); at++)
        n++;
    pthread_mutex_unlock(&log_lock);
    return n;
}

void proxy_begin(void)
{
    mg_log_set_sink(keep_log, NULL);
    net_begin();
}

/* ---- the proxy and its doors ---- */

char proxy_state_dir[PLUGIN_PATH_MAX];
struct mg_egress *proxy;
const struct mango_sv proxy_usual[PROXY_USUAL] = {
    {"ok.test", 7},          {"ok.test:9000", 12},  {"ok.test:9001", 12},    {"ok.test:22", 10}, {"*.wild.test", 11},
    {"mixed.test:9000", 15}, {"private.test", 12},  {"meta.test", 9},        {"loop.test", 9},   {"mapped.test", 11},
    {"missing.test", 12},    {"closed.test:9", 13}, {"rebind.test:9000", 16}};

static void rewrite(void *ctx, struct mg_sv session, struct mg_sv host, int port, struct mg_buf *headers)
{
    (void)ctx;
    assert_int_equal(port, 80);
    if (mg_sv_eqz(session, "session_1") && mg_sv_eqz(host, "ok.test"))
        (void)mg_buf_str(headers, "Authorization: Bearer vault-secret\r\n");
}

struct mg_egress *proxy_open(const char *networks)
{
    struct mg_egress *e = NULL;
    struct mg_err err = {0};
    struct mg_egress_opts o = {
        .state_dir = proxy_state_dir, .resolve = net_resolve, .rewrite = rewrite, .head_ms = 400};
    assert_int_equal(mg_egress_networks_parse(mg_sv_of(networks), &o.networks, &err), MG_OK);
    assert_int_equal(mg_egress_open(&o, &e, &err), MG_OK);
    return e;
}

mg_rc proxy_door(struct mg_egress *e, const char *label, const struct mango_sv *hosts, size_t n, const char *listen,
                 struct mg_buf *out, struct mg_err *err)
{
    const struct mango_network net = {
        .struct_size = sizeof(net), .mode = MANGO_NET_LIMITED, .hosts = hosts, .n_hosts = n};
    const struct mg_egress_door_opts o = {
        .label = mg_sv_of(label), .session = MG_SV("session_1"), .network = &net, .listen = mg_sv_of(listen)};
    *out = MG_BUF_INIT(1024);
    return mg_egress_door_open(e, &o, out, out, err);
}

void proxy_usual_door(void)
{
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf dir = {0};
    assert_int_equal(proxy_door(proxy, LABEL, proxy_usual, PROXY_USUAL, "", &dir, &err), MG_OK);
    assert_string_equal(dir.ptr + dir.len - 32, LABEL);
}

int proxy_setup(void **state)
{
    (void)state;
    if (!net_exists())
        return 0;
    plugin_dir_make(proxy_state_dir);
    proxy = proxy_open("");
    proxy_usual_door();
    proxy_log_forget();
    atomic_store(&net_lookups, 0);
    atomic_store(&net_forbidden, 0);
    return 0;
}

int proxy_teardown(void **state)
{
    (void)state;
    if (!net_exists())
        return 0;
    mg_egress_close(proxy);
    proxy = NULL;
    plugin_dir_remove(proxy_state_dir);
    return 0;
}

/* ---- connections ---- */

int proxy_dial_unix(const char *label)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%.50s/egress/%.32s/proxy.sock", proxy_state_dir, label);
    if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0)
        return fd;
    close(fd);
    return -1;
}

int proxy_dial_tcp(const char *address, int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, address, &sa.sin_addr), 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

const char *proxy_until(int fd, const char *want, struct mg_buf *in)
{
    char p[8192];
    while (!want || !in->ptr || !strstr(in->ptr, want)) {
        ssize_t n = net_read(fd, p, sizeof(p));
        if (n <= 0)
            break;
        (void)mg_buf_append(in, p, (size_t)n);
    }
    return in->ptr ? in->ptr : "";
}

void proxy_ask(const char *request, size_t n, struct mg_buf *answer)
{
    mg_autofd int fd = proxy_dial_unix(LABEL);
    *answer = MG_BUF_INIT(1024 * 1024);
    assert_true(fd >= 0);
    net_send(fd, request, n);
    (void)proxy_until(fd, NULL, answer);
}

int proxy_tunnel(const char *to)
{
    char request[512];
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    int fd = proxy_dial_unix(LABEL);
    (void)snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to);
    net_say(fd, request);
    for (char c; !in.ptr || !strstr(in.ptr, "\r\n\r\n"); (void)mg_buf_char(&in, c)) {
        if (net_read(fd, &c, 1) != 1)
            break;
    }
    assert_string_equal(in.ptr, "HTTP/1.1 200 Connection established\r\n\r\n");
    return fd;
}
