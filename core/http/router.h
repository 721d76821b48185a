/* Routes: a pattern table in which literals win over {}. Pure, immutable after its making: any thread. */
#ifndef MG_HTTP_ROUTER_H
#define MG_HTTP_ROUTER_H

#include "base/err.h"
#include "http/http.h"

struct mg_router;

/* routes ends with pattern NULL and must outlive the router. */
struct mg_router *mg_router_new(const struct mg_route *routes);
void mg_router_free(struct mg_router *r);

enum { MG_ALLOW_MAX = 64 /* bytes of an allow header with the NUL */ };

/* Finds the route of req->method and req->seg and fills req->param. HEAD is answered by a GET route. MG_ENOTFOUND, or
 * MG_EMETHOD with the methods that the path has in allow. */
mg_rc mg_router_find(const struct mg_router *r, struct mg_http_req *req, const struct mg_route **ret,
                     char allow[MG_ALLOW_MAX], struct mg_err *err) MG_MUSTCHECK;
/* Number of {} in a route's pattern. */
int mg_route_params(const struct mg_route *route);

#endif
