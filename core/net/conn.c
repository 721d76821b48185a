/* Concurrency: lock guards the curl handle, whose calls do not block; the waiting is done without it. early belongs to
 * the reader. */
#include "net/conn.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/resolve.h"
#include "net/transfer.h"

enum { WAIT_MAX_MS = 60000 /* of one poll; the deadline is looked at behind it */ };

struct mg_conn {
    pthread_mutex_t lock;
    struct mg_transfer *transfer;
    CURLM *multi; /* libcurl finds the connection of a handle by it */
    curl_socket_t fd;
    int abort_fd;
    atomic_bool aborted, reading, writing;
    struct mg_buf early;
};

/* Whether the caller has to give up; MG_OK: not yet. */
static mg_rc lost_patience(uint64_t deadline_ns, const struct mg_cancel *cancel, struct mg_err *err)
{
    if (mg_cancel_fired(cancel))
        return mg_err_set(err, MG_ECANCELED, "the request was cancelled");
    if (deadline_ns && mg_now_ns() >= deadline_ns)
        return mg_err_set(err, MG_ETIMEOUT, "the deadline passed");
    return MG_OK;
}

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = mg_now_ns();
    if (!deadline_ns)
        return WAIT_MAX_MS;
    uint64_t ms = deadline_ns > now ? (deadline_ns - now) / 1000000u + 1 : 0;
    return ms < WAIT_MAX_MS ? (int)ms : WAIT_MAX_MS;
}

/* ---- connecting ---- */

static mg_rc transfer_error(struct mg_transfer *t, mg_rc rc, struct mg_err *err)
{
    return mg_err_set(err, rc, "%s", t->text);
}

static mg_rc find_address(struct mg_net *n, struct mg_transfer *t, uint64_t until_ns, struct mg_cancel *cancel,
                          char text[MG_RESOLVE_TEXT_MAX], struct mg_err *err)
{
    switch (mg_resolver_wait(mg_net_resolver(n), t->lookup, until_ns, cancel, text)) {
    case MG_RESOLVE_FOUND:
        return MG_OK;
    case MG_RESOLVE_FAILED:
        return mg_err_set(err, MG_EIO, "%s", text);
    case MG_RESOLVE_WAIT:
        break;
    }
    if (mg_cancel_fired(cancel))
        return mg_err_set(err, MG_ECANCELED, "the request was cancelled");
    return mg_err_set(err, MG_ETIMEOUT, "looking the name %.200s up took too long", t->lookup);
}

/* MG_OK: connected. */
static mg_rc connect_result(struct mg_transfer *t, CURLcode code, struct mg_err *err)
{
    if (t->stop != MG_OK)
        return transfer_error(t, t->stop, err);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return mg_err_set(err, MG_ETIMEOUT, "no connection within %u ms", t->req.connect_ms);
    if (code != CURLE_OK)
        return mg_err_set(err, MG_EIO, "%.300s", t->curl_text[0] ? t->curl_text : curl_easy_strerror(code));
    return MG_OK;
}

static mg_rc run_connect(struct mg_conn *c, uint64_t until_ns, struct mg_cancel *cancel, struct mg_err *err)
{
    struct curl_waitfd extra = {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = CURL_WAIT_POLLIN};
    unsigned n_extra = extra.fd >= 0;
    if (curl_multi_add_handle(c->multi, c->transfer->easy) != CURLM_OK)
        return mg_err_set(err, MG_EIO, "libcurl takes no connection");
    for (;;) {
        int running, left;
        curl_multi_perform(c->multi, &running);
        const CURLMsg *msg = curl_multi_info_read(c->multi, &left);
        if (msg && msg->msg == CURLMSG_DONE)
            return connect_result(c->transfer, msg->data.result, err);
        mg_rc rc = lost_patience(until_ns, cancel, err);
        if (rc < 0)
            return rc;
        (void)curl_multi_poll(c->multi, n_extra ? &extra : NULL, n_extra, left_ms(until_ns), NULL);
    }
}

