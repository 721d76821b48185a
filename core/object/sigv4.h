/* Signatures of requests to an S3-compatible store: AWS Signature Version 4, in the Authorization header. Pure.
 *
 * libcurl could sign, and signs headers that it then does not send (7.88: the "Expect:" by which it is told to leave that header out), which a store
 * that looks refuses. */
#ifndef MG_OBJECT_SIGV4_H
#define MG_OBJECT_SIGV4_H

#include <stdint.h>

#include "base/err.h"
#include "base/sv.h"

enum {
    MG_SIGV4_ACCESS_MAX = 128, /* characters of an access key */
    MG_SIGV4_SECRET_MAX = 256,
    MG_SIGV4_REGION_MAX = 64,
};

struct mg_sigv4_key {
    const char *region, *access, *secret; /* within the limits above */
};

struct mg_sigv4_request {
    struct mg_sv method;
    /* scheme://host/path?query. Path and query are percent-encoded as the signature wants them (everything but letters, digits, "-._~", and the
     * slashes of the path), a name without a value has its "=", and the query is in the order of its names. */
    struct mg_sv url;
    struct mg_sv payload_sha256; /* hex */
    int64_t at_s;                /* since 1970; a store refuses what differs by 15 minutes from its own clock */
};

/* Headers to send besides x-amz-content-sha256. */
struct mg_sigv4 {
    char host[300], date[17] /* 20261130T180601Z */, authorization[512];
};

/* MG_EINVAL: the URL is none, or something is too long. */
mg_rc mg_sigv4_sign(const struct mg_sigv4_key *key, const struct mg_sigv4_request *r, struct mg_sigv4 *ret,
                    struct mg_err *err) MG_MUSTCHECK;

#endif
