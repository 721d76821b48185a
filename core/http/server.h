/* What the files of this folder share: the server, a connection, a task of the request pool. Nothing outside includes
 * it.
 *
 * Concurrency: everything belongs to the loop thread, except what struct mg_http marks as shared and a task between
 * its submission and its done(). */
#ifndef MG_HTTP_SERVER_H
#define MG_HTTP_SERVER_H

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/pool.h"
#include "http/body.h"
#include "http/feed.h"
#include "http/head.h"
#include "http/http.h"
#include "http/metrics.h"
#include "http/router.h"
#include "http/wheel.h"

struct mg_map;
struct mg_conn;
struct mg_call;
struct mg_sse;
struct mg_ws;

enum {
    MG_HTTP_WRITE = 64 * 1024,        /* bytes of one write of a plain answer */
    MG_HTTP_STREAM_WRITE = 16 * 1024, /* bytes that a stream gathers for one write */
    MG_HTTP_LINGER_MS = 2000,         /* to let the peer read an answer that was sent before its request ended */
    MG_HTTP_CLOSE_MS = 10000,         /* for a WebSocket's last bytes to leave */
    MG_HTTP_READ = 64 * 1024,         /* bytes of one read */
};

/* Work for a request thread. run is called there, then done on the loop thread (or on the stopping thread once the
 * loop has ended). */
struct mg_task {
    struct mg_task *next;
    struct mg_http *http;
    void (*run)(struct mg_task *t, struct mg_pg *pg);
    void (*done)(struct mg_task *t);
};

struct mg_http {
    struct mg_http_opts opts;
    struct mg_http_limits limits; /* defaults filled in */
    struct mg_router *router;
    struct mg_pool *pool;
    struct mg_pool *transfers; /* requests of MG_ROUTE_TRANSFER */
    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct lws *listener; /* NULL once closed */
    pthread_t thread;     /* the loop, set by itself; what mg_http_on_loop compares with */
    pthread_t joinable;   /* the same, of the starting thread */
    int port, max_fd;
    bool tls;
    uint64_t start_ns;
    struct mg_wheel wheel;
    lws_sorted_usec_list_t tick;
    struct mg_list conns;           /* all connections */
    struct mg_list ready;           /* connections with something to pump */
    struct mg_parking *parking;     /* requests that wait for news (park.c) */
    struct mg_map *key_sockets;     /* credential -> struct of its WebSocket count (ws.c) */
    size_t bodies;                  /* bytes of bodies being received */
    struct mg_buf scratch;          /* one write of a stream is put together here */
    struct mg_head head;            /* of the request that is being parsed */
    struct mg_http_metrics metrics; /* shared, atomic */
    struct mg_conn *adopting;
    int spare_fd; /* given up for a moment when descriptors run out, so that a connection can be refused */
    bool drained; /* drain was begun on the loop */
    bool stopped; /* the loop ends */

    /* shared */
    atomic_bool woken, draining, stopping;
    pthread_mutex_t lock;   /* of the following */
    pthread_cond_t changed; /* n_conns; CLOCK_MONOTONIC */
    struct mg_task *finished, **finished_tail;
    struct mg_revoked *revoked; /* credentials whose WebSockets are to be closed */
    struct mg_unpark *unparks, **unparks_tail;
    struct mg_list rung; /* calls whose handler has something for the loop */
    bool ended;          /* the context is gone: nobody calls into it */
    unsigned n_conns;
};

/* loop.c */
extern const struct lws_protocols mg_loop_protocols[];
void *mg_loop_thread(void *http);
void mg_loop_arm(struct mg_http *h);              /* starts the wheel's clock; before the thread starts */
uint64_t mg_http_age_ms(const struct mg_http *h); /* since its start: the wheel's clock */
void mg_loop_signal(struct mg_http *h);           /* any thread */
void mg_loop_finish_tasks(struct mg_http *h);     /* calls done() of what request threads have finished */
void mg_loop_free_revoked(struct mg_http *h);

