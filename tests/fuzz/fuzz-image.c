/* Images in content blocks: base64 and the heads of four formats. The first byte picks the media type that is claimed. */
#include "domain/content.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mg_sv types[] = {{"image/png", 9}, {"image/jpeg", 10}, {"image/gif", 9}, {"image/webp", 10}};
    struct mg_err err = {0};
    if (size < 1)
        return 0;
    fuzz_check_err(mg_image_check(types[data[0] % 4], fuzz_text(data + 1, size - 1), &err), &err);
    return 0;
}
