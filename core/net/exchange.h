/* A blocking request whose bodies are streamed both ways: the callbacks run on the calling thread and may take their
 * time. Between it and the loop's thread wait at most MG_EXCHANGE_HELD bytes each way; then the peer is held back. */
#ifndef MG_NET_EXCHANGE_H
#define MG_NET_EXCHANGE_H

#include "net/loop.h"

enum {
    MG_EXCHANGE_HELD = 256 * 1024, /* bytes of an answer that the caller has not taken yet */
    MG_EXCHANGE_PIECE = 64 * 1024, /* bytes that on_read is asked for at once */
};

/* Waits for the answer's end, the deadline (monotonic; 0: total_ms alone) or the cancel (may be NULL). Not on a loop's
 * thread. req: on_header, on_body and on_read are called here, on the calling thread, with ctx; on_done is not used.
 * on_body may answer MG_NET_STOP (MG_ECANCELED), MG_NET_GO or MG_NET_DRAIN (MG_OK at once); on_read anything but
 * MG_NET_READ_PAUSE. ret: its text is NULL; filled on failure too. */
mg_rc mg_net_exchange(struct mg_net *n, const struct mg_net_req *req, uint64_t deadline_ns, struct mg_cancel *cancel,
                      struct mg_net_result *ret, struct mg_err *err) MG_MUSTCHECK;

#endif
