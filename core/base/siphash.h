/* SipHash-1-3 under a key that is drawn once per process: hash tables whose keys a peer chooses. Any thread. */
#ifndef MG_BASE_SIPHASH_H
#define MG_BASE_SIPHASH_H

#include <stdint.h>

#include "base/sv.h"

uint64_t mg_siphash(struct mg_sv s);
/* With an explicit key; for the test vectors. c and d: rounds per block and at the end. */
uint64_t mg_siphash_keyed(struct mg_sv s, uint64_t k0, uint64_t k1, int c, int d);

#endif
