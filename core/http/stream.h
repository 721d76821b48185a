/* Event streams: what a handler hands to the loop thread so that a connection becomes a subscriber of the hub. */
#ifndef MG_HTTP_STREAM_H
#define MG_HTTP_STREAM_H

#include "base/sv.h"
#include "domain/id.h"

enum { MG_STREAM_TYPES_MAX = 100 };

struct mg_stream_spec {
    struct mg_id session;
    int64_t after_seq; /* events with a greater number follow; the handler resolved it (now, start, or the cursor's) */
    bool deltas_message, deltas_thinking;
    struct mg_sv types;  /* comma-separated filter; empty: all; copied when the stream starts */
    struct mg_id thread; /* the thread whose log it is; "": the primary one, which is the session's */
    struct mg_id key_id; /* the credential, so that its revocation ends the stream */
};

struct mg_event;
/* Whether a stream with this filter gets the event. */
bool mg_stream_wants(struct mg_sv types, const struct mg_id *thread, const struct mg_event *e);
struct mg_buf;
/* Appends JSON text with line ends (white space there) made spaces, so that it is one line. */
void mg_stream_text(struct mg_buf *b, struct mg_sv text);

#endif
