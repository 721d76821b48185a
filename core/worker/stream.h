/* A session's event stream: whole events wait in a bounded queue until the runner takes them; the peer is held back meanwhile. The runner
 * sleeps on the tether's lock, which guards the queue too.
 *
 * Concurrency: made, read and closed by one thread; filled by the loop's. */
#ifndef MG_WORKER_STREAM_H
#define MG_WORKER_STREAM_H

#include "base/err.h"
#include "worker/remote.h"
#include "worker/tether.h"

enum {
    MG_STREAM_QUEUE_MAX = 8 * 1024 * 1024,  /* bytes that wait; more are left in the socket */
    MG_STREAM_EVENT_MAX = 64 * 1024 * 1024, /* bytes of one event */
    MG_STREAM_OPEN_MS = 60000,              /* until the answer's head */
    MG_STREAM_IDLE_MS = 90000,              /* without a byte, keep-alives included: the connection is dead */
};

struct mg_stream;

/* One event's text; the taker's, to be freed. */
struct mg_stream_text {
    struct mg_list link;
    size_t len;
    bool looked; /* by mg_stream_look */
    char text[]; /* a NUL behind */
};

/* MG_OK: the head has come, events from here on are in the queue. Else *ret_status is a refusal's, or 0. */
mg_rc mg_stream_open(const struct mg_remote *r, const char *session_id, struct mg_tether *t, struct mg_stream **ret,
                     int *ret_status, struct mg_err *err) MG_MUSTCHECK;
void mg_stream_close(struct mg_stream *s); /* NULL is fine */
/* The next event, or NULL: none waits. With the tether's lock held. */
struct mg_stream_text *mg_stream_take(struct mg_stream *s);
/* Calls fn for each event that waits and was not shown before, without taking it. With the tether's lock held. */
void mg_stream_look(struct mg_stream *s, void (*fn)(void *ctx, struct mg_sv event), void *ctx);
/* Nothing waits, and nothing comes any more. With the tether's lock held. */
bool mg_stream_ended(const struct mg_stream *s);
/* Why it ended; after mg_stream_ended. An end without a failure is one too. */
const char *mg_stream_why(const struct mg_stream *s);

#endif
