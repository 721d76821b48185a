/* Bytes between the loop and the thread that handles a request: a body on its way in, or an answer on its way out. What
 * waits is bounded: the loop stops reading from the socket, the handler waits for the socket.
 *
 * Concurrency: any thread; the lock guards everything. */
#ifndef MG_HTTP_FEED_H
#define MG_HTTP_FEED_H

#include <pthread.h>

#include "base/buf.h"
#include "http/body.h"

enum {
    MG_FEED_HIGH = 128 * 1024, /* bytes that wait: above it the side that fills is held back */
    MG_FEED_MAX = 1024 * 1024, /* bytes of the queue: what arrives before the holding back takes hold */
};

struct mg_feed {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct mg_buf queue; /* what has not been taken */
    bool ended;          /* nothing follows */
    bool broken;         /* the connection is gone, or the body cannot be had: nobody waits any longer */
    bool wanted;         /* the handler has asked for bytes */
    int status;          /* of the answer when the body is at fault; 0: the connection is gone */
    struct mg_err err;
};

struct mg_feed *mg_feed_new(void);
void mg_feed_free(struct mg_feed *f); /* NULL is fine */
void mg_feed_end(struct mg_feed *f);
/* status and err: why the body cannot be had; 0 and NULL: the connection is gone. The first reason stays. */
void mg_feed_break(struct mg_feed *f, int status, const struct mg_err *err);

/* The loop's side of a body: decodes in into the queue. *ret_full: the socket must not be read until the handler has taken it. */
enum mg_body_result mg_feed_body(struct mg_feed *f, struct mg_body *b, struct mg_sv in, uint64_t max, size_t *ret_used,
                                 bool *ret_full);
/* Swaps the queue with the empty buffer to; never waits. */
enum mg_feed_got { MG_FEED_NONE, MG_FEED_SOME, MG_FEED_END };
enum mg_feed_got mg_feed_take(struct mg_feed *f, struct mg_buf *to, bool *ret_was_full);
/* What the handler may do about a body: false when nothing is known against it. */
bool mg_feed_fault(struct mg_feed *f, int *ret_status, struct mg_err *ret_err);

#endif
