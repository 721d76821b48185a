/* Incremental parser of a text/event-stream body. Bytes go in as they arrive, whole events come out: how the bytes
 * are cut makes no difference. Pure; one thread at a time. */
#ifndef MG_NET_SSE_PARSE_H
#define MG_NET_SSE_PARSE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_SSE_NAME_MAX = 64, /* bytes of an event name; a longer one is cut: none that we know is longer than 24 */
    MG_SSE_ID_MAX = 1024, /* bytes of an event id; a longer one counts as none: such a stream cannot be resumed */
};

/* One event. name is "" when the stream gave none. Both views end with the call. Returns false to stop the parser. */
typedef bool mg_sse_fn(void *ctx, struct mg_sv name, struct mg_sv data);

struct mg_sse {
    struct mg_buf line; /* the part of a line that came so far */
    struct mg_buf data; /* data lines of the event, joined with LF */
    size_t line_max;    /* bytes of one line, and of one event's data */
    char name[MG_SSE_NAME_MAX];
    size_t name_len;
    char id[MG_SSE_ID_MAX]; /* of the newest `id` line; for readers that resume */
    size_t id_len;          /* 0: none, or the server took it back */
    int64_t retry_ms;       /* of the newest `retry` line; -1: none */
    bool has_data, begun, skip_lf;
    mg_sse_fn *fn;
    void *ctx;
};

void mg_sse_init(struct mg_sse *s, size_t line_max, mg_sse_fn *fn, void *ctx);
void mg_sse_done(struct mg_sse *s);
/* MG_ETOOBIG: a line or an event is over the limit; MG_ECANCELED: fn returned false. The parser is of no use
 * afterwards. */
mg_rc mg_sse_feed(struct mg_sse *s, const char *p, size_t n, struct mg_err *err) MG_MUSTCHECK;
/* True when bytes came that belong to no whole event: the stream was cut inside of one. */
bool mg_sse_pending(const struct mg_sse *s);

#endif