/* Aborts when another thread than the loop's is here: libwebsockets has no locks. */
void mg_http_on_loop(const struct mg_http *h);
/* Any thread. On failure nothing was taken over. transfer: on the threads of transfers. */
mg_rc mg_task_submit(struct mg_http *h, struct mg_task *t, bool transfer) MG_MUSTCHECK;

enum mg_conn_state {
    MG_CONN_HEAD, /* waits for a request or is inside its head */
    MG_CONN_BODY, /* inside a request's body */
    MG_CONN_WAIT, /* a request thread has the request */
    MG_CONN_SEND, /* an answer goes out */
    MG_CONN_SSE,
    MG_CONN_WS,
    MG_CONN_LINGER, /* closed for writing: what still comes is dropped */
};

struct mg_conn {
    struct mg_list link;  /* http.conns */
    struct mg_list ready; /* http.ready, or linked to itself */
    struct mg_timer timer;
    struct mg_http *http;
    struct lws *wsi;
    struct mg_call *call; /* the request in progress */
    struct mg_sse *sse;
    struct mg_ws *ws;
    struct mg_buf in;  /* received and not yet used */
    struct mg_buf out; /* an answer; out_at bytes of it are sent */
    size_t out_at;
    size_t scanned; /* of mg_head_parse */
    size_t linger_bytes;
    struct mg_body body;
    uint8_t state;    /* enum mg_conn_state */
    bool rx_off;      /* no reads: the peer's bytes wait in its kernel */
    bool in_callback; /* libwebsockets is inside a callback of this connection */
    bool dead;        /* to be closed when the callback returns */
    bool close_after; /* out is the last answer */
    bool processing;  /* the parser's loop runs */
    bool used;        /* a request has been answered */
    bool expects;     /* the client waits for 100 Continue, which goes out once the handler wants the body */
    bool begun;       /* bytes of a request are here; the header timer runs */
    bool tls_settled;
    bool secret;     /* the request in progress is one of MG_ROUTE_SECRET */
    uint16_t family; /* of addr */
    uint16_t peer_port;
    uint8_t addr[16];
};

/* conn.c */
struct mg_conn *mg_conn_new(struct mg_http *h);
void mg_conn_free(struct mg_conn *c); /* from the close callback only */
void mg_conn_start(struct mg_conn *c);
int mg_conn_rx(struct mg_conn *c, char *p, size_t n); /* p is overwritten when it held secrets */
int mg_conn_writable(struct mg_conn *c);
void mg_conn_timer(struct mg_conn *c);
void mg_conn_pump(struct mg_conn *c);
void mg_conn_drain(struct mg_conn *c);
/* Sends c->out, then goes on with the next request or lingers. */
void mg_conn_answer(struct mg_conn *c);
/* The answer of c->call comes out of its feed: begins, or goes on with it. */
void mg_conn_feed(struct mg_conn *c);
/* The handler of c->call wants the body, or more of it. */
void mg_conn_body_wanted(struct mg_conn *c);
/* Closes for writing once everything is sent, drops what comes, then closes. */
void mg_conn_linger(struct mg_conn *c);
void mg_conn_kill(struct mg_conn *c);
void mg_conn_arm(struct mg_conn *c, unsigned ms);
void mg_conn_ready(struct mg_conn *c); /* pump it soon; callable from hub callbacks */

/* io.c: the only calls into libwebsockets for a connection. */
bool mg_io_send(struct mg_conn *c, const void *p, size_t n); /* false: the connection is gone, kill it */
bool mg_io_choked(const struct mg_conn *c);
/* True when the peer took bytes since the last call with the same *left, INT_MAX at first: a slow reader is not a stuck one,
 * although its socket may refuse writes for minutes. */
bool mg_io_taken(const struct mg_conn *c, int *left);
void mg_io_want_write(struct mg_conn *c);
void mg_io_rx(struct mg_conn *c, bool on);
void mg_io_shutdown(struct mg_conn *c);
void mg_io_close(struct mg_conn *c); /* not inside a callback of c */
void mg_io_small_buffer(struct mg_conn *c);
void mg_io_unacked_limit(struct mg_conn *c,
                         unsigned ms); /* bytes that the peer does not acknowledge for so long end the connection */

