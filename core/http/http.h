/* The HTTP server's door for the layers above: requests, answers, routes, streams.
 *
 * Concurrency: one libwebsockets thread (libev loop) owns every socket. A request is copied out of libwebsockets and
 * given to the request pool, where its handler runs as a plain sequential function with a PostgreSQL connection of its
 * own; the answer goes back by a queue and lws_cancel_service(), the only lws call that another thread makes. */
#ifndef MG_HTTP_HTTP_H
#define MG_HTTP_HTTP_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"
#include "domain/id.h"

struct mg_pg;
struct mg_sub;

enum mg_http_method { MG_GET, MG_POST, MG_DELETE, MG_HEAD, MG_OPTIONS, MG_METHOD_OTHER };

struct mg_http_pair {
    struct mg_sv name, value; /* decoded */
};

struct mg_http_req {
    struct mg_arena *arena; /* lives as long as the request */
    enum mg_http_method method;
    struct mg_sv path;   /* as sent, undecoded, without the query */
    struct mg_sv seg[8]; /* decoded path segments: seg[0] = "v1" */
    int n_seg;
    struct mg_sv param[4]; /* what the route's {…} matched, in order */
    struct mg_http_pair
        *query; /* in order, repeats kept; `name[]` and `name[gte]` keep their brackets; `beta` is removed */
    int n_query;
    struct mg_sv body; /* whole; empty when none */
    struct mg_sv content_type, authorization, api_key, anthropic_version, anthropic_beta, worker_id, last_event_id,
        origin, user_agent;
    struct mg_sv remote; /* address text, for logs */
    struct mg_id request_id;
    bool http10;
    uint64_t start_ns; /* mg_now_ns() of its arrival: a parked request is handled again, with the same time here */
    void *app;         /* the ctx given to mg_http_start */
    struct mg_pg *pg;  /* the request thread's connection; not open until used; NULL in inline handlers */
    void *principal; /* struct mg_principal, set by the auth hook, arena memory; plain data: a WebSocket keeps a copy */
};

/* A request that waits for news holds no thread and no database connection: its handler ran, found nothing, and left the answer that is due when
 * nothing comes. When the topic is woken before, authentication and handler run again, from the start. */
struct mg_http_park {
    struct mg_id topic; /* an id that mg_http_unpark is called with */
    unsigned ms;        /* 0: not parked */
};

/* What a handler leaves behind. Status 0 means 200. */
struct mg_http_res {
    int status;
    struct mg_buf body; /* JSON unless content_type is set */
    const char *content_type;
    bool should_not_retry; /* x-should-retry: false */
    uint32_t retry_after_s;
    struct mg_http_pair extra[8]; /* further headers, arena memory */
    int n_extra;
    /* A handler that answers with an event stream fills this instead of body (core/http/stream.h). */
    struct mg_stream_spec *stream;
    struct mg_http_park park;
};

/* Runs on a request thread (or on the loop for MG_ROUTE_INLINE, where it must not block). On a negative return err
 * becomes the error object with the status of its rc; err->code goes to details.error_code; MG_ECONFLICT sets
 * x-should-retry: false. */
typedef mg_rc mg_http_handler(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err);

enum {
    MG_ROUTE_PUBLIC = 1,      /* no authentication */
    MG_ROUTE_INLINE = 2,      /* answered on the loop thread */
    MG_ROUTE_STREAM = 4,      /* answers with SSE; HTTP/1.0 and HEAD get a clear refusal */
    MG_ROUTE_WS = 8,          /* WebSocket upgrade only */
    MG_ROUTE_ANY_TYPE = 32,   /* the body need not be application/json */
    MG_ROUTE_ENV_KEY = 16,    /* keys of the environment that the path names may call it too */
    MG_ROUTE_TOKEN = 64,      /* the token of the work item or session that the path names may call it too */
    MG_ROUTE_TOKEN_END = 128, /* that token even when its claim is over: the handler says so */
    MG_ROUTE_ENV_SESSION =
        256, /* environment keys too, while a worker of theirs has the session, where the operator allows it */
    MG_ROUTE_SECRET = 512, /* the body holds secrets: its bytes are overwritten when they are no longer needed */
    MG_ROUTE_TRANSFER =
        1024, /* body and answer are streamed (mg_http_body_next, mg_http_send), on threads for such requests alone */
};

