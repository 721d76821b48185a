/* Vaults and credentials. */
#ifndef MG_SERVICE_VAULT_H
#define MG_SERVICE_VAULT_H

#include "domain/principal.h"
#include "store/vault.h"

mg_rc mg_vaults_create(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, const struct mg_json *body,
                       struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vaults_update(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       const struct mg_json *body, struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vaults_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                        struct mg_vault_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vaults_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv id,
                       struct mg_err *err) MG_MUSTCHECK;

/* What a change of a secret needs. */
struct mg_vault_rules {
    const struct mg_keyring *keyring; /* NULL: the server has none, and keeps no credentials */
    bool allow_http;
};
/* The arena of these is a secret one. */
/* Nothing is sealed without one: MG_EINVAL says what the operator does. */
mg_rc mg_needs_keyring(const struct mg_keyring *keyring, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credentials_create(const struct mg_vault_rules *rules, struct mg_pg *pg, struct mg_arena *a,
                            const struct mg_principal *who, struct mg_sv vault, const struct mg_json *body,
                            struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credentials_update(const struct mg_vault_rules *rules, struct mg_pg *pg, struct mg_arena *a,
                            const struct mg_principal *who, struct mg_sv vault, struct mg_sv id,
                            const struct mg_json *body, struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credentials_archive(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv vault,
                             struct mg_sv id, struct mg_credential_row *ret, struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_credentials_delete(struct mg_pg *pg, struct mg_arena *a, const struct mg_principal *who, struct mg_sv vault,
                            struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;

#endif
