/* API keys in the database. */
#include "store/api-key.h"

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"

enum { KEY_RANDOM = 24 /* bytes: 48 hex digits */, HINT = 4 };

static const struct mg_stmt sql_issue = {
    "key_issue", "INSERT INTO api_keys (id, workspace_id, environment_id, name, secret_sha256, hint)"
                 " SELECT $1, w.id, $3, $4, $5, $6 FROM workspaces w WHERE w.id = $2 AND ($3::text IS NULL OR EXISTS"
                 " (SELECT 1 FROM environments e WHERE e.workspace_id = w.id AND e.id = $3 AND e.archived_at IS NULL)) "
                 "RETURNING id"};
static const struct mg_stmt sql_list = {
    "key_list",
    "SELECT id, workspace_id, environment_id, name, hint, bootstrap, mg_us(created_at), mg_us(revoked_at) FROM api_keys"
    " WHERE ($1 = '' OR workspace_id = $1) ORDER BY created_at DESC, id DESC"};
static const struct mg_stmt sql_revoke = {"key_revoke",
                                          "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())"
                                          " WHERE id = $1 AND ($2 = '' OR workspace_id = $2) RETURNING id"};
/* a statement of its own, after the commit; "-" is no node, so that every one listens */
static const struct mg_stmt sql_tell = {"key_tell", "SELECT pg_notify('mango_events', '- key:' || $1)"};
static const struct mg_stmt sql_lookup = {
    "key_lookup",
    "SELECT id, workspace_id, environment_id FROM api_keys WHERE secret_sha256 = $1 AND revoked_at IS NULL"};
static const struct mg_stmt sql_any = {"key_any", "SELECT EXISTS (SELECT 1 FROM api_keys WHERE revoked_at IS NULL)"};
static const struct mg_stmt sql_boot_lock = {"key_boot_lock",
                                             "SELECT pg_advisory_xact_lock(hashtext('mango.bootstrap_key'))"};
static const struct mg_stmt sql_boot_find = {"key_boot_find",
                                             "SELECT revoked_at IS NOT NULL FROM api_keys WHERE secret_sha256 = $1"};
static const struct mg_stmt sql_boot_retire = {"key_boot_retire",
                                               "UPDATE api_keys SET revoked_at = now() WHERE bootstrap AND revoked_at "
                                               "IS NULL AND secret_sha256 <> $1 RETURNING id"};
static const struct mg_stmt sql_boot_insert = {
    "key_boot_insert", "INSERT INTO api_keys (id, workspace_id, name, secret_sha256, hint, bootstrap)"
                       " VALUES ($1, 'wrkspc_default', 'MANGO_API_KEY', $2, $3, true)"};

static struct mg_sv hint_of(struct mg_sv secret)
{
    /* a short key would be given away by its last characters */
    return secret.len >= 4 * HINT ? mg_sv_from(secret, secret.len - HINT) : MG_SV("****");
}

/* Printable ASCII without spaces: what a header carries unchanged. */
static bool well_formed(struct mg_sv s)
{
    if (s.len == 0 || s.len > MG_API_KEY_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~')
            return false;
    }
    return true;
}

mg_rc mg_api_key_issue(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv environment, struct mg_sv name,
                       struct mg_id *ret_id, char ret_key[MG_API_KEY_TEXT], struct mg_err *err)
{
    uint8_t random[KEY_RANDOM];
    char text[MG_API_KEY_TEXT] = "mango_", digest[MG_SHA256_HEX];
    if (name.len == 0 || name.len > MG_API_KEY_NAME_MAX)
        return mg_err_set(err, MG_EINVAL, "name: must have 1 to %d bytes, has %zu", MG_API_KEY_NAME_MAX, name.len);
    mg_rng_bytes(random, sizeof(random));
    mg_hex(random, sizeof(random), text + 6);
    mg_sha256_hex(mg_sv_of(text), digest);

    struct mg_id id = mg_id_new("key");
    const struct mg_sv p[] = {mg_id_sv(&id), workspace,        environment.len ? environment : mg_p_null(),
                              name,          mg_sv_of(digest), hint_of(mg_sv_of(text))};
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql_issue, p, 6, &r, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "issue a key");
    if (mg_res_rows(r) == 0)
        return environment.len ? mg_err_set(err, MG_ENOTFOUND, "environment '%.*s' does not exist, or is archived",
                                            MG_SV_ARG(environment))
                               : mg_err_set(err, MG_ENOTFOUND, "workspace '%.*s' does not exist", MG_SV_ARG(workspace));
    memcpy(ret_key, text, sizeof(text));
    *ret_id = id;
    mg_wipe(text, sizeof(text));
    mg_wipe(random, sizeof(random));
    return MG_OK;
}

