#include "store/deploy-token.h"

#include "base/mem.h"
#include "domain/repository.h"
#include "domain/vault.h"

enum {
    TOKENS_MAX = MG_SESSION_REPOSITORIES_MAX * 2 * MG_CREDENTIAL_TOKEN_MAX +
                 4096,           /* bytes as JSON, escaped, with a null for each other resource */
    SEALED_MAX = 2 * TOKENS_MAX, /* as base64 */
};

/* Moved to another row they open nothing. */
static struct mg_sv bound_to(struct mg_arena *a, struct mg_sv id)
{
    return mg_arena_printf(a, "mango-deployment-v1\n%.*s", MG_SV_ARG(id));
}

static mg_rc seal(struct mg_arena *a, const struct mg_keyring *k, struct mg_sv id, struct mg_sv tokens,
                  struct mg_sv *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(SEALED_MAX);
    mg_rc rc = mg_keyring_seal(k, bound_to(a, id), tokens, &sealed, err);
    if (rc >= 0)
        *ret = mg_arena_sv(a, mg_buf_view(&sealed));
    return rc;
}

mg_rc mg_deploy_seal(struct mg_arena *a, const struct mg_keyring *keyring, struct mg_deploy_row *row,
                     struct mg_err *err)
{
    if (!row->deploy.new_resources)
        return MG_OK;
    row->key_id = row->sealed = mg_p_null();
    if (!row->deploy.tokens.ptr)
        return MG_OK;
    row->key_id = mg_keyring_active(keyring);
    return seal(a, keyring, row->id, row->deploy.tokens, &row->sealed, err);
}

static mg_rc unseal(struct mg_arena *a, const struct mg_keyring *k, const struct mg_deploy_row *row, struct mg_buf *out,
                    struct mg_err *err)
{
    mg_rc rc = k ? mg_keyring_open(k, row->key_id, bound_to(a, row->id), row->sealed, out, err)
                 : mg_err_set(err, MG_ECONFIG, "this node has no keyring to open it (MANGO_VAULT_KEYRING_FILE)");
    return rc < 0 ? mg_err_wrap(err, rc, "deployment '%.*s'", MG_SV_ARG(row->id)) : MG_OK;
}

mg_rc mg_deploy_unseal(struct mg_arena *a, const struct mg_keyring *keyring, struct mg_deploy_row *row,
                       struct mg_err *err)
{
    mg_auto(secret) struct mg_buf tokens = MG_BUF_INIT(TOKENS_MAX);
    if (!row->sealed.ptr)
        return MG_OK;
    mg_arena_set_secret(a);
    mg_rc rc = unseal(a, keyring, row, &tokens, err);
    if (rc >= 0)
        rc = mg_repositories_join(a, row->deploy.resources, mg_arena_sv(a, mg_buf_view(&tokens)),
                                  &row->deploy.resources, err);
    return rc;
}

/* ---- keys ---- */

static const struct mg_stmt SQL_OLD_KEYS = {
    "deploy_old_keys",
    "SELECT id, key_id, secret FROM deployments WHERE secret IS NOT NULL AND key_id <> $1 ORDER BY id"};
static const struct mg_stmt SQL_REKEY = {
    "deploy_rekey", "UPDATE deployments SET key_id = $3, secret = $4 WHERE id = $1 AND secret = $2 RETURNING id"};

/* One that somebody changed in the meantime was sealed by them. */
static mg_rc rekey_one(struct mg_pg *pg, const struct mg_keyring *k, const struct mg_res *r, int i, int64_t *n,
                       struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(secret) struct mg_buf tokens = MG_BUF_INIT(TOKENS_MAX);
    mg_auto(res) struct mg_res *done = NULL;
    struct mg_sv sealed;
    const struct mg_deploy_row x = {
        .id = mg_res_sv(r, i, 0), .key_id = mg_res_sv(r, i, 1), .sealed = mg_res_sv(r, i, 2)};
    mg_rc rc = unseal(a, k, &x, &tokens, err);
    if (rc >= 0)
        rc = seal(a, k, x.id, mg_buf_view(&tokens), &sealed, err);
    if (rc >= 0)
        rc = mg_pg_exec(pg, &SQL_REKEY, (const struct mg_sv[]){x.id, x.sealed, mg_keyring_active(k), sealed}, 4, &done,
                        err);
    if (rc >= 0)
        *n += mg_res_rows(done);
    return rc;
}

mg_rc mg_deploys_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv active = mg_keyring_active(k);
    mg_rc rc = mg_pg_exec(pg, &SQL_OLD_KEYS, &active, 1, &r, err);
    for (int i = 0; rc >= 0 && i < mg_res_rows(r); i++)
        rc = rekey_one(pg, k, r, i, n, err);
    return rc;
}
