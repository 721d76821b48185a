/* Rows of webhooks, and the triggers that write for them. */
#include "store/webhook.h"

#include "base/rng.h"
#include "crypto/hash.h"
#include "domain/check.h"
#include "store/row.h"

enum { SEALED_MAX = 1024 /* bytes of a sealed key as base64, many times what it needs */ };

/* What a sealed key is bound to: moved to another row or URL it opens nothing. */
static struct mg_sv bound_to(struct mg_arena *a, struct mg_sv id, struct mg_sv url)
{
    return mg_arena_printf(a, "mango-webhook-v1\n%.*s\n%.*s", MG_SV_ARG(id), MG_SV_ARG(url));
}

/* ---- triggers ---- */

static const struct mg_stmt SQL_LOCK = {"webhook_lock", "SELECT pg_advisory_lock(hashtext('mango.webhooks'))"};
static const struct mg_stmt SQL_UNLOCK = {"webhook_unlock", "SELECT pg_advisory_unlock(hashtext('mango.webhooks'))"};
static const struct mg_stmt SQL_ANY = {"webhook_any", "SELECT EXISTS (SELECT FROM webhooks WHERE disabled_at IS NULL)"};
/* Those that are not as $1 wants them, as statements that make them so. */
static const struct mg_stmt SQL_TRIGGERS = {
    "webhook_triggers",
    "SELECT format('ALTER TABLE %s %s TRIGGER %I', tgrelid::regclass, CASE WHEN $1::bool THEN 'ENABLE' ELSE 'DISABLE' "
    "END, tgname) FROM pg_trigger WHERE tgname IN ('mango_webhook', 'mango_webhook_before') AND NOT tgisinternal"
    " AND (tgenabled <> 'D') <> $1::bool AND pg_table_is_visible(tgrelid) ORDER BY 1",
};

/* Each table by itself, since all at once could deadlock with writers. */
static mg_rc set_triggers(struct mg_pg *pg, bool on, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    const struct mg_sv p[] = {mg_p_bool(on)};
    mg_rc rc = mg_pg_exec(pg, &SQL_TRIGGERS, p, 1, &r, err);
    for (int i = 0; rc >= 0 && i < mg_res_rows(r); i++)
        rc = mg_pg_script(pg, mg_res_sv(r, i, 0).ptr, err);
    return rc;
}

mg_rc mg_webhook_any(struct mg_pg *pg, bool *ret, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_pg_exec(pg, &SQL_ANY, NULL, 0, &r, err);
    if (rc >= 0)
        *ret = mg_res_bool(r, 0, 0);
    return rc;
}

static mg_rc settle_locked(struct mg_pg *pg, struct mg_err *err)
{
    bool any = false;
    mg_rc rc = mg_webhook_any(pg, &any, err);
    return rc < 0 ? rc : set_triggers(pg, any, err);
}

/* fn under the lock of whoever makes or ends webhooks, and the triggers as they must be afterwards. */
static mg_rc locked(struct mg_pg *pg, mg_rc (*fn)(void *ctx, struct mg_pg *pg, struct mg_err *err), void *ctx,
                    struct mg_err *err)
{
    mg_rc rc = mg_pg_exec(pg, &SQL_LOCK, NULL, 0, NULL, err);
    if (rc < 0)
        return rc;
    rc = fn ? fn(ctx, pg, err) : MG_OK;
    struct mg_err other = {0};
    mg_rc settled = settle_locked(pg, rc < 0 ? &other : err);
    (void)!mg_pg_exec(pg, &SQL_UNLOCK, NULL, 0, NULL, &other); /* it ends with the connection at the latest */
    return rc < 0 ? rc : settled;
}

mg_rc mg_webhook_settle(struct mg_pg *pg, struct mg_err *err)
{
    return locked(pg, NULL, NULL, err);
}

/* ---- making ---- */

struct making {
    struct mg_arena *a;
    const struct mg_sv *params;
    bool made;
};

static const struct mg_stmt SQL_INSERT = {
    "webhook_insert",
    "INSERT INTO webhooks (id, workspace_id, url, event_types, key_id, secret)"
    " SELECT $1, w.id, $3, $4::text[], $5, $6 FROM workspaces w WHERE w.id = $2 RETURNING id",
};

