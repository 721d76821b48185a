#include "store/repository.h"

#include "base/mem.h"
#include "domain/check.h"
#include "domain/vault.h"
#include "store/row.h"

enum { SEALED_MAX = 2 * MG_CREDENTIAL_TOKEN_MAX /* bytes of a sealed token as base64 */ };

/* Moved to another row or URL it opens nothing. */
static struct mg_sv bound_to(struct mg_arena *a, struct mg_sv id, struct mg_sv url)
{
    return mg_arena_printf(a, "mango-repository-v1\n%.*s\n%.*s", MG_SV_ARG(id), MG_SV_ARG(url));
}

static mg_rc seal(struct mg_arena *a, const struct mg_keyring *k, struct mg_sv id, struct mg_sv url, struct mg_sv token,
                  struct mg_sv *ret, struct mg_err *err)
{
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(SEALED_MAX);
    mg_rc rc = mg_keyring_seal(k, bound_to(a, id, url), token, &sealed, err);
    if (rc >= 0)
        *ret = mg_arena_sv(a, mg_buf_view(&sealed));
    return rc;
}

/* ---- writing ---- */

static const struct mg_stmt SQL_INSERT = {
    "repository_insert",
    "INSERT INTO session_resources AS r (id, session_id, type, mount_path, url, checkout, key_id, secret)"
    " VALUES ($1, $2, 'github_repository', $3, $4, $5, $6, $7) RETURNING " MG_RESOURCE_COLUMNS,
};

mg_rc mg_repository_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_keyring *keyring, struct mg_sv session,
                           const struct mg_resource_spec *s, struct mg_resource_row *ret, struct mg_err *err)
{
    const struct mg_id id = mg_id_new("sesrsc");
    struct mg_sv sealed = mg_p_null();
    mg_rc rc = s->token.ptr ? seal(a, keyring, mg_id_sv(&id), s->url, s->token, &sealed, err) : MG_OK;
    const struct mg_sv p[] = {
        mg_id_sv(&id),
        session,
        s->mount_path,
        s->url,
        s->checkout.ptr ? s->checkout : mg_p_null(),
        s->token.ptr ? mg_keyring_active(keyring) : mg_p_null(),
        sealed,
    };
    return rc < 0 ? rc : mg_resource_insert_row(a, t, &SQL_INSERT, p, sizeof(p) / sizeof(p[0]), ret, err);
}

static const struct mg_stmt SQL_URL = {"repository_url",
                                       "SELECT url FROM session_resources WHERE session_id = $1 AND id = $2"};
static const struct mg_stmt SQL_SET_TOKEN = {
    "repository_set_token",
    "UPDATE session_resources AS r SET key_id = $3, secret = $4, updated_at = now() WHERE session_id = $1 AND id = $2"
    " RETURNING " MG_RESOURCE_COLUMNS,
};

mg_rc mg_repository_set_token(struct mg_arena *a, struct mg_txn *t, const struct mg_keyring *keyring,
                              struct mg_sv session, struct mg_sv id, struct mg_sv token, struct mg_resource_row *ret,
                              struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_URL, (const struct mg_sv[]){session, id}, 2, &r, err);
    if (rc >= 0 && mg_res_rows(r) == 0)
        rc = mg_resource_missing(id, err);
    if (rc >= 0 && !mg_res_sv(r, 0, 0).ptr)
        rc = mg_err_set(err, MG_EINVAL,
                        "authorization_token: only a github_repository has one; to change a file, remove the resource "
                        "and add another one");
    struct mg_sv sealed;
    if (rc >= 0)
        rc = seal(a, keyring, id, mg_res_sv(r, 0, 0), token, &sealed, err);
    if (rc < 0)
        return rc;
    const struct mg_sv p[] = {session, id, mg_keyring_active(keyring), sealed};
    return mg_resource_insert_row(a, t, &SQL_SET_TOKEN, p, sizeof(p) / sizeof(p[0]), ret, err);
}

static const struct mg_stmt SQL_FORGET = {
    "repositories_forget",
    "UPDATE session_resources SET key_id = NULL, secret = NULL WHERE session_id = $1 AND secret IS NOT NULL"};

