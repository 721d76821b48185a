/* The only calls into libwebsockets for a connection: writes, read control, closing. Its library has no locks, so each
 * door checks that it is the loop's thread. */
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "http/server.h"

enum { STREAM_SNDBUF = 64 * 1024 /* bytes of kernel memory that a stream's slow reader may hold */ };

void mg_http_on_loop(const struct mg_http *h)
{
    if (pthread_equal(h->thread, pthread_self()))
        return;
    mg_log(MG_ERROR, "a libwebsockets call from another thread than the loop's: this is a bug of mango");
    abort();
}

bool mg_io_send(struct mg_conn *c, const void *p, size_t n)
{
    mg_http_on_loop(c->http);
    /* A raw write takes all: what the socket refuses is copied into the library and goes out first when there is room
     * again. */
    return lws_write(c->wsi, (unsigned char *)(uintptr_t)p, n, LWS_WRITE_RAW) >= 0;
}

bool mg_io_choked(const struct mg_conn *c)
{
    mg_http_on_loop(c->http);
    return lws_partial_buffered(c->wsi) != 0;
}

bool mg_io_taken(const struct mg_conn *c, int *left)
{
    int now = 0, before = *left;
    mg_http_on_loop(c->http);
    if (ioctl(lws_get_socket_fd(c->wsi), SIOCOUTQ, &now) < 0)
        return false;
    *left = now;
    return now < before;
}

void mg_io_want_write(struct mg_conn *c)
{
    mg_http_on_loop(c->http);
    (void)lws_callback_on_writable(c->wsi);
}

void mg_io_rx(struct mg_conn *c, bool on)
{
    mg_http_on_loop(c->http);
    if (c->rx_off == !on)
        return;
    c->rx_off = !on;
    (void)lws_rx_flow_control(c->wsi, on);
}

void mg_io_shutdown(struct mg_conn *c)
{
    mg_http_on_loop(c->http);
    (void)shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
}

void mg_io_close(struct mg_conn *c)
{
    mg_http_on_loop(c->http);
    lws_set_timeout(c->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_SYNC);
}

void mg_io_small_buffer(struct mg_conn *c)
{
    int bytes = STREAM_SNDBUF;
    mg_http_on_loop(c->http);
    (void)setsockopt(lws_get_socket_fd(c->wsi), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

void mg_io_unacked_limit(struct mg_conn *c, unsigned ms)
{
    mg_http_on_loop(c->http);
    (void)setsockopt(lws_get_socket_fd(c->wsi), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}
