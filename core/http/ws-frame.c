#include "http/ws-frame.h"

#include "base/utf8.h"

enum {
    FIN = 0x80,
    RSV = 0x70,
    MASKED = 0x80,
    HEAD_MIN = 6, /* two bytes and the mask */
};

void mg_frame_init(struct mg_frame *f, size_t message_max)
{
    *f = (struct mg_frame){.message = MG_BUF_INIT(message_max), .head_need = HEAD_MIN};
}

void mg_frame_done(struct mg_frame *f)
{
    mg_buf_done(&f->message);
}

static enum mg_frame_result bad(struct mg_frame *f, uint16_t code, const char *why)
{
    f->close_code = code;
    f->why = why;
    return MG_FRAME_BAD;
}

static bool is_control(uint8_t opcode)
{
    return opcode >= MG_WS_CLOSE;
}

static uint64_t head_length(const struct mg_frame *f)
{
    uint64_t n = f->head[1] & 0x7f;
    int bytes = n == 126 ? 2 : n == 127 ? 8 : 0;
    if (bytes)
        n = 0;
    for (int i = 0; i < bytes; i++)
        n = n << 8 | f->head[2 + i];
    return n;
}

/* The first two bytes are there: what the frame may be, and how long its head is. */
static enum mg_frame_result check_start(struct mg_frame *f)
{
    uint8_t len = f->head[1] & 0x7f;
    f->opcode = f->head[0] & 0x0f;
    f->fin = (f->head[0] & FIN) != 0;
    if (f->head[0] & RSV)
        return bad(f, MG_WS_CLOSE_PROTOCOL, "reserved bits are set; no extension was agreed");
    if (!(f->head[1] & MASKED))
        return bad(f, MG_WS_CLOSE_PROTOCOL, "a client's frames must be masked");
    if (is_control(f->opcode)) {
        if (f->opcode > MG_WS_PONG)
            return bad(f, MG_WS_CLOSE_PROTOCOL, "unknown opcode");
        if (!f->fin || len > MG_WS_CONTROL_MAX)
            return bad(f, MG_WS_CLOSE_PROTOCOL, "a control frame must be whole and have at most 125 bytes");
    } else if (f->opcode == MG_WS_BINARY) {
        return bad(f, MG_WS_CLOSE_KIND, "only text messages are understood");
    } else if (f->opcode > MG_WS_BINARY) {
        return bad(f, MG_WS_CLOSE_PROTOCOL, "unknown opcode");
    } else if ((f->opcode == MG_WS_CONTINUATION) != f->in_message) {
        return bad(f, MG_WS_CLOSE_PROTOCOL,
                   f->in_message ? "a message began inside of another" : "a continuation of nothing");
    }
    f->head_need = (uint8_t)(HEAD_MIN + (len == 126 ? 2 : len == 127 ? 8 : 0));
    return MG_FRAME_MORE;
}

static enum mg_frame_result begin_content(struct mg_frame *f)
{
    f->left = head_length(f);
    f->in_content = true;
    f->mask_at = 0;
    if (is_control(f->opcode)) {
        f->control_opcode = f->opcode;
        f->control_len = 0;
        return MG_FRAME_MORE;
    }
    f->in_message = true;
    /* Refused by its announced length, before a byte of it is kept. */
    if (f->left > f->message.max - f->message.len)
        return bad(f, MG_WS_CLOSE_TOO_BIG, "a message may have at most 1 MiB");
    return MG_FRAME_MORE;
}

static enum mg_frame_result head_byte(struct mg_frame *f, char c)
{
    f->head[f->head_len++] = (uint8_t)c;
    if (f->head_len == 2) {
        enum mg_frame_result r = check_start(f);
        if (r != MG_FRAME_MORE)
            return r;
    }
    return f->head_len == f->head_need ? begin_content(f) : MG_FRAME_MORE;
}

