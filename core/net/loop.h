/* Outgoing HTTP: one thread owns a libcurl multi handle and its connections; requests come from any thread.
 *
 * Concurrency: every callback runs on the loop's thread and must be short; it may start and cancel requests, but not
 * close the loop or make a blocking call. Names are resolved off this thread (resolve.h), curl itself never looks one
 * up.
 *
 * HTTP/1.1 only, redirects are never followed, environment variables for proxies are not read. A request on a pooled
 * connection that dies before any byte of the answer is repeated at once, once, on a fresh one (field case 46). */
#ifndef MG_NET_LOOP_H
#define MG_NET_LOOP_H

#include "base/buf.h"
#include "base/cancel.h"
#include "base/err.h"
#include "base/list.h"
#include "base/sv.h"

enum {
    MG_NET_RUNNING_MAX = 4096, /* transfers at once on one loop; more wait in line */
    MG_NET_CONNECT_MS = 15000, /* name lookup and connection, TLS included */
    MG_NET_IDLE_MS = 120000,   /* without a byte of the answer */
    MG_NET_TOTAL_MS = 600000,
    MG_NET_DRAIN_MS = 1000,
    MG_NET_WHOLE_MS = 20,
    MG_NET_BODY_MAX = 16 * 1024 * 1024, /* bytes of an answer, where the request names no limit */
    MG_NET_HEAD_MAX = 64 * 1024,        /* bytes of an answer's headers */
    MG_NET_HEADERS_MAX = 64,            /* headers of a request */
    MG_NET_TEXT_MAX = 512,              /* bytes of a failure's text, with the NUL */
    MG_NET_PEM_MAX = 1024 * 1024,       /* bytes of a certificate, a key, a bundle in memory */
};
#define MG_NET_FOREVER UINT32_MAX /* milliseconds: as good as no limit */

struct mg_net;

struct mg_net_opts {
    const char *name;    /* of the thread, at most 15 bytes */
    const char *ca_file; /* NULL: the system's */
    const char *proxy;   /* http://, https://, socks4://, socks5:// (names go to the proxy); NULL: none */
    /* Addresses that are not public are refused, whatever name leads to them; with a proxy only literals. */
    bool public_only;
    unsigned max_running; /* 0: MG_NET_RUNNING_MAX */
};

struct mg_net_header {
    struct mg_sv name, value;
};

/* What on_body says about the bytes it got. */
enum mg_net_go {
    MG_NET_STOP, /* enough: the request ends with MG_ECANCELED */
    MG_NET_GO,
    MG_NET_GO_IDLE, /* go on, but they do not count against the idle time */
    /* The answer is whole for its reader. What still comes is dropped: the connection can be used again when the end
     * comes within MG_NET_DRAIN_MS. on_done (MG_OK) comes with the end, but not later than MG_NET_WHOLE_MS. */
    MG_NET_DRAIN,
    /* Not taken: the same bytes come again after mg_net_resume, and the peer is held back until then. No idle time
     * runs meanwhile. */
    MG_NET_PAUSE,
};

/* What on_read says instead of a number of bytes. */
enum {
    MG_NET_READ_PAUSE = -1, /* nothing yet: asked again after mg_net_resume */
    MG_NET_READ_ABORT = -2, /* the request ends with MG_ECANCELED */
};

struct mg_net_result {
    /* MG_OK: a whole answer came, whatever its status. MG_EINVAL: the request is wrong. MG_EDENIED: an address that
     * is not allowed. MG_ETIMEOUT, MG_ECANCELED, MG_ETOOBIG. MG_EIO: everything else on the way. */
    mg_rc rc;
    int status;       /* of the final answer; 0: none came */
    uint64_t bytes;   /* of the body */
    bool reused;      /* an existing connection served it */
    bool resent;      /* the first connection was stale */
    bool sent;        /* bytes of the request went out: the peer may have acted on it, whatever rc says */
    const char *text; /* what happened; no credential in it; for the call */
};

