/* Images: enough of PNG, JPEG, GIF and WebP to know the kind, the sides, and whether the end is there. Every read is
 * bounded by the data. */
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

static bool png_whole(const unsigned char *p, size_t n)
{
    for (size_t i = 8; i + 12 <= n;) {
        size_t len = be32(p + i);
        if (len > n - i - 12)
            return false;
        if (memcmp(p + i + 4, "IEND", 4) == 0)
            return true;
        i += 12 + len;
    }
    return false;
}

/* The end marker behind the start of the scan: a thumbnail in front of it has one of its own. */
static bool jpeg_whole(const unsigned char *p, size_t n)
{
    const unsigned char *scan = memmem(p, n, "\xFF\xDA", 2);

    return scan && memmem(scan, n - (size_t)(scan - p), "\xFF\xD9", 2);
}

static bool gif_whole(const unsigned char *p, size_t n)
{
    while (n && p[n - 1] == 0)
        n--;
    return n && p[n - 1] == 0x3B;
}

static bool webp_whole(const unsigned char *p, size_t n)
{
    size_t len = (size_t)le16(p + 4) | (size_t)le16(p + 6) << 16;

    return len <= n - 8;
}

static const struct {
    const char *media_type, *magic;
    size_t magic_len;
    bool (*sides)(const unsigned char *p, size_t n, struct sides *ret);
    bool (*whole)(const unsigned char *p, size_t n);
} KINDS[] = {
    {"image/png", "\x89PNG\r\n\x1a\n", 8, png, png_whole},
    {"image/jpeg", "\xFF\xD8\xFF", 3, jpeg, jpeg_whole},
    {"image/gif", "GIF8", 4, gif, gif_whole},
    {"image/webp", "RIFF", 4, webp, webp_whole},
};
enum { N_KINDS = sizeof(KINDS) / sizeof(KINDS[0]) };

struct mg_sv mg_image_kind(struct mg_sv head)
{
    for (int i = 0; i < N_KINDS; i++) {
        bool is = head.len >= KINDS[i].magic_len && memcmp(head.ptr, KINDS[i].magic, KINDS[i].magic_len) == 0;
        if (is && KINDS[i].sides == webp)
            is = head.len >= 12 && memcmp(head.ptr + 8, "WEBP", 4) == 0;
        if (is)
            return mg_sv_of(KINDS[i].media_type);
    }
    return MG_SV("");
}

static mg_rc find_kind(struct mg_sv media_type, int *ret, struct mg_err *err)
{
    for (int i = 0; i < N_KINDS; i++)
        if (mg_sv_eqz(media_type, KINDS[i].media_type)) {
            *ret = i;
            return MG_OK;
        }
    return mg_err_set(err, MG_EINVAL, "the media type must be image/png, image/jpeg, image/gif or image/webp");
}

mg_rc mg_image_check_data(struct mg_sv media_type, struct mg_sv data, uint32_t max_side, size_t max_bytes,
                          struct mg_err *err)
{
    const unsigned char *p = (const unsigned char *)data.ptr;
    struct sides s = {0, 0};
    int kind = 0;
    mg_rc rc = find_kind(media_type, &kind, err);

    if (rc < 0)
        return rc;
    if (data.len > max_bytes)
        return mg_err_set(err, MG_EINVAL, "the image is larger than %zu bytes; scale it down", max_bytes);
    if (!KINDS[kind].sides(p, data.len, &s))
        return mg_err_set(err, MG_EINVAL, "the data is not a %s image; its first bytes say otherwise",
                          KINDS[kind].media_type + 6);
    if (s.w == 0 || s.h == 0 || s.w > max_side || s.h > max_side)
        return mg_err_set(err, MG_EINVAL, "the image is %u x %u pixels; each side must be 1 to %u", s.w, s.h, max_side);
    if (!KINDS[kind].whole(p, data.len))
        return mg_err_set(err, MG_EINVAL, "the image is cut off: its end is missing");
    return MG_OK;
}

mg_rc mg_image_check(struct mg_sv media_type, struct mg_sv base64, struct mg_err *err)
{
    int kind = 0;
    mg_rc rc = find_kind(media_type, &kind, err);

    if (rc < 0)
        return rc;
    if (base64.len / 4 * 3 > MG_IMAGE_BYTES_MAX + 3)
        return mg_err_set(err, MG_EINVAL, "the image is larger than %d bytes; scale it down", MG_IMAGE_BYTES_MAX);
    mg_auto(buf) struct mg_buf b = MG_BUF_INIT(MG_IMAGE_BYTES_MAX + 4);
    if (mg_base64_decode(&b, base64) < 0)
        return mg_err_set(err, MG_EINVAL, "the data is not base64");
    return mg_image_check_data(media_type, mg_buf_view(&b), MG_IMAGE_SIDE_MAX, MG_IMAGE_BYTES_MAX, err);
}
