/* SipHash after Aumasson and Bernstein. */
#include "base/siphash.h"

#include <endian.h>
#include <pthread.h>

#include "base/rng.h"

static uint64_t process_key[2];
static pthread_once_t process_key_once = PTHREAD_ONCE_INIT;

static void draw_process_key(void)
{
    mg_rng_bytes(process_key, sizeof(process_key));
}

static inline uint64_t rotl(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

static inline void sip_rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[1] = rotl(v[1], 13) ^ v[0];
        v[0] = rotl(v[0], 32);
        v[2] += v[3];
        v[3] = rotl(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotl(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotl(v[1], 17) ^ v[2];
        v[2] = rotl(v[2], 32);
    }
}

uint64_t mg_siphash_keyed(struct mg_sv s, uint64_t k0, uint64_t k1, int c, int d)
{
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    uint64_t word, last = (uint64_t)s.len << 56;
    size_t i = 0;

    for (; s.len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, s.ptr + i, sizeof(word));
        word = le64toh(word);
        v[3] ^= word;
        sip_rounds(v, c);
        v[0] ^= word;
    }
    for (int shift = 0; i < s.len; i++, shift += 8)
        last |= (uint64_t)(unsigned char)s.ptr[i] << shift;
    v[3] ^= last;
    sip_rounds(v, c);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_rounds(v, d);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t mg_siphash(struct mg_sv s)
{
    (void)pthread_once(&process_key_once, draw_process_key);
    return mg_siphash_keyed(s, process_key[0], process_key[1], 1, 3);
}
