#include "http/body.h"

enum {
    EXTRA_MAX = 8192, /* bytes of chunk extensions and trailers together */
    DIGITS_MAX = 15,  /* of a chunk size: stays far below 2^63 */
};

enum state { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF, DONE };

void mg_body_length(struct mg_body *b, uint64_t length)
{
    *b = (struct mg_body){.left = length, .state = length ? DATA : DONE};
}

void mg_body_chunked(struct mg_body *b)
{
    *b = (struct mg_body){.chunked = true, .state = SIZE};
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool size_char(struct mg_body *b, char c)
{
    int v = hex(c);
    if (v >= 0) {
        b->left = b->left * 16 + (uint64_t)v;
        return ++b->digits <= DIGITS_MAX;
    }
    if (b->digits == 0)
        return false;
    if (c == '\r')
        b->state = SIZE_LF;
    else if (c == ';' || c == ' ' || c == '\t')
        b->state = EXTENSION;
    else
        return false;
    return true;
}

static bool extra_char(struct mg_body *b, char c, enum state then)
{
    if (++b->extra > EXTRA_MAX || c == '\n' || c == '\0')
        return false;
    if (c == '\r')
        b->state = then;
    return true;
}

static bool expect(struct mg_body *b, char c, char want, enum state then)
{
    b->state = then;
    return c == want;
}

/* One character of the chunked framing; false: malformed. */
static bool frame_char(struct mg_body *b, char c)
{
    switch ((enum state)b->state) {
    case SIZE:
        return size_char(b, c);
    case EXTENSION:
        return extra_char(b, c, SIZE_LF);
    case SIZE_LF:
        return expect(b, c, '\n', b->left ? DATA : TRAILER_START);
    case DATA_CR:
        return expect(b, c, '\r', DATA_LF);
    case DATA_LF:
        b->left = 0;
        b->digits = 0;
        return expect(b, c, '\n', SIZE);
    case TRAILER_START:
        if (c == '\r') {
            b->state = END_LF;
            return true;
        }
        b->state = TRAILER;
        return extra_char(b, c, TRAILER_LF);
    case TRAILER:
        return extra_char(b, c, TRAILER_LF);
    case TRAILER_LF:
        return expect(b, c, '\n', TRAILER_START);
    case END_LF:
        return expect(b, c, '\n', DONE);
    case DATA:
    case DONE:
        break;
    }
    return false;
}

static enum mg_body_result data(struct mg_body *b, struct mg_sv in, uint64_t max, struct mg_buf *out, size_t *used)
{
    size_t n = in.len < b->left ? in.len : (size_t)b->left;
    b->total += n;
    if (b->total > max)
        return MG_BODY_TOO_BIG;
    if (out && mg_buf_append(out, in.ptr, n) < 0)
        return MG_BODY_TOO_BIG;
    b->left -= n;
    *used += n;
    if (b->left == 0)
        b->state = b->chunked ? DATA_CR : DONE;
    return MG_BODY_MORE;
}

enum mg_body_result mg_body_feed(struct mg_body *b, struct mg_sv in, uint64_t max, struct mg_buf *out, size_t *ret_used)
{
    size_t used = 0;
    enum mg_body_result r = MG_BODY_MORE;
    while (used < in.len && b->state != DONE && r == MG_BODY_MORE) {
        if (b->state == DATA)
            r = data(b, mg_sv_from(in, used), max, out, &used);
        else if (!frame_char(b, in.ptr[used++]))
            r = MG_BODY_BAD;
        else if (b->state == DATA && b->chunked && b->left > max - (b->total < max ? b->total : max))
            r = MG_BODY_TOO_BIG; /* announced: refused before a byte of it is taken */
    }
    *ret_used = used;
    return r == MG_BODY_MORE && b->state == DONE ? MG_BODY_DONE : r;
}
