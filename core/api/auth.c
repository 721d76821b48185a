/* Who calls: keys and the tokens of work items by either header, tickets on WebSocket upgrades. */
#include "api/api.h"
#include "api/scope.h"
#include "api/tickets.h"
#include "base/clock.h"
#include "service/work.h"
#include "store/api-key.h"

/* The credential of a request. Authorization wins when both headers are there. */
static struct mg_sv credential(const struct mg_http_req *req)
{
    struct mg_sv rest = mg_sv_trim(req->authorization);
    struct mg_sv scheme = mg_sv_split(&rest, ' ');
    if (mg_sv_eq_nocase(scheme, MG_SV("bearer")) && mg_sv_trim(rest).len)
        return mg_sv_trim(rest);
    return mg_sv_trim(req->api_key);
}

static mg_rc by_ticket(struct mg_http_req *req, struct mg_principal *who, struct mg_err *err)
{
    return mg_tickets_take(mg_req_app(req)->tickets, mg_http_query(req, "ticket"), who, err);
}

/* A claim ends at any moment, so its token is looked up each time; but for the calls of its own item, whose statements look at the claim themselves. */
static mg_rc by_token(struct mg_http_req *req, const struct mg_route *route, struct mg_sv token,
                      struct mg_principal *who, struct mg_err *err)
{
    struct mg_pollers *known = mg_req_app(req)->pollers;
    if (route && route->flags & MG_ROUTE_TOKEN_END && mg_works_known(known, token, who) &&
        mg_scope_is_own(req, route, who))
        return MG_OK;
    return mg_works_principal(known, req->pg, req->arena, token, who, err);
}

static mg_rc by_secret(struct mg_http_req *req, const struct mg_route *route, struct mg_sv secret,
                       struct mg_principal *who, struct mg_err *err)
{
    if (mg_sv_starts(secret, MG_WORK_TOKEN_PREFIX))
        return by_token(req, route, secret, who, err);
    return mg_key_cache_lookup(mg_req_app(req)->keys, req->pg, secret, who, err);
}

mg_rc mg_auth(struct mg_http_req *req, const struct mg_route *route, struct mg_err *err)
{
    struct mg_principal *who = mg_arena_new_of(req->arena, struct mg_principal);
    struct mg_sv secret = credential(req);
    bool ticket = route && (route->flags & MG_ROUTE_WS) && mg_http_query(req, "ticket").ptr;
    if (secret.len == 0 && !ticket)
        return mg_err_set(err, MG_EAUTH,
                          "no credential: send the API key as `x-api-key: KEY` or `authorization: Bearer KEY`");
    mg_rc rc = ticket ? by_ticket(req, who, err) : by_secret(req, route, secret, who, err);
    if (rc < 0)
        return rc;
    rc = mg_scope_check(req, route, who, err);
    if (rc < 0)
        return rc;
    req->principal = who;
    return MG_OK;
}

mg_rc mg_post_ticket(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    char ticket[MG_TICKET_TEXT];
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_tickets_issue(mg_req_app(req)->tickets, mg_req_who(req), ticket, err);
    if (rc < 0)
        return rc;
    struct mg_jw w = mg_jw_to(&res->body);
    mg_jw_obj(&w);
    mg_jw_kstrz(&w, "type", "stream_ticket");
    mg_jw_kstrz(&w, "ticket", ticket);
    mg_jw_ktime(&w, "expires_at", mg_wall_us() + (int64_t)MG_TICKET_S * 1000000);
    mg_jw_obj_end(&w);
    return MG_OK;
}
