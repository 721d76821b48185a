/* Rows of vault_credentials. */
#include "base/mem.h"
#include "domain/check.h"
#include "store/vault.h"
#include "store/row.h"

#define COLUMNS                                                                                                 \
    "c.id, c.vault_id, c.display_name, c.metadata, c.server, c.auth, mg_us(c.expires_at), c.key_id, c.secret, " \
    "mg_us(c.created_at), mg_us(c.updated_at), mg_us(c.archived_at)"

static struct mg_credential_row from_row(const struct mg_res *r, int i)
{
    return (struct mg_credential_row){
        .id = mg_res_sv(r, i, 0),
        .vault_id = mg_res_sv(r, i, 1),
        .cred =
            {
                .name = mg_res_sv(r, i, 2),
                .metadata = mg_res_sv(r, i, 3),
                .server = mg_res_sv(r, i, 4),
                .auth = mg_res_sv(r, i, 5),
                .expires_us = mg_res_time(r, i, 6),
            },
        .key_id = mg_res_sv(r, i, 7),
        .sealed = mg_res_sv(r, i, 8),
        .created_us = mg_res_time(r, i, 9),
        .updated_us = mg_res_time(r, i, 10),
        .archived_us = mg_res_time(r, i, 11),
    };
}

static void keep(struct mg_arena *a, struct mg_credential_row *x)
{
    struct mg_sv *const texts[] = {&x->id,          &x->vault_id,  &x->cred.name, &x->cred.metadata,
                                   &x->cred.server, &x->cred.auth, &x->key_id,    &x->sealed};
    mg_row_keep(a, texts, sizeof(texts) / sizeof(texts[0]));
}

static mg_rc take(struct mg_arena *a, const struct mg_res *r, struct mg_sv id, struct mg_credential_row *ret,
                  struct mg_err *err)
{
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "credential '%.*s' does not exist in this vault",
                          MG_SV_ARG(mg_shown_id(id)));
    *ret = from_row(r, 0);
    keep(a, ret);
    return MG_OK;
}

/* ---- writing ---- */

static const struct mg_stmt SQL_ROOM = {
    "credential_room",
    "SELECT count(*), count(*) FILTER (WHERE server = $2) FROM vault_credentials"
    " WHERE vault_id = $1 AND archived_at IS NULL",
};

mg_rc mg_credential_check_room(struct mg_txn *t, struct mg_sv vault, struct mg_sv server, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_ROOM, (const struct mg_sv[]){vault, server}, 2, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_int(r, 0, 1))
        return mg_err_set(err, MG_ECONFLICT,
                          "auth.mcp_server_url: the vault has a credential for this server already; update it, or "
                          "archive it first");
    if (mg_res_int(r, 0, 0) >= MG_VAULT_CREDENTIALS_MAX)
        return mg_err_set(err, MG_EINVAL,
                          "the vault has %d credentials, which is the most that one may have; archive or delete some, "
                          "or use another vault",
                          MG_VAULT_CREDENTIALS_MAX);
    return MG_OK;
}

static const struct mg_stmt SQL_INSERT = {
    "credential_insert",
    "INSERT INTO vault_credentials AS c (id, vault_id, display_name, metadata, server, auth, expires_at, key_id, "
    "secret)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7::timestamptz, $8, $9) RETURNING " COLUMNS,
};

