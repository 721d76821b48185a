#include "egress-net.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "unit/unit.h"

enum { PATIENCE_MS = 20000 /* a test that waits longer for a byte fails */ };

/* ---- bytes ---- */

ssize_t net_read(int fd, char *p, size_t n)
{
    struct pollfd f = {.fd = fd, .events = POLLIN};
    return poll(&f, 1, PATIENCE_MS) > 0 ? recv(fd, p, n, 0) : -1;
}

void net_send(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        p += sent;
        n -= (size_t)sent;
    }
}

void net_say(int fd, const char *text)
{
    net_send(fd, text, strlen(text));
}

/* ---- a network ---- */

static bool own_network;

bool net_exists(void)
{
    return own_network;
}

void net_needed(void)
{
    if (own_network)
        return;
    print_message("skipped: no network namespace can be made here (unshare)\n");
    skip();
}

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
atomic_int net_forbidden;
atomic_long net_flooded;
static pthread_mutex_t seen_lock = PTHREAD_MUTEX_INITIALIZER;
static char seen[64 * 1024]; /* guarded by seen_lock */

const char *net_seen(void)
{
    static char copy[sizeof(seen)];
    pthread_mutex_lock(&seen_lock);
    memcpy(copy, seen, sizeof(copy));
    pthread_mutex_unlock(&seen_lock);
    return copy;
}

static void serve_echo(int fd)
{
    char p[4096];
    for (ssize_t n; (n = net_read(fd, p, sizeof(p))) > 0;)
        net_send(fd, p, (size_t)n);
    net_send(fd, "bye", 3);
}

static void serve_flood(int fd)
{
    static const char piece[16384];
    for (;;) {
        ssize_t n = send(fd, piece, sizeof(piece), MSG_NOSIGNAL);
        if (n <= 0)
            return;
        atomic_fetch_add(&net_flooded, n);
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
        ssize_t n = net_read(fd, p + got, sizeof(p) - 1 - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    pthread_mutex_lock(&seen_lock);
    memcpy(seen, p, got);
    seen[got] = '\0';
    pthread_mutex_unlock(&seen_lock);
    net_send(fd, answer, sizeof(answer) - 1);
}

struct visit {
    int fd, port;
};

static void *serve(void *arg)
{
    mg_autofree struct visit *v = arg;
    if (v->port < 0)
        atomic_fetch_add(&net_forbidden, 1);
    if (v->port == NET_SSH)
        net_send(v->fd, "SSH-2.0-test\r\n", 14);
    if (v->port < 0)
        net_say(v->fd, "forbidden");
    else if (v->port == NET_FLOOD)
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

void net_begin(void)
{
    static const int ports[] = {80, 443, NET_SSH, NET_ECHO, NET_FLOOD};
    static const char *const forbidden[] = {METADATA, PRIVATE, "127.0.0.1"};
    own_network = enter_network();
    if (!own_network)
        return;
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++)
        server_start(PUBLIC, ports[i], false);
    for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
        server_start(forbidden[i], 80, true);
        server_start(forbidden[i], NET_ECHO, true);
    }
}

/* ---- names ---- */

atomic_int net_lookups;

enum mg_resolve_state net_resolve(void *ctx, const char *host, char text[MG_RESOLVE_TEXT_MAX])
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
    atomic_fetch_add(&net_lookups, 1);
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