static void unmask(struct mg_frame *f, char *p, size_t n)
{
    const uint8_t *mask = f->head + f->head_need - 4;
    for (size_t i = 0; i < n; i++)
        p[i] = (char)((uint8_t)p[i] ^ mask[(f->mask_at + i) & 3]);
    f->mask_at = (uint8_t)((f->mask_at + n) & 3);
}

static enum mg_frame_result end_frame(struct mg_frame *f)
{
    f->in_content = false;
    f->head_len = 0;
    f->head_need = HEAD_MIN;
    if (is_control(f->opcode))
        return MG_FRAME_CONTROL;
    if (!f->fin)
        return MG_FRAME_MORE;
    f->in_message = false;
    if (!mg_utf8_valid(mg_buf_view(&f->message), NULL))
        return bad(f, MG_WS_CLOSE_UTF8, "a text message must be UTF-8");
    return MG_FRAME_MESSAGE;
}

static size_t content(struct mg_frame *f, struct mg_sv in)
{
    size_t n = in.len < f->left ? in.len : (size_t)f->left;
    if (is_control(f->opcode)) {
        memcpy(f->control + f->control_len, in.ptr, n);
        unmask(f, f->control + f->control_len, n);
        f->control_len = (uint8_t)(f->control_len + n);
    } else if (n) {
        size_t at = f->message.len;
        if (mg_buf_append(&f->message, in.ptr, n) < 0)
            return n; /* cannot be: its length was checked */
        unmask(f, f->message.ptr + at, n);
    }
    f->left -= n;
    return n;
}

enum mg_frame_result mg_frame_feed(struct mg_frame *f, struct mg_sv in, size_t *ret_used)
{
    size_t used = 0;
    enum mg_frame_result r = MG_FRAME_MORE;
    while (r == MG_FRAME_MORE && (used < in.len || (f->in_content && f->left == 0))) {
        if (!f->in_content) {
            r = head_byte(f, in.ptr[used++]);
            continue;
        }
        used += content(f, mg_sv_from(in, used));
        if (f->left == 0)
            r = end_frame(f);
    }
    *ret_used = used;
    return r;
}

uint16_t mg_frame_close_code(const struct mg_frame *f)
{
    if (f->control_len == 0)
        return 1005;
    if (f->control_len == 1 || !mg_utf8_valid(mg_sv_n(f->control + 2, f->control_len - 2U), NULL))
        return MG_WS_CLOSE_PROTOCOL;
    unsigned code = (unsigned)(uint8_t)f->control[0] << 8 | (uint8_t)f->control[1];
    bool known = (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
                 (code >= 3000 && code <= 4999);
    return (uint16_t)(known ? code : MG_WS_CLOSE_PROTOCOL);
}

void mg_frame_begin(struct mg_buf *out, enum mg_ws_opcode opcode, uint64_t len)
{
    unsigned char head[MG_WS_HEAD_MAX] = {(unsigned char)(FIN | opcode)};
    size_t n = 2;
    int bytes = len < 126 ? 0 : len < 65536 ? 2 : 8;
    head[1] = (unsigned char)(bytes == 0 ? len : bytes == 2 ? 126 : 127);
    for (int i = bytes - 1; i >= 0; i--)
        head[n++] = (unsigned char)(len >> (8 * i));
    (void)mg_buf_append(out, head, n);
}

void mg_frame_text(struct mg_buf *out, struct mg_sv text)
{
    mg_frame_begin(out, MG_WS_TEXT, text.len);
    (void)mg_buf_sv(out, text);
}

void mg_frame_close(struct mg_buf *out, uint16_t code, const char *why)
{
    char body[MG_WS_CONTROL_MAX];
    size_t n = mg_utf8_floor(mg_sv_of(why), sizeof(body) - 2);
    if (code == 1005) { /* the peer gave none: so do we */
        mg_frame_begin(out, MG_WS_CLOSE, 0);
        return;
    }
    body[0] = (char)(code >> 8);
    body[1] = (char)code;
    memcpy(body + 2, why, n);
    mg_frame_begin(out, MG_WS_CLOSE, n + 2);
    (void)mg_buf_append(out, body, n + 2);
}