mg_rc mg_credential_insert(struct mg_arena *a, struct mg_txn *t, struct mg_credential_row *row, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_credential *c = &row->cred;
    const struct mg_sv p[] = {
        row->id,     row->vault_id, c->name, c->metadata, c->server, c->auth, mg_p_time(a, c->expires_us),
        row->key_id, row->sealed};
    mg_rc rc = mg_txn_query(t, &SQL_INSERT, p, 9, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

static const struct mg_stmt SQL_SAVE = {
    "credential_save",
    "UPDATE vault_credentials c SET display_name = $2, metadata = $3, auth = $4, expires_at = $5::timestamptz,"
    " key_id = $6, secret = $7, refresh_until = NULL, updated_at = now() WHERE id = $1 RETURNING " COLUMNS,
};

mg_rc mg_credential_save(struct mg_arena *a, struct mg_txn *t, struct mg_credential_row *row, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_credential *c = &row->cred;
    const struct mg_sv p[] = {row->id,     c->name,    c->metadata, c->auth, mg_p_time(a, c->expires_us),
                              row->key_id, row->sealed};
    mg_rc rc = mg_txn_query(t, &SQL_SAVE, p, 7, &r, err);
    return rc < 0 ? rc : take(a, r, row->id, row, err);
}

static const struct mg_stmt SQL_ARCHIVE = {
    "credential_archive",
    "UPDATE vault_credentials SET archived_at = now(), updated_at = now(), secret = NULL, key_id = NULL"
    " WHERE id = $1 RETURNING mg_us(archived_at)",
};

mg_rc mg_credential_set_archived(struct mg_txn *t, struct mg_credential_row *row, struct mg_err *err)
{
    return mg_row_archive(t, &SQL_ARCHIVE, row->id, &row->archived_us, &row->updated_us, err);
}

static const struct mg_stmt SQL_DELETE = {"credential_delete", "DELETE FROM vault_credentials WHERE id = $1"};

mg_rc mg_credential_delete(struct mg_txn *t, const struct mg_credential_row *row, struct mg_err *err)
{
    return mg_txn_queue(t, &SQL_DELETE, &row->id, 1, 1, err);
}

/* ---- reading ---- */

#define ONE                                                                                                    \
    "SELECT " COLUMNS " FROM vault_credentials c JOIN vaults v ON v.id = c.vault_id WHERE v.workspace_id = $1" \
    " AND v.id = $2 AND c.id = $3"
static const struct mg_stmt SQL_GET = {"credential_get", ONE};
static const struct mg_stmt SQL_LOCK = {"credential_lock", ONE " FOR UPDATE OF c"};

mg_rc mg_credential_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv vault,
                        struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_GET, (const struct mg_sv[]){workspace, vault, id}, 3, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_credential_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv vault,
                         struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK, (const struct mg_sv[]){workspace, vault, id}, 3, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

#define BY_ID "SELECT " COLUMNS " FROM vault_credentials c WHERE c.id = $1"
static const struct mg_stmt SQL_BY_ID = {"credential_by_id", BY_ID};
static const struct mg_stmt SQL_LOCK_ID = {"credential_lock_id", BY_ID " FOR UPDATE"};

mg_rc mg_credential_by_id(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_credential_row *ret,
                          struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_BY_ID, &id, 1, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

mg_rc mg_credential_lock_id(struct mg_arena *a, struct mg_txn *t, struct mg_sv id, struct mg_credential_row *ret,
                            struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(t, &SQL_LOCK_ID, &id, 1, &r, err);
    return rc < 0 ? rc : take(a, r, id, ret, err);
}

#define LIST(op, way)                                                                                \
    "SELECT " COLUMNS " FROM vault_credentials c WHERE c.vault_id = $1 AND (c.created_at, c.id) " op \
    " ($2::timestamptz, $3)"                                                                         \
    " AND ($4::bool OR c.archived_at IS NULL) ORDER BY c.created_at " way ", c.id " way " LIMIT $5::int"

static const struct mg_list_ways LISTS = {{"credential_list_down", LIST("<", "DESC")},
                                          {"credential_list_up", LIST(">", "ASC")}};

mg_rc mg_credential_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv vault, const struct mg_list_query *q,
                         struct mg_res **ret_res, struct mg_credential_row **ret, struct mg_list_page *ret_page,
                         struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {vault, mg_list_pos(a, q), mg_list_pos_id(q), mg_p_bool(q->include_archived),
                              mg_p_int(a, q->limit + 1)};
    mg_rc rc = mg_list_exec(pg, q, &LISTS, p, 5, &r, ret_page, err);
    if (rc < 0)
        return rc;
    struct mg_credential_row *rows = mg_arena_alloc(a, sizeof(*rows) * (size_t)(ret_page->n + 1));
    for (int i = 0; i < ret_page->n; i++)
        rows[i] = from_row(r, mg_list_row(ret_page, i));
    *ret = rows;
    *ret_res = mg_steal(&r);
    return MG_OK;
}

/* vault_ids is a list of ids of ours, so it may be read as jsonb. */
static const struct mg_stmt SQL_FOR = {
    "credential_for",
    "SELECT " COLUMNS " FROM sessions s CROSS JOIN LATERAL jsonb_array_elements_text(s.vault_ids::jsonb)"
    " WITH ORDINALITY AS n (vault_id, place) JOIN vault_credentials c ON c.vault_id = n.vault_id"
    " WHERE s.id = $1 AND c.server = $2 AND c.archived_at IS NULL ORDER BY n.place LIMIT 1",
};

mg_rc mg_credential_for(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, struct mg_sv server,
                        bool *ret_found, struct mg_credential_row *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_FOR, (const struct mg_sv[]){mg_id_sv(session), server}, 2, &r, err);
    if (rc < 0)
        return rc;
    *ret_found = mg_res_rows(r) > 0;
    return *ret_found ? take(a, r, server, ret, err) : MG_OK;
}
