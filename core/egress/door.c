#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "egress/internal.h"

enum { BACKLOG = 128 };

/* ---- listeners ---- */

static struct mg_egress_listener *listener_new(struct mg_egress *e, int fd, struct mg_egress_door *door)
{
    struct mg_egress_listener *l = mg_xcalloc(1, sizeof(*l));
    l->handle = (struct mg_egress_handle){.kind = MG_EGRESS_LISTENER, .fd = fd, .listener = l};
    l->door = door;
    l->refs = 1;
    mg_list_add_tail(&e->listeners, &l->link);
    mg_egress_watch(e, &l->handle, EPOLLIN);
    return l;
}

void mg_egress_listener_drop(struct mg_egress *e, struct mg_egress_listener *l)
{
    if (!l || --l->refs > 0)
        return;
    mg_list_del(&l->link);
    mg_egress_watch(e, &l->handle, 0);
    close(l->handle.fd);
    l->handle.fd = -1;
    l->dead = true;
    mg_list_add_tail(&e->dead_listeners, &l->link);
}

static bool address_parse(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[64];
    int64_t port = 0;
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (n == 0 || n >= sizeof(host) || !mg_sv_to_i64(mg_sv_of(colon + 1), &port) || port < 0 || port > 65535)
        return false;
    bool six = text[0] == '[' && text[n - 1] == ']';
    (void)snprintf(host, sizeof(host), "%.*s", (int)(six ? n - 2 : n), six ? text + 1 : text);
    v4.sin_port = v6.sin6_port = htons((uint16_t)port);
    if (six && inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 && !IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
        memcpy(ret, &v6, sizeof(v6));
        *ret_len = sizeof(v6);
        return true;
    }
    if (six || inet_pton(AF_INET, host, &v4.sin_addr) != 1 || v4.sin_addr.s_addr == htonl(INADDR_ANY))
        return false;
    memcpy(ret, &v4, sizeof(v4));
    *ret_len = sizeof(v4);
    return true;
}

static int port_of(int fd)
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    socklen_t len = sizeof(sa);
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return 0;
    memcpy(&v4, &sa, sizeof(v4));
    memcpy(&v6, &sa, sizeof(v6));
    return ntohs(sa.ss_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
}

/* The listener of an address; doors share it. */
static mg_rc tcp_listener(struct mg_egress *e, const char *address, struct mg_egress_listener **ret, struct mg_err *err)
{
    struct sockaddr_storage sa;
    socklen_t len = 0;
    const int on = 1;
    mg_list_each (it, &e->listeners) {
        struct mg_egress_listener *l = mg_container_of(it, struct mg_egress_listener, link);
        if (l->door || strcmp(l->address, address) != 0)
            continue;
        l->refs++;
        *ret = l;
        return MG_OK;
    }
    if (!address_parse(address, &sa, &len))
        return mg_err_set(err, MG_EINVAL,
                          "\"%.100s\" is no address to listen on: one of this host and a port are needed, such as "
                          "172.30.0.1:3128, and no wildcard",
                          address);
    mg_autofd int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&sa, len) < 0 || listen(fd, BACKLOG) < 0)
        return mg_err_errno(err, errno, "listen on %.100s for the filtering proxy", address);
    int port = port_of(fd);
    *ret = listener_new(e, mg_steal_fd(&fd), NULL);
    (void)snprintf((*ret)->address, sizeof((*ret)->address), "%s", address);
    (*ret)->port = port;
    return MG_OK;
}

/* ---- doors ---- */

