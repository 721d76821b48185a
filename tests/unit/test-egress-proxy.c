/* The filtering proxy over real sockets, in a network namespace of the test's own whose loopback bears a public address, a metadata address and a
 * private one, each with servers behind it: what gets through, what does not, and what the log says. Field case 95. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "crypto/hash.h"
#include "egress/service.h"
#include "plugin/plugin.h"
#include "support/plugin-build.h"

enum {
    PATIENCE_MS = 20000,
    ECHO = 9000,  /* gives back what it gets, and "bye" at its end */
    FLOOD = 9001, /* sends without end */
    SSH = 22,     /* speaks first, then echoes */
};

#define PUBLIC "8.8.8.8"
#define PRIVATE "10.1.2.3"
#define METADATA "169.254.169.254"
#define LABEL "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

/* ---- a network ---- */

static bool own_network;

static bool write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fputs(text, f) >= 0;
    return f && fclose(f) == 0 && ok;
}

static void add_address(int fd, const char *alias, const char *address)
{
    struct ifreq r = {0};
    struct sockaddr_in sa = {.sin_family = AF_INET};
    (void)snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", alias);
    assert_int_equal(inet_pton(AF_INET, address, &sa.sin_addr), 1);
    memcpy(&r.ifr_addr, &sa, sizeof(sa));
    assert_int_equal(ioctl(fd, SIOCSIFADDR, &r), 0);
    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &r), 0);
    r.ifr_flags |= IFF_UP;
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &r), 0);
}

/* Before any thread: a namespace is one's own. */
static bool enter_network(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    if (unshare(CLONE_NEWNET) < 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
            return false;
        (void)write_file("/proc/self/setgroups", "deny");
        (void)snprintf(map, sizeof(map), "0 %u 1", uid);
        if (!write_file("/proc/self/uid_map", map))
            return false;
        (void)snprintf(map, sizeof(map), "0 %u 1", gid);
        (void)write_file("/proc/self/gid_map", map);
    }
    mg_autofd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    add_address(fd, "lo", "127.0.0.1");
    add_address(fd, "lo:1", PUBLIC);
    add_address(fd, "lo:2", PRIVATE);
    add_address(fd, "lo:3", METADATA);
    return true;
}

/* ---- servers ---- */

struct server {
    int fd, port;
    pthread_t thread;
};
static struct server servers[16];
static int n_servers;
static atomic_int reached_forbidden;
static atomic_long flooded;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[64 * 1024]; /* the last request of port 80 */

static ssize_t read_some(int fd, char *p, size_t n)
{
    struct pollfd f = {.fd = fd, .events = POLLIN};
    return poll(&f, 1, PATIENCE_MS) > 0 ? recv(fd, p, n, 0) : -1;
}

static void send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        p += sent;
        n -= (size_t)sent;
    }
}

static void send_text(int fd, const char *text)
{
    send_all(fd, text, strlen(text));
}

static void serve_echo(int fd)
{
    char p[4096];
    for (ssize_t n; (n = read_some(fd, p, sizeof(p))) > 0;)
        send_all(fd, p, (size_t)n);
    send_all(fd, "bye", 3);
}

static void serve_flood(int fd)
{
    static const char piece[16384];
    for (;;) {
        ssize_t n = send(fd, piece, sizeof(piece), MSG_NOSIGNAL);
        if (n <= 0)
            return;
        atomic_fetch_add(&flooded, n);
    }
}

/* Until the request "ends" by its own words, as the servers of a careless host would. */
static void serve_http(int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nanswer";
    char p[64 * 1024];
    size_t got = 0;
    while (got < sizeof(p) - 1) {
        p[got] = '\0';
        const char *end = strstr(p, "\r\n\r\n"), *length = strstr(p, "Content-Length: ");
        size_t need = end ? (size_t)(end - p) + 4 + (length ? strtoul(length + 16, NULL, 10) : 0) : SIZE_MAX;
        if (got >= need && (!strstr(p, "chunked") || strstr(end, "\r\n0\r\n\r\n")))
            break;
        ssize_t n = read_some(fd, p + got, sizeof(p) - 1 - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    pthread_mutex_lock(&seen_lock);
    memcpy(seen, p, got);
    seen[got] = '\0';
    pthread_mutex_unlock(&seen_lock);
    send_all(fd, answer, sizeof(answer) - 1);
}

struct visit {
    int fd, port;
};

static void *serve(void *arg)
{
    mg_autofree struct visit *v = arg;
    if (v->port < 0)
        atomic_fetch_add(&reached_forbidden, 1);
    if (v->port == SSH)
        send_all(v->fd, "SSH-2.0-test\r\n", 14);
    if (v->port < 0)
        send_text(v->fd, "forbidden");
    else if (v->port == FLOOD)
        serve_flood(v->fd);
    else if (v->port == 80)
        serve_http(v->fd);
    else
        serve_echo(v->fd);
    close(v->fd);
    return NULL;
}

static void *accept_all(void *arg)
{
    const struct server *s = arg;
    for (;;) {
        pthread_t t;
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        struct visit *v = mg_xmalloc(sizeof(*v));
        *v = (struct visit){fd, s->port};
        assert_int_equal(pthread_create(&t, NULL, serve, v), 0);
        (void)pthread_detach(t);
    }
}

static void server_start(const char *address, int port, bool forbidden)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct server *s = &servers[n_servers++];
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    s->port = forbidden ? -1 : port;
    assert_int_equal(inet_pton(AF_INET, address, &sa.sin_addr), 1);
    assert_int_equal(bind(s->fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(s->fd, 512), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, accept_all, s), 0);
}

/* ---- names ---- */

static atomic_int n_lookups;

static enum mg_resolve_state resolve(void *ctx, const char *host, char text[MG_RESOLVE_TEXT_MAX])
{
    static const struct {
        const char *host, *addresses;
    } names[] = {
        {"ok.test", PUBLIC},
        {"a.wild.test", PUBLIC},
        {"mixed.test", PRIVATE "," METADATA "," PUBLIC},
        {"private.test", PRIVATE},
        {"meta.test", METADATA},
        {"loop.test", "127.0.0.1,[::1]"},
        {"mapped.test", "[::ffff:10.1.2.3],[fe80::1],[fd00::1],[64:ff9b::a01:203]"},
        {"closed.test", PUBLIC},
    };
    (void)ctx;
    static atomic_int nth_rebind;
    atomic_fetch_add(&n_lookups, 1);
    if (strcmp(host, "rebind.test") == 0) { /* public when it is checked, private when somebody asks again */
        (void)snprintf(text, MG_RESOLVE_TEXT_MAX, "%s", atomic_fetch_add(&nth_rebind, 1) % 2 == 0 ? PUBLIC : METADATA);
        return MG_RESOLVE_FOUND;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].host, host) != 0)
            continue;
        (void)snprintf(text, MG_RESOLVE_TEXT_MAX, "%s", names[i].addresses);
        return MG_RESOLVE_FOUND;
    }
    return MG_RESOLVE_FAILED;
}

