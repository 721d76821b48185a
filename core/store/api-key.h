/* API keys: "mango_" and 48 hex digits, shown once. The database holds the SHA-256 digest and the last four characters. */
#ifndef MG_STORE_API_KEY_H
#define MG_STORE_API_KEY_H

#include "domain/principal.h"
#include "store/pg.h"

enum {
    MG_API_KEY_TEXT = 55, /* bytes of a key of ours, with the NUL */
    MG_API_KEY_MAX = 256, /* bytes of a key that a client sends or MANGO_API_KEY sets */
    MG_API_KEY_NAME_MAX = 255,
    MG_API_KEY_CACHE_MS = 1000, /* a revoked key works no longer than this, with or without the notification */
};

struct mg_api_key {
    struct mg_sv id, workspace, environment, name, hint; /* environment empty: a key of the workspace */
    bool bootstrap;
    int64_t created_us, revoked_us; /* INT64_MIN: not revoked */
};

/* environment: empty, or the environment whose work alone the key is good for. MG_ENOTFOUND: no such workspace or environment there. */
mg_rc mg_api_key_issue(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv environment, struct mg_sv name,
                       struct mg_id *ret_id, char ret_key[MG_API_KEY_TEXT], struct mg_err *err) MG_MUSTCHECK;
/* Of one workspace, or of all when workspace is empty; newest first. Arena memory. */
mg_rc mg_api_key_list(struct mg_pg *pg, struct mg_arena *a, struct mg_sv workspace, struct mg_api_key **ret, int *ret_n,
                      struct mg_err *err) MG_MUSTCHECK;
/* Revokes for good and tells every node; twice is fine. workspace empty: any. MG_ENOTFOUND. */
mg_rc mg_api_key_revoke(struct mg_pg *pg, struct mg_sv workspace, struct mg_sv id, struct mg_err *err) MG_MUSTCHECK;
/* Who has this secret. MG_EAUTH for unknown, revoked and malformed ones alike. */
mg_rc mg_api_key_lookup(struct mg_pg *pg, struct mg_sv secret, struct mg_principal *ret,
                        struct mg_err *err) MG_MUSTCHECK;
/* Makes value (of MANGO_API_KEY) the bootstrap key of the default workspace; another one from before is revoked. Empty: no change.
 * MG_ECONFIG: it is malformed, or a key that has been revoked. Several nodes at once are fine. */
mg_rc mg_api_key_bootstrap(struct mg_pg *pg, struct mg_sv value, struct mg_err *err) MG_MUSTCHECK;
/* Whether any key is active: without one the API does not start. */
mg_rc mg_api_key_any(struct mg_pg *pg, bool *ret, struct mg_err *err) MG_MUSTCHECK;

/* Lookups of the last second, any thread: saves a query per request. */
struct mg_key_cache;
struct mg_key_cache *mg_key_cache_new(void);
void mg_key_cache_free(struct mg_key_cache *c);
/* mg_api_key_lookup by way of the cache. pg may be unopened: a hit does not touch it. */
mg_rc mg_key_cache_lookup(struct mg_key_cache *c, struct mg_pg *pg, struct mg_sv secret, struct mg_principal *ret,
                          struct mg_err *err) MG_MUSTCHECK;
void mg_key_cache_forget(struct mg_key_cache *c, struct mg_sv key_id); /* revoked */
/* For secrets whose owner never changes: kept until forgotten, or until the cache starts anew. */
void mg_key_cache_put(struct mg_key_cache *c, struct mg_sv secret, const struct mg_principal *who);
bool mg_key_cache_get(struct mg_key_cache *c, struct mg_sv secret, struct mg_principal *ret);

#endif
