#include "common/remote/websocket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "common/text.h"

enum {
    KEY_LEN = 16, /* random bytes of the handshake */
    SHA1_LEN = 20,
    SHA1_BLOCK = 64,
    HEAD_MAX = 14,         /* bytes of a frame's head */
    CONTROL_MAX = 125,     /* bytes of a control frame */
    SEND_MAX = 256 * 1024, /* bytes of one message of ours */
};

enum { OP_CONTINUE = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

/* ---- the handshake ---- */

static uint32_t roll(uint32_t v, int n)
{
    return v << n | v >> (32 - n);
}

static void sha1_block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = roll(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        static const uint32_t k[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t t = roll(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = roll(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* What the protocol makes of a key, so that no cache and no other protocol passes for a WebSocket; it guards no secret. */
static void accept_of(const char *key, struct text *ret)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    unsigned char block[2 * SHA1_BLOCK] = "", out[SHA1_LEN];
    int n = snprintf((char *)block, sizeof(block), "%s%s", key, guid);
    block[n] = 0x80;
    block[sizeof(block) - 2] = (unsigned char)(n * 8 >> 8);
    block[sizeof(block) - 1] = (unsigned char)(n * 8);
    sha1_block(h, block);
    sha1_block(h, block + SHA1_BLOCK);
    for (int i = 0; i < SHA1_LEN; i++)
        out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
    text_base64(ret, (struct mango_sv){(const char *)out, SHA1_LEN}, false);
}

struct handshake {
    struct text accept;
    bool right;
};

static void on_header(void *ctx, struct mango_sv name, struct mango_sv value)
{
    static const char wanted[] = "Sec-WebSocket-Accept";
    struct handshake *h = ctx;
    if (name.len == sizeof(wanted) - 1 && strncasecmp(name.ptr, wanted, name.len) == 0)
        h->right = h->accept.ptr && sv_is(value, h->accept.ptr);
}

static mango_status ask(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                        const char *key, struct websocket *ret, struct remote_res *res, struct handshake *h)
{
    struct mango_http_header headers[REMOTE_HEADERS_MAX];
    struct mango_http_req q = {.struct_size = sizeof(q),
                               .flags = MANGO_HTTP_ONCE,
                               .method = sv_z("GET"),
                               .url = sv_z(req->url),
                               .headers = headers,
                               .source_len = -1,
                               .ca_pem = sv_z(r->ca),
                               .connect_ms = REMOTE_CONNECT_MS,
                               .idle_ms = REMOTE_IDLE_MS,
                               .connect_to = sv_z(req->connect_to),
                               .proxy = sv_z(r->proxy)};
    struct mango_http_res answer = {
        .struct_size = sizeof(answer), .body = res->body, .on_header = on_header, .header_ctx = h};
    for (; q.n_headers < req->n_headers; q.n_headers++)
        headers[q.n_headers] = req->headers[q.n_headers];
    remote_header(headers, &q.n_headers, "Connection", "Upgrade");
    remote_header(headers, &q.n_headers, "Upgrade", "websocket");
    remote_header(headers, &q.n_headers, "Sec-WebSocket-Version", "13");
    remote_header(headers, &q.n_headers, "Sec-WebSocket-Key", key);
    mango_status s = r->host->conn_open(r->host, call, &q, &answer, &ret->conn);
    res->status = answer.status;
    res->sent = answer.flags & MANGO_HTTP_RES_SENT;
    return s;
}

mango_status websocket_open(const struct remote *r, const struct mango_call *call, const struct remote_req *req,
                            struct websocket *ret, struct remote_res *res)
{
    char bytes[KEY_LEN];
    text_auto struct text key = {0};
    struct handshake h = {0};
    *ret = (struct websocket){.host = r->host};
    *res = (struct remote_res){.body = r->host->buf_new(r->host, REMOTE_ERROR_MAX)};
    (void)!getrandom(bytes, sizeof(bytes), 0);
    text_base64(&key, (struct mango_sv){bytes, sizeof(bytes)}, false);
    if (key.ptr)
        accept_of(key.ptr, &h.accept);
    mango_status s = res->body && h.accept.ptr ? ask(r, call, req, key.ptr, ret, res, &h)
                                               : fail(r->host, call, MANGO_ERETRY, "out of memory");
    if (s == MANGO_OK && (!ret->conn || res->status != 101 || !h.right))
        s = remote_fail(r, call, req, res, MANGO_EUNSUPPORTED);
    text_free(&h.accept);
    if (s < 0)
        websocket_close(ret);
    return s;
}

void websocket_close(struct websocket *ws)
{
    if (ws->conn)
        ws->host->conn_close(ws->host, ws->conn);
    ws->conn = 0;
}

/* ---- frames ---- */

/* Masked, as a client's are. out: n + HEAD_MAX bytes; how many were used. */
static uint64_t frame(unsigned opcode, const char *p, uint64_t n, unsigned char *out)
{
    unsigned char mask[4] = {0};
    uint64_t at = 2;
    int digits = n <= CONTROL_MAX ? 0 : n <= 0xFFFF ? 2 : 8;
    out[0] = (unsigned char)(0x80 | opcode);
    out[1] = (unsigned char)(0x80 | (digits == 0 ? n : digits == 2 ? 126 : 127));
    for (int i = digits - 1; i >= 0; i--)
        out[at++] = (unsigned char)(n >> (8 * i));
    (void)!getrandom(mask, sizeof(mask), 0);
    memcpy(out + at, mask, sizeof(mask));
    at += sizeof(mask);
    for (uint64_t i = 0; i < n; i++)
        out[at + i] = (unsigned char)p[i] ^ mask[i & 3];
    return at + n;
}

mango_status websocket_send(struct websocket *ws, const struct mango_call *call, struct mango_sv data)
{
    unsigned char *out = data.len <= SEND_MAX ? malloc(data.len + HEAD_MAX) : NULL;
    if (!out)
        return fail(ws->host, call, MANGO_ERETRY, "out of memory, or a message of more than %d bytes", SEND_MAX);
    uint64_t n = frame(OP_BINARY, data.ptr, data.len, out);
    mango_status s = ws->host->conn_write(ws->host, call, ws->conn, (const char *)out, n);
    free(out);
    return s;
}

/* More bytes behind those that stand there. */
static mango_status more(struct websocket *ws, const struct mango_call *call)
{
    uint64_t n = 0;
    memmove(ws->in, ws->in + ws->at, ws->len - ws->at);
    ws->len -= ws->at;
    ws->at = 0;
    mango_status s =
        ws->host->conn_read(ws->host, call, ws->conn, (char *)ws->in + ws->len, sizeof(ws->in) - ws->len, &n);
    ws->len += n;
    return s == MANGO_OK && n == 0 ? fail(ws->host, call, MANGO_ERETRY, "the service has ended the connection") : s;
}

/* Bytes of the head that stands there; 0: it is not whole; -1: no frame that a server may send. */
static int head(struct websocket *ws)
{
    const unsigned char *p = ws->in + ws->at;
    uint64_t have = ws->len - ws->at, n = have >= 2 ? p[1] & 0x7F : 0;
    int digits = n < 126 ? 0 : n == 126 ? 2 : 8;
    if (have < 2 + (uint64_t)digits)
        return 0;
    unsigned opcode = p[0] & 0x0F;
    if ((p[0] & 0x70) || (p[1] & 0x80) || (opcode >= OP_CLOSE && (n > CONTROL_MAX || !(p[0] & 0x80))))
        return -1;
    for (int i = 0; i < digits; i++)
        n = (i ? n << 8 : 0) | p[2 + i];
    ws->opcode = opcode;
    ws->left = n;
    if (opcode == OP_TEXT || opcode == OP_BINARY)
        ws->wanted = opcode == OP_BINARY;
    return 2 + digits;
}

/* A control frame, when it has come whole. */
static mango_status control(struct websocket *ws, const struct mango_call *call)
{
    mango_status s = MANGO_OK;
    while (s == MANGO_OK && ws->len - ws->at < ws->left)
        s = more(ws, call);
    if (s < 0)
        return s;
    if (ws->opcode == OP_CLOSE)
        return fail(ws->host, call, MANGO_ERETRY, "the service has ended the connection");
    if (ws->opcode == OP_PING) {
        uint64_t n = frame(OP_PONG, (const char *)ws->in + ws->at, ws->left, ws->pong);
        s = ws->host->conn_write(ws->host, call, ws->conn, (const char *)ws->pong, n);
    }
    ws->at += ws->left;
    ws->left = 0;
    return s;
}

mango_status websocket_read(struct websocket *ws, const struct mango_call *call, struct mango_sv *ret)
{
    for (;;) {
        mango_status s = MANGO_OK;
        bool own = ws->left > 0 && ws->opcode >= OP_CLOSE;
        if (ws->left > 0 && !own && ws->at < ws->len) {
            uint64_t have = ws->len - ws->at, n = have < ws->left ? have : ws->left;
            *ret = (struct mango_sv){(const char *)ws->in + ws->at, n};
            ws->at += n;
            ws->left -= n;
            if (ws->wanted)
                return MANGO_OK;
            continue;
        }
        int n = ws->left > 0 ? 0 : head(ws);
        if (n < 0)
            return fail(ws->host, call, MANGO_ERETRY, "the service sent what is no WebSocket");
        ws->at += (uint64_t)n;
        if (own || (n > 0 && ws->opcode >= OP_CLOSE))
            s = control(ws, call);
        else if (n == 0)
            s = more(ws, call);
        if (s < 0)
            return s;
    }
}
