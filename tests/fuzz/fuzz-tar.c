/* Archives from sandboxes and services: the reader of plugins/common. The first byte says how the stream is cut. */
#include <string.h>

#include "common/tar.h"
#include "fuzz/fuzz.h"

struct seen {
    uint64_t promised, got;
    char kind;
};

static int32_t on_entry(void *ctx, const struct tar_entry *e)
{
    struct seen *s = ctx;
    fuzz_check(e->path.len > 0 && e->path.len <= TAR_PATH_MAX, "a path has a bounded length");
    fuzz_check(e->link.len <= TAR_PATH_MAX, "a link has a bounded length");
    fuzz_check(e->kind == 'f' || e->size == 0, "only files have content");
    fuzz_check(e->kind && strchr("fdlho", e->kind), "a kind is one of five");
    fuzz_check((e->mode & ~07777U) == 0, "a mode is permission bits");
    *s = (struct seen){.promised = e->size, .kind = e->kind};
    return 0;
}

static int32_t on_content(void *ctx, const char *p, uint64_t n)
{
    struct seen *s = ctx;
    (void)p;
    s->got += n;
    fuzz_check(s->kind == 'f' && s->got <= s->promised, "no more content than the head says");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen s = {0};
    struct tar_reader r = {.ctx = &s, .entry = on_entry, .content = on_content};
    size_t step = size > 0 ? (size_t)data[0] * 3 + 1 : 1;
    int rc = TAR_OK;
    for (size_t at = 1; at < size && rc == TAR_OK; at += step)
        rc = tar_feed(&r, (const char *)data + at, size - at < step ? size - at : step);
    fuzz_check(!tar_whole(&r) || rc == TAR_OK, "a refused archive is not whole");
    tar_free(&r);
    return 0;
}
