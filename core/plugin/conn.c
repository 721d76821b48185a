/* The conn functions: connections that a plugin holds by a number. Concurrency: a call takes a reference under the lock
 * and works without it; the last reference closes. */
#include "base/mem.h"
#include "net/conn.h"
#include "net/upgrade.h"
#include "plugin/net-internal.h"

struct held {
    struct mg_list link;
    mango_conn id;
    const struct mango_host *host; /* whose it is */
    struct mg_conn *conn;
    unsigned refs; /* guarded by the lock; one is the list's */
};

static mango_status fail(const struct mango_call *call, mango_status status, const char *text)
{
    (void)mg_err_set((struct mg_err *)call->err, MG_EINTERNAL, "%s", text);
    return status;
}

static struct mg_err *err_of(const struct mango_call *call)
{
    return (struct mg_err *)call->err;
}

static struct mg_cancel *cancel_of(const struct mango_call *call)
{
    return (struct mg_cancel *)call->token;
}

static void put(struct mg_plugin_net *n, struct held *h)
{
    pthread_mutex_lock(&n->lock);
    bool last = --h->refs == 0;
    n->n_conns -= last;
    pthread_mutex_unlock(&n->lock);
    if (!last)
        return;
    mg_conn_close(h->conn);
    free(h);
}

/* With the lock held. */
static struct held *find(struct mg_plugin_net *n, const struct mango_host *host, mango_conn id)
{
    mg_list_each (it, &n->conns[id % MG_PLUGIN_CONN_LISTS]) {
        struct held *h = mg_container_of(it, struct held, link);
        if (h->id == id && h->host == host)
            return h;
    }
    return NULL;
}

/* With the lock held: any one of this host, taken out of its list. NULL host: of all. */
static struct held *take_any(struct mg_plugin_net *n, const struct mango_host *host)
{
    for (int i = 0; i < MG_PLUGIN_CONN_LISTS; i++) {
        mg_list_each (it, &n->conns[i]) {
            struct held *h = mg_container_of(it, struct held, link);
            if (host && h->host != host)
                continue;
            mg_list_del(&h->link);
            return h;
        }
    }
    return NULL;
}

static struct held *get(struct mg_plugin_net *n, const struct mango_host *host, mango_conn id)
{
    pthread_mutex_lock(&n->lock);
    struct held *h = find(n, host, id);
    if (h)
        h->refs++;
    pthread_mutex_unlock(&n->lock);
    return h;
}

/* Reserves a place; false when there is none left. */
static bool take_place(struct mg_plugin_net *n)
{
    pthread_mutex_lock(&n->lock);
    bool room = n->n_conns < MG_PLUGIN_CONNS_MAX;
    n->n_conns += room;
    pthread_mutex_unlock(&n->lock);
    return room;
}

static void leave_place(struct mg_plugin_net *n)
{
    pthread_mutex_lock(&n->lock);
    n->n_conns--;
    pthread_mutex_unlock(&n->lock);
}

static mango_conn keep(struct mg_plugin_net *n, const struct mango_host *host, struct mg_conn *c)
{
    struct held *h = mg_xcalloc(1, sizeof(*h));
    h->host = host;
    h->conn = c;
    h->refs = 1;
    pthread_mutex_lock(&n->lock);
    h->id = ++n->last_conn;
    mg_list_add_tail(&n->conns[h->id % MG_PLUGIN_CONN_LISTS], &h->link);
    pthread_mutex_unlock(&n->lock);
    return h->id;
}

/* Connects and asks for the stream. *ret_stream: *ret is one. */
static mg_rc open_stream(struct mg_plugin_net *n, struct mg_plugin_exchange *x, const struct mango_call *call,
                         struct mg_conn **ret, bool *ret_stream)
{
    struct mg_err *err = err_of(call);
    int status = 0;
    *ret_stream = true;
    mg_rc rc = mg_conn_open(n->loop, &x->net, call->deadline_ns, cancel_of(call), ret, err);
    if (rc < 0 || x->req->flags & MANGO_HTTP_RAW)
        return rc;
    if (MANGO_REACHES(x->res, flags))
        x->res->flags = MANGO_HTTP_RES_SENT;
    rc = mg_upgrade(*ret, &x->net, call->deadline_ns, cancel_of(call), &status, ret_stream, err);
    x->res->status = status;
    return rc;
}

