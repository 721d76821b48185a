/* A WebSocket of a service (RFC 6455), by the host's upgraded connections: bytes in binary messages, both ways. One thread at a
 * time. */
#ifndef MANGO_COMMON_WEBSOCKET_H
#define MANGO_COMMON_WEBSOCKET_H

#include "common/remote/remote.h"

enum { WEBSOCKET_ROOM = 16 * 1024 /* bytes read at once */ };

struct websocket {
    const struct mango_host *host;
    mango_conn conn; /* 0: closed */
    unsigned char in[WEBSOCKET_ROOM];
    uint64_t at, len;        /* of what stands in `in` */
    uint64_t left;           /* bytes of the present frame that are still to come */
    unsigned opcode;         /* of the present frame */
    bool wanted;             /* the present message is binary */
    unsigned char pong[140]; /* answer to a ping, its frame whole */
};

/* req: URL (http or https) and headers of the service; method and body do not count. *ret_http as remote_res.status. Failed:
 * ret is closed. */
mango_status websocket_open(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                            struct websocket *ret, struct remote_res *res);
/* One message. A failure has cut it: the socket is of no use any more. */
mango_status websocket_send(struct websocket *ws, const struct mango_call *call, struct mango_sv data);
/* At least one byte of a binary message in *ret, which stands until the next read; MANGO_ERETRY when the other side has ended.
 * A cancelled or late read loses nothing. */
mango_status websocket_read(struct websocket *ws, const struct mango_call *call, struct mango_sv *ret);
void websocket_close(struct websocket *ws); /* zeroed memory is fine */

#endif
