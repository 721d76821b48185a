/* Repositories of sessions, and their tokens, which are sealed like credentials. Changes are made under the session's lock. */
#ifndef MG_STORE_REPOSITORY_H
#define MG_STORE_REPOSITORY_H

#include "store/keyring.h"
#include "store/resource.h"

/* keyring: NULL where the spec has no token. MG_ECONFLICT: its mount path is taken. */
mg_rc mg_repository_insert(struct mg_arena *a, struct mg_txn *t, const struct mg_keyring *keyring, struct mg_sv session,
                           const struct mg_resource_spec *s, struct mg_resource_row *ret,
                           struct mg_err *err) MG_MUSTCHECK;
/* Another token. MG_ENOTFOUND; MG_EINVAL: the resource is none that has one. */
mg_rc mg_repository_set_token(struct mg_arena *a, struct mg_txn *t, const struct mg_keyring *keyring,
                              struct mg_sv session, struct mg_sv id, struct mg_sv token, struct mg_resource_row *ret,
                              struct mg_err *err) MG_MUSTCHECK;
/* The session is over: its tokens go. */
mg_rc mg_repositories_forget(struct mg_txn *t, struct mg_sv session, struct mg_err *err) MG_MUSTCHECK;

/* What is to be fetched. */
struct mg_repository_row {
    struct mg_sv id, mount_path, url, checkout; /* checkout ptr NULL: the default branch */
    struct mg_sv key_id, sealed;                /* ptr NULL: no token */
};
mg_rc mg_repositories_of(struct mg_arena *a, struct mg_pg *pg, struct mg_sv session, struct mg_repository_row **ret,
                         int *ret_n, struct mg_err *err) MG_MUSTCHECK;
/* Appends the token to out, whose room is reserved here. MG_ECONFIG: no key here opens it. */
mg_rc mg_repository_token(const struct mg_keyring *keyring, const struct mg_repository_row *x, struct mg_buf *out,
                          struct mg_err *err) MG_MUSTCHECK;
/* Seals with the active key what another one sealed; adds their number to *n. */
mg_rc mg_repositories_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err) MG_MUSTCHECK;

#endif
