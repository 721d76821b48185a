/* Authenticated encryption: AES-256-GCM. */
#ifndef MG_CRYPTO_SEAL_H
#define MG_CRYPTO_SEAL_H

#include <stdint.h>

#include "base/buf.h"

enum {
    MG_SEAL_KEY = 32, /* bytes */
    MG_SEAL_NONCE = 12,
    MG_SEAL_TAG = 16,
};

/* Appends nonce, ciphertext and tag. The nonce is random: a key seals fewer than 2^32 texts (NIST SP 800-38D). */
mg_rc mg_seal(const uint8_t key[MG_SEAL_KEY], struct mg_sv associated, struct mg_sv plain, struct mg_buf *out);
/* Appends the plaintext to out, whose room is reserved here. MG_EINVAL: another key, other associated data, or other
 * bytes than those that were sealed; nothing is appended then. */
mg_rc mg_unseal(const uint8_t key[MG_SEAL_KEY], struct mg_sv associated, struct mg_sv sealed, struct mg_buf *out);

/* HMAC-SHA-256. */
void mg_hmac_sha256(struct mg_sv key, struct mg_sv data, uint8_t out[32]);

#endif
