/* The keys that credentials are sealed with: a file of the operator's, beside the database and never in it.
 *
 *     {"active_key_id": "2026-11", "keys": {"2026-11": "BASE64 of 32 bytes", "2026-05": "..."}}
 *
 * New secrets are sealed with the active key; the others open what they sealed. Read-only after loading: any thread. */
#ifndef MG_STORE_KEYRING_H
#define MG_STORE_KEYRING_H

#include "base/buf.h"
#include "base/err.h"
#include "base/sv.h"

enum {
    MG_KEYRING_FILE_MAX = 64 * 1024, /* bytes of the file: semantics VA2 */
    MG_KEYRING_KEYS_MAX = 64,
    MG_KEYRING_ID_MAX = 64, /* characters of a key's id */
};

struct mg_keyring;

/* MG_ECONFIG: it cannot be read, others may read it, or something in it is wrong or not known. */
mg_rc mg_keyring_load(const char *path, struct mg_keyring **ret, struct mg_err *err) MG_MUSTCHECK;
void mg_keyring_free(struct mg_keyring *k); /* overwrites the keys; NULL is fine */
struct mg_sv mg_keyring_active(const struct mg_keyring *k);
bool mg_keyring_has(const struct mg_keyring *k, struct mg_sv key_id);
/* The text of a file with the keys of k (NULL: none) and a new active one, whose id is given. */
mg_rc mg_keyring_extend(const struct mg_keyring *k, struct mg_sv new_id, struct mg_buf *out,
                        struct mg_err *err) MG_MUSTCHECK;

/* Appends base64 text, sealed with the active key. */
mg_rc mg_keyring_seal(const struct mg_keyring *k, struct mg_sv associated, struct mg_sv plain, struct mg_buf *out,
                      struct mg_err *err) MG_MUSTCHECK;
/* Opens what the key with this id sealed. MG_ECONFIG: the keyring lacks it. MG_EINTERNAL: the row is damaged, or was
 * moved from another place. */
mg_rc mg_keyring_open(const struct mg_keyring *k, struct mg_sv key_id, struct mg_sv associated, struct mg_sv sealed,
                      struct mg_buf *out, struct mg_err *err) MG_MUSTCHECK;

#endif
