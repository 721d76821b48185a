#include "support/pg-proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "store/pg.h"

enum { PAIRS_MAX = 64, CHUNK = 65536 };

struct pair {
    int client, server;
    bool server_spoke;
};

struct pgproxy {
    char dir[64], upstream[108];
    char *conninfo;
    int listener, wake;
    pthread_t thread;
    atomic_int mode;
    atomic_uint round_trips, connections;
    atomic_bool stop;
    struct pair pairs[PAIRS_MAX];
    int n;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* The socket's folder and number, as the server itself knows them. */
static void find_upstream(const char *conninfo, char out[108])
{
    static const struct mg_stmt ask = {"proxy_ask",
                                       "SELECT current_setting('unix_socket_directories'), current_setting('port')"};
    struct mg_pg *pg = mg_pg_new(conninfo);
    struct mg_res *r = NULL;
    struct mg_err err = {0};
    if (mg_pg_exec(pg, &ask, NULL, 0, &r, &err) < 0) {
        fprintf(stderr, "pg-proxy: %s\n", err.text);
        exit(1);
    }
    snprintf(out, 108, "%.80s/.s.PGSQL.%.10s", mg_res_sv(r, 0, 0).ptr, mg_res_sv(r, 0, 1).ptr);
    mg_res_free(r);
    mg_pg_free(pg);
}

static int connect_upstream(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void drop_pair(struct pgproxy *p, int i)
{
    close(p->pairs[i].client);
    close(p->pairs[i].server);
    p->pairs[i] = p->pairs[--p->n];
}

/* False when the pair is over. */
static bool move_bytes(struct pgproxy *p, struct pair *pair, bool from_client)
{
    char chunk[CHUNK];
    int from = from_client ? pair->client : pair->server, to = from_client ? pair->server : pair->client;
    ssize_t n = recv(from, chunk, sizeof(chunk), 0);
    if (n <= 0)
        return false;
    if (from_client && pair->server_spoke)
        atomic_fetch_add(&p->round_trips, 1);
    pair->server_spoke = !from_client;
    if (!from_client && atomic_load(&p->mode) == PGPROXY_CUT)
        return false;
    for (ssize_t at = 0; at < n;) {
        ssize_t k = send(to, chunk + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        at += k;
    }
    return true;
}

static void take_client(struct pgproxy *p)
{
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = client >= 0 && p->n < PAIRS_MAX ? connect_upstream(p->upstream) : -1;
    if (server < 0) {
        if (client >= 0)
            close(client);
        return;
    }
    atomic_fetch_add(&p->connections, 1);
    p->pairs[p->n++] = (struct pair){.client = client, .server = server, .server_spoke = true};
}

static void *proxy_main(void *arg)
{
    struct pgproxy *p = arg;
    while (!atomic_load(&p->stop)) {
        struct pollfd fds[2 + 2 * PAIRS_MAX] = {{.fd = p->wake, .events = POLLIN}};
        bool frozen = atomic_load(&p->mode) == PGPROXY_FREEZE;
        int n_pairs = p->n;
        nfds_t n = 1;
        if (!frozen) {
            fds[n++] = (struct pollfd){.fd = p->listener, .events = POLLIN};
            for (int i = 0; i < n_pairs; i++) {
                fds[n++] = (struct pollfd){.fd = p->pairs[i].client, .events = POLLIN};
                fds[n++] = (struct pollfd){.fd = p->pairs[i].server, .events = POLLIN};
            }
        }
        if (poll(fds, n, -1) < 0)
            continue;
        eventfd_t seen;
        if (fds[0].revents && eventfd_read(p->wake, &seen) == 0)
            continue; /* the mode has changed */
        for (int i = n_pairs - 1; i >= 0 && !frozen; i--) {
            if ((fds[2 + 2 * i].revents && !move_bytes(p, &p->pairs[i], true)) ||
                (fds[3 + 2 * i].revents && !move_bytes(p, &p->pairs[i], false)))
                drop_pair(p, i);
        }
        if (!frozen && fds[1].revents)
            take_client(p);
    }
    return NULL;
}

struct pgproxy *pgproxy_new(const char *conninfo)
{
    struct pgproxy *p = mg_xcalloc(1, sizeof(*p));
    find_upstream(conninfo, p->upstream);
    snprintf(p->dir, sizeof(p->dir), "/tmp/mango-proxy.XXXXXX");
    if (!mkdtemp(p->dir))
        die("mkdtemp");
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/.s.PGSQL.5432", p->dir);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->listener < 0 || p->wake < 0 || bind(p->listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
        listen(p->listener, 64) < 0)
        die("pg-proxy");
    /* in both forms the last of a name counts; pgtest's URIs have a query already */
    char glue = strstr(conninfo, "://") ? '&' : ' ';
    if (asprintf(&p->conninfo, "%s%chost=%s%cport=5432", conninfo, glue, p->dir, glue) < 0 ||
        pthread_create(&p->thread, NULL, proxy_main, p) != 0)
        die("pg-proxy");
    return p;
}

const char *pgproxy_conninfo(const struct pgproxy *p)
{
    return p->conninfo;
}

void pgproxy_mode(struct pgproxy *p, enum pgproxy_mode mode)
{
    atomic_store(&p->mode, (int)mode);
    eventfd_write(p->wake, 1);
}

unsigned pgproxy_round_trips(struct pgproxy *p)
{
    return atomic_load(&p->round_trips);
}

unsigned pgproxy_connections(struct pgproxy *p)
{
    return atomic_load(&p->connections);
}

void pgproxy_free(struct pgproxy *p)
{
    atomic_store(&p->stop, true);
    eventfd_write(p->wake, 1);
    pthread_join(p->thread, NULL);
    while (p->n > 0)
        drop_pair(p, 0);
    close(p->listener);
    close(p->wake);
    char path[108];
    snprintf(path, sizeof(path), "%s/.s.PGSQL.5432", p->dir);
    unlink(path);
    rmdir(p->dir);
    free(p->conninfo);
    free(p);
}