struct mg_route {
    enum mg_http_method method;
    const char *pattern; /* "/v1/sessions/{}/events"; literals win over {} */
    mg_http_handler *handler;
    uint32_t flags;
    size_t body_max;          /* bytes; 0: MG_HTTP_BODY_MAX. Over it: 413 before anything is buffered */
    const char *const *query; /* NULL-terminated names that are allowed; NULL: none. Others are 400 that lists them. */
};

enum {
    MG_HTTP_BODY_MAX = 32 * 1024 * 1024, /* bytes of a JSON body: semantics KE7 */
    MG_HTTP_HEADERS_MAX = 32 * 1024,     /* bytes of a request's headers together: 431 above */
    MG_HTTP_URI_MAX = 8 * 1024,          /* bytes of path and query: 414 above */
    MG_HTTP_HEADER_MS = 10000,           /* to receive the headers */
    MG_HTTP_BODY_IDLE_MS = 30000,        /* without a byte of a body: 408 and close */
    MG_HTTP_IDLE_MS = 120000,            /* a kept connection without a request */
    MG_HTTP_KEEPALIVE_MS = 10000,        /* a ping on every stream: paths that cut at 16 s were seen */
    MG_HTTP_SEND_MS = 30000,             /* a stream whose socket takes nothing for so long is closed */
};

/* Convenience for handlers. */
struct mg_sv mg_http_query(const struct mg_http_req *req, const char *name); /* first value; ptr NULL when absent */
int mg_http_query_all(const struct mg_http_req *req, const char *name, struct mg_sv *out,
                      int max); /* name, name[]; count, may exceed max */

/* ---- of MG_ROUTE_TRANSFER ---- */

/* Waits for the next piece of the body; a view until the next call. Empty: the body is whole. On failure (the client is gone, too slow, sent
 * too much) the handler ends with that result; the answer names the reason. */
mg_rc mg_http_body_next(struct mg_http_req *req, struct mg_sv *ret, struct mg_err *err) MG_MUSTCHECK;
/* Sends status and headers of res; the body follows by mg_http_send, length bytes in all. A handler that fails afterwards, or sends less,
 * closes the connection. For HEAD nothing follows. */
