/* The credentials of sessions for MCP servers: found by the server's URL, opened for one call, refreshed in time.
 *
 * A token is read from the database for each call and overwritten after it: what was rotated counts from the next
 * call, what was archived is used no more. The exchange of a refresh token happens outside of any transaction, on one
 * node at a time, and its result is used only when it is stored.
 *
 * Concurrency: a wallet belongs to any thread; a token to one. */
#ifndef MG_RUN_WALLET_H
#define MG_RUN_WALLET_H

#include "base/cancel.h"
#include "store/vault.h"

struct mg_net;
struct mg_wallet;
struct mg_token;

enum {
    MG_TOKEN_SKEW_S = 30,              /* an access token is exchanged this long before it expires */
    MG_TOKEN_EXCHANGE_MS = 20000,      /* one exchange at most; below MG_REFRESH_CLAIM_S */
    MG_TOKEN_ANSWER_MAX = 1024 * 1024, /* bytes of a token endpoint's answer: semantics VA7 */
    MG_TOKEN_EXPIRY_MAX_S = 365 * 86400,
};

struct mg_wallet_opts {
    const struct mg_keyring *keyring; /* NULL: no credential can be opened */
    struct mg_net *users;             /* where token endpoints are asked */
    const char *conninfo;             /* of a connection for refreshes alone */
};
struct mg_wallet *mg_wallet_new(const struct mg_wallet_opts *o);
void mg_wallet_free(struct mg_wallet *w); /* NULL is fine */

/* *ret NULL: the session has no credential for this server. MG_ECONFIG: it has one, and it cannot be opened. */
mg_rc mg_wallet_find(struct mg_wallet *w, struct mg_pg *pg, const struct mg_id *session, struct mg_sv url,
                     struct mg_token **ret, struct mg_err *err) MG_MUSTCHECK;
/* A stored row, opened. */
mg_rc mg_wallet_open(struct mg_wallet *w, const struct mg_credential_row *row, struct mg_token **ret,
                     struct mg_err *err) MG_MUSTCHECK;
void mg_token_free(struct mg_token *t);                 /* NULL is fine */
struct mg_sv mg_token_bearer(const struct mg_token *t); /* empty for NULL */
/* Its access token has expired, or is about to, and there is a refresh token. */
bool mg_token_stale(const struct mg_token *t);
bool mg_token_can_refresh(const struct mg_token *t);

/* What a token endpoint answered. */
struct mg_token_answer {
    int status; /* 0: it could not be reached */
    char type[64];
    char text[1024]; /* of a refusal, without our secrets */
    bool cut;
};
/* Blocks: on threads that may. MG_EAUTH: it cannot be refreshed; MG_ECANCELED; MG_EUNAVAIL: perhaps later. answer may be NULL. */
mg_rc mg_wallet_refresh(struct mg_wallet *w, struct mg_token *t, struct mg_cancel *cancel,
                        struct mg_token_answer *answer, struct mg_err *err) MG_MUSTCHECK;
/* Takes the token's secrets out of a text that comes from outside. */
void mg_token_scrub(const struct mg_token *t, char *text);

#endif
