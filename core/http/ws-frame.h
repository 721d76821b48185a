/* WebSocket framing (RFC 6455), both ways. Pure.
 *
 * No extension is offered: permessage-deflate would let a small frame inflate without a bound that libwebsockets 4.1.6
 * can set. */
#ifndef MG_HTTP_WS_FRAME_H
#define MG_HTTP_WS_FRAME_H

#include "base/buf.h"

enum mg_ws_opcode {
    MG_WS_CONTINUATION = 0,
    MG_WS_TEXT = 1,
    MG_WS_BINARY = 2,
    MG_WS_CLOSE = 8,
    MG_WS_PING = 9,
    MG_WS_PONG = 10
};

enum {
    MG_WS_CONTROL_MAX = 125, /* bytes of a control frame's content: RFC 6455 5.5 */
    MG_WS_HEAD_MAX = 10,     /* bytes of a server's frame head */
};

/* Closing codes that the server sends. */
enum {
    MG_WS_CLOSE_NORMAL = 1000,
    MG_WS_CLOSE_AWAY = 1001,
    MG_WS_CLOSE_PROTOCOL = 1002,
    MG_WS_CLOSE_KIND = 1003,
    MG_WS_CLOSE_UTF8 = 1007,
    MG_WS_CLOSE_POLICY = 1008,
    MG_WS_CLOSE_TOO_BIG = 1009,
    MG_WS_CLOSE_SERVER = 1011,
    MG_WS_CLOSE_SLOW = 1013,
};

enum mg_frame_result {
    MG_FRAME_MORE,
    MG_FRAME_MESSAGE, /* message holds a whole text message; the caller resets it */
    MG_FRAME_CONTROL, /* control[0..control_len) of control_opcode */
    MG_FRAME_BAD,     /* close with close_code and why */
};

struct mg_frame {
    struct mg_buf message; /* of the fragments so far; its limit is the message's */
    uint64_t left;         /* bytes of the frame's content that are to come */
    uint8_t head[14];
    uint8_t head_len, head_need;
    uint8_t mask_at;
    uint8_t opcode; /* of the current frame */
    uint8_t control_opcode, control_len;
    bool fin, in_content, in_message;
    uint16_t close_code;
    const char *why;
    char control[MG_WS_CONTROL_MAX];
};

void mg_frame_init(struct mg_frame *f, size_t message_max);
void mg_frame_done(struct mg_frame *f);
/* Consumes *ret_used bytes of a client's stream, up to the end of one message or control frame. */
enum mg_frame_result mg_frame_feed(struct mg_frame *f, struct mg_sv in, size_t *ret_used);
/* The code of a close frame's content; 1005 when it has none, 1002 when it is malformed. */
uint16_t mg_frame_close_code(const struct mg_frame *f);

/* The head of an unmasked, unfragmented frame with len bytes of content. */
void mg_frame_begin(struct mg_buf *out, enum mg_ws_opcode opcode, uint64_t len);
void mg_frame_text(struct mg_buf *out, struct mg_sv text);
void mg_frame_close(struct mg_buf *out, uint16_t code, const char *why);

#endif