static mg_rc insert(void *ctx, struct mg_pg *pg, struct mg_err *err)
{
    struct making *m = ctx;
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = set_triggers(pg, true, err);
    if (rc >= 0)
        rc = mg_pg_exec(pg, &SQL_INSERT, m->params, 6, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "workspace '%.*s' does not exist", MG_SV_ARG(mg_shown_id(m->params[1])));
    return MG_OK;
}

mg_rc mg_webhook_create(struct mg_arena *a, struct mg_pg *pg, const struct mg_keyring *k, struct mg_sv workspace,
                        struct mg_sv url, const struct mg_sv *types, int n_types, struct mg_id *ret_id,
                        char secret[MG_WEBHOOK_SECRET_MAX], struct mg_err *err)
{
    uint8_t key[MG_WEBHOOK_KEY];
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(SEALED_MAX);
    mg_auto(secret) struct mg_buf text = MG_BUF_INIT(MG_WEBHOOK_SECRET_MAX - 1);
    struct mg_id id = mg_id_new("whk");
    mg_rng_bytes(key, sizeof(key));
    mg_rc rc = mg_buf_reserve(&text, MG_WEBHOOK_SECRET_MAX - 1);
    if (rc >= 0)
        rc = mg_buf_str(&text, "whsec_");
    if (rc >= 0)
        rc = mg_base64_encode(&text, mg_sv_n((const char *)key, sizeof(key)));
    if (rc >= 0)
        rc = mg_keyring_seal(k, bound_to(a, mg_id_sv(&id), url), mg_sv_n((const char *)key, sizeof(key)), &sealed, err);
    mg_wipe(key, sizeof(key));
    const struct mg_sv p[] = {mg_id_sv(&id),        workspace,           url, mg_p_array(a, types, (size_t)n_types),
                              mg_keyring_active(k), mg_buf_view(&sealed)};
    if (rc >= 0)
        rc = locked(pg, insert, &(struct making){.a = a, .params = p}, err);
    if (rc < 0)
        return rc;
    memcpy(secret, text.ptr, text.len + 1);
    *ret_id = id;
    return MG_OK;
}

/* ---- listing, ending ---- */

static const struct mg_stmt SQL_LIST = {
    "webhook_list",
    "SELECT w.id, w.workspace_id, w.url, array_to_string(w.event_types, ','), mg_us(w.created_at), "
    "mg_us(w.disabled_at),"
    " count(d.*) FILTER (WHERE d.state = 'pending'), count(d.*) FILTER (WHERE d.state = 'failed'),"
    " (array_agg(d.last_error ORDER BY d.event_seq DESC) FILTER (WHERE d.last_error IS NOT NULL))[1]"
    " FROM webhooks w LEFT JOIN webhook_deliveries d ON d.webhook_id = w.id WHERE $1 = '' OR w.workspace_id = $1"
    " GROUP BY w.id ORDER BY w.created_at, w.id",
};

static void fill_row(struct mg_arena *a, const struct mg_res *r, int i, void *row)
{
    struct mg_webhook_row *x = row;
    *x = (struct mg_webhook_row){
        .id = mg_res_sv(r, i, 0),
        .workspace = mg_res_sv(r, i, 1),
        .url = mg_res_sv(r, i, 2),
        .types = mg_res_sv(r, i, 3),
        .created_us = mg_res_time(r, i, 4),
        .disabled_us = mg_res_time(r, i, 5),
        .pending = mg_res_int(r, i, 6),
        .failed = mg_res_int(r, i, 7),
        .last_error = mg_res_sv(r, i, 8),
    };
    struct mg_sv *const views[] = {&x->id, &x->workspace, &x->url, &x->types, &x->last_error};
    mg_row_keep(a, views, sizeof(views) / sizeof(views[0]));
}

mg_rc mg_webhook_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_webhook_row **ret,
                      int *ret_n, struct mg_err *err)
{
    void *rows = NULL;
    mg_rc rc = mg_row_list(a, pg, &SQL_LIST, &workspace, 1, sizeof(**ret), fill_row, &rows, ret_n, err);
    *ret = rows;
    return rc;
}

struct ending {
    const struct mg_stmt *rows, *deliveries;
    struct mg_sv id;
};

