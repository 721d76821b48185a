/* Server streams of the Connect protocol: envelopes of one flag byte and a big-endian length, the last one with a flag of its own.
 * A machine that is fed with the body in pieces of any size. */
#ifndef MANGO_COMMON_ENVD_CONNECT_H
#define MANGO_COMMON_ENVD_CONNECT_H

#include "common/text.h"

enum {
    CONNECT_HEAD = 5,
    CONNECT_END = 2,                       /* flag of the last envelope */
    CONNECT_MESSAGE_MAX = 4 * 1024 * 1024, /* bytes; envd's largest has 44 KiB */
    CONNECT_STRANGE_MAX = 160,             /* bytes of something else that are kept for people */
    CONNECT_CODE_MAX = 40,                 /* bytes of an error's code */
};

struct connect {
    /* One message; false stops: what follows is not looked at. */
    bool (*message)(void *ctx, struct mango_sv json);
    void *ctx;
    bool ended; /* the last envelope came */
    bool bad;   /* this is no such stream, or beyond a limit */
    bool stopped;
    bool error;                  /* the last envelope has an error */
    char code[CONNECT_CODE_MAX]; /* of the error: "not_found" */
    struct text words;           /* of the error, for people; or the beginning of what is no stream */
    /* the machine's own */
    unsigned char head[CONNECT_HEAD];
    uint32_t have, left;
    struct text body;
};

/* False when the rest need not come: bad or stopped. */
bool connect_feed(struct connect *c, const char *p, uint64_t n);
void connect_free(struct connect *c);
/* A request body of one envelope. */
void connect_envelope(struct text *out, struct mango_sv json);
/* The code of a unary error, which is a text, or an integer from what stands before envd. */
void connect_code(struct mango_sv json, char out[CONNECT_CODE_MAX]);
/* The HTTP status that means what the code does. */
int connect_status(const char *code);
/* The one who says that has begun nothing of what it was asked for. */
bool connect_not_begun(const char *code);

#endif
