/* Random bytes of the kernel; any thread. */
#ifndef MG_BASE_RNG_H
#define MG_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

void mg_rng_bytes(void *p, size_t n);
uint64_t mg_rng_u64(void);
uint64_t mg_rng_below(uint64_t n); /* uniform in [0, n); n > 0; for jitter */

#endif