/* ---- the log ---- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[256 * 1024];
static size_t log_len;

static void keep_log(void *ctx, enum mg_log_level level, struct mg_sv line)
{
    (void)ctx;
    (void)level;
    pthread_mutex_lock(&log_lock);
    if (log_len + line.len + 2 < sizeof(log_text))
        log_len += (size_t)snprintf(log_text + log_len, sizeof(log_text) - log_len, "%.*s\n", MG_SV_ARG(line));
    pthread_mutex_unlock(&log_lock);
}

static void log_forget(void)
{
    pthread_mutex_lock(&log_lock);
    log_len = 0;
    log_text[0] = '\0';
    pthread_mutex_unlock(&log_lock);
}

static int log_count(const char *part)
{
    int n = 0;
    pthread_mutex_lock(&log_lock);
    for (const char *at = log_text; (at = strstr(at, part)); at++)
        n++;
    pthread_mutex_unlock(&log_lock);
    return n;
}

/* ---- the proxy and its doors ---- */

static char state_dir[PLUGIN_PATH_MAX];
static struct mg_egress *egress;
static const struct mango_sv usual[] = {
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

static struct mg_egress *proxy_open(const char *networks)
{
    struct mg_egress *e = NULL;
    struct mg_err err = {0};
    struct mg_egress_opts o = {.state_dir = state_dir, .resolve = resolve, .rewrite = rewrite, .head_ms = 400};
    assert_int_equal(mg_egress_networks_parse(mg_sv_of(networks), &o.networks, &err), MG_OK);
    assert_int_equal(mg_egress_open(&o, &e, &err), MG_OK);
    return e;
}

static mg_rc door(struct mg_egress *e, const char *label, const struct mango_sv *hosts, size_t n, const char *listen,
                  struct mg_buf *out, struct mg_err *err)
{
    const struct mango_network net = {
        .struct_size = sizeof(net), .mode = MANGO_NET_LIMITED, .hosts = hosts, .n_hosts = n};
    const struct mg_egress_door_opts o = {
        .label = mg_sv_of(label), .session = MG_SV("session_1"), .network = &net, .listen = mg_sv_of(listen)};
    *out = MG_BUF_INIT(1024);
    return mg_egress_door_open(e, &o, out, out, err);
}

static void usual_door(void)
{
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf dir = {0};
    assert_int_equal(door(egress, LABEL, usual, sizeof(usual) / sizeof(usual[0]), "", &dir, &err), MG_OK);
    assert_string_equal(dir.ptr + dir.len - 32, LABEL);
}

static int setup(void **state)
{
    (void)state;
    if (!own_network)
        return 0;
    plugin_dir_make(state_dir);
    egress = proxy_open("");
    usual_door();
    log_forget();
    atomic_store(&n_lookups, 0);
    atomic_store(&reached_forbidden, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (!own_network)
        return 0;
    mg_egress_close(egress);
    egress = NULL;
    plugin_dir_remove(state_dir);
    return 0;
}

/* Says why, where the kernel gives no network namespace. */
#define NEED_NETWORK()                                                                   \
    do {                                                                                 \
        if (!own_network) {                                                              \
            print_message("skipped: no network namespace can be made here (unshare)\n"); \
            skip();                                                                      \
        }                                                                                \
    } while (0)

static int dial_unix(const char *label)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%.50s/egress/%.32s/proxy.sock", state_dir, label);
    if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int dial_tcp(const char *address, int port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, address, &sa.sin_addr), 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
    return fd;
}

/* Reads until want is in what came, or the end. */
static const char *read_until(int fd, const char *want, struct mg_buf *in)
{
    char p[8192];
    while (!want || !in->ptr || !strstr(in->ptr, want)) {
        ssize_t n = read_some(fd, p, sizeof(p));
        if (n <= 0)
            break;
        (void)mg_buf_append(in, p, (size_t)n);
    }
    return in->ptr ? in->ptr : "";
}

/* What the proxy says to a whole request on a new connection to the unix door. */
static void ask(const char *request, size_t n, struct mg_buf *answer)
{
    mg_autofd int fd = dial_unix(LABEL);
    *answer = MG_BUF_INIT(1024 * 1024);
    assert_true(fd >= 0);
    send_all(fd, request, n);
    (void)read_until(fd, NULL, answer);
}

/* A tunnel to host:port; nothing behind the proxy's answer is read. */
static int tunnel(const char *to)
{
    char request[512];
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    int fd = dial_unix(LABEL);
    (void)snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to);
    send_text(fd, request);
    for (char c; !in.ptr || !strstr(in.ptr, "\r\n\r\n"); (void)mg_buf_char(&in, c)) {
        if (read_some(fd, &c, 1) != 1)
            break;
    }
    assert_string_equal(in.ptr, "HTTP/1.1 200 Connection established\r\n\r\n");
    return fd;
}