static bool label_ok(struct mg_sv label)
{
    for (size_t i = 0; i < label.len; i++) {
        char c = label.ptr[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return false;
    }
    return label.len > 0 && label.len < MG_EGRESS_LABEL_MAX;
}

struct mg_egress_door *mg_egress_door_find(struct mg_egress *e, const char *label, const char *token)
{
    struct mg_egress_door *d = mg_map_get(e->doors, mg_sv_of(label));
    return d && d->tcp_listener && mg_secret_eq(mg_sv_of(token), mg_sv_of(d->token)) ? d : NULL;
}

static struct mg_egress_door *door_get(struct mg_egress *e, const struct mg_egress_door_opts *o, struct mg_err *err)
{
    struct mg_egress_door *d = mg_map_get(e->doors, o->label);
    if (d)
        return d;
    if (mg_map_len(e->doors) >= MG_EGRESS_DOORS_MAX) {
        (void)mg_err_set(err, MG_ERATE, "%d sandboxes use the filtering proxy, which is the limit",
                         MG_EGRESS_DOORS_MAX);
        return NULL;
    }
    d = mg_xcalloc(1, sizeof(*d));
    memcpy(d->label, o->label.ptr, o->label.len);
    d->session = mg_xstrdup("");
    mg_list_init(&d->conns);
    (void)mg_map_put(e->doors, o->label, d);
    return d;
}

static void door_free(struct mg_egress *e, struct mg_egress_door *d)
{
    mg_list_each (it, &d->conns)
        mg_egress_conn_kill(mg_container_of(it, struct mg_egress_conn, link));
    mg_egress_listener_drop(e, d->unix_listener);
    mg_egress_listener_drop(e, d->tcp_listener);
    (void)mg_map_del(e->doors, mg_sv_of(d->label));
    mg_egress_policy_free(d->policy);
    mg_wipe(d->token, sizeof(d->token));
    free(d->session);
    free(d);
}

/* Connections that the new policy would not let through. */
static void cut_forbidden(struct mg_egress_door *d)
{
    mg_list_each (it, &d->conns) {
        struct mg_egress_conn *c = mg_container_of(it, struct mg_egress_conn, link);
        bool asked = c->state == MG_EGRESS_LOOKING || c->state == MG_EGRESS_DIALING || c->state == MG_EGRESS_RELAYING;
        enum mg_egress_match m = mg_egress_policy_match(d->policy, mg_sv_of(c->target.host), c->target.port);
        if (asked && (m == MG_EGRESS_NO_HOST || m == MG_EGRESS_NO_PORT))
            mg_egress_conn_kill(c);
    }
}

static mg_rc open_unix(struct mg_egress *e, struct mg_egress_door *d, struct mg_buf *ret_dir, struct mg_err *err)
{
    int fd = -1;
    if (d->unix_listener)
        return mg_buf_printf(ret_dir, "%s/egress/%s", e->state_dir, d->label) < 0
                   ? mg_err_set(err, MG_ETOOBIG, "the state folder's path is longer than the plugin's buffer")
                   : MG_OK;
    mg_rc rc = mg_egress_socket_make(e, d->label, &fd, ret_dir, err);
    if (rc == MG_OK)
        d->unix_listener = listener_new(e, fd, d);
    return rc;
}

static mg_rc open_tcp(struct mg_egress *e, struct mg_egress_door *d, struct mg_sv listen, struct mg_buf *ret_url,
                      struct mg_err *err)
{
    struct mg_egress_listener *l = NULL;
    mg_autofree char *address = mg_xstrndup(listen.ptr, listen.len);
    if (listen.len >= sizeof(((struct mg_egress_listener *)0)->address))
        return mg_err_set(err, MG_EINVAL, "the address to listen on is too long");
    mg_rc rc = mg_egress_token(e, d->label, d->token, err);
    if (rc == MG_OK)
        rc = tcp_listener(e, address, &l, err);
    if (rc < 0 || !l)
        return rc;
    mg_egress_listener_drop(e, d->tcp_listener);
    d->tcp_listener = l;
    mg_buf_printf(ret_url, "http://%s:%s@%.*s:%d", d->label, d->token, (int)(strrchr(address, ':') - address), address,
                  l->port);
    return mg_buf_ok(ret_url) ? MG_OK
                              : mg_err_set(err, MG_ETOOBIG, "the proxy's URL is longer than the plugin's buffer");
}

static mg_rc open_locked(struct mg_egress *e, const struct mg_egress_door_opts *o, struct mg_egress_policy *policy,
                         struct mg_buf *ret_dir, struct mg_buf *ret_url, struct mg_err *err)
{
    struct mg_egress_door *d = door_get(e, o, err);
    if (!d) {
        mg_egress_policy_free(policy);
        return MG_ERATE;
    }
    mg_egress_policy_free(d->policy);
    d->policy = policy;
    cut_forbidden(d);
    if (o->session.len > 0) {
        free(d->session);
        d->session = mg_xstrndup(o->session.ptr, o->session.len);
    }
    mg_rc rc = o->listen.len > 0 ? open_tcp(e, d, o->listen, ret_url, err) : open_unix(e, d, ret_dir, err);
    if (rc < 0 && !d->unix_listener && !d->tcp_listener)
        door_free(e, d);
    return rc;
}

static void wake(struct mg_egress *e)
{
    const uint64_t one = 1;
    (void)!write(e->wake.fd, &one, sizeof(one)); /* the thread buries what was killed */
}

mg_rc mg_egress_door_open(struct mg_egress *e, const struct mg_egress_door_opts *o, struct mg_buf *ret_dir,
                          struct mg_buf *ret_url, struct mg_err *err)
{
    struct mg_egress_policy *policy = NULL;
    if (!label_ok(o->label))
        return mg_err_set(err, MG_EINVAL, "a door of the filtering proxy needs a label of hexadecimal digits");
    mg_rc rc = mg_egress_policy_new(o->network, &policy, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&e->lock);
    rc = open_locked(e, o, policy, ret_dir, ret_url, err);
    pthread_mutex_unlock(&e->lock);
    wake(e);
    return rc;
}

void mg_egress_door_close(struct mg_egress *e, struct mg_sv label)
{
    char name[MG_EGRESS_LABEL_MAX];
    if (!label_ok(label))
        return;
    (void)snprintf(name, sizeof(name), "%.*s", MG_SV_ARG(label));
    pthread_mutex_lock(&e->lock);
    struct mg_egress_door *d = mg_map_get(e->doors, label);
    if (d) {
        mg_egress_door_farewell(d);
        door_free(e, d);
    }
    mg_egress_socket_remove(e, name);
    pthread_mutex_unlock(&e->lock);
    wake(e);
}
