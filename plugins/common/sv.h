/* Small strings: views of other people's memory, copies of them, names made of hex digits. */
#ifndef MANGO_COMMON_SV_H
#define MANGO_COMMON_SV_H

#include <stdbool.h>
#include <stddef.h>

#include "mango/types.h"

static inline struct mango_sv sv_z(const char *z)
{
    return (struct mango_sv){z, z ? __builtin_strlen(z) : 0};
}
static inline struct mango_sv no_text(void)
{
    return (struct mango_sv){"", 0};
}
bool sv_is(struct mango_sv s, const char *z);
char *sv_dup(struct mango_sv s);                 /* NULL when memory is gone or s holds a NUL */
bool sv_hex(struct mango_sv s, uint64_t digits); /* exactly so many digits, letters lowercase */
void random_hex(char *out, size_t digits);       /* and a NUL */

#endif
