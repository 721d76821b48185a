/* What a credential other than an API key may call: the flags of the route, and the ids of its path. */
#ifndef MG_API_SCOPE_H
#define MG_API_SCOPE_H

#include "domain/principal.h"
#include "http/http.h"

/* route NULL: one for API keys only. MG_EDENIED names the credential that is taken here; MG_EAUTH: the claim of the token is over. */
mg_rc mg_scope_check(struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who,
                     struct mg_err *err) MG_MUSTCHECK;
/* The path names the token's own item or session. */
bool mg_scope_is_own(const struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who);

#endif
