/* Vaults and credentials: the checks of their bodies, without I/O. What is secret lives in arenas that are overwritten
 * when they are freed (mg_arena_set_secret), and in no text that is stored as it is. */
#ifndef MG_DOMAIN_VAULT_H
#define MG_DOMAIN_VAULT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "json/json.h"

enum {
    MG_VAULT_NAME_MAX = 255,       /* characters */
    MG_VAULT_CREDENTIALS_MAX = 20, /* of a vault, archived ones aside: semantics VA4 */
    MG_SESSION_VAULTS_MAX = 50,
    MG_CREDENTIAL_URL_MAX = 2048,         /* bytes: the API's limit for mcp_servers[].url */
    MG_CREDENTIAL_TOKEN_MAX = 8 * 1024,   /* bytes: what servers take in one header line */
    MG_CREDENTIAL_SECRET_MAX = 64 * 1024, /* bytes of the secret part as JSON: three tokens, escaped */
};

struct mg_vault {
    struct mg_sv name, metadata;
};
mg_rc mg_vault_parse_create(struct mg_arena *a, const struct mg_json *body, struct mg_vault *ret,
                            struct mg_err *err) MG_MUSTCHECK;
mg_rc mg_vault_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_vault *base,
                            struct mg_vault *ret, struct mg_err *err) MG_MUSTCHECK;

/* The secret part of a credential; views of a secret arena. ptr NULL: there is none. */
struct mg_credential_secret {
    struct mg_sv token; /* what goes to the server: of static_bearer, or the access token of mcp_oauth */
    struct mg_sv refresh_token, client_secret;
};

struct mg_credential {
    struct mg_sv name; /* ptr NULL: none */
    struct mg_sv metadata;
    struct mg_sv server; /* the normalised URL */
    struct mg_sv auth;   /* as clients see it: JSON without a secret */
    int64_t expires_us;  /* INT64_MIN: not known */
    struct mg_credential_secret secret;
};
/* What a header line carries unchanged: MG_CREDENTIAL_TOKEN_MAX printable characters. */
mg_rc mg_token_check(struct mg_sv s, const char *place, struct mg_err *err) MG_MUSTCHECK;
/* allow_http: servers and token endpoints may be reached without TLS. */
mg_rc mg_credential_parse_create(struct mg_arena *a, const struct mg_json *body, bool allow_http,
                                 struct mg_credential *ret, struct mg_err *err) MG_MUSTCHECK;
/* base: the stored one with its secret. */
mg_rc mg_credential_parse_update(struct mg_arena *a, const struct mg_json *body, const struct mg_credential *base,
                                 struct mg_credential *ret, struct mg_err *err) MG_MUSTCHECK;

/* JSON of the secret part; out has room for MG_CREDENTIAL_SECRET_MAX, which is reserved here. */
mg_rc mg_credential_secret_write(const struct mg_credential_secret *s, struct mg_buf *out) MG_MUSTCHECK;
/* text must outlive *ret. */
mg_rc mg_credential_secret_read(struct mg_arena *a, struct mg_sv text, struct mg_credential_secret *ret,
                                struct mg_err *err) MG_MUSTCHECK;
/* What the sealed secret is bound to: semantics VA1. */
struct mg_sv mg_credential_associated(struct mg_arena *a, struct mg_sv vault, struct mg_sv id, struct mg_sv server,
                                      struct mg_sv auth);

/* How the refresh token is exchanged; views of the parsed auth. has false: there is nothing to refresh with. */
struct mg_refresh {
    bool has;
    struct mg_sv endpoint, client_id, resource, scope; /* the last two ptr NULL: none */
    enum mg_refresh_auth { MG_REFRESH_NONE, MG_REFRESH_BASIC, MG_REFRESH_POST } auth;
};
mg_rc mg_refresh_read(struct mg_arena *a, struct mg_sv auth, struct mg_refresh *ret, struct mg_err *err) MG_MUSTCHECK;
/* auth with another expires_at (INT64_MIN: none). */
mg_rc mg_auth_set_expiry(struct mg_arena *a, struct mg_sv auth, int64_t expires_us, struct mg_sv *ret,
                         struct mg_err *err) MG_MUSTCHECK;

/* One form for all spellings of a server's URL: scheme and host in lower case, no default port, no slash at the end.
 * False: it is no such URL, or has a user or a fragment. */
bool mg_server_url_normal(struct mg_arena *a, struct mg_sv url, struct mg_sv *ret);
/* Of such a form: whether it names a port, which is none that its scheme has anyway. */
bool mg_server_url_has_port(struct mg_sv normal);

/* vault_ids of a session or deployment: *ret is the JSON array, *ret_ids its items. */
mg_rc mg_vault_ids_parse(struct mg_arena *a, const struct mg_json *v, struct mg_sv *ret, struct mg_sv **ret_ids,
                         int *ret_n, struct mg_err *err) MG_MUSTCHECK;

#endif
