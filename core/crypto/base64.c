/* Base 64 (RFC 4648): strict in what ends a text (no leftover bits), lenient in alphabet and padding. */
#include "crypto/hash.h"

static const char alphabet_plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char alphabet_url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static mg_rc encode(struct mg_buf *out, struct mg_sv data, const char *alphabet, bool pad)
{
    const unsigned char *p = (const unsigned char *)data.ptr;
    size_t whole = data.len / 3, left = data.len % 3;
    size_t n = whole * 4 + (left ? (pad ? 4 : left + 1) : 0);

    if (data.len > SIZE_MAX / 2)
        return MG_ETOOBIG;
    mg_rc rc = mg_buf_reserve(out, n);
    if (rc < 0)
        return rc;
    char *o = out->ptr + out->len;
    for (size_t i = 0; i < whole; i++, p += 3) {
        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(p[0] & 3) << 4 | p[1] >> 4];
        *o++ = alphabet[(p[1] & 15) << 2 | p[2] >> 6];
        *o++ = alphabet[p[2] & 63];
    }
    if (left) {
        unsigned second = left == 2 ? p[1] : 0;
        *o++ = alphabet[p[0] >> 2];
        *o++ = alphabet[(p[0] & 3) << 4 | second >> 4];
        if (left == 2)
            *o++ = alphabet[(second & 15) << 2];
        else if (pad)
            *o++ = '=';
        if (pad)
            *o++ = '=';
    }
    mg_buf_added(out, n);
    return MG_OK;
}

mg_rc mg_base64_encode(struct mg_buf *out, struct mg_sv data)
{
    return encode(out, data, alphabet_plain, true);
}

mg_rc mg_base64url_encode(struct mg_buf *out, struct mg_sv data)
{
    return encode(out, data, alphabet_url, false);
}

static int digit_value(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;

    return c == '/' || c == '_' ? 63 : -1;
}

mg_rc mg_base64_decode(struct mg_buf *out, struct mg_sv text)
{
    size_t before = out->len, digits = text.len, padding = 0;
    uint32_t bits = 0;
    int n_bits = 0;

    while (digits && text.ptr[digits - 1] == '=' && padding < 2) {
        digits--;
        padding++;
    }
    if (digits % 4 == 1 || (padding && (digits + padding) % 4 != 0))
        return MG_EINVAL;
    mg_rc rc = mg_buf_reserve(out, digits / 4 * 3 + 3);
    if (rc < 0)
        return rc;
    char *o = out->ptr + before;
    for (size_t i = 0; i < digits; i++) {
        int v = digit_value((unsigned char)text.ptr[i]);
        if (v < 0) {
            out->ptr[before] = '\0';
            return MG_EINVAL;
        }
        bits = (bits << 6 | (uint32_t)v) & 0xfffffff;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            *o++ = (char)(bits >> n_bits & 0xff);
        }
    }
    if (bits & ((1U << n_bits) - 1)) {
        out->ptr[before] = '\0';
        return MG_EINVAL; /* two spellings of one value would both pass */
    }
    mg_buf_added(out, (size_t)(o - (out->ptr + before)));
    return MG_OK;
}