/* call.c */
struct mg_call {
    struct mg_task task;
    struct mg_http *http;
    struct mg_conn *conn; /* NULL once the connection is gone; loop thread only */
    const struct mg_route *route;
    struct mg_http_req req;
    struct mg_http_res res;
    struct mg_buf body;             /* what req.body views */
    struct mg_buf out;              /* the answer's bytes */
    const char *ws_accept;          /* of an upgrade: what the handshake answers with; arena memory */
    struct mg_stream_spec *ws_spec; /* of one session's WebSocket */
    uint64_t start_ns;
    uint64_t body_max;
    size_t counted; /* of http.bodies */
    int status;
    struct mg_list parked; /* in its topic's line, or linked to itself */
    uint64_t news_seen;    /* of the parking, when its handler began: what came since is not missed */
    bool is_parked;
    bool running;             /* a thread has it: nothing of it but the feeds may be touched. Loop thread only */
    struct mg_feed *in;       /* the body, of a transfer that has one */
    struct mg_buf taken;      /* of in: what the handler looks at */
    struct mg_feed *out_feed; /* the answer, once it has begun; http.lock until then */
    uint64_t left;            /* of its length */
    bool gone;                /* no connection waits for the answer; http.lock */
    struct mg_list rung;      /* http.rung, or linked to itself; http.lock */
    bool keep_alive;
    bool drop_body; /* the answer is known already: the body is read and dropped */
    bool upgrade;
    char allow[MG_ALLOW_MAX];
    struct mg_err err;
};
/* From http.head. Never fails: a refused request is a call whose err is set. */
struct mg_call *mg_call_new(struct mg_conn *c);
void mg_call_free(struct mg_call *call);
/* Runs the handler: inline, or on the pool. The connection waits; mg_call_done comes back. */
void mg_call_start(struct mg_call *call);
/* An answer without a request: the head could not be parsed, or it took too long. */
void mg_call_refuse(struct mg_conn *c, int status, const struct mg_err *err);

/* Hands a call with a feed over before its body is here. */
void mg_call_feed(struct mg_call *call);
/* Any thread: the loop looks at the call's feeds soon. */
void mg_call_ring(struct mg_call *call);
void mg_call_rung(struct mg_http *h); /* the loop looks */
/* The handler's answer has begun. */
void mg_call_begin(struct mg_call *call, struct mg_feed *out);
/* The connection is gone. */
void mg_call_orphan(struct mg_call *call);

/* Handles a call that was parked from the start again. */
void mg_call_again(struct mg_call *call);
/* The answer goes out, or the connection becomes what it asks for. */
void mg_call_deliver(struct mg_call *call);

/* park.c */
struct mg_parking *mg_parking_new(void);
void mg_parking_free(struct mg_parking *p);
bool mg_park(struct mg_call *call);       /* false: there was news since its handler began */
void mg_park_leave(struct mg_call *call); /* its connection is gone, or its time is over */
void mg_park_begin(struct mg_call *call); /* before its handler runs */
void mg_park_news(struct mg_http *h);     /* what mg_http_unpark left */
void mg_park_free_news(struct mg_http *h);

/* sse.c */
void mg_sse_start(struct mg_conn *c, struct mg_call *call);
void mg_sse_pump(struct mg_conn *c);
void mg_sse_timer(struct mg_conn *c);
void mg_sse_drain(struct mg_conn *c);
void mg_sse_free(struct mg_sse *s);

/* ws.c */
bool mg_ws_check(struct mg_call *call, const struct mg_head *head); /* false: call->err, call->status */
mg_rc mg_ws_run(struct mg_call *call);                              /* request thread, after the authentication */
bool mg_ws_admit(struct mg_call *call); /* false: call->err; the credential has too many sockets */
void mg_ws_start(struct mg_conn *c, struct mg_call *call);
void mg_ws_rx(struct mg_conn *c, const char *p, size_t n);
void mg_ws_pump(struct mg_conn *c);
void mg_ws_timer(struct mg_conn *c);
void mg_ws_drain(struct mg_conn *c);
void mg_ws_revoke(struct mg_conn *c, const struct mg_id *key);
void mg_ws_free(struct mg_ws *ws);

#endif
