#include "common/sv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool sv_is(struct mango_sv s, const char *z)
{
    return s.len == strlen(z) && memcmp(s.ptr, z, s.len) == 0;
}

char *sv_dup(struct mango_sv s)
{
    if (s.len > 0 && memchr(s.ptr, '\0', s.len))
        return NULL;
    char *z = malloc(s.len + 1);
    if (!z)
        return NULL;
    if (s.len)
        memcpy(z, s.ptr, s.len);
    z[s.len] = '\0';
    return z;
}

bool sv_hex(struct mango_sv s, uint64_t digits)
{
    for (uint64_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return s.len == digits;
}

void random_hex(char *out, size_t digits)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[64];
    while (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
    }
    for (size_t i = 0; i < digits; i++)
        out[i] = hex[bytes[i % sizeof(bytes)] & 15];
    out[digits] = '\0';
}
