/* Random bytes of the kernel. */
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/types.h>

void mg_rng_bytes(void *p, size_t n)
{
    char *at = p;

    while (n) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            abort(); /* no kernel of ours lacks getrandom, and going on with weak keys would be worse */
        at += got;
        n -= (size_t)got;
    }
}

uint64_t mg_rng_u64(void)
{
    uint64_t v;

    mg_rng_bytes(&v, sizeof(v));
    return v;
}

uint64_t mg_rng_below(uint64_t n)
{
    uint64_t first_fair = -n % n; /* 2^64 mod n: values below it would make small results likelier */
    uint64_t v;

    do
        v = mg_rng_u64();
    while (v < first_fair);

    return v % n;
}