/* ---- what gets through ---- */

static void a_tunnel_carries_bytes_both_ways_to_its_ends(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const char *const to[] = {"ok.test:9000", "OK.Test.:9000", "mixed.test:9000", "rebind.test:9000"};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
        int before = atomic_load(&n_lookups);
        mg_autofd int fd = tunnel(to[i]);
        send_text(fd, "hello");
        assert_string_equal(read_until(fd, "hello", &in), "hello");
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        assert_string_equal(read_until(fd, NULL, &in), "hellobye");
        assert_int_equal(atomic_load(&n_lookups) - before, 1); /* what was checked is what was connected to */
        (void)state;
    }
    assert_int_equal(atomic_load(&reached_forbidden), 0);
}

static void bytes_sent_with_the_request_are_not_lost(void **state)
{
    NEED_NETWORK();
    (void)state;
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    mg_autofd int fd = dial_unix(LABEL);
    send_text(fd, "CONNECT ok.test:9000 HTTP/1.1\r\n\r\nat once");
    (void)shutdown(fd, SHUT_WR);
    assert_contains(read_until(fd, NULL, &in), "\r\n\r\nat oncebye");
}

static void a_server_that_speaks_first_is_heard(void **state)
{
    NEED_NETWORK();
    (void)state;
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
    mg_autofd int fd = tunnel("ok.test:22");
    assert_string_equal(read_until(fd, "\n", &in), "SSH-2.0-test\r\n");
    send_text(fd, "SSH-2.0-client\r\n");
    assert_contains(read_until(fd, "client", &in), "SSH-2.0-client");
}

static void socks_takes_names_and_checks_them_alike(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct {
        const char *name;
        int port, command;
        unsigned char reply;
    } cases[] = {
        {"ok.test", ECHO, 1, 0},  {"a.wild.test", 80, 1, 0}, {"other.test", 443, 1, 2},
        {"ok.test", 25, 1, 2},    {"meta.test", 80, 1, 2},   {"missing.test", 80, 1, 4},
        {"closed.test", 9, 1, 5}, {"ok.test", ECHO, 2, 1},   {"127.0.0.1", ECHO, 1, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned char request[300] = {5, (unsigned char)cases[i].command, 0, 3};
        char got[16] = {0};
        mg_autofd int fd = dial_unix(LABEL);
        size_t n = strlen(cases[i].name);
        send_all(fd, "\5\2\0\2", 4);
        assert_int_equal(read_some(fd, got, 2), 2);
        assert_memory_equal(got, "\5\0", 2);
        request[4] = (unsigned char)n;
        memcpy(request + 5, cases[i].name, n);
        request[5 + n] = (unsigned char)(cases[i].port >> 8);
        request[6 + n] = (unsigned char)cases[i].port;
        send_all(fd, (const char *)request, 7 + n);
        assert_int_equal(read_some(fd, got, 10), 10);
        if ((unsigned char)got[1] != cases[i].reply)
            fail_msg("%s:%d: reply %d", cases[i].name, cases[i].port, got[1]);
        if (cases[i].reply == 0 && cases[i].port == ECHO) {
            mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
            send_text(fd, "hi");
            assert_string_equal(read_until(fd, "hi", &in), "hi");
        }
    }
}

static void a_plain_request_goes_on_alone_and_in_its_right_form(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const char request[] =
        "POST http://ok.test/path?q=1 HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: Basic eDp5\r\n"
        "Authorization: Bearer of-the-sandbox\r\nConnection: keep-alive, X-Drop\r\nX-Drop: 1\r\nX-Keep: 2\r\n"
        "Content-Length: 4\r\n\r\nbodyGET http://ok.test/smuggled HTTP/1.1\r\nHost: other.test\r\n\r\n";
    mg_auto(buf) struct mg_buf answer = {0};
    ask(request, sizeof(request) - 1, &answer);
    assert_contains(answer.ptr, "\r\n\r\nanswer");
    assert_null(strstr(answer.ptr, "vault-secret"));
    pthread_mutex_lock(&seen_lock);
    assert_string_equal(
        seen, "POST /path?q=1 HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\nX-Keep: 2\r\nContent-Length: 4\r\n"
              "Authorization: Bearer vault-secret\r\n\r\nbody");
    pthread_mutex_unlock(&seen_lock);
    assert_int_equal(log_count("vault-secret"), 0);
}

static void a_chunked_body_ends_where_it_says(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const char request[] =
        "PUT http://ok.test HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"
        "GET http://ok.test/smuggled HTTP/1.1\r\n\r\n";
    for (size_t first = 1; first < sizeof(request) - 1; first += 13) {
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096);
        mg_autofd int fd = dial_unix(LABEL);
        send_all(fd, request, first);
        (void)sched_yield();
        send_all(fd, request + first, sizeof(request) - 1 - first);
        assert_contains(read_until(fd, NULL, &in), "answer");
        pthread_mutex_lock(&seen_lock);
        assert_contains(seen, "PUT / HTTP/1.1\r\nHost: ok.test\r\n");
        assert_contains(seen, "3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n");
        assert_null(strstr(seen, "smuggled"));
        pthread_mutex_unlock(&seen_lock);
    }
}

