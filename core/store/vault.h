/* Vaults and credentials. Secrets go in and out sealed: core/store/keyring.h opens them. */
#ifndef MG_STORE_VAULT_H
#define MG_STORE_VAULT_H

#include "domain/id.h"
#include "domain/vault.h"
#include "store/keyring.h"
#include "store/list.h"
#include "store/pg.h"

struct mg_vault_row {
    struct mg_sv id;
    struct mg_vault vault;
    int64_t created_us, updated_us, archived_us; /* archived INT64_MIN: it is not */
};

mg_rc mg_vault_insert(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, const struct mg_id *id,
                      const struct mg_vault *v, struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Arena memory. MG_ENOTFOUND also for another workspace's. */
mg_rc mg_vault_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id,
                   struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vault_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv id,
                    struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Under the lock. */
mg_rc mg_vault_save(struct mg_arena *a, struct mg_txn *t, struct mg_vault_row *row, const struct mg_vault *v,
                    struct mg_err *err) MG_MUSTCHECK;
/* Its credentials are archived with it, and their secrets are gone. */
mg_rc mg_vault_set_archived(struct mg_txn *t, struct mg_vault_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vault_delete(struct mg_txn *t, const struct mg_vault_row *row, struct mg_err *err) MG_MUSTCHECK;
/* Rows are views of *ret_res. */
mg_rc mg_vault_list(struct mg_arena *a, struct mg_pg *pg, const struct mg_list_query *q, struct mg_res **ret_res,
                    struct mg_vault_row **ret, struct mg_list_page *ret_page, struct mg_err *err) MG_MUSTCHECK;
/* Whether all exist and none is archived: MG_ENOTFOUND, MG_EINVAL. They stay so until the transaction ends. */
mg_rc mg_vaults_check(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, const struct mg_sv *ids, int n,
                      struct mg_err *err) MG_MUSTCHECK;

struct mg_credential_row {
    struct mg_sv id, vault_id;
    struct mg_credential cred;   /* without its secret */
    struct mg_sv key_id, sealed; /* ptr NULL: archived */
    int64_t created_us, updated_us, archived_us;
};

/* Under the vault's lock. MG_ECONFLICT: it has one for this server; MG_EINVAL: it is full. */
mg_rc mg_credential_check_room(struct mg_txn *t, struct mg_sv vault, struct mg_sv server,
                               struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_insert(struct mg_arena *a, struct mg_txn *t, struct mg_credential_row *row,
                           struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_get(struct mg_arena *a, struct mg_pg *pg, struct mg_sv workspace, struct mg_sv vault,
                        struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_lock(struct mg_arena *a, struct mg_txn *t, struct mg_sv workspace, struct mg_sv vault,
                         struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* The same by the id alone, for what the server does by itself. */
mg_rc mg_credential_by_id(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_credential_row *ret,
                          struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_lock_id(struct mg_arena *a, struct mg_txn *t, struct mg_sv id, struct mg_credential_row *ret,
                            struct mg_err *err) MG_MUSTCHECK;
/* Under the lock: all that can change, the sealed secret included. */
mg_rc mg_credential_save(struct mg_arena *a, struct mg_txn *t, struct mg_credential_row *row,
                         struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_set_archived(struct mg_txn *t, struct mg_credential_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_delete(struct mg_txn *t, const struct mg_credential_row *row, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_list(struct mg_arena *a, struct mg_pg *pg, struct mg_sv vault, const struct mg_list_query *q,
                         struct mg_res **ret_res, struct mg_credential_row **ret, struct mg_list_page *ret_page,
                         struct mg_err *err) MG_MUSTCHECK;

/* The credential that a session uses for a server: of the first of its vaults that has one. *ret_found false: none. */
mg_rc mg_credential_for(struct mg_arena *a, struct mg_pg *pg, const struct mg_id *session, struct mg_sv server,
                        bool *ret_found, struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
/* Seals row->cred.secret into key_id and sealed; opens them into it. a is a secret arena. */
mg_rc mg_credential_seal(struct mg_arena *a, const struct mg_keyring *k, struct mg_credential_row *row,
                         struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credential_unseal(struct mg_arena *a, const struct mg_keyring *k, struct mg_credential_row *row,
                           struct mg_err *err) MG_MUSTCHECK;

/* The exchange of a refresh token: one node at a time. *ret_mine false: another one is at it. */
enum { MG_REFRESH_CLAIM_S = 40 /* longer than the exchange may take */ };
mg_rc mg_credential_claim_refresh(struct mg_arena *a, struct mg_pg *pg, struct mg_sv id, struct mg_sv sealed,
                                  bool *ret_mine, struct mg_err *err) MG_MUSTCHECK;
/* refused: the endpoint will not take the token again, which webhooks are told. */
mg_rc mg_credential_leave_refresh(struct mg_pg *pg, struct mg_sv id, bool refused, struct mg_err *err) MG_MUSTCHECK;

/* Every key that sealed something must be in the keyring (NULL: there is none): MG_ECONFIG says which is not. */
mg_rc mg_vault_check_keyring(struct mg_pg *pg, const struct mg_keyring *k, struct mg_err *err) MG_MUSTCHECK;
/* Seals everything with the active key that is sealed with another one. */
mg_rc mg_vault_rekey(struct mg_pg *pg, const struct mg_keyring *k, int64_t *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
