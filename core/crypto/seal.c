/* AES-256-GCM and HMAC through OpenSSL's EVP. */
#include "crypto/seal.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include "base/rng.h"

enum { PLAIN_MAX = 1024 * 1024 /* bytes of one text: EVP counts in int */ };

/* One pass of the cipher over data; tag is written when encrypting, and compared when decrypting. */
static bool run(bool encrypt, const uint8_t *key, const uint8_t *nonce, struct mg_sv associated, struct mg_sv data,
                uint8_t *out, uint8_t tag[MG_SEAL_TAG])
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0, m = 0;
    bool good = ctx && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce, encrypt) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &n, (const uint8_t *)associated.ptr, (int)associated.len) == 1 &&
                EVP_CipherUpdate(ctx, out, &n, (const uint8_t *)data.ptr, (int)data.len) == 1 &&
                (encrypt || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, MG_SEAL_TAG, tag) == 1) &&
                EVP_CipherFinal_ex(ctx, out + n, &m) == 1 &&
                (!encrypt || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, MG_SEAL_TAG, tag) == 1);
    EVP_CIPHER_CTX_free(ctx); /* wipes its state */
    return good;
}

mg_rc mg_seal(const uint8_t key[MG_SEAL_KEY], struct mg_sv associated, struct mg_sv plain, struct mg_buf *out)
{
    uint8_t nonce[MG_SEAL_NONCE], tag[MG_SEAL_TAG];
    if (plain.len > PLAIN_MAX || associated.len > PLAIN_MAX)
        return MG_ETOOBIG;
    mg_rc rc = mg_buf_reserve(out, sizeof(nonce) + plain.len + sizeof(tag));
    if (rc < 0)
        return rc;
    mg_rng_bytes(nonce, sizeof(nonce));
    uint8_t *at = (uint8_t *)out->ptr + out->len;
    if (!run(true, key, nonce, associated, plain, at + sizeof(nonce), tag))
        abort(); /* OpenSSL is broken or out of memory: nothing that it made may be stored */
    memcpy(at, nonce, sizeof(nonce));
    memcpy(at + sizeof(nonce) + plain.len, tag, sizeof(tag));
    mg_buf_added(out, sizeof(nonce) + plain.len + sizeof(tag));
    return MG_OK;
}

mg_rc mg_unseal(const uint8_t key[MG_SEAL_KEY], struct mg_sv associated, struct mg_sv sealed, struct mg_buf *out)
{
    uint8_t tag[MG_SEAL_TAG];
    if (sealed.len < MG_SEAL_NONCE + MG_SEAL_TAG || sealed.len > PLAIN_MAX)
        return MG_EINVAL;
    struct mg_sv text = mg_sv_n(sealed.ptr + MG_SEAL_NONCE, sealed.len - MG_SEAL_NONCE - MG_SEAL_TAG);
    mg_rc rc = mg_buf_reserve(out, text.len);
    if (rc < 0)
        return rc;
    memcpy(tag, text.ptr + text.len, sizeof(tag));
    uint8_t *at = (uint8_t *)out->ptr + out->len;
    if (!run(false, key, (const uint8_t *)sealed.ptr, associated, text, at, tag)) {
        mg_wipe(at, text.len); /* what does not prove itself is shown to nobody */
        return MG_EINVAL;
    }
    mg_buf_added(out, text.len);
    return MG_OK;
}

void mg_hmac_sha256(struct mg_sv key, struct mg_sv data, uint8_t out[32])
{
    unsigned n = 32;
    if (!HMAC(EVP_sha256(), key.ptr, (int)key.len, (const uint8_t *)data.ptr, data.len, out, &n))
        abort();
}