mg_rc mg_repositories_forget(struct mg_txn *t, struct mg_sv session, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_FORGET, &session, 1, -1, err);
}

/* ---- reading ---- */

static const struct mg_stmt SQL_OF = {
    "repositories_of",
    "SELECT id, mount_path, url, checkout, key_id, secret FROM session_resources WHERE session_id = $1 AND url IS NOT "
    "NULL ORDER BY id",
};

static void fill_row(struct mg_arena *a, const struct mg_res *r, int i, void *row)
{
    struct mg_repository_row *x = row;
    *x = (struct mg_repository_row){
        .id = mg_res_sv(r, i, 0),
        .mount_path = mg_res_sv(r, i, 1),
        .url = mg_res_sv(r, i, 2),
        .checkout = mg_res_sv(r, i, 3),
        .key_id = mg_res_sv(r, i, 4),
        .sealed = mg_res_sv(r, i, 5),
    };
    struct mg_sv *const views[] = {&x->id, &x->mount_path, &x->url, &x->checkout, &x->key_id, &x->sealed};
    mg_row_keep(a, views, sizeof(views) / sizeof(views[0]));
}

mg_rc mg_repositories_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_repository_row **ret,
                         int *ret_n, struct mg_err *err)
{
    void *rows = NULL;
    mg_rc rc = mg_row_list(a, pg, &SQL_OF, &session, 1, sizeof(**ret), fill_row, &rows, ret_n, err);
    *ret = rows;
    return rc;
}

/* ---- keys ---- */

mg_rc mg_repository_token(const struct mg_keyring *keyring, const struct mg_repository_row *x, struct mg_buf *out,
                          struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    if (!keyring)
        return mg_err_set(err, MG_ECONFIG, "this node has no keyring to open it (MANGO_VAULT_KEYRING_FILE)");
    return mg_keyring_open(keyring, x->key_id, bound_to(a, x->id, x->url), x->sealed, out, err);
}

static const struct mg_stmt SQL_OLD_KEYS = {
    "repository_old_keys",
    "SELECT id, mount_path, url, checkout, key_id, secret FROM session_resources WHERE secret IS NOT NULL AND key_id "
    "<> "
    "$1 ORDER BY id",
};
static const struct mg_stmt SQL_REKEY = {
    "repository_rekey",
    "UPDATE session_resources SET key_id = $3, secret = $4 WHERE id = $1 AND secret = $2 RETURNING id"};

/* One that somebody changed in the meantime was sealed by them. */
static mg_rc rekey_one(struct mg_arena *a, struct mg_pg *pg, const struct mg_keyring *k,
                       const struct mg_repository_row *x, int64_t *n, struct mg_err *err)
{
    mg_auto(secret) struct mg_buf token = MG_BUF_INIT(MG_CREDENTIAL_TOKEN_MAX);
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv sealed;
    mg_rc rc = mg_repository_token(k, x, &token, err);
    if (rc >= 0)
        rc = seal(a, k, x->id, x->url, mg_buf_view(&token), &sealed, err);
    if (rc < 0)
        return mg_err_wrap(err, rc, "resource '%.*s'", MG_SV_ARG(x->id));
    const struct mg_sv p[] = {x->id, x->sealed, mg_keyring_active(k), sealed};
    rc = mg_pg_exec(pg, &SQL_REKEY, p, sizeof(p) / sizeof(p[0]), &r, err);
    if (rc >= 0)
        *n += mg_res_rows(r);
    return rc;
}

mg_rc mg_repositories_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    struct mg_sv active = mg_keyring_active(k);
    void *rows = NULL;
    int count = 0;
    mg_rc rc =
        mg_row_list(a, pg, &SQL_OLD_KEYS, &active, 1, sizeof(struct mg_repository_row), fill_row, &rows, &count, err);
    for (int i = 0; rc >= 0 && i < count; i++)
        rc = rekey_one(a, pg, k, &((struct mg_repository_row *)rows)[i], n, err);
    return rc;
}