mg_rc mg_api_key_list(struct mg_pg *pg, struct mg_arena *a, struct mg_sv workspace, struct mg_api_key **ret, int *ret_n,
                      struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql_list, (const struct mg_sv[]){workspace.len ? workspace : MG_SV("")}, 1, &r, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "list keys");
    int n = mg_res_rows(r);
    struct mg_api_key *keys = mg_arena_alloc(a, (size_t)(n + 1) * sizeof(*keys));
    for (int i = 0; i < n; i++) {
        struct mg_sv env = mg_res_sv(r, i, 2);
        keys[i] = (struct mg_api_key){.id = mg_arena_sv(a, mg_res_sv(r, i, 0)),
                                      .workspace = mg_arena_sv(a, mg_res_sv(r, i, 1)),
                                      .environment = mg_arena_sv(a, env.ptr ? env : MG_SV("")),
                                      .name = mg_arena_sv(a, mg_res_sv(r, i, 3)),
                                      .hint = mg_arena_sv(a, mg_res_sv(r, i, 4)),
                                      .bootstrap = mg_res_bool(r, i, 5),
                                      .created_us = mg_res_time(r, i, 6),
                                      .revoked_us = mg_res_time(r, i, 7)};
    }
    *ret = keys;
    *ret_n = n;
    return MG_OK;
}

mg_rc mg_api_key_revoke(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    const struct mg_sv p[] = {id.len ? id : MG_SV(""), workspace.len ? workspace : MG_SV("")};
    mg_rc rc = mg_pg_exec(pg, &sql_revoke, p, 2, &r, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "revoke a key");
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "key '%.*s' does not exist", MG_SV_ARG(p[0]));
    struct mg_err ignored; /* it is revoked; a lost message costs MG_API_KEY_CACHE_MS */
    (void)!mg_pg_exec(pg, &sql_tell, (const struct mg_sv[]){id}, 1, NULL, &ignored);
    return MG_OK;
}

mg_rc mg_api_key_lookup(struct mg_pg *pg, struct mg_sv secret, struct mg_principal *ret, struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    if (!well_formed(secret))
        return mg_err_set(err, MG_EAUTH, "invalid API key");
    mg_sha256_hex(secret, digest);
    mg_rc rc = mg_pg_exec(pg, &sql_lookup, (const struct mg_sv[]){mg_sv_of(digest)}, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_EAUTH, "invalid API key");
    struct mg_principal who = {.kind = MG_BY_API_KEY};
    struct mg_sv env = mg_res_sv(r, 0, 2);
    bool good = mg_id_from(mg_res_sv(r, 0, 0), &who.key) && mg_id_from(mg_res_sv(r, 0, 1), &who.workspace);
    if (env.ptr) {
        who.kind = MG_BY_ENVIRONMENT_KEY;
        good = good && mg_id_from(env, &who.environment);
    }
    if (!good)
        return mg_err_set(err, MG_EINTERNAL, "the row of the API key is damaged");
    *ret = who;
    return MG_OK;
}

mg_rc mg_api_key_any(struct mg_pg *pg, bool *ret, struct mg_err *err)
{
    struct mg_res *r __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_rc rc = mg_pg_exec(pg, &sql_any, NULL, 0, &r, err);
    if (rc == 0)
        *ret = mg_res_bool(r, 0, 0);
    return rc;
}

static mg_rc bootstrap_in(struct mg_txn *t, struct mg_sv value, struct mg_res **ret_retired, struct mg_err *err)
{
    char digest[MG_SHA256_HEX];
    struct mg_res *found __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_sha256_hex(value, digest);
    const struct mg_sv d = mg_sv_of(digest);
    mg_rc rc = mg_txn_queue(t, &sql_boot_lock, NULL, 0, -1, err);
    if (rc == 0)
        rc = mg_txn_query(t, &sql_boot_find, &d, 1, &found, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(found) > 0 && mg_res_bool(found, 0, 0))
        return mg_err_set(err, MG_ECONFIG, "MANGO_API_KEY holds a key that has been revoked: set a new value");
    rc = mg_txn_query(t, &sql_boot_retire, &d, 1, ret_retired, err);
    if (rc == 0 && mg_res_rows(found) == 0) {
        struct mg_id id = mg_id_new("key");
        rc = mg_txn_queue(t, &sql_boot_insert, (const struct mg_sv[]){mg_id_sv(&id), d, hint_of(value)}, 3, 1, err);
    }
    return rc == 0 ? mg_txn_commit(t, err) : rc;
}

mg_rc mg_api_key_bootstrap(struct mg_pg *pg, struct mg_sv value, struct mg_err *err)
{
    if (value.len == 0)
        return MG_OK;
    if (!well_formed(value))
        return mg_err_set(err, MG_ECONFIG, "MANGO_API_KEY must have 1 to %d printable ASCII characters and no space",
                          MG_API_KEY_MAX);
    struct mg_res *retired __attribute__((cleanup(mg_res_cleanup))) = NULL;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_rc rc = bootstrap_in(&t, value, &retired, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "bootstrap key");
    for (int i = 0; i < mg_res_rows(retired); i++) {
        const struct mg_sv id = mg_res_sv(retired, i, 0);
        struct mg_err ignored;
        (void)!mg_pg_exec(pg, &sql_tell, &id, 1, NULL, &ignored);
    }
    return MG_OK;
}