/* ---- what does not ---- */

static void case_95_each_refusal_has_its_answer_and_its_line(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct {
        const char *request, *status, *reason, *host;
    } cases[] = {
        {"CONNECT other.test:443 HTTP/1.1\r\n\r\n", "403", "host", "other.test"},
        {"CONNECT notok.test:443 HTTP/1.1\r\n\r\n", "403", "host", "notok.test"},
        {"CONNECT x.ok.test:443 HTTP/1.1\r\n\r\n", "403", "host", "x.ok.test"},
        {"CONNECT wild.test:443 HTTP/1.1\r\n\r\n", "403", "host", "wild.test"},
        {"CONNECT ok.test.evil.test:443 HTTP/1.1\r\n\r\n", "403", "host", "ok.test.evil.test"},
        {"CONNECT " PUBLIC ":443 HTTP/1.1\r\n\r\n", "403", "host", PUBLIC}, /* an address of an allowed name */
        {"CONNECT " METADATA ":80 HTTP/1.1\r\n\r\n", "403", "host", METADATA},
        {"CONNECT 127.0.0.1:9000 HTTP/1.1\r\n\r\n", "403", "host", "127.0.0.1"},
        {"CONNECT [::1]:9000 HTTP/1.1\r\n\r\n", "403", "host", "::1"},
        {"CONNECT [::ffff:10.1.2.3]:80 HTTP/1.1\r\n\r\n", "403", "host", "::ffff:10.1.2.3"},
        {"GET http://other.test/secret/path?token=t HTTP/1.1\r\nHost: ok.test\r\n\r\n", "403", "host", "other.test"},
        {"CONNECT ok.test:25 HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"CONNECT ok.test:8080 HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"GET http://ok.test:8080/ HTTP/1.1\r\n\r\n", "403", "port", "ok.test"},
        {"GET http://ok.test:443/ HTTP/1.1\r\n\r\n", "400", "protocol", "ok.test"},
        {"CONNECT private.test:80 HTTP/1.1\r\n\r\n", "403", "address", "private.test"},
        {"GET http://meta.test/latest/meta-data HTTP/1.1\r\n\r\n", "403", "address", "meta.test"},
        {"CONNECT loop.test:80 HTTP/1.1\r\n\r\n", "403", "address", "loop.test"},
        {"CONNECT mapped.test:80 HTTP/1.1\r\n\r\n", "403", "address", "mapped.test"},
        {"CONNECT missing.test:443 HTTP/1.1\r\n\r\n", "502", "resolve", "missing.test"},
        {"CONNECT closed.test:9 HTTP/1.1\r\n\r\n", "502", "connect", "closed.test"},
        {"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "400", "protocol", ""},
        {"GET https://ok.test/ HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"GET http://u:p@ok.test/ HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test:0 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"CONNECT ok.test:99999 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400", "protocol", ""},
        {"POST http://ok.test/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400", "protocol",
         ""},
        {"POST http://ok.test/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/\x01 HTTP/1.1\r\n\r\n", "400", "protocol", ""},
        {"GET http://ok.test/ HTTP/3\r\n\r\n", "400", "protocol", ""},
        {"nonsense\r\n\r\n", "400", "protocol", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char status[32], line[512];
        mg_auto(buf) struct mg_buf answer = {0};
        log_forget();
        ask(cases[i].request, strlen(cases[i].request), &answer);
        (void)snprintf(status, sizeof(status), "HTTP/1.1 %s ", cases[i].status);
        (void)snprintf(line, sizeof(line), " reason=%s", cases[i].reason);
        if (!answer.ptr || !strstr(answer.ptr, status) || log_count(line) != 1 || log_count("egress refused") != 1)
            fail_msg("%s: %s; %s", cases[i].request, answer.ptr ? answer.ptr : "", log_text);
        assert_contains(answer.ptr, "X-Proxy-Error: blocked-by-mango");
        (void)snprintf(line, sizeof(line), "host=%s", cases[i].host);
        assert_int_equal(log_count("session=session_1") + (log_count(line) > 0), 2);
        assert_int_equal(log_count("secret"), 0); /* neither path nor query */
        assert_int_equal(log_count("latest"), 0);
    }
    assert_int_equal(atomic_load(&reached_forbidden), 0);
}

static void names_outside_of_the_list_are_not_even_resolved(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const char *const requests[] = {"CONNECT data.attacker.test:443 HTTP/1.1\r\n\r\n",
                                           "GET http://data.attacker.test/ HTTP/1.1\r\n\r\n",
                                           "CONNECT ok.test:8080 HTTP/1.1\r\n\r\n"};
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        ask(requests[i], strlen(requests[i]), &answer);
    }
    assert_int_equal(atomic_load(&n_lookups), 0);
}

/* A ClientHello with one name, or without; in records of `record` bytes. Returns its length. */
static size_t client_hello(const char *name, size_t record, unsigned char *out)
{
    unsigned char b[512] = {1, 0, 0, 0, 3, 3};
    size_t n = 6 + 32, host = strlen(name), at = 0;
    const unsigned char fixed[] = {0, 0, 2, 0x13, 1, 1, 0};
    memcpy(b + n, fixed, sizeof(fixed));
    n += sizeof(fixed);
    size_t ext = host > 0 ? host + 9 : 0;
    b[n++] = 0;
    b[n++] = (unsigned char)ext;
    if (host > 0) {
        const unsigned char head[] = {
            0, 0, 0, (unsigned char)(host + 5), 0, (unsigned char)(host + 3), 0, 0, (unsigned char)host};
        memcpy(b + n, head, sizeof(head));
        memcpy(b + n + sizeof(head), name, host);
        n += sizeof(head) + host;
    }
    b[3] = (unsigned char)(n - 4);
    size_t used = 0;
    while (at < n) {
        size_t part = n - at < record ? n - at : record;
        const unsigned char head[] = {22, 3, 1, 0, (unsigned char)part};
        memcpy(out + used, head, sizeof(head));
        memcpy(out + used + sizeof(head), b + at, part);
        used += sizeof(head) + part;
        at += part;
    }
    return used;
}

static void a_tunnel_is_for_the_name_that_was_asked_for(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct {
        const char *to, *name;
        bool through;
    } cases[] = {
        {"ok.test:443", "ok.test", true},          {"ok.test:443", "OK.TEST", true},
        {"ok.test:443", "other.test", false},      {"ok.test:443", "", false},
        {"ok.test:443", "8.8.8.8", false},         {"a.wild.test:443", "a.wild.test", true},
        {"a.wild.test:443", "b.wild.test", false}, {"ok.test:9000", "ok.test", true},
        {"ok.test:9000", "other.test", false},     {"ok.test:9000", "", true},
        {"ok.test:80", "other.test", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t record = 7; record < 200; record += 60) {
            unsigned char hello[2048];
            char got[2048];
            size_t n = client_hello(cases[i].name, record, hello), at = 0;
            mg_autofd int fd = tunnel(cases[i].to);
            log_forget();
            send_all(fd, (const char *)hello, 3);
            (void)sched_yield();
            send_all(fd, (const char *)hello + 3, n - 3);
            for (ssize_t r; at < n && (r = read_some(fd, got + at, sizeof(got) - at)) > 0;)
                at += (size_t)r;
            if (cases[i].through != (at == n && memcmp(got, hello, n) == 0))
                fail_msg("%s with %s: %zu of %zu bytes came back", cases[i].to, cases[i].name, at, n);
            assert_int_equal(log_count("reason=name"), !cases[i].through);
        }
    }
}

static void port_443_carries_tls_and_port_80_the_hosts_own_http(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct {
        const char *to, *bytes, *answer, *reason;
    } cases[] = {
        {"ok.test:443", "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", "", "protocol"},
        {"ok.test:443", "\x16\x02junk", "", "protocol"},
        {"ok.test:443", "\x16\x03\x01\x00\x05\x02zzzz", "", "protocol"},
        {"ok.test:80", "GET /x HTTP/1.1\r\nHost: ok.test\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", "answer", NULL},
        {"ok.test:80", "GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 403 ", "name"},
        {"ok.test:80", "GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
        {"ok.test:80", "GET http://other.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
        {"ok.test:80", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 400 ", "protocol"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[64];
        mg_auto(buf) struct mg_buf in = MG_BUF_INIT(8192);
        mg_autofd int fd = tunnel(cases[i].to);
        log_forget();
        size_t n = i == 2 ? 10 : strlen(cases[i].bytes);
        send_all(fd, cases[i].bytes, n);
        (void)shutdown(fd, SHUT_WR);
        const char *got = read_until(fd, NULL, &in);
        (void)snprintf(line, sizeof(line), "reason=%s", cases[i].reason ? cases[i].reason : "");
        if (!strstr(got, cases[i].answer) || (cases[i].reason && log_count(line) != 1) || strstr(got, "smuggled"))
            fail_msg("case %zu: %s; %s", i, got, log_text);
    }
}

static void a_sandbox_that_says_nothing_is_not_waited_for(void **state)
{
    NEED_NETWORK();
    (void)state;
    char p[64];
    static const char *const starts[] = {"", "CONN", "\5", "CONNECT ok.test:443 HTTP/1.1\r\n\r\n",
                                         "CONNECT ok.test:80 HTTP/1.1\r\n\r\nGET "};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        uint64_t since = mg_now_ns();
        mg_autofd int fd = dial_unix(LABEL);
        send_text(fd, starts[i]);
        while (read_some(fd, p, sizeof(p)) > 0)
            continue;
        assert_true(mg_now_ns() - since < 10000000000u);
    }
}

static void a_request_without_end_is_refused(void **state)
{
    NEED_NETWORK();
    (void)state;
    mg_auto(buf) struct mg_buf answer = {0};
    mg_autofree char *endless = mg_xmalloc(100000);
    memset(endless, 'A', 100000);
    ask(endless, 100000, &answer);
    assert_contains(answer.ptr ? answer.ptr : "", "400 Bad Request");
}

/* ---- doors ---- */

static void what_the_new_policy_forbids_is_cut(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct mango_sv less[] = {{"ok.test:22", 10}};
    struct mg_err err = {0};
    char p[64];
    mg_auto(buf) struct mg_buf in = MG_BUF_INIT(4096), dir = {0}, answer = {0};
    mg_autofd int cut = tunnel("ok.test:9000");
    mg_autofd int kept = tunnel("ok.test:22");
    (void)read_until(kept, "\n", &in);
    assert_int_equal(door(egress, LABEL, less, 1, "", &dir, &err), MG_OK);
    assert_int_equal(read_some(cut, p, sizeof(p)), 0);
    send_text(kept, "still");
    assert_contains(read_until(kept, "still", &in), "still");
    ask("CONNECT ok.test:9000 HTTP/1.1\r\n\r\n", 34, &answer);
    assert_contains(answer.ptr, "403");
}

static void a_closed_door_leaves_nothing(void **state)
{
    NEED_NETWORK();
    (void)state;
    char p[64], path[PLUGIN_PATH_MAX + 64];
    struct stat st;
    mg_autofd int fd = tunnel("ok.test:9000");
    (void)snprintf(path, sizeof(path), "%s/egress/%s", state_dir, LABEL);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    mg_egress_door_close(egress, MG_SV(LABEL));
    assert_int_equal(read_some(fd, p, sizeof(p)), 0);
    assert_int_equal(dial_unix(LABEL), -1);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(log_count("egress closed"), 1);
    mg_egress_door_close(egress, MG_SV(LABEL));
    mg_egress_door_close(egress, MG_SV("../../etc"));
}

static void doors_are_where_they_were_after_a_restart(void **state)
{
    NEED_NETWORK();
    (void)state;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf url = {0}, again = {0}, dir = {0};
    assert_int_equal(door(egress, LABEL, usual, 3, "127.0.0.1:3128", &url, &err), MG_OK);
    mg_egress_close(egress);
    egress = proxy_open("");
    assert_int_equal(door(egress, LABEL, usual, 3, "127.0.0.1:3128", &again, &err), MG_OK);
    assert_string_equal(url.ptr, again.ptr);
    assert_int_equal(door(egress, LABEL, usual, 3, "", &dir, &err),
                     MG_OK); /* over the socket that the first one left */
    mg_autofd int fd = tunnel("ok.test:9000");
    mg_egress_close(egress);
    egress = proxy_open("");
    mg_egress_door_close(egress, MG_SV(LABEL)); /* of an earlier process */
    assert_int_equal(dial_unix(LABEL), -1);
    assert_true(access(dir.ptr, F_OK) < 0);
}

static void ask_tcp(const char *credential, const char *to, struct mg_buf *answer)
{
    char request[512];
    mg_auto(buf) struct mg_buf basic = MG_BUF_INIT(512);
    mg_autofd int fd = dial_tcp("127.0.0.1", 3128);
    (void)mg_base64_encode(&basic, mg_sv_of(credential));
    (void)snprintf(request, sizeof(request), "CONNECT %s HTTP/1.1\r\n%s%s%s\r\n", to,
                   credential[0] ? "Proxy-Authorization: Basic " : "", credential[0] ? basic.ptr : "",
                   credential[0] ? "\r\n" : "");
    *answer = MG_BUF_INIT(4096);
    send_text(fd, request);
    (void)read_until(fd, "\r\n\r\n", answer);
}

static void a_credential_tells_the_doors_of_one_address_apart(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct mango_sv other[] = {{"a.wild.test:9000", 16}};
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf one = {0}, two = {0};
    assert_int_equal(door(egress, LABEL, usual, 3, "127.0.0.1:3128", &one, &err), MG_OK);
    assert_int_equal(door(egress, OTHER, other, 1, "127.0.0.1:3128", &two, &err), MG_OK);
    assert_contains(one.ptr, "http://" LABEL ":");
    assert_contains(one.ptr, "@127.0.0.1:3128");
    char mine[128], theirs[128], mixed[160];
    (void)snprintf(mine, sizeof(mine), "%.65s", one.ptr + 7);
    (void)snprintf(theirs, sizeof(theirs), "%.65s", two.ptr + 7);
    (void)snprintf(mixed, sizeof(mixed), "%.33s%s", mine, theirs + 33);
    const struct {
        const char *credential, *to, *status;
    } cases[] = {
        {mine, "ok.test:9000", "200"},      {theirs, "a.wild.test:9000", "200"}, {mine, "a.wild.test:9000", "403"},
        {theirs, "ok.test:9000", "403"},    {"", "ok.test:9000", "407"},         {mixed, "ok.test:9000", "407"},
        {LABEL ":", "ok.test:9000", "407"}, {"x", "ok.test:9000", "407"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        ask_tcp(cases[i].credential, cases[i].to, &answer);
        if (!strstr(answer.ptr, cases[i].status))
            fail_msg("case %zu: %s", i, answer.ptr);
        assert_int_equal(strstr(answer.ptr, "Proxy-Authenticate: Basic") != NULL, strcmp(cases[i].status, "407") == 0);
    }
    mg_egress_door_close(egress, MG_SV(OTHER));
    mg_auto(buf) struct mg_buf answer = {0};
    ask_tcp(theirs, "a.wild.test:9000", &answer);
    assert_contains(answer.ptr, "407");
    assert_int_equal(log_count(mine + 33), 0);
}

static void socks_takes_the_credential_too(void **state)
{
    NEED_NETWORK();
    (void)state;
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf url = {0};
    char hello[128] = "\1\40", got[16] = {0};
    assert_int_equal(door(egress, LABEL, usual, 3, "127.0.0.1:3128", &url, &err), MG_OK);
    memcpy(hello + 2, LABEL, 32);
    hello[34] = 32;
    memcpy(hello + 35, url.ptr + 7 + 33, 32);
    for (int wrong = 0; wrong < 2; wrong++) {
        mg_autofd int fd = dial_tcp("127.0.0.1", 3128);
        hello[40] ^= (char)wrong;
        send_all(fd, "\5\2\0\2", 4);
        assert_int_equal(read_some(fd, got, 2), 2);
        assert_memory_equal(got, "\5\2", 2);
        send_all(fd, hello, 67);
        assert_int_equal(read_some(fd, got, 2), 2);
        assert_int_equal(got[1], wrong);
        if (wrong) {
            assert_int_equal(read_some(fd, got, 2), 0);
            continue;
        }
        send_all(fd, "\5\1\0\3\7ok.test\x23\x28", 14);
        assert_int_equal(read_some(fd, got, 10), 10);
        assert_int_equal(got[1], 0);
    }
    mg_autofd int fd = dial_tcp("127.0.0.1", 3128); /* without a credential there is no way in */
    send_all(fd, "\5\1\0", 3);
    assert_int_equal(read_some(fd, got, 2), 2);
    assert_memory_equal(got, "\5\377", 2);
}

static void bad_doors_are_refused_by_name(void **state)
{
    NEED_NETWORK();
    (void)state;
    static const struct {
        const char *host, *listen, *says;
    } cases[] = {
        {"*", "", "allowed host \"*\""},
        {"", "", "allowed host"},
        {"http://x", "", "\"http://x\""},
        {"a b", "", "\"a b\""},
        {"x:0", "", "\"x:0\""},
        {"x:y", "", "\"x:y\""},
        {"*.*.x", "", "\"*.*.x\""},
        {"x..y", "", "\"x..y\""},
        {"ok.test", "0.0.0.0:3128", "wildcard"},
        {"ok.test", "[::]:3128", "wildcard"},
        {"ok.test", "localhost:3128", "wildcard"},
        {"ok.test", "127.0.0.1", "wildcard"},
        {"ok.test", "9.9.9.9:3128", "9.9.9.9:3128"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_err err = {0};
        mg_auto(buf) struct mg_buf out = {0};
        const struct mango_sv hosts[] = {{cases[i].host, strlen(cases[i].host)}};
        if (door(egress, OTHER, hosts, 1, cases[i].listen, &out, &err) == MG_OK || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %s", i, err.text);
    }
    struct mg_err err = {0};
    mg_auto(buf) struct mg_buf out = {0};
    assert_int_equal(door(egress, "../x", usual, 1, "", &out, &err), MG_EINVAL);
    assert_true(plugin_sh("ln -s /tmp '%s/egress/%s'", state_dir, OTHER)); /* a planted link is not followed */
    assert_true(door(egress, OTHER, usual, 1, "", &out, &err) < 0);
    assert_true(plugin_sh("test ! -e /tmp/proxy.sock"));
}

static void plugins_get_a_door_through_the_hosts_service(void **state)
{
    NEED_NETWORK();
    (void)state;
    struct mg_err err = {0};
    struct mg_buf dir = MG_BUF_INIT(1024);
    const struct mango_network net = {
        .struct_size = sizeof(net), .mode = MANGO_NET_LIMITED, .hosts = usual, .n_hosts = 2};
    struct mango_call call = mg_plugin_call(0, NULL, &err);
    struct mango_egress_req req = {.struct_size = sizeof(req), .label = {OTHER, 32}, .network = &net};
    struct mango_egress ret = {.struct_size = sizeof(ret), .dir = (struct mango_buf *)&dir};
    assert_int_equal(mg_egress_service_open(egress, MG_SV("session_2"), &call, &req, &ret), MANGO_OK);
    mg_autofd int fd = dial_unix(OTHER);
    assert_true(fd >= 0);
    req.listen = (struct mango_sv){"127.0.0.1:0", 11};
    assert_int_equal(mg_egress_service_open(egress, MG_SV("session_2"), &call, &req, &ret),
                     MANGO_EINVALID); /* no buffer for it */
    req.network = NULL;
    assert_int_equal(mg_egress_service_open(egress, MG_SV("session_2"), &call, &req, &ret), MANGO_EINVALID);
    mg_buf_done(&dir);
}

/* ---- floods ---- */

static void a_sandbox_has_so_many_connections_at_a_time(void **state)
{
    NEED_NETWORK();
    (void)state;
    int fds[MG_EGRESS_DOOR_CONNS + 8], refused = 0;
    char p[8];
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = i < MG_EGRESS_DOOR_CONNS ? tunnel("ok.test:9000") : dial_unix(LABEL);
    for (size_t i = MG_EGRESS_DOOR_CONNS; i < sizeof(fds) / sizeof(fds[0]); i++)
        refused += read_some(fds[i], p, sizeof(p)) <= 0;
    assert_int_equal(refused, 8);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    assert_true(log_count("reason=limit") > 0);
}

static void a_slow_sandbox_holds_a_flooding_host_back(void **state)
{
    NEED_NETWORK();
    (void)state;
    mg_autofd int fd = tunnel("ok.test:9001");
    long last = -1, now = 0;
    const struct timespec step = {.tv_nsec = 50000000};
    for (int i = 0; i < 100 && now != last; i++) { /* until it is stuck */
        last = now;
        (void)nanosleep(&step, NULL);
        now = atomic_load(&flooded);
    }
    assert_true(now < 16L * 1024 * 1024);
}

static void a_flood_of_refusals_is_not_a_flood_of_lines(void **state)
{
    NEED_NETWORK();
    (void)state;
    for (int i = 0; i < 300; i++) {
        mg_auto(buf) struct mg_buf answer = {0};
        ask("CONNECT other.test:443 HTTP/1.1\r\n\r\n", 35, &answer);
    }
    assert_true(log_count("egress refused") >= 100);
    assert_true(log_count("egress refused") < 250);
    mg_auto(buf) struct mg_buf out = MG_BUF_INIT(65536);
    mg_egress_metrics(egress, &out);
    assert_contains(out.ptr, "mango_egress_refused_total{reason=\"host\"} 300\n");
    assert_contains(out.ptr, "mango_egress_doors 1\n");
}

static void networks_of_the_operator_may_be_reached(void **state)
{
    NEED_NETWORK();
    (void)state;
    mg_egress_close(egress);
    egress = proxy_open("10.1.2.0/24");
    usual_door();
    mg_auto(buf) struct mg_buf in = {0}, meta = {0};
    ask("GET http://private.test/ HTTP/1.1\r\n\r\n", 37, &in);
    assert_int_equal(atomic_load(&reached_forbidden), 1);
    ask("GET http://meta.test/ HTTP/1.1\r\n\r\n", 34, &meta);
    assert_contains(meta.ptr, "403");
}

/* ---- pure ---- */

static void lists_of_networks_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *list, *address;
        mg_rc rc;
        bool ok;
    } cases[] = {
        {"", "10.0.0.1", MG_OK, false},
        {"10.0.0.0/8", "10.255.0.1", MG_OK, true},
        {"10.0.0.0/8, 192.168.1.1", "192.168.1.1", MG_OK, true},
        {"192.168.1.1", "192.168.1.2", MG_OK, false},
        {"10.0.0.0/9", "10.128.0.1", MG_OK, false},
        {"fd00::/8", "fd12::1", MG_OK, true},
        {"fd00::/8", "fe80::1", MG_OK, false},
        {"10.0.0.0/8", "::ffff:10.0.0.1", MG_OK, true},
        {"0.0.0.0/0", "169.254.169.254", MG_OK, true},
        {"", "8.8.8.8", MG_OK, true},
        {"10.0.0.0/33", "", MG_ECONFIG, false},
        {"10.0.0.0/x", "", MG_ECONFIG, false},
        {"example.org", "", MG_ECONFIG, false},
        {"fd00::/129", "", MG_ECONFIG, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mg_egress_networks n;
        struct mg_err err = {0};
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        if (mg_egress_networks_parse(mg_sv_of(cases[i].list), &n, &err) != cases[i].rc)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].rc < 0)
            continue;
        bool four = inet_pton(AF_INET, cases[i].address, &v4.sin_addr) == 1;
        assert_true(four || inet_pton(AF_INET6, cases[i].address, &v6.sin6_addr) == 1);
        if (mg_egress_address_ok(&n, four ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6) != cases[i].ok)
            fail_msg("case %zu", i);
    }
}

static void an_open_or_closed_network_needs_no_list(void **state)
{
    (void)state;
    struct mg_egress_policy *p = NULL;
    struct mg_err err = {0};
    struct mango_network net = {.struct_size = sizeof(net), .mode = MANGO_NET_NONE, .hosts = usual, .n_hosts = 1};
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_OK);
    assert_int_equal(mg_egress_policy_match(p, MG_SV("ok.test"), 443), MG_EGRESS_NO_HOST);
    mg_egress_policy_free(p);
    net.mode = MANGO_NET_OPEN;
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_OK);
    assert_int_equal(mg_egress_policy_match(p, MG_SV("any.test"), 1), MG_EGRESS_ALL);
    mg_egress_policy_free(p);
    net.mode = 7;
    assert_int_equal(mg_egress_policy_new(&net, &p, &err), MG_EINVAL);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    mg_log_set_sink(keep_log, NULL);
    own_network = enter_network();
    if (own_network) {
        static const int ports[] = {80, 443, SSH, ECHO, FLOOD};
        for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++)
            server_start(PUBLIC, ports[i], false);
        server_start(METADATA, 80, true);
        server_start(METADATA, ECHO, true);
        server_start(PRIVATE, 80, true);
        server_start(PRIVATE, ECHO, true);
        server_start("127.0.0.1", 80, true);
        server_start("127.0.0.1", ECHO, true);
    }
    const struct CMUnitTest tests[] = {
        WITH(a_tunnel_carries_bytes_both_ways_to_its_ends),
        WITH(bytes_sent_with_the_request_are_not_lost),
        WITH(a_server_that_speaks_first_is_heard),
        WITH(socks_takes_names_and_checks_them_alike),
        WITH(a_plain_request_goes_on_alone_and_in_its_right_form),
        WITH(a_chunked_body_ends_where_it_says),
        WITH(case_95_each_refusal_has_its_answer_and_its_line),
        WITH(names_outside_of_the_list_are_not_even_resolved),
        WITH(a_tunnel_is_for_the_name_that_was_asked_for),
        WITH(port_443_carries_tls_and_port_80_the_hosts_own_http),
        WITH(a_sandbox_that_says_nothing_is_not_waited_for),
        WITH(a_request_without_end_is_refused),
        WITH(what_the_new_policy_forbids_is_cut),
        WITH(a_closed_door_leaves_nothing),
        WITH(doors_are_where_they_were_after_a_restart),
        WITH(a_credential_tells_the_doors_of_one_address_apart),
        WITH(socks_takes_the_credential_too),
        WITH(bad_doors_are_refused_by_name),
        WITH(plugins_get_a_door_through_the_hosts_service),
        WITH(a_sandbox_has_so_many_connections_at_a_time),
        WITH(a_slow_sandbox_holds_a_flooding_host_back),
        WITH(a_flood_of_refusals_is_not_a_flood_of_lines),
        WITH(networks_of_the_operator_may_be_reached),
        cmocka_unit_test(lists_of_networks_are_checked),
        cmocka_unit_test(an_open_or_closed_network_needs_no_list),
    };
    return RUN(tests);
}
