/* One HTTP/1.1 request on a connection of its own, which may turn the connection into a stream of bytes (Upgrade, and
 * the hijack of container engines). */
#ifndef MG_NET_UPGRADE_H
#define MG_NET_UPGRADE_H

#include "net/conn.h"

/* Sends req (its body must be whole) on c and reads the answer's head; headers go to req->on_header. *ret_stream: the
 * answer is 101, or 200 with neither a length nor chunks: from here on c is a stream. Otherwise the body has been read
 * to req->on_body (MG_NET_STOP and MG_NET_DRAIN end it), at most req->max_bytes of it. The call ends at deadline_ns (0:
 * none), at the cancel, and when nothing comes for req->idle_ms. */
mg_rc mg_upgrade(struct mg_conn *c, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                 int *ret_status, bool *ret_stream, struct mg_err *err) MG_MUSTCHECK;

/* ---- the head of an answer, pure; also for the fuzzer ---- */

struct mg_http_head {
    int status;
    int64_t length; /* of the body; -1: not told */
    bool chunked;
    size_t bytes; /* of the head, its empty line included */
};

/* MG_OK: a whole head is there. MG_EUNAVAIL: more bytes are needed. MG_EINVAL: this is no HTTP. header may be NULL. */
mg_rc mg_http_head_parse(struct mg_sv in, struct mg_http_head *ret,
                         void (*header)(void *ctx, int status, struct mg_sv name, struct mg_sv value), void *ctx);

struct mg_chunks {
    int state;
    uint64_t left; /* of this chunk */
    unsigned digits, line;
};

/* Takes bytes of a chunked body from *in and gives the next piece of content in *ret (may be empty). Returns 1 at the
 * end of the body, 0 when more is to come, -1 when this is no chunked body. */
int mg_chunks_next(struct mg_chunks *c, struct mg_sv *in, struct mg_sv *ret);

#endif
