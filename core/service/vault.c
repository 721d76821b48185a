#include "service/vault.h"

#include "domain/check.h"

mg_rc mg_vaults_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                       struct mg_vault_row *ret, struct mg_err *err)
{
    struct mg_vault v;
    const struct mg_id id = mg_id_new("vlt");
    mg_rc rc = mg_vault_parse_create(a, body, &v, err);
    return rc < 0 ? rc : mg_vault_insert(a, pg, mg_id_sv(&who->workspace), &id, &v, ret, err);
}

static mg_rc not_archived(const struct mg_vault_row *v, struct mg_err *err)
{
    if (v->archived_us == INT64_MIN)
        return MG_OK;
    return mg_err_code(err, MG_EINVAL, "vault_archived", "vault '%.*s' is archived and cannot be changed",
                       MG_SV_ARG(v->id));
}

mg_rc mg_vaults_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       const struct mg_json *body, struct mg_vault_row *ret, struct mg_err *err)
{
    struct mg_vault v;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_vault_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc >= 0)
        rc = not_archived(ret, err);
    if (rc >= 0)
        rc = mg_vault_parse_update(a, body, &ret->vault, &v, err);
    if (rc >= 0)
        rc = mg_vault_save(a, &t, ret, &v, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_vaults_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                        struct mg_vault_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_vault_lock(a, &t, mg_id_sv(&who->workspace), id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_vault_set_archived(&t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_vaults_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       struct mg_err *err)
{
    struct mg_vault_row row;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_vault_lock(a, &t, mg_id_sv(&who->workspace), id, &row, err);
    if (rc >= 0)
        rc = mg_vault_delete(&t, &row, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

/* ---- credentials ---- */

mg_rc mg_needs_keyring(const struct mg_keyring *keyring, struct mg_err *err)
{
    if (keyring)
        return MG_OK;
    return mg_err_code(
        err, MG_EINVAL, "vault_keyring_missing",
        "this server keeps no credentials, since it has no keyring to seal them with: the operator makes "
        "one with `mango vault new-key` and names it in MANGO_VAULT_KEYRING_FILE");
}

mg_rc mg_credentials_create(const struct mg_vault_rules *rules, struct mg_pg *pg, struct mg_arena *a,
                            const struct mg_principal *who, struct mg_sv vault, const struct mg_json *body,
                            struct mg_credential_row *ret, struct mg_err *err)
{
    struct mg_vault_row v;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    struct mg_id *id = mg_arena_new_of(a, struct mg_id);
    *id = mg_id_new("vcrd");
    *ret = (struct mg_credential_row){.id = mg_id_sv(id)};
    mg_rc rc = mg_needs_keyring(rules->keyring, err);
    if (rc >= 0)
        rc = mg_credential_parse_create(a, body, rules->allow_http, &ret->cred, err);
    if (rc >= 0)
        rc = mg_vault_lock(a, &t, mg_id_sv(&who->workspace), vault, &v, err);
    if (rc >= 0)
        rc = not_archived(&v, err);
    if (rc >= 0)
        rc = mg_credential_check_room(&t, v.id, ret->cred.server, err);
    if (rc < 0)
        return rc;
    ret->vault_id = v.id;
    rc = mg_credential_seal(a, rules->keyring, ret, err);
    if (rc >= 0)
        rc = mg_credential_insert(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

static mg_rc lock(struct mg_arena *a, struct mg_txn *t, const struct mg_principal *who, struct mg_sv vault,
                  struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err)
{
    struct mg_vault_row v;
    mg_rc rc = mg_vault_lock(a, t, mg_id_sv(&who->workspace), vault, &v, err);
    return rc < 0 ? rc : mg_credential_lock(a, t, mg_id_sv(&who->workspace), vault, id, ret, err);
}

mg_rc mg_credentials_update(const struct mg_vault_rules *rules, struct mg_pg *pg, struct mg_arena *a,
                            const struct mg_principal *who, struct mg_sv vault, struct mg_sv id,
                            const struct mg_json *body, struct mg_credential_row *ret, struct mg_err *err)
{
    struct mg_credential changed;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = mg_needs_keyring(rules->keyring, err);
    if (rc >= 0)
        rc = lock(a, &t, who, vault, id, ret, err);
    if (rc >= 0 && ret->archived_us != INT64_MIN)
        rc = mg_err_set(err, MG_EINVAL, "credential '%.*s' is archived and cannot be changed", MG_SV_ARG(ret->id));
    if (rc >= 0)
        rc = mg_credential_unseal(a, rules->keyring, ret, err);
    if (rc >= 0)
        rc = mg_credential_parse_update(a, body, &ret->cred, &changed, err);
    if (rc < 0)
        return rc;
    ret->cred = changed;
    rc = mg_credential_seal(a, rules->keyring, ret, err);
    if (rc >= 0)
        rc = mg_credential_save(a, &t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_credentials_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv vault,
                             struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err)
{
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock(a, &t, who, vault, id, ret, err);
    if (rc < 0 || ret->archived_us != INT64_MIN)
        return rc;
    rc = mg_credential_set_archived(&t, ret, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

mg_rc mg_credentials_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv vault,
                            struct mg_sv id, struct mg_err *err)
{
    struct mg_credential_row row;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = lock(a, &t, who, vault, id, &row, err);
    if (rc >= 0)
        rc = mg_credential_delete(&t, &row, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}
