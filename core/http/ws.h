/* A WebSocket connection; shared by ws.c (the connection) and ws-stream.c (what is said on it). Loop thread only. */
#ifndef MG_HTTP_WS_H
#define MG_HTTP_WS_H

#include "base/list.h"
#include "domain/principal.h"
#include "events/hub.h"
#include "http/server.h"
#include "http/ws-frame.h"

struct mg_ws_sub {
    struct mg_list link, turn;
    struct mg_ws *ws;
    struct mg_sub *sub; /* NULL while its start is being looked up */
    int64_t number;     /* the client's */
    int64_t credit;
    char *types; /* comma-separated or NULL */
    struct mg_id thread;
    bool live_said, cancelled;
};

struct mg_ws_job;

struct mg_ws {
    struct mg_conn *conn;
    bool mux;     /* mango.v1: many sessions */
    bool closing; /* the close frame is queued: nothing more is said or heard */
    bool job_runs;
    bool revoked;      /* its credential: closed when the last subscription has ended */
    uint8_t malformed; /* commands; ten end the socket */
    unsigned n_subs, n_jobs;
    struct mg_frame in;
    struct mg_list subs;  /* mg_ws_sub.link */
    struct mg_list turns; /* mg_ws_sub.turn: those that may have something, served in turn */
    struct mg_list jobs;  /* mg_ws_job.link: the first runs, the others wait, so that sends keep their order */
    size_t job_bytes;
    struct mg_buf control; /* finished frames that go out before events: answers, pongs, close */
    struct mg_event *big;  /* an event whose frame goes out in pieces; nothing may come between */
    size_t big_at;
    uint64_t ping_ns;     /* the first ping without a pong; 0: none */
    uint64_t wrote_ns;    /* the last ping or write */
    uint64_t begun_ns;    /* since when a message is unfinished; 0: none is */
    uint64_t stuck_ns;    /* since when the peer takes nothing; 0: it does */
    int stuck_left;       /* of mg_io_taken */
    struct mg_id session; /* of the one-session form */
    struct mg_principal who;
    struct mg_sv remote; /* malloc memory */
};

/* ws.c */
void mg_ws_say(struct mg_ws *ws, struct mg_sv json); /* queues a text frame of ours and asks for a turn */
void mg_ws_close(struct mg_ws *ws, uint16_t code, const char *why);
void mg_ws_flow(struct mg_ws *ws); /* reads on or off, by what waits */

/* ws-say.c: the server's own messages. */
void mg_ws_hello(struct mg_ws *ws);
void mg_ws_bye(struct mg_ws *ws);
void mg_ws_say_error(struct mg_ws *ws, struct mg_sv ref, const int64_t *sub, const struct mg_err *err);
void mg_ws_say_ack(struct mg_ws *ws, struct mg_sv ref, struct mg_sv ids);
void mg_ws_say_pong(struct mg_ws *ws, struct mg_sv ref);
/* `live` and `end` go into the buffer of events: their place among them counts. */
void mg_ws_note(struct mg_buf *out, const struct mg_ws_sub *s, const char *op, const char *reason);

/* ws-stream.c */
struct mg_ws_sub *mg_ws_sub_new(struct mg_ws *ws, int64_t number, struct mg_sv types);
void mg_ws_sub_open(struct mg_ws *ws, struct mg_ws_sub *s, const struct mg_stream_spec *spec);
struct mg_ws_sub *mg_ws_sub_find(struct mg_ws *ws, int64_t number);
void mg_ws_sub_turn(struct mg_ws_sub *s); /* it may have something, or may take more */
/* Its stream is over: says so in b and frees it; closes the socket where nothing is left of it. */
void mg_ws_sub_end(struct mg_ws *ws, struct mg_ws_sub *s, enum mg_sub_end end, struct mg_buf *b);
void mg_ws_sub_free(struct mg_ws_sub *s);
/* Appends frames of events to b until it holds MG_HTTP_STREAM_WRITE bytes. True when there may be more. */
bool mg_ws_gather(struct mg_ws *ws, struct mg_buf *b);

/* ws-job.c */
void mg_ws_message(struct mg_ws *ws, struct mg_buf *message);
void mg_ws_stream_free(struct mg_ws *ws); /* the jobs and the subscriptions */

#endif
