/* Output of a command on its way to the host's sink: pieces end at UTF-8 characters, the bound is kept, bytes are
 * counted. */
#ifndef MANGO_COMMON_CHUNK_H
#define MANGO_COMMON_CHUNK_H

#include <stdbool.h>

#include "mango/types.h"

struct chunk {
    mango_sink_fn *sink;
    void *ctx;
    int32_t stream;
    uint64_t max;    /* bytes that the sink wants; 0: no bound */
    uint64_t seen;   /* bytes that came */
    uint64_t given;  /* bytes that the sink got */
    bool stopped;    /* the sink wants no more, or the bound is reached */
    uint8_t n_carry; /* the beginning of a character whose end has not come yet */
    char carry[4];
};

static inline struct chunk chunk_to(mango_sink_fn *sink, void *ctx, int32_t stream, uint64_t max)
{
    return (struct chunk){.sink = sink, .ctx = ctx, .stream = stream, .max = max, .stopped = sink == NULL};
}
void chunk_feed(struct chunk *c, const char *p, uint64_t n);
void chunk_end(struct chunk *c); /* gives what is carried, whole or not */

#endif
