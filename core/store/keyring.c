#include "store/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "crypto/seal.h"
#include "json/json.h"
#include "json/write.h"

enum { SEALED_MAX = 1024 * 1024 /* bytes of one sealed text, far above any credential */ };

struct key {
    char id[MG_KEYRING_ID_MAX + 1];
    uint8_t bytes[MG_SEAL_KEY];
};

struct mg_keyring {
    struct key keys[MG_KEYRING_KEYS_MAX];
    int n, active;
};

void mg_keyring_free(struct mg_keyring *k)
{
    if (!k)
        return;
    mg_wipe(k, sizeof(*k));
    free(k);
}

static int find(const struct mg_keyring *k, struct mg_sv id)
{
    for (int i = 0; i < k->n; i++)
        if (mg_sv_eqz(id, k->keys[i].id))
            return i;
    return -1;
}

/* ---- the file ---- */

static bool id_ok(struct mg_sv id)
{
    for (size_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
        if (!ok)
            return false;
    }
    return id.len > 0 && id.len <= MG_KEYRING_ID_MAX;
}

static mg_rc wrong(struct mg_err *err, const char *path, const char *what)
{
    return mg_err_set(err, MG_ECONFIG, "MANGO_VAULT_KEYRING_FILE=%s: %s", path, what);
}

static mg_rc take_key(struct mg_keyring *k, struct mg_arena *a, const struct mg_json *v, const char *path,
                      struct mg_err *err)
{
    mg_auto(secret) struct mg_buf raw = MG_BUF_INIT(MG_KEYRING_FILE_MAX);
    if (!id_ok(v->key))
        return wrong(err, path, "the id of a key has 1 to 64 letters, digits, '-', '_' and '.'");
    if (find(k, v->key) >= 0)
        return wrong(err, path, "two keys have the same id");
    if (k->n == MG_KEYRING_KEYS_MAX)
        return wrong(err, path, "more than 64 keys; run `mango vault rekey` and remove retired ones");
    if (v->type != MG_JSON_STRING || mg_base64_decode(&raw, mg_json_str(a, v)) < 0 || raw.len != MG_SEAL_KEY)
        return wrong(err, path, "each key is the base64 of exactly 32 bytes; `mango vault new-key` makes one");
    struct key *to = &k->keys[k->n++];
    (void)snprintf(to->id, sizeof(to->id), "%.*s", MG_SV_ARG(v->key));
    memcpy(to->bytes, raw.ptr, MG_SEAL_KEY);
    return MG_OK;
}

static mg_rc parse(struct mg_keyring *k, struct mg_arena *a, struct mg_sv text, const char *path, struct mg_err *err)
{
    struct mg_json *v;
    struct mg_err why = {0};
    const struct mg_json *active = NULL, *keys = NULL;
    if (mg_json_parse(a, text, &mg_json_api_limits, &v, &why) < 0 || v->type != MG_JSON_OBJECT)
        return wrong(err, path, "is not a JSON object"); /* not why: the text may hold a part of a key */
    for (const struct mg_json *m = v->child; m; m = m->next) {
        if (mg_sv_eqz(m->key, "active_key_id"))
            active = m;
        else if (mg_sv_eqz(m->key, "keys"))
            keys = m;
        else
            return wrong(err, path, "holds a member that is neither active_key_id nor keys");
    }
    if (!active || !keys || !mg_json_is(active, MG_JSON_STRING) || !mg_json_is(keys, MG_JSON_OBJECT))
        return wrong(err, path, "needs active_key_id (a string) and keys (an object)");
    for (const struct mg_json *m = keys->child; m; m = m->next) {
        mg_rc rc = take_key(k, a, m, path, err);
        if (rc < 0)
            return rc;
    }
    k->active = find(k, mg_json_str(a, active));
    return k->active < 0 ? wrong(err, path, "active_key_id names no key of keys") : MG_OK;
}