mg_rc mg_http_send_begin(struct mg_http_req *req, struct mg_http_res *res, uint64_t length,
                         struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_http_send(struct mg_http_req *req, const void *p, size_t n, struct mg_err *err) MG_MUSTCHECK;

struct mg_http;
struct mg_hub;
struct mg_stream_spec;

/* Limits that an operator or a test may change; 0 stands for the default beside it. */
struct mg_http_limits {
    unsigned header_ms;       /* MG_HTTP_HEADER_MS */
    unsigned body_idle_ms;    /* MG_HTTP_BODY_IDLE_MS */
    unsigned idle_ms;         /* MG_HTTP_IDLE_MS */
    unsigned keepalive_ms;    /* MG_HTTP_KEEPALIVE_MS */
    unsigned send_ms;         /* MG_HTTP_SEND_MS */
    unsigned pong_ms;         /* MG_WS_PONG_MS */
    unsigned message_ms;      /* MG_WS_MESSAGE_MS */
    unsigned subs_max;        /* MG_WS_SUBS_MAX */
    unsigned key_sockets_max; /* MG_WS_KEY_SOCKETS_MAX */
    size_t bodies_max;        /* MG_HTTP_BODIES_MAX */
};

enum {
    MG_HTTP_HEADERS_COUNT_MAX = 128, /* header lines of a request: 431 above */
    MG_HTTP_FD_MAX =
        65536, /* descriptors of the process: mg_http_start lowers a higher limit, tables are sized by it */
    MG_HTTP_BODIES_MAX = 256 * 1024 * 1024, /* bytes of all bodies that are being received together: 503 above */
    MG_WS_PONG_MS = 20000,                  /* without a pong: closed */
    MG_WS_MESSAGE_MS = 30000,               /* to finish a message that was begun */
    MG_WS_MESSAGE_MAX = 1024 * 1024,        /* bytes of a message, fragments together: 1009 above */
    MG_WS_SUBS_MAX = 1000,                  /* subscriptions of a socket */
    MG_WS_KEY_SOCKETS_MAX = 10000,          /* sockets of a credential */
    MG_WS_CREDIT = 256,                     /* events that a subscription may get before the client allows more */
};

struct mg_http_opts {
    const char *listen;             /* "127.0.0.1:8080", "[::]:8443", port 0 picks one */
    const char *tls_cert, *tls_key; /* PEM files; NULL: plain */
    const struct mg_route *routes;  /* ends with pattern NULL */
    /* Authenticates before a non-public handler; sets req->principal. MG_EAUTH or MG_EDENIED refuse. Runs on the
     * request thread. */
    mg_rc (*auth)(struct mg_http_req *req, const struct mg_route *route, struct mg_err *err);
    struct mg_hub *hub;         /* run on the loop thread */
    const char *conninfo;       /* of the request threads' connections */
    unsigned threads;           /* request threads: 4 to 8 */
    const char *const *origins; /* allowed Origin values of WebSocket upgrades, NULL-terminated; same origin always */
    const char *node;           /* this node's name, for the hello of WebSockets; NULL: none is told */
    /* WebSocket routes (MG_ROUTE_WS, handler NULL) have no handler: a pattern with a {} is one session's stream, one
     * without is the multiplexed stream. Their allowed query names are in the route as usual ("after", "types",
     * "event_deltas", "thread_id", "ticket"). The auth hook runs on the upgrade with the route, and sees ?ticket= in
     * the query. Both hooks run on a request thread; req holds the principal, pg and an arena. NULL: WebSockets are
     * answered with 404.
     *
     * Checks that the principal may read the session and finds where the stream starts: after is an event id, "start",
     * or empty for now. Fills session, after_seq and key_id; the rest of the specification is the caller's. */
    mg_rc (*resolve_stream)(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv after,
                            struct mg_stream_spec *ret, struct mg_err *err);
    /* POST of events. body: the object {"events":[...]}. idempotency_key: empty when none. *ret_ids: the JSON array of
     * the ids that the events got, arena memory. */
    mg_rc (*ws_send)(struct mg_http_req *req, struct mg_sv session_id, struct mg_sv body, struct mg_sv idempotency_key,
                     struct mg_sv *ret_ids, struct mg_err *err);
    struct mg_http_limits limits;
    void *app;
};

/* Starts the loop thread and the pool. Refuses (MG_ECONFIG) when libwebsockets' libev loop is not to be had. */
mg_rc mg_http_start(const struct mg_http_opts *o, struct mg_http **ret, struct mg_err *err) MG_MUSTCHECK;
int mg_http_port(const struct mg_http *h);
/* Stops accepting, tells the streams (SSE comment and end, WebSocket `bye` with spread delays, close 1001), lets
 * running handlers end. */
void mg_http_drain(struct mg_http *h, unsigned grace_ms);
void mg_http_stop(struct mg_http *h); /* joins and frees */

/* Any thread: makes the loop call mg_hub_run soon (mg_hub_opts.wakeup). */
void mg_http_wake(struct mg_http *h);
/* Any thread: runs fn on a request thread with that thread's connection (mg_hub_opts.load). MG_EUNAVAIL when the queue
 * is full. */
mg_rc mg_http_run(struct mg_http *h, void (*fn)(void *arg, struct mg_pg *pg), void *arg) MG_MUSTCHECK;
/* Any thread: there is news for requests that wait for this topic: the one that waits longest is handled again, or all of them. */
void mg_http_unpark(struct mg_http *h, struct mg_sv topic, bool all);
/* Any thread: closes the WebSockets of a credential, also those without a subscription (mg_hub_revoke ends the
 * streams). */
void mg_http_revoke(struct mg_http *h, struct mg_sv key_id);
/* Any thread: appends the server's counters as Prometheus text. */
void mg_http_metrics(struct mg_http *h, struct mg_buf *out);
/* Status and error.type of a result code (the one table). */
int mg_http_status(mg_rc rc);
const char *mg_http_error_type(int status);

#endif
