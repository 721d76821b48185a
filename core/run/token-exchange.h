/* One exchange of a refresh token for an access token (RFC 6749, section 6); used by wallet.c. */
#ifndef MG_RUN_TOKEN_EXCHANGE_H
#define MG_RUN_TOKEN_EXCHANGE_H

#include "run/wallet.h"

struct mg_token_new {
    struct mg_sv access_token, refresh_token; /* the last ptr NULL: the old one stays */
    int64_t expires_us;                       /* INT64_MIN: not said */
};
/* a is a secret arena; *ret is its memory. MG_EAUTH: the endpoint refuses; MG_EUNAVAIL: it cannot be reached, or is
 * busy; MG_ECANCELED. answer may be NULL. */
mg_rc mg_token_exchange(struct mg_net *users, struct mg_arena *a, const struct mg_refresh *r,
                        const struct mg_credential_secret *s, struct mg_cancel *cancel, struct mg_token_new *ret,
                        struct mg_token_answer *answer, struct mg_err *err) MG_MUSTCHECK;
/* Overwrites each place of the secrets in text, or of their beginnings, with stars. */
void mg_secret_scrub(const struct mg_credential_secret *s, char *text);

#endif
