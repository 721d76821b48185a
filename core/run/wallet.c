/* Concurrency: the lock guards the connection, and is held for one statement or one short transaction, never across a
 * request. */
#include "run/wallet.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "run/token-exchange.h"

enum {
    WAIT_MS = 30000, /* for another node's exchange */
    LOOK_MS = 100,
    SAVE_TRIES =
        5, /* of storing what was exchanged: without it the new token would be lost, and the old one is spent */
    SAVE_PAUSE_MS = 500,
};

struct mg_wallet {
    struct mg_wallet_opts opts;
    pthread_mutex_t lock;
    struct mg_pg *pg;
};

struct mg_token {
    struct mg_arena *arena; /* overwritten when it is freed */
    struct mg_credential_row row;
    struct mg_refresh refresh;
};

struct mg_wallet *mg_wallet_new(const struct mg_wallet_opts *o)
{
    struct mg_wallet *w = mg_xcalloc(1, sizeof(*w));
    w->opts = *o;
    pthread_mutex_init(&w->lock, NULL);
    w->pg = mg_pg_new(o->conninfo);
    return w;
}

void mg_wallet_free(struct mg_wallet *w)
{
    if (!w)
        return;
    mg_pg_free(w->pg);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- tokens ---- */

void mg_token_free(struct mg_token *t)
{
    if (!t)
        return;
    mg_arena_free(t->arena);
    free(t);
}

static void token_cleanup(struct mg_token **t)
{
    mg_token_free(*t);
}

static struct mg_token *token_new(void)
{
    struct mg_token *t = mg_xcalloc(1, sizeof(*t));
    t->arena = mg_arena_new();
    mg_arena_set_secret(t->arena);
    return t;
}

/* Opens what row (arena memory of the token) holds. */
static mg_rc fill(const struct mg_wallet *w, struct mg_token *t, struct mg_err *err)
{
    if (!w->opts.keyring)
        return mg_err_set(err, MG_ECONFIG,
                          "the session has a credential for this server, and this node has no keyring to open it "
                          "(MANGO_VAULT_KEYRING_FILE)");
    mg_rc rc = mg_credential_unseal(t->arena, w->opts.keyring, &t->row, err);
    return rc < 0 ? rc : mg_refresh_read(t->arena, t->row.cred.auth, &t->refresh, err);
}

mg_rc mg_wallet_find(struct mg_wallet *w, struct mg_pg *pg, const struct mg_id *session, struct mg_sv url,
                     struct mg_token **ret, struct mg_err *err)
{
    struct mg_token *t __attribute__((cleanup(token_cleanup))) = token_new();
    struct mg_sv server;
    bool found = false;
    *ret = NULL;
    if (!mg_server_url_normal(t->arena, url, &server))
        return MG_OK; /* no credential can be for it */
    mg_rc rc = mg_credential_for(t->arena, pg, session, server, &found, &t->row, err);
    if (rc < 0 || !found)
        return rc;
    rc = fill(w, t, err);
    if (rc >= 0)
        *ret = mg_steal(&t);
    return rc;
}

static struct mg_sv copy(struct mg_arena *a, struct mg_sv s)
{
    return s.ptr ? mg_arena_sv(a, s) : s;
}

mg_rc mg_wallet_open(struct mg_wallet *w, const struct mg_credential_row *row, struct mg_token **ret,
                     struct mg_err *err)
{
    struct mg_token *t __attribute__((cleanup(token_cleanup))) = token_new();
    t->row = (struct mg_credential_row){
        .id = copy(t->arena, row->id),
        .vault_id = copy(t->arena, row->vault_id),
        .cred = {.server = copy(t->arena, row->cred.server),
                 .auth = copy(t->arena, row->cred.auth),
                 .expires_us = row->cred.expires_us},
        .key_id = copy(t->arena, row->key_id),
        .sealed = copy(t->arena, row->sealed),
        .archived_us = row->archived_us,
    };
    mg_rc rc = fill(w, t, err);
    if (rc >= 0)
        *ret = mg_steal(&t);
    return rc;
}

struct mg_sv mg_token_bearer(const struct mg_token *t)
{
    return t ? t->row.cred.secret.token : MG_SV("");
}

bool mg_token_can_refresh(const struct mg_token *t)
{
    return t && t->refresh.has && t->row.cred.secret.refresh_token.len;
}

bool mg_token_stale(const struct mg_token *t)
{
    return mg_token_can_refresh(t) && t->row.cred.expires_us != INT64_MIN &&
           t->row.cred.expires_us < mg_wall_us() + (int64_t)MG_TOKEN_SKEW_S * 1000000;
}

void mg_token_scrub(const struct mg_token *t, char *text)
{
    if (t)
        mg_secret_scrub(&t->row.cred.secret, text);
}

/* ---- refreshing ---- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static mg_rc claim(struct mg_wallet *w, const struct mg_token *t, bool *ret_mine, struct mg_err *err)
{
    pthread_mutex_lock(&w->lock);
    mg_rc rc = mg_credential_claim_refresh(t->arena, w->pg, t->row.id, t->row.sealed, ret_mine, err);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

static void leave(struct mg_wallet *w, const struct mg_token *t, bool refused)
{
    struct mg_err err = {0};
    pthread_mutex_lock(&w->lock);
    if (mg_credential_leave_refresh(w->pg, t->row.id, refused, &err) < 0)
        mg_log(MG_WARN, "the claim of a refresh stays until its time is over", MG_F_STR("error", err.text));
    pthread_mutex_unlock(&w->lock);
}

static mg_rc gone(struct mg_err *err)
{
    return mg_err_set(err, MG_EAUTH, "the session's credential was archived or deleted");
}

/* The row as it is now, in the token's place. *ret_new: somebody has changed the secret. */
static mg_rc look(struct mg_wallet *w, struct mg_token *t, bool *ret_new, struct mg_err *err)
{
    struct mg_credential_row row = {0};
    pthread_mutex_lock(&w->lock);
    mg_rc rc = mg_credential_by_id(t->arena, w->pg, t->row.id, &row, err);
    pthread_mutex_unlock(&w->lock);
    if (rc == MG_ENOTFOUND || (rc >= 0 && !row.sealed.ptr))
        return gone(err);
    if (rc < 0)
        return rc;
    *ret_new = !mg_sv_eq(row.sealed, t->row.sealed);
    if (!*ret_new)
        return MG_OK;
    t->row = row;
    return fill(w, t, err);
}

/* Under the row's lock: what somebody else stored in the meantime counts, and what was archived stays archived. */
static mg_rc store_once(struct mg_wallet *w, struct mg_token *t, const struct mg_token_new *n, struct mg_err *err)
{
    struct mg_credential_row row = {0};
    mg_auto(txn) struct mg_txn txn = mg_txn_on(w->pg);
    mg_rc rc = mg_credential_lock_id(t->arena, &txn, t->row.id, &row, err);
    if (rc == MG_ENOTFOUND || (rc >= 0 && !row.sealed.ptr))
        return gone(err);
    if (rc >= 0)
        rc = mg_credential_unseal(t->arena, w->opts.keyring, &row, err);
    if (rc < 0)
        return rc;
    if (!mg_sv_eq(row.cred.secret.refresh_token, t->row.cred.secret.refresh_token)) {
        t->row = row;
        return MG_OK;
    }
    row.cred.secret.token = n->access_token;
    if (n->refresh_token.ptr)
        row.cred.secret.refresh_token = n->refresh_token;
    row.cred.expires_us = n->expires_us;
    const struct mg_credential_secret secret = row.cred.secret;
    rc = mg_auth_set_expiry(t->arena, row.cred.auth, n->expires_us, &row.cred.auth, err);
    if (rc >= 0)
        rc = mg_credential_seal(t->arena, w->opts.keyring, &row, err);
    if (rc >= 0)
        rc = mg_credential_save(t->arena, &txn, &row, err);
    if (rc >= 0)
        rc = mg_txn_commit(&txn, err);
    if (rc < 0)
        return rc;
    row.cred.secret = secret;
    t->row = row;
    return MG_OK;
}

static mg_rc store(struct mg_wallet *w, struct mg_token *t, const struct mg_token_new *n, struct mg_err *err)
{
    mg_rc rc = MG_OK;
    for (int i = 0; i < SAVE_TRIES; i++) {
        pthread_mutex_lock(&w->lock);
        rc = store_once(w, t, n, err);
        pthread_mutex_unlock(&w->lock);
        if (rc >= 0 || rc == MG_EAUTH)
            return rc;
        pause_ms(SAVE_PAUSE_MS);
    }
    mg_log(MG_ERROR, "a refreshed access token cannot be stored; its credential may need to be authorized again",
           MG_F_SV("credential", t->row.id), MG_F_STR("error", err->text));
    return mg_err_wrap(err, MG_EUNAVAIL, "the refreshed token cannot be stored, so it is not used");
}

static mg_rc exchange(struct mg_wallet *w, struct mg_token *t, struct mg_cancel *cancel, struct mg_token_answer *answer,
                      struct mg_err *err)
{
    struct mg_token_new n;
    mg_rc rc = mg_token_exchange(w->opts.users, t->arena, &t->refresh, &t->row.cred.secret, cancel, &n, answer, err);
    bool refused = rc == MG_EAUTH;
    if (rc >= 0)
        rc = store(w, t, &n, err);
    if (rc >= 0)
        return rc;
    leave(w, t, refused);
    if (refused)
        mg_log(MG_WARN, "a credential cannot be refreshed", MG_F_SV("credential", t->row.id),
               MG_F_STR("error", err->text));
    return rc;
}

mg_rc mg_wallet_refresh(struct mg_wallet *w, struct mg_token *t, struct mg_cancel *cancel,
                        struct mg_token_answer *answer, struct mg_err *err)
{
    uint64_t end = mg_now_ns() + WAIT_MS * 1000000ull;
    for (;;) {
        bool mine = false, changed = false;
        mg_rc rc = claim(w, t, &mine, err);
        if (rc >= 0 && mine)
            return exchange(w, t, cancel, answer, err);
        if (rc >= 0)
            rc = look(w, t, &changed, err);
        if (rc < 0 || changed)
            return rc;
        if (cancel && mg_cancel_fired(cancel))
            return mg_err_set(err, MG_ECANCELED, "the call was cancelled");
        if (mg_now_ns() >= end)
            return mg_err_set(err, MG_EUNAVAIL, "another node has been refreshing the credential for too long");
        pause_ms(LOOK_MS);
    }
}
