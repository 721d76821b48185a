/* /v1/agents */
#include "api/render.h"
#include "service/agent.h"

static const struct mg_list_kind AGENTS = {.name = "agents", .limit = 20, .limit_max = 100};
static const struct mg_list_kind VERSIONS = {.name = "agent_versions", .limit = 20, .limit_max = 100};

static mg_rc answer(struct mg_http_res *res, const struct mg_agent_row *row)
{
    struct mg_jw w = mg_jw_to(&res->body);
    mg_render_agent(&w, row);
    return MG_OK;
}

/* by_version: versions of one agent, whose cursor is the version. */
static mg_rc answer_list(struct mg_http_req *req, struct mg_http_res *res, const struct mg_agent_row *rows,
                         const struct mg_list_page *page, struct mg_sv scope, bool by_version)
{
    struct mg_jw w = mg_page_begin(res);
    struct mg_page_edge last = {0};
    for (int i = 0; i < page->n; i++) {
        mg_render_agent(&w, &rows[i]);
        last = (struct mg_page_edge){.pos = by_version ? rows[i].version : rows[i].created_us,
                                     .id = by_version ? MG_SV("") : rows[i].id};
    }
    mg_page_next(&w, req->arena, scope, page->more_after, last);
    mg_jw_obj_end(&w);
    return MG_OK;
}

mg_rc mg_get_agents(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_agent_row *rows;
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &AGENTS, MG_SV(""), &q, &scope, err);
    if (rc >= 0)
        rc = mg_agent_list(req->arena, req->pg, &q, &r, &rows, &page, err);
    return rc < 0 ? rc : answer_list(req, res, rows, &page, scope, false);
}

mg_rc mg_post_agents(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_agent_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_agents_create(req->pg, req->arena, mg_req_who(req), body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_agent(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_agent_row row;
    int64_t version = 0;
    mg_rc rc = mg_param_int(req, "version", 1, INT32_MAX, &version, err);
    if (rc >= 0)
        rc = mg_agent_get(req->arena, req->pg, mg_req_workspace(req), req->param[0], version, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_agent(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    const struct mg_json *body;
    struct mg_agent_row row;
    mg_rc rc = mg_req_body(req, &body, err);
    if (rc >= 0)
        rc = mg_agents_update(req->pg, req->arena, mg_req_who(req), req->param[0], body, &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_post_agent_archive(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_agent_row row;
    mg_rc rc = mg_req_no_body(req, err);
    if (rc >= 0)
        rc = mg_agents_archive(req->pg, req->arena, mg_req_who(req), req->param[0], &row, err);
    return rc < 0 ? rc : answer(res, &row);
}

mg_rc mg_get_agent_versions(struct mg_http_req *req, struct mg_http_res *res, struct mg_err *err)
{
    struct mg_list_query q;
    struct mg_list_page page;
    struct mg_agent_row *rows;
    struct mg_sv scope = {0};
    mg_auto(res) struct mg_res *r = NULL;
    mg_rc rc = mg_param_list(req, &VERSIONS, req->param[0], &q, &scope, err);
    if (rc >= 0)
        rc = mg_agent_versions(req->arena, req->pg, req->param[0], &q, &r, &rows, &page, err);
    return rc < 0 ? rc : answer_list(req, res, rows, &page, scope, true);
}
