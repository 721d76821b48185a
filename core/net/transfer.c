#include "net/transfer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/address.h"

enum {
    UNACKED_MS = 15000, /* a peer that acknowledges nothing for so long is gone: finds connections that a NAT forgot */
    KEEPALIVE_IDLE_S = 30, /* first probe of a silent connection */
    KEEPALIVE_GAP_S = 5,
    POOL_AGE_S = 60,   /* older idle connections are not tried again */
    DNS_KEEP_S = 3600, /* must outlive a transfer: curl repeats on a stale connection without asking us */
};

mg_rc mg_transfer_stop(struct mg_transfer *t, mg_rc rc, const char *fmt, ...)
{
    if (t->stop != MG_OK)
        return t->stop;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(t->text, sizeof(t->text), fmt, ap);
    va_end(ap);
    t->stop = rc;
    return rc;
}

static bool plain(struct mg_sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '\r' || c == '\n' || c == '\0')
            return false;
    }
    return true;
}

static void add_header(struct mg_transfer *t, struct mg_sv name, struct mg_sv value)
{
    if (!mg_sv_is_token(name) || !plain(value)) {
        (void)mg_transfer_stop(t, MG_EINVAL,
                               "header \"%.*s\": a name of letters and digits and a value of one line are needed",
                               (int)(name.len < 40 ? name.len : 40), name.ptr);
        return;
    }
    char *line = mg_xmalloc(name.len + value.len + 4);
    bool empty = value.len == 0; /* curl's spelling of a header without a value */
    (void)snprintf(line, name.len + value.len + 4, "%.*s%s%.*s", MG_SV_ARG(name), empty ? ";" : ": ", MG_SV_ARG(value));
    t->list = curl_slist_append(t->list, line);
    mg_wipe(line, strlen(line)); /* may hold a credential */
    free(line);
}

static char *copy_of(struct mg_sv s)
{
    return s.len ? mg_xstrndup(s.ptr, s.len) : NULL;
}

static void copy_pem(struct mg_transfer *t, struct mg_buf *b, struct mg_sv pem)
{
    *b = MG_BUF_INIT(MG_NET_PEM_MAX);
    if (pem.len > 0 && mg_buf_sv(b, pem) < 0)
        (void)mg_transfer_stop(t, MG_EINVAL, "a certificate or key is over %d bytes", MG_NET_PEM_MAX);
}