static mango_status check_open(const struct mango_call *call, const struct mango_http_req *req,
                               const struct mango_http_res *res)
{
    if (!res && !(req->flags & MANGO_HTTP_RAW))
        return fail(call, MANGO_EINVALID, "conn_open needs a res, unless it is MANGO_HTTP_RAW");
    if (req->source)
        return fail(call, MANGO_EINVALID, "conn_open takes its body whole, not from a source");
    return MANGO_OK;
}

mango_status mg_plugin_conn_open(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                 const struct mango_http_req *req, struct mango_http_res *res, mango_conn *ret)
{
    struct mg_plugin_exchange x;
    struct mg_conn *c = NULL;
    bool stream = false;
    *ret = 0;
    mango_status status = mg_plugin_exchange_init(&x, n, call, req, res);
    if (status == MANGO_OK)
        status = check_open(call, req, res);
    if (status < 0)
        return status;
    if (!take_place(n))
        return fail(call, MANGO_EQUOTA, "4096 connections of plugins are open, which is the limit");
    mg_rc rc = open_stream(n, &x, call, &c, &stream);
    if (rc == MG_OK && stream) {
        *ret = keep(n, host, c);
        return MANGO_OK;
    }
    mg_conn_close(c);
    leave_place(n);
    if (x.stopped == MANGO_ETOOBIG)
        return fail(call, MANGO_ETOOBIG, "the answer is larger than the buffer that it was given");
    return mg_plugin_net_status(rc);
}

static mango_status no_such(const struct mango_call *call)
{
    return fail(call, MANGO_EINVALID, "the connection is closed, or was never opened");
}

mango_status mg_plugin_conn_read(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                 mango_conn id, char *p, uint64_t len, uint64_t *ret_n)
{
    struct held *h = get(n, host, id);
    size_t got = 0;
    if (!h)
        return no_such(call);
    mg_rc rc = mg_conn_read(h->conn, p, len, call->deadline_ns, cancel_of(call), &got, err_of(call));
    *ret_n = got;
    put(n, h);
    return mg_plugin_net_status(rc);
}

mango_status mg_plugin_conn_write(struct mg_plugin_net *n, const struct mango_host *host, const struct mango_call *call,
                                  mango_conn id, const char *p, uint64_t len)
{
    struct held *h = get(n, host, id);
    if (!h)
        return no_such(call);
    mg_rc rc = mg_conn_write(h->conn, p, len, call->deadline_ns, cancel_of(call), err_of(call));
    put(n, h);
    return mg_plugin_net_status(rc);
}

mango_status mg_plugin_conn_shutdown(struct mg_plugin_net *n, const struct mango_host *host,
                                     const struct mango_call *call, mango_conn id)
{
    struct held *h = get(n, host, id);
    if (!h)
        return no_such(call);
    mg_rc rc = mg_conn_shutdown(h->conn, err_of(call));
    put(n, h);
    return mg_plugin_net_status(rc);
}

void mg_plugin_conn_close(struct mg_plugin_net *n, const struct mango_host *host, mango_conn id)
{
    pthread_mutex_lock(&n->lock);
    struct held *h = find(n, host, id);
    if (h)
        mg_list_del(&h->link);
    pthread_mutex_unlock(&n->lock);
    if (!h)
        return;
    mg_conn_abort(h->conn); /* whoever waits on it comes back and drops its reference */
    put(n, h);
}

void mg_plugin_net_forget(struct mg_plugin_net *n, const struct mango_host *host)
{
    for (;;) {
        pthread_mutex_lock(&n->lock);
        struct held *h = take_any(n, host);
        pthread_mutex_unlock(&n->lock);
        if (!h)
            return;
        mg_conn_abort(h->conn);
        put(n, h);
    }
}
