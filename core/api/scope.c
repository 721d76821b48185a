#include "api/scope.h"

#include "api/api.h"
#include "conf/conf.h"
#include "domain/check.h"
#include "store/memory.h"
#include "store/skill.h"
#include "store/work.h"

static bool is_session_route(const struct mg_route *r)
{
    return mg_sv_starts(mg_sv_of(r->pattern), "/v1/sessions/");
}

/* Skills belong to no session; a worker may read those that the session of its claim holds. */
static bool is_skill_route(const struct mg_route *r)
{
    return mg_sv_starts(mg_sv_of(r->pattern), "/v1/skills/");
}

static mg_rc check_skill(struct mg_http_req *req, const struct mg_principal *who, struct mg_err *err)
{
    bool held = false;
    mg_rc rc = mg_skill_claimed(req->pg, req->param[0], mg_id_sv(&who->work), mg_id_sv(&who->environment), &held, err);
    if (rc < 0 || held)
        return rc;
    return mg_err_set(err, MG_EDENIED, "no session of this credential's claim holds this skill");
}

static mg_rc needs_api_key(struct mg_err *err)
{
    return mg_err_set(err, MG_EDENIED,
                      "this endpoint needs an API key of the workspace; an environment key is for its work queue, the "
                      "token of a work item for that item and its session");
}

/* ---- environment keys ---- */

static mg_rc other_environment(const struct mg_principal *who, struct mg_err *err)
{
    return mg_err_set(err, MG_EDENIED, "this key is for the work of environment '%s' only", who->environment.s);
}

static mg_rc needs_token(struct mg_err *err)
{
    return mg_err_set(
        err, MG_EDENIED,
        "this endpoint needs the token of the work item (sessions_token in the secret of the poll's answer) "
        "or an API key; for workers that send the environment key the operator can set "
        "MANGO_WORK_ALLOW_ENVIRONMENT_KEY=1");
}

static mg_rc holds_session(struct mg_http_req *req, const struct mg_principal *who, struct mg_err *err)
{
    bool live = false;
    mg_rc rc = mg_work_live_claim(req->pg, mg_id_sv(&who->environment), req->param[0], &live, err);
    if (rc < 0 || live)
        return rc;
    return mg_err_set(err, MG_EDENIED,
                      "no worker of environment '%s' holds this session: claim and acknowledge its work first",
                      who->environment.s);
}

static mg_rc check_environment_key(struct mg_http_req *req, const struct mg_route *route,
                                   const struct mg_principal *who, struct mg_err *err)
{
    uint32_t flags = route ? route->flags : 0;
    if (!(flags & (MG_ROUTE_ENV_KEY | MG_ROUTE_ENV_SESSION)))
        return needs_api_key(err);
    bool session = is_session_route(route), skill = is_skill_route(route);
    if (!session && !skill && !mg_sv_eq(req->param[0], mg_id_sv(&who->environment)))
        return other_environment(who, err);
    if (flags & MG_ROUTE_ENV_KEY)
        return MG_OK;
    if (!mg_conf_bool(mg_req_app(req)->conf, MG_OPT_WORK_ALLOW_ENVIRONMENT_KEY))
        return needs_token(err);
    if (skill)
        return check_skill(req, who, err);
    return session ? holds_session(req, who, err) : MG_OK;
}

/* ---- tokens ---- */

bool mg_scope_is_own(const struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who)
{
    if (is_session_route(route))
        return mg_sv_eq(req->param[0], mg_id_sv(&who->session));
    return mg_sv_eq(req->param[0], mg_id_sv(&who->environment)) && mg_sv_eq(req->param[1], mg_id_sv(&who->work));
}

/* Memories of a store that its session has; changes where the session may write. */
static mg_rc holds_store(struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who,
                         bool *ret_own, struct mg_err *err)
{
    bool read_only = false;
    mg_rc rc = mg_session_has_store(req->pg, mg_id_sv(&who->session), req->param[0], ret_own, &read_only, err);
    if (rc < 0 || !*ret_own || !read_only || route->method == MG_GET || !who->live)
        return rc;
    return mg_err_set(err, MG_EDENIED, "memory store '%.*s' is read-only in session '%s'",
                      MG_SV_ARG(mg_shown_id(req->param[0])), who->session.s);
}

static bool is_store_route(const struct mg_route *r)
{
    return mg_sv_starts(mg_sv_of(r->pattern), "/v1/memory_stores/");
}

static mg_rc check_token(struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who,
                         struct mg_err *err)
{
    uint32_t flags = route ? route->flags : 0;
    if (who->live && flags & MG_ROUTE_TOKEN && is_skill_route(route))
        return check_skill(req, who, err);
    bool takes = flags & (MG_ROUTE_TOKEN | MG_ROUTE_TOKEN_END);
    bool own = takes && !is_store_route(route) && mg_scope_is_own(req, route, who);
    mg_rc rc = takes && is_store_route(route) ? holds_store(req, route, who, &own, err) : MG_OK;
    if (rc < 0)
        return rc;
    if (own && (who->live || flags & MG_ROUTE_TOKEN_END))
        return MG_OK;
    if (!who->live)
        return mg_err_set(
            err, MG_EAUTH,
            "the claim of this token is not held: it was not acknowledged, or it has ended; stop the tools "
            "of its session and send nothing more");
    if (takes)
        return mg_err_set(err, MG_EDENIED, "this token is for work '%s' and its session '%s' only", who->work.s,
                          who->session.s);
    return needs_api_key(err);
}

mg_rc mg_scope_check(struct mg_http_req *req, const struct mg_route *route, const struct mg_principal *who,
                     struct mg_err *err)
{
    switch (who->kind) {
    case MG_BY_API_KEY:
        return MG_OK;
    case MG_BY_ENVIRONMENT_KEY:
        return check_environment_key(req, route, who, err);
    case MG_BY_ITEM_TOKEN:
        return check_token(req, route, who, err);
    }
    return needs_api_key(err);
}