/* Where to connect to, and with what. */
static void copy_way(struct mg_transfer *t, const struct mg_net_req *req)
{
    t->unix_socket = copy_of(req->unix_socket);
    t->connect_to = copy_of(req->connect_to);
    t->own_proxy = copy_of(req->proxy);
    copy_pem(t, &t->ca_pem, req->ca_pem);
    copy_pem(t, &t->cert_pem, req->cert_pem);
    copy_pem(t, &t->key_pem, req->key_pem);
    if (!plain(req->unix_socket) || !plain(req->connect_to) || !plain(req->proxy))
        (void)mg_transfer_stop(t, MG_EINVAL, "the address to connect to holds a line break or a NUL");
    if (req->unix_socket.len >= sizeof(((struct sockaddr_un *)0)->sun_path))
        (void)mg_transfer_stop(t, MG_EINVAL, "the path of the socket is over %zu bytes",
                               sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    if (req->on_read && req->body.len > 0)
        (void)mg_transfer_stop(t, MG_EINVAL, "the request has a body and a source of one");
}

struct mg_transfer *mg_transfer_new(const struct mg_net_req *req)
{
    struct mg_transfer *t = mg_xcalloc(1, sizeof(*t));
    mg_list_init(&t->link);
    t->req = *req;
    t->url = mg_xstrndup(req->url.ptr, req->url.len);
    if (!req->body_borrowed)
        t->req.body.ptr = t->body = mg_xstrndup(req->body.ptr, req->body.len);
    bool has_body = req->body.len > 0 || req->on_read;
    struct mg_sv method = req->method.len > 0 ? req->method : has_body ? MG_SV("POST") : MG_SV("GET");
    t->method = mg_xstrndup(method.ptr, method.len);
    copy_way(t, req);
    if (!mg_sv_is_token(method))
        (void)mg_transfer_stop(t, MG_EINVAL, "the request's method is not a word");
    if (!plain(req->url))
        (void)mg_transfer_stop(t, MG_EINVAL, "the request's URL holds a line break or a NUL");
    if (req->n_headers > MG_NET_HEADERS_MAX)
        (void)mg_transfer_stop(t, MG_EINVAL, "more than %d request headers", MG_NET_HEADERS_MAX);
    for (int i = 0; i < req->n_headers && t->stop == MG_OK; i++)
        add_header(t, req->headers[i].name, req->headers[i].value);
    t->list = curl_slist_append(t->list, "Expect:"); /* no second of waiting before a large body */
    if (!has_body)
        t->list = curl_slist_append(t->list, "Content-Type:"); /* curl would call the nothing a form */
    t->req.headers = NULL;
    t->req.connect_ms = req->connect_ms ? req->connect_ms : MG_NET_CONNECT_MS;
    t->req.idle_ms = req->idle_ms ? req->idle_ms : MG_NET_IDLE_MS;
    t->req.total_ms = req->total_ms ? req->total_ms : MG_NET_TOTAL_MS;
    t->req.max_bytes = req->max_bytes ? req->max_bytes : MG_NET_BODY_MAX;
    t->submitted_ns = t->active_ns = mg_now_ns();
    t->total_ns = t->submitted_ns + t->req.total_ms * 1000000ull;
    t->connect_ns = t->submitted_ns + t->req.connect_ms * 1000000ull;
    return t;
}

static void wipe_buf(struct mg_buf *b)
{
    if (b->ptr)
        mg_wipe(b->ptr, b->cap);
    mg_buf_done(b);
}

static void wipe_list(struct curl_slist *list)
{
    for (struct curl_slist *s = list; s; s = s->next)
        mg_wipe(s->data, strlen(s->data));
    curl_slist_free_all(list);
}

void mg_transfer_free(struct mg_transfer *t)
{
    if (t->easy)
        curl_easy_cleanup(t->easy);
    wipe_list(t->list);
    curl_slist_free_all(t->resolve);
    curl_slist_free_all(t->connect_list);
    wipe_buf(&t->ca_pem);
    wipe_buf(&t->cert_pem);
    wipe_buf(&t->key_pem);
    free(t->unix_socket);
    free(t->connect_to);
    free(t->own_proxy);
    free(t->lookup);
    free(t->method);
    free(t->url);
    if (t->body)
        mg_wipe(t->body, t->req.body.len);
    free(t->body);
    free(t);
}

static void curlu_cleanup(CURLU **u)
{
    curl_url_cleanup(*u);
}

static void curl_str_cleanup(char **s)
{
    curl_free(*s);
}

#define auto_curlu __attribute__((cleanup(curlu_cleanup)))
#define auto_curl_str __attribute__((cleanup(curl_str_cleanup)))

/* Notes the name to resolve, unless host is a literal. */
static void need_lookup(struct mg_transfer *t, const char *host, int port)
{
    bool literal;
    (void)mg_address_text_is_public(host, &literal);
    if (literal)
        return;
    t->lookup = mg_xstrdup(host);
    t->lookup_port = port;
}

static mg_rc check_proxy(struct mg_transfer *t, const char *proxy)
{
    enum { CURL_PROXY_PORT = 1080, CURL_TLS_PROXY_PORT = 443 };
    auto_curlu CURLU *u = curl_url();
    auto_curl_str char *host = NULL;
    auto_curl_str char *port = NULL;
    auto_curl_str char *scheme = NULL;
    mg_autofree char *whole = strstr(proxy, "://") ? mg_xstrdup(proxy) : NULL;
    if (!whole && asprintf(&whole, "http://%s", proxy) < 0)
        whole = mg_xstrdup("");
    if (curl_url_set(u, CURLUPART_URL, whole, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
        return mg_transfer_stop(t, MG_EINVAL, "the configured proxy is not a URL like http://proxy.example:3128");
    bool given = curl_url_get(u, CURLUPART_PORT, &port, 0) == CURLUE_OK;
    int usual = strcmp(scheme, "https") == 0 ? CURL_TLS_PROXY_PORT : CURL_PROXY_PORT;
    need_lookup(t, host, given ? (int)strtol(port, NULL, 10) : usual);
    return MG_OK;
}

/* "host:port" with the brackets of an IPv6 literal kept. */
static mg_rc check_connect_to(struct mg_transfer *t)
{
    int64_t port = 0;
    const char *colon = strrchr(t->connect_to, ':');
    if (!colon || colon == t->connect_to || !mg_sv_to_i64(mg_sv_of(colon + 1), &port) || port < 1 || port > 65535)
        return mg_transfer_stop(t, MG_EINVAL, "the address to connect to is not one like host.example:443");
    mg_autofree char *host = mg_xstrndup(t->connect_to, (size_t)(colon - t->connect_to));
    need_lookup(t, host, (int)port);
    return MG_OK;
}

static void choose_proxy(struct mg_transfer *t, const struct mg_net_opts *o)
{
    t->proxy = t->own_proxy ? t->own_proxy : o->proxy;
    if (t->unix_socket || (t->own_proxy && strcmp(t->own_proxy, "none") == 0))
        t->proxy = NULL;
}

static CURLUcode get_host(CURLU *u, char **host)
{
#ifdef CURLU_PUNYCODE
    CURLUcode rc = curl_url_get(u, CURLUPART_HOST, host, CURLU_PUNYCODE);
    if (rc != CURLUE_LACKS_IDN)
        return rc;
#endif
    return curl_url_get(u, CURLUPART_HOST, host, 0);
}

mg_rc mg_transfer_check(struct mg_transfer *t, const struct mg_net_opts *o)
{
    auto_curlu CURLU *u = curl_url();
    auto_curl_str char *host = NULL;
    auto_curl_str char *port = NULL;
    auto_curl_str char *scheme = NULL;
    auto_curl_str char *user = NULL;
    if (t->stop != MG_OK)
        return t->stop;
    if (!strstr(t->url, "://") || curl_url_set(u, CURLUPART_URL, t->url, 0) != CURLUE_OK ||
        get_host(u, &host) != CURLUE_OK || curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
        return mg_transfer_stop(t, MG_EINVAL, "the URL is not one like https://host.example/path");
    if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)
        return mg_transfer_stop(t, MG_EINVAL, "the URL's scheme must be http or https");
    if (curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK)
        return mg_transfer_stop(t, MG_EINVAL, "the URL must not hold a user or a password; send a header instead");
    bool literal, is_public = mg_address_text_is_public(host, &literal);
    if (o->public_only && literal && !is_public)
        return mg_transfer_stop(t, MG_EDENIED, "the address %.64s is not a public one", host);
    if (o->public_only && (t->unix_socket || t->connect_to || t->own_proxy))
        return mg_transfer_stop(t, MG_EDENIED, "this loop takes no address beside the URL's");
    choose_proxy(t, o);
    if (t->unix_socket)
        return MG_OK;
    if (t->proxy)
        return check_proxy(t, t->proxy);
    t->guarded = o->public_only;
    if (t->connect_to)
        return check_connect_to(t);
    need_lookup(t, host, (int)strtol(port, NULL, 10));
    return MG_OK;
}

mg_rc mg_net_check_url(struct mg_sv url, const struct mg_net_opts *o, struct mg_err *err)
{
    struct mg_transfer *t = mg_transfer_new(&(struct mg_net_req){.url = url});
    mg_rc rc = mg_transfer_check(t, o);
    if (rc < 0)
        (void)mg_err_set(err, rc, "%s", t->text);
    mg_transfer_free(t);
    return rc;
}

static size_t take_head(char *p, size_t size, size_t count, void *ctx)
{
    struct mg_transfer *t = ctx;
    size_t n = size * count;
    struct mg_sv line = mg_sv_trim(mg_sv_n(p, n)), name = line;
    t->any_byte = true;
    t->active_ns = mg_now_ns();
    t->head_bytes += n;
    if (t->head_bytes > MG_NET_HEAD_MAX) {
        (void)mg_transfer_stop(t, MG_ETOOBIG, "the answer's headers are over %d bytes", MG_NET_HEAD_MAX);
        return 0;
    }
    if (mg_sv_starts(line, "HTTP/")) {
        long status = 0;
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        t->status = (int)status;
        return n;
    }
    size_t colon = mg_sv_find(line, ':');
    name.len = colon;
    /* Trailers of an answer that its reader has left are nobody's any more. */
    if (t->status >= 200 && colon < line.len && t->req.on_header && !t->draining)
        t->req.on_header(t->req.ctx, t->status, name, mg_sv_trim(mg_sv_from(line, colon + 1)));
    return n;
}

static size_t take_body(char *p, size_t size, size_t count, void *ctx)
{
    struct mg_transfer *t = ctx;
    size_t n = size * count;
    enum mg_net_go go = MG_NET_GO;
    t->any_byte = true;
    if (t->bytes + n > t->req.max_bytes) {
        (void)mg_transfer_stop(t, MG_ETOOBIG, "the answer is over %zu bytes", t->req.max_bytes);
        return 0;
    }
    if (t->draining) {
        t->bytes += n;
        return n;
    }
    if (t->req.on_body && n > 0)
        go = t->req.on_body(t->req.ctx, p, n);
    if (go == MG_NET_PAUSE) {
        t->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    t->bytes += n;
    t->draining = go == MG_NET_DRAIN;
    if (go != MG_NET_GO_IDLE)
        t->active_ns = mg_now_ns();
    if (go != MG_NET_STOP)
        return n;
    (void)mg_transfer_stop(t, MG_ECANCELED, "the request was stopped by its reader");
    return 0;
}

static size_t give_body(char *p, size_t size, size_t count, void *ctx)
{
    struct mg_transfer *t = ctx;
    if (t->told)
        return CURL_READFUNC_ABORT; /* its owner is gone */
    int64_t n = t->req.on_read(t->req.ctx, p, size * count);
    t->active_ns = mg_now_ns();
    if (n == MG_NET_READ_PAUSE) {
        t->paused = true;
        return CURL_READFUNC_PAUSE;
    }
    if (n < 0) {
        (void)mg_transfer_stop(t, MG_ECANCELED, "the request was stopped by the source of its body");
        return CURL_READFUNC_ABORT;
    }
    t->read_any = true;
    return (size_t)n;
}

/* The last line of defence against a name that leads to a private address: whatever curl is about to connect to. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct mg_transfer *t = ctx;
    (void)purpose;
    if (t->guarded && !mg_address_is_public(&a->addr)) {
        (void)mg_transfer_stop(t, MG_EDENIED, "the name leads to an address that is not public");
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static int set_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    (void)ctx;
    (void)purpose;
    const int unacked = UNACKED_MS, on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked, sizeof(unacked));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return CURL_SOCKOPT_OK;
}

static void set_method(struct mg_transfer *t)
{
    CURL *e = t->easy;
    if (t->req.on_read) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_READFUNCTION, give_body);
        curl_easy_setopt(e, CURLOPT_READDATA, t);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->req.body_len);
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, t->method);
    } else if (strcmp(t->method, "HEAD") == 0) {
        curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    } else if (t->req.body.len > 0 || strcmp(t->method, "POST") == 0) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, t->req.body.len ? t->req.body.ptr : "");
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->req.body.len);
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, t->method);
    } else {
        curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, t->method);
    }
}

/* socks5 would have curl look the host's name up itself; the variants with a letter leave it to the proxy. */
static void set_proxy(CURL *e, const char *proxy)
{
    const char *rest = proxy ? strstr(proxy, "://") : NULL;
    mg_autofree char *remote = NULL;
    curl_easy_setopt(e, CURLOPT_NOPROXY, "");
    if (rest && strncmp(proxy, "socks5://", 9) == 0 && asprintf(&remote, "socks5h%s", rest) > 0)
        proxy = remote;
    else if (rest && strncmp(proxy, "socks4://", 9) == 0 && asprintf(&remote, "socks4a%s", rest) > 0)
        proxy = remote;
    curl_easy_setopt(e, CURLOPT_PROXY, proxy ? proxy : "");
    curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

static void set_limits(struct mg_transfer *t)
{
    CURL *e = t->easy;
    uint64_t now = mg_now_ns();
    uint64_t left_ms = t->connect_ns > now ? (t->connect_ns - now) / 1000000u + 1 : 1;
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)left_ms);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_IDLE_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_GAP_S);
    curl_easy_setopt(e, CURLOPT_MAXAGE_CONN, (long)POOL_AGE_S);
    curl_easy_setopt(e, CURLOPT_DNS_CACHE_TIMEOUT, (long)DNS_KEEP_S);
}

static mg_rc set_addresses(struct mg_transfer *t, const char *addresses)
{
    mg_autofree char *entry = NULL;
    if (!addresses)
        return MG_OK;
    if (asprintf(&entry, "+%s:%d:%s", t->lookup, t->lookup_port, addresses) < 0)
        return mg_transfer_stop(t, MG_EIO, "out of memory");
    curl_slist_free_all(t->resolve);
    t->resolve = curl_slist_append(NULL, entry);
    curl_easy_setopt(t->easy, CURLOPT_RESOLVE, t->resolve);
    return MG_OK;
}

static void set_blob(CURL *e, CURLoption option, const struct mg_buf *b)
{
    struct curl_blob blob = {.data = b->ptr, .len = b->len, .flags = CURL_BLOB_COPY};
    if (b->len > 0)
        curl_easy_setopt(e, option, &blob);
}

static void set_tls(struct mg_transfer *t, const struct mg_net_opts *o)
{
    CURL *e = t->easy;
    if (t->ca_pem.len > 0) {
        curl_easy_setopt(e, CURLOPT_CAINFO, NULL);
        curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
        set_blob(e, CURLOPT_CAINFO_BLOB, &t->ca_pem);
    } else if (o->ca_file) {
        curl_easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
    }
    set_blob(e, CURLOPT_SSLCERT_BLOB, &t->cert_pem);
    set_blob(e, CURLOPT_SSLKEY_BLOB, &t->key_pem);
    if (t->proxy && o->ca_file)
        curl_easy_setopt(e, CURLOPT_PROXY_CAINFO, o->ca_file);
    if (t->req.insecure) {
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

/* curl's own spelling: for whatever host and port. */
static mg_rc set_connect_to(struct mg_transfer *t)
{
    mg_autofree char *entry = NULL;
    if (!t->connect_to)
        return MG_OK;
    if (asprintf(&entry, "::%s", t->connect_to) < 0)
        return mg_transfer_stop(t, MG_EIO, "out of memory");
    curl_slist_free_all(t->connect_list);
    t->connect_list = curl_slist_append(NULL, entry);
    curl_easy_setopt(t->easy, CURLOPT_CONNECT_TO, t->connect_list);
    return MG_OK;
}

mg_rc mg_transfer_connect_options(struct mg_transfer *t, const struct mg_net_opts *o, const char *addresses)
{
    CURL *e = t->easy = curl_easy_init();
    if (!e)
        return mg_transfer_stop(t, MG_EIO, "libcurl gave no handle");
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_URL, t->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "mango");
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->curl_text);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, t);
    curl_easy_setopt(e, CURLOPT_SOCKOPTFUNCTION, set_socket);
    curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, t->unix_socket);
    set_tls(t, o);
    set_proxy(e, t->proxy);
    set_limits(t);
    mg_rc rc = set_connect_to(t);
    return rc < 0 ? rc : set_addresses(t, addresses);
}

