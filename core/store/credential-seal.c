/* Sealing and opening of stored secrets, the claim of a refresh, and the change of keys. */
#include "base/mem.h"
#include "store/vault.h"

enum { REKEY_BATCH = 50 /* rows that are opened and sealed between two looks */ };

static struct mg_sv bound_to(struct mg_arena *a, const struct mg_credential_row *x)
{
    return mg_credential_associated(a, x->vault_id, x->id, x->cred.server, x->cred.auth);
}

mg_rc mg_credential_seal(struct mg_arena *a, const struct mg_keyring *k, struct mg_credential_row *row,
                         struct mg_err *err)
{
    mg_auto(secret) struct mg_buf plain = MG_BUF_INIT(MG_CREDENTIAL_SECRET_MAX);
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(2 * MG_CREDENTIAL_SECRET_MAX);
    mg_rc rc = mg_credential_secret_write(&row->cred.secret, &plain);
    if (rc >= 0)
        rc = mg_keyring_seal(k, bound_to(a, row), mg_buf_view(&plain), &sealed, err);
    if (rc < 0)
        return mg_err_set(err, MG_EINVAL, "auth: its secrets together are over %d bytes", MG_CREDENTIAL_SECRET_MAX);
    row->key_id = mg_keyring_active(k);
    row->sealed = mg_arena_sv(a, mg_buf_view(&sealed));
    return MG_OK;
}

mg_rc mg_credential_unseal(struct mg_arena *a, const struct mg_keyring *k, struct mg_credential_row *row,
                           struct mg_err *err)
{
    mg_auto(secret) struct mg_buf plain = MG_BUF_INIT(MG_CREDENTIAL_SECRET_MAX);
    mg_rc rc = mg_keyring_open(k, row->key_id, bound_to(a, row), row->sealed, &plain, err);
    if (rc < 0)
        return rc;
    return mg_credential_secret_read(a, mg_arena_sv(a, mg_buf_view(&plain)), &row->cred.secret, err);
}

/* ---- refreshing ---- */

/* sealed is what was read: when another node has changed it since, there is nothing to claim. */
static const struct mg_stmt SQL_CLAIM = {
    "credential_claim",
    "UPDATE vault_credentials SET refresh_until = clock_timestamp() + $3::int * interval '1 second' WHERE id = $1"
    " AND secret = $2 AND (refresh_until IS NULL OR refresh_until < clock_timestamp()) RETURNING id",
};

mg_rc mg_credential_claim_refresh(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_sv sealed,
                                  bool *ret_mine, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc =
        mg_pg_exec(pg, &SQL_CLAIM, (const struct mg_sv[]){id, sealed, mg_p_int(a, MG_REFRESH_CLAIM_S)}, 3, &r, err);
    if (rc >= 0)
        *ret_mine = mg_res_rows(r) == 1;
    return rc;
}

static const struct mg_stmt SQL_LEAVE = {
    "credential_leave",
    "UPDATE vault_credentials SET refresh_until = NULL, refresh_failed_at = CASE WHEN $2::bool THEN now() ELSE"
    " refresh_failed_at END WHERE id = $1",
};

mg_rc mg_credential_leave_refresh(struct mg_pg *pg, struct mg_sv id, bool refused, struct mg_err *err)
{
    return mg_pg_exec(pg, &SQL_LEAVE, (const struct mg_sv[]){id, mg_p_bool(refused)}, 2, NULL, err);
}

/* ---- keys ---- */

static const struct mg_stmt SQL_KEYS = {
    "vault_keys",
    "SELECT key_id, count(*), kind FROM (SELECT key_id, 'credential' AS kind FROM vault_credentials WHERE secret IS NOT"
    " NULL UNION ALL SELECT key_id, 'webhook' FROM webhooks UNION ALL SELECT key_id, 'repository token' FROM"
    " session_resources WHERE secret IS NOT NULL UNION ALL SELECT key_id, 'deployment' FROM deployments WHERE secret "
    "IS NOT NULL) s GROUP BY key_id, kind ORDER BY key_id, kind",
};

mg_rc mg_vault_check_keyring(struct mg_pg *pg, const struct mg_keyring *k, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_KEYS, NULL, 0, &r, err);
    for (int i = 0; rc >= 0 && i < mg_res_rows(r); i++) {
        struct mg_sv id = mg_res_sv(r, i, 0), kind = mg_res_sv(r, i, 2);
        long long n = (long long)mg_res_int(r, i, 1);
        if (!k)
            return mg_err_set(err, MG_ECONFIG,
                              "%lld stored %.*s%s sealed with key '%.*s', and MANGO_VAULT_KEYRING_FILE is not "
                              "set; name the keyring file that holds the key",
                              n, MG_SV_ARG(kind), n == 1 ? " is" : "s are", MG_SV_ARG(id));
        if (!mg_keyring_has(k, id))
            return mg_err_set(err, MG_ECONFIG,
                              "%lld stored %.*s%s sealed with key '%.*s', which MANGO_VAULT_KEYRING_FILE lacks; "
                              "put the key back, and run `mango vault rekey` before a key is removed",
                              n, MG_SV_ARG(kind), n == 1 ? " is" : "s are", MG_SV_ARG(id));
    }
    return rc;
}

static const struct mg_stmt SQL_OLD = {
    "vault_old_keys",
    "SELECT id, vault_id, server, auth, key_id, secret FROM vault_credentials WHERE secret IS NOT NULL"
    " AND key_id <> $1 AND id > $2 ORDER BY id LIMIT $3::int",
};
static const struct mg_stmt SQL_REKEY = {
    "vault_rekey",
    "UPDATE vault_credentials SET key_id = $3, secret = $4 WHERE id = $1 AND secret = $2 RETURNING id",
};

/* One that somebody changed in the meantime was sealed by them. */
static mg_rc rekey_one(struct mg_pg *pg, const struct mg_keyring *k, const struct mg_res *r, int i, int64_t *n,
                       struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(res) struct mg_res *done = NULL;
    mg_arena_set_secret(a);
    struct mg_credential_row x = {
        .id = mg_res_sv(r, i, 0),
        .vault_id = mg_res_sv(r, i, 1),
        .cred = {.server = mg_res_sv(r, i, 2), .auth = mg_res_sv(r, i, 3)},
        .key_id = mg_res_sv(r, i, 4),
        .sealed = mg_res_sv(r, i, 5),
    };
    struct mg_sv before = x.sealed;
    mg_rc rc = mg_credential_unseal(a, k, &x, err);
    if (rc >= 0)
        rc = mg_credential_seal(a, k, &x, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "credential '%.*s'", MG_SV_ARG(x.id));
    rc = mg_pg_exec(pg, &SQL_REKEY, (const struct mg_sv[]){x.id, before, x.key_id, x.sealed}, 4, &done, err);
    if (rc >= 0)
        *n += mg_res_rows(done);
    return rc;
}

mg_rc mg_vault_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *ret_n, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_sv after = MG_SV("");
    *ret_n = 0;
    for (;;) {
        mg_auto(res) struct mg_res *r = NULL;
        const struct mg_sv p[] = {mg_keyring_active(k), after, mg_p_int(a, REKEY_BATCH)};
        mg_rc rc = mg_pg_exec(pg, &SQL_OLD, p, 3, &r, err);
        int n = rc < 0 ? 0 : mg_res_rows(r);
        for (int i = 0; i < n && rc >= 0; i++)
            rc = rekey_one(pg, k, r, i, ret_n, err);
        if (rc < 0 || n == 0)
            return rc;
        after = mg_arena_sv(a, mg_res_sv(r, n - 1, 0));
    }
}
