/* SHA-256 through OpenSSL's EVP, hex, constant-time comparison. OpenSSL failing here means that it is broken or out of
 * memory; a wrong digest would be worse than an end. */
#include "crypto/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

struct mg_sha256; /* is an EVP_MD_CTX */

static void must(int ok)
{
    if (!ok)
        abort();
}

void mg_sha256(struct mg_sv data, uint8_t out[MG_SHA256_LEN])
{
    must(EVP_Digest(data.ptr, data.len, out, NULL, EVP_sha256(), NULL));
}

void mg_sha256_hex(struct mg_sv data, char out[MG_SHA256_HEX])
{
    uint8_t raw[MG_SHA256_LEN];

    mg_sha256(data, raw);
    mg_hex(raw, sizeof(raw), out);
}

struct mg_sha256 *mg_sha256_new(void)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    must(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL));
    return (struct mg_sha256 *)ctx;
}

void mg_sha256_update(struct mg_sha256 *h, const void *p, size_t n)
{
    must(EVP_DigestUpdate((EVP_MD_CTX *)h, p, n));
}

void mg_sha256_final_hex(struct mg_sha256 *h, char out[MG_SHA256_HEX])
{
    uint8_t raw[MG_SHA256_LEN];

    must(EVP_DigestFinal_ex((EVP_MD_CTX *)h, raw, NULL));
    EVP_MD_CTX_free((EVP_MD_CTX *)h);
    mg_hex(raw, sizeof(raw), out);
}

void mg_hex(const uint8_t *p, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * n] = '\0';
}

bool mg_secret_eq(struct mg_sv a, struct mg_sv b)
{
    return a.len == b.len && (a.len == 0 || CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0);
}
