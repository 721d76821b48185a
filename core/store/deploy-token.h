/* The tokens of a deployment's repositories, sealed. */
#ifndef MG_STORE_DEPLOY_TOKEN_H
#define MG_STORE_DEPLOY_TOKEN_H

#include "store/deploy.h"
#include "store/keyring.h"

/* Sets key_id and sealed of the row by its new resources; nothing where they stay. */
mg_rc mg_deploy_seal(struct mg_arena *a, const struct mg_keyring *keyring, struct mg_deploy_row *row,
                     struct mg_err *err) MG_MUSTCHECK;
/* Gives the row's resources their tokens back. a: becomes secret memory. MG_ECONFIG: no keyring, or without the key. */
mg_rc mg_deploy_unseal(struct mg_arena *a, const struct mg_keyring *keyring, struct mg_deploy_row *row,
                       struct mg_err *err) MG_MUSTCHECK;
/* Adds to *n how many are sealed anew with the active key. */
mg_rc mg_deploys_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *n, struct mg_err *err) MG_MUSTCHECK;

#endif