mg_rc mg_transfer_prepare(struct mg_transfer *t, const struct mg_net_opts *o, const char *addresses)
{
    mg_rc rc = mg_transfer_connect_options(t, o, addresses);
    CURL *e = t->easy;
    if (rc < 0)
        return rc;
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, t->list);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take_head);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    if (t->req.fresh || t->req.on_read)
        curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
    set_method(t);
    return MG_OK;
}

bool mg_transfer_resend(struct mg_transfer *t, CURLcode code)
{
    long connects = 1;
    bool broke = code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING;
    curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
    if (!broke || t->any_byte || t->read_any || t->req.fresh || t->resent || connects > 0 || t->stop != MG_OK)
        return false;
    t->resent = true;
    t->connect_ns = mg_now_ns() + t->req.connect_ms * 1000000ull;
    set_limits(t);
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
    return true;
}

static mg_rc explain(struct mg_transfer *t, CURLcode code)
{
    const char *why = t->curl_text[0] ? t->curl_text : curl_easy_strerror(code);
    if (code == CURLE_OK)
        return MG_OK;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return mg_transfer_stop(t, MG_ETIMEOUT, "no connection within %u ms", t->req.connect_ms);
    if (code == CURLE_PARTIAL_FILE || (t->any_byte && (code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING)))
        return mg_transfer_stop(t, MG_EIO, "the connection ended in the middle of the answer, after %llu bytes of it",
                                (unsigned long long)t->bytes);
    if (code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR)
        return mg_transfer_stop(t, MG_EIO, "the peer closed the connection without an answer");
    return mg_transfer_stop(t, MG_EIO, "%.300s", why);
}

void mg_transfer_tell(struct mg_transfer *t, CURLcode code)
{
    long connects = 1, written = 0;
    if (t->told)
        return;
    t->told = true;
    mg_rc rc = t->draining ? MG_OK : t->stop != MG_OK ? t->stop : explain(t, code);
    if (t->easy) {
        curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
        curl_easy_getinfo(t->easy, CURLINFO_REQUEST_SIZE, &written);
    }
    struct mg_net_result r = {
        .rc = rc,
        .status = t->status >= 200 ? t->status : 0,
        .bytes = t->bytes,
        .reused = t->easy && connects == 0,
        .resent = t->resent,
        .sent = written > 0 || t->any_byte || t->resent,
        .text = rc == MG_OK ? "" : t->text,
    };
    if (t->req.on_done)
        t->req.on_done(t->req.ctx, &r);
}