/* *ret has room for one byte more than a file may have. */
static mg_rc read_file(const char *path, char *ret, size_t *ret_len, struct mg_err *err)
{
    struct stat st;
    mg_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wrong(err, path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return wrong(err, path, "is not a regular file");
    if (st.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
        return wrong(err, path, "others may read or write it: chmod 600 (or 640)");
    for (*ret_len = 0; *ret_len <= MG_KEYRING_FILE_MAX;) {
        ssize_t n = read(fd, ret + *ret_len, MG_KEYRING_FILE_MAX + 1 - *ret_len);
        if (n < 0 && errno != EINTR)
            return wrong(err, path, strerror(errno));
        if (n == 0)
            return MG_OK;
        *ret_len += n > 0 ? (size_t)n : 0;
    }
    return wrong(err, path, "is larger than 65536 bytes");
}

mg_rc mg_keyring_load(const char *path, struct mg_keyring **ret, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    size_t len = 0;
    mg_arena_set_secret(a);
    char *text = mg_arena_alloc(a, MG_KEYRING_FILE_MAX + 1);
    struct mg_keyring *k = mg_xcalloc(1, sizeof(*k));
    mg_rc rc = read_file(path, text, &len, err);
    if (rc == MG_OK)
        rc = parse(k, a, mg_sv_n(text, len), path, err);
    if (rc == MG_OK)
        *ret = k;
    else
        mg_keyring_free(k);
    return rc;
}

struct mg_sv mg_keyring_active(const struct mg_keyring *k)
{
    return mg_sv_of(k->keys[k->active].id);
}

bool mg_keyring_has(const struct mg_keyring *k, struct mg_sv key_id)
{
    return find(k, key_id) >= 0;
}

static void write_key(struct mg_jw *w, const char *id, const uint8_t *bytes)
{
    mg_auto(secret) struct mg_buf text = MG_BUF_INIT(256);
    (void)mg_base64_encode(&text, mg_sv_n((const char *)bytes, MG_SEAL_KEY));
    mg_jw_kstr(w, id, mg_buf_view(&text));
}

mg_rc mg_keyring_extend(const struct mg_keyring *k, struct mg_sv new_id, struct mg_buf *out, struct mg_err *err)
{
    char id[MG_KEYRING_ID_MAX + 1];
    uint8_t bytes[MG_SEAL_KEY];
    if (!id_ok(new_id))
        return mg_err_set(err, MG_EINVAL, "a key's id has 1 to %d letters, digits, '-', '_' and '.'",
                          MG_KEYRING_ID_MAX);
    if (k && find(k, new_id) >= 0)
        return mg_err_set(err, MG_EINVAL, "the keyring has a key '%.*s' already", MG_SV_ARG(new_id));
    if (k && k->n == MG_KEYRING_KEYS_MAX)
        return mg_err_set(err, MG_EINVAL, "the keyring has %d keys; remove retired ones first", MG_KEYRING_KEYS_MAX);
    (void)snprintf(id, sizeof(id), "%.*s", MG_SV_ARG(new_id));
    mg_rng_bytes(bytes, sizeof(bytes));
    mg_rc rc = mg_buf_reserve(out, MG_KEYRING_FILE_MAX);
    struct mg_jw w = mg_jw_to(out);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "active_key_id", id);
    mg_jw_key(&w, "keys");
    mg_jw_obj(&w);
    for (int i = 0; k && i < k->n; i++)
        write_key(&w, k->keys[i].id, k->keys[i].bytes);
    write_key(&w, id, bytes);
    mg_jw_obj_end(&w);
    mg_jw_obj_end(&w);
    mg_wipe(bytes, sizeof(bytes));
    return rc;
}

/* ---- texts ---- */

mg_rc mg_keyring_seal(const struct mg_keyring *k, struct mg_sv associated, struct mg_sv plain, struct mg_buf *out,
                      struct mg_err *err)
{
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(SEALED_MAX);
    mg_rc rc = mg_seal(k->keys[k->active].bytes, associated, plain, &sealed);
    if (rc == MG_OK)
        rc = mg_base64_encode(out, mg_buf_view(&sealed));
    return rc < 0 ? mg_err_set(err, MG_EINVAL, "the credential is too large") : MG_OK;
}

mg_rc mg_keyring_open(const struct mg_keyring *k, struct mg_sv key_id, struct mg_sv associated, struct mg_sv sealed,
                      struct mg_buf *out, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf raw = MG_BUF_INIT(SEALED_MAX);
    int i = find(k, key_id);
    if (i < 0)
        return mg_err_set(err, MG_ECONFIG,
                          "a credential is sealed with key '%.*s', which is not in MANGO_VAULT_KEYRING_FILE",
                          MG_SV_ARG(key_id));
    if (mg_base64_decode(&raw, sealed) < 0 || mg_unseal(k->keys[i].bytes, associated, mg_buf_view(&raw), out) < 0)
        return mg_err_set(err, MG_EINTERNAL,
                          "the stored secret of a credential does not open: the row is damaged, was copied from "
                          "another one, or key '%.*s' is not the key of that name that sealed it",
                          MG_SV_ARG(key_id));
    return MG_OK;
}
