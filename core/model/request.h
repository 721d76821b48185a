/* Builds the body of a Messages request. Everything that was said is spliced in as it came, and members stand in a
 * fixed order, so that the requests of one session share a byte-equal prefix and the endpoint's cache keeps working
 * (field case 84). */
#ifndef MG_MODEL_REQUEST_H
#define MG_MODEL_REQUEST_H

#include "base/buf.h"
#include "base/sv.h"

struct mg_request_entry {
    bool assistant;       /* else user */
    struct mg_sv content; /* raw JSON array of blocks */
};

struct mg_request {
    struct mg_sv model; /* decoded */
    int64_t max_tokens;
    struct mg_sv system; /* raw JSON string, or empty */
    struct mg_sv tools;  /* raw JSON array of definitions; "[]" and empty are left out */
    struct mg_sv effort; /* decoded "low" to "max"; empty: the endpoint's default */
    bool fast;
    bool web_fetch; /* is among the tools */
    bool
        cache; /* marks up to three places up to which the endpoint may keep what it read: the fixed part, and the last two user messages */
    const struct mg_request_entry *entries; /* in order; neighbours of the same role become one message */
    int n_entries;
};

/* The anthropic-beta header that the request needs, or an empty view. */
struct mg_sv mg_request_beta(const struct mg_request *r);
/* Where content[block] of messages[message] comes from: an entry and the number of the block in it. False when there is no such place. */
bool mg_request_locate(const struct mg_request *r, int64_t message, int64_t block, int *ret_entry, int64_t *ret_block);
/* out is bounded by its own limit: MG_ETOOBIG. */
mg_rc mg_request_build(const struct mg_request *r, struct mg_buf *out) MG_MUSTCHECK;

#endif
