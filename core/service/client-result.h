/* What a client's result becomes for the model: legal, bounded, and without images that would poison the transcript. The event keeps it as it was sent. */
#ifndef MG_SERVICE_CLIENT_RESULT_H
#define MG_SERVICE_CLIENT_RESULT_H

#include "base/arena.h"
#include "base/sv.h"

/* content: the raw array of blocks, or empty. max: bytes of text. */
struct mg_sv mg_client_result(struct mg_arena *a, struct mg_sv content, size_t max);

#endif
