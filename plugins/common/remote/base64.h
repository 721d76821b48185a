/* Base64 as JSON protocols have it: the standard alphabet, padded. */
#ifndef MANGO_COMMON_BASE64_H
#define MANGO_COMMON_BASE64_H

#include <stdbool.h>

#include "common/sv.h"

/* Bytes that out must have for so many digits. */
static inline uint64_t base64_room(uint64_t digits)
{
    return digits / 4 * 3 + 3;
}
/* False when it is no base64. out may be where the text is: it is never ahead of it. */
bool base64_decode(struct mango_sv text, char *out, uint64_t *ret_n);

#endif
