/* Streams of a sandbox service, in pieces of every size: the envelopes of the Connect protocol, and inside of them, or on their own, the frames of
 * mango-rbox. The first byte says which, and how large the pieces are. */
#include "fuzz.h"

#include "common/envd/connect.h"
#include "common/remote/base64.h"
#include "common/remote/rbox.h"

static int32_t drop(void *ctx, int32_t stream, const char *p, uint64_t n)
{
    (void)ctx, (void)stream, (void)p, (void)n;
    return 0;
}

static void frames(struct rbox_frames *f, const char *p, uint64_t n, uint64_t piece)
{
    for (uint64_t at = 0; at < n && rbox_feed(f, p + at, n - at < piece ? n - at : piece); at += piece) {
    }
    struct mango_stat st = {.struct_size = sizeof(st)};
    rbox_stat_result(f, &st);
}

static bool message(void *ctx, struct mango_sv json)
{
    struct mango_sv v = json_get(json, "event/data/stdout");
    char out[4096];
    uint64_t n = 0;
    if (json_kind(v) == '"' && base64_room(v.len) <= sizeof(out) &&
        base64_decode((struct mango_sv){v.ptr + 1, v.len - 2}, out, &n))
        (void)rbox_feed(ctx, out, n);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunk out = chunk_to(drop, NULL, 1, 100), err = chunk_to(drop, NULL, 2, 0);
    struct rbox_frames f = {.out = &out, .err = &err, .content = drop};
    if (size == 0)
        return 0;
    uint64_t piece = 1 + (data[0] & 0x7F);
    const char *p = (const char *)data + 1;
    if (data[0] & 0x80) {
        frames(&f, p, size - 1, piece);
    } else {
        struct connect c = {.message = message, .ctx = &f};
        for (uint64_t at = 0; at < size - 1; at += piece) {
            if (!connect_feed(&c, p + at, size - 1 - at < piece ? size - 1 - at : piece))
                break;
        }
        connect_free(&c);
    }
    chunk_end(&out);
    chunk_end(&err);
    return 0;
}