static mg_rc connect_to(struct mg_conn *c, struct mg_net *n, uint64_t deadline_ns, struct mg_cancel *cancel,
                        struct mg_err *err)
{
    struct mg_transfer *t = c->transfer;
    char addresses[MG_RESOLVE_TEXT_MAX];
    uint64_t until_ns = deadline_ns && deadline_ns < t->connect_ns ? deadline_ns : t->connect_ns;
    mg_rc rc = mg_transfer_check(t, mg_net_opts(n));
    if (rc < 0)
        return transfer_error(t, rc, err);
    if (t->lookup)
        rc = find_address(n, t, until_ns, cancel, addresses, err);
    if (rc < 0)
        return rc;
    rc = mg_transfer_connect_options(t, mg_net_opts(n), t->lookup ? addresses : NULL);
    if (rc < 0)
        return transfer_error(t, rc, err);
    curl_easy_setopt(t->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(t->easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
    rc = run_connect(c, until_ns, cancel, err);
    if (rc < 0)
        return rc;
    if (curl_easy_getinfo(t->easy, CURLINFO_ACTIVESOCKET, &c->fd) != CURLE_OK || c->fd == CURL_SOCKET_BAD)
        return mg_err_set(err, MG_EIO, "the connection was closed at once");
    return MG_OK;
}

mg_rc mg_conn_open(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                   struct mg_conn **ret, struct mg_err *err)
{
    struct mg_conn *c = mg_xcalloc(1, sizeof(*c));
    pthread_mutex_init(&c->lock, NULL);
    c->early = MG_BUF_INIT(MG_NET_HEAD_MAX);
    c->fd = CURL_SOCKET_BAD;
    c->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->multi = curl_multi_init();
    c->transfer = mg_transfer_new(req);
    mg_rc rc = c->abort_fd < 0 || !c->multi ? mg_err_errno(err, errno, "make a connection")
                                            : connect_to(c, n, deadline_ns, cancel, err);
    if (rc < 0) {
        mg_conn_close(c);
        return rc;
    }
    *ret = c;
    return MG_OK;
}

void mg_conn_close(struct mg_conn *c)
{
    if (!c)
        return;
    if (c->transfer->easy && c->multi)
        curl_multi_remove_handle(c->multi, c->transfer->easy); /* closes the connection */
    mg_transfer_free(c->transfer);
    if (c->multi)
        curl_multi_cleanup(c->multi);
    if (c->abort_fd >= 0)
        close(c->abort_fd);
    mg_buf_done(&c->early);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void mg_conn_abort(struct mg_conn *c)
{
    const uint64_t one = 1;
    atomic_store(&c->aborted, true);
    (void)!write(c->abort_fd, &one, sizeof(one)); /* the first write to an eventfd cannot block */
}

/* ---- bytes ---- */

/* Until the socket is ready, or there is a reason to give up. */
static mg_rc wait_socket(struct mg_conn *c, short events, uint64_t deadline_ns, struct mg_cancel *cancel,
                         struct mg_err *err)
{
    struct pollfd fds[3] = {{.fd = c->fd, .events = events},
                            {.fd = c->abort_fd, .events = POLLIN},
                            {.fd = cancel ? mg_cancel_fd(cancel) : -1, .events = POLLIN}};
    mg_rc rc = lost_patience(deadline_ns, cancel, err);
    if (rc < 0)
        return rc;
    (void)poll(fds, 3, left_ms(deadline_ns));
    if (atomic_load(&c->aborted))
        return mg_err_set(err, MG_ECANCELED, "the connection was closed by its owner");
    return lost_patience(deadline_ns, cancel, err);
}

static mg_rc broken(const char *doing, CURLcode code, struct mg_err *err)
{
    return mg_err_set(err, MG_EIO, "the connection broke while %s: %s", doing, curl_easy_strerror(code));
}

static mg_rc read_some(struct mg_conn *c, char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel,
                       size_t *ret_n, struct mg_err *err)
{
    if (c->early.len > 0) {
        *ret_n = n < c->early.len ? n : c->early.len;
        memcpy(p, c->early.ptr, *ret_n);
        mg_buf_consume(&c->early, *ret_n);
        return MG_OK;
    }
    for (;;) {
        if (atomic_load(&c->aborted))
            return mg_err_set(err, MG_ECANCELED, "the connection was closed by its owner");
        pthread_mutex_lock(&c->lock);
        CURLcode code = curl_easy_recv(c->transfer->easy, p, n, ret_n);
        pthread_mutex_unlock(&c->lock);
        if (code == CURLE_OK)
            return MG_OK;
        if (code != CURLE_AGAIN)
            return broken("reading", code, err);
        mg_rc rc = wait_socket(c, POLLIN, deadline_ns, cancel, err);
        if (rc < 0)
            return rc;
    }
}

mg_rc mg_conn_read(struct mg_conn *c, char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel, size_t *ret_n,
                   struct mg_err *err)
{
    if (n == 0)
        return mg_err_set(err, MG_EINVAL, "a read of no bytes");
    if (atomic_exchange(&c->reading, true))
        return mg_err_set(err, MG_EINVAL, "the connection has a reader already");
    mg_rc rc = read_some(c, p, n, deadline_ns, cancel, ret_n, err);
    atomic_store(&c->reading, false);
    return rc;
}

static mg_rc write_all(struct mg_conn *c, const char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel,
                       struct mg_err *err)
{
    while (n > 0) {
        size_t sent = 0;
        if (atomic_load(&c->aborted))
            return mg_err_set(err, MG_ECANCELED, "the connection was closed by its owner");
        pthread_mutex_lock(&c->lock);
        CURLcode code = curl_easy_send(c->transfer->easy, p, n, &sent);
        pthread_mutex_unlock(&c->lock);
        if (code != CURLE_OK && code != CURLE_AGAIN)
            return broken("writing", code, err);
        p += sent;
        n -= sent;
        mg_rc rc = code == CURLE_AGAIN ? wait_socket(c, POLLOUT, deadline_ns, cancel, err) : MG_OK;
        if (rc < 0)
            return rc;
    }
    return MG_OK;
}

mg_rc mg_conn_write(struct mg_conn *c, const char *p, size_t n, uint64_t deadline_ns, struct mg_cancel *cancel,
                    struct mg_err *err)
{
    if (atomic_exchange(&c->writing, true))
        return mg_err_set(err, MG_EINVAL, "the connection has a writer already");
    mg_rc rc = write_all(c, p, n, deadline_ns, cancel, err);
    atomic_store(&c->writing, false);
    return rc;
}

mg_rc mg_conn_shutdown(struct mg_conn *c, struct mg_err *err)
{
    if (shutdown(c->fd, SHUT_WR) < 0)
        return mg_err_errno(err, errno, "end the writing side of a connection");
    return MG_OK;
}

void mg_conn_unread(struct mg_conn *c, const char *p, size_t n)
{
    (void)mg_buf_append(&c->early, p, n);
}
