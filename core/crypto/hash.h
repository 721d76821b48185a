/* Digests, encodings and constant-time comparison; OpenSSL stays behind this folder. */
#ifndef MG_CRYPTO_HASH_H
#define MG_CRYPTO_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/sv.h"

enum { MG_SHA256_LEN = 32, MG_SHA256_HEX = 65 /* 64 digits and the NUL */ };

void mg_sha256(struct mg_sv data, uint8_t out[MG_SHA256_LEN]);
void mg_sha256_hex(struct mg_sv data, char out[MG_SHA256_HEX]);
struct mg_sha256; /* streaming */
struct mg_sha256 *mg_sha256_new(void);
void mg_sha256_update(struct mg_sha256 *h, const void *p, size_t n);
void mg_sha256_final_hex(struct mg_sha256 *h, char out[MG_SHA256_HEX]); /* frees h */

void mg_hex(const uint8_t *p, size_t n, char *out); /* 2n lowercase digits and a NUL */
/* Constant time in the content; lengths may differ (then false). */
bool mg_secret_eq(struct mg_sv a, struct mg_sv b);
mg_rc mg_base64_encode(struct mg_buf *out, struct mg_sv data);
mg_rc mg_base64url_encode(struct mg_buf *out, struct mg_sv data); /* no padding */
mg_rc mg_base64_decode(struct mg_buf *out, struct mg_sv text);    /* both alphabets, padding optional; MG_EINVAL */

#endif