static mg_rc end_one(void *ctx, struct mg_pg *pg, struct mg_err *err)
{
    const struct ending *e = ctx;
    mg_auto(txn) struct mg_txn t = mg_txn_on(pg);
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_txn_query(&t, e->rows, &e->id, 1, &r, err);
    if (rc < 0)
        return rc;
    if (mg_res_rows(r) == 0)
        return mg_err_set(err, MG_ENOTFOUND, "webhook '%.*s' does not exist", MG_SV_ARG(mg_shown_id(e->id)));
    rc = mg_txn_queue(&t, e->deliveries, &e->id, 1, -1, err);
    return rc < 0 ? rc : mg_txn_commit(&t, err);
}

static const struct mg_stmt SQL_DISABLE = {
    "webhook_disable", "UPDATE webhooks SET disabled_at = coalesce(disabled_at, now()) WHERE id = $1 RETURNING id"};
static const struct mg_stmt SQL_DROP = {
    "webhook_drop",
    "UPDATE webhook_deliveries SET state = 'failed', done_at = now(), claim = NULL, claim_until = NULL,"
    " last_error = 'the webhook was disabled' WHERE webhook_id = $1 AND state = 'pending'",
};
static const struct mg_stmt SQL_DELETE = {"webhook_delete", "DELETE FROM webhooks WHERE id = $1 RETURNING id"};
static const struct mg_stmt SQL_FORGET = {"webhook_forget", "DELETE FROM webhook_deliveries WHERE webhook_id = $1"};

mg_rc mg_webhook_disable(struct mg_pg *pg, struct mg_sv id, struct mg_err *err)
{
    return locked(pg, end_one, &(struct ending){.rows = &SQL_DISABLE, .deliveries = &SQL_DROP, .id = id}, err);
}

mg_rc mg_webhook_delete(struct mg_pg *pg, struct mg_sv id, struct mg_err *err)
{
    return locked(pg, end_one, &(struct ending){.rows = &SQL_DELETE, .deliveries = &SQL_FORGET, .id = id}, err);
}

/* ---- keys ---- */

static mg_rc open_key(const struct mg_keyring *k, struct mg_sv id, struct mg_sv url, struct mg_sv key_id,
                      struct mg_sv sealed, struct mg_buf *out, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_rc rc = mg_keyring_open(k, key_id, bound_to(a, id, url), sealed, out, err);
    return rc < 0 ? mg_err_wrap(err, rc, "webhook '%.*s'", MG_SV_ARG(id)) : rc;
}

mg_rc mg_delivery_key(const struct mg_keyring *k, const struct mg_delivery *d, struct mg_buf *out, struct mg_err *err)
{
    return open_key(k, d->webhook, d->url, d->key_id, d->sealed, out, err);
}

static const struct mg_stmt SQL_OLD_KEYS = {
    "webhook_old_keys", "SELECT id, url, key_id, secret FROM webhooks WHERE key_id <> $1 ORDER BY id"};
static const struct mg_stmt SQL_REKEY = {"webhook_rekey",
                                         "UPDATE webhooks SET key_id = $3, secret = $4 WHERE id = $1 AND secret = $2"};

static mg_rc rekey_one(struct mg_pg *pg, const struct mg_keyring *k, const struct mg_res *r, int i, struct mg_err *err)
{
    mg_auto(arena) struct mg_arena *a = mg_arena_new();
    mg_auto(secret) struct mg_buf key = MG_BUF_INIT(MG_WEBHOOK_KEY);
    mg_auto(buf) struct mg_buf sealed = MG_BUF_INIT(SEALED_MAX);
    struct mg_sv id = mg_res_sv(r, i, 0), url = mg_res_sv(r, i, 1), before = mg_res_sv(r, i, 3);
    mg_rc rc = open_key(k, id, url, mg_res_sv(r, i, 2), before, &key, err);
    if (rc >= 0)
        rc = mg_keyring_seal(k, bound_to(a, id, url), mg_buf_view(&key), &sealed, err);
    if (rc < 0)
        return rc;
    return mg_pg_exec(pg, &SQL_REKEY, (const struct mg_sv[]){id, before, mg_keyring_active(k), mg_buf_view(&sealed)}, 4,
                      NULL, err);
}

mg_rc mg_webhook_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err)
{
    mg_auto(res) struct mg_res *r = NULL;
    struct mg_sv active = mg_keyring_active(k);
    mg_rc rc = mg_pg_exec(pg, &SQL_OLD_KEYS, &active, 1, &r, err);
    for (int i = 0; rc >= 0 && i < mg_res_rows(r); i++) {
        rc = rekey_one(pg, k, r, i, err);
        *n += rc >= 0;
    }
    return rc;
}