/* All of it is copied but cancel, and body where that is said. */
struct mg_net_req {
    struct mg_sv method; /* empty: GET, or POST with a body */
    struct mg_sv url;    /* http or https, without user and password */
    const struct mg_net_header *headers;
    int n_headers;
    struct mg_sv body;
    bool body_borrowed;       /* body is not copied: it stays until on_done, and on_body never says MG_NET_DRAIN */
    struct mg_sv unix_socket; /* path to connect to instead of the URL's host; no proxy is used then. Empty: none */
    struct mg_sv connect_to;  /* "host:port" to connect to instead; TLS and Host keep the URL's. Empty: none */
    struct mg_sv proxy;       /* empty: the loop's; "none"; or a URL as in mg_net_opts */
    struct mg_sv ca_pem, cert_pem, key_pem; /* instead of the loop's authorities; of a client certificate */
    bool insecure;                          /* the peer's certificate is not looked at */
    uint32_t connect_ms, idle_ms, total_ms; /* 0: the defaults above; MG_NET_FOREVER */
    size_t max_bytes;                       /* 0: MG_NET_BODY_MAX */
    bool fresh; /* on a new connection: for what must never be sent twice, as a stale one is found out by sending */
    /* Fired before the request goes out: it ends with MG_ECANCELED, and nothing is sent. Later, whoever fires it calls
     * mg_net_cancel. Borrowed until on_done; may be NULL. */
    struct mg_cancel *cancel;
    /* The final answer's headers, each before the body. May be NULL. */
    void (*on_header)(void *ctx, int status, struct mg_sv name, struct mg_sv value);
    enum mg_net_go (*on_body)(void *ctx, const char *p, size_t n); /* may be NULL */
    /* A body in pieces instead of body: fills at most n bytes, returns their number, 0 at the end, or MG_NET_READ_*.
     * Such a request is never repeated. NULL: none. body_len: its length, -1: unknown (chunked). */
    int64_t (*on_read)(void *ctx, char *p, size_t n);
    int64_t body_len;
    void (*on_done)(void *ctx, const struct mg_net_result *r); /* exactly once, also after cancel */
    void *ctx;
};

mg_rc mg_net_open(const struct mg_net_opts *o, struct mg_net **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_net_close(struct mg_net *n); /* cancels what runs, joins; NULL is fine */
/* Any thread. Never 0, never used again. on_done may come before this returns. */
uint64_t mg_net_start(struct mg_net *n, const struct mg_net_req *req);
void mg_net_cancel(struct mg_net *n, uint64_t id); /* any thread; a number that is gone is fine */

void mg_net_resume(struct mg_net *n, uint64_t id); /* after MG_NET_PAUSE, MG_NET_READ_PAUSE; the same */
/* fn(l) on the loop's thread, when it has done what is there to do now: from a request's callback alone. mg_list_del of
 * its link takes it back. For whoever wakes another thread: once for a batch, not once for each piece. */
struct mg_net_later {
    struct mg_list link;
    void (*fn)(struct mg_net_later *l);
};
void mg_net_later(struct mg_net *n, struct mg_net_later *l);

/* For connections beside the loop (conn.h). */
const struct mg_net_opts *mg_net_opts(const struct mg_net *n);
struct mg_resolver *mg_net_resolver(const struct mg_net *n);

/* Whether requests to url can be made at all: its form, the proxy's, and with public_only a literal address. No
 * lookup. */
mg_rc mg_net_check_url(struct mg_sv url, const struct mg_net_opts *o, struct mg_err *err) MG_MUSTCHECK;

/* A whole answer of a blocking call. */
struct mg_net_answer {
    int status;
    struct mg_buf headers; /* "name: value\n" lines, names in lower case */
    struct mg_buf body;
};
static inline void mg_net_answer_cleanup(struct mg_net_answer *a)
{
    mg_buf_done(&a->headers);
    mg_buf_done(&a->body);
}

/* Waits for the answer, the deadline (monotonic; 0: total_ms alone) or the cancel (may be NULL). Not on a loop's
 * thread. req's callbacks: on_body may be set and then gets the body on the loop's thread instead of ret; the others
 * are not used. */
mg_rc mg_net_call(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                  struct mg_net_answer *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
