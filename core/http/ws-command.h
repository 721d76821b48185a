/* Commands of a mango.v1 client: JSON text to a struct. Pure. */
#ifndef MG_HTTP_WS_COMMAND_H
#define MG_HTTP_WS_COMMAND_H

#include "base/arena.h"
#include "base/err.h"
#include "base/sv.h"

enum mg_ws_op { MG_WS_OP_SUBSCRIBE, MG_WS_OP_UNSUBSCRIBE, MG_WS_OP_CREDIT, MG_WS_OP_SEND, MG_WS_OP_PING };

enum {
    MG_WS_REF_MAX = 128,         /* bytes of a ref, as JSON text */
    MG_WS_CREDIT_MAX = 1000000,  /* events that a subscription may have in hand */
    MG_WS_IDEMPOTENCY_MAX = 255, /* bytes of a key */
};

/* Texts are views of the message or arena memory. */
struct mg_ws_command {
    enum mg_ws_op op;
    bool has_sub;
    int64_t sub;
    struct mg_sv
        ref; /* JSON text of a string or a number; empty when absent. Set on errors too, when it could be read */
    struct mg_sv session_id, after, thread_id, idempotency_key;
    struct mg_sv types; /* comma-separated */
    bool deltas_message, deltas_thinking;
    int64_t credit;      /* of subscribe (default MG_WS_CREDIT) or credit */
    struct mg_sv events; /* JSON text of the array */
};

/* MG_EINVAL names the field and says what it may be. */
mg_rc mg_ws_command_parse(struct mg_arena *a, struct mg_sv text, struct mg_ws_command *ret,
                          struct mg_err *err) MG_MUSTCHECK;
/* One entry of deltas / event_deltas[]: false when it is none that there is. */
bool mg_ws_delta_kind(struct mg_sv name, bool *message, bool *thinking);

#endif
