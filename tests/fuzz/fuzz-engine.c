/* What a Docker Engine and the program in a container say: the framed stream, and JSON answers. The first byte says how the
 * stream is cut. */
#include <string.h>

#include "common/json.h"
#include "docker/demux.h"
#include "docker/endpoint.h"
#include "docker/registry.h"
#include "fuzz/fuzz.h"

static void on_frame(void *ctx, struct frame *f)
{
    fuzz_check(f->head.len <= MUX_DATA_MAX, "a frame has a bounded length");
    *(uint64_t *)ctx += f->head.len;
    free(f);
}

static void walk(struct mango_sv value, int depth)
{
    struct mango_sv name = {0}, item;
    struct text t = {0};
    fuzz_check(depth <= JSON_DEPTH_MAX, "the depth is bounded");
    for (uint64_t pos = 0; json_next(value, &pos, &name, &item);) {
        fuzz_check(item.ptr >= value.ptr && item.ptr + item.len <= value.ptr + value.len,
                   "a member lies in its parent");
        walk(item, depth + 1);
    }
    (void)json_text(value, &t);
    text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t bytes = 0;
    struct demux d = {.ctx = &bytes, .frame = on_frame};
    size_t step = size > 0 ? (size_t)data[0] + 1 : 1;
    struct mango_sv text = {(const char *)data, size};
    bool ok = true;
    for (size_t at = 1; at < size && ok; at += step)
        ok = demux_feed(&d, (const char *)data + at, size - at < step ? size - at : step);
    fuzz_check(bytes <= size, "no bytes come from nowhere");
    demux_free(&d);
    if (json_valid(text)) {
        struct text out = {0};
        char why[200] = "", helper[REGISTRY_HELPER_MAX] = "";
        walk(text, 0);
        int64_t n;
        (void)json_int(text, "a", &n);
        (void)registry_lookup(text, "host", &out, helper, why, sizeof(why));
        fuzz_check(!strchr(helper, '/'), "a helper's name is no path");
        (void)registry_from_helper(text, "host", &out);
        text_free(&out);
    }
    struct text quoted = {0};
    text_json(&quoted, text);
    fuzz_check(quoted.bad || json_valid(text_view(&quoted)), "what is quoted is JSON");
    text_free(&quoted);
    char host[300], why[ENDPOINT_WHY_MAX], version[16];
    struct endpoint e;
    snprintf(host, sizeof(host), "%.*s", size < 290 ? (int)size : 290, (const char *)data);
    bool good = endpoint_parse(&e, host, "", false, why);
    fuzz_check(!good || e.base, "an address that passes has a base");
    endpoint_done(&e);
    (void)endpoint_version(host, version);
    return 0;
}
