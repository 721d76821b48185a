/* The body of an HTTP/1 request: Content-Length or chunked, fed in whatever pieces arrive. Pure. */
#ifndef MG_HTTP_BODY_H
#define MG_HTTP_BODY_H

#include "base/buf.h"

enum mg_body_result { MG_BODY_MORE, MG_BODY_DONE, MG_BODY_BAD, MG_BODY_TOO_BIG };

struct mg_body {
    uint64_t left;  /* bytes of the length or of the chunk that are still to come */
    uint64_t total; /* bytes of content so far */
    uint32_t extra; /* bytes of extensions and trailers so far */
    uint8_t state;
    uint8_t digits;
    bool chunked;
};

void mg_body_length(struct mg_body *b, uint64_t length);
void mg_body_chunked(struct mg_body *b);
/* Consumes *ret_used bytes of in and appends content to out (NULL: drops it). max: content bytes; above it
 * MG_BODY_TOO_BIG. */
enum mg_body_result mg_body_feed(struct mg_body *b, struct mg_sv in, uint64_t max, struct mg_buf *out,
                                 size_t *ret_used);

#endif
