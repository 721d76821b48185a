/* Image headers: enough of PNG, JPEG, GIF and WebP to know the kind and the sides. Every read is bounded by the data. */
#include "domain/content.h"

#include "base/buf.h"
#include "base/mem.h"
#include "crypto/hash.h"

struct sides {
    uint32_t w, h;
};

static uint32_t be16(const unsigned char *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t be32(const unsigned char *p)
{
    return be16(p) << 16 | be16(p + 2);
}

static uint32_t le16(const unsigned char *p)
{
    return (uint32_t)p[1] << 8 | p[0];
}

static uint32_t le24(const unsigned char *p)
{
    return (uint32_t)p[2] << 16 | le16(p);
}

static bool png(const unsigned char *p, size_t n, struct sides *ret)
{
    if (n < 24 || memcmp(p, "\x89PNG\r\n\x1a\n", 8) != 0 || memcmp(p + 12, "IHDR", 4) != 0)
        return false;
    *ret = (struct sides){be32(p + 16), be32(p + 20)};
    return true;
}

static bool gif(const unsigned char *p, size_t n, struct sides *ret)
{
    if (n < 10 || (memcmp(p, "GIF87a", 6) != 0 && memcmp(p, "GIF89a", 6) != 0))
        return false;
    *ret = (struct sides){le16(p + 6), le16(p + 8)};
    return true;
}

/* Walks the segments to the first start-of-frame. */
static bool jpeg(const unsigned char *p, size_t n, struct sides *ret)
{
    if (n < 4 || p[0] != 0xFF || p[1] != 0xD8)
        return false;
    size_t i = 2;
    while (i + 9 < n) {
        if (p[i] != 0xFF)
            return false;
        unsigned char m = p[i + 1];
        if (m == 0xFF || m == 0x01 || (m >= 0xD0 && m <= 0xD7)) {
            i += m == 0xFF ? 1 : 2;
            continue;
        }
        bool frame = m >= 0xC0 && m <= 0xCF && m != 0xC4 && m != 0xC8 && m != 0xCC;
        if (frame) {
            *ret = (struct sides){be16(p + i + 7), be16(p + i + 5)};
            return true;
        }
        size_t len = be16(p + i + 2);
        if (len < 2)
            return false;
        i += 2 + len;
    }
    return false;
}

static bool webp(const unsigned char *p, size_t n, struct sides *ret)
{
    if (n < 30 || memcmp(p, "RIFF", 4) != 0 || memcmp(p + 8, "WEBP", 4) != 0)
        return false;
    if (memcmp(p + 12, "VP8X", 4) == 0)
        *ret = (struct sides){le24(p + 24) + 1, le24(p + 27) + 1};
    else if (memcmp(p + 12, "VP8 ", 4) == 0)
        *ret = (struct sides){le16(p + 26) & 0x3FFF, le16(p + 28) & 0x3FFF};
    else if (memcmp(p + 12, "VP8L", 4) == 0 && p[20] == 0x2F) {
        uint32_t bits = le24(p + 21) | (uint32_t)p[24] << 24;
        *ret = (struct sides){(bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1};
    } else
        return false;
    return true;
}

static const struct {
    const char *media_type;
    bool (*sides)(const unsigned char *p, size_t n, struct sides *ret);
} KINDS[] = {
    {"image/png", png},
    {"image/jpeg", jpeg},
    {"image/gif", gif},
    {"image/webp", webp},
};
enum { N_KINDS = sizeof(KINDS) / sizeof(KINDS[0]) };

mg_rc mg_image_check(struct mg_sv media_type, struct mg_sv base64, struct mg_err *err)
{
    int kind = -1;
    for (int i = 0; i < N_KINDS; i++)
        if (mg_sv_eqz(media_type, KINDS[i].media_type))
            kind = i;
    if (kind < 0)
        return mg_err_set(err, MG_EINVAL, "the media type must be image/png, image/jpeg, image/gif or image/webp");
    if (base64.len / 4 * 3 > MG_IMAGE_BYTES_MAX + 3)
        return mg_err_set(err, MG_EINVAL, "the image is larger than %d bytes; scale it down", MG_IMAGE_BYTES_MAX);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_IMAGE_BYTES_MAX + 4);
    if (mg_base64_decode(&b, base64) < 0)
        return mg_err_set(err, MG_EINVAL, "the data is not base64");
    struct sides s = {0, 0};
    if (!KINDS[kind].sides((const unsigned char *)mg_buf_view(&b).ptr, b.len, &s))
        return mg_err_set(err, MG_EINVAL, "the data is not a %s image; its first bytes say otherwise", KINDS[kind].media_type + 6);
    if (s.w == 0 || s.h == 0 || s.w > MG_IMAGE_SIDE_MAX || s.h > MG_IMAGE_SIDE_MAX)
        return mg_err_set(err, MG_EINVAL, "the image is %u x %u pixels; each side must be 1 to %d", s.w, s.h, MG_IMAGE_SIDE_MAX);
    return MG_OK;
}
